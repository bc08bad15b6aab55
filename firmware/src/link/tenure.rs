//! What a holder may conclude from a grant: until when it may act.

use keyfence_core::{ProcessId, TimeMs, Token};

use super::answer::{Answer, Grant};
use super::exchange::Answered;

/// How far the clocks of a holder and a kiosk may drift apart during a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// Of the length of the lease, in thousandths.
    pub per_mille: u16,
    /// And this many milliseconds, for the ticks that either clock counts in.
    pub fixed_ms: u32,
}

impl Tolerance {
    /// 10 thousandths and 20 ms. A kiosk's crystal is within 0.1 thousandths, and Linux slews a clock by at most 0.5
    /// thousandths (adjtimex), so that this holds for an uncalibrated oscillator of 0.9 % too.
    pub const DEFAULT: Self = Self {
        per_mille: 10,
        fixed_ms: 20,
    };

    /// What is left of a lease, in milliseconds.
    const fn within(self, lasts_ms: u64) -> u64 {
        let thousandth = lasts_ms.div_ceil(1000);
        let drift = thousandth.saturating_mul(self.per_mille as u64);
        lasts_ms.saturating_sub(drift).saturating_sub(self.fixed_ms as u64)
    }
}

/// What an answer did to a [`Tenure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Extension {
    /// It ends later now.
    Later,
    /// It ends when it did: the answer grants no longer.
    Unchanged,
    /// It ends when it did: the answer is no grant, or that of another claim.
    NotOfThisClaim,
}

/// Until when a holder may act under its claim, on its own clock (L9). The clock has to go on while the machine is
/// suspended (`CLOCK_BOOTTIME` on Linux).
///
/// It is made and extended by answers only, each of which says what it says from the moment its call was first sent: an
/// answer that comes late, twice or again cannot extend it beyond that. The ledger fences whoever acts on regardless.
#[derive(Debug)]
pub struct Tenure {
    token: Token,
    boot: ProcessId,
    until: TimeMs,
}

impl Tenure {
    /// The tenure of a grant. `None` for any other answer, and for a grant that was given an unknown time ago.
    #[must_use]
    pub fn begin(answered: &Answered, tolerance: Tolerance) -> Option<Self> {
        let (grant, until) = granted(answered, tolerance)?;
        Some(Self {
            token: grant.token,
            boot: answered.boot(),
            until,
        })
    }

    /// Takes a renewal of the same claim in. It never ends earlier by it.
    pub fn extend(&mut self, answered: &Answered, tolerance: Tolerance) -> Extension {
        match granted(answered, tolerance) {
            Some((grant, until)) if grant.token == self.token && answered.boot() == self.boot => {
                if until <= self.until {
                    return Extension::Unchanged;
                }
                self.until = until;
                Extension::Later
            }
            Some(_) | None => Extension::NotOfThisClaim,
        }
    }

    /// Whether the holder may still act at `now`.
    #[must_use]
    pub fn may_act(&self, now: TimeMs) -> bool {
        now < self.until
    }

    /// When it ends.
    #[must_use]
    pub const fn until(&self) -> TimeMs {
        self.until
    }

    /// The token of the claim.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Takes in that the kiosk is in this boot. A kiosk that started again has forgotten every lease: then it ends at once.
    pub fn heard(&mut self, boot: ProcessId) {
        if boot != self.boot {
            self.until = TimeMs::ZERO;
        }
    }
}

fn granted(answered: &Answered, tolerance: Tolerance) -> Option<(&Grant, TimeMs)> {
    let Answer::Granted(grant) = &answered.reply().answer else {
        return None;
    };
    if !answered.is_timed() {
        return None;
    }
    let until = answered
        .sent_at()
        .as_ms()
        .saturating_add(tolerance.within(grant.lasts_ms));
    Some((grant, TimeMs::new(until).unwrap_or(TimeMs::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tolerance_takes_more_than_the_drift_and_never_more_than_there_is() {
        let within = |lasts_ms| Tolerance::DEFAULT.within(lasts_ms);
        assert_eq!(within(60_000), 60_000 - 600 - 20);
        assert_eq!(within(1_001), 1_001 - 20 - 20);
        assert_eq!(within(30), 0);
        assert_eq!(within(0), 0);
        assert_eq!(within(u64::MAX), u64::MAX - u64::MAX.div_ceil(1000) * 10 - 20);
    }
}
