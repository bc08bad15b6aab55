//! Until when each output may be active: what the main loop writes and the clock's interrupt reads.
//!
//! * **O1. Active only with a deadline.** An output without one, or whose deadline has come, is at its safe level. All are
//!   without one from power-up on.
//! * **O2. The interrupt needs nobody.** It compares the deadlines with the clock; no lock is held and no flash is read.
//! * **O3. No deadline within an erase.** An erase halts the interrupt too, so an output whose deadline would come meanwhile
//!   is made safe before (`guard`).

use core::cell::Cell;

use critical_section::Mutex;
use keyfence_core::TimeMs;

use super::board::OUTPUTS_MAX;

/// The deadlines of a board's outputs, shared with its interrupt.
#[derive(Debug)]
pub struct Deadlines {
    until: [Mutex<Cell<Option<TimeMs>>>; OUTPUTS_MAX],
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new()
    }
}

impl Deadlines {
    /// Every output safe.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            until: [const { Mutex::new(Cell::new(None)) }; OUTPUTS_MAX],
        }
    }

    /// Lets an output be active until a moment, or not at all.
    pub fn set(&self, output: usize, until: Option<TimeMs>) {
        if let Some(slot) = self.until.get(output) {
            critical_section::with(|section| slot.borrow(section).set(until));
        }
    }

    /// Until when an output may be active.
    #[must_use]
    pub fn until(&self, output: usize) -> Option<TimeMs> {
        let slot = self.until.get(output)?;
        critical_section::with(|section| slot.borrow(section).get())
    }

    /// Whether an output is to be active at `now`.
    #[must_use]
    pub fn is_active(&self, output: usize, now: TimeMs) -> bool {
        self.until(output).is_some_and(|until| until > now)
    }

    /// Whether an output that is active at `now` has to be safe by `moment`.
    #[must_use]
    pub fn any_lapses(&self, now: TimeMs, moment: TimeMs) -> bool {
        (0..OUTPUTS_MAX).any(|output| self.until(output).is_some_and(|until| until > now && until <= moment))
    }

    /// Makes every output safe whose deadline lies at or before `moment`.
    pub fn give_up(&self, moment: TimeMs) {
        for slot in &self.until {
            critical_section::with(|section| {
                let slot = slot.borrow(section);
                if slot.get().is_some_and(|until| until <= moment) {
                    slot.set(None);
                }
            });
        }
    }

    /// Makes every output safe.
    pub fn give_up_all(&self) {
        self.give_up(TimeMs::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> TimeMs {
        TimeMs::new(ms).unwrap()
    }

    #[test]
    fn an_output_is_active_before_its_deadline_and_not_at_it() {
        let deadlines = Deadlines::new();
        assert!(!deadlines.is_active(0, TimeMs::ZERO));
        deadlines.set(0, Some(at(100)));
        assert!(deadlines.is_active(0, at(99)));
        assert!(!deadlines.is_active(0, at(100)));
        assert!(!deadlines.is_active(1, at(99)));
        assert!(!deadlines.is_active(OUTPUTS_MAX, at(0)));
    }

    #[test]
    fn giving_up_takes_what_ends_by_then_and_leaves_the_rest() {
        let deadlines = Deadlines::new();
        deadlines.set(0, Some(at(100)));
        deadlines.set(1, Some(at(200)));
        assert!(deadlines.any_lapses(at(50), at(100)));
        assert!(!deadlines.any_lapses(at(50), at(99)));
        assert!(!deadlines.any_lapses(at(100), at(150)), "the first has lapsed already");
        deadlines.give_up(at(150));
        assert_eq!(deadlines.until(0), None);
        assert_eq!(deadlines.until(1), Some(at(200)));
        deadlines.give_up_all();
        assert_eq!(deadlines.until(1), None);
    }
}
