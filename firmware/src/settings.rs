//! Settings: small values under number keys, in a region of their own by `sequential-storage`'s map.
//!
//! What may be lost without harm to the fence belongs here and nothing else: a volume, a display's brightness, the address
//! of a printer. After a power cut in an erase the region can have gone back to an older value or become unreadable, which
//! the [`journal`](crate::journal) never does. An unreadable region formats itself, and the answer says so.

use core::ops::Range;

use embedded_storage::nor_flash::NorFlash;
use sequential_storage::Error;
use sequential_storage::cache::{Cache, Uncached};
use sequential_storage::map::{MapConfig, MapStorage};

pub use crate::blocking::{Answer, RegionError};
use crate::blocking::{Blocking, check, on_region, wait};

/// The longest value, in bytes.
pub const SETTING_BYTES_MAX: usize = 64;
/// Keys are below this one, so that all values fit into two pages of 1 KiB with room to rewrite them.
pub const SETTINGS_MAX: u8 = 8;
/// The map keeps one page free, so it has at least two.
const PAGES_MIN: usize = 2;
/// An item as it lies on the flash: key, value, padding of the largest unit.
const BUFFER_BYTES: usize = SETTING_BYTES_MAX + 64;

type Map<'a, F> = MapStorage<u8, Blocking<'a, F>, Cache<Uncached, Uncached, Uncached, u8>>;

/// A value.
pub type Setting = heapless::Vec<u8, SETTING_BYTES_MAX>;

/// The region of the settings. It holds nothing in RAM: the flash driver comes with each call.
#[derive(Debug, Clone)]
pub struct Settings {
    range: Range<u32>,
}

impl Settings {
    /// The settings in `range`: at least two whole pages that nothing else uses.
    #[must_use]
    pub const fn new(range: Range<u32>) -> Self {
        Self { range }
    }

    /// The value under `key`, if there is one. It was put there once; after a power cut it can be an older one.
    ///
    /// # Errors
    ///
    /// When the range is no region, `key` is not below [`SETTINGS_MAX`] ([`RegionError::TooLong`]), or the driver fails even on a
    /// formatted region.
    pub fn get<F: NorFlash>(&self, flash: &mut F, key: u8) -> Result<Answer<Option<Setting>>, RegionError<F::Error>> {
        self.check(flash, key)?;
        on_region(flash, &self.range, |flash| {
            let mut buffer = [0; BUFFER_BYTES];
            let mut map = Self::map(flash, &self.range)?;
            let value = wait(map.fetch_item::<&[u8]>(&mut buffer, &key))?;
            // A longer value was put by another program: not ours to read.
            let read = |value| Setting::from_slice(value).map_err(|_| Error::BufferTooBig);
            value.map(read).transpose()
        })
    }

    /// Puts a value. When this returns it is on the flash; interrupted, the earlier value or none can be found.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), and when the value is longer than [`SETTING_BYTES_MAX`].
    pub fn put<F: NorFlash>(&self, flash: &mut F, key: u8, value: &[u8]) -> Result<Answer<()>, RegionError<F::Error>> {
        self.check(flash, key)?;
        if value.len() > SETTING_BYTES_MAX {
            return Err(RegionError::TooLong);
        }
        on_region(flash, &self.range, |flash| {
            let mut buffer = [0; BUFFER_BYTES];
            let mut map = Self::map(flash, &self.range)?;
            wait(map.store_item(&mut buffer, &key, &value))
        })
    }

    fn check<F: NorFlash>(&self, flash: &F, key: u8) -> Result<(), RegionError<F::Error>> {
        if !check(flash, &self.range, PAGES_MIN) {
            return Err(RegionError::Range);
        }
        if key >= SETTINGS_MAX {
            return Err(RegionError::TooLong);
        }
        Ok(())
    }

    fn map<'a, F: NorFlash>(flash: &'a mut F, range: &Range<u32>) -> Result<Map<'a, F>, Error<F::Error>> {
        let config = MapConfig::try_new(range.clone()).map_err(|_| Error::ItemTooBig)?;
        Ok(MapStorage::new(Blocking(flash), config, Cache::new_uncached()))
    }
}
