//! Who writes now: a fair lock in front of SQLite's own (H4).
//!
//! SQLite's busy handler polls, and with several saturated writers one of them can do all the work. So each write
//! transaction is made under a kernel-queued `flock` on a file beside the ledger, and the threads of one handle queue in
//! front of that. A process that dies lets go of it.
//!
//! * **K1.** No call waits past its deadline, which is on the monotonic clock.
//! * **K2.** A call that gives up leaves its place in the kernel's queue to the handle's next call: the thread that waits
//!   there goes on waiting, and lets go of the lock when nobody wants it any more.
//! * **K3.** Nothing is decided by this lock. Where its file cannot be opened or locked, calls go on without it.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, LockHolder};

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
}

/// A mutex whose holder cannot leave it half-changed: what a panicking thread left is taken as it is.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of one handle.
#[derive(Debug)]
pub(crate) struct WriteLock {
    path: PathBuf,
    queue: Queue,
    side: Option<Arc<Side>>,
}

/// Threads of one handle, first come, first served.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    turn: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    taken: bool,
    waiting: VecDeque<u64>,
    next_ticket: u64,
}

/// The file that the kernel queues on, and the thread that waits there for the handle.
#[derive(Debug)]
struct Side {
    file: File,
    state: Mutex<SideState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SideState {
    /// A thread of ours is in the kernel's queue.
    queued: bool,
    /// It got the lock, and keeps it for the call that waits.
    arrived: bool,
    /// A call waits for it.
    wanted: bool,
}

/// The right to write, until it is dropped.
#[derive(Debug)]
pub(crate) struct WriteGuard<'l> {
    lock: &'l WriteLock,
    flocked: bool,
}

impl WriteLock {
    /// The lock of the ledger at `ledger`. Its file is made, for the owner only, where it can be and a writer asks.
    pub(crate) fn new(ledger: &Path, writes: bool) -> Self {
        let mut path = ledger.as_os_str().to_owned();
        path.push("-lock");
        let path = PathBuf::from(path);
        let file = OpenOptions::new()
            .read(true)
            .write(writes)
            .create(writes)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path);
        Self {
            path,
            queue: Queue::default(),
            side: file.ok().map(|file| {
                Arc::new(Side {
                    file,
                    state: Mutex::default(),
                    changed: Condvar::new(),
                })
            }),
        }
    }

    /// Waits for the right to write.
    ///
    /// # Errors
    /// [`Error::Busy`] at the deadline.
    pub(crate) fn acquire(&self, deadline: Deadline) -> Result<WriteGuard<'_>, Error> {
        if !self.queue.enter(deadline) {
            return Err(self.busy(deadline));
        }
        let mut guard = WriteGuard {
            lock: self,
            flocked: false,
        };
        if let Some(side) = &self.side {
            match Side::acquire(side, deadline) {
                Ok(got) => guard.flocked = got,
                Err(TimedOut) => return Err(self.busy(deadline)),
            }
        }
        Ok(guard)
    }

    /// What a call is told that could not write in time.
    pub(crate) fn busy(&self, deadline: Deadline) -> Error {
        Error::Busy {
            holder: holder(&self.path),
            waited: deadline.waited(),
        }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        if self.flocked
            && let Some(side) = &self.lock.side
        {
            side.release();
        }
        self.lock.queue.leave();
    }
}

impl Queue {
    /// Whether the caller's turn came by the deadline.
    fn enter(&self, deadline: Deadline) -> bool {
        let mut state = locked(&self.state);
        if !state.taken && state.waiting.is_empty() {
            state.taken = true;
            return true;
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        loop {
            if !state.taken && state.waiting.front() == Some(&ticket) {
                state.waiting.pop_front();
                state.taken = true;
                return true;
            }
            let left = deadline.remaining();
            if left.is_zero() {
                state.waiting.retain(|other| *other != ticket);
                // The next in line may be the first one now.
                self.turn.notify_all();
                return false;
            }
            state = self
                .turn
                .wait_timeout(state, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }

    fn leave(&self) {
        locked(&self.state).taken = false;
        self.turn.notify_all();
    }
}

/// The deadline passed.
struct TimedOut;

impl Side {
    /// Gets the file's lock; `false` where the system does not lock it (K3).
    fn acquire(side: &Arc<Self>, deadline: Deadline) -> Result<bool, TimedOut> {
        let mut state = locked(&side.state);
        if !state.queued && !state.arrived {
            match flock(side.file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(true),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(_) => return Ok(false),
            }
            if deadline.has_passed() {
                return Err(TimedOut);
            }
            if !Self::send_waiter(side) {
                return Ok(false);
            }
            state.queued = true;
        }
        state.wanted = true;
        loop {
            if state.arrived {
                state.arrived = false;
                state.wanted = false;
                return Ok(true);
            }
            if !state.queued {
                // The waiter came back without a lock: the system does not lock this file.
                state.wanted = false;
                return Ok(false);
            }
            let left = deadline.remaining();
            if left.is_zero() {
                state.wanted = false;
                return Err(TimedOut);
            }
            state = side
                .changed
                .wait_timeout(state, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }

    /// Sends a thread into the kernel's queue (K2).
    fn send_waiter(side: &Arc<Self>) -> bool {
        let side = Arc::clone(side);
        std::thread::Builder::new()
            .name("keyfence-lock".into())
            .stack_size(64 * 1024)
            .spawn(move || {
                let locked_file = loop {
                    match flock(side.file.as_fd(), FlockOperation::LockExclusive) {
                        Err(rustix::io::Errno::INTR) => {}
                        other => break other.is_ok(),
                    }
                };
                let mut state = locked(&side.state);
                state.queued = false;
                if locked_file && state.wanted {
                    state.arrived = true;
                } else if locked_file {
                    side.release();
                }
                drop(state);
                side.changed.notify_all();
            })
            .is_ok()
    }

    fn release(&self) {
        // A lock that cannot be let go of goes with the process; nothing is decided by it.
        let _: Result<(), rustix::io::Errno> = flock(self.file.as_fd(), FlockOperation::Unlock);
    }
}

/// The process that holds the lock of this file now, where the system tells (`/proc/locks`).
pub(crate) fn holder(path: &Path) -> Option<LockHolder> {
    let metadata = std::fs::metadata(path).ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    let pid = locks.lines().find_map(|line| {
        // `1: FLOCK  ADVISORY  WRITE 24915 fe:00:5382432 0 EOF`; a waiter's line has `->` behind the number.
        let mut words = line.split_ascii_whitespace().skip(1);
        (words.next() == Some("FLOCK")).then_some(())?;
        let pid = words.nth(2)?;
        (words.next() == Some(&*file)).then(|| pid.parse().ok())?
    })?;
    let program = std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .ok()
        .map(|name| name.trim_end().to_owned());
    Some(LockHolder { pid, program })
}
