//! A new ledger: the only thing that erases a region without reading it first (J6).

use embedded_storage::nor_flash::NorFlash;

use super::frame::{HEADER_BYTES, KEY_STATE, State, Writer};
use super::page::{Page, PageHeader, PageRole};
use super::policy::Policy;
use super::write::Wrote;
use super::{GeometryError, Head, Journal, Phase, SettleError, TOKEN_MAX};

/// Whether what is in the region may be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// The region must be blank.
    Refuse,
    /// An operator has said that the ledger is to be replaced, above a floor that he stated.
    Replace,
}

impl<F, const PAGES: usize, const KEYS: usize, const FRAME: usize, P> Journal<F, PAGES, KEYS, FRAME, P>
where
    F: NorFlash,
    P: Policy,
{
    /// Makes a new ledger whose tokens begin above `floor`, and above the limit of a ledger that is
    /// mounted at the time. `instance` tells this ledger from others; where the region was used under
    /// the same number, the next one is taken. Afterwards [`mount`](Self::mount) it.
    ///
    /// While it is under way the region holds pages of two instances, or pages without frames, and is
    /// refused by every mount; so a power cut in it never brings back a part of the old ledger. Begin
    /// again then, with [`Existing::Replace`].
    ///
    /// # Errors
    ///
    /// When the region has too few pages to hold out against power cuts, when it is not blank and is not to be replaced, or
    /// when the flash does not take it.
    pub fn provision(&mut self, instance: u32, floor: u64, existing: Existing) -> Result<(), SettleError> {
        self.check_geometry()?;
        let pages_min = Self::PAGES_SPARE + 1;
        if self.region.pages() < pages_min {
            return Err(GeometryError::Room { pages_min }.into());
        }
        let floor = if self.phase == Phase::Closed {
            floor
        } else {
            floor.max(self.head.limit)
        };
        if floor > TOKEN_MAX {
            return Err(SettleError::FloorTooHigh);
        }
        let pages = self.region.pages();
        if existing == Existing::Refuse && (0..pages).any(|page| !self.region.is_blank_page(page)) {
            return Err(SettleError::Provisioned);
        }
        let counts = self.phase != Phase::Closed;
        self.phase = Phase::Closed;
        let mut instance = instance;
        let found = self.find_headers();
        while self
            .pages
            .iter()
            .zip(found)
            .any(|(page, found)| found.is_some_and(|found| page.headed && found == instance))
        {
            instance = instance.wrapping_add(1);
        }
        self.head = Head {
            instance,
            ..Head::default()
        };
        self.index = [0; KEYS];
        self.checkpoint_at = 0;
        // A page that does not count goes first: once it is headed anew, no mount accepts the rest.
        for generation in 1..=pages as u32 {
            let rank = |page: &Page| {
                let counted = if counts {
                    page.role == PageRole::Live
                } else {
                    page.headed
                };
                (counted, page.generation)
            };
            let candidates = self.pages.iter().take(pages).enumerate();
            let next = candidates
                .filter(|(_, page)| !page.fresh)
                .min_by_key(|(_, page)| rank(page))
                .map(|(index, _)| index);
            let Some(index) = next else {
                break;
            };
            let header = PageHeader {
                unit: Self::UNIT as u8,
                index: index as u8,
                pages: pages as u8,
                size_log: F::ERASE_SIZE.ilog2() as u8,
                generation,
                erases: self.page(index).erases.saturating_add(1),
                instance,
            };
            if !self.write_headers(index, &header) {
                return Err(SettleError::Worn);
            }
            if generation == 1 {
                self.head.page = index;
            }
            if let Some(page) = self.page_mut(index) {
                *page = Page {
                    role: PageRole::Prepared,
                    headed: true,
                    second_begun: true,
                    fresh: true,
                    generation,
                    erases: header.erases,
                    last_used: 0,
                };
            }
        }
        self.head.unit = Self::FIRST_UNIT;
        let state = State {
            is_boot: true,
            sequence: 1,
            base: 0,
            boot: 0,
            low: 1,
            previous: 0,
            distrusted: 0,
            limit: floor,
            chain: 0,
        };
        let mut out = Writer::new(&mut self.frame, HEADER_BYTES);
        state.encode(&mut out);
        let payload = out.len() - HEADER_BYTES;
        match self.write_sealed(payload, KEY_STATE) {
            Wrote::Done { .. } => Ok(()),
            Wrote::Failed | Wrote::NoRoom => Err(SettleError::Worn),
            Wrote::Unknown => Err(SettleError::Unknown),
        }
    }

    /// Reads what headers there are, of whatever instance: generations and erase counts into the
    /// table of pages, the instances into the answer.
    fn find_headers(&mut self) -> [Option<u32>; PAGES] {
        let mut instances = [None; PAGES];
        for (index, instance) in instances.iter_mut().enumerate().take(self.region.pages()) {
            let role = self.page(index).role;
            let mut page = Page { role, ..Page::UNKNOWN };
            for unit in [0, Self::HEADER_UNITS] {
                let Some(bytes) = self.other.get_mut(..Self::HEADER_UNITS * Self::UNIT) else {
                    continue;
                };
                if !self.region.read(index, unit, bytes) {
                    continue;
                }
                if let Ok(header) = PageHeader::decode(bytes) {
                    page.headed = true;
                    page.generation = header.generation;
                    page.erases = header.erases;
                    *instance = Some(header.instance);
                }
            }
            if let Some(slot) = self.page_mut(index) {
                *slot = page;
            }
        }
        instances
    }
}
