//! The file beside the ledger that processes queue on.
//!
//! Its lock is a `flock`, its length the mark of who keeps it for longer than a step (K4), and its time of modification is
//! set by whoever begins to wait, so that the holder learns of it (K5). What is in it means nothing when nobody has the
//! lock.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};

use super::locked;

/// How long a turn lasts (K5): some steps on a disk that syncs in 0.1 ms; one step on a slow one.
pub(crate) const TURN: Duration = Duration::from_millis(2);

/// How long others are let go first when a turn is over: a wake-up takes a part of it.
const YIELD: Duration = Duration::from_micros(100);

/// The file that the kernel queues on, and the thread that waits there for the handle.
#[derive(Debug)]
pub(super) struct Side {
    file: File,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// A thread of ours is in the kernel's queue.
    queued: bool,
    /// It got the lock, and keeps it for the call that waits.
    arrived: bool,
    /// A call waits for it.
    wanted: bool,
    /// The last call wrote without it.
    passed: bool,
    turn: Option<TurnAt>,
}

/// A handle's turn.
#[derive(Clone, Copy, Debug)]
struct TurnAt {
    began: Instant,
    /// When the lock was last let go of.
    left: Instant,
    /// It came after a wait, so others may wait as well.
    contended: bool,
    /// When somebody last began to wait, as it was when the turn began.
    called: Option<SystemTime>,
}

/// What came of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// The lock.
    Lock,
    /// The system does not lock this file (K3).
    NoLocks,
    /// Nothing yet.
    Nothing,
}

impl Side {
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Waits for the file's lock for so long. One call at a time.
    pub(super) fn wait(side: &Arc<Self>, patience: Duration) -> Got {
        let _paused = side.let_others_go_first();
        let mut state = locked(&side.state);
        if !state.queued && !state.arrived {
            match flock(side.file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    side.begin_turn(&mut state, false);
                    return Got::Lock;
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(_) => return Got::NoLocks,
            }
            side.call();
            if patience.is_zero() {
                return Got::Nothing;
            }
            if !Self::send_waiter(side) {
                return Got::NoLocks;
            }
            state.queued = true;
        }
        let begun = Instant::now();
        state.wanted = true;
        let got = loop {
            if state.arrived {
                state.arrived = false;
                side.begin_turn(&mut state, true);
                break Got::Lock;
            }
            if !state.queued {
                // The waiter came back without a lock.
                break Got::NoLocks;
            }
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break Got::Nothing;
            }
            state = side
                .changed
                .wait_timeout(state, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        };
        state.wanted = false;
        got
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
                    side.unlock();
                }
                drop(state);
                side.changed.notify_all();
            })
            .is_ok()
    }

    /// Lets go of the lock that a wait got.
    pub(super) fn release(&self) {
        if let Some(turn) = &mut locked(&self.state).turn {
            turn.left = Instant::now();
        }
        self.unlock();
    }

    fn unlock(&self) {
        // A lock that cannot be let go of goes with the process; nothing is decided by it.
        let _: Result<(), rustix::io::Errno> = flock(self.file.as_fd(), FlockOperation::Unlock);
    }

    /// Begins a turn, or goes on with the one that has begun.
    fn begin_turn(&self, state: &mut State, contended: bool) {
        state.passed = false;
        let now = Instant::now();
        let goes_on = state.turn.is_some_and(|turn| !contended && now - turn.began < TURN);
        if goes_on {
            return;
        }
        if self.is_marked() {
            // Who marked it died with the lock.
            self.unmark();
        }
        state.turn = Some(TurnAt {
            began: now,
            left: now,
            contended,
            called: self.called(),
        });
    }

    /// Pauses between two turns when somebody waits (K5), and says whether it did. Without the pause, who is woken would find
    /// the lock taken again.
    fn let_others_go_first(&self) -> bool {
        let over = locked(&self.state).turn.take_if(|turn| turn.began.elapsed() >= TURN);
        let Some(turn) = over else {
            return false;
        };
        let awaited = turn.left.elapsed() < TURN && (turn.contended || self.called() != turn.called);
        if awaited {
            std::thread::sleep(YIELD);
        }
        awaited
    }

    /// Says that somebody begins to wait.
    fn call(&self) {
        // Where it cannot be said, waiting takes longer.
        let _: std::io::Result<()> = self.file.set_modified(SystemTime::now());
    }

    /// When somebody last began to wait.
    fn called(&self) -> Option<SystemTime> {
        self.file.metadata().and_then(|metadata| metadata.modified()).ok()
    }

    /// Says that this lock is kept for longer than a step.
    pub(super) fn mark(&self) {
        // Where it cannot be said, writers are serialized by SQLite alone.
        let _: std::io::Result<()> = self.file.set_len(1);
    }

    pub(super) fn unmark(&self) {
        // What stays is cleared by whoever has the next turn.
        let _: std::io::Result<()> = self.file.set_len(0);
    }

    /// Whether whoever has the lock keeps it for longer than a step.
    pub(super) fn is_marked(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() > 0)
    }

    /// Notes that a call wrote without the lock.
    pub(super) fn pass(&self) {
        locked(&self.state).passed = true;
    }

    /// Whether the last call did.
    pub(super) fn was_passed(&self) -> bool {
        locked(&self.state).passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two handles on one file.
    fn pair() -> (tempfile::NamedTempFile, Arc<Side>, Arc<Side>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let side = || Arc::new(Side::new(file.reopen().unwrap()));
        let (one, other) = (side(), side());
        (file, one, other)
    }

    /// Has a turn to its end, and whether it is followed by a pause.
    fn pauses_after_a_turn(side: &Arc<Side>, meanwhile: impl Fn()) -> bool {
        assert_eq!(Side::wait(side, Duration::ZERO), Got::Lock);
        meanwhile();
        std::thread::sleep(TURN);
        side.release();
        side.let_others_go_first()
    }

    #[test]
    fn others_go_first_after_a_turn_if_somebody_waits() {
        let (_file, one, other) = pair();
        let wait_in_vain = || assert_eq!(Side::wait(&other, Duration::ZERO), Got::Nothing);
        // A machine that is busy may take the time of a turn for a moment: then it was no turn.
        assert!((0..100).any(|_| pauses_after_a_turn(&one, wait_in_vain)));
        assert!((0..10).all(|_| !pauses_after_a_turn(&one, || ())));
    }

    #[test]
    fn nobody_pauses_within_a_turn_or_when_he_comes_back_later() {
        let (_file, one, other) = pair();
        assert_eq!(Side::wait(&one, Duration::ZERO), Got::Lock);
        assert_eq!(Side::wait(&other, Duration::ZERO), Got::Nothing);
        one.release();
        std::thread::sleep(TURN * 2);
        assert!(!one.let_others_go_first());
    }

    #[test]
    fn a_waiter_gets_the_lock_when_it_is_let_go_of() {
        let (_file, one, other) = pair();
        assert_eq!(Side::wait(&one, Duration::ZERO), Got::Lock);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| Side::wait(&other, Duration::from_secs(20)));
            std::thread::sleep(Duration::from_millis(5));
            one.release();
            assert_eq!(waiting.join().unwrap(), Got::Lock);
        });
        assert_eq!(Side::wait(&one, Duration::ZERO), Got::Nothing);
        other.release();
    }
}
