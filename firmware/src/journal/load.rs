//! Frames as they are found on the flash, and the repair of small damage.

use embedded_storage::nor_flash::NorFlash;

use super::crc::{self, Crc};
use super::frame::{self, HEADER_BYTES, Header};
use super::policy::Policy;
use super::region::Region;

/// A frame whose body is good. Its unmasked body is in the buffer that it was loaded into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) header: Header,
    /// Units of the body; the mark is the unit behind them.
    pub(super) units: usize,
    /// The check sum.
    pub(super) sum: u32,
    /// Whether the mark is complete.
    pub(super) is_marked: bool,
    /// Whether flipped bits were put right.
    pub(super) is_repaired: bool,
}

/// What is at a place where a frame could begin and no good one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotFound {
    /// Nothing: blank, zeros, or what never was a committed frame.
    Nothing,
    /// A frame that was committed, for its mark is complete, and cannot be repaired.
    Damaged {
        /// Units of its body.
        units: usize,
    },
}

/// Bodies have at least this many units, since they have more than [`frame::OVERHEAD_BYTES`].
pub(super) const fn body_units_min(unit: usize) -> usize {
    (frame::OVERHEAD_BYTES + 1).div_ceil(unit)
}

/// Loads the frame whose header is at `unit` into `buffer`, if its body is good as it is.
pub(super) fn load<F: NorFlash, P: Policy>(
    region: &mut Region<F>,
    page: usize,
    unit: usize,
    seed: Crc,
    buffer: &mut [u8],
) -> Option<Found> {
    let (header, units) = header_at(region, page, unit, buffer)?;
    load_body::<F, P>(region, page, unit, header, units, seed, buffer)
}

/// The valid header at `unit`, which is left at the start of `buffer`, and the units of its body.
fn header_at<F: NorFlash>(
    region: &mut Region<F>,
    page: usize,
    unit: usize,
    buffer: &mut [u8],
) -> Option<(Header, usize)> {
    let first = buffer.get_mut(..Region::<F>::UNIT)?;
    if !region.read(page, unit, first) {
        return None;
    }
    let header = Header::decode(*buffer.first_chunk::<HEADER_BYTES>()?)?;
    let units = header.len.div_ceil(Region::<F>::UNIT);
    let fits = unit + units < Region::<F>::PAGE_UNITS && units * Region::<F>::UNIT <= buffer.len();
    fits.then_some((header, units))
}

/// Where the mark of the frame with a valid header at `unit` would be.
pub(super) fn mark_place<F: NorFlash>(
    region: &mut Region<F>,
    page: usize,
    unit: usize,
    buffer: &mut [u8],
) -> Option<usize> {
    header_at(region, page, unit, buffer).map(|(_, units)| unit + units)
}

/// Loads what is behind the first unit, which is in `buffer` already.
fn load_body<F: NorFlash, P: Policy>(
    region: &mut Region<F>,
    page: usize,
    unit: usize,
    header: Header,
    units: usize,
    seed: Crc,
    buffer: &mut [u8],
) -> Option<Found> {
    let rest = buffer.get_mut(Region::<F>::UNIT..units * Region::<F>::UNIT)?;
    if !rest.is_empty() && !region.read(page, unit + 1, rest) {
        return None;
    }
    frame::unmask(buffer, header);
    let (computed, stored) = frame::sums(buffer, header, seed)?;
    if computed != stored && P::CHECKSUM {
        return None;
    }
    let is_marked = !P::MARK || region.look(page, unit + units).is_like_mark();
    Some(Found {
        header,
        units,
        sum: stored,
        is_marked,
        is_repaired: false,
    })
}

/// Looks closer at a place where `load` found no good frame: J2's damaged frame, which is repaired
/// into `buffer` if that can be done, or something that never was acknowledged.
///
/// A frame that was committed has no unit that looks blank or like a mark (J1), so its mark is the
/// first unit behind its begin that does.
pub(super) fn repair<F: NorFlash, P: Policy>(
    region: &mut Region<F>,
    page: usize,
    unit: usize,
    seed: Crc,
    buffer: &mut [u8],
) -> Result<Found, NotFound> {
    let end = (unit..Region::<F>::PAGE_UNITS).find_map(|at| {
        let look = region.look(page, at);
        (look.is_like_mark() || look.is_like_blank()).then_some((at, look.is_like_mark()))
    });
    let Some((mark, true)) = end else {
        return Err(NotFound::Nothing);
    };
    let units = mark - unit;
    let damaged = NotFound::Damaged { units };
    if units < body_units_min(Region::<F>::UNIT) || !P::MARK || !P::CHECKSUM {
        return Err(NotFound::Nothing);
    }
    let first = buffer.get_mut(..Region::<F>::UNIT).ok_or(damaged)?;
    if !region.read(page, unit, first) {
        return Err(damaged);
    }
    let stored = *buffer.first_chunk::<HEADER_BYTES>().ok_or(damaged)?;
    let word = u32::from_le_bytes(stored);
    let as_stored = Header::decode(stored);
    if let Some(header) = as_stored
        && header.len.div_ceil(Region::<F>::UNIT) == units
        && let Some(found) = mend_body(region, page, unit, header, units, seed, buffer)
    {
        return Ok(found);
    }
    // The damage is in the header itself, or there is more of it than can be repaired.
    for a in 0..32 {
        for b in a..32 {
            let flipped = word ^ (1 << a) ^ (if a == b { 0 } else { 1 << b });
            let Some(header) = Header::decode(flipped.to_le_bytes()) else {
                continue;
            };
            if header.len.div_ceil(Region::<F>::UNIT) != units {
                continue;
            }
            let first = buffer.get_mut(..Region::<F>::UNIT).ok_or(damaged)?;
            if !region.read(page, unit, first) {
                return Err(damaged);
            }
            if let Some(found) = load_body::<F, P>(region, page, unit, header, units, seed, buffer) {
                return Ok(Found {
                    is_repaired: true,
                    ..found
                });
            }
        }
    }
    // A header that is valid and says another length: a torn frame on which a mount has put zeros. More
    // than one unit of zeros: a mount has put them, too.
    let is_filled = mark + 1 < Region::<F>::PAGE_UNITS && region.look(page, mark + 1).is_like_mark();
    match as_stored {
        None if is_filled => Err(NotFound::Nothing),
        Some(header) if header.len.div_ceil(Region::<F>::UNIT) != units => Err(NotFound::Nothing),
        Some(_) | None => Err(damaged),
    }
}

/// Repairs a body behind a good header: the flipped bits that explain the check sum.
fn mend_body<F: NorFlash>(
    region: &mut Region<F>,
    page: usize,
    unit: usize,
    header: Header,
    units: usize,
    seed: Crc,
    buffer: &mut [u8],
) -> Option<Found> {
    let rest = buffer.get_mut(Region::<F>::UNIT..units * Region::<F>::UNIT)?;
    if !rest.is_empty() && !region.read(page, unit + 1, rest) {
        return None;
    }
    frame::unmask(buffer, header);
    let (computed, stored) = frame::sums(buffer, header, seed)?;
    if computed != stored {
        let message = header.len.checked_sub(4)?;
        let (a, b) = crc::explain(computed ^ stored, message, HEADER_BYTES)?;
        for bit in core::iter::once(a).chain(b) {
            *buffer.get_mut(bit / 8)? ^= 1 << (bit % 8);
        }
    }
    let (computed, stored) = frame::sums(buffer, header, seed)?;
    (computed == stored).then_some(Found {
        header,
        units,
        sum: stored,
        is_marked: true,
        is_repaired: true,
    })
}
