//! Stores that keep values under number keys, as subjects: used as well as they can be.
//!
//! Each row lies under its key with its token in it, so that a claim is one put and therefore
//! atomic. The counter is the greatest token in any value. What is left of a pruned row is its token
//! alone, since the counter must survive every row.

use crate::powercut::life::{Bounds, Change, Key, Model, Row, Rows, Verb};
use crate::powercut::{Failure, Mounted, Subject};

/// A store of values of up to 64 bytes under number keys.
pub(super) trait Records {
    /// Makes the store empty.
    fn format(&mut self) -> Result<(), Failure>;

    /// Starts the store on what the chip holds.
    fn open(&mut self) -> Result<(), Failure>;

    /// The value under `key`.
    fn get(&mut self, key: u32) -> Result<Option<Vec<u8>>, Failure>;

    /// Puts `value` under `key`, durably.
    fn put(&mut self, key: u32, value: &[u8]) -> Result<(), Failure>;

    /// Shows `see` every value under `keys`, in any order, and older values too if that is cheaper.
    fn each(&mut self, keys: &[u32], see: &mut dyn FnMut(u32, &[u8])) -> Result<(), Failure> {
        for key in keys {
            if let Some(value) = self.get(*key)? {
                see(*key, &value);
            }
        }
        Ok(())
    }
}

/// The key of the counter, for mints that are for nothing else.
const COUNTER: u32 = 1;
/// A value of this size is a token alone.
const TOKEN_SIZE_BYTES: usize = 8;

/// The subject over a store of records.
pub(super) struct OverRecords<R> {
    records: R,
    keys: Vec<u32>,
    counter: u64,
}

impl<R: Records> OverRecords<R> {
    /// A subject over `records` in a region with pages of this size.
    pub(super) fn new(records: R, erase_size_bytes: usize) -> Self {
        let rows = Bounds::for_page_size(erase_size_bytes).keys().map(Key::number);
        Self {
            records,
            keys: std::iter::once(COUNTER).chain(rows).collect(),
            counter: 0,
        }
    }
}

impl<R: Records> Subject for OverRecords<R> {
    fn provision(&mut self) -> Result<(), Failure> {
        self.records.format()?;
        self.records.put(COUNTER, &0u64.to_le_bytes())
    }

    fn mount(&mut self) -> Result<Mounted, Failure> {
        self.records.open()?;
        let (mut counter, mut provisioned) = (0, false);
        self.records.each(&self.keys, &mut |key, value| {
            provisioned |= key == COUNTER;
            counter = counter.max(token_of(value));
        })?;
        if !provisioned {
            return Err(Failure::Corrupt("no counter".into()));
        }
        self.counter = counter;
        Ok(Mounted {
            counter,
            reserved: counter,
        })
    }

    fn perform(&mut self, _: Verb, change: &Change) -> Result<Option<u64>, Failure> {
        let token = change.mints.then_some(self.counter + 1);
        match (change.key, change.after) {
            (Some(key), Some(row)) => {
                let row = Row {
                    token: token.unwrap_or(row.token),
                    ..row
                };
                self.records.put(key.number(), &row.encode())?;
            }
            (Some(key), None) => {
                let last = self.records.get(key.number())?.map_or(0, |value| token_of(&value));
                self.records.put(key.number(), &last.to_le_bytes())?;
            }
            (None, _) => {
                self.records
                    .put(COUNTER, &token.unwrap_or(self.counter).to_le_bytes())?;
            }
        }
        self.counter = token.unwrap_or(self.counter);
        Ok(token)
    }

    fn rows(&mut self, keys: &[Key], _: &Model) -> Result<Rows, Failure> {
        let mut rows = Rows::new();
        for key in keys {
            match self.records.get(key.number())? {
                None => {}
                Some(value) if value.len() == TOKEN_SIZE_BYTES => {}
                Some(value) => {
                    let row =
                        Row::decode(*key, &value).ok_or_else(|| Failure::Corrupt(format!("the row of {key:?}")))?;
                    rows.insert(*key, row);
                }
            }
        }
        Ok(rows)
    }

    fn reserved(&self) -> u64 {
        self.counter
    }
}

/// The token in a value: a row, or a token alone. 0 where the value is neither, which the reading
/// of the rows will tell.
fn token_of(value: &[u8]) -> u64 {
    let bytes = if value.len() == TOKEN_SIZE_BYTES {
        Some(value)
    } else {
        value.get(12..20)
    };
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}
