//! Room that is kept for power cuts (J7).
//!
//! A cut in a mount, or before a mount is done with its page turns, takes room and gives nothing: what it tore, the fill
//! over it, and the boot frame of the next mount. All of that is won back when its page is emptied, but until then it is
//! gone. So a frame is only written where [`CUTS`] such losses in a row leave room to empty the next page.

use embedded_storage::nor_flash::NorFlash;

use super::frame::{OVERHEAD_BYTES, STATE_BYTES_MAX};
use super::page::{Page, PageRole};
use super::policy::Policy;
use super::{CommitError, Journal, settle};

/// Cuts in a row, each before the mount after the last one is done, that a region has room for.
///
/// That holds for batches of up to 136 bytes of records; larger ones are written where there is room for fewer cuts, if
/// there is no more.
pub const CUTS: usize = 3;

/// A frame that empties a page has this many bytes of records at most, or one record.
const MOVED_BYTES_MAX: usize = 136;

impl<F, const PAGES: usize, const KEYS: usize, const FRAME: usize, P> Journal<F, PAGES, KEYS, FRAME, P>
where
    F: NorFlash,
    P: Policy,
{
    /// Units of a frame with a state and nothing else, at most.
    const STATE_UNITS: usize = (STATE_BYTES_MAX + OVERHEAD_BYTES).div_ceil(Self::UNIT) + 1;
    /// Units of a frame that empties a page, at most.
    const MOVED_UNITS: usize = {
        let units = (STATE_BYTES_MAX + MOVED_BYTES_MAX + OVERHEAD_BYTES).div_ceil(Self::UNIT);
        1 + if units < Self::BODY_UNITS {
            units
        } else {
            Self::BODY_UNITS
        }
    };

    /// Units of a boot frame that repeats a frame of `units`, at most.
    const fn boot_units(units: usize) -> usize {
        let units = Self::STATE_UNITS + units;
        if units <= Self::BODY_UNITS {
            units
        } else {
            Self::BODY_UNITS + 1
        }
    }

    /// Units that a cut takes, at most, when boot frames have `boot`: a torn one, a fill, and a whole one. A page has at
    /// least as many (see [`Self::BODY_UNITS`]).
    const fn cut_units(boot: usize) -> usize {
        2 * boot + settle::reach::<F>()
    }

    /// Pages that are left to cuts and page turns: what the cuts take, and one that is being filled.
    pub(super) const PAGES_SPARE: usize = {
        let room = Self::PAGE_UNITS.saturating_sub(Self::FIRST_UNIT);
        let cuts = room / Self::cut_units(Self::boot_units(Self::MOVED_UNITS));
        1 + CUTS.div_ceil(if cuts == 0 { 1 } else { cuts })
    };

    /// Bytes of records in a frame that empties a page, at most; a single record may be longer. With a state they fit into
    /// the largest frame.
    pub(super) fn moved_bytes_max(&self) -> usize {
        self.batch_bytes_max().min(MOVED_BYTES_MAX)
    }

    /// Units that are free at the end of the newest page.
    pub(super) const fn free_units(&self) -> usize {
        Self::PAGE_UNITS.saturating_sub(self.head.unit)
    }

    /// Whether a frame of `units` leaves room to empty the next page, which takes `emptying` units: without the last
    /// prepared page, and with it after `cuts` cuts.
    pub(super) fn has_reserve(&self, units: usize, emptying: usize, cuts: usize) -> bool {
        let spare = self
            .pages_in(PageRole::Prepared)
            .max_by_key(|page| self.page(*page).generation);
        spare.is_some_and(|spare| self.outlasts(units, emptying, 0, Some(spare)))
            && self.outlasts(units, emptying, cuts, None)
    }

    /// Whether `emptying` units fit behind a frame of `units` and `cuts` cuts, in the newest page and the prepared ones
    /// but `spare`.
    fn outlasts(&self, units: usize, emptying: usize, mut cuts: usize, spare: Option<usize>) -> bool {
        let moved = emptying.min(Self::MOVED_UNITS);
        let boot = Self::boot_units(units.max(moved).max(self.last_units));
        let cut = Self::cut_units(boot);
        let room = |page: &Page| Self::PAGE_UNITS.saturating_sub(usize::from(page.last_used) + 1);
        // A page that is opened without a cut takes a fill and a state.
        let opened = |page: &Page| {
            let fill = if page.fresh { 0 } else { settle::reach::<F>() };
            room(page).saturating_sub(Self::STATE_UNITS + fill)
        };
        let prepared = self.pages_in(PageRole::Prepared).filter(|page| Some(*page) != spare);
        let mut prepared = prepared.map(|page| self.page(page));
        let mut free = self.free_units();
        if free < units {
            match prepared.next() {
                Some(page) => free = opened(&page),
                None => return false,
            }
        }
        free = free.saturating_sub(units);
        while cuts > 0 {
            let here = cuts.min(free / cut);
            cuts -= here;
            free -= here * cut;
            if cuts > 0 {
                // The next one is where no boot frame fits behind it any more.
                cuts -= 1;
                match prepared.next() {
                    Some(page) => free = room(&page).saturating_sub(cut - boot),
                    None => return false,
                }
            }
        }
        // A frame that does not fit leaves the end of a page unused.
        let mut left = emptying;
        while free < left {
            left -= free.saturating_sub(moved).min(left);
            match prepared.next() {
                Some(page) => free = opened(&page),
                None => return false,
            }
        }
        true
    }

    /// Units that emptying the oldest page takes, 0 when there is none to be emptied.
    pub(super) fn emptying_units(&mut self) -> Result<usize, CommitError> {
        if let Some(known) = self.emptying {
            return Ok(known);
        }
        let units = match self.victim() {
            Some(victim) => self.pack(victim)?.1,
            None => 0,
        };
        self.emptying = Some(units);
        Ok(units)
    }
}
