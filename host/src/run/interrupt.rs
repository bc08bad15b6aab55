//! How a run is asked to stop: by a signal to this process, or by another thread.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use signal_hook::SigId;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};

use super::boot_clock::{self, Alarm};

/// Wakes a thread that polls. Any number of wakes until the next [`Waker::drain`] are one.
#[derive(Debug)]
pub(super) struct Waker {
    reader: UnixStream,
    writer: UnixStream,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self { reader, writer })
    }

    /// Wakes at every delivery of `signal` too.
    pub(super) fn wake_on(&self, signal: i32) -> io::Result<SigId> {
        signal_hook::low_level::pipe::register(signal, self.writer.try_clone()?)
    }

    pub(super) fn wake(&self) {
        // A full pipe wakes as well as one more byte would.
        let _ = (&self.writer).write(&[0]);
    }

    /// Takes the wakes that have come so far; returns how many there were.
    pub(super) fn drain(&self) -> usize {
        let mut bytes = [0; 64];
        let mut woken = 0;
        while let Ok(count @ 1..) = (&self.reader).read(&mut bytes) {
            woken += count;
        }
        woken
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// Asks a run to stop. The first time the program is asked to (TERM), a second time it is killed.
///
/// One interrupt serves one run at a time.
#[derive(Debug)]
pub struct Interrupt {
    waker: Waker,
    signal: Arc<AtomicUsize>,
    /// Wakes that were taken from the waker so far.
    woken: AtomicUsize,
    registered: Vec<SigId>,
}

impl Interrupt {
    /// One that only [`Interrupt::raise`] raises.
    ///
    /// # Errors
    /// When no file descriptors are left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            waker: Waker::new()?,
            signal: Arc::new(AtomicUsize::new(0)),
            woken: AtomicUsize::new(0),
            registered: Vec::new(),
        })
    }

    /// One that INT, TERM, HUP and QUIT raise as well, and USR1, USR2, ALRM and XCPU, which would end the process too. While it
    /// lives these no longer end the process by themselves. HUP and
    /// QUIT stay ignored where this process was started so (`nohup`); INT does not, because shells start every background
    /// job so and `kill -INT` is still meant for it.
    ///
    /// # Errors
    /// When no file descriptors are left, or the signals cannot be handled.
    pub fn on_signals() -> io::Result<Self> {
        let mut interrupt = Self::new()?;
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU] {
            if matches!(signal, SIGHUP | SIGQUIT) && is_ignored(signal) {
                continue;
            }
            // The number first: whoever is woken must find it.
            let number = usize::try_from(signal).unwrap_or_default();
            interrupt.registered.push(signal_hook::flag::register_usize(
                signal,
                Arc::clone(&interrupt.signal),
                number,
            )?);
            interrupt.registered.push(interrupt.waker.wake_on(signal)?);
        }
        Ok(interrupt)
    }

    /// Asks to stop, as the signal `TERM` would.
    pub fn raise(&self) {
        self.signal
            .store(usize::try_from(SIGTERM).unwrap_or_default(), Ordering::SeqCst);
        self.waker.wake();
    }

    /// The signal that asked to stop last, if one did.
    #[must_use]
    pub fn raised(&self) -> Option<i32> {
        match self.signal.load(Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }

    /// Waits until it is raised, for `length` at most; returns the signal then.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(&self, length: Duration) -> io::Result<Option<i32>> {
        let alarm = Alarm::new()?;
        let until = boot_clock::now() + length;
        loop {
            if let Some(signal) = self.raised() {
                return Ok(Some(signal));
            }
            if boot_clock::now() >= until {
                return Ok(None);
            }
            alarm.wait(&[self.as_fd()], until)?;
            self.times();
        }
    }

    /// How often it was raised so far. The number of a signal is there before its wake: somebody whom something else has woken in
    /// between counts that one already, and once.
    pub(super) fn times(&self) -> usize {
        let woken = self.waker.drain();
        let woken = self.woken.fetch_add(woken, Ordering::SeqCst) + woken;
        woken.max(usize::from(self.raised().is_some()))
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Whether this process was started with the signal ignored.
#[cfg(target_os = "linux")]
fn is_ignored(signal: i32) -> bool {
    // No safe call tells a signal's disposition; the kernel prints the set of ignored ones as a hexadecimal mask.
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return false;
    };
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(not(target_os = "linux"))]
fn is_ignored(_signal: i32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_interrupt_ends_every_later_wait() {
        let interrupt = Interrupt::new().unwrap();
        assert_eq!(interrupt.wait(Duration::ZERO).unwrap(), None);
        interrupt.raise();
        assert_eq!(interrupt.wait(Duration::from_secs(60)).unwrap(), Some(SIGTERM));
        assert_eq!(interrupt.wait(Duration::from_secs(60)).unwrap(), Some(SIGTERM));
    }

    #[test]
    fn a_signal_whose_wake_comes_late_is_one_interrupt() {
        let interrupt = Interrupt::new().unwrap();
        assert_eq!(interrupt.times(), 0);
        interrupt.signal.store(15, Ordering::SeqCst);
        assert_eq!(interrupt.times(), 1);
        interrupt.waker.wake();
        assert_eq!(interrupt.times(), 1);
        interrupt.raise();
        assert_eq!(interrupt.times(), 2);
        interrupt.wait(Duration::ZERO).unwrap();
        interrupt.raise();
        assert_eq!(interrupt.times(), 3);
    }

    #[test]
    fn wakes_are_counted_and_taken_once() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        assert_eq!(waker.drain(), 2);
        assert_eq!(waker.drain(), 0);
    }
}
