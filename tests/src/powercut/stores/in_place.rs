//! A store as it is often written: one page holds everything, and each change erases and rewrites
//! it. It has a check sum and reads back what it wrote, and it must be found bad all the same.

use embedded_storage::nor_flash::{NorFlash, ReadNorFlash};

use super::on_chip;
use crate::flash::{FlashError, SharedChip, SimFlash};
use crate::powercut::life::{Change, Key, Model, ROW_SIZE_BYTES, Row, Rows, Verb};
use crate::powercut::{Failure, Mounted, Store, Subject};
use crate::random;

pub(super) const STORE: Store = Store {
    name: "in-place",
    about: "a bad example: a counter and rows in one page that is erased and rewritten",
    renews_in_ram: false,
    pages: |_| Some(2),
    build: |chip| on_chip!(chip, boxed),
};

/// Counter, check sum, number of rows.
const HEADER_SIZE_BYTES: usize = 32;

struct InPlace<const WRITE: usize, const ERASE: usize> {
    flash: SimFlash<WRITE, ERASE>,
    counter: u64,
    rows: Rows,
}

fn boxed<const WRITE: usize, const ERASE: usize>(chip: &SharedChip) -> Box<dyn Subject> {
    let flash = SimFlash::<WRITE, ERASE>::on(chip.clone());
    Box::new(InPlace {
        flash,
        counter: 0,
        rows: Rows::new(),
    })
}

impl<const WRITE: usize, const ERASE: usize> InPlace<WRITE, ERASE> {
    fn save(&mut self) -> Result<(), Failure> {
        let mut bytes = vec![0; HEADER_SIZE_BYTES];
        for row in self.rows.values() {
            bytes.extend_from_slice(&row.encode());
        }
        if bytes.len() > ERASE {
            return Err(Failure::Full("the page".into()));
        }
        bytes[..8].copy_from_slice(&self.counter.to_le_bytes());
        bytes[8..16].copy_from_slice(&(self.rows.len() as u64).to_le_bytes());
        let sum = random::digest(&bytes);
        bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        // Pages take turns, to spread the wear.
        let page = (self.counter % 2) as u32 * ERASE as u32;
        self.flash.erase(page, page + ERASE as u32).map_err(flash)?;
        self.flash.write(page, &bytes).map_err(flash)
    }

    fn load(&mut self, page: u32) -> Result<Option<(u64, Rows)>, Failure> {
        let mut bytes = vec![0; HEADER_SIZE_BYTES];
        self.flash.read(page, &mut bytes).map_err(flash)?;
        let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or([0; 8]));
        let count = word(&bytes, 8) as usize;
        if count > (ERASE - HEADER_SIZE_BYTES) / ROW_SIZE_BYTES {
            return Ok(None);
        }
        bytes.resize(HEADER_SIZE_BYTES + count * ROW_SIZE_BYTES, 0);
        self.flash.read(page, &mut bytes).map_err(flash)?;
        let (counter, sum) = (word(&bytes, 0), word(&bytes, 16));
        bytes[16..24].fill(0);
        if random::digest(&bytes) != sum {
            return Ok(None);
        }
        let keys = (0..=u8::MAX).flat_map(|n| [Key::Session(n), Key::Message(n)]);
        let keys: Vec<Key> = keys.collect();
        let rows = bytes[HEADER_SIZE_BYTES..].chunks(ROW_SIZE_BYTES).filter_map(|bytes| {
            let key = keys.iter().find(|key| key.number().to_le_bytes() == bytes[..4])?;
            Row::decode(*key, bytes).map(|row| (*key, row))
        });
        Ok(Some((counter, rows.collect())))
    }
}

impl<const WRITE: usize, const ERASE: usize> Subject for InPlace<WRITE, ERASE> {
    fn provision(&mut self) -> Result<(), Failure> {
        self.save()
    }

    fn mount(&mut self) -> Result<Mounted, Failure> {
        let pages = [self.load(0)?, self.load(ERASE as u32)?];
        let newest = pages.into_iter().flatten().max_by_key(|(counter, _)| *counter);
        (self.counter, self.rows) = newest.ok_or_else(|| Failure::Corrupt("neither page is valid".into()))?;
        Ok(Mounted {
            counter: self.counter,
            reserved: self.counter,
        })
    }

    fn perform(&mut self, _: Verb, change: &Change) -> Result<Option<u64>, Failure> {
        self.counter += u64::from(change.mints);
        let token = change.mints.then_some(self.counter);
        if let Some(key) = change.key {
            match change.after {
                Some(row) => {
                    self.rows.insert(
                        key,
                        Row {
                            token: token.unwrap_or(row.token),
                            ..row
                        },
                    );
                }
                None => {
                    self.rows.remove(&key);
                }
            }
        }
        self.save()?;
        Ok(token)
    }

    fn rows(&mut self, keys: &[Key], _: &Model) -> Result<Rows, Failure> {
        let known = keys.iter().filter_map(|key| self.rows.get(key).map(|row| (*key, *row)));
        Ok(known.collect())
    }

    fn reserved(&self) -> u64 {
        self.counter
    }
}

fn flash(error: FlashError) -> Failure {
    Failure::Flash(error.to_string())
}
