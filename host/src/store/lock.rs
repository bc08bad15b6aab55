//! Who writes now: a fair lock in front of SQLite's own (H4).
//!
//! SQLite's busy handler polls, and with several saturated writers one of them can do all the work. So each write
//! transaction is made under a `flock` on a file beside the ledger, for which processes wait by age ([`side`]), and the
//! threads of one handle queue in front of that ([`queue`]). A process that dies lets go of it.
//!
//! * **K1.** No call waits past its deadline, which is on the monotonic clock.
//! * **K2.** Who waits keeps no place: a call that gives up leaves nothing behind, and one that is stopped while it waits
//!   is passed by. Whoever has waited longest is most likely the next.
//! * **K3.** No step is decided by this lock. Where its file cannot be opened or locked, calls go on without it.
//! * **K4.** It is a courtesy. A call that waited [`PATIENCE`] for it, or half its time-out, asks SQLite itself, without
//!   waiting there; and so again after each [`PATIENCE`]. So a process that was stopped with this lock, and without
//!   SQLite's, keeps nobody out. Only who holds it for longer than a step, a migration or a restore, is not passed by: it
//!   leaves a mark in the file.
//! * **K5.** A handle has turns of [`TURN`](side::TURN), over as many steps as it makes meanwhile, because every change of
//!   hands costs a wake-up and the pages that were read. When its turn is over and somebody waits, others go first.

mod holder;
mod queue;
mod side;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use holder::holder;
use queue::Queue;
use side::{Got, Side};

use super::reading::beside;
use crate::error::Error;

/// How long a call waits for this lock before it asks SQLite (K4): longer than the turns of a dozen processes, and short
/// beside any time-out that a person notices.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// Until when a call may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    started: Instant,
    /// `None`: beyond what the clock can tell.
    ends: Option<Instant>,
}

impl Deadline {
    /// The moment `timeout` from now.
    pub(crate) fn after(timeout: Duration) -> Self {
        let started = Instant::now();
        Self {
            started,
            ends: started.checked_add(timeout),
        }
    }

    /// How much is left.
    pub(crate) fn remaining(self) -> Duration {
        match self.ends {
            Some(ends) => ends.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        }
    }

    pub(crate) fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    pub(crate) fn waited(self) -> Duration {
        self.started.elapsed()
    }

    /// How long to wait for the lock at a time (K4).
    fn patience(self) -> Duration {
        match self.ends {
            Some(ends) => PATIENCE.min(ends.saturating_duration_since(self.started) / 2),
            None => PATIENCE,
        }
    }
}

/// A mutex whose holder cannot leave it half-changed: what a panicking thread left is taken as it is.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of one handle.
#[derive(Debug)]
pub(crate) struct WriteLock {
    ledger: PathBuf,
    queue: Queue,
    side: Option<Side>,
}

/// A call's turn among the threads of its handle, until it is dropped; with it goes the file's lock, if it was got.
#[derive(Debug)]
pub(crate) struct Turn<'l> {
    lock: &'l WriteLock,
    held: bool,
    marked: bool,
    /// How long the next wait may take.
    patience: Duration,
}

/// How a wait for the lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The call writes next: SQLite's lock is worth waiting for.
    Ours,
    /// Patience is at its end: SQLite may be asked, and not waited for (K4).
    PastPatience,
}

impl WriteLock {
    /// The lock of the ledger at `ledger`. Its file is made, for the owner only, where it can be and a writer asks.
    pub(crate) fn new(ledger: &Path, writes: bool) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(writes)
            .create(writes)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(beside(ledger, "-lock"));
        Self {
            ledger: ledger.to_owned(),
            queue: Queue::default(),
            side: file.ok().map(Side::new),
        }
    }

    /// Waits for the call's turn among the threads of this handle.
    ///
    /// # Errors
    /// [`Error::Busy`] at the deadline.
    pub(crate) fn enter(&self, deadline: Deadline) -> Result<Turn<'_>, Error> {
        if !self.queue.enter(deadline) {
            return Err(self.busy(deadline));
        }
        Ok(Turn {
            lock: self,
            held: false,
            marked: false,
            patience: match &self.side {
                Some(side) if side.was_passed() => Duration::ZERO,
                Some(_) | None => deadline.patience(),
            },
        })
    }

    /// Waits for the right to write, for longer than a step: nobody goes past it (K4).
    ///
    /// # Errors
    /// [`Error::Busy`] at the deadline.
    pub(crate) fn acquire(&self, deadline: Deadline) -> Result<Turn<'_>, Error> {
        let mut turn = self.enter(deadline)?;
        while turn.wait(deadline)? == Waited::PastPatience {
            if deadline.has_passed() {
                return Err(self.busy(deadline));
            }
        }
        if let Some(side) = &self.side
            && turn.held
        {
            side.mark();
            turn.marked = true;
        }
        Ok(turn)
    }

    /// What a call is told that could not write in time.
    pub(crate) fn busy(&self, deadline: Deadline) -> Error {
        Error::Busy {
            holder: holder::writer(&self.ledger),
            waited: deadline.waited(),
        }
    }
}

impl Turn<'_> {
    /// Waits for the file's lock, as long as patience and deadline allow.
    ///
    /// # Errors
    /// [`Error::Busy`] at the deadline, where nobody may go past the lock's holder.
    pub(crate) fn wait(&mut self, deadline: Deadline) -> Result<Waited, Error> {
        let Some(side) = &self.lock.side else {
            return Ok(Waited::Ours);
        };
        loop {
            let got = side.wait(self.patience.min(deadline.remaining()), deadline);
            self.patience = deadline.patience();
            match got {
                Got::Lock => {
                    self.held = true;
                    return Ok(Waited::Ours);
                }
                Got::NoLocks => return Ok(Waited::Ours),
                Got::Nothing if !side.is_marked() => return Ok(Waited::PastPatience),
                Got::Nothing if deadline.has_passed() => return Err(self.lock.busy(deadline)),
                Got::Nothing => {}
            }
        }
    }

    /// The call got SQLite's lock although it had not got this one: the next one need not be as patient.
    pub(crate) fn went_past(&self) {
        if let Some(side) = &self.lock.side {
            side.pass();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(side) = &self.lock.side
            && self.held
        {
            if self.marked {
                side.unmark();
            }
            side.release();
        }
        self.lock.queue.leave();
    }
}
