//! A program under the fence: started only with the authority, stopped before the authority can have lapsed.
//!
//! The thread that starts the program watches it and does nothing else. Its first act after every wake-up, the one after a
//! stop or a suspend included, is to compare the clock with the deadline.

use std::io;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

use keyfence_core::{Decision, attempt};
use signal_hook::consts::{SIGINT, SIGQUIT};

use super::authority::{self, Taken};
use super::boot_clock::{self, Alarm};
use super::child::{Child, Ended};
use super::interrupt::Interrupt;
use super::keeper::Leases;
use super::plan::{Authority, Ending, Plan, Report, RunError};
use crate::Ledger;

/// Runs a program as an attempt at the plan's assignment; see the [module](super) for what is promised.
///
/// `command` is called with the authority once it is there, to build the program's command: that is the place to put it
/// into the program's environment.
///
/// The calling thread starts the program and has to stay with it: on Linux the kernel kills the program when the
/// *thread* that started it ends.
///
/// # Errors
/// [`RunError`]; what had been taken was given back. A refusal before the start is the inner `Err`, and then too.
pub fn program(
    ledger: &Ledger,
    plan: &Plan,
    interrupt: &Interrupt,
    command: impl FnOnce(&Authority) -> Command,
) -> Result<Decision<Report>, RunError> {
    if let Some(signal) = interrupt.raised() {
        return Err(RunError::Interrupted(signal));
    }
    let Taken { authority, leases } = match authority::take(ledger, plan)? {
        Ok(taken) => taken,
        Err(refusal) => return Ok(Err(refusal)),
    };
    match work(ledger, &authority, &leases, interrupt, command) {
        Ok((ending, program)) => {
            let (outcome, result) = judge(plan, ending, program);
            let written = authority::finish(ledger, &leases, &authority.attempt, outcome, result.as_bytes());
            let released = authority::release_actor(ledger, &authority.lease);
            Ok(Ok(Report {
                authority,
                ending,
                program,
                outcome,
                result: result.into_bytes(),
                written,
                released,
            }))
        }
        Err(error) => {
            authority::give_back(ledger, &authority);
            Err(error)
        }
    }
}

/// Starts the program and renews the leases until it has ended.
fn work(
    ledger: &Ledger,
    authority: &Authority,
    leases: &Leases,
    interrupt: &Interrupt,
    command: impl FnOnce(&Authority) -> Command,
) -> Result<(Ending, Option<Ended>), RunError> {
    if let Some(signal) = interrupt.raised() {
        return Err(RunError::Interrupted(signal));
    }
    let alarm = Alarm::new()?;
    if boot_clock::now() >= leases.ask_at() {
        // This process was stopped between the claim and the start: it is too late to begin.
        return Ok((Ending::Lapsed, None));
    }
    let mut command = command(authority);
    let mut child = Child::spawn(&mut command).map_err(|source| RunError::NotStarted {
        program: command.get_program().to_owned(),
        source,
    })?;
    thread::scope(|scope| {
        let keeper = scope.spawn(|| leases.keep(ledger, &authority.lease, &authority.attempt));
        let ended = watch(&mut child, leases, interrupt, &alarm);
        leases.stop();
        // A keeper that failed renewed nothing more: the deadline has dealt with that.
        drop(keeper);
        let (ending, program) = ended?;
        Ok((ending, Some(program)))
    })
}

/// Where the watch stands.
enum Stage {
    Running,
    /// Asked to end for this reason, when so many interrupts had been heard; killed at the next one, and at this moment at
    /// the latest.
    Ending(Ending, usize, Duration),
}

/// Waits for the program's end, and brings it about in time.
fn watch(child: &mut Child, leases: &Leases, interrupt: &Interrupt, alarm: &Alarm) -> io::Result<(Ending, Ended)> {
    let mut stage = Stage::Running;
    loop {
        let until = match stage {
            Stage::Running => leases.ask_at(),
            Stage::Ending(_, _, kill_at) => kill_at.min(leases.kill_at()),
        };
        alarm.wait(&[child.as_fd(), interrupt.as_fd(), leases.lost().as_fd()], until)?;
        let now = boot_clock::now();
        if now >= leases.expiry() {
            return Ok((Ending::Lapsed, child.kill()?));
        }
        if leases.refused().is_some() {
            // Nothing that the program does from here on is authorised.
            return Ok((Ending::Superseded, child.kill()?));
        }
        if let Some(ended) = child.poll()? {
            let ending = match stage {
                Stage::Ending(ending, ..) => ending,
                Stage::Running => interrupted_at_the_terminal(ended),
            };
            return Ok((ending, ended));
        }
        let times = interrupt.times();
        stage = match stage {
            Stage::Running if now >= leases.ask_at() => {
                child.terminate();
                Stage::Ending(Ending::Lapsed, times, leases.kill_at())
            }
            Stage::Running => match interrupt.raised() {
                Some(signal) => {
                    child.terminate();
                    Stage::Ending(Ending::Interrupted(signal), times, now + leases.grace())
                }
                None => Stage::Running,
            },
            Stage::Ending(ending, heard, kill_at) => {
                if times > heard || now >= kill_at.min(leases.kill_at()) {
                    return Ok((ending, child.kill()?));
                }
                Stage::Ending(ending, heard, kill_at)
            }
        };
    }
}

/// Control-C and control-\ reach only the program while it has the terminal; they mean the run as well.
fn interrupted_at_the_terminal(ended: Ended) -> Ending {
    match ended {
        Ended::Killed(signal @ (SIGINT | SIGQUIT)) => Ending::Interrupted(signal),
        Ended::Killed(_) | Ended::Exited(_) => Ending::Ended,
    }
}

/// The state and the result that the end of a program stands for.
fn judge(plan: &Plan, ending: Ending, program: Option<Ended>) -> (attempt::Outcome, String) {
    let failed = |result: &str| (attempt::Outcome::Failed, result.to_owned());
    match (ending, program) {
        (Ending::Interrupted(_), _) => failed("interrupted"),
        (Ending::Lapsed | Ending::Superseded, _) | (Ending::Ended, None) => failed("lease_lapsed"),
        (Ending::Ended, Some(Ended::Exited(0))) => (attempt::Outcome::Completed, "exit 0".to_owned()),
        (Ending::Ended, Some(Ended::Exited(status))) if plan.blocked_exit.map(i32::from) == Some(status) => {
            (attempt::Outcome::Blocked, format!("exit {status}"))
        }
        (Ending::Ended, Some(Ended::Exited(status))) => failed(&format!("exit {status}")),
        (Ending::Ended, Some(Ended::Killed(signal))) => failed(&format!("signal {signal}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyfence_core::Name;

    fn plan(blocked_exit: Option<u8>) -> Plan {
        Plan {
            blocked_exit,
            ..Plan::new(
                Name::new("operator-course").unwrap(),
                Name::new("close-tonight").unwrap(),
            )
        }
    }

    #[test]
    fn the_exit_status_becomes_the_state() {
        use attempt::Outcome::{Blocked, Completed, Failed};
        let ended = |status| judge(&plan(Some(75)), Ending::Ended, Some(Ended::Exited(status)));
        assert_eq!(ended(0), (Completed, "exit 0".to_owned()));
        assert_eq!(ended(75), (Blocked, "exit 75".to_owned()));
        assert_eq!(ended(1), (Failed, "exit 1".to_owned()));
        assert_eq!(
            judge(&plan(None), Ending::Ended, Some(Ended::Killed(9))),
            (Failed, "signal 9".to_owned())
        );
    }

    #[test]
    fn a_program_that_was_stopped_never_completes() {
        for ending in [Ending::Interrupted(SIGINT), Ending::Lapsed, Ending::Superseded] {
            let (outcome, _) = judge(&plan(None), ending, Some(Ended::Exited(0)));
            assert_eq!(outcome, attempt::Outcome::Failed, "{ending:?}");
        }
    }

    #[test]
    fn a_status_is_what_a_shell_would_say() {
        assert_eq!(Ended::Exited(7).status(), 7);
        assert_eq!(Ended::Killed(15).status(), 143);
    }
}
