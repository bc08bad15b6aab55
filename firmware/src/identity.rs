//! Who the kiosk is: its host name, its device id and its key, in two copies on two pages of their own.
//!
//! They are written when a kiosk is provisioned and read at every boot; a page that does not read whole is written anew once
//! somebody with the key has asked for something. The key is in no dump of the ledger, which is another
//! region, and in no text that this crate prints.
//!
//! | at | bytes | what lies at the start of each page |
//! | --- | --- | --- |
//! | 0 | 3 | `KFI` |
//! | 3 | 1 | version, 1 |
//! | 4 | 1 | bytes of the name |
//! | 5 | 3 | zeros |
//! | 8 | 32 | the name, then zeros |
//! | 40 | 16 | the device id |
//! | 56 | 32 | the key |
//! | 88 | 4 | zeros |
//! | 92 | 4 | CRC-32C of the 92 bytes before, little endian |
//!
//! # The invariants, and why they hold
//!
//! A copy is *whole* when its check sum is right, and *solid* when it was programmed and read back in one power-up and its
//! page was not touched since. A solid copy reads whole at every later load; one that a cut has left may read either way.
//!
//! - **K1. One after the other.** [`store`] erases both pages, then programs one copy and reads it back twice, then the other.
//!   It never touches a region that holds an identity, not even the same one: that is [forgotten](forget) first.
//! - **K2. A load touches only a page that does not read whole, while the other one does.** So it never touches a solid copy.
//!   With K1: once a store has returned, there is a solid copy at every moment until somebody forgets it, through any number of
//!   cuts, and every load says that identity.
//! - **K3. Never another one.** Old content is gone before new content is begun (K1), so no cut brings back an identity whose
//!   forgetting has returned, and whole copies never contradict each other. If they do, the region is damaged.
//! - **K4. Between the begin and the return of a store or a forgetting** a load says the identity in question or none; only when
//!   it has returned is that settled, so a provisioning that was cut off is done again: forget, then store.

use core::fmt;
use core::ops::Range;

use embedded_storage::nor_flash::NorFlash;
use keyfence_core::Name;
use zeroize::Zeroizing;

use crate::journal::crc::Crc;
use crate::journal::region::{Region, UNIT_BYTES_MAX};
use crate::link::{self, DeviceId, LinkKey};
use crate::store::NAME_BYTES_MAX;

/// Pages of the region.
pub const PAGES: usize = 2;
/// Bytes of a copy.
pub const COPY_BYTES: usize = 96;
const MAGIC: [u8; 3] = *b"KFI";
const VERSION: u8 = 1;
const SUM_AT: usize = COPY_BYTES - 4;
/// A copy in whole units.
const BUFFER_BYTES: usize = COPY_BYTES.next_multiple_of(UNIT_BYTES_MAX) + UNIT_BYTES_MAX;

/// Who a kiosk is. Its `Debug` shows nothing of the key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The name that it goes by as a host, at most [`NAME_BYTES_MAX`] bytes.
    pub host: Name,
    /// The device: drawn when it is provisioned, so that it names this key too.
    pub device: DeviceId,
    /// The key that its hosts know it by.
    pub key: LinkKey,
}

impl Identity {
    /// What the link needs of it.
    #[must_use]
    pub fn on_link(&self) -> link::Identity {
        link::Identity {
            device: self.device,
            key: self.key.clone(),
        }
    }

    /// A copy as it lies at the start of each of the two pages, for those who write them from outside. The caller wipes it.
    ///
    /// # Errors
    ///
    /// [`IdentityError::NameTooLong`].
    pub fn encode(&self) -> Result<[u8; COPY_BYTES], IdentityError> {
        let name = self.host.as_str().as_bytes();
        if name.len() > NAME_BYTES_MAX {
            return Err(IdentityError::NameTooLong);
        }
        let head = MAGIC.into_iter().chain([VERSION, name.len() as u8, 0, 0, 0]);
        let padding = core::iter::repeat_n(0, NAME_BYTES_MAX - name.len());
        let rest = self.device.as_bytes().iter().chain(self.key.bytes()).copied();
        let fields = head.chain(name.iter().copied()).chain(padding).chain(rest);
        let mut copy = [0; COPY_BYTES];
        copy.iter_mut().zip(fields).for_each(|(slot, byte)| *slot = byte);
        let (content, sum) = copy.split_at_mut(SUM_AT);
        sum.copy_from_slice(&Crc::new().update(content).finish().to_le_bytes());
        Ok(copy)
    }

    /// Compares all of it, in the same time wherever it differs.
    fn is(&self, other: &Self) -> bool {
        let keys = self.key.bytes().iter().zip(other.key.bytes());
        let differing = keys.fold(0, |sum, (a, b)| sum | (a ^ b));
        self.host == other.host && self.device == other.device && differing == 0
    }
}

/// Why there is no identity, or it was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityError {
    /// The range is not one of two whole pages inside the driver's capacity, or a page is smaller than a copy.
    Range,
    /// The name is longer than [`NAME_BYTES_MAX`].
    NameTooLong,
    /// The region is blank: no identity was stored, or it was forgotten.
    Missing,
    /// There is no whole copy and the region is not blank, or there are two that differ. Storing or forgetting was cut off, or
    /// both copies are damaged. An operator can store an identity anew.
    Damaged,
    /// A copy is of a version that this firmware does not know. It is neither guessed at nor overwritten.
    Unsupported(u8),
    /// An identity is stored already. It is [forgotten](forget) first.
    Taken,
    /// The flash does not take what is written.
    Flash,
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range => f.write_str("the range is not one of two whole pages"),
            Self::NameTooLong => write!(f, "the host name is longer than {NAME_BYTES_MAX} bytes"),
            Self::Missing => f.write_str("no identity is stored"),
            Self::Damaged => f.write_str("no whole copy of the identity is left"),
            Self::Unsupported(version) => write!(f, "the identity is of version {version}, which is not known here"),
            Self::Taken => f.write_str("an identity is stored already"),
            Self::Flash => f.write_str("the flash does not take the identity"),
        }
    }
}

impl core::error::Error for IdentityError {}

/// Reads the identity from the two pages in `range`, and writes nothing: a page that does not read whole is left to the next
/// [`load`].
///
/// # Errors
///
/// [`IdentityError::Range`], [`IdentityError::Missing`], [`IdentityError::Damaged`] or [`IdentityError::Unsupported`].
pub fn read<F: NorFlash>(flash: &mut F, range: &Range<u32>) -> Result<Identity, IdentityError> {
    Pages::new(flash, range)?.look().map(|(identity, _)| identity)
}

/// Reads the identity from the two pages in `range`. Where only one copy is whole, the other page is written anew from it
/// (K2); a page that does not take it leaves one copy, as it was, and the next load tries again.
///
/// Interrupted, the next load says the same, unless the store of it never returned (K4).
///
/// # Errors
///
/// [`IdentityError::Range`], [`IdentityError::Missing`], [`IdentityError::Damaged`] or [`IdentityError::Unsupported`]; then
/// nothing was written.
pub fn load<F: NorFlash>(flash: &mut F, range: &Range<u32>) -> Result<Identity, IdentityError> {
    let mut pages = Pages::new(flash, range)?;
    let (identity, lacking) = pages.look()?;
    if let Some(page) = lacking {
        let copy = Zeroizing::new(identity.encode()?);
        // Not written, there is one copy still.
        let _is_doubled = pages.region.erase(page) && pages.write(page, &copy).is_ok();
    }
    Ok(identity)
}

/// Stores an identity in a region that has none.
///
/// When this returns it is in both copies, and every later [`load`] says it. Interrupted, a load says it or none: forget it, then
/// store it again (K4).
///
/// # Errors
///
/// [`IdentityError::Range`], [`IdentityError::NameTooLong`], [`IdentityError::Taken`] or [`IdentityError::Unsupported`], and
/// nothing of it was written; [`IdentityError::Flash`], and it is as if it was interrupted.
pub fn store<F: NorFlash>(flash: &mut F, range: &Range<u32>, identity: &Identity) -> Result<(), IdentityError> {
    let copy = Zeroizing::new(identity.encode()?);
    let mut pages = Pages::new(flash, range)?;
    match pages.look() {
        Ok(_) => return Err(IdentityError::Taken),
        Err(IdentityError::Missing | IdentityError::Damaged) => {}
        Err(
            error @ (IdentityError::Range
            | IdentityError::NameTooLong
            | IdentityError::Unsupported(_)
            | IdentityError::Taken
            | IdentityError::Flash),
        ) => return Err(error),
    }
    pages.erase()?;
    pages.write(0, &copy)?;
    pages.write(1, &copy)
}

/// Erases both copies, whatever is there. When this returns, no load says what was there before; interrupted, a load says it
/// or none (K4).
///
/// # Errors
///
/// [`IdentityError::Range`]; [`IdentityError::Flash`] when a page does not read blank, and it is as if it was interrupted.
pub fn forget<F: NorFlash>(flash: &mut F, range: &Range<u32>) -> Result<(), IdentityError> {
    Pages::new(flash, range)?.erase()
}

/// What is at the start of a page.
enum Found {
    Blank,
    Whole(Identity),
    /// A whole copy of another version.
    Unsupported(u8),
    /// Anything else.
    Torn,
}

struct Pages<'a, F> {
    region: Region<&'a mut F>,
}

impl<'a, F: NorFlash> Pages<'a, F> {
    const UNIT: usize = Region::<&'a mut F>::UNIT;
    const COPY_UNITS: usize = COPY_BYTES.div_ceil(Self::UNIT);

    fn new(flash: &'a mut F, range: &Range<u32>) -> Result<Self, IdentityError> {
        let is_two_pages =
            range.end.checked_sub(range.start).map(|bytes| bytes as usize) == F::ERASE_SIZE.checked_mul(PAGES);
        let region = Region::new(flash, range);
        if !is_two_pages || region.check().is_err() || Self::COPY_UNITS > Region::<&'a mut F>::PAGE_UNITS {
            return Err(IdentityError::Range);
        }
        Ok(Self { region })
    }

    /// The identity, and the page that has no whole copy of it, if there is one. Writes nothing.
    fn look(&mut self) -> Result<(Identity, Option<usize>), IdentityError> {
        match (self.read(0), self.read(1)) {
            (Found::Whole(first), Found::Whole(second)) if first.is(&second) => Ok((first, None)),
            (Found::Whole(_), Found::Whole(_)) => Err(IdentityError::Damaged),
            (Found::Unsupported(version), _) | (_, Found::Unsupported(version)) => {
                Err(IdentityError::Unsupported(version))
            }
            (Found::Whole(whole), Found::Blank | Found::Torn) => Ok((whole, Some(1))),
            (Found::Blank | Found::Torn, Found::Whole(whole)) => Ok((whole, Some(0))),
            (Found::Blank, Found::Blank) => Err(IdentityError::Missing),
            (Found::Blank, Found::Torn) | (Found::Torn, Found::Blank | Found::Torn) => Err(IdentityError::Damaged),
        }
    }

    fn read(&mut self, page: usize) -> Found {
        if self
            .region
            .first_used(page, 0, Region::<&'a mut F>::PAGE_UNITS)
            .is_none()
        {
            return Found::Blank;
        }
        let mut buffer = Zeroizing::new([0; BUFFER_BYTES]);
        let mut units = (0..).zip(buffer.chunks_mut(Self::UNIT).take(Self::COPY_UNITS));
        // Unit by unit: on chips with ECC one that was torn cannot be read.
        if !units.all(|(unit, bytes)| self.region.read(page, unit, bytes)) {
            return Found::Torn;
        }
        buffer.first_chunk().map_or(Found::Torn, decode)
    }

    fn erase(&mut self) -> Result<(), IdentityError> {
        if (0..PAGES).all(|page| self.region.erase(page)) {
            Ok(())
        } else {
            Err(IdentityError::Flash)
        }
    }

    /// Programs a copy into a page that was erased in this power-up.
    fn write(&mut self, page: usize, copy: &[u8; COPY_BYTES]) -> Result<(), IdentityError> {
        let mut buffer = Zeroizing::new([0; BUFFER_BYTES]);
        buffer.iter_mut().zip(copy).for_each(|(slot, byte)| *slot = *byte);
        let units = buffer.get(..Self::COPY_UNITS * Self::UNIT);
        let is_held =
            units.is_some_and(|units| self.region.program(page, 0, units) && self.region.holds(page, 0, units));
        if is_held { Ok(()) } else { Err(IdentityError::Flash) }
    }
}

fn decode(copy: &[u8; COPY_BYTES]) -> Found {
    fn fields(copy: &[u8; COPY_BYTES]) -> Option<Identity> {
        let (head, rest) = copy.split_first_chunk::<8>()?;
        let (name, rest) = rest.split_first_chunk::<NAME_BYTES_MAX>()?;
        let (device, rest) = rest.split_first_chunk::<16>()?;
        let key = rest.first_chunk::<32>()?;
        let name = name.get(..usize::from(*head.get(4)?))?;
        Some(Identity {
            host: Name::new(core::str::from_utf8(name).ok()?).ok()?,
            device: DeviceId::from_bytes(*device),
            key: LinkKey::from_bytes(*key),
        })
    }
    let (content, sum) = copy.split_at(SUM_AT);
    let [a, b, c, version, ..] = *copy;
    if [a, b, c] != MAGIC || sum != Crc::new().update(content).finish().to_le_bytes() {
        return Found::Torn;
    }
    match version {
        VERSION => fields(copy).map_or(Found::Torn, Found::Whole),
        other => Found::Unsupported(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    fn identity() -> Identity {
        Identity {
            host: Name::new("kiosk-a").unwrap(),
            device: DeviceId::from_bytes([0x0f; 16]),
            key: LinkKey::from_bytes([0xc3; 32]),
        }
    }

    #[test]
    fn a_copy_reads_back_and_no_flipped_bit_goes_unseen() {
        let copy = identity().encode().unwrap();
        assert!(matches!(decode(&copy), Found::Whole(found) if found.is(&identity())));
        for bit in 0..COPY_BYTES * 8 {
            let mut damaged = copy;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&damaged), Found::Torn), "bit {bit}");
        }
    }

    #[test]
    fn a_copy_of_a_later_version_is_not_guessed_at() {
        let mut copy = identity().encode().unwrap();
        copy[3] = 2;
        let sum = Crc::new().update(&copy[..SUM_AT]).finish();
        copy[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(decode(&copy), Found::Unsupported(2)));
    }

    #[test]
    fn the_key_is_in_no_debug_text() {
        let text = format!("{:?} {:#?}", identity(), identity());
        assert!(text.contains("kiosk-a"), "{text}");
        for trace in ["195", "c3", "C3"] {
            assert!(!text.contains(trace), "{text}");
        }
    }

    #[test]
    fn identities_are_compared_whole() {
        let mut key = [0xc3; 32];
        key[31] ^= 1;
        let other_key = Identity {
            key: LinkKey::from_bytes(key),
            ..identity()
        };
        let other_device = Identity {
            device: DeviceId::NONE,
            ..identity()
        };
        let other_host = Identity {
            host: Name::new("kiosk-b").unwrap(),
            ..identity()
        };
        assert!(identity().is(&identity()));
        for other in [other_key, other_device, other_host] {
            assert!(!identity().is(&other), "{other:?}");
        }
    }
}
