//! The flash of a board as the computer that provisions it sees it: bytes, with the chip's own rules.

use embedded_storage::nor_flash::{
    ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write,
};
use keyfence_core::LedgerId;
use keyfence_firmware::identity::Identity;
use keyfence_firmware::kiosk::{self, Existing, Layout};

use super::{EmulatorError, FLASH_BYTES, Image};

/// The most pages that a board's journal has.
const PAGES: usize = 24;

/// The flash of an nRF51822: 1 KiB pages, 4-byte words, a program only clears bits.
struct Bytes<'a>(&'a mut [u8]);

impl ErrorType for Bytes<'_> {
    type Error = NorFlashErrorKind;
}

impl ReadNorFlash for Bytes<'_> {
    const READ_SIZE: usize = 4;

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        check_read(self, at, bytes.len())?;
        let cells = self.0.iter().skip(at as usize);
        bytes.iter_mut().zip(cells).for_each(|(byte, cell)| *byte = *cell);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.0.len()
    }
}

impl NorFlash for Bytes<'_> {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = 1024;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        check_erase(self, from, to)?;
        let page = self.0.get_mut(from as usize..to as usize);
        page.ok_or(NorFlashErrorKind::OutOfBounds)?.fill(0xff);
        Ok(())
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        check_write(self, at, bytes.len())?;
        let cells = self.0.iter_mut().skip(at as usize);
        cells.zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        Ok(())
    }
}

/// Makes the kiosk in `flash` (the bytes of the whole chip): a new ledger, whose tokens begin above `floor`, and who the
/// kiosk is. `existing` says whether a ledger that is there may be given up.
///
/// # Errors
///
/// [`EmulatorError::Provision`] when there is a ledger that is not to be replaced, or the name is too long for a kiosk;
/// `flash` is to be thrown away then. [`EmulatorError::FlashSize`], [`EmulatorError::Image`].
pub fn provision(
    image: &Image,
    flash: &mut [u8],
    identity: &Identity,
    ledger: LedgerId,
    floor: u64,
    existing: Existing,
) -> Result<(), EmulatorError> {
    if flash.len() != FLASH_BYTES {
        return Err(EmulatorError::FlashSize(flash.len()));
    }
    let layout = Layout {
        identity: image.identity()?,
        journal: image.journal()?,
    };
    let made = kiosk::provision::<_, PAGES>(&mut Bytes(flash), &layout, identity, ledger, floor, existing);
    made.map(drop).map_err(EmulatorError::Provision)
}
