//! What *live* and *lapsed* mean. Time is an argument everywhere: nothing here reads a clock.
//!
//! Clocks decide only *when* a takeover may happen. A clock that jumps may delay or hasten one; it can never let two
//! holders both commit, because what a terminal write compares is the token.

use core::fmt;

use crate::token::MAX_NUMBER;

/// A moment: milliseconds since an origin that the ledger's clock defines (the Unix epoch on a PC, this boot on a
/// kiosk). At most 2^53 - 1, exact in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TimeMs(u64);

impl TimeMs {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// The last moment that can be written down.
    pub const MAX: Self = Self(MAX_NUMBER);

    /// The moment `ms` milliseconds after the origin, or `None` beyond [`TimeMs::MAX`].
    #[must_use]
    pub const fn new(ms: u64) -> Option<Self> {
        if ms <= MAX_NUMBER { Some(Self(ms)) } else { None }
    }

    /// Milliseconds since the origin.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// The moment `ttl` later, or the last one that can be written down.
    #[must_use]
    pub const fn after(self, ttl: Ttl) -> Self {
        match Self::new(self.0 + ttl.0) {
            Some(time) => time,
            None => Self::MAX,
        }
    }
}

impl fmt::Display for TimeMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How long a lease lasts: 1 millisecond to ten years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Ttl(u64);

impl Ttl {
    /// Ten years of 365 days, in milliseconds.
    pub const MAX_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;
    /// Default of an actor lease: 5 minutes.
    pub const ACTOR_LEASE: Self = Self(5 * 60 * 1000);
    /// Default of an execution attempt: 15 minutes.
    pub const ATTEMPT: Self = Self(15 * 60 * 1000);
    /// Default of a mailbox claim: 15 minutes.
    pub const MAILBOX_CLAIM: Self = Self(15 * 60 * 1000);
    /// Default of a host lease: 60 seconds.
    pub const HOST_LEASE: Self = Self(60 * 1000);
    /// Default of a session lease: 60 seconds.
    pub const SESSION_LEASE: Self = Self(60 * 1000);

    /// A length of `ms` milliseconds, or `None` for zero and beyond [`Ttl::MAX_MS`].
    #[must_use]
    pub const fn from_ms(ms: u64) -> Option<Self> {
        if ms >= 1 && ms <= Self::MAX_MS {
            Some(Self(ms))
        } else {
            None
        }
    }

    /// The length in milliseconds.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0
    }
}

/// Until when a claim is live.
///
/// There is no variant for "missing": a store that finds no expiry, or one that is not a moment, reports
/// [`Corrupt`](crate::store::Corrupt) and never hands out a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Expiry {
    /// Live while this moment lies ahead of `now`; lapsed from that very millisecond on.
    At(TimeMs),
    /// The claim was made in an earlier boot, whose clock says nothing now. It has lapsed, through nobody's fault: it
    /// costs a message none of its budget.
    EarlierBoot,
}

impl Expiry {
    /// Reads an expiry as a store keeps it: `None` when it is missing, negative or not a moment, which is corruption.
    #[must_use]
    pub fn from_stored(ms: Option<i64>) -> Option<Self> {
        ms.and_then(|ms| u64::try_from(ms).ok())
            .and_then(TimeMs::new)
            .map(Self::At)
    }

    /// Whether the claim is live: its expiry lies after `now`.
    #[must_use]
    pub fn is_live(self, now: TimeMs) -> bool {
        match self {
            Self::At(expires_at) => expires_at > now,
            Self::EarlierBoot => false,
        }
    }

    /// The moment, where it is comparable with this boot's clock.
    #[must_use]
    pub const fn time(self) -> Option<TimeMs> {
        match self {
            Self::At(expires_at) => Some(expires_at),
            Self::EarlierBoot => None,
        }
    }

    /// The expiry after a renewal at `now`: `max(old, now + ttl)`, so that a renewal never shortens a lease.
    #[must_use]
    pub fn renewed(self, now: TimeMs, ttl: Ttl) -> TimeMs {
        match self {
            Self::At(expires_at) => expires_at.max(now.after(ttl)),
            Self::EarlierBoot => now.after(ttl),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> TimeMs {
        TimeMs::new(ms).unwrap()
    }

    #[test]
    fn a_lease_is_live_before_its_expiry_and_lapsed_at_it() {
        let expiry = Expiry::At(at(100));
        assert!(expiry.is_live(at(99)));
        assert!(!expiry.is_live(at(100)));
        assert!(!expiry.is_live(at(101)));
        assert!(!Expiry::EarlierBoot.is_live(TimeMs::ZERO));
    }

    #[test]
    fn a_renewal_never_shortens() {
        let ttl = Ttl::from_ms(10).unwrap();
        assert_eq!(Expiry::At(at(100)).renewed(at(50), ttl), at(100));
        assert_eq!(Expiry::At(at(100)).renewed(at(95), ttl), at(105));
    }

    #[test]
    fn a_missing_or_malformed_expiry_is_not_an_expiry() {
        assert_eq!(Expiry::from_stored(None), None);
        assert_eq!(Expiry::from_stored(Some(-1)), None);
        assert_eq!(Expiry::from_stored(Some(i64::MAX)), None);
        assert_eq!(Expiry::from_stored(Some(7)), Some(Expiry::At(at(7))));
    }

    #[test]
    fn a_moment_and_a_length_have_limits() {
        assert_eq!(TimeMs::new(MAX_NUMBER + 1), None);
        assert_eq!(TimeMs::MAX.after(Ttl::ACTOR_LEASE), TimeMs::MAX);
        assert_eq!(Ttl::from_ms(0), None);
        assert_eq!(Ttl::from_ms(Ttl::MAX_MS + 1), None);
        assert_eq!(Ttl::from_ms(Ttl::MAX_MS).map(Ttl::as_ms), Some(315_360_000_000));
    }
}
