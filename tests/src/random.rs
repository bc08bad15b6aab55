//! Seeded randomness.
//!
//! Every random choice in this package comes from a seed that a failing test or command prints, so
//! that the same choice can be made again.

/// A small seeded generator (SplitMix64): equal seeds give equal streams on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A stream that is a function of `seed` alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// A byte.
    pub const fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }
}

/// Scatters the bits of `x`: a bijection in which every input bit reaches every output bit.
#[must_use]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Folds `value` into the running digest `digest`.
#[must_use]
pub const fn fold(digest: u64, value: u64) -> u64 {
    mix(digest.rotate_left(23) ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A digest of `bytes` that also depends on their number.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = bytes.len() as u64;
    for word in words {
        sum = fold(sum, u64::from_le_bytes(*word));
    }
    for byte in rest {
        sum = fold(sum, u64::from(*byte));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_streams() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        assert!((0..100).all(|_| a.next() == b.next()));
        assert_ne!(Random::new(7).next(), Random::new(8).next());
    }

    #[test]
    fn below_zero_is_zero() {
        assert_eq!(Random::new(1).below(0), 0);
    }

    #[test]
    fn a_digest_tells_length_order_and_content() {
        assert_ne!(digest(&[0; 8]), digest(&[0; 9]));
        assert_ne!(digest(&[1, 0]), digest(&[0, 1]));
        assert_eq!(digest(b"same"), digest(b"same"));
    }
}
