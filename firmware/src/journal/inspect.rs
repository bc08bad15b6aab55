//! What lies in a region, piece by piece, for a tool that tells its story. Nothing is written and nothing is mounted.
//!
//! [`walk`] decodes with the functions that a mount decodes with. It does not say which frames count: `FORMAT.md` has the
//! rules, and [`Journal::mount`](super::Journal::mount) has the verdict.

use core::ops::Range;

use embedded_storage::nor_flash::NorFlash;

use super::crc::Crc;
use super::error::GeometryError;
use super::frame::{
    BODY_BYTES_MAX, HEADER_BYTES, KEY_BATCH, KEY_CHECKPOINT, KEY_LIMIT, KEY_STATE, Records, State, take_varint,
};
use super::load::{self, Found, NotFound};
use super::page::{NoHeader, PAGE_HEADER_BYTES, PageHeader};
use super::policy::Law;
use super::region::{Look, Region};

/// One of the two header copies of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderCopy {
    /// Not begun.
    Blank,
    /// Begun or damaged.
    Bad,
    /// Of a format version that this firmware does not know.
    Unsupported(u8),
    /// Valid.
    Good {
        /// The order in which pages are used.
        generation: u32,
        /// How often the page was erased, as far as known.
        erases: u32,
        /// Which ledger it is of.
        instance: u32,
        /// The place in the region that it was written for.
        index: u8,
        /// The pages of the region that it was written for.
        pages: u8,
    },
}

/// The mark of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Never begun.
    Blank,
    /// Complete: the frame is committed.
    Complete,
    /// Anything between, or unreadable.
    Torn,
}

/// What the state of an absolute frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSight {
    /// Whether a mount has written it.
    pub is_boot: bool,
    /// Its sequence number.
    pub sequence: u64,
    /// Frames up to this one were there.
    pub base: u64,
    /// The boot.
    pub boot: u32,
    /// The oldest generation that counts.
    pub low: u32,
    /// The generation of the page before.
    pub previous: u32,
    /// No token above this one was handed out.
    pub limit: u64,
    /// The chain value before it.
    pub chain: u32,
}

/// A record of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordSight<'a> {
    /// A value under a key of the store.
    Put(u8, &'a [u8]),
    /// A key of the store is deleted.
    Deleted(u8),
    /// The limit of the tokens is raised.
    Limit(u64),
    /// A checkpoint is stored.
    Checkpoint,
    /// A good frame with content that makes no sense.
    Senseless,
}

/// A frame with a good body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameSight<'a> {
    /// Units of its body; its mark is the next one.
    pub units: usize,
    /// Its mark.
    pub mark: Mark,
    /// The low six bits of its sequence number.
    pub sequence_low: u8,
    /// What an absolute frame says of the journal.
    pub state: Option<StateSight>,
    /// Whether flipped bits were put right to read it.
    pub is_repaired: bool,
    /// Its check sum.
    pub sum: u32,
    key: u8,
    payload: &'a [u8],
}

impl FrameSight<'_> {
    /// Shows its records in their order.
    pub fn records(&self, mut see: impl FnMut(RecordSight<'_>)) {
        let mut records = Records::new(self.key, self.payload);
        for (key, mut value) in &mut records {
            see(match key {
                KEY_LIMIT => take_varint(&mut value).map_or(RecordSight::Senseless, RecordSight::Limit),
                KEY_CHECKPOINT => RecordSight::Checkpoint,
                key if value.is_empty() => RecordSight::Deleted(key),
                key => RecordSight::Put(key, value),
            });
        }
        if records.broken || (self.key == KEY_STATE && self.state.is_none()) {
            see(RecordSight::Senseless);
        }
    }

    /// Whether it holds several records.
    #[must_use]
    pub const fn is_batch(&self) -> bool {
        self.key == KEY_BATCH || self.key == KEY_STATE
    }
}

/// The chain value after a frame with the check sum `sum`, when `chain` was the one before it.
#[must_use]
pub fn chain_after(chain: u32, sum: u32) -> u32 {
    super::chained(chain, sum)
}

/// What is at a place. Places behind the headers come in their order and leave nothing out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight<'a> {
    /// The headers of a page: first of its pieces.
    Headers([HeaderCopy; 2]),
    /// Blank units.
    Blank {
        /// How many.
        units: usize,
    },
    /// Units of zeros that are no mark: a mount has settled there.
    Zeros {
        /// How many.
        units: usize,
    },
    /// A good body, and the mark behind it.
    Frame(FrameSight<'a>),
    /// A frame with a complete mark whose body cannot be put right.
    Damaged {
        /// Units of its body; its mark is the next one.
        units: usize,
    },
    /// Units that were begun and are no frame, or cannot be read.
    Junk {
        /// How many.
        units: usize,
    },
}

/// Shows `see` every piece of a region, with its page and its unit in the page.
///
/// # Errors
///
/// When the range cannot be a region of this flash.
pub fn walk<F: NorFlash>(
    flash: &mut F,
    range: &Range<u32>,
    mut see: impl FnMut(usize, usize, Sight<'_>),
) -> Result<(), GeometryError> {
    let mut region = Region::new(flash, range);
    region.check()?;
    let header_units = PAGE_HEADER_BYTES.div_ceil(Region::<&mut F>::UNIT);
    if 2 * header_units >= Region::<&mut F>::PAGE_UNITS {
        return Err(GeometryError::Frame);
    }
    for page in 0..region.pages() {
        let copies = [0, header_units].map(|unit| header(&mut region, page, unit, header_units));
        see(page, 0, Sight::Headers(copies));
        walk_page(&mut region, page, 2 * header_units, &copies, &mut see);
    }
    Ok(())
}

fn header<F: NorFlash>(region: &mut Region<F>, page: usize, unit: usize, units: usize) -> HeaderCopy {
    let mut buffer = [0; PAGE_HEADER_BYTES.next_multiple_of(super::region::UNIT_BYTES_MAX)];
    if region.first_used(page, unit, unit + units).is_none() {
        return HeaderCopy::Blank;
    }
    let bytes = buffer.get_mut(..units * Region::<F>::UNIT);
    if !bytes.is_some_and(|bytes| region.read(page, unit, bytes)) {
        return HeaderCopy::Bad;
    }
    match PageHeader::decode(&buffer) {
        Ok(header) => HeaderCopy::Good {
            generation: header.generation,
            erases: header.erases,
            instance: header.instance,
            index: header.index,
            pages: header.pages,
        },
        Err(NoHeader::Version(version)) => HeaderCopy::Unsupported(version),
        Err(NoHeader::Invalid) => HeaderCopy::Bad,
    }
}

fn walk_page<F: NorFlash>(
    region: &mut Region<F>,
    page: usize,
    first: usize,
    copies: &[HeaderCopy; 2],
    see: &mut impl FnMut(usize, usize, Sight<'_>),
) {
    let seed = copies.iter().find_map(|copy| match copy {
        HeaderCopy::Good {
            generation, instance, ..
        } => Some(
            Crc::new()
                .update(&instance.to_le_bytes())
                .update(&generation.to_le_bytes()),
        ),
        HeaderCopy::Blank | HeaderCopy::Bad | HeaderCopy::Unsupported(_) => None,
    });
    let mut buffer = [0; BODY_BYTES_MAX.next_multiple_of(super::region::UNIT_BYTES_MAX)];
    // Only junk behind junk is not looked at for damage: a mount does so as well.
    let mut in_junk = false;
    let mut unit = first;
    while unit < Region::<F>::PAGE_UNITS {
        let look = region.look(page, unit);
        if look.is_blank() || look.is_zero() {
            let units = run(region, page, unit, |other| {
                other.is_blank() == look.is_blank() && other.is_zero() == look.is_zero()
            });
            let sight = if look.is_blank() {
                Sight::Blank { units }
            } else {
                Sight::Zeros { units }
            };
            see(page, unit, sight);
            unit += units;
            in_junk = false;
            continue;
        }
        let found = seed.and_then(|seed| load::load::<F, Law>(region, page, unit, seed, &mut buffer));
        let found = match (found, seed) {
            (Some(found), _) => Ok(found),
            (None, Some(seed)) if !in_junk => load::repair::<F, Law>(region, page, unit, seed, &mut buffer),
            (None, _) => Err(NotFound::Nothing),
        };
        match found {
            Ok(found) => {
                let mark = mark(region.look(page, unit + found.units));
                see(page, unit, Sight::Frame(frame(&found, mark, &buffer)));
                unit += found.units + 1;
                in_junk = false;
            }
            Err(NotFound::Damaged { units }) => {
                see(page, unit, Sight::Damaged { units });
                unit += units + 1;
                in_junk = false;
            }
            Err(NotFound::Nothing) => {
                see(page, unit, Sight::Junk { units: 1 });
                unit += 1;
                in_junk = true;
            }
        }
    }
}

/// How many units from `unit` on look `alike`.
fn run<F: NorFlash>(region: &mut Region<F>, page: usize, unit: usize, alike: impl Fn(Look) -> bool) -> usize {
    let end = (unit..Region::<F>::PAGE_UNITS).find(|at| !alike(region.look(page, *at)));
    end.unwrap_or(Region::<F>::PAGE_UNITS) - unit
}

const fn mark(look: Look) -> Mark {
    if look.is_like_mark() {
        Mark::Complete
    } else if look.is_like_blank() {
        Mark::Blank
    } else {
        Mark::Torn
    }
}

fn frame<'a>(found: &Found, mark: Mark, buffer: &'a [u8]) -> FrameSight<'a> {
    let payload = buffer.get(HEADER_BYTES..HEADER_BYTES + found.header.payload());
    let payload = payload.unwrap_or(&[]);
    let state = if found.header.key == KEY_STATE {
        State::decode(payload)
    } else {
        None
    };
    FrameSight {
        units: found.units,
        mark,
        sequence_low: found.header.sequence,
        state: state.map(|(state, _)| StateSight {
            is_boot: state.is_boot,
            sequence: state.sequence,
            base: state.base,
            boot: state.boot,
            low: state.low,
            previous: state.previous,
            limit: state.limit,
            chain: state.chain,
        }),
        is_repaired: found.is_repaired,
        sum: found.sum,
        key: found.header.key,
        payload,
    }
}
