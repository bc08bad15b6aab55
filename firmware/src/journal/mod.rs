//! A journal of records by key on NOR flash that says the same after every power cut.
//!
//! Read [`Journal`] first. `FORMAT.md` has the bytes. The modules: `frame` and `page` (the bytes),
//! `region` (the flash), `load` (frames as they are found, repair), `scan` (the mount), `settle` (what
//! a mount writes), `write` (one frame), `space` (page turns and erases), `reserve` (room for
//! cuts), `provision`.
//!
//! # What the flash may do
//!
//! Cells of an interrupted operation are *weak*: they may read as either value, at every read anew,
//! until they are programmed or erased again to completion. A completed operation is solid. A page
//! that reads blank after an interrupted erase is not blank.
//!
//! # The invariants, and why they hold
//!
//! **J1. One commit is one frame**: a header, records, a check sum over all of it and over the page's
//! generation, in whole units of one page. Sequence numbers grow by one. No unit of a body is all
//! ones or all zeros, or nearly so: the bytes are stored under a mask that is chosen for it
//! (`frame::seal`). A torn body has more ones than the whole one, so no torn body holds a unit that
//! looks like a mark. A page's frames lie in the order of their numbers and pages in the order of their
//! generations, so the newest record of a key is the last one of a scan.
//!
//! **J2. Mark last.** A body is read back twice before its mark is begun, so *a frame with a mark, even
//! a weak one, has a solid body*, and *a weak body has a solid blank mark*. A bad body with a complete
//! mark is therefore damage and is repaired or refused, a bad body without one was never acknowledged.
//! A frame without a mark counts only if it is the last one (its mark may have been begun).
//!
//! **J3. A mount settles.** What can be weak is the last frame (its body or its mark) and what lies
//! behind it. The *doubtful zone* begins at the end of the last frame that counts. The mount programs
//! zeros over the blank units in it (`settle::fill`) and then writes a boot frame behind it, with a copy
//! of the last frame out of the buffer in which its check sum was tested. So:
//!
//! - *Nothing is programmed over a weak cell but zeros.* Units become weak in address order, each next
//!   to solid used ones, so they lie at most a few units behind the last used one. The fill goes that
//!   far, in address order, and ends with units that are solid.
//! - *A frame that was dropped stays dropped.* Its mark is never programmed: either one of its body
//!   units is filled first, and then its body is bad for good, or the place of its mark is left blank.
//!   Without a mark it does not count before a boot frame.
//! - *A frame that was rolled forward stays.* The boot frame has its records, whatever becomes of it.
//!   A boot frame names its base, the number up to which frames must be there; the ones between the
//!   base and itself may become unreadable.
//! - *A boot frame that was cut is no different*: if its body is good it is the last frame and is rolled
//!   forward in turn; if not, it is dropped in turn. One that an earlier mount began on the next page
//!   and a later mount could not see is told by its boot number, which the later one has used up.
//!
//! Hence the outcome of the last frame is decided by the first boot frame that is committed, and no one
//! is answered before that. Every step before it can be cut and begun again.
//!
//! **J4. Pages.** A page is erased when no record that counts is in it, which is looked up again
//! immediately before the erase by reading every record that counts where it is now. Pages are emptied
//! oldest first, and that a page counts no more is itself committed (the state's `low`) before its
//! erase begins. So whatever an interrupted erase leaves, frames, headers or parts of them, is never
//! read as a record, and a delete need not be remembered longer than the page that it is in. Pages
//! between `low` and the newest must be there, each naming the one before it: a page that lost both
//! headers is damage if it counts and is erased if not. A page with a generation above the newest
//! is prepared if its second header copy was begun, for then its erase was complete and its first copy is
//! solid; else it is erased again, but not before its generation is distrusted in a committed state: a weak
//! second copy that read blank may read begun after a cut in that erase.
//!
//! **J5.** A slot is checked blank; after an error or a mismatch before the mark, the next slot is tried,
//! once. When both fail the refusal is given only if neither body can ever be read as good. From the
//! mark on the outcome is unknown and the journal is closed.
//!
//! **J6.** No damage of what counts is ignored; nothing here erases a damaged region but
//! [`Journal::provision`] with a floor.
//!
//! **J7.** [`Journal::capacity_bytes`] is what the live records may take; within it no commit is refused
//! for want of room. A frame is only written where [`CUTS`] cuts in a row leave room to go on (`reserve`); a mount makes
//! that room again before it is done.
//!
//! **J8.** Tokens come out of blocks whose limit was committed before; a mount goes on above it.
//!
//! **J9.** The version is in every page header.
//!
//! # Bounds of the argument
//!
//! On chips that take a second program of a unit only as zeros or not at all, a mount does not touch
//! units that do not read blank. A weak unit that reads used in one mount and blank in a later one takes a
//! part of the fill's reach (`settle::stretch`), which is made for [`CUTS`] such units: for that many cuts, each in the
//! first write of a mount, all the units reading used until the last mount and blank in it.

pub(crate) mod crc;
mod error;
mod frame;
pub mod inspect;
mod load;
mod page;
mod policy;
mod provision;
mod read;
pub(crate) mod region;
mod reserve;
mod scan;
mod settle;
mod space;
mod wear;
mod write;

use core::ops::Range;

use embedded_storage::nor_flash::NorFlash;

pub use error::{CommitError, Damage, DamageKind, GeometryError, MountError, ReadError, Refused, SettleError};
pub use policy::{Law, Policy};
pub use provision::Existing;
pub use reserve::CUTS;
pub use wear::Wear;

use crc::Crc;
use frame::{KEYS_MAX, STATE_BYTES_MAX};
use page::{PAGE_HEADER_BYTES, Page, PageRole};
use region::Region;

/// The highest token: exact in JSON everywhere.
pub const TOKEN_MAX: u64 = (1 << 53) - 1;

/// Bytes of a checkpoint's nonce.
pub const NONCE_BYTES: usize = 16;

/// One change in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key: below the journal's `KEYS`.
    pub key: u8,
    /// The new value, or nothing to delete the record. A value is never empty.
    pub value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Sets the record of `key`.
    #[must_use]
    pub const fn put(key: u8, value: &'a [u8]) -> Self {
        Self { key, value }
    }

    /// Deletes the record of `key`.
    #[must_use]
    pub const fn delete(key: u8) -> Self {
        Self { key, value: &[] }
    }
}

/// What a commit came to.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The sequence number of the frame, or the last one when none was needed.
    pub sequence: u64,
    /// The first of the tokens asked for; the others follow it.
    pub first_token: u64,
}

/// What a mount found, for the anti-rollback check of whoever remembers the last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The number of this boot, or of the last one before it is settled.
    pub boot: u32,
    /// The highest sequence number.
    pub sequence: u64,
    /// No token above this one was handed out.
    pub limit: u64,
    /// A sum over all frames since the provisioning: differs between histories that parted.
    pub chain: u32,
    /// The instance that the region was provisioned as.
    pub instance: u32,
    /// Committed frames in which flipped bits were put right.
    pub repaired: u16,
}

/// What an operator's computer has stored to recognise this ledger by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its number.
    pub number: u64,
    /// Its nonce.
    pub nonce: [u8; NONCE_BYTES],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not mounted, or the last outcome is unknown.
    Closed,
    /// Mounted, and nothing may be answered yet (J3).
    Mounted,
    /// Open.
    Open,
}

/// Where the history stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Head {
    /// The page that frames go to.
    page: usize,
    /// The next unit in it.
    unit: usize,
    /// The generation of the page before it.
    previous: u32,
    /// The oldest generation that counts.
    low: u32,
    /// The generation of a page that is erased again before it is used; 0 for none.
    distrusted: u32,
    sequence: u64,
    /// The base that a boot frame written now would name.
    base: u64,
    boot: u32,
    chain: u32,
    instance: u32,
    /// No token above this one can have been handed out.
    limit: u64,
    /// The last token that was handed out or given up.
    token: u64,
}

/// A journal of records by key.
///
/// - getters: [`report`](Self::report), [`is_open`](Self::is_open),
///   [`capacity_bytes`](Self::capacity_bytes), [`batch_bytes_max`](Self::batch_bytes_max)
/// - starting: [`mount`](Self::mount) reads, [`settle`](Self::settle) writes and opens;
///   [`provision`](Self::provision) makes a new ledger
/// - commands: [`commit`](Self::commit), [`mint`](Self::mint), [`checkpoint`](Self::checkpoint),
///   [`maintain`](Self::maintain)
/// - reading: [`get`](Self::get), [`stored_checkpoint`](Self::stored_checkpoint)
///
/// `PAGES` is the most pages that a region may have, `KEYS` the number of keys, `FRAME` the bytes of
/// the largest frame body. In RAM it takes `16 * PAGES + 2 * KEYS + 2 * FRAME` bytes and about 150.
///
/// After [`CommitError::Unknown`] it is closed: call `mount` and `settle` again and look what happened.
#[derive(Debug)]
pub struct Journal<F, const PAGES: usize, const KEYS: usize, const FRAME: usize, P = Law> {
    region: Region<F>,
    pages: [Page; PAGES],
    /// Where the newest record of each key is: units from the start of the region, 0 for none.
    index: [u16; KEYS],
    checkpoint_at: u16,
    /// The frame being written; during a mount the last frame that counts.
    frame: [u8; FRAME],
    /// The frame being read.
    other: [u8; FRAME],
    head: Head,
    /// Of the last frame that counts: its header, until the mount is settled.
    last: Option<frame::Header>,
    /// Whether it has its mark: then its body is solid (J2) and what it says will not be gone.
    last_is_marked: bool,
    /// The oldest generation that counts and the distrusted one, as far as no later mount can see it
    /// otherwise.
    certain: (u32, u32),
    /// Units that emptying the oldest page takes at most; it only shrinks. `None`: not known.
    emptying: Option<usize>,
    /// Units of the last frame, which a boot frame would repeat.
    last_units: usize,
    /// How many cuts the region has room for, if it was looked for while the page of this generation was the newest.
    held: (u32, usize),
    /// A page turn was under way at the mount.
    resumed: bool,
    /// The place of the frame that was written last.
    last_place: u16,
    block: u32,
    repaired: u16,
    phase: Phase,
    policy: core::marker::PhantomData<P>,
}

impl<F, const PAGES: usize, const KEYS: usize, const FRAME: usize, P> Journal<F, PAGES, KEYS, FRAME, P>
where
    F: NorFlash,
    P: Policy,
{
    const UNIT: usize = Region::<F>::UNIT;
    const PAGE_UNITS: usize = Region::<F>::PAGE_UNITS;
    const HEADER_UNITS: usize = PAGE_HEADER_BYTES.div_ceil(Self::UNIT);
    /// The first unit of a page that frames may use.
    const FIRST_UNIT: usize = 2 * Self::HEADER_UNITS;
    /// Units of the largest body that is written: a page that was just opened takes a boot frame, what
    /// a mount fills, and one frame more.
    const BODY_UNITS: usize = {
        let buffer = FRAME / Self::UNIT;
        let room = Self::PAGE_UNITS.saturating_sub(Self::FIRST_UNIT + settle::reach::<F>());
        let page = (room / 2).saturating_sub(1);
        if buffer < page { buffer } else { page }
    };

    /// A journal on `range` of `flash`; nothing is read yet. Tokens are reserved `block` at a time
    /// (J8), at least one.
    pub fn new(flash: F, range: Range<u32>, block: u32) -> Self {
        Self {
            region: Region::new(flash, &range),
            pages: [Page::UNKNOWN; PAGES],
            index: [0; KEYS],
            checkpoint_at: 0,
            frame: [0; FRAME],
            other: [0; FRAME],
            head: Head::default(),
            last: None,
            last_is_marked: false,
            certain: (0, 0),
            emptying: None,
            last_units: 0,
            held: (0, CUTS),
            resumed: false,
            last_place: 0,
            block: block.max(1),
            repaired: 0,
            phase: Phase::Closed,
            policy: core::marker::PhantomData,
        }
    }

    /// Whether it is settled and answers.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// What the mount found; afterwards, how things are now. `None` while nothing is mounted.
    pub fn report(&self) -> Option<Report> {
        (self.phase != Phase::Closed).then_some(Report {
            boot: self.head.boot,
            sequence: self.head.sequence,
            limit: self.head.limit,
            chain: self.head.chain,
            instance: self.head.instance,
            repaired: self.repaired,
        })
    }

    /// The last token that was handed out; the next one is greater.
    #[must_use]
    pub const fn last_token(&self) -> u64 {
        self.head.token
    }

    /// The page and the unit of the frame that the record of `key` is in, counted from the start of the region.
    #[must_use]
    pub fn place_of(&self, key: u8) -> Option<(usize, usize)> {
        let place = self.index.get(usize::from(key)).copied();
        place.filter(|_| self.phase != Phase::Closed).and_then(Self::located)
    }

    /// Gives the flash back.
    pub fn into_flash(self) -> F {
        self.region.into_flash()
    }

    /// The flash, for a driver that has more to do. Its region is not to be written.
    pub const fn flash_mut(&mut self) -> &mut F {
        self.region.flash_mut()
    }

    /// Bytes that the records of one commit may take, each with its key and length (J1).
    #[must_use]
    pub const fn batch_bytes_max(&self) -> usize {
        let body = Self::BODY_UNITS * Self::UNIT;
        body.saturating_sub(frame::OVERHEAD_BYTES + STATE_BYTES_MAX)
    }

    /// Bytes that the live records may take in all, each with 3 bytes for its key and length, such
    /// that no commit is ever refused for want of room (J7).
    #[must_use]
    pub const fn capacity_bytes(&self) -> usize {
        // A quarter of the pages that are not left to cuts and page turns is left to boots.
        let pages = self.region.pages().saturating_sub(Self::PAGES_SPARE);
        let overhead = Self::FIRST_UNIT + 2 * (Self::UNIT + 64).div_ceil(Self::UNIT);
        let page = Self::PAGE_UNITS.saturating_sub(overhead) * Self::UNIT;
        pages.saturating_mul(page) / 4 * 3
    }

    fn check_geometry(&self) -> Result<(), GeometryError> {
        self.region.check()?;
        let pages = self.region.pages();
        let units = pages.checked_mul(Self::PAGE_UNITS);
        if !(3..=PAGES.min(64)).contains(&pages) || units.is_none_or(|n| n > usize::from(u16::MAX)) {
            return Err(GeometryError::Pages);
        }
        if KEYS > KEYS_MAX {
            return Err(GeometryError::Keys);
        }
        let body = Self::BODY_UNITS * Self::UNIT;
        let room = body >= frame::OVERHEAD_BYTES + STATE_BYTES_MAX + 32;
        if !room || FRAME > frame::BODY_BYTES_MAX {
            return Err(GeometryError::Frame);
        }
        Ok(())
    }

    /// The start of every check sum of a page.
    fn seed(&self, page: usize) -> Crc {
        let generation = self.page(page).generation;
        Crc::new()
            .update(&self.head.instance.to_le_bytes())
            .update(&generation.to_le_bytes())
    }

    fn page(&self, page: usize) -> Page {
        self.pages.get(page).copied().unwrap_or(Page::UNKNOWN)
    }

    fn page_mut(&mut self, page: usize) -> Option<&mut Page> {
        self.pages.get_mut(page)
    }

    fn pages_in(&self, role: PageRole) -> impl Iterator<Item = usize> {
        let pages = self.pages.iter().take(self.region.pages()).enumerate();
        pages.filter(move |(_, page)| page.role == role).map(|(i, _)| i)
    }

    /// The page to be erased next: one that is distrusted comes first.
    fn next_retired(&self) -> Option<usize> {
        let rank = |page: &usize| {
            let page = self.page(*page);
            (page.generation != self.head.distrusted, page.generation)
        };
        self.pages_in(PageRole::Retired).min_by_key(rank)
    }

    /// The page of `role` with the lowest generation.
    fn oldest(&self, role: PageRole) -> Option<usize> {
        self.pages_in(role).min_by_key(|page| self.page(*page).generation)
    }

    const fn place(page: usize, unit: usize) -> u16 {
        (page * Self::PAGE_UNITS + unit) as u16
    }

    /// The page and unit of an index entry.
    fn located(place: u16) -> Option<(usize, usize)> {
        let place = usize::from(place);
        let page = place.checked_div(Self::PAGE_UNITS)?;
        (place != 0).then_some((page, place - page * Self::PAGE_UNITS))
    }

    fn damage(page: usize, unit: usize, why: DamageKind) -> Damage {
        Damage {
            page: page as u8,
            unit: unit as u16,
            why,
        }
    }
}

/// The chain value after a frame with the check sum `sum`.
fn chained(chain: u32, sum: u32) -> u32 {
    Crc::new()
        .update(&chain.to_le_bytes())
        .update(&sum.to_le_bytes())
        .finish()
}
