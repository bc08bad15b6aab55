//! The map of `sequential-storage`, used as well as it can be: each row under a u32 key, its token
//! in it, so that a claim is one item and therefore atomic. The counter is the greatest token in
//! any item; a mint for nothing else is kept under a key of its own.

use std::fmt::Debug;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sequential_storage::cache::Cache;
use sequential_storage::map::{MapConfig, MapStorage};

use super::{four_pages, on_chip};
use crate::flash::{SharedChip, SimFlash};
use crate::powercut::life::{Change, Key, Row, Rows, Verb};
use crate::powercut::{Failure, Mounted, Store, Subject};

pub(super) const STORE: Store = Store {
    name: "sequential-storage",
    about: "sequential-storage 8.0.2's map: a 64-byte row under each u32 key, and the counter",
    renews_in_ram: false,
    pages: four_pages,
    build: |chip| on_chip!(chip, boxed),
};

const COUNTER: u32 = 1;
/// A value of this size is a token alone: the counter, or what is left of a pruned row, since chips
/// with ECC cannot remove an item and the counter must survive every row.
const TOKEN_SIZE_BYTES: usize = 8;

type Uncached = Cache<
    sequential_storage::cache::Uncached,
    sequential_storage::cache::Uncached,
    sequential_storage::cache::Uncached,
    u32,
>;
type Error = sequential_storage::Error<crate::flash::FlashError>;

struct Sequential<const WRITE: usize, const ERASE: usize> {
    map: MapStorage<u32, SimFlash<WRITE, ERASE>, Uncached>,
    counter: u64,
}

fn boxed<const WRITE: usize, const ERASE: usize>(chip: &SharedChip) -> Box<dyn Subject> {
    let size = chip.borrow().image().size_bytes() as u32;
    let config = MapConfig::new(0..size);
    let map = MapStorage::new(SimFlash::on(chip.clone()), config, Cache::new_uncached());
    Box::new(Sequential::<WRITE, ERASE> { map, counter: 0 })
}

impl<const WRITE: usize, const ERASE: usize> Sequential<WRITE, ERASE> {
    fn fetch(&mut self, key: u32) -> Result<Option<Vec<u8>>, Failure> {
        let mut buffer = [0; 128];
        let item = wait(self.map.fetch_item::<&[u8]>(&mut buffer, &key)).map_err(failure)?;
        Ok(item.map(<[u8]>::to_vec))
    }

    fn store(&mut self, key: u32, value: &[u8]) -> Result<(), Failure> {
        let mut buffer = [0; 128];
        wait(self.map.store_item(&mut buffer, &key, &value)).map_err(failure)
    }
}

impl<const WRITE: usize, const ERASE: usize> Subject for Sequential<WRITE, ERASE> {
    fn provision(&mut self) -> Result<(), Failure> {
        wait(self.map.erase_all()).map_err(failure)?;
        self.store(COUNTER, &0u64.to_le_bytes())
    }

    /// One pass over all items; the counter is the greatest token in any of them.
    fn mount(&mut self) -> Result<Mounted, Failure> {
        let mut buffer = [0; 128];
        let mut items = wait(self.map.fetch_all_items(&mut buffer)).map_err(failure)?;
        let mut provisioned = false;
        self.counter = 0;
        let mut buffer = [0; 128];
        while let Some((key, value)) = wait(items.next::<&[u8]>(&mut buffer)).map_err(failure)? {
            provisioned |= key == COUNTER;
            self.counter = self.counter.max(token_of(value));
        }
        if !provisioned {
            return Err(Failure::Corrupt("no counter".into()));
        }
        Ok(Mounted {
            counter: self.counter,
            reserved: self.counter,
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
                self.store(key.number(), &row.encode())?;
            }
            (Some(key), None) => {
                let last = self
                    .fetch(key.number())?
                    .map_or(0, |value| token_of(&value));
                self.store(key.number(), &last.to_le_bytes())?;
            }
            (None, _) => {
                self.store(COUNTER, &token.unwrap_or(self.counter).to_le_bytes())?;
            }
        }
        self.counter = token.unwrap_or(self.counter);
        Ok(token)
    }

    fn rows(&mut self, keys: &[Key]) -> Result<Rows, Failure> {
        let mut rows = Rows::new();
        for key in keys {
            match self.fetch(key.number())? {
                None => {}
                Some(value) if value.len() == TOKEN_SIZE_BYTES => {}
                Some(value) => {
                    let row = Row::decode(*key, &value)
                        .ok_or_else(|| Failure::Corrupt(format!("the row of {key:?}")))?;
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

/// Runs a future whose flash never makes it wait.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the simulated flash is always ready"),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is open; the rest is told as it is"
)]
fn failure(error: Error) -> Failure {
    let text = |error: &dyn Debug| format!("{error:?}");
    match error {
        Error::Storage { value, .. } => Failure::Flash(value.to_string()),
        Error::FullStorage | Error::ItemTooBig => Failure::Full(text(&error)),
        Error::Corrupted { .. } => Failure::Corrupt(text(&error)),
        error => Failure::Other(text(&error)),
    }
}
