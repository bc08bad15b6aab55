//! Numbers, names and the like as bytes of a record.

use keyfence_core::{AttemptId, Digest, Incarnation, LedgerId, Name, TimeMs, Token};

use super::{Error, NAME_BYTES_MAX};

/// No record of a row is longer.
pub(super) const RECORD_BYTES_MAX: usize = 136;

/// The bytes of one record.
pub(super) type Bytes = heapless::Vec<u8, RECORD_BYTES_MAX>;

/// Writes a record. What does not fit is remembered.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Bytes,
    failed: Option<Error>,
}

impl Writer {
    pub(super) fn byte(&mut self, byte: u8) {
        if self.bytes.push(byte).is_err() {
            self.failed.get_or_insert(Error::TooMuch);
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.byte(*byte));
    }

    #[inline(never)]
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    #[inline(never)]
    pub(super) fn name(&mut self, name: &Name) {
        let text = name.as_str().as_bytes();
        if text.len() > NAME_BYTES_MAX {
            self.failed.get_or_insert(Error::NameTooLong);
            return;
        }
        self.byte(text.len() as u8);
        self.bytes(text);
    }

    /// A name that may be missing: names are never empty.
    pub(super) fn name_or_none(&mut self, name: Option<&Name>) {
        match name {
            Some(name) => self.name(name),
            None => self.byte(0),
        }
    }

    /// Numbers are never 0.
    pub(super) fn token_or_none(&mut self, token: Option<Token>) {
        self.number(token.map_or(0, Token::get));
    }

    pub(super) fn finish(self) -> Result<Bytes, Error> {
        match self.failed {
            None => Ok(self.bytes),
            Some(error) => Err(error),
        }
    }
}

/// Reads a record. Wherever that is not as it was written, something is given for it and remembered: [`Reader::end`]
/// tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    failed: bool,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(rest: &'a [u8]) -> Self {
        Self { rest, failed: false }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What an `Option` holds, or else something instead.
    fn or<T>(&mut self, value: Option<T>, instead: T) -> T {
        self.failed |= value.is_none();
        value.unwrap_or(instead)
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    #[inline(never)]
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let split = self.rest.split_at_checked(len);
        let (bytes, rest) = self.or(split, (&[], &[]));
        self.rest = rest;
        bytes
    }

    #[inline(never)]
    pub(super) fn sixteen(&mut self) -> [u8; 16] {
        self.bytes(16).try_into().unwrap_or([0; 16])
    }

    #[inline(never)]
    pub(super) fn number(&mut self) -> u64 {
        let mut number = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return number;
            }
        }
        self.failed = true;
        0
    }

    /// A number of a narrower type.
    pub(super) fn small<T: TryFrom<u64> + Default>(&mut self) -> T {
        let number = self.number().try_into().ok();
        self.or(number, T::default())
    }

    #[inline(never)]
    pub(super) fn name_of(&mut self, len: u8) -> Option<Name> {
        let text = core::str::from_utf8(self.bytes(len.into())).ok()?;
        Name::new(text).ok()
    }

    pub(super) fn name(&mut self) -> Option<Name> {
        let len = self.byte();
        self.name_of(len)
    }

    pub(super) fn name_or_none(&mut self) -> Option<Name> {
        let len = self.byte();
        let name = self.name_of(len);
        self.failed |= len != 0 && name.is_none();
        name
    }

    pub(super) fn token(&mut self) -> Token {
        let token = Token::presented(self.number());
        self.or(token, Token::FIRST)
    }

    pub(super) fn token_or_none(&mut self) -> Option<Token> {
        let number = self.number();
        let token = Token::presented(number);
        self.failed |= number != 0 && token.is_none();
        token
    }

    pub(super) fn incarnation(&mut self) -> Incarnation {
        let incarnation = Incarnation::presented(self.number());
        self.or(incarnation, Incarnation::FIRST)
    }

    pub(super) fn time(&mut self) -> TimeMs {
        let time = TimeMs::new(self.number());
        self.or(time, TimeMs::ZERO)
    }

    pub(super) fn digest(&mut self) -> Digest {
        Digest::from_bytes(self.sixteen())
    }

    pub(super) fn attempt(&mut self) -> AttemptId {
        AttemptId::from_bytes(self.sixteen())
    }

    pub(super) fn ledger(&mut self) -> LedgerId {
        LedgerId::from_bytes(self.sixteen())
    }

    /// `value`, if everything was as it was written so far.
    pub(super) fn so_far<T>(&self, value: T) -> Option<T> {
        (!self.failed).then_some(value)
    }

    /// `value`, if everything was as it was written and nothing is left over.
    pub(super) fn end<T>(self, value: T) -> Option<T> {
        (!self.failed && self.rest.is_empty()).then_some(value)
    }
}

/// FNV-1a.
pub(super) fn hash(kind: u8, text: &str) -> u64 {
    let bytes = core::iter::once(kind).chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
