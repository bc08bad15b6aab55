//! Typed decoding of a row: what is not as it must be is damage, never a default.

use keyfence_core::store::{Corrupt, Failure, Place};
use keyfence_core::{AttemptId, Digest, Expiry, Incarnation, LedgerId, Name, ProcessId, TimeMs, Token};
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::error::Error;

/// Damage of a row that was found under `key`.
pub(crate) fn corrupt(place: Place, key: Option<&str>, why: &'static str) -> Failure<Error> {
    Failure::Corrupt(Corrupt {
        place,
        key: key.and_then(|key| Name::new(key).ok()),
        why,
    })
}

/// The columns of one row.
pub(crate) struct Cells<'r> {
    row: &'r Row<'r>,
    place: Place,
    key: Option<&'r str>,
}

/// A column that cannot be decoded.
type Cell<T> = Result<T, Failure<Error>>;

impl<'r> Cells<'r> {
    /// Takes a row whose name is in `key_column`.
    pub(crate) fn new(row: &'r Row<'r>, place: Place, key_column: usize) -> Self {
        let key = row.get_ref(key_column).ok().and_then(|value| value.as_str().ok());
        Self { row, place, key }
    }

    pub(crate) fn damaged(&self, why: &'static str) -> Failure<Error> {
        corrupt(self.place, self.key, why)
    }

    fn value(&self, column: usize) -> Cell<ValueRef<'r>> {
        self.row.get_ref(column).map_err(|error| Failure::Store(error.into()))
    }

    fn must<T>(&self, cell: Option<T>, why: &'static str) -> Cell<T> {
        cell.ok_or_else(|| self.damaged(why))
    }

    pub(crate) fn opt_integer(&self, column: usize) -> Cell<Option<i64>> {
        match self.value(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(integer) => Ok(Some(integer)),
            ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => Err(self.damaged("a number is not a number")),
        }
    }

    pub(crate) fn integer(&self, column: usize) -> Cell<i64> {
        let integer = self.opt_integer(column)?;
        self.must(integer, "a number is missing")
    }

    pub(crate) fn number<T: TryFrom<i64>>(&self, column: usize) -> Cell<T> {
        let integer = self.integer(column)?;
        self.must(T::try_from(integer).ok(), "a number is out of range")
    }

    pub(crate) fn opt_number<T: TryFrom<i64>>(&self, column: usize) -> Cell<Option<T>> {
        match self.opt_integer(column)? {
            None => Ok(None),
            Some(integer) => self
                .must(T::try_from(integer).ok(), "a number is out of range")
                .map(Some),
        }
    }

    pub(crate) fn opt_text(&self, column: usize) -> Cell<Option<&'r str>> {
        match self.value(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(bytes) => self
                .must(core::str::from_utf8(bytes).ok(), "a text is not UTF-8")
                .map(Some),
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => Err(self.damaged("a text is not a text")),
        }
    }

    pub(crate) fn text(&self, column: usize) -> Cell<&'r str> {
        let text = self.opt_text(column)?;
        self.must(text, "a text is missing")
    }

    pub(crate) fn opt_name(&self, column: usize) -> Cell<Option<Name>> {
        match self.opt_text(column)? {
            None => Ok(None),
            Some(text) => self
                .must(Name::new(text).ok(), "a name breaks the rules of names")
                .map(Some),
        }
    }

    pub(crate) fn name(&self, column: usize) -> Cell<Name> {
        let name = self.opt_name(column)?;
        self.must(name, "a name is missing")
    }

    pub(crate) fn opt_blob(&self, column: usize) -> Cell<Option<&'r [u8]>> {
        match self.value(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Blob(bytes) => Ok(Some(bytes)),
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) => Err(self.damaged("bytes are not bytes")),
        }
    }

    fn opt_array<const N: usize>(&self, column: usize) -> Cell<Option<[u8; N]>> {
        match self.opt_blob(column)? {
            None => Ok(None),
            Some(bytes) => self.must(bytes.try_into().ok(), "an id has another length").map(Some),
        }
    }

    pub(crate) fn array<const N: usize>(&self, column: usize) -> Cell<[u8; N]> {
        let array = self.opt_array(column)?;
        self.must(array, "an id is missing")
    }

    pub(crate) fn opt_process(&self, column: usize) -> Cell<Option<ProcessId>> {
        Ok(self.opt_array(column)?.map(ProcessId::from_bytes))
    }

    pub(crate) fn opt_attempt(&self, column: usize) -> Cell<Option<AttemptId>> {
        Ok(self.opt_array(column)?.map(AttemptId::from_bytes))
    }

    pub(crate) fn opt_digest(&self, column: usize) -> Cell<Option<Digest>> {
        Ok(self.opt_array(column)?.map(Digest::from_bytes))
    }

    pub(crate) fn digest(&self, column: usize) -> Cell<Digest> {
        Ok(Digest::from_bytes(self.array(column)?))
    }

    pub(crate) fn ledger_id(&self, column: usize) -> Cell<LedgerId> {
        Ok(LedgerId::from_bytes(self.array(column)?))
    }

    pub(crate) fn opt_token(&self, column: usize) -> Cell<Option<Token>> {
        match self.opt_number::<u64>(column)? {
            None => Ok(None),
            Some(number) => self.must(Token::presented(number), "a token is out of range").map(Some),
        }
    }

    pub(crate) fn token(&self, column: usize) -> Cell<Token> {
        let token = self.opt_token(column)?;
        self.must(token, "a token is missing")
    }

    pub(crate) fn opt_incarnation(&self, column: usize) -> Cell<Option<Incarnation>> {
        match self.opt_number::<u64>(column)? {
            None => Ok(None),
            Some(number) => self
                .must(Incarnation::presented(number), "an incarnation is out of range")
                .map(Some),
        }
    }

    pub(crate) fn incarnation(&self, column: usize) -> Cell<Incarnation> {
        let incarnation = self.opt_incarnation(column)?;
        self.must(incarnation, "an incarnation is missing")
    }

    pub(crate) fn opt_time(&self, column: usize) -> Cell<Option<TimeMs>> {
        match self.opt_number::<u64>(column)? {
            None => Ok(None),
            Some(ms) => self.must(TimeMs::new(ms), "a moment is out of range").map(Some),
        }
    }

    pub(crate) fn time(&self, column: usize) -> Cell<TimeMs> {
        let time = self.opt_time(column)?;
        self.must(time, "a moment is missing")
    }

    /// A missing or malformed expiry is damage, never a lapsed claim.
    pub(crate) fn expiry(&self, column: usize) -> Cell<Expiry> {
        let ms = self.opt_integer(column)?;
        self.must(Expiry::from_stored(ms), "its expiry is missing or malformed")
    }

    /// What has to come with another column that is there.
    pub(crate) fn with<T>(&self, cell: Cell<Option<T>>) -> Cell<T> {
        self.must(cell?, "part of a claim is missing")
    }

    /// Compares the row's check value with the one its fields have.
    pub(crate) fn verify(&self, stored: i64, computed: i64) -> Cell<()> {
        if stored == computed {
            Ok(())
        } else {
            Err(self.damaged("it is not as it was written: its check value differs"))
        }
    }
}
