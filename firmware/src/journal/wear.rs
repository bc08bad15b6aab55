//! How worn the region is.

use embedded_storage::nor_flash::NorFlash;

use super::Journal;
use super::page::PageRole;

/// How worn a region is, as far as the last mount and the work since have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wear {
    /// Pages of the region.
    pub pages: u8,
    /// Pages that are out of service until the next mount.
    pub failed: u8,
    /// The most erases that a page has had.
    pub erases_max: u32,
}

impl<F: NorFlash, const PAGES: usize, const KEYS: usize, const FRAME: usize, P> Journal<F, PAGES, KEYS, FRAME, P> {
    /// How worn the region is.
    pub fn wear(&self) -> Wear {
        let pages = || self.pages.iter().take(self.region.pages());
        Wear {
            pages: self.region.pages() as u8,
            failed: pages().filter(|page| page.role == PageRole::Failed).count() as u8,
            erases_max: pages().map(|page| page.erases).max().unwrap_or(0),
        }
    }
}
