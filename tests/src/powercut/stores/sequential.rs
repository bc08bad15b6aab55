//! The map of `sequential-storage`: each row under a u32 key, the counter under one of its own.

use std::fmt::Debug;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sequential_storage::cache::Cache;
use sequential_storage::map::{MapConfig, MapStorage};

use super::{four_pages, on_chip};
use crate::flash::{SharedChip, SimFlash};
use crate::powercut::life::{Change, Key, ROW_SIZE_BYTES, Row, Rows, Verb};
use crate::powercut::{Failure, Mounted, Store, Subject};

pub(super) const STORE: Store = Store {
    name: "sequential-storage",
    about: "sequential-storage 8.0.2's map: a 64-byte row under each u32 key, and the counter",
    pages: four_pages,
    build: |chip| on_chip!(chip, boxed),
};

const COUNTER: u32 = 1;
/// What a pruned key holds: chips with ECC cannot remove an item.
const ABSENT: [u8; ROW_SIZE_BYTES] = [0xaa; ROW_SIZE_BYTES];

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

    fn mount(&mut self) -> Result<Mounted, Failure> {
        let value = self
            .fetch(COUNTER)?
            .ok_or_else(|| Failure::Corrupt("no counter".into()))?;
        let bytes = value
            .try_into()
            .map_err(|_| Failure::Corrupt("counter size".into()))?;
        self.counter = u64::from_le_bytes(bytes);
        Ok(Mounted {
            counter: self.counter,
            reserved: self.counter,
        })
    }

    fn perform(&mut self, _: Verb, change: &Change) -> Result<Option<u64>, Failure> {
        // Persist before you speak: the counter first, so that a cut between the two burns a token.
        let token = if change.mints {
            self.store(COUNTER, &(self.counter + 1).to_le_bytes())?;
            self.counter += 1;
            Some(self.counter)
        } else {
            None
        };
        if let Some(key) = change.key {
            let row = change.after.map(|row| Row {
                token: token.unwrap_or(row.token),
                ..row
            });
            self.store(key.number(), &row.map_or(ABSENT, |row| row.encode()))?;
        }
        Ok(token)
    }

    fn rows(&mut self, keys: &[Key]) -> Result<Rows, Failure> {
        let mut rows = Rows::new();
        for key in keys {
            match self.fetch(key.number())? {
                None => {}
                Some(value) if value == ABSENT => {}
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
