//! A flash whose supply is watched.

use core::sync::atomic::{Ordering, compiler_fence};

use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashError, NorFlashErrorKind, ReadNorFlash};

/// Why such a flash refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuppliedError<E> {
    /// The driver did.
    Driver(E),
    /// The supply is below the warning level: nothing was programmed or erased.
    PowerFailing,
}

impl<E: NorFlashError> NorFlashError for SuppliedError<E> {
    fn kind(&self) -> NorFlashErrorKind {
        match self {
            Self::Driver(error) => error.kind(),
            Self::PowerFailing => NorFlashErrorKind::Other,
        }
    }
}

/// A driver that begins no program and no erase while the supply is below its warning level.
#[derive(Debug)]
pub struct Supplied<F> {
    flash: F,
    is_failing: fn() -> bool,
}

impl<F> Supplied<F> {
    /// `is_failing` is asked before each operation.
    pub const fn new(flash: F, is_failing: fn() -> bool) -> Self {
        Self { flash, is_failing }
    }
}

impl<F: ErrorType> ErrorType for Supplied<F> {
    type Error = SuppliedError<F::Error>;
}

impl<F: ReadNorFlash> ReadNorFlash for Supplied<F> {
    const READ_SIZE: usize = F::READ_SIZE;

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), Self::Error> {
        // Drivers read as if the flash were plain memory: without this a second look at the same bytes could be left out.
        compiler_fence(Ordering::SeqCst);
        self.flash.read(at, bytes).map_err(SuppliedError::Driver)
    }

    fn capacity(&self) -> usize {
        self.flash.capacity()
    }
}

impl<F: NorFlash> Supplied<F> {
    fn supplied(&self) -> Result<(), SuppliedError<F::Error>> {
        if (self.is_failing)() {
            Err(SuppliedError::PowerFailing)
        } else {
            Ok(())
        }
    }
}

impl<F: NorFlash> NorFlash for Supplied<F> {
    const WRITE_SIZE: usize = F::WRITE_SIZE;
    const ERASE_SIZE: usize = F::ERASE_SIZE;

    /// Page by page: the supply is looked at before each.
    fn erase(&mut self, from: u32, to: u32) -> Result<(), Self::Error> {
        let mut page = from;
        while page < to {
            self.supplied()?;
            let next = to.min(page.saturating_add(F::ERASE_SIZE as u32));
            self.flash.erase(page, next).map_err(SuppliedError::Driver)?;
            page = next;
        }
        Ok(())
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Self::Error> {
        self.supplied()?;
        self.flash.write(at, bytes).map_err(SuppliedError::Driver)
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU32;

    use super::*;

    /// Two pages of eight bytes that know nothing but how often they were written and erased.
    #[derive(Default)]
    struct Counted {
        written: u32,
        erased: u32,
    }

    impl ErrorType for Counted {
        type Error = NorFlashErrorKind;
    }

    impl ReadNorFlash for Counted {
        const READ_SIZE: usize = 1;

        fn read(&mut self, _at: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
            bytes.fill(0xff);
            Ok(())
        }

        fn capacity(&self) -> usize {
            16
        }
    }

    impl NorFlash for Counted {
        const WRITE_SIZE: usize = 1;
        const ERASE_SIZE: usize = 8;

        fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
            assert_eq!(to - from, 8);
            self.erased += 1;
            Ok(())
        }

        fn write(&mut self, _at: u32, _bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
            self.written += 1;
            Ok(())
        }
    }

    #[test]
    fn nothing_is_begun_once_the_supply_fails_and_reading_goes_on() {
        /// How many more questions find the supply sound.
        static SOUND: AtomicU32 = AtomicU32::new(0);
        fn is_failing() -> bool {
            let sound = SOUND.load(Ordering::Relaxed);
            SOUND.store(sound.saturating_sub(1), Ordering::Relaxed);
            sound == 0
        }
        let mut flash = Supplied::new(Counted::default(), is_failing);
        SOUND.store(2, Ordering::Relaxed);
        assert_eq!(flash.write(0, &[0]), Ok(()));
        assert_eq!(flash.erase(0, 16), Err(SuppliedError::PowerFailing));
        assert_eq!(
            (flash.flash.written, flash.flash.erased),
            (1, 1),
            "the second page was left alone"
        );
        assert_eq!(flash.write(0, &[0]), Err(SuppliedError::PowerFailing));
        assert_eq!(flash.flash.written, 1);
        assert_eq!(flash.read(0, &mut [0]), Ok(()));
    }
}
