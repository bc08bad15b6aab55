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

    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

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

/// Reads a record; `None` wherever it is not as it was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn sixteen(&mut self) -> Option<[u8; 16]> {
        self.bytes(16)?.try_into().ok()
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn name_of(&mut self, len: u8) -> Option<Name> {
        let text = self.bytes(len.into())?;
        Name::new(core::str::from_utf8(text).ok()?).ok()
    }

    pub(super) fn name(&mut self) -> Option<Name> {
        let len = self.byte()?;
        self.name_of(len)
    }

    pub(super) fn name_or_none(&mut self) -> Option<Option<Name>> {
        match self.byte()? {
            0 => Some(None),
            len => self.name_of(len).map(Some),
        }
    }

    pub(super) fn token(&mut self) -> Option<Token> {
        Token::presented(self.number()?)
    }

    pub(super) fn token_or_none(&mut self) -> Option<Option<Token>> {
        match self.number()? {
            0 => Some(None),
            number => Token::presented(number).map(Some),
        }
    }

    pub(super) fn incarnation(&mut self) -> Option<Incarnation> {
        Incarnation::presented(self.number()?)
    }

    pub(super) fn time(&mut self) -> Option<TimeMs> {
        TimeMs::new(self.number()?)
    }

    pub(super) fn digest(&mut self) -> Option<Digest> {
        self.sixteen().map(Digest::from_bytes)
    }

    pub(super) fn attempt(&mut self) -> Option<AttemptId> {
        self.sixteen().map(AttemptId::from_bytes)
    }

    pub(super) fn ledger(&mut self) -> Option<LedgerId> {
        self.sixteen().map(LedgerId::from_bytes)
    }

    /// `value`, if nothing is left over.
    pub(super) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// FNV-1a.
pub(super) fn hash(kind: u8, text: &str) -> u64 {
    let bytes = core::iter::once(kind).chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
