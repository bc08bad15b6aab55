//! The flash as the ledger sees it: before a page is erased, outputs that would have to go safe meanwhile go safe (O3).

use embedded_storage::nor_flash::{ErrorType, NorFlash, ReadNorFlash};
use keyfence_core::TimeMs;

use super::board::Board;

/// A driver whose erases wait for no output.
#[derive(Debug)]
pub struct Guarded<F, B> {
    flash: F,
    board: B,
}

impl<F, B: Board> Guarded<F, B> {
    pub(super) const fn new(flash: F, board: B) -> Self {
        Self { flash, board }
    }
}

/// The moment at which an erase of `pages` pages that begins at `now` is over and the next tick has been.
pub(super) fn erased_at<B: Board>(now: TimeMs, pages: u64) -> TimeMs {
    let took = pages.saturating_mul(B::ERASE_MS).saturating_add(B::LAPSE_MS);
    TimeMs::new(now.as_ms().saturating_add(took)).unwrap_or(TimeMs::MAX)
}

impl<F: ErrorType, B> ErrorType for Guarded<F, B> {
    type Error = F::Error;
}

impl<F: ReadNorFlash, B> ReadNorFlash for Guarded<F, B> {
    const READ_SIZE: usize = F::READ_SIZE;

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), F::Error> {
        self.flash.read(at, bytes)
    }

    fn capacity(&self) -> usize {
        self.flash.capacity()
    }
}

impl<F: NorFlash, B: Board> NorFlash for Guarded<F, B> {
    const WRITE_SIZE: usize = F::WRITE_SIZE;
    const ERASE_SIZE: usize = F::ERASE_SIZE;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), F::Error> {
        let pages = u64::from(to.saturating_sub(from)).div_ceil(F::ERASE_SIZE as u64);
        self.board.deadlines().give_up(erased_at::<B>(self.board.now(), pages));
        self.board.apply_outputs();
        self.flash.erase(from, to)
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), F::Error> {
        self.flash.write(at, bytes)
    }
}
