//! The mount: one pass over the region, which writes nothing.
//!
//! Pages are read in the order of their generations and frames in the order of their places, so that
//! each record replaces the one before it. What is wrong in a page is only damage if the page still
//! counts, which is known at the end.

use embedded_storage::nor_flash::NorFlash;

use super::frame::{HEADER_BYTES, Header, KEY_CHECKPOINT, KEY_LIMIT, KEY_STATE, Records, State, take_varint};
use super::load::{self, Found, NotFound};
use super::page::{NoHeader, Page, PageHeader, PageRole};
use super::policy::Policy;
use super::region::Region;
use super::reserve::CUTS;
use super::{Damage, DamageKind, Head, Journal, MountError, Phase, chained};

/// No more units than this can seem blank between units that were written one after the other.
const GAP_UNITS: usize = 12;

/// What the pass has found so far.
#[derive(Debug, Default)]
struct Scan {
    /// Whether any frame counted yet.
    known: bool,
    /// The generation of the page of the last frame that counted.
    generation: u32,
    /// A frame without a mark, the last one so far; its body is in the buffer `frame`.
    pending: Option<Pending>,
    /// A frame that looks committed and damaged, and that nothing has explained yet.
    suspect: Option<Damage>,
    /// The damage that concerns the newest page, and the generation of that page.
    damage: Option<(u32, Damage)>,
}

impl Scan {
    /// Whether a frame of the page of this generation counted yet.
    fn is_in(&self, generation: u32) -> bool {
        self.known && self.generation == generation
    }

    fn blame(&mut self, generation: u32, damage: Damage) {
        if self.damage.is_none_or(|(known, _)| generation > known) {
            self.damage = Some((generation, damage));
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    page: usize,
    unit: usize,
    found: Found,
    state: Option<State>,
}

impl<F, const PAGES: usize, const KEYS: usize, const FRAME: usize, P> Journal<F, PAGES, KEYS, FRAME, P>
where
    F: NorFlash,
    P: Policy,
{
    /// Reads the region (J3). Nothing is written, and nothing may be answered yet: call
    /// [`settle`](Self::settle) for that.
    ///
    /// # Errors
    ///
    /// When the region cannot be, was not provisioned, or is damaged (J6).
    pub fn mount(&mut self) -> Result<(), MountError> {
        self.phase = Phase::Closed;
        self.check_geometry()?;
        self.pages = [Page::UNKNOWN; PAGES];
        self.index = [0; KEYS];
        self.checkpoint_at = 0;
        self.head = Head::default();
        self.last = None;
        self.certain = (0, 0);
        self.last_is_marked = false;
        self.emptying = None;
        self.held = (0, CUTS);
        self.repaired = 0;
        self.read_headers()?;
        let mut scan = Scan::default();
        let mut after = None;
        while let Some(page) = self.next_page(after) {
            after = Some((self.page(page).generation, page));
            self.scan_page(page, &mut scan);
        }
        if let Some(pending) = scan.pending.take() {
            self.count(
                pending.page,
                pending.unit,
                &pending.found,
                pending.state,
                true,
                &mut scan,
            );
        }
        if let (Some(suspect), true) = (scan.suspect, scan.known) {
            scan.blame(u32::MAX, suspect);
        }
        match scan.damage {
            Some((generation, damage)) if generation >= self.head.low => {
                return Err(MountError::Damaged(damage));
            }
            _ if !scan.known => return Err(MountError::Unprovisioned),
            _ => {}
        }
        // What only a last frame without a mark says may be gone at the next mount.
        self.certain = if self.last_is_marked {
            (self.head.low, self.head.distrusted)
        } else {
            (self.certain.0, 0)
        };
        self.assign_roles();
        self.head.token = self.head.limit;
        self.phase = Phase::Mounted;
        Ok(())
    }

    fn read_headers(&mut self) -> Result<(), MountError> {
        let mut instance = None;
        let mut version = None;
        for index in 0..self.region.pages() {
            let mut page = Page::UNKNOWN;
            for copy in 0..2 {
                let unit = copy * Self::HEADER_UNITS;
                let Some(bytes) = self.other.get_mut(..Self::HEADER_UNITS * Self::UNIT) else {
                    return Err(MountError::Geometry(super::GeometryError::Frame));
                };
                if copy == 1 {
                    page.second_begun = self.region.look(index, unit).is_begun();
                }
                if page.headed || !self.region.read(index, unit, bytes) {
                    continue;
                }
                match PageHeader::decode(bytes) {
                    Ok(header) => {
                        let damaged = |why| Err(MountError::Damaged(Self::damage(index, unit, why)));
                        if usize::from(header.index) != index
                            || usize::from(header.pages) != self.region.pages()
                            || usize::from(header.unit) != Self::UNIT
                            || u32::from(header.size_log) != F::ERASE_SIZE.ilog2()
                        {
                            return damaged(DamageKind::MisplacedPage);
                        }
                        if instance.is_some_and(|instance| instance != header.instance) {
                            return damaged(DamageKind::ForeignPage);
                        }
                        instance = Some(header.instance);
                        page.headed = true;
                        page.generation = header.generation;
                        page.erases = header.erases;
                    }
                    Err(NoHeader::Version(other)) => version = Some(other),
                    Err(NoHeader::Invalid) => {}
                }
            }
            let twin = self.pages.iter().find(|other| {
                page.second_begun
                    && other.second_begun
                    && page.headed
                    && other.headed
                    && other.generation == page.generation
            });
            if twin.is_some() {
                let damage = Self::damage(index, 0, DamageKind::DuplicatePage);
                return Err(MountError::Damaged(damage));
            }
            if let Some(slot) = self.page_mut(index) {
                *slot = page;
            }
        }
        match (instance, version) {
            (Some(instance), _) => self.head.instance = instance,
            (None, Some(version)) => return Err(MountError::Unsupported { version }),
            (None, None) => {
                let used = (0..self.region.pages()).find(|page| !self.region.is_blank_page(*page));
                return Err(used.map_or(MountError::Unprovisioned, |page| {
                    MountError::Damaged(Self::damage(page, 0, DamageKind::MissingPage))
                }));
            }
        }
        Ok(())
    }

    /// The page with a header and the next higher generation.
    fn next_page(&self, after: Option<(u32, usize)>) -> Option<usize> {
        let pages = self.pages.iter().take(self.region.pages()).enumerate();
        let next = pages
            .filter(|(_, page)| page.headed)
            .map(|(index, page)| (page.generation, index))
            .filter(|next| after.is_none_or(|after| *next > after))
            .min();
        next.map(|(_, index)| index)
    }

    fn scan_page(&mut self, page: usize, scan: &mut Scan) {
        let seed = self.seed(page);
        let mut unit = Self::FIRST_UNIT;
        let mut last_used = Self::FIRST_UNIT.saturating_sub(1);
        let mut in_junk = false;
        let gap = GAP_UNITS + Region::<F>::CHUNK;
        while unit < Self::PAGE_UNITS {
            let look = self.region.look(page, unit);
            if look.is_blank() || look.is_zero() {
                if !look.is_blank() && unit - last_used <= gap {
                    last_used = unit;
                }
                in_junk = false;
                unit += 1;
                continue;
            }
            // Whatever is written continues what is there. A used unit far behind it is a flipped bit,
            // which the check of a slot will find.
            if unit - last_used <= gap {
                last_used = unit;
            }
            let mut found = load::load::<F, P>(&mut self.region, page, unit, seed, &mut self.other);
            if found.is_none() && !in_junk {
                found = self.repair_at(page, unit, scan);
            }
            let Some(found) = found else {
                in_junk = true;
                unit += 1;
                continue;
            };
            in_junk = false;
            self.consider(page, unit, &found, scan);
            let mark = unit + found.units;
            last_used = mark - usize::from(self.region.look(page, mark).is_blank());
            unit = mark + 1;
        }
        if let Some(slot) = self.page_mut(page) {
            slot.last_used = last_used as u16;
        }
    }

    /// Looks closer at a place where no good frame is, though something is.
    fn repair_at(&mut self, page: usize, unit: usize, scan: &mut Scan) -> Option<Found> {
        let seed = self.seed(page);
        let due = (page, unit) == (self.head.page, self.head.unit) || unit == Self::FIRST_UNIT;
        match load::repair::<F, P>(&mut self.region, page, unit, seed, &mut self.other) {
            Ok(found) => Some(found),
            // A lone unit before a zero one may also be what a mount has filled: it was a frame only
            // if it is where the next frame was due.
            Err(NotFound::Damaged { units }) if units > 1 || due => {
                let damage = Self::damage(page, unit, DamageKind::BadFrame);
                scan.suspect.get_or_insert(damage);
                None
            }
            Err(NotFound::Damaged { .. } | NotFound::Nothing) => None,
        }
    }

    /// A good frame in the buffer `other`: counts it, keeps it in mind, or lets it go.
    fn consider(&mut self, page: usize, unit: usize, found: &Found, scan: &mut Scan) {
        let state = match found.header.key {
            KEY_STATE => match self.state_of(found.header) {
                Some(state) => Some(state),
                None => return self.blame(page, unit, DamageKind::BadContent, scan),
            },
            _ => None,
        };
        if !found.is_marked {
            if self.follows(page, found.header, state, scan) {
                scan.pending = Some(Pending {
                    page,
                    unit,
                    found: *found,
                    state,
                });
                self.frame.copy_from_slice(&self.other);
            }
            return;
        }
        if !self.follows(page, found.header, state, scan)
            && let Some(pending) = scan.pending
        {
            // The mark of the frame before was lost, but what follows it says that it counts.
            let next = pending.state.map_or(self.head.sequence + 1, |state| state.sequence);
            let continues = match state {
                Some(state) => !state.is_boot && state.sequence == next + 1,
                None => found.header.sequence == low_six(next + 1),
            };
            if continues {
                self.count(pending.page, pending.unit, &pending.found, pending.state, true, scan);
            }
        }
        scan.pending = None;
        if !self.follows(page, found.header, state, scan) {
            self.not_continued(page, unit, state, scan);
            if state.is_none() {
                return;
            }
        }
        scan.suspect = None;
        self.count(page, unit, found, state, false, scan);
    }

    /// Whether a frame is a next one after those that count.
    fn follows(&self, page: usize, header: Header, state: Option<State>, scan: &Scan) -> bool {
        let head = &self.head;
        let generation = self.page(page).generation;
        match state {
            None => scan.is_in(generation) && header.sequence == low_six(head.sequence + 1),
            Some(_) if !scan.known => true,
            Some(state) if state.is_boot => state.boot > head.boot && state.base <= head.sequence,
            Some(state) => state.boot == head.boot && state.sequence == head.sequence + 1 && state.chain == head.chain,
        }
    }

    /// A committed frame that does not follow: something before it is missing.
    fn not_continued(&mut self, page: usize, unit: usize, state: Option<State>, scan: &mut Scan) {
        // Missing frames at the end of a page show in the next one.
        let generation = match state {
            Some(_) if !scan.is_in(self.page(page).generation) => scan.generation,
            _ => self.page(page).generation,
        };
        let damage = scan.suspect.take();
        let damage = damage.unwrap_or_else(|| Self::damage(page, unit, DamageKind::MissingFrames));
        scan.blame(generation, damage);
    }

    fn blame(&mut self, page: usize, unit: usize, why: DamageKind, scan: &mut Scan) {
        scan.blame(self.page(page).generation, Self::damage(page, unit, why));
    }

    fn state_of(&self, header: Header) -> Option<State> {
        let payload = self.other.get(HEADER_BYTES..HEADER_BYTES + header.payload())?;
        State::decode(payload).map(|(state, _)| state)
    }

    /// Counts a frame: its body is in `other`, or in `frame` if it is `pending`.
    fn count(&mut self, page: usize, unit: usize, found: &Found, state: Option<State>, pending: bool, scan: &mut Scan) {
        let generation = self.page(page).generation;
        if let Some(state) = state {
            if !scan.is_in(generation) && !self.has_page_before(&state, scan) {
                let damage = Self::damage(page, unit, DamageKind::MissingPage);
                scan.blame(state.previous, damage);
            }
            self.certain.0 = if scan.known { self.head.low } else { 0 };
            self.head.base = state.base;
            self.head.boot = state.boot;
            self.head.low = state.low;
            self.head.previous = state.previous;
            self.head.distrusted = state.distrusted;
            self.head.limit = self.head.limit.max(state.limit);
            self.head.sequence = state.sequence;
            self.head.chain = chained(state.chain, found.sum);
        } else {
            self.head.base = self.head.sequence;
            self.head.sequence = self.head.sequence.saturating_add(1);
            self.head.chain = chained(self.head.chain, found.sum);
            self.certain.0 = self.head.low;
        }
        scan.known = true;
        scan.generation = generation;
        self.head.page = page;
        self.head.unit = unit + found.units + 1;
        self.last = Some(found.header);
        self.last_is_marked = found.is_marked;
        self.last_units = found.units + 1;
        if found.is_repaired {
            self.repaired = self.repaired.saturating_add(1);
        }
        if !pending {
            self.frame.copy_from_slice(&self.other);
        }
        if !self.apply(Self::place(page, unit), found.header) {
            self.blame(page, unit, DamageKind::BadContent, scan);
        }
    }

    /// Whether the page before the one of this state is there, if it is to be.
    ///
    /// A boot frame names the page of the last frame that its mount has counted. If that frame had a weak mark or body,
    /// it may not count any more, and with it the only frame of its page: then it is enough that the page is there, for
    /// the base says which frames must be.
    fn has_page_before(&self, state: &State, scan: &Scan) -> bool {
        let last = if scan.known { scan.generation } else { 0 };
        let is_named = |page: &Page| page.headed && page.generation == state.previous;
        state.previous == last || (state.is_boot && self.pages.iter().any(is_named))
    }

    /// Puts the records of the frame in the buffer `frame` into the index.
    pub(super) fn apply(&mut self, place: u16, header: Header) -> bool {
        let payload = self.frame.get(HEADER_BYTES..HEADER_BYTES + header.payload());
        let mut records = Records::new(header.key, payload.unwrap_or(&[]));
        for (key, mut value) in &mut records {
            match key {
                KEY_LIMIT => match take_varint(&mut value) {
                    Some(limit) => self.head.limit = self.head.limit.max(limit),
                    None => return false,
                },
                KEY_CHECKPOINT => self.checkpoint_at = place,
                key => match self.index.get_mut(usize::from(key)) {
                    Some(slot) => *slot = if value.is_empty() { 0 } else { place },
                    None => return false,
                },
            }
        }
        !records.broken
    }

    /// What each page is, now that the history is known (J4).
    fn assign_roles(&mut self) {
        let (low, newest) = (self.head.low, self.page(self.head.page).generation);
        let distrusted = self.head.distrusted;
        for index in 0..self.region.pages() {
            let Some(page) = self.page_mut(index) else {
                continue;
            };
            page.role = if !page.headed {
                PageRole::Retired
            } else if (low..=newest).contains(&page.generation) {
                PageRole::Live
            } else if page.generation > newest && page.generation != distrusted && page.second_begun {
                PageRole::Prepared
            } else {
                PageRole::Retired
            };
        }
        // A page whose second header copy seems not to be begun is erased again. If the copy is weak
        // it may seem begun after a cut in that erase: so its generation is distrusted first. One is
        // enough: such a page is erased before any other is prepared.
        for index in 0..self.region.pages() {
            let page = self.page(index);
            let doubtful = page.headed && page.generation > newest && !page.second_begun;
            if !doubtful || page.generation == distrusted {
                continue;
            }
            if self
                .pages
                .iter()
                .any(|page| page.headed && page.generation == distrusted)
            {
                self.set_role(index, PageRole::Failed);
            } else {
                self.head.distrusted = page.generation;
            }
        }
        // What an interrupted erase has left of older records counts no more.
        let live = |place: u16| {
            let page = Self::located(place).and_then(|(page, _)| self.pages.get(page));
            page.is_some_and(|page| page.role == PageRole::Live)
        };
        let checkpoint_at = if live(self.checkpoint_at) {
            self.checkpoint_at
        } else {
            0
        };
        self.checkpoint_at = checkpoint_at;
        let mut index = self.index;
        index
            .iter_mut()
            .filter(|place| !live(**place))
            .for_each(|place| *place = 0);
        self.index = index;
    }
}

/// What a header keeps of a sequence number.
pub(super) const fn low_six(sequence: u64) -> u8 {
    (sequence & 0x3f) as u8
}

impl<F: NorFlash> Region<F> {
    /// Whether no unit of a page is used.
    pub(super) fn is_blank_page(&mut self, page: usize) -> bool {
        self.first_used(page, 0, Self::PAGE_UNITS).is_none()
    }
}
