//! The flash: 2 KiB pages, double words of 8 bytes with a code that corrects one flipped bit and reports two (RM0394,
//! chapter 3).
//!
//! A unit that was torn by a power cut can fail that code. The chip then raises its non-maskable interrupt; here that is an
//! outcome of the read and not the end of the program. So units are read one by one.

use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use embassy_stm32::Peri;
use embassy_stm32::flash::{self, Blocking, FLASH_BASE, Flash};
use embassy_stm32::{pac, peripherals};
use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashError, NorFlashErrorKind, ReadNorFlash, check_read};

/// Bytes that one code covers.
const UNIT_BYTES: usize = 8;

/// A read of the flash found what its code cannot correct.
static UNREADABLE: AtomicBool = AtomicBool::new(false);

/// Answers the interrupt: whether it came of a read that cannot be corrected.
pub(crate) fn read_failed() -> bool {
    let eccr = pac::FLASH.eccr().read();
    if !eccr.eccd() {
        return false;
    }
    // Written back it clears itself.
    pac::FLASH.eccr().write_value(eccr);
    UNREADABLE.store(true, Ordering::Relaxed);
    true
}

/// Why the flash refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlashError {
    /// The unit cannot be read: its code does not fit it.
    Unreadable,
    /// Outside of the flash, or not of whole units.
    Range(NorFlashErrorKind),
    /// The controller refused.
    Controller(flash::Error),
}

impl NorFlashError for FlashError {
    fn kind(&self) -> NorFlashErrorKind {
        match self {
            Self::Unreadable => NorFlashErrorKind::Other,
            Self::Range(kind) => *kind,
            Self::Controller(error) => error.kind(),
        }
    }
}

impl From<NorFlashErrorKind> for FlashError {
    fn from(kind: NorFlashErrorKind) -> Self {
        Self::Range(kind)
    }
}

/// The chip's flash, counted from its beginning.
pub(crate) struct EccFlash(Flash<'static, Blocking>);

impl EccFlash {
    pub(crate) fn new(flash: Peri<'static, peripherals::FLASH>) -> Self {
        Self(Flash::new_blocking(flash))
    }
}

impl ErrorType for EccFlash {
    type Error = FlashError;
}

impl ReadNorFlash for EccFlash {
    const READ_SIZE: usize = UNIT_BYTES;

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), FlashError> {
        check_read(self, at, bytes.len())?;
        let first = FLASH_BASE + at as usize;
        for (unit, to) in (first..).step_by(UNIT_BYTES).zip(bytes.chunks_exact_mut(UNIT_BYTES)) {
            UNREADABLE.store(false, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            // SAFETY: an aligned double word of the flash, as was checked; volatile, since the controller changes it.
            let read = unsafe { (unit as *const u64).read_volatile() };
            // The interrupt comes with the read, not some time after it.
            cortex_m::asm::dsb();
            compiler_fence(Ordering::SeqCst);
            if UNREADABLE.load(Ordering::Relaxed) {
                return Err(FlashError::Unreadable);
            }
            to.copy_from_slice(&read.to_le_bytes());
        }
        Ok(())
    }

    fn capacity(&self) -> usize {
        ReadNorFlash::capacity(&self.0)
    }
}

impl NorFlash for EccFlash {
    const WRITE_SIZE: usize = UNIT_BYTES;
    const ERASE_SIZE: usize = <Flash<'static, Blocking> as NorFlash>::ERASE_SIZE;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), FlashError> {
        self.0.blocking_erase(from, to).map_err(FlashError::Controller)
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.0.blocking_write(at, bytes).map_err(FlashError::Controller)
    }
}
