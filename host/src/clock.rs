//! Where a ledger takes `now` from. The machines get it as an argument; a store asks its clock once for each step, after
//! any wait for the lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use keyfence_core::TimeMs;

/// The clock of lease decisions.
///
/// All processes that share a ledger need clocks with the same origin. Clocks decide only *when* a takeover may happen;
/// one that jumps delays or hastens it and never lets two holders both commit.
pub trait Clock: Send + Sync {
    /// The moment now.
    fn now(&self) -> TimeMs;
}

/// The system's real-time clock: milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    /// A clock that stands before 1970 reads as 1970, one beyond the last moment that can be written down as that moment.
    fn now(&self) -> TimeMs {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis())
            .ok()
            .and_then(TimeMs::new)
            .unwrap_or(TimeMs::MAX)
    }
}

/// A clock that stands where it was put: for tests, drills and `--now`.
#[derive(Debug)]
pub struct FixedClock(AtomicU64);

impl FixedClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub const fn new(now: TimeMs) -> Self {
        Self(AtomicU64::new(now.as_ms()))
    }

    /// Puts it at `now`, earlier or later.
    pub fn set(&self, now: TimeMs) {
        self.0.store(now.as_ms(), Ordering::SeqCst);
    }

    /// Moves it `ms` milliseconds on, to [`TimeMs::MAX`] at most.
    pub fn advance_ms(&self, ms: u64) {
        let advanced = |now: u64| Some(now.saturating_add(ms).min(TimeMs::MAX.as_ms()));
        // The closure always gives a value, so the update cannot fail.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, advanced);
    }
}

impl Clock for FixedClock {
    fn now(&self) -> TimeMs {
        TimeMs::new(self.0.load(Ordering::SeqCst)).unwrap_or(TimeMs::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_clock_stands_until_it_is_moved() {
        let clock = FixedClock::new(TimeMs::ZERO);
        clock.advance_ms(5);
        assert_eq!(clock.now().as_ms(), 5);
        clock.set(TimeMs::ZERO);
        assert_eq!(clock.now(), TimeMs::ZERO);
        clock.advance_ms(u64::MAX);
        assert_eq!(clock.now(), TimeMs::MAX);
    }

    #[test]
    fn the_system_clock_counts_from_the_unix_epoch() {
        // 2020-01-01, long past.
        assert!(SystemClock.now().as_ms() > 1_577_836_800_000);
    }
}
