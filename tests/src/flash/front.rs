//! The front: `embedded-storage`'s traits, blocking and async, over a shared [`Chip`].

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

use embedded_storage::nor_flash::{ErrorType, MultiwriteNorFlash, NorFlash, ReadNorFlash};
use embedded_storage_async::nor_flash as asynch;

use super::{Chip, FlashError, Geometry, Image};

/// A chip that the test keeps hold of while a store owns the front.
pub type SharedChip = Rc<RefCell<Chip>>;

/// A handle on a [`Chip`] whose write and erase sizes are known to the compiler. Clones share the
/// chip: give one to the store and keep another to cut the power.
///
/// ```
/// use embedded_storage::nor_flash::{NorFlash, ReadNorFlash};
/// use keyfence_tests::flash::{Gone, Plan, Reading, SimFlash, Tear};
///
/// let bench = SimFlash::<4, 4096>::named("nrf52", 2);
/// let mut flash = bench.clone();
/// let tear = Tear::Program { left: Gone::FirstBytes(1), other: Gone::All };
/// bench.chip_mut().arm(Plan::Cut { at: 1, tear });
/// flash.write(0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap_err();
///
/// bench.chip_mut().power_up(Reading::AsLeft);
/// let mut word = [0; 4];
/// flash.read(0, &mut word).unwrap();
/// assert_eq!(word, [1, 2, 3, 4]);
/// flash.read(4, &mut word).unwrap();
/// assert_eq!(word, [5, 0xff, 0xff, 0xff]);
/// ```
#[derive(Debug, Clone)]
pub struct SimFlash<const WRITE: usize, const ERASE: usize>(SharedChip);

impl<const WRITE: usize, const ERASE: usize> SimFlash<WRITE, ERASE> {
    /// A front for `chip`.
    ///
    /// # Panics
    ///
    /// When the chip has other sizes than the type.
    #[must_use]
    pub fn on(chip: SharedChip) -> Self {
        let geometry = chip.borrow().geometry();
        assert_eq!(geometry.write_size_bytes, WRITE, "write size of {}", geometry.name);
        assert_eq!(geometry.erase_size_bytes, ERASE, "erase size of {}", geometry.name);
        Self(chip)
    }

    /// A blank region of `pages` pages on the geometry called `name`.
    ///
    /// # Panics
    ///
    /// When there is no such geometry, or it has other sizes than the type.
    #[must_use]
    pub fn named(name: &str, pages: usize) -> Self {
        let geometry = Geometry::named(name).expect("a geometry of the list");
        Self::on(Rc::new(RefCell::new(Chip::new(geometry, pages))))
    }

    /// A region that holds `image`.
    ///
    /// # Panics
    ///
    /// When the image is of a chip with other sizes than the type.
    #[must_use]
    pub fn with_image(image: Image) -> Self {
        Self::on(Rc::new(RefCell::new(Chip::with_image(image))))
    }

    /// The chip, to look at. Drop it before the store works again.
    #[must_use]
    pub fn chip(&self) -> Ref<'_, Chip> {
        self.0.borrow()
    }

    /// The chip, to cut its power. Drop it before the store works again.
    #[must_use]
    pub fn chip_mut(&self) -> RefMut<'_, Chip> {
        self.0.borrow_mut()
    }

    /// The chip itself.
    #[must_use]
    pub fn shared(&self) -> SharedChip {
        self.0.clone()
    }
}

impl<const WRITE: usize, const ERASE: usize> ErrorType for SimFlash<WRITE, ERASE> {
    type Error = FlashError;
}

impl<const WRITE: usize, const ERASE: usize> ReadNorFlash for SimFlash<WRITE, ERASE> {
    const READ_SIZE: usize = 1;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), FlashError> {
        self.0.borrow_mut().read(offset, bytes)
    }

    fn capacity(&self) -> usize {
        self.0.borrow().image().size_bytes()
    }
}

impl<const WRITE: usize, const ERASE: usize> NorFlash for SimFlash<WRITE, ERASE> {
    const WRITE_SIZE: usize = WRITE;
    const ERASE_SIZE: usize = ERASE;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), FlashError> {
        self.0.borrow_mut().erase(from, to)
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.0.borrow_mut().write(offset, bytes)
    }
}

// Only chips without ECC take the second program of a unit. No chip without ECC has a unit of
// another size.
impl<const ERASE: usize> MultiwriteNorFlash for SimFlash<1, ERASE> {}
impl<const ERASE: usize> MultiwriteNorFlash for SimFlash<4, ERASE> {}

impl<const WRITE: usize, const ERASE: usize> asynch::ReadNorFlash for SimFlash<WRITE, ERASE> {
    const READ_SIZE: usize = 1;

    async fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), FlashError> {
        self.0.borrow_mut().read(offset, bytes)
    }

    fn capacity(&self) -> usize {
        self.0.borrow().image().size_bytes()
    }
}

impl<const WRITE: usize, const ERASE: usize> asynch::NorFlash for SimFlash<WRITE, ERASE> {
    const WRITE_SIZE: usize = WRITE;
    const ERASE_SIZE: usize = ERASE;

    async fn erase(&mut self, from: u32, to: u32) -> Result<(), FlashError> {
        self.0.borrow_mut().erase(from, to)
    }

    async fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.0.borrow_mut().write(offset, bytes)
    }
}

impl<const ERASE: usize> asynch::MultiwriteNorFlash for SimFlash<1, ERASE> {}
impl<const ERASE: usize> asynch::MultiwriteNorFlash for SimFlash<4, ERASE> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::GEOMETRIES;

    #[test]
    fn the_front_has_the_sizes_of_every_geometry() {
        fn check<const WRITE: usize, const ERASE: usize>(name: &str) {
            let mut flash = SimFlash::<WRITE, ERASE>::named(name, 4);
            assert_eq!(flash.capacity(), 4 * ERASE);
            flash.write(0, &[0x77; WRITE]).unwrap();
            let mut byte = [0];
            flash.read(WRITE as u32 - 1, &mut byte).unwrap();
            assert_eq!(byte, [0x77]);
            flash.erase(0, ERASE as u32).unwrap();
            assert!(flash.chip().image().is_solid());
        }
        check::<4, 1024>("nrf51");
        check::<4, 4096>("nrf52");
        check::<1, 4096>("rp2040");
        check::<8, 2048>("stm32l4");
        check::<32, 131_072>("stm32h7");
        check::<1, 512>("tiny-1");
        check::<4, 512>("tiny-4");
        check::<8, 512>("tiny-8");
        check::<32, 1024>("tiny-32");
    }

    #[test]
    fn only_chips_without_ecc_are_multiwrite() {
        const fn is_multiwrite<F: MultiwriteNorFlash>() {}
        is_multiwrite::<SimFlash<1, 512>>();
        is_multiwrite::<SimFlash<4, 4096>>();
        for geometry in GEOMETRIES {
            assert_eq!(
                geometry.rule.has_ecc(),
                geometry.write_size_bytes > 4,
                "{}",
                geometry.name
            );
        }
    }
}
