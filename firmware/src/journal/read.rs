//! Records read on demand, from where they are on the flash.

use core::ops::Range;

use embedded_storage::nor_flash::NorFlash;

use super::frame::{HEADER_BYTES, KEY_CHECKPOINT, Records};
use super::load::{self, Found};
use super::policy::Policy;
use super::{Checkpoint, Damage, DamageKind, Journal, NONCE_BYTES, Phase, ReadError};

impl<F, const PAGES: usize, const KEYS: usize, const FRAME: usize, P> Journal<F, PAGES, KEYS, FRAME, P>
where
    F: NorFlash,
    P: Policy,
{
    /// The record of `key`, or nothing when there is none.
    ///
    /// # Errors
    ///
    /// When the journal is not open, or the record's frame is damaged beyond repair.
    pub fn get(&mut self, key: u8) -> Result<Option<&[u8]>, ReadError> {
        if self.phase != Phase::Open {
            return Err(ReadError::Closed);
        }
        let place = self.index.get(usize::from(key)).copied().unwrap_or(0);
        if place == 0 {
            return Ok(None);
        }
        let at = self.fetch(place, key).map_err(ReadError::Damaged)?;
        Ok(self.other.get(at))
    }

    /// Whether there is a record of `key`; reads nothing.
    #[must_use]
    pub fn has(&self, key: u8) -> bool {
        self.index.get(usize::from(key)).is_some_and(|place| *place != 0)
    }

    /// The checkpoint that was stored last.
    ///
    /// # Errors
    ///
    /// When the journal is not open, or the checkpoint's frame is damaged beyond repair.
    pub fn stored_checkpoint(&mut self) -> Result<Option<Checkpoint>, ReadError> {
        if self.phase != Phase::Open {
            return Err(ReadError::Closed);
        }
        if self.checkpoint_at == 0 {
            return Ok(None);
        }
        let at = self
            .fetch(self.checkpoint_at, KEY_CHECKPOINT)
            .map_err(ReadError::Damaged)?;
        let bytes = self.other.get(at).unwrap_or(&[]);
        Ok(bytes.split_at_checked(8).and_then(|(number, nonce)| {
            let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
            Some(Checkpoint {
                number: u64::from_le_bytes(number.try_into().ok()?),
                nonce,
            })
        }))
    }

    /// Loads the frame at an index entry into `other` and finds the record of `key` in it.
    pub(super) fn fetch(&mut self, place: u16, key: u8) -> Result<Range<usize>, Damage> {
        let found = self.load_at(place)?;
        let payload = self.other.get(HEADER_BYTES..HEADER_BYTES + found.header.payload());
        let payload = payload.unwrap_or(&[]);
        // A record is a part of the payload; where it begins follows from what is left behind it.
        let mut records = Records::new(found.header.key, payload);
        while let Some((at, value)) = records.next() {
            if at == key {
                let end = HEADER_BYTES + payload.len() - records.rest_len();
                return Ok(end - value.len()..end);
            }
        }
        let (page, unit) = Self::located(place).unwrap_or((0, 0));
        Err(Self::damage(page, unit, DamageKind::BadContent))
    }

    /// Loads the frame at an index entry into `other`.
    pub(super) fn load_at(&mut self, place: u16) -> Result<Found, Damage> {
        let (page, unit) = Self::located(place).unwrap_or((0, 0));
        let seed = self.seed(page);
        let found = load::load::<F, P>(&mut self.region, page, unit, seed, &mut self.other);
        if let Some(found) = found {
            return Ok(found);
        }
        load::repair::<F, P>(&mut self.region, page, unit, seed, &mut self.other)
            .map_err(|_| Self::damage(page, unit, DamageKind::BadFrame))
    }
}
