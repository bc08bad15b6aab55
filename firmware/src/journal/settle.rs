//! What a mount writes before anything is answered (J3): the fill and the boot frame.

use embedded_storage::nor_flash::NorFlash;

use super::frame::{HEADER_BYTES, KEY_LIMIT, KEY_STATE, Records, State, Writer};
use super::load;
use super::page::PageRole;
use super::policy::Policy;
use super::region::Region;
use super::reserve::CUTS;
use super::write::Wrote;
use super::{CommitError, Journal, Phase, Report, SettleError, TOKEN_MAX};

/// In the fill, this many units in a row must have taken their zeros in the end.
const SOLID_UNITS: usize = 2;
/// Units up to this size hold no whole frame.
const SMALL_UNIT_BYTES: usize = 8;

/// How far behind the last used unit a fill goes if there are no places of marks in it.
///
/// On chips that program one unit at a time, the first of several cuts leaves a weak unit right behind what is solid. A
/// mount that sees it used begins its own writes a *stride* behind it, since it leaves units blank whose zeros could look
/// like a mark (see [`Journal::fill`]): behind large units two places of marks and what is behind each, behind small ones
/// two. A cut there leaves a weak unit too, and so on. The mount that sees all of them blank has to cover the last.
const fn stretch<F: NorFlash>() -> usize {
    if Region::<F>::CHUNK > 1 {
        return Region::<F>::CHUNK + 3;
    }
    let stride = if Region::<F>::UNIT > SMALL_UNIT_BYTES { 4 } else { 3 };
    1 + (CUTS - 1) * stride
}

/// Units that a fill of a clean end takes at most, and some for the places of marks in it.
pub(super) const fn reach<F: NorFlash>() -> usize {
    stretch::<F>() + 3
}

impl<F, const PAGES: usize, const KEYS: usize, const FRAME: usize, P> Journal<F, PAGES, KEYS, FRAME, P>
where
    F: NorFlash,
    P: Policy,
{
    /// Settles what the mount has seen and opens the journal. Tokens go on above the highest limit
    /// ever reserved (J8) and above `floor`.
    ///
    /// # Errors
    ///
    /// When nothing is mounted, or the flash does not take the boot frame. After
    /// [`SettleError::Unknown`] mount again.
    pub fn settle(&mut self, floor: u64) -> Result<Report, SettleError> {
        if self.phase != Phase::Mounted {
            return Err(SettleError::NotMounted);
        }
        if floor > TOKEN_MAX {
            return Err(SettleError::FloorTooHigh);
        }
        let report = self.report().ok_or(SettleError::NotMounted)?;
        self.head.limit = self.head.limit.max(floor);
        self.head.token = self.head.limit;
        if P::SETTLE {
            self.head.boot = self.head.boot.checked_add(1).ok_or(SettleError::Worn)?;
            // Closed until the boot frame is there: a failure leaves nothing half open.
            self.phase = Phase::Closed;
            self.write_boot_frame()?;
        } else {
            let last_used = usize::from(self.page(self.head.page).last_used);
            self.head.unit = self.head.unit.max(last_used + 1);
        }
        self.phase = Phase::Open;
        self.resumed = self
            .emptying_units()
            .is_ok_and(|units| !self.has_reserve(1, units, CUTS));
        // Boots and cuts take room, too: here it is won back.
        if self.make_room(1) == Err(CommitError::Unknown) {
            return Err(SettleError::Unknown);
        }
        Ok(Report {
            boot: self.head.boot,
            sequence: self.head.sequence,
            limit: self.head.limit,
            chain: self.head.chain,
            ..report
        })
    }

    fn write_boot_frame(&mut self) -> Result<(), SettleError> {
        let payload = self.boot_payload(self.head.previous).ok_or(SettleError::Worn)?;
        let units = (payload + super::frame::OVERHEAD_BYTES).div_ceil(Self::UNIT) + 1;
        if let Some(unit) = self.room_for_boot(self.head.page, self.head.unit, units) {
            self.head.unit = unit;
            match self.write_boot_once(self.head.previous)? {
                Wrote::Done { .. } => return Ok(()),
                Wrote::Failed | Wrote::NoRoom => {}
                Wrote::Unknown => return Err(SettleError::Unknown),
            }
        }
        // No room, or a page that takes nothing more: the next one.
        for _ in 0..self.region.pages() {
            let page = match self.oldest(PageRole::Prepared) {
                Some(page) => page,
                None => self.prepare_early()?,
            };
            let previous = self.page(self.head.page).generation;
            let unit = if self.page(page).fresh {
                Some(Self::FIRST_UNIT)
            } else {
                self.room_for_boot(page, Self::FIRST_UNIT, units)
            };
            let before = (self.head.page, self.head.unit);
            let mut wrote = Wrote::NoRoom;
            if let Some(unit) = unit {
                (self.head.page, self.head.unit) = (page, unit);
                wrote = self.write_boot_once(previous)?;
            }
            match wrote {
                Wrote::Done { .. } => {
                    self.head.previous = previous;
                    self.set_role(page, PageRole::Live);
                    return Ok(());
                }
                Wrote::Unknown => return Err(SettleError::Unknown),
                Wrote::Failed | Wrote::NoRoom => {}
            }
            (self.head.page, self.head.unit) = before;
            self.set_role(page, Self::role_without(&wrote));
        }
        Err(SettleError::Worn)
    }

    /// Fills the end of `page` behind `from`, and gives the first unit behind that if `units` fit.
    fn room_for_boot(&mut self, page: usize, from: usize, units: usize) -> Option<usize> {
        let last = usize::from(self.page(page).last_used).max(from.saturating_sub(1));
        if last + stretch::<F>() + 1 + units > Self::PAGE_UNITS {
            return None;
        }
        let unit = self.fill(page, from)?;
        (unit + units <= Self::PAGE_UNITS).then_some(unit)
    }

    /// An erase before the boot frame, which only happens when no page is prepared: of a page that is
    /// certain not to count.
    ///
    /// Failing that, of one whose second header copy seems not to be begun. Nothing committed distrusts
    /// it yet, so the copy is spoiled first: whatever a cut in the erase leaves, it will not seem begun.
    fn prepare_early(&mut self) -> Result<usize, SettleError> {
        loop {
            let (low, distrusted) = self.certain;
            let certain = self.pages_in(PageRole::Retired).find(|page| {
                let page = self.page(*page);
                !page.headed || page.generation < low || page.generation == distrusted
            });
            let newest = self.page(self.head.page).generation;
            let doubtful = self.pages_in(PageRole::Retired).find(|page| {
                let page = self.page(*page);
                !page.second_begun && page.generation > newest
            });
            if let (None, Some(page)) = (certain, doubtful) {
                self.region.zero(page, Self::HEADER_UNITS);
            }
            let page = certain.or(doubtful).ok_or(SettleError::Worn)?;
            if self.prepare(page).map_err(|_| SettleError::Worn)? {
                return Ok(page);
            }
        }
    }

    /// Builds the boot frame's payload in `other`: the state, then the records of the last frame.
    fn boot_payload(&mut self, previous: u32) -> Option<usize> {
        let state = State {
            is_boot: true,
            sequence: self.head.sequence.checked_add(1)?,
            base: self.head.base,
            boot: self.head.boot,
            low: self.head.low,
            previous,
            distrusted: self.head.distrusted,
            limit: self.head.limit,
            chain: self.head.chain,
        };
        let mut out = Writer::new(&mut self.other, HEADER_BYTES);
        state.encode(&mut out);
        if let Some(header) = self.last {
            let payload = self.frame.get(HEADER_BYTES..HEADER_BYTES + header.payload())?;
            let records = Records::new(header.key, payload);
            for (key, value) in records.filter(|(key, _)| *key != KEY_LIMIT) {
                out.record(key, value);
            }
        }
        out.finish().map(|end| end - HEADER_BYTES)
    }

    fn write_boot_once(&mut self, previous: u32) -> Result<Wrote, SettleError> {
        let payload = self.boot_payload(previous).ok_or(SettleError::Worn)?;
        // The last frame stays where it was, for a second attempt.
        core::mem::swap(&mut self.frame, &mut self.other);
        let wrote = self.write_sealed(payload, KEY_STATE);
        match wrote {
            Wrote::Done { place, header } => {
                super::frame::unmask(&mut self.frame, header);
                self.apply(place, header);
            }
            Wrote::Failed | Wrote::NoRoom | Wrote::Unknown => {
                core::mem::swap(&mut self.frame, &mut self.other);
            }
        }
        Ok(wrote)
    }

    /// Makes the doubtful zone of `page`, which begins at `from`, solid, and gives the first unit
    /// behind it. `None` when the page ends before.
    ///
    /// On chips that take one unit at a time only units that read blank are programmed, and not where
    /// the mark of a frame in the zone would be. Such a frame has a solid header once more than its
    /// first unit was begun; if only its first unit was begun, the unit behind that is filled, and the
    /// frame is never good. Where one unit can hold a whole frame, the unit behind a used one is left.
    ///
    /// Chips that take single bytes can be programmed at will: there everything behind the first unit is
    /// zeroed, in order.
    pub(super) fn fill(&mut self, page: usize, from: usize) -> Option<usize> {
        let at_will = Region::<F>::CHUNK > 1;
        let last = usize::from(self.page(page).last_used);
        let last = last.max(if at_will { from } else { from.saturating_sub(1) });
        let mut stop = last + stretch::<F>();
        let (mut solid, mut unit, mut may_be_mark) = (0, from, false);
        let mut junk = 0;
        while unit <= stop || solid < SOLID_UNITS {
            if unit >= Self::PAGE_UNITS {
                return None;
            }
            if at_will {
                if unit != from {
                    let done = self.region.zero(page, unit);
                    solid = if done { solid + 1 } else { 0 };
                }
                unit += 1;
                continue;
            }
            let look = self.region.look(page, unit);
            let large = Self::UNIT > SMALL_UNIT_BYTES;
            let behind_junk = core::mem::take(&mut junk);
            if !look.is_blank() {
                may_be_mark = large && (unit == from || !look.is_zero());
                junk = if look.is_zero() { 0 } else { behind_junk + 1 };
                solid = 0;
            } else if may_be_mark || behind_junk >= 2 {
                // Zeros there could be taken for a mark, now or by a later mount.
                may_be_mark = false;
                stop += 1;
            } else if self.is_mark_place(page, from, unit) {
                // It may seem so only, and be the weak first unit of a frame.
                may_be_mark = large;
                stop += 1;
            } else if self.region.zero(page, unit) {
                solid += 1;
            } else {
                solid = 0;
                may_be_mark = large;
            }
            unit += 1;
        }
        Some(unit)
    }

    /// Whether a frame with a header somewhere from `from` on would have its mark at `unit`.
    fn is_mark_place(&mut self, page: usize, from: usize, unit: usize) -> bool {
        (from..unit).any(|begin| load::mark_place(&mut self.region, page, begin, &mut self.other) == Some(unit))
    }

    pub(super) fn set_role(&mut self, page: usize, role: PageRole) {
        if let Some(page) = self.page_mut(page) {
            page.role = role;
        }
    }
}
