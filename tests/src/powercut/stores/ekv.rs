//! `ekv`: a log-structured merge tree. Its page size and alignment are fixed when it is built, so it
//! runs on chips with 4 KiB pages and units of up to 4 bytes only.

use ekv::flash::{Flash, PageID};
use ekv::{Config, Database, ReadError};
use embassy_sync::blocking_mutex::raw::NoopRawMutex;

use super::records::{OverRecords, Records};
use super::sequential::wait;
use crate::flash::{FlashError, Geometry, SharedChip};
use crate::powercut::{Failure, Store, Subject};

pub(super) const STORE: Store = Store {
    name: "ekv",
    about: "ekv 1.0.0 with check sums: a 64-byte row under each key, one transaction for each",
    renews_in_ram: false,
    pages: |geometry: &Geometry| {
        let fits = geometry.erase_size_bytes == PAGE_SIZE && geometry.write_size_bytes <= ALIGN;
        fits.then_some(16)
    },
    build: |chip| {
        let seed = chip.borrow().image().digest() as u32;
        let mut config = Config::default();
        config.random_seed = seed;
        let database = Database::new(Pages(chip.clone()), config);
        Box::new(OverRecords::new(Ekv { database }, PAGE_SIZE)) as Box<dyn Subject>
    },
};

const PAGE_SIZE: usize = ekv::config::PAGE_SIZE;
const ALIGN: usize = ekv::config::ALIGN;

/// The chip as `ekv` wants to see it.
struct Pages(SharedChip);

impl Flash for Pages {
    type Error = FlashError;

    fn page_count(&self) -> usize {
        self.0.borrow().image().pages()
    }

    async fn erase(&mut self, page: PageID) -> Result<(), FlashError> {
        let start = start(page);
        self.0.borrow_mut().erase(start, start + PAGE_SIZE as u32)
    }

    async fn read(&mut self, page: PageID, at: usize, bytes: &mut [u8]) -> Result<(), FlashError> {
        self.0.borrow_mut().read(start(page) + at as u32, bytes)
    }

    async fn write(&mut self, page: PageID, at: usize, bytes: &[u8]) -> Result<(), FlashError> {
        self.0.borrow_mut().write(start(page) + at as u32, bytes)
    }
}

const fn start(page: PageID) -> u32 {
    (page.index() * PAGE_SIZE) as u32
}

struct Ekv {
    database: Database<Pages, NoopRawMutex>,
}

impl Records for Ekv {
    fn format(&mut self) -> Result<(), Failure> {
        wait(self.database.format()).map_err(failure)
    }

    fn open(&mut self) -> Result<(), Failure> {
        wait(self.database.mount()).map_err(failure)
    }

    fn get(&mut self, key: u32) -> Result<Option<Vec<u8>>, Failure> {
        wait(async {
            let mut value = [0; 64];
            let read = self.database.read_transaction().await;
            match read.read(&key.to_be_bytes(), &mut value).await {
                Ok(len) => Ok(Some(value[..len].to_vec())),
                Err(ReadError::KeyNotFound) => Ok(None),
                Err(error) => Err(failure(error)),
            }
        })
    }

    fn put(&mut self, key: u32, value: &[u8]) -> Result<(), Failure> {
        wait(async {
            let mut write = self.database.write_transaction().await;
            write.write(&key.to_be_bytes(), value).await.map_err(failure)?;
            write.commit().await.map_err(failure)
        })
    }
}

/// The errors of each operation are types of their own that say the same few things.
fn failure(error: impl std::fmt::Debug) -> Failure {
    let text = format!("{error:?}");
    if text.starts_with("Flash") {
        Failure::Flash(text)
    } else if text.starts_with("Corrupted") {
        Failure::Corrupt(text)
    } else if text.starts_with("Full") {
        Failure::Full(text)
    } else {
        Failure::Other(text)
    }
}
