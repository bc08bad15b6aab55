//! What tells that a row is what was written: a check value in every row, and the byte encoding of events and calls.

use keyfence_core::Digest;
use sha2::{Digest as _, Sha256};

/// The check value of a row: 64 bits over all its fields.
///
/// Each 8-byte word goes in by `state = rotate((state ^ word) * odd)`, which can be undone for every word: two rows
/// that differ within one word always differ in their check values, so no flipped bit goes unseen. It guards against a
/// medium's mistakes; whoever may write the file can compute it.
#[derive(Clone, Copy)]
pub(crate) struct Check(u64);

impl Check {
    /// Begins a row of the table with this name.
    pub(crate) fn new(table: &str) -> Self {
        let mut check = Self(0x6b65_7966_656e_6365);
        check.text(table);
        check
    }

    pub(crate) fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    }

    /// The length goes in as well, so that neighbouring fields cannot pass for each other.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for chunk in &mut words {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(word));
        }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// An absent field is a word of its own, and so is the presence of one.
    pub(crate) fn opt<T>(&mut self, field: Option<T>, put: impl FnOnce(&mut Self, T)) {
        match field {
            None => self.word(0),
            Some(field) => {
                self.word(1);
                put(self, field);
            }
        }
    }

    /// The value as SQLite stores it.
    pub(crate) const fn finish(self) -> i64 {
        (self.0 ^ (self.0 >> 29)).cast_signed()
    }
}

/// Writes fields one after the other, so that no two sequences of fields give the same bytes: numbers as 8 bytes little
/// endian, texts and byte strings with their length before them, an absent field as 0 and a present one behind a 1.
#[derive(Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn opt<T>(&mut self, field: Option<T>, put: impl FnOnce(&mut Self, T)) {
        match field {
            None => self.0.push(0),
            Some(field) => {
                self.0.push(1);
                put(self, field);
            }
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The digest of all that was written.
    pub(crate) fn digest(&self) -> Digest {
        digest(&self.0)
    }

    /// The digest of all that was written and of these bytes, which are the last field.
    pub(crate) fn digest_with(&self, last: &[u8]) -> Digest {
        let mut hash = Sha256::new();
        hash.update(&self.0);
        hash.update(last);
        first_half(hash.finalize().into())
    }
}

/// Reads what an [`Encoder`] wrote; `None` where it does not hold what is asked for.
pub(crate) struct Decoder<'b>(&'b [u8]);

impl<'b> Decoder<'b> {
    pub(crate) const fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'b [u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Option<&'b str> {
        core::str::from_utf8(self.bytes()?).ok()
    }

    /// The outer `None`: not readable; the inner one: absent.
    pub(crate) fn opt<T>(&mut self, get: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.take(1)? {
            [0] => Some(None),
            [1] => get(self).map(Some),
            _ => None,
        }
    }

    /// Whether everything was read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The head of the history's hash chain.
pub(crate) type ChainHead = [u8; 32];

/// The head after one more event: SHA-256 over the head before it and the event's encoding.
pub(crate) fn chained(head: &ChainHead, event: &[u8]) -> ChainHead {
    let mut hash = Sha256::new();
    hash.update(head);
    hash.update(event);
    hash.finalize().into()
}

/// What an event's row keeps of the head after it, so that damage can be placed.
pub(crate) fn link(head: &ChainHead) -> i64 {
    let mut word = [0; 8];
    word.copy_from_slice(&head[..8]);
    i64::from_le_bytes(word)
}

/// The digest of what a call carried: nothing is [`Digest::NONE`].
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    if bytes.is_empty() {
        return Digest::NONE;
    }
    first_half(Sha256::digest(bytes).into())
}

fn first_half(hash: [u8; 32]) -> Digest {
    let mut first = [0; 16];
    first.copy_from_slice(&hash[..16]);
    Digest::from_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(put: impl FnOnce(&mut Check)) -> i64 {
        let mut check = Check::new("table");
        put(&mut check);
        check.finish()
    }

    #[test]
    fn every_flipped_bit_changes_the_check_value() {
        let bytes: Vec<u8> = (0..43).collect();
        let whole = check(|c| c.bytes(&bytes));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(check(|c| c.bytes(&flipped)), whole, "bit {bit}");
        }
    }

    #[test]
    fn neighbouring_fields_do_not_pass_for_each_other() {
        let fields = |a: &'static str, b: &'static str| {
            check(|c| {
                c.text(a);
                c.text(b);
            })
        };
        assert_ne!(fields("ab", "c"), fields("a", "bc"));
        assert_ne!(
            check(|c| c.opt(None::<u64>, Check::word)),
            check(|c| c.opt(Some(0), Check::word))
        );
    }

    #[test]
    fn an_encoding_reads_back_and_ends_where_it_ended() {
        let mut encoder = Encoder::new();
        encoder.number(7);
        encoder.text("ada");
        encoder.opt(None::<u64>, Encoder::number);
        encoder.opt(Some(9), Encoder::number);
        let mut decoder = Decoder::new(encoder.as_slice());
        assert_eq!(decoder.number(), Some(7));
        assert_eq!(decoder.text(), Some("ada"));
        assert_eq!(decoder.opt(Decoder::number), Some(None));
        assert_eq!(decoder.opt(Decoder::number), Some(Some(9)));
        assert!(decoder.is_empty());
        assert_eq!(decoder.number(), None);
    }

    #[test]
    fn no_bytes_have_no_digest() {
        assert_eq!(digest(b""), Digest::NONE);
        assert_ne!(digest(b"x"), Digest::NONE);
    }
}
