//! Fencing tokens and incarnations: the numbers that name one generation of one claim.

use core::fmt;
use core::num::NonZeroU64;

/// The greatest number a [`Token`] or an [`Incarnation`] can have: 2^53 - 1, the greatest integer that every JSON
/// reader holds exactly (RFC 8259, section 6).
pub const MAX_NUMBER: u64 = (1 << 53) - 1;

macro_rules! generation_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[repr(transparent)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// The first one of a new ledger.
            pub const FIRST: Self = Self(NonZeroU64::MIN);

            /// Reads a number that an earlier grant was written down as. `None` for 0 and above [`MAX_NUMBER`].
            ///
            /// This confers nothing: a call that presents it is compared with what the ledger holds.
            #[must_use]
            pub const fn presented(number: u64) -> Option<Self> {
                match NonZeroU64::new(number) {
                    Some(number) if number.get() <= MAX_NUMBER => Some(Self(number)),
                    Some(_) | None => None,
                }
            }

            /// The number itself.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0.get()
            }

            /// The next greater one, or `None` at the end of the range: it never wraps.
            #[must_use]
            pub const fn successor(self) -> Option<Self> {
                Self::presented(self.get() + 1)
            }

            /// The one that lies `distance` above, or `None` beyond the end of the range.
            #[must_use]
            pub const fn advanced(self, distance: u64) -> Option<Self> {
                match self.get().checked_add(distance) {
                    Some(number) => Self::presented(number),
                    None => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        const _: () = assert!(size_of::<Option<$name>>() == size_of::<u64>());
    };
}

generation_number! {
    /// A fencing token: never reused, never wraps, strictly greater than every token minted before it on its ledger.
    ///
    /// Monotonic, not dense. It cannot be made from an integer by conversion, nor counted up by hand:
    ///
    /// ```compile_fail
    /// let token: keyfence_core::Token = 41.into();
    /// ```
    /// ```compile_fail
    /// # let token = keyfence_core::Token::FIRST;
    /// let next = token + 1;
    /// ```
    /// ```compile_fail
    /// let token = keyfence_core::Token::default();
    /// ```
    Token
}

generation_number! {
    /// The generation of one session: never reused, never wraps, greater by at least one with every new claim.
    ///
    /// ```compile_fail
    /// let incarnation: keyfence_core::Incarnation = 3.into();
    /// ```
    #[doc(alias = "epoch")]
    Incarnation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_ends_without_wrapping() {
        let last = Token::presented(MAX_NUMBER).unwrap();
        assert_eq!(last.successor(), None);
        assert_eq!(Token::presented(MAX_NUMBER - 1).unwrap().successor(), Some(last));
        assert_eq!(Token::presented(MAX_NUMBER + 1), None);
        assert_eq!(Token::presented(0), None);
        assert_eq!(last.advanced(u64::MAX), None);
        assert_eq!(
            Incarnation::FIRST.advanced(1_000_000).map(Incarnation::get),
            Some(1_000_001)
        );
    }
}
