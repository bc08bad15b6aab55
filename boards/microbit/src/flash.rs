//! The flash: 1 KiB pages, 4-byte words, at most two programs of a word between erases (manual, chapter 6).
//!
//! Crates for the nRF family take its pages for the 4 KiB of its successors and would erase a quarter of each. What the
//! journal relies on (`embedded_storage`'s `NorFlash`) holds here because a word is programmed by one store, in order, and
//! the controller is waited for after each.

use embedded_storage::nor_flash::{
    ErrorType, NorFlash, NorFlashError, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write,
};

use crate::power;
use crate::registers::nvmc;

const FLASH_BYTES: usize = 256 * 1024;
const PAGE_BYTES: usize = 1024;
/// Turns of waiting for the controller: an erase takes 22.3 ms at most, and the processor is halted meanwhile.
const READY_TURNS_MAX: u32 = 1_000_000;

/// Why the flash refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlashError {
    /// Outside of the flash, or not of whole words or pages.
    Range(NorFlashErrorKind),
    /// The supply is below the warning level: nothing is programmed or erased.
    PowerFailing,
    /// The controller did not become ready.
    NotReady,
}

impl NorFlashError for FlashError {
    fn kind(&self) -> NorFlashErrorKind {
        match self {
            Self::Range(kind) => *kind,
            Self::PowerFailing | Self::NotReady => NorFlashErrorKind::Other,
        }
    }
}

impl From<NorFlashErrorKind> for FlashError {
    fn from(kind: NorFlashErrorKind) -> Self {
        Self::Range(kind)
    }
}

#[derive(Clone, Copy)]
enum Mode {
    Write = 1,
    Erase = 2,
}

/// The flash controller; there is one.
pub(crate) struct Flash(());

impl Flash {
    /// The driver.
    ///
    /// # Safety
    ///
    /// Called once, and the range that is given to it holds neither code nor constants.
    pub(crate) const unsafe fn take() -> Self {
        Self(())
    }

    /// Does `operation` with the controller in `mode`, and waits for it. The mode is left at once, so that a stray store
    /// changes nothing.
    fn with(mode: Mode, operation: impl FnOnce()) -> Result<(), FlashError> {
        if power::is_failing() {
            return Err(FlashError::PowerFailing);
        }
        nvmc::CONFIG.write(mode as u32);
        operation();
        let ready = (0..READY_TURNS_MAX).any(|_| nvmc::READY.read() & 1 == 1);
        nvmc::CONFIG.write(0);
        if ready { Ok(()) } else { Err(FlashError::NotReady) }
    }
}

impl ErrorType for Flash {
    type Error = FlashError;
}

impl ReadNorFlash for Flash {
    const READ_SIZE: usize = 4;

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), FlashError> {
        check_read(self, at, bytes.len())?;
        for (word, to) in (at..).step_by(4).zip(bytes.chunks_exact_mut(4)) {
            // SAFETY: an aligned word of the flash, as was checked; volatile, since the controller changes it.
            let read = unsafe { (word as *const u32).read_volatile() };
            to.copy_from_slice(&read.to_le_bytes());
        }
        Ok(())
    }

    fn capacity(&self) -> usize {
        FLASH_BYTES
    }
}

impl NorFlash for Flash {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = PAGE_BYTES;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), FlashError> {
        check_erase(self, from, to)?;
        (from..to)
            .step_by(PAGE_BYTES)
            .try_for_each(|page| Self::with(Mode::Erase, || nvmc::ERASEPAGE.write(page)))
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), FlashError> {
        check_write(self, at, bytes.len())?;
        let (words, _) = bytes.as_chunks::<4>();
        (at..).step_by(4).zip(words).try_for_each(|(to, word)| {
            Self::with(Mode::Write, || {
                // SAFETY: an aligned word of the flash, as was checked, in a range without code or constants.
                unsafe { (to as *mut u32).write_volatile(u32::from_le_bytes(*word)) }
            })
        })
    }
}
