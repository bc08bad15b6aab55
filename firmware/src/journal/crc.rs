//! CRC-32C, and the correction of small damage with it.
//!
//! The check sum of a frame tells one flipped bit, and two in one 32-bit word, apart from every other
//! such pattern as long as the frame has at most 1,012 bytes. So a frame that is known to have been
//! committed can be repaired: exactly one such pattern explains the syndrome, or none does and the
//! frame is lost.

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const fn step(register: u32) -> u32 {
    (register >> 1) ^ (if register & 1 == 1 { POLYNOMIAL } else { 0 })
}

const fn table() -> [u32; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = step(step(step(step(i as u32))));
        i += 1;
    }
    table
}

static TABLE: [u32; 16] = table();

/// A check sum being computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crc(u32);

impl Crc {
    pub(crate) const fn new() -> Self {
        Self(!0)
    }

    pub(crate) fn update(self, bytes: &[u8]) -> Self {
        let mut register = self.0;
        for byte in bytes {
            register ^= u32::from(*byte);
            for _ in 0..2 {
                // The mask keeps the index inside the table.
                let entry = TABLE.get((register & 0xf) as usize).copied().unwrap_or(0);
                register = (register >> 4) ^ entry;
            }
        }
        Self(register)
    }

    pub(crate) const fn finish(self) -> u32 {
        !self.0
    }
}

/// Finds the flipped bits that explain `syndrome`, the difference between the computed and the
/// stored check sum of a message of `message` bytes followed by its check sum.
///
/// Bits are numbered from the first bit of the message, the low bit of each byte first. The first
/// `skip` bytes are taken to be good. Two bits are only looked for in one 32-bit word.
pub(crate) fn explain(syndrome: u32, message: usize, skip: usize) -> Option<(usize, Option<usize>)> {
    let total = message.checked_add(4)?.checked_mul(8)?;
    let sum_begins = message.checked_mul(8)?;
    let mut effect = POLYNOMIAL;
    let mut word = [0u32; 32];
    for bit in (skip.checked_mul(8)?..total).rev() {
        let this = match bit.checked_sub(sum_begins) {
            Some(n) => 1u32.checked_shl(u32::try_from(n).ok()?)?,
            None => {
                let this = effect;
                effect = step(effect);
                this
            }
        };
        *word.get_mut(bit % 32)? = this;
        if bit % 32 != 0 && bit != skip * 8 {
            continue;
        }
        let base = bit - bit % 32;
        for (i, a) in word.iter().enumerate() {
            if *a == 0 {
                continue;
            }
            if *a == syndrome {
                return Some((base + i, None));
            }
            let later = word.iter().enumerate().skip(i + 1);
            for (j, b) in later.filter(|(_, b)| **b != 0) {
                if a ^ b == syndrome {
                    return Some((base + i, Some(base + j)));
                }
            }
        }
        word = [0; 32];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_check_value_of_crc_32c() {
        assert_eq!(Crc::new().update(b"123456789").finish(), 0xe306_9283);
    }

    #[test]
    fn every_flip_of_one_bit_and_of_two_in_a_word_is_found() {
        for message in [9usize, 20, 63] {
            let mut bytes: Vec<u8> = (0..message).map(|i| (i * 37 + 11) as u8).collect();
            let sum = Crc::new().update(&bytes).finish();
            bytes.extend_from_slice(&sum.to_le_bytes());
            for a in 32..bytes.len() * 8 {
                for b in a..bytes.len() * 8 {
                    if a / 32 != b / 32 {
                        continue;
                    }
                    let mut bad = bytes.clone();
                    bad[a / 8] ^= 1 << (a % 8);
                    if a != b {
                        bad[b / 8] ^= 1 << (b % 8);
                    }
                    let (body, stored) = bad.split_at(message);
                    let stored = u32::from_le_bytes(stored.try_into().unwrap());
                    let syndrome = Crc::new().update(body).finish() ^ stored;
                    let expected = (a, (a != b).then_some(b));
                    assert_eq!(explain(syndrome, message, 4), Some(expected));
                }
            }
        }
    }

    /// The claim of the module documentation, for the longest frame.
    #[test]
    fn syndromes_are_distinct_up_to_1012_bytes() {
        let mut seen = std::collections::HashSet::new();
        let mut effect = POLYNOMIAL;
        let mut word: Vec<u32> = (0..32).map(|bit| 1 << bit).collect();
        for _ in 0..253 {
            for (i, a) in word.iter().enumerate() {
                assert!(seen.insert(*a));
                for b in word.iter().skip(i + 1) {
                    assert!(seen.insert(a ^ b));
                }
            }
            word.clear();
            for _ in 0..32 {
                word.push(effect);
                effect = step(effect);
            }
        }
    }
}
