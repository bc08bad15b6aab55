//! Who the kiosk is: its host name and its key, in two copies on two pages of their own.
//!
//! Whatever the power does, [`load`] says the identity that was stored last, or the one before it when a [`store`] was
//! interrupted; never a mixture, and the identity that one load said the next one says again. Until the first store has
//! returned a load says none or that first one. The key is
//! in no dump of the ledger, which is another region, and in no text that this crate prints.
//!
//! # The invariants, and why they hold
//!
//! A page has room for several copies, one behind the other: a body with a check sum and one unit for a mark. Each has a
//! generation of its own, and they grow.
//!
//! - **K1. Body, then mark.** A body is programmed and read back twice, then its mark. So a copy with a mark, even a weak one,
//!   has a body that will not change. Copies with a mark come before those without, then the greatest generation counts.
//! - **K2. Never on weak cells.** A copy goes to a page that was erased in this power-up, or behind the last copy of a page with
//!   a marked one; then the first place, which an earlier cut can have left weak and blank, is passed over.
//! - **K3. Two copies stand for an answer.** Before anything is answered there are two marked copies of it above every other copy,
//!   of which at most one is weak. What is missing of them is written.
//! - **K4. The lesser page is erased.** When the page with the greatest marked copy is full, the other page is erased. Its marked
//!   copies are older, and where it has no complete mark it is given zeros first, so that no cut in the erase makes one. So
//!   whatever a cut leaves there is less than what stays.
//! - **K5. Damage is told from what was never there.** A mark behind a bad body, and no good copy anywhere, is damage; a region
//!   without a mark never held an identity that anybody was told.
//!
//! K4 relies on a solid copy in the page that stays: a page has room for at least four, so four cuts in a row, each in the first
//! copy that a mount writes, are survived.

use core::fmt;
use core::ops::Range;

use embedded_storage::nor_flash::NorFlash;
use keyfence_core::Name;

use crate::journal::crc::Crc;
use crate::journal::region::{Region, UNIT_BYTES_MAX};
use crate::store::NAME_BYTES_MAX;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Pages of the region.
pub const PAGES: usize = 2;
/// Places for copies in a page: at least, and no more than are useful.
const COPIES_MIN: usize = 4;
const COPIES_MAX: usize = 16;
const MAGIC: [u8; 3] = *b"KFI";
const VERSION: u8 = 1;
/// Magic, version, generation, length of the name, name, key, check sum.
const BODY_BYTES: usize = 4 + 4 + 1 + NAME_BYTES_MAX + KEY_BYTES + 4;
const BUFFER_BYTES: usize = BODY_BYTES.next_multiple_of(UNIT_BYTES_MAX);
/// What fills the last unit of a body.
const PADDING: u8 = 0x5a;
/// The bytes of a mark: nothing that an erase leaves by itself.
const MARK: u8 = 0xa6;
/// So many bits of a mark may have flipped.
const TOLERANCE: u32 = 2;

/// The key of a kiosk. Its `Debug` shows nothing of it, and comparing two takes the same time wherever they differ.
#[derive(Clone)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// The key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the cipher.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(other.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        differing == 0
    }
}

impl Eq for Key {}

/// Who a kiosk is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of the host that it is.
    pub host: Name,
    /// The key that its frames are authenticated with.
    pub key: Key,
}

/// Why there is no identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityError {
    /// The range is not one of two whole pages inside the driver's capacity, or a page has no room for four copies.
    Range,
    /// The name is longer than [`NAME_BYTES_MAX`].
    NameTooLong,
    /// None was stored yet, or storing the first one was cut off.
    Missing,
    /// Both copies are damaged. Nothing was written; an operator can store an identity anew.
    Damaged,
    /// The flash does not take what is written, so the identity is not answered, or not known to be stored.
    Flash,
}

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Blank,
    /// A good body of this generation.
    Copy {
        generation: u32,
        is_marked: bool,
    },
    /// A mark behind a bad body.
    Damaged,
    /// Anything else.
    Junk,
}

/// Reads the identity from the two pages in `range` and settles what a cut has left (K3).
///
/// # Errors
///
/// [`IdentityError`]; then nobody was told an identity that a later load could deny.
pub fn load<F: NorFlash>(flash: &mut F, range: &Range<u32>) -> Result<Identity, IdentityError> {
    Pages::new(flash, range)?.settle()
}

/// Stores an identity, whatever was there before. When this returns it is in both copies; interrupted, the next [`load`] says
/// this one or the one before.
///
/// # Errors
///
/// [`IdentityError`]; after [`IdentityError::Flash`] ask [`load`].
pub fn store<F: NorFlash>(flash: &mut F, range: &Range<u32>, identity: &Identity) -> Result<(), IdentityError> {
    if identity.host.as_str().len() > NAME_BYTES_MAX {
        return Err(IdentityError::NameTooLong);
    }
    let mut pages = Pages::new(flash, range)?;
    match pages.settle() {
        Ok(known) if known == *identity => return Ok(()),
        Ok(_) | Err(IdentityError::Missing | IdentityError::Damaged) => {}
        Err(error @ (IdentityError::Range | IdentityError::NameTooLong | IdentityError::Flash)) => return Err(error),
    }
    pages.append(identity)?;
    pages.append(identity)
}

struct Pages<'a, F> {
    region: Region<&'a mut F>,
    /// The page that copies go to, and the next place in it.
    page: usize,
    next: usize,
    /// Whether that page holds the copy that counts, or nothing counts: then the other one may be erased (K4).
    may_turn: bool,
    /// The greatest generation of any copy.
    newest: u32,
}

impl<'a, F: NorFlash> Pages<'a, F> {
    const UNIT: usize = Region::<&'a mut F>::UNIT;
    const BODY_UNITS: usize = BODY_BYTES.div_ceil(Self::UNIT);
    /// Places in a page.
    const COPIES: usize = {
        let room = Region::<&'a mut F>::PAGE_UNITS / (Self::BODY_UNITS + 1);
        if room < COPIES_MAX { room } else { COPIES_MAX }
    };

    fn new(flash: &'a mut F, range: &Range<u32>) -> Result<Self, IdentityError> {
        let whole = range.end.checked_sub(range.start).map(|bytes| bytes as usize) == F::ERASE_SIZE.checked_mul(PAGES);
        let region = Region::new(flash, range);
        if !whole || region.check().is_err() || Self::COPIES < COPIES_MIN {
            return Err(IdentityError::Range);
        }
        Ok(Self {
            region,
            page: 0,
            next: 0,
            may_turn: true,
            newest: 0,
        })
    }

    /// The first unit of a place.
    const fn unit(place: usize) -> usize {
        place * (Self::BODY_UNITS + 1)
    }

    /// Every place of both pages.
    fn places() -> impl DoubleEndedIterator<Item = (usize, usize)> {
        (0..PAGES * Self::COPIES).map(|at| (at / Self::COPIES, at % Self::COPIES))
    }

    /// Reads a place, its body into `body`.
    fn read(&mut self, page: usize, place: usize, body: &mut [u8; BUFFER_BYTES]) -> Found {
        let first = Self::unit(place);
        if self
            .region
            .first_used(page, first, first + Self::BODY_UNITS + 1)
            .is_none()
        {
            return Found::Blank;
        }
        let bytes = body.get_mut(..Self::BODY_UNITS * Self::UNIT);
        // Unit by unit: on chips with ECC one that was torn cannot be read.
        let readable = bytes.is_some_and(|bytes| {
            let mut units = (first..).zip(bytes.chunks_mut(Self::UNIT));
            units.all(|(unit, bytes)| self.region.read(page, unit, bytes))
        });
        let mut mark = [0; UNIT_BYTES_MAX];
        let is_marked = mark.get_mut(..Self::UNIT).is_some_and(|mark| {
            let is_read = self.region.read(page, first + Self::BODY_UNITS, mark);
            let flipped = mark.iter().map(|byte| (byte ^ MARK).count_ones()).sum::<u32>();
            is_read && flipped <= TOLERANCE
        });
        match decode(body).filter(|_| readable) {
            Some((generation, _)) => Found::Copy { generation, is_marked },
            None if is_marked => Found::Damaged,
            None => Found::Junk,
        }
    }

    /// Finds the copy that counts (K1) and the place of the next one (K2), and completes the two that stand for it (K3).
    fn settle(&mut self) -> Result<Identity, IdentityError> {
        let (mut body, mut best, mut counts) = ([0; BUFFER_BYTES], None, None);
        let (mut is_damaged, mut chosen_page) = (false, 1);
        for (page, place) in Self::places() {
            match self.read(page, place, &mut body) {
                Found::Copy { generation, is_marked } => {
                    self.newest = self.newest.max(generation);
                    if best.is_none_or(|best| (is_marked, generation) > best) {
                        best = Some((is_marked, generation));
                        counts = decode(&body).map(|(_, identity)| identity);
                        chosen_page = page;
                    }
                }
                Found::Damaged => is_damaged = true,
                Found::Blank | Found::Junk => {}
            }
        }
        // Where no copy is marked, the other page is erased first.
        self.page = chosen_page;
        self.next = match best {
            Some((true, _)) => self.behind(chosen_page),
            Some((false, _)) | None => Self::COPIES,
        };
        let Some(identity) = counts else {
            return Err(if is_damaged {
                IdentityError::Damaged
            } else {
                IdentityError::Missing
            });
        };
        // Marked copies of it above every other copy.
        let (mut above, mut standing) = (0, [0; 2]);
        for (page, place) in Self::places() {
            let Found::Copy { generation, is_marked } = self.read(page, place, &mut body) else {
                continue;
            };
            if !is_marked || decode(&body).is_none_or(|(_, other)| other != identity) {
                above = above.max(generation);
            } else {
                let [greatest, second] = standing;
                standing = if generation > greatest {
                    [generation, greatest]
                } else {
                    [greatest, second.max(generation)]
                };
            }
        }
        for _ in standing.into_iter().filter(|generation| *generation <= above) {
            self.append(&identity)?;
        }
        Ok(identity)
    }

    /// The place behind the last one of a page that is not blank, and one further (K2).
    fn behind(&mut self, page: usize) -> usize {
        let mut body = [0; BUFFER_BYTES];
        let used = (0..Self::COPIES)
            .rev()
            .find(|place| self.read(page, *place, &mut body) != Found::Blank);
        used.map_or(0, |place| place + 2)
    }

    /// Writes one more copy under the next generation (K1, K4). Where it fails the place behind is tried.
    fn append(&mut self, identity: &Identity) -> Result<(), IdentityError> {
        // The end of the range would take 2^32 copies.
        self.newest = self.newest.checked_add(1).ok_or(IdentityError::Flash)?;
        let mut body = [0; BUFFER_BYTES];
        encode(&mut body, self.newest, identity);
        loop {
            if self.next >= Self::COPIES {
                let other = 1 - self.page;
                if !self.may_turn {
                    return Err(IdentityError::Flash);
                }
                self.spoil(other);
                if !self.region.erase(other) {
                    return Err(IdentityError::Flash);
                }
                (self.page, self.next, self.may_turn) = (other, 0, false);
            }
            let first = Self::unit(self.next);
            self.next += 1;
            if self.program(first, &body) {
                self.may_turn = true;
                return Ok(());
            }
        }
    }

    /// Puts zeros where a mark of a page is not complete, before the page is erased (K4).
    fn spoil(&mut self, page: usize) {
        let mut body = [0; BUFFER_BYTES];
        for place in 0..Self::COPIES {
            let is_complete = match self.read(page, place, &mut body) {
                Found::Copy { is_marked, .. } => is_marked,
                Found::Damaged => true,
                Found::Blank | Found::Junk => false,
            };
            let mark = Self::unit(place) + Self::BODY_UNITS;
            if !is_complete && !self.region.look(page, mark).is_zero() {
                // A chip that does not take the zeros does not take a mark there either.
                self.region.zero(page, mark);
            }
        }
    }

    fn program(&mut self, first: usize, body: &[u8; BUFFER_BYTES]) -> bool {
        let mark = [MARK; UNIT_BYTES_MAX];
        let parts = [
            (first, body.get(..Self::BODY_UNITS * Self::UNIT)),
            (first + Self::BODY_UNITS, mark.get(..Self::UNIT)),
        ];
        parts.into_iter().all(|(unit, bytes)| {
            bytes.is_some_and(|bytes| {
                self.region.program(self.page, unit, bytes) && self.region.holds(self.page, unit, bytes)
            })
        })
    }
}

fn encode(body: &mut [u8; BUFFER_BYTES], generation: u32, identity: &Identity) {
    let name = identity.host.as_str().as_bytes();
    let padding = core::iter::repeat_n(0, NAME_BYTES_MAX.saturating_sub(name.len()));
    let fields = MAGIC
        .into_iter()
        .chain([VERSION])
        .chain(generation.to_le_bytes())
        .chain([name.len() as u8])
        .chain(name.iter().copied())
        .chain(padding)
        .chain(identity.key.0);
    body.fill(PADDING);
    body.iter_mut().zip(fields).for_each(|(slot, byte)| *slot = byte);
    let (content, sum) = body.split_at_mut(BODY_BYTES - 4);
    let computed = Crc::new().update(content).finish().to_le_bytes();
    sum.iter_mut().zip(computed).for_each(|(slot, byte)| *slot = byte);
}

fn decode(body: &[u8; BUFFER_BYTES]) -> Option<(u32, Identity)> {
    let (content, sum) = body.split_at_checked(BODY_BYTES - 4)?;
    if sum.first_chunk::<4>()? != &Crc::new().update(content).finish().to_le_bytes() {
        return None;
    }
    let (head, rest) = content.split_first_chunk::<4>()?;
    let (generation, rest) = rest.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first()?;
    let (name, rest) = rest.split_first_chunk::<NAME_BYTES_MAX>()?;
    if head.first_chunk() != Some(&MAGIC) || head.last() != Some(&VERSION) {
        return None;
    }
    let name = name.get(..usize::from(*len))?;
    let identity = Identity {
        host: Name::new(core::str::from_utf8(name).ok()?).ok()?,
        key: Key(*rest.first_chunk()?),
    };
    Some((u32::from_le_bytes(*generation), identity))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    fn identity() -> Identity {
        Identity {
            host: Name::new("kiosk-a").unwrap(),
            key: Key::new([0xc3; KEY_BYTES]),
        }
    }

    #[test]
    fn a_body_reads_back_and_no_flipped_bit_goes_unseen() {
        let mut body = [0; BUFFER_BYTES];
        encode(&mut body, 9, &identity());
        assert_eq!(decode(&body), Some((9, identity())));
        for bit in 0..BODY_BYTES * 8 {
            let mut damaged = body;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn the_key_is_in_no_debug_text() {
        let text = format!("{:?} {:#?}", identity(), identity());
        assert!(text.contains("kiosk-a") && text.contains("Key(..)"), "{text}");
        for trace in ["195", "c3", "C3"] {
            assert!(!text.contains(trace), "{text}");
        }
    }

    #[test]
    fn keys_are_compared_whole() {
        let mut other = [0xc3; KEY_BYTES];
        other[KEY_BYTES - 1] ^= 1;
        assert_eq!(Key::new([0xc3; KEY_BYTES]), identity().key);
        assert_ne!(Key::new(other), identity().key);
    }
}
