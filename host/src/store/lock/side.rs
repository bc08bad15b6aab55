//! The file beside the ledger that processes take turns with.
//!
//! Its lock is a `flock`, and its length the mark of who keeps it for longer than a step (K4). Its time of modification is
//! when somebody last waited, so that the holder learns of it, and its time of access is when the turn began (K5), so that
//! waiters look when it is over. No time but those is read from a clock that can jump, and none decides who may write.
//!
//! Nobody waits in the kernel's queue: it would be woken after every step of a turn in vain, and a wake-up costs more than
//! a step. Whoever waits looks again and again: now and then during a turn, which may end early, and more and more often
//! after its end, the sooner the longer it has waited (K2).

use std::fs::{File, FileTimes};
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};

use super::{Deadline, locked};

/// How long a turn lasts (K5): some steps on a disk that syncs in 0.1 ms; one step on a slow one.
pub(crate) const TURN: Duration = Duration::from_millis(3);

/// How long others are let go first when a turn is over: who waits longest has looked by then.
const YIELD: Duration = Duration::from_micros(200);

/// How often whoever has just begun to wait looks, and whoever has waited long after the end of a turn.
const LOOKS: (Duration, Duration) = (Duration::from_micros(1_000), Duration::from_micros(50));

/// The file that processes take turns with, as one handle sees it.
#[derive(Debug)]
pub(super) struct Side {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
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
    /// When somebody last waited, as it was when the turn began.
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
        }
    }

    /// Waits for the file's lock for so long, in a call that began when its deadline was set. One call at a time.
    pub(super) fn wait(&self, patience: Duration, deadline: Deadline) -> Got {
        let _paused = self.let_others_go_first();
        let begun = Instant::now();
        let mut called: Option<Instant> = None;
        loop {
            match flock(self.file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    self.begin_turn();
                    return Got::Lock;
                }
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(_) => return Got::NoLocks,
            }
            // Again in every turn of another: each holder learns of it.
            if called.is_none_or(|called| called.elapsed() >= TURN) {
                self.call();
                called = Some(Instant::now());
            }
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Got::Nothing;
            }
            std::thread::sleep(until_next_look(deadline.waited(), self.rest_of_turn()).min(left));
        }
    }

    /// Lets go of the lock that a wait got.
    pub(super) fn release(&self) {
        if let Some(turn) = &mut locked(&self.state).turn {
            turn.left = Instant::now();
        }
        // A lock that cannot be let go of goes with the process; nothing is decided by it.
        let _: Result<(), rustix::io::Errno> = flock(self.file.as_fd(), FlockOperation::Unlock);
    }

    /// Begins a turn, or goes on with the one that has begun.
    fn begin_turn(&self) {
        let mut state = locked(&self.state);
        state.passed = false;
        let now = Instant::now();
        if state.turn.is_some_and(|turn| now - turn.began < TURN) {
            return;
        }
        if self.is_marked() {
            // Who marked it died with the lock.
            self.unmark();
        }
        // Where it cannot be said, waiters look less aptly.
        let _: std::io::Result<()> = self.file.set_times(FileTimes::new().set_accessed(SystemTime::now()));
        state.turn = Some(TurnAt {
            began: now,
            left: now,
            called: self.called(),
        });
    }

    /// Pauses between two turns when somebody waits (K5), and says whether it did. Without the pause, who looks now and then
    /// would find the lock taken each time.
    fn let_others_go_first(&self) -> bool {
        let over = locked(&self.state).turn.take_if(|turn| turn.began.elapsed() >= TURN);
        let awaited = over.is_some_and(|turn| turn.left.elapsed() < TURN && self.called() != turn.called);
        if awaited {
            std::thread::sleep(YIELD);
        }
        awaited
    }

    /// Says that somebody waits.
    fn call(&self) {
        // Where it cannot be said, waiting takes longer.
        let _: std::io::Result<()> = self.file.set_modified(SystemTime::now());
    }

    /// When somebody last waited.
    fn called(&self) -> Option<SystemTime> {
        self.file.metadata().and_then(|metadata| metadata.modified()).ok()
    }

    /// How much is left of the turn that another handle has.
    fn rest_of_turn(&self) -> Duration {
        let began = self.file.metadata().and_then(|metadata| metadata.accessed()).ok();
        // A moment to come is none: the clock has jumped.
        let gone = began.and_then(|began| began.elapsed().ok()).unwrap_or(TURN);
        TURN.saturating_sub(gone)
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

/// When to look again after a wait of this length. After the end of a turn, whoever has waited for the turns of some others
/// looks many times as often as who has just come, and so goes before him most of the time.
fn until_next_look(waited: Duration, rest_of_turn: Duration) -> Duration {
    let (rarely, often) = LOOKS;
    // In the proportion of a turn to the wait, squared.
    let turns = waited.as_secs_f64() / TURN.as_secs_f64();
    let by_age = rarely.div_f64((turns * turns).max(1.0)).max(often);
    rarely.min(rest_of_turn + by_age)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two handles on one file.
    fn pair() -> (tempfile::NamedTempFile, Side, Side) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let side = || Side::new(file.reopen().unwrap());
        let (one, other) = (side(), side());
        (file, one, other)
    }

    fn wait(side: &Side, patience: Duration) -> Got {
        side.wait(patience, Deadline::after(patience))
    }

    /// Has a turn to its end, and whether it is followed by a pause.
    fn pauses_after_a_turn(side: &Side, meanwhile: impl Fn()) -> bool {
        assert_eq!(wait(side, Duration::ZERO), Got::Lock);
        meanwhile();
        std::thread::sleep(TURN);
        side.release();
        side.let_others_go_first()
    }

    #[test]
    fn others_go_first_after_a_turn_if_somebody_waits() {
        let (_file, one, other) = pair();
        let wait_in_vain = || assert_eq!(wait(&other, Duration::ZERO), Got::Nothing);
        // A machine that is busy may take the time of a turn for a moment: then it was no turn.
        assert!((0..100).any(|_| pauses_after_a_turn(&one, wait_in_vain)));
        assert!((0..10).all(|_| !pauses_after_a_turn(&one, || ())));
    }

    #[test]
    fn nobody_pauses_within_a_turn_or_when_he_comes_back_later() {
        let (_file, one, other) = pair();
        assert_eq!(wait(&one, Duration::ZERO), Got::Lock);
        assert_eq!(wait(&other, Duration::ZERO), Got::Nothing);
        one.release();
        std::thread::sleep(TURN * 2);
        assert!(!one.let_others_go_first());
    }

    #[test]
    fn a_waiter_gets_the_lock_when_it_is_let_go_of() {
        let (_file, one, other) = pair();
        assert_eq!(wait(&one, Duration::ZERO), Got::Lock);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&other, Duration::from_secs(20)));
            std::thread::sleep(Duration::from_millis(5));
            one.release();
            assert_eq!(waiting.join().unwrap(), Got::Lock);
        });
        assert_eq!(wait(&one, Duration::ZERO), Got::Nothing);
        other.release();
    }

    #[test]
    fn who_has_waited_longer_looks_more_often() {
        let looks = |turns: u32| until_next_look(TURN * turns, Duration::ZERO);
        assert_eq!(looks(0), LOOKS.0);
        assert!((1..4).all(|turns| looks(turns) > looks(turns + 1)));
        assert_eq!(looks(100), LOOKS.1);
        // During a turn nobody looks often, and nobody waits for its end: it may end early.
        assert_eq!(until_next_look(TURN * 100, TURN), LOOKS.0);
        let end = Duration::from_micros(300);
        assert_eq!(until_next_look(TURN * 100, end), end + LOOKS.1);
    }
}
