//! `littlefs2`: a file for each row. The file system is mounted anew for each call, which costs
//! reads and no writes.

use littlefs2::consts::{U1, U64};
use littlefs2::driver::Storage;
use littlefs2::fs::Filesystem;
use littlefs2::io::{Error, Result as IoResult};
use littlefs2::path::PathBuf;

use super::on_chip;
use super::records::{OverRecords, Records};
use crate::flash::{FlashError, Geometry, SharedChip};
use crate::powercut::{Failure, Store, Subject};

pub(super) const STORE: Store = Store {
    name: "littlefs2",
    about: "littlefs2 0.8.1: a 64-byte file for each row",
    renews_in_ram: false,
    // The root directory of 8 sessions does not fit the smallest pages.
    pages: |geometry: &Geometry| (geometry.erase_size_bytes >= 1024).then_some(PAGES),
    build: |chip| on_chip!(chip, boxed),
};

const PAGES: usize = 4;

/// The chip as littlefs wants to see it.
struct Blocks<const WRITE: usize, const ERASE: usize>(SharedChip);

impl<const WRITE: usize, const ERASE: usize> Storage for Blocks<WRITE, ERASE> {
    const READ_SIZE: usize = WRITE;
    const WRITE_SIZE: usize = WRITE;
    const BLOCK_SIZE: usize = ERASE;
    const BLOCK_COUNT: usize = PAGES;
    const BLOCK_CYCLES: isize = 100;
    type CACHE_SIZE = U64;
    type LOOKAHEAD_SIZE = U1;

    fn read(&mut self, at: usize, bytes: &mut [u8]) -> IoResult<usize> {
        let read = self.0.borrow_mut().read(at as u32, bytes);
        read.map(|()| bytes.len()).map_err(|_| Error::IO)
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> IoResult<usize> {
        let write = self.0.borrow_mut().write(at as u32, bytes);
        // littlefs leaves a block whose program reports corruption, and gives up on any other error.
        write.map(|()| bytes.len()).map_err(|error| match error {
            FlashError::Refused(_) => Error::CORRUPTION,
            FlashError::PowerLost
            | FlashError::NotAligned
            | FlashError::OutOfBounds
            | FlashError::Unreadable(_)
            | FlashError::Driver => Error::IO,
        })
    }

    fn erase(&mut self, at: usize, len: usize) -> IoResult<usize> {
        let erase = self.0.borrow_mut().erase(at as u32, (at + len) as u32);
        erase.map(|()| len).map_err(|_| Error::IO)
    }
}

struct Littlefs<const WRITE: usize, const ERASE: usize> {
    blocks: Blocks<WRITE, ERASE>,
}

fn boxed<const WRITE: usize, const ERASE: usize>(chip: &SharedChip) -> Box<dyn Subject> {
    let blocks = Blocks::<WRITE, ERASE>(chip.clone());
    Box::new(OverRecords::new(Littlefs { blocks }, ERASE))
}

impl<const WRITE: usize, const ERASE: usize> Littlefs<WRITE, ERASE> {
    fn mounted<T>(
        &mut self,
        call: impl FnOnce(&Filesystem<'_, Blocks<WRITE, ERASE>>) -> IoResult<T>,
    ) -> Result<T, Failure> {
        Filesystem::mount_and_then(&mut self.blocks, call).map_err(failure)
    }
}

impl<const WRITE: usize, const ERASE: usize> Records for Littlefs<WRITE, ERASE> {
    fn format(&mut self) -> Result<(), Failure> {
        Filesystem::format(&mut self.blocks).map_err(failure)
    }

    fn open(&mut self) -> Result<(), Failure> {
        self.mounted(|_| Ok(()))
    }

    fn get(&mut self, key: u32) -> Result<Option<Vec<u8>>, Failure> {
        let name = name(key);
        self.mounted(|files| match files.read::<64>(&name) {
            Ok(value) => Ok(Some(value.to_vec())),
            Err(Error::NO_SUCH_ENTRY) => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn put(&mut self, key: u32, value: &[u8]) -> Result<(), Failure> {
        let name = name(key);
        self.mounted(|files| files.write(&name, value))
    }
}

fn name(key: u32) -> PathBuf {
    PathBuf::try_from(format!("{key:x}").as_str()).expect("a short name of hex digits")
}

fn failure(error: Error) -> Failure {
    let text = format!("{error:?}");
    match error {
        Error::CORRUPTION => Failure::Corrupt(text),
        Error::NO_SPACE => Failure::Full(text),
        Error::IO => Failure::Flash(text),
        _ => Failure::Other(text),
    }
}
