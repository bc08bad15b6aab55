//! Page turns: the next page is opened, the oldest is emptied, erased and prepared (J4).

use embedded_storage::nor_flash::NorFlash;

use super::frame::{self, HEADER_BYTES, KEY_BATCH, KEY_CHECKPOINT, KEY_STATE, OVERHEAD_BYTES, State, Writer};
use super::page::{Page, PageHeader, PageRole};
use super::policy::Policy;
use super::write::Wrote;
use super::{CommitError, DamageKind, Journal, Phase, Refused};

/// This many pages are kept prepared: one that may be opened, and the spare one.
const PREPARED_PAGES: usize = 2;

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
        if self.pages_in(PageRole::Prepared).count() >= PREPARED_PAGES {
            return Ok(false);
        }
        if let Some(page) = self.next_retired() {
            self.prepare(page)?;
            return Ok(true);
        }
        let Some(victim) = self.victim() else {
            return Ok(false);
        };
        let free = Self::PAGE_UNITS.saturating_sub(self.head.unit);
        if free > Self::PAGE_UNITS / 4 {
            return Ok(false);
        }
        let (_, units) = self.pack(victim)?;
        if units > free {
            return Ok(false);
        }
        self.empty(victim)
    }

    /// Sees to it that `units` units are free behind the head, and that a page can be emptied later.
    pub(super) fn make_room(&mut self, units: usize) -> Result<(), CommitError> {
        for _ in 0..4 * self.region.pages() {
            let free = Self::PAGE_UNITS.saturating_sub(self.head.unit);
            let prepared = self.pages_in(PageRole::Prepared).count();
            if prepared < PREPARED_PAGES
                && let Some(retired) = self.next_retired()
            {
                self.prepare(retired)?;
                continue;
            }
            let victim = if prepared < PREPARED_PAGES { self.victim() } else { None };
            let Some(victim) = victim else {
                if units <= free {
                    return Ok(());
                }
                if prepared == 0 {
                    return Err(Refused::Worn.into());
                }
                self.open_next()?;
                continue;
            };
            // With a spare page there is time until the room for emptying is needed.
            let in_time = |emptying: usize| prepared > 0 && units + emptying <= free;
            if self.emptying.is_some_and(in_time) {
                return Ok(());
            }
            let (_, emptying) = self.pack(victim)?;
            self.emptying = Some(emptying);
            if in_time(emptying) {
                return Ok(());
            }
            if emptying <= free && self.empty(victim)? {
                continue;
            }
            if prepared == 0 {
                return Err(Refused::Full.into());
            }
            self.open_next()?;
        }
        Err(Refused::Full.into())
    }

    /// The page to be emptied next: the oldest one that counts, if it is not the newest too.
    fn victim(&self) -> Option<usize> {
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
            if let Some(unit) = unit {
                (self.head.page, self.head.unit) = (page, unit);
                self.head.previous = self.page(before.page).generation;
                let payload = self.state_payload(self.head.low, HEADER_BYTES);
                match self.write_sealed(payload, KEY_STATE) {
                    Wrote::Done { .. } => {
                        self.set_role(page, PageRole::Live);
                        return Ok(());
                    }
                    Wrote::Unknown => return Err(CommitError::Unknown),
                    Wrote::Failed | Wrote::NoRoom => {}
                }
            }
            // It leaves service until the next mount.
            self.head = before;
            self.set_role(page, PageRole::Failed);
        }
        Err(Refused::Worn.into())
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
    fn pack(&mut self, victim: usize) -> Result<(usize, usize), CommitError> {
        let (mut frames, mut units, mut payload, mut from) = (1, 0, 0, 0);
        while let Some((next, key, place)) = self.next_key_in(victim, from) {
            let value = self.fetch(place, key).map_err(|damage| self.found_damage(damage))?;
            let len = frame::record_len(value.len());
            if payload + len > self.batch_bytes_max() {
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
                if records + len > self.batch_bytes_max() {
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
