//! The map of `sequential-storage`: the peer.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sequential_storage::cache::{Cache, Uncached};
use sequential_storage::map::{MapConfig, MapStorage};

use super::records::{OverRecords, Records};
use super::{four_pages, on_chip};
use crate::flash::{FlashError, SharedChip, SimFlash};
use crate::powercut::{Failure, Store, Subject};

pub(super) const STORE: Store = Store {
    name: "sequential-storage",
    about: "sequential-storage 8.0.2's map: a 64-byte row under each u32 key, its token in it",
    renews_in_ram: false,
    pages: four_pages,
    build: |chip| on_chip!(chip, boxed),
};

type Error = sequential_storage::Error<FlashError>;

struct Sequential<const WRITE: usize, const ERASE: usize> {
    map: MapStorage<u32, SimFlash<WRITE, ERASE>, Cache<Uncached, Uncached, Uncached, u32>>,
}

fn boxed<const WRITE: usize, const ERASE: usize>(chip: &SharedChip) -> Box<dyn Subject> {
    let size = chip.borrow().image().size_bytes() as u32;
    let config = MapConfig::new(0..size);
    let map = MapStorage::new(SimFlash::on(chip.clone()), config, Cache::new_uncached());
    Box::new(OverRecords::new(Sequential::<WRITE, ERASE> { map }, ERASE))
}

impl<const WRITE: usize, const ERASE: usize> Records for Sequential<WRITE, ERASE> {
    fn format(&mut self) -> Result<(), Failure> {
        wait(self.map.erase_all()).map_err(failure)
    }

    fn open(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn get(&mut self, key: u32) -> Result<Option<Vec<u8>>, Failure> {
        let mut buffer = [0; 128];
        let item = wait(self.map.fetch_item::<&[u8]>(&mut buffer, &key)).map_err(failure)?;
        Ok(item.map(<[u8]>::to_vec))
    }

    fn put(&mut self, key: u32, value: &[u8]) -> Result<(), Failure> {
        let mut buffer = [0; 128];
        wait(self.map.store_item(&mut buffer, &key, &value)).map_err(failure)
    }

    /// One pass over all items, older ones included.
    fn each(&mut self, _: &[u32], see: &mut dyn FnMut(u32, &[u8])) -> Result<(), Failure> {
        let mut buffer = [0; 128];
        let mut items = wait(self.map.fetch_all_items(&mut buffer)).map_err(failure)?;
        while let Some((key, value)) = wait(items.next::<&[u8]>(&mut buffer)).map_err(failure)? {
            see(key, value);
        }
        Ok(())
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
    match error {
        Error::Storage { value, .. } => Failure::Flash(value.to_string()),
        Error::FullStorage | Error::ItemTooBig => Failure::Full(format!("{error:?}")),
        Error::Corrupted { .. } => Failure::Corrupt(format!("{error:?}")),
        error => Failure::Other(format!("{error:?}")),
    }
}
