//! The region of flash as pages of units, and every access to it.
//!
//! A unit is what one program operation covers: the driver's write size, or the smallest multiple of
//! it with at least four bytes. What is relied on of the driver (`embedded_storage`'s `NorFlash`):
//!
//! - a write that returned without an error and reads back is there for good;
//! - an interrupted write leaves a subset of its own bits and touches nothing else;
//! - an interrupted erase leaves anything in its page and touches no other;
//! - zeros may be programmed over a unit that reads blank.

use core::ops::Range;

use embedded_storage::nor_flash::NorFlash;

use super::error::GeometryError;

/// No unit is larger.
pub(crate) const UNIT_BYTES_MAX: usize = 32;
/// This many bits may have flipped in a mark or in a blank unit (J2).
const TOLERANCE: u32 = 2;
/// A read that fails is tried again this often before the unit counts as unreadable.
const READ_ATTEMPTS: usize = 3;

/// How a unit looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    ones: u32,
    zeros: u32,
}

impl Look {
    const UNREADABLE: Self = Self {
        ones: u32::MAX,
        zeros: u32::MAX,
    };

    fn of(bytes: &[u8]) -> Self {
        let ones = bytes.iter().map(|byte| byte.count_ones()).sum();
        let zeros = bytes.iter().map(|byte| byte.count_zeros()).sum();
        Self { ones, zeros }
    }

    /// All ones, exactly.
    pub(crate) const fn is_blank(self) -> bool {
        self.zeros == 0
    }

    /// All zeros, exactly.
    pub(crate) const fn is_zero(self) -> bool {
        self.ones == 0
    }

    /// Readable, and neither blank nor zeros: a program of it was begun.
    pub(crate) const fn is_begun(self) -> bool {
        self.ones != u32::MAX && !self.is_blank() && !self.is_like_mark()
    }

    /// All ones but for a few bits: a mark that was never begun.
    pub(crate) const fn is_like_blank(self) -> bool {
        self.zeros <= TOLERANCE
    }

    /// All zeros but for a few bits: a mark that is complete.
    pub(crate) const fn is_like_mark(self) -> bool {
        self.ones <= TOLERANCE
    }
}

/// A region of flash: some whole pages of a driver's range.
#[derive(Debug)]
pub(crate) struct Region<F> {
    flash: F,
    start: u32,
    pages: usize,
}

impl<F: NorFlash> Region<F> {
    /// Bytes in a unit.
    pub(crate) const UNIT: usize = if F::WRITE_SIZE >= 4 {
        F::WRITE_SIZE
    } else if F::WRITE_SIZE == 3 {
        6
    } else {
        4
    };
    /// Units in a page.
    pub(crate) const PAGE_UNITS: usize = F::ERASE_SIZE / Self::UNIT;
    /// Units that are programmed in one call. Chips that program single bytes take many bytes at
    /// once and may be programmed again at will; the others take one unit at a time.
    pub(crate) const CHUNK: usize = if F::WRITE_SIZE == 1 { 8 } else { 1 };

    pub(crate) const fn new(flash: F, range: &Range<u32>) -> Self {
        let bytes = range.end.saturating_sub(range.start);
        let size = if F::ERASE_SIZE == 0 { 1 } else { F::ERASE_SIZE };
        Self {
            flash,
            start: range.start,
            pages: bytes as usize / size,
        }
    }

    pub(crate) fn check(&self) -> Result<(), GeometryError> {
        let start = self.start as usize;
        let page = F::ERASE_SIZE;
        if !(1..=UNIT_BYTES_MAX).contains(&F::WRITE_SIZE)
            || F::READ_SIZE == 0
            || !Self::UNIT.is_multiple_of(F::READ_SIZE)
            || page == 0
        {
            return Err(GeometryError::Driver);
        }
        let size = self.pages.checked_mul(page);
        let end = size.and_then(|size| size.checked_add(start));
        if !start.is_multiple_of(page) || end.is_none_or(|end| end > self.flash.capacity()) {
            return Err(GeometryError::Range);
        }
        Ok(())
    }

    pub(crate) const fn pages(&self) -> usize {
        self.pages
    }

    pub(crate) fn into_flash(self) -> F {
        self.flash
    }

    pub(crate) const fn flash_mut(&mut self) -> &mut F {
        &mut self.flash
    }

    fn address(&self, page: usize, unit: usize) -> u32 {
        let offset = page * F::ERASE_SIZE + unit * Self::UNIT;
        self.start.saturating_add(offset as u32)
    }

    /// Reads whole units. `false` when they cannot be read.
    pub(crate) fn read(&mut self, page: usize, unit: usize, bytes: &mut [u8]) -> bool {
        let address = self.address(page, unit);
        (0..READ_ATTEMPTS).any(|_| self.flash.read(address, bytes).is_ok())
    }

    /// How one unit looks.
    pub(crate) fn look(&mut self, page: usize, unit: usize) -> Look {
        let mut buffer = [0; UNIT_BYTES_MAX];
        let Some(bytes) = buffer.get_mut(..Self::UNIT) else {
            return Look::UNREADABLE;
        };
        if self.read(page, unit, bytes) {
            Look::of(bytes)
        } else {
            Look::UNREADABLE
        }
    }

    /// Programs whole units, chunk by chunk. `false` when the driver reports an error.
    pub(crate) fn program(&mut self, page: usize, unit: usize, bytes: &[u8]) -> bool {
        let size = Self::CHUNK * Self::UNIT;
        let mut address = self.address(page, unit);
        for chunk in bytes.chunks(size) {
            if self.flash.write(address, chunk).is_err() {
                return false;
            }
            address = address.saturating_add(chunk.len() as u32);
        }
        true
    }

    /// Programs one unit with zeros and tells whether they are there.
    pub(crate) fn zero(&mut self, page: usize, unit: usize) -> bool {
        let zeros = [0; UNIT_BYTES_MAX];
        let done = zeros
            .get(..Self::UNIT)
            .is_some_and(|zeros| self.program(page, unit, zeros));
        done && self.look(page, unit).is_zero() && self.look(page, unit).is_zero()
    }

    /// Whether the flash holds `bytes`, read twice.
    pub(crate) fn holds(&mut self, page: usize, unit: usize, bytes: &[u8]) -> bool {
        self.holds_once(page, unit, bytes) && self.holds_once(page, unit, bytes)
    }

    fn holds_once(&mut self, page: usize, unit: usize, bytes: &[u8]) -> bool {
        let mut buffer = [0; UNIT_BYTES_MAX];
        for (at, expected) in (unit..).zip(bytes.chunks(Self::UNIT)) {
            let Some(found) = buffer.get_mut(..expected.len()) else {
                return false;
            };
            if !self.read(page, at, found) || found != expected {
                return false;
            }
        }
        true
    }

    /// Whether the units from `from` up to `to` read blank; else the first that does not.
    pub(crate) fn first_used(&mut self, page: usize, from: usize, to: usize) -> Option<usize> {
        (from..to).find(|unit| !self.look(page, *unit).is_blank())
    }

    /// Erases a page and looks whether it is blank.
    pub(crate) fn erase(&mut self, page: usize) -> bool {
        let from = self.address(page, 0);
        let done = self
            .flash
            .erase(from, from.saturating_add(F::ERASE_SIZE as u32))
            .is_ok();
        done && self.first_used(page, 0, Self::PAGE_UNITS).is_none()
    }
}
