//! The program under a run: a process group of its own that dies with its parent, and the terminal it may need.
//!
//! * **C1.** The program leads a process group; signals go to the whole group.
//! * **C2.** On Linux it is killed when the *thread* that started it ends (that is what the kernel watches), so one thread
//!   starts it and waits for it. What the program starts in turn is not watched by the kernel; C3 covers the usual end.
//! * **C3.** Signals are sent only before the program was reaped: until then its number cannot belong to another group.
//!   When it ends, what is left of its group is killed: it would work on without authority.
//! * **C4. Terminal.** The group gets the terminal when input and output are one and this process has it in the
//!   foreground, otherwise when it first asks for it (it stops on TTIN or TTOU). When it stops on TSTP, this process takes
//!   the terminal back and stops as well, so that the shell sees one job. After a kill the terminal's modes are put back.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{self, Command};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use signal_hook::SigId;
use signal_hook::consts::{SIGCHLD, SIGCONT};

use super::interrupt::Waker;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl Ended {
    /// The status a shell would give it: its own, or 128 + signal.
    #[must_use]
    pub fn status(self) -> u8 {
        let status = match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => 128 + signal,
        };
        u8::try_from(status & 0xff).unwrap_or(u8::MAX)
    }
}

/// A program that was started and not yet reaped.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    group: Pid,
    terminal: Option<Terminal>,
    changed: Waker,
    registered: Vec<SigId>,
    reaped: bool,
}

impl Child {
    /// Starts `command` as C1 and C2 say. The calling thread has to stay until the program has ended.
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        let changed = Waker::new()?;
        let registered = vec![changed.wake_on(SIGCHLD)?, changed.wake_on(SIGCONT)?];
        let terminal = Terminal::of_this_process();
        let hand_over = terminal.as_ref().is_some_and(Terminal::wanted_from_the_start);
        let parent = rustix::process::getpid();
        command.process_group(0);
        // SAFETY: between fork and exec the closure makes only system calls that are async-signal-safe (prctl, getppid,
        // sigprocmask, tcsetpgrp, getpid); it allocates nothing and takes no lock.
        #[expect(unsafe_code, reason = "what runs between fork and exec has no safe interface")]
        unsafe {
            command.pre_exec(move || {
                die_with(parent)?;
                if hand_over {
                    give_terminal(io::stdin().as_fd(), rustix::process::getpid())?;
                }
                Ok(())
            });
        }
        let spawned = command.spawn();
        if spawned.is_err()
            && hand_over
            && let Some(terminal) = &terminal
        {
            // The child may have taken the terminal and then found no program to run.
            terminal.give(terminal.own);
        }
        let process = match spawned {
            Ok(process) => process,
            Err(error) => {
                unregister(registered);
                return Err(error);
            }
        };
        let group = Pid::from_child(&process);
        Ok(Self {
            process,
            group,
            terminal,
            changed,
            registered,
            reaped: false,
        })
    }

    /// Asks the group to end. One that is stopped is woken up to hear it.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Sends a signal to the group.
    pub(super) fn signal(&self, signal: Signal) {
        // The only failure that is left is "no such group": it has ended already.
        let _ = rustix::process::kill_process_group(self.group, signal);
    }

    /// Kills the group and reaps the program.
    pub(super) fn kill(&mut self) -> io::Result<Ended> {
        self.signal(Signal::KILL);
        loop {
            if let Some(status) = self.wait_for(WaitIdOptions::EXITED)? {
                return self.reap(&status);
            }
        }
    }

    /// Looks how the program is, without waiting; hands the terminal around where it stopped for it.
    pub(super) fn poll(&mut self) -> io::Result<Option<Ended>> {
        self.changed.drain();
        if let Some(status) = self.wait_for(WaitIdOptions::EXITED | WaitIdOptions::NOHANG)?
            && (status.exited() || status.killed() || status.dumped())
        {
            return self.reap(&status).map(Some);
        }
        let stops = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let stopped = rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::Pid(self.group), stops))?;
        match stopped.and_then(|status| status.stopping_signal()) {
            Some(signal) => self.stopped_by(signal),
            None => self.continued(),
        }
        Ok(None)
    }

    /// Looks without reaping, so that the group's number stays taken (C3).
    fn wait_for(&self, options: WaitIdOptions) -> io::Result<Option<WaitIdStatus>> {
        let options = options | WaitIdOptions::NOWAIT;
        Ok(rustix::io::retry_on_intr(|| {
            rustix::process::waitid(WaitId::Pid(self.group), options)
        })?)
    }

    fn reap(&mut self, status: &WaitIdStatus) -> io::Result<Ended> {
        self.signal(Signal::KILL);
        self.process.wait()?;
        self.reaped = true;
        if let Some(terminal) = &self.terminal {
            terminal.take_back_from(self.group);
            if status.terminating_signal().is_some() {
                terminal.restore();
            }
        }
        match (status.exit_status(), status.terminating_signal()) {
            (Some(status), _) => Ok(Ended::Exited(status)),
            (None, Some(signal)) => Ok(Ended::Killed(signal)),
            (None, None) => Err(io::Error::other("the program ended in a way that waitid does not tell")),
        }
    }

    /// Job control (C4).
    fn stopped_by(&self, signal: i32) {
        let Some(terminal) = &self.terminal else {
            return;
        };
        let for_terminal = signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw();
        if for_terminal && terminal.holder() == Some(terminal.own) {
            terminal.give(self.group);
            self.signal(Signal::CONT);
        } else if for_terminal || signal == Signal::TSTP.as_raw() {
            terminal.take_back_from(self.group);
            // Stops this process, unless no shell is there to wake it up again: then the kernel ignores it.
            let _ = rustix::process::kill_current_process_group(Signal::TSTP);
            self.continued();
            self.signal(Signal::CONT);
        }
    }

    /// After a CONT: in the foreground again, the program gets the terminal that it had.
    fn continued(&self) {
        if let Some(terminal) = &self.terminal
            && terminal.wanted_from_the_start()
            && terminal.holder() == Some(terminal.own)
        {
            terminal.give(self.group);
            self.signal(Signal::CONT);
        }
    }
}

impl AsFd for Child {
    /// Readable when [`Child::poll`] may have news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changed.as_fd()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // Only on an error of the system in between: the program must not outlive the run.
            self.signal(Signal::KILL);
            let _ = self.process.wait();
        }
        unregister(std::mem::take(&mut self.registered));
    }
}

fn unregister(ids: Vec<SigId>) {
    for id in ids {
        signal_hook::low_level::unregister(id);
    }
}

/// Asks the kernel to kill this process when its parent ends, and checks that it has not ended before that was heard.
#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(rustix::io::Errno::SRCH.into())
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_parent: Pid) -> io::Result<()> {
    Ok(())
}

/// The terminal on standard input, if this process has it in the foreground.
#[derive(Debug)]
struct Terminal {
    own: Pid,
    modes: Termios,
}

impl Terminal {
    fn of_this_process() -> Option<Self> {
        let own = rustix::process::getpgrp();
        let modes = tcgetattr(io::stdin()).ok()?;
        (tcgetpgrp(io::stdin()).ok() == Some(own)).then_some(Self { own, modes })
    }

    /// With its output in a pipe (`... | less`) the program's neighbours may need the terminal more than it does.
    fn wanted_from_the_start(&self) -> bool {
        isatty(io::stdout())
    }

    fn holder(&self) -> Option<Pid> {
        tcgetpgrp(io::stdin()).ok()
    }

    fn give(&self, group: Pid) {
        // Fails when the group has ended or the terminal is gone: then there is nothing to hand over.
        let _ = give_terminal(io::stdin().as_fd(), group);
    }

    /// Puts its modes back as they were: a program that was killed could not.
    fn restore(&self) {
        if self.holder() == Some(self.own) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.modes);
        }
    }

    fn take_back_from(&self, group: Pid) {
        if self.holder() == Some(group) {
            self.give(self.own);
        }
    }
}

/// Puts `group` into the foreground. From the background that would stop the caller by TTOU, so the signal is blocked.
fn give_terminal(terminal: BorrowedFd<'_>, group: Pid) -> io::Result<()> {
    let mut ttou = SigSet::empty();
    ttou.add(NixSignal::SIGTTOU);
    let before = ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let given = tcsetpgrp(terminal, group);
    before.thread_set_mask()?;
    Ok(given?)
}
