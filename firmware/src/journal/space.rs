//! Page turns: the next page is opened, the oldest is emptied, erased and prepared (J4).

use embedded_storage::nor_flash::NorFlash;

use super::frame::{self, HEADER_BYTES, KEY_BATCH, KEY_CHECKPOINT, KEY_STATE, OVERHEAD_BYTES, State, Writer};
use super::page::{Page, PageHeader, PageRole};
use super::policy::Policy;
use super::reserve::CUTS;
use super::write::Wrote;
use super::{CommitError, DamageKind, Journal, Phase, Refused};

impl<F, const PAGES: usize, const KEYS: usize, const FRAME: usize, P> Journal<F, PAGES, KEYS, FRAME, P>
where
    F: NorFlash,
    P: Policy,
{
    /// Does one step of the work ahead that a later commit would have to do, at most one erase. Call
    /// it when the device is idle. Says whether it did anything.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn maintain(&mut self) -> Result<bool, CommitError> {
        if self.phase != Phase::Open {
            return Err(Refused::Closed.into());
        }
        let emptying = self.emptying_units()?;
        if self.has_reserve(Self::PAGE_UNITS / 4, emptying, CUTS) {
            return Ok(false);
        }
        if let Some(page) = self.next_retired() {
            self.prepare(page)?;
            return Ok(true);
        }
        match self.victim() {
            Some(victim) if emptying <= self.free_units() => self.empty(victim),
            Some(_) | None => Ok(false),
        }
    }

    /// Sees to it that `units` units are free behind the head, and that there is room for what comes then (J7): for
    /// emptying the next page, and for cuts.
    ///
    /// Pages are emptied until there is, each at most once. If that is not enough, because more is stored than
    /// [`Self::capacity_bytes`] or pages are out of service, room for fewer cuts has to do until the next page is opened.
    pub(super) fn make_room(&mut self, units: usize) -> Result<(), CommitError> {
        let newest = self.page(self.head.page).generation;
        let mut cuts = if self.held.0 == newest { self.held.1 } else { CUTS };
        let mut victims = self.pages_in(PageRole::Live).count();
        for _ in 0..8 * self.region.pages() {
            let emptying = self.emptying_units()?;
            let prepared = self.pages_in(PageRole::Prepared).count();
            if self.has_reserve(units, emptying, cuts) {
                if units <= self.free_units() {
                    self.held = (self.page(self.head.page).generation, cuts);
                    return Ok(());
                }
                self.open_next()?;
            } else if let Some(retired) = self.next_retired() {
                self.prepare(retired)?;
            } else if let Some(victim) = self.victim().filter(|_| victims > 0) {
                if self.empty(victim)? {
                    victims -= 1;
                } else if prepared > 0 {
                    self.open_next()?;
                } else {
                    return Err(Refused::Full.into());
                }
            } else if cuts > 0 {
                cuts -= 1;
            } else if self.victim().is_some() {
                return Err(Refused::Full.into());
            } else if units <= self.free_units() {
                return Ok(());
            } else if prepared > 0 {
                self.open_next()?;
            } else {
                return Err(Refused::Worn.into());
            }
        }
        Err(Refused::Full.into())
    }

    /// The page to be emptied next: the oldest one that counts, if it is not the newest too.
    pub(super) fn victim(&self) -> Option<usize> {
        self.oldest(PageRole::Live).filter(|page| *page != self.head.page)
    }

    /// Opens the next prepared page with an absolute frame.
    fn open_next(&mut self) -> Result<(), CommitError> {
        let before = self.head;
        while let Some(page) = self.oldest(PageRole::Prepared) {
            let unit = if self.page(page).fresh {
                Some(Self::FIRST_UNIT)
            } else {
                self.fill(page, Self::FIRST_UNIT)
            };
            let mut wrote = Wrote::NoRoom;
            if let Some(unit) = unit {
                (self.head.page, self.head.unit) = (page, unit);
                self.head.previous = self.page(before.page).generation;
                let payload = self.state_payload(self.head.low, HEADER_BYTES);
                wrote = self.write_sealed(payload, KEY_STATE);
            }
            match wrote {
                Wrote::Done { .. } => {
                    self.emptying = None;
                    self.set_role(page, PageRole::Live);
                    return Ok(());
                }
                Wrote::Unknown => return Err(CommitError::Unknown),
                Wrote::Failed | Wrote::NoRoom => {}
            }
            self.head = before;
            self.set_role(page, Self::role_without(&wrote));
        }
        Err(Refused::Worn.into())
    }

    /// What becomes of a page that took no first frame. If cuts have used it up it lies among those that count, and is
    /// emptied in its turn; if the flash fails, it leaves service until the next mount.
    pub(super) const fn role_without(wrote: &Wrote) -> PageRole {
        match wrote {
            Wrote::NoRoom => PageRole::Live,
            Wrote::Done { .. } | Wrote::Failed | Wrote::Unknown => PageRole::Failed,
        }
    }

    /// Puts a state that is not a boot's at the start of the payload in `frame`; gives its length.
    fn state_payload(&mut self, low: u32, at: usize) -> usize {
        let state = State {
            is_boot: false,
            sequence: self.head.sequence.saturating_add(1),
            base: self.head.sequence,
            boot: self.head.boot,
            low,
            previous: self.head.previous,
            distrusted: self.head.distrusted,
            limit: self.head.limit,
            chain: self.head.chain,
        };
        let mut out = Writer::new(&mut self.frame, at);
        state.encode(&mut out);
        out.len() - at
    }

    /// The keys whose newest records are in `page`, the checkpoint's last.
    fn next_key_in(&self, page: usize, from: usize) -> Option<(usize, u8, u16)> {
        let in_page = |place: u16| Self::located(place).is_some_and(|(at, _)| at == page);
        let keys = self.index.iter().enumerate().skip(from);
        let key = keys.clone().find(|(_, place)| in_page(**place));
        if let Some((key, place)) = key {
            return Some((key + 1, key as u8, *place));
        }
        (from <= KEYS && in_page(self.checkpoint_at)).then_some((KEYS + 1, KEY_CHECKPOINT, self.checkpoint_at))
    }

    /// How many frames and units the records of `victim` take, the state with the last of them.
    pub(super) fn pack(&mut self, victim: usize) -> Result<(usize, usize), CommitError> {
        let (mut frames, mut units, mut payload, mut from) = (1, 0, 0, 0);
        while let Some((next, key, place)) = self.next_key_in(victim, from) {
            let value = self.fetch(place, key).map_err(|damage| self.found_damage(damage))?;
            let len = frame::record_len(value.len());
            if payload > 0 && payload + len > self.moved_bytes_max() {
                units += (payload + OVERHEAD_BYTES).div_ceil(Self::UNIT) + 1;
                frames += 1;
                payload = 0;
            }
            payload += len;
            from = next;
        }
        let state = self.state_payload(self.head.low, HEADER_BYTES);
        units += (payload + state + 2 + OVERHEAD_BYTES).div_ceil(Self::UNIT) + 1;
        Ok((frames, units))
    }

    /// Writes the records of `victim` as new frames; the last of them says that the page counts no
    /// more. `false` when there was no room after all.
    fn empty(&mut self, victim: usize) -> Result<bool, CommitError> {
        self.emptying = None;
        let resumed = core::mem::take(&mut self.resumed);
        let (mut frames, _) = self.pack(victim)?;
        let after = self.page(victim).generation.saturating_add(1);
        let low = self
            .pages_in(PageRole::Live)
            .map(|page| self.page(page).generation)
            .filter(|generation| *generation >= after)
            .min()
            .unwrap_or(after);
        let mut from = 0;
        if !P::RECHECK && resumed {
            (frames, from) = (1, KEYS + 1);
        }
        while frames > 0 {
            frames -= 1;
            let is_last = frames == 0;
            let state = if is_last {
                self.state_payload(low, HEADER_BYTES)
            } else {
                0
            };
            let (mut end, mut records) = (HEADER_BYTES + state, 0);
            while let Some((next, key, place)) = self.next_key_in(victim, from) {
                let value = self.fetch(place, key).map_err(|damage| self.found_damage(damage))?;
                let len = frame::record_len(value.len());
                if records > 0 && records + len > self.moved_bytes_max() {
                    break;
                }
                let mut out = Writer::new(&mut self.frame, end);
                out.record(key, self.other.get(value).unwrap_or(&[]));
                let Some(written) = out.finish() else {
                    return Err(Refused::TooLarge.into());
                };
                (end, records, from) = (written, records + len, next);
            }
            let key = if is_last { KEY_STATE } else { KEY_BATCH };
            match self.write_sealed(end - HEADER_BYTES, key) {
                Wrote::Done { place, header } => {
                    frame::unmask(&mut self.frame, header);
                    self.apply(place, header);
                }
                Wrote::NoRoom => return Ok(false),
                Wrote::Failed => return Err(Refused::Worn.into()),
                Wrote::Unknown => return Err(CommitError::Unknown),
            }
        }
        self.head.low = low;
        self.set_role(victim, PageRole::Retired);
        Ok(true)
    }

    /// A committed frame cannot be read any more: nothing is answered until an operator has looked.
    fn found_damage(&mut self, damage: super::Damage) -> CommitError {
        self.phase = Phase::Closed;
        Refused::Damaged(damage).into()
    }

    /// Erases a page that counts no more and gives it its headers. `false` when the page fails and
    /// leaves service.
    pub(super) fn prepare(&mut self, page: usize) -> Result<bool, CommitError> {
        if P::RECHECK {
            self.recheck(page)?;
        }
        let newest = self.pages.iter().map(|page| page.generation).max().unwrap_or(0);
        let header = PageHeader {
            unit: Self::UNIT as u8,
            index: page as u8,
            pages: self.region.pages() as u8,
            size_log: F::ERASE_SIZE.ilog2() as u8,
            generation: newest.saturating_add(1),
            erases: self.page(page).erases.saturating_add(1),
            instance: self.head.instance,
        };
        let prepared = self.write_headers(page, &header);
        if let Some(slot) = self.page_mut(page) {
            *slot = Page {
                role: if prepared { PageRole::Prepared } else { PageRole::Failed },
                headed: prepared,
                second_begun: prepared,
                fresh: prepared,
                generation: header.generation,
                erases: header.erases,
                last_used: Self::FIRST_UNIT.saturating_sub(1) as u16,
            };
        }
        Ok(prepared)
    }

    /// Erases a page and writes both header copies, one after the other.
    pub(super) fn write_headers(&mut self, page: usize, header: &PageHeader) -> bool {
        let Some(bytes) = self.other.get_mut(..Self::HEADER_UNITS * Self::UNIT) else {
            return false;
        };
        header.encode(bytes);
        let bytes = &*bytes;
        self.region.erase(page)
            && [0, Self::HEADER_UNITS]
                .into_iter()
                .all(|unit| self.region.program(page, unit, bytes) && self.region.holds(page, unit, bytes))
    }

    /// J4, immediately before an erase: every record that counts is read where it is now, which is not
    /// in this page.
    fn recheck(&mut self, page: usize) -> Result<(), CommitError> {
        for key in 0..=KEYS {
            let place = self.index.get(key).copied().unwrap_or(self.checkpoint_at);
            let Some((at, unit)) = Self::located(place) else {
                continue;
            };
            if at == page {
                let damage = Self::damage(page, unit, DamageKind::BadContent);
                return Err(self.found_damage(damage));
            }
            self.load_at(place).map_err(|damage| self.found_damage(damage))?;
        }
        Ok(())
    }
}
