//! What the tables have in common: reading once, and writing by compare-and-set (H2).

use keyfence_core::store::{Failure, Place, Record, Table};
use keyfence_core::{Decision, Expiry, Name, TimeMs};
use rusqlite::{Connection, Params, Row};

use super::{SqliteStep, bug, failed};
use crate::error::Error;

/// A row as it stands in its table.
#[derive(Clone, Debug)]
pub(crate) struct Stored<R> {
    /// Its number there.
    pub(crate) number: i64,
    /// Its check value.
    pub(crate) check: i64,
    /// When it was finished.
    pub(crate) ended_at: Option<TimeMs>,
    /// The row.
    pub(crate) row: R,
}

/// The rows of one kind that a step has read or put, as they are now.
#[derive(Debug)]
pub(crate) struct Cache<R>(Vec<Stored<R>>);

impl<R> Default for Cache<R> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<R: Record> Cache<R> {
    /// How many rows are kept: what a step of the machines works on, with room for a batch.
    const ROWS_MAX: usize = 32;

    pub(crate) fn find(&self, key: &Name) -> Option<&Stored<R>> {
        self.0.iter().find(|stored| stored.row.key() == key)
    }

    /// Keeps a row, and forgets all others when there are too many: they can be read again.
    pub(crate) fn keep(&mut self, stored: Stored<R>) {
        match self.0.iter_mut().find(|old| old.row.key() == stored.row.key()) {
            Some(old) => *old = stored,
            None => {
                if self.0.len() >= Self::ROWS_MAX {
                    self.0.clear();
                }
                self.0.push(stored);
            }
        }
    }
}

/// A record that has a table.
pub(crate) trait Rows: Record + PartialEq {
    /// Where a step keeps the rows of this kind that it has read.
    fn cache<'s>(step: &'s mut SqliteStep<'_>) -> &'s mut Cache<Self>;
    /// Until when its claim is live, if it has one.
    fn expiry(&self) -> Option<Expiry>;
    /// Whether it is finished.
    fn ends(&self) -> bool;
    /// Its check value.
    fn check(&self, ended_at: Option<TimeMs>) -> i64;
    /// Reads a row.
    fn load(step: &mut SqliteStep<'_>, key: &Name) -> Result<Option<Stored<Self>>, Failure<Error>>;
    /// Writes a new row and returns its number.
    fn insert(&self, step: &mut SqliteStep<'_>, check: i64, ended_at: Option<TimeMs>) -> Result<i64, Failure<Error>>;
    /// Writes over the row that is as `before` says.
    fn update(
        &self,
        step: &mut SqliteStep<'_>,
        before: &Stored<Self>,
        check: i64,
        ended_at: Option<TimeMs>,
    ) -> Result<(), Failure<Error>>;
}

impl<R: Rows> Table<R> for SqliteStep<'_> {
    fn get(&mut self, key: &Name) -> Result<Option<R>, Failure<Error>> {
        if let Some(stored) = R::cache(self).find(key) {
            return Ok(Some(stored.row.clone()));
        }
        self.check_sound()?;
        let Some(stored) = R::load(self, key)? else {
            return Ok(None);
        };
        let row = stored.row.clone();
        R::cache(self).keep(stored);
        Ok(Some(row))
    }

    /// A table has no bound of its own.
    fn room_for(&mut self, _key: &Name) -> Result<Decision<()>, Failure<Error>> {
        Ok(Ok(()))
    }

    fn put(&mut self, before: Option<&R>, after: &R) -> Result<(), Failure<Error>> {
        self.check_sound()?;
        let stored = match before {
            None => None,
            Some(before) => Some(as_read(self, before)?),
        };
        let ended_at = match &stored {
            _ if !after.ends() => None,
            Some(stored) if stored.ended_at.is_some() => stored.ended_at,
            Some(_) | None => Some(self.now),
        };
        let check = after.check(ended_at);
        self.note_expiry(before.and_then(R::expiry), after.expiry());
        self.wrote = true;
        let number = match &stored {
            None => after.insert(self, check, ended_at)?,
            Some(stored) => {
                after.update(self, stored, check, ended_at)?;
                stored.number
            }
        };
        R::cache(self).keep(Stored {
            number,
            check,
            ended_at,
            row: after.clone(),
        });
        Ok(())
    }
}

/// `before` as the row that a write has to find, whatever is there in truth.
fn as_read<R: Rows>(step: &mut SqliteStep<'_>, before: &R) -> Result<Stored<R>, Failure<Error>> {
    if let Some(stored) = R::cache(step).find(before.key())
        && stored.row == *before
    {
        return Ok(stored.clone());
    }
    let Some(stored) = R::load(step, before.key())? else {
        return Err(bug(format!(
            "the {} `{}` to be written is not there",
            R::PLACE.name(),
            before.key()
        )));
    };
    Ok(Stored {
        check: before.check(stored.ended_at),
        row: before.clone(),
        ..stored
    })
}

/// Reads one row through a cached statement.
pub(crate) fn query_one<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    decode: impl FnOnce(&Row<'_>) -> Result<T, Failure<Error>>,
) -> Result<Option<T>, Failure<Error>> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query(params).map_err(failed)?;
    match rows.next().map_err(failed)? {
        Some(row) => decode(row).map(Some),
        None => Ok(None),
    }
}

/// A compare-and-set that did not change exactly one row is a bug of ours: the step ends here.
pub(crate) fn one_changed(changed: usize, place: Place, key: &Name) -> Result<(), Failure<Error>> {
    if changed == 1 {
        Ok(())
    } else {
        Err(bug(format!(
            "the {} `{key}` was not as this step had read it: {changed} rows matched",
            place.name()
        )))
    }
}

/// A number as SQLite stores it. All numbers of the machines are below 2^53.
pub(crate) const fn number_of(number: u64) -> i64 {
    number.cast_signed()
}

/// An expiry as a ledger stores it. Its clock outlives a boot.
pub(crate) fn stored_expiry(expiry: Expiry) -> Result<i64, Failure<Error>> {
    match expiry {
        Expiry::At(time) => Ok(number_of(time.as_ms())),
        Expiry::EarlierBoot => Err(bug("an expiry of an earlier boot was put into a ledger".into())),
    }
}
