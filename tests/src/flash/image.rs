//! What a region of flash holds, marginal cells included: cheap to copy, cheap to compare.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::tear::split_number;
use super::{Geometry, Tear, WriteRule};
use crate::random::{self, Random};

/// How the marginal cells read until the next power-up. Solid cells read the same in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reading {
    /// Every marginal cell reads as it was left; nothing faults.
    AsLeft,
    /// Every marginal cell reads its other value; nothing faults.
    Other,
    /// Torn units of ECC chips fault; every other marginal cell reads as it was left.
    Faulting,
    /// As left for this many reads of marginal units; then torn units of ECC chips fault and other
    /// cells read their other value. Two read-backs can be satisfied before that.
    TurnsAfter(u32),
    /// Each read of a marginal unit chooses anew between the values, mixtures of them and faults.
    Wavering(u64),
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsLeft => write!(f, "left"),
            Self::Other => write!(f, "other"),
            Self::Faulting => write!(f, "faulting"),
            Self::TurnsAfter(reads) => write!(f, "turns{reads}"),
            Self::Wavering(seed) => write!(f, "wavering{seed}"),
        }
    }
}

impl Reading {
    /// Reads the text form back; `None` when it is no reading.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match split_number(text) {
            ("left", None) => Self::AsLeft,
            ("other", None) => Self::Other,
            ("faulting", None) => Self::Faulting,
            ("turns", Some(reads)) => Self::TurnsAfter(reads.try_into().ok()?),
            ("wavering", Some(seed)) => Self::Wavering(seed),
            _ => return None,
        })
    }
}

/// One operation of the chip, as small as it can be cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A program of one unit, or of a part of one program page.
    Program {
        /// Where it begins in the region.
        offset: u32,
        /// The bytes given to the chip.
        data: Vec<u8>,
    },
    /// An erase of one page.
    Erase {
        /// The page.
        page: usize,
    },
}

/// Blocks are what copy-on-write copies: small enough that a copy is cheap, large enough that a
/// snapshot of a large region has few of them.
const BLOCK_SIZE_BYTES_MAX: usize = 2048;

/// The unit belonged to an interrupted operation of an ECC chip: a read may fault.
const TORN: u8 = 0x40;
/// The unit is unreadable until its page is erased.
const DEAD: u8 = 0x80;
/// The bits of a flag that count completed programs.
const PROGRAMS: u8 = 0x3f;

#[derive(Debug, Clone)]
struct Block {
    /// The cells as left.
    cells: Box<[u8]>,
    /// The other value of each cell, where any cell of the block is marginal.
    other: Option<Box<[u8]>>,
    /// One flag a unit; empty under [`WriteRule::AnyTimes`], which has nothing to remember.
    flags: Box<[u8]>,
    /// Whether any flag has `TORN` or `DEAD`.
    faulty: bool,
    digest: OnceLock<u64>,
}

impl Block {
    fn blank(size: usize, flags: usize) -> Self {
        Self {
            cells: vec![0xff; size].into(),
            other: None,
            flags: vec![0; flags].into(),
            faulty: false,
            digest: OnceLock::new(),
        }
    }

    fn digest(&self) -> u64 {
        *self.digest.get_or_init(|| {
            let other = self.other.as_deref().map_or(0, random::digest);
            random::fold(
                random::fold(random::digest(&self.cells), other),
                random::digest(&self.flags),
            )
        })
    }

    /// Restores the canonical form: no second value where none differs, so that equal states have
    /// equal digests.
    fn tidy(&mut self) {
        if self.other.as_deref().is_some_and(|other| *other == *self.cells) {
            self.other = None;
        }
        self.faulty = self.flags.iter().any(|flag| flag & (TORN | DEAD) != 0);
    }

    fn other_mut(&mut self) -> &mut [u8] {
        self.other.get_or_insert_with(|| self.cells.clone())
    }
}

/// Why the chip takes a program of a unit or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Programmed.
    Done,
    /// The rule forbids it and nothing happened. `abuse` is false where the store could not have
    /// known better, because the unit is marginal.
    Refused {
        /// Whether the store broke the rule on a solid unit.
        abuse: bool,
    },
    /// Programmed although the unit had been: it is unreadable now.
    Destroyed {
        /// Whether the store broke the rule on a solid unit.
        abuse: bool,
    },
}

/// A copy of everything that decides how the region will behave: cells, marginal cells, programs
/// counted, half-erased pages. Cloning shares the content until one side changes.
#[derive(Debug, Clone)]
pub struct Image {
    geometry: &'static Geometry,
    blocks: Vec<Arc<Block>>,
    blank: Arc<Block>,
    /// One bit a page: its erase was interrupted (F7).
    half_erased: u64,
    block_size: usize,
}

impl Image {
    /// `pages` pages (1 to 64), erased to completion.
    ///
    /// # Panics
    ///
    /// When `pages` is out of range.
    #[must_use]
    pub fn blank(geometry: &'static Geometry, pages: usize) -> Self {
        assert!((1..=64).contains(&pages), "a region has 1 to 64 pages");
        let block_size = geometry.erase_size_bytes.min(BLOCK_SIZE_BYTES_MAX);
        let flags = match geometry.rule {
            WriteRule::AnyTimes => 0,
            WriteRule::AtMost(_) | WriteRule::OnceOrZeros | WriteRule::Once => block_size / geometry.write_size_bytes,
        };
        let blank = Arc::new(Block::blank(block_size, flags));
        let blocks = vec![blank.clone(); pages * (geometry.erase_size_bytes / block_size)];
        Self {
            geometry,
            blocks,
            blank,
            half_erased: 0,
            block_size,
        }
    }

    /// A solid image of `bytes`, for instance a dump; units that are not blank count as programmed
    /// once. `None` unless the length is a whole number of pages, 1 to 64.
    #[must_use]
    pub fn from_bytes(geometry: &'static Geometry, bytes: &[u8]) -> Option<Self> {
        let pages = bytes.len() / geometry.erase_size_bytes;
        if !bytes.len().is_multiple_of(geometry.erase_size_bytes) || !(1..=64).contains(&pages) {
            return None;
        }
        let mut image = Self::blank(geometry, pages);
        let size = image.block_size;
        for (block, chunk) in image.blocks.iter_mut().zip(bytes.chunks(size)) {
            let block = Arc::make_mut(block);
            block.digest = OnceLock::new();
            block.cells.copy_from_slice(chunk);
            for (flag, unit) in block.flags.iter_mut().zip(chunk.chunks(geometry.write_size_bytes)) {
                *flag = u8::from(unit.iter().any(|byte| *byte != 0xff));
            }
        }
        Some(image)
    }

    /// The chip.
    #[must_use]
    pub const fn geometry(&self) -> &'static Geometry {
        self.geometry
    }

    /// The size of the region.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        self.blocks.len() * self.block_size
    }

    /// The number of pages.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.size_bytes() / self.geometry.erase_size_bytes
    }

    /// The cells as left: the content of a dump.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.blocks
            .iter()
            .flat_map(|block| block.cells.iter().copied())
            .collect()
    }

    /// The other value of every cell; equal to [`Image::bytes`] where the cell is solid.
    #[must_use]
    pub fn other_bytes(&self) -> Vec<u8> {
        let other = |block: &Arc<Block>| block.other.as_ref().unwrap_or(&block.cells).to_vec();
        self.blocks.iter().flat_map(other).collect()
    }

    /// Whether any cell is marginal, any page half erased, or any unit able to fault.
    #[must_use]
    pub fn is_solid(&self) -> bool {
        self.half_erased == 0 && self.blocks.iter().all(|block| block.other.is_none() && !block.faulty)
    }

    /// Whether any cell has two values.
    #[must_use]
    pub fn has_marginal_cells(&self) -> bool {
        self.blocks.iter().any(|block| block.other.is_some())
    }

    /// Whether any unit can fault, or always does.
    #[must_use]
    pub fn has_faulty_units(&self) -> bool {
        self.blocks.iter().any(|block| block.faulty)
    }

    /// Whether the erase of `page` was interrupted and none has completed since.
    #[must_use]
    pub const fn is_half_erased(&self, page: usize) -> bool {
        self.half_erased & (1 << page) != 0
    }

    /// A digest of the image with its marginal set: equal for images that behave equally.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.blocks
            .iter()
            .fold(self.half_erased, |sum, block| random::fold(sum, block.digest()))
    }

    /// Flips one solid bit, as a worn or disturbed cell does.
    ///
    /// # Panics
    ///
    /// When `offset` is outside the region.
    pub fn flip_bit(&mut self, offset: u32, bit: u8) {
        let (block, at) = self.block_mut(offset as usize);
        let mask = 1 << (bit & 7);
        block.cells[at] ^= mask;
        if let Some(other) = &mut block.other {
            other[at] ^= mask;
        }
    }

    /// Makes the page blank and solid, as a completed erase does.
    pub(super) fn erase(&mut self, page: usize) {
        for index in self.blocks_of(page) {
            self.blocks[index] = self.blank.clone();
        }
        self.half_erased &= !(1 << page);
    }

    /// Programs one operation's worth of whole units to completion.
    pub(super) fn program(&mut self, offset: u32, data: &[u8]) -> Verdict {
        let (rule, unit) = (self.geometry.rule, self.geometry.write_size_bytes);
        let weak = self.is_half_erased(self.geometry.page_of(offset));
        if rule == WriteRule::AnyTimes {
            return self.program_any_times(offset, data, weak);
        }
        debug_assert_eq!(data.len(), unit);
        let (block, at) = self.block_mut(offset as usize);
        let flag = block.flags[at / unit];
        let blank = block.cells[at..at + unit].iter().all(|cell| *cell == 0xff);
        let zeros = data.iter().all(|byte| *byte == 0);
        let solid = flag & TORN == 0 && !weak;
        let programmed = flag & PROGRAMS != 0;
        let verdict = match rule {
            WriteRule::AnyTimes => Verdict::Done,
            WriteRule::AtMost(times) if flag & PROGRAMS >= times => {
                return Verdict::Refused { abuse: true };
            }
            WriteRule::AtMost(_) => Verdict::Done,
            WriteRule::OnceOrZeros if !zeros && (!blank || programmed) => {
                return Verdict::Refused { abuse: solid };
            }
            WriteRule::OnceOrZeros => Verdict::Done,
            WriteRule::Once if !blank || programmed || flag & DEAD != 0 => Verdict::Destroyed {
                abuse: solid && programmed,
            },
            WriteRule::Once => Verdict::Done,
        };
        if block.other.is_none() && weak {
            block.other_mut();
        }
        let mut still_marginal = weak;
        for (i, byte) in data.iter().enumerate() {
            block.cells[at + i] &= byte;
            if let Some(other) = &mut block.other {
                if !weak {
                    other[at + i] &= byte;
                }
                still_marginal |= other[at + i] != block.cells[at + i];
            }
        }
        let mut now = ((flag & PROGRAMS) + 1).min(PROGRAMS);
        if rule.has_ecc() && still_marginal {
            now |= TORN;
        }
        if matches!(verdict, Verdict::Destroyed { .. }) {
            now |= DEAD;
        }
        block.flags[at / unit] = now;
        if block.other.is_some() || block.faulty || now & (TORN | DEAD) != 0 {
            block.tidy();
        }
        verdict
    }

    fn program_any_times(&mut self, offset: u32, data: &[u8], weak: bool) -> Verdict {
        self.for_each_block(offset, data.len(), |block, at, range| {
            if weak {
                block.other_mut();
            }
            let data = &data[range];
            for (cell, byte) in block.cells[at..].iter_mut().zip(data) {
                *cell &= byte;
            }
            if let Some(other) = &mut block.other {
                if !weak {
                    other[at..].iter_mut().zip(data).for_each(|(cell, byte)| *cell &= byte);
                }
                block.tidy();
            }
        });
        Verdict::Done
    }

    /// The image after a power cut tore `operation`, which was about to change this one.
    #[must_use]
    pub fn torn(&self, operation: &Operation, tear: &Tear) -> Self {
        let mut image = self.clone();
        image.tear(operation, tear);
        image
    }

    /// Tears `operation` in place.
    pub(super) fn tear(&mut self, operation: &Operation, tear: &Tear) {
        match (operation, tear) {
            (Operation::Program { offset, data }, Tear::Program { left, other }) => {
                let (ecc, unit) = (self.geometry.rule.has_ecc(), self.geometry.write_size_bytes);
                // The subset is one of the whole program page, which may span blocks.
                let mut as_left = self.copy(*offset, data.len(), false);
                let mut as_other = self.copy(*offset, data.len(), true);
                left.apply(&mut as_left, data);
                other.apply(&mut as_other, data);
                self.for_each_block(*offset, data.len(), |block, at, range| {
                    let cells = at..at + range.len();
                    block.other_mut()[cells.clone()].copy_from_slice(&as_other[range.clone()]);
                    block.cells[cells].copy_from_slice(&as_left[range]);
                    if ecc {
                        block.flags[at / unit] |= TORN;
                    }
                    block.tidy();
                });
            }
            (Operation::Erase { page }, Tear::Erase { left, other }) => {
                let (ecc, unit) = (self.geometry.rule.has_ecc(), self.geometry.write_size_bytes);
                let size = self.geometry.erase_size_bytes;
                let start = u32::try_from(page * size).expect("regions are below 4 GiB");
                let mut as_left = self.copy(start, size, false);
                let mut as_other = self.copy(start, size, true);
                left.apply(&mut as_left, unit);
                other.apply(&mut as_other, unit);
                let block_size = self.block_size;
                for (i, index) in self.blocks_of(*page).enumerate() {
                    let range = i * block_size..(i + 1) * block_size;
                    let block = Arc::make_mut(&mut self.blocks[index]);
                    block.digest = OnceLock::new();
                    block.cells.copy_from_slice(&as_left[range.clone()]);
                    block.other_mut().copy_from_slice(&as_other[range]);
                    block.flags.fill(if ecc { TORN } else { 0 });
                    block.tidy();
                }
                self.half_erased |= 1 << page;
            }
            (_, Tear::Clean)
            | (Operation::Program { .. }, Tear::Erase { .. })
            | (Operation::Erase { .. }, Tear::Program { .. }) => {}
        }
    }

    /// Reads `bytes.len()` bytes, or gives the offset of the unit that faulted.
    pub(super) fn read(&self, offset: u32, bytes: &mut [u8], eye: &mut Eye) -> Result<(), u32> {
        let mut done = 0;
        while done < bytes.len() {
            let position = offset as usize + done;
            let (index, at) = (position / self.block_size, position % self.block_size);
            let part = (bytes.len() - done).min(self.block_size - at);
            let out = &mut bytes[done..done + part];
            let block = &self.blocks[index];
            out.copy_from_slice(&block.cells[at..at + part]);
            if block.other.is_some() || block.faulty {
                self.read_marginal(block, at, out, eye)
                    .map_err(|at| (index * self.block_size + at) as u32)?;
            }
            done += part;
        }
        Ok(())
    }

    /// Corrects `out`, which holds the cells as left, for units that are marginal or faulty.
    fn read_marginal(&self, block: &Block, at: usize, out: &mut [u8], eye: &mut Eye) -> Result<(), usize> {
        let unit = self.geometry.write_size_bytes;
        let (mut position, end) = (at, at + out.len());
        while position < end {
            let next = ((position / unit + 1) * unit).min(end);
            let flag = block.flags.get(position / unit).copied().unwrap_or(0);
            if flag & DEAD != 0 {
                return Err(position);
            }
            let range = position..next;
            let other = block
                .other
                .as_deref()
                .map_or(&block.cells[range.clone()], |other| &other[range.clone()]);
            if flag & TORN != 0 || *other != block.cells[range] {
                match eye.look(flag & TORN != 0) {
                    Look::Left => {}
                    Look::Other => out[position - at..next - at].copy_from_slice(other),
                    Look::Fault => return Err(position),
                    Look::Mixture => {
                        for (cell, other) in out[position - at..next - at].iter_mut().zip(other) {
                            *cell ^= (*cell ^ other) & eye.random.byte();
                        }
                    }
                }
            }
            position = next;
        }
        Ok(())
    }

    fn copy(&self, offset: u32, len: usize, other: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        let mut position = offset as usize;
        while bytes.len() < len {
            let (index, at) = (position / self.block_size, position % self.block_size);
            let part = (len - bytes.len()).min(self.block_size - at);
            let block = &self.blocks[index];
            let cells = if other {
                block.other.as_ref().unwrap_or(&block.cells)
            } else {
                &block.cells
            };
            bytes.extend_from_slice(&cells[at..at + part]);
            position += part;
        }
        bytes
    }

    fn blocks_of(&self, page: usize) -> Range<usize> {
        let count = self.geometry.erase_size_bytes / self.block_size;
        page * count..(page + 1) * count
    }

    /// The block that holds `offset`, no longer shared, and the place in it.
    fn block_mut(&mut self, offset: usize) -> (&mut Block, usize) {
        let block = Arc::make_mut(&mut self.blocks[offset / self.block_size]);
        block.digest = OnceLock::new();
        (block, offset % self.block_size)
    }

    /// Calls `change` with each block under the range, the place in it, and the part of the range.
    fn for_each_block(&mut self, offset: u32, len: usize, mut change: impl FnMut(&mut Block, usize, Range<usize>)) {
        let mut done = 0;
        while done < len {
            let position = offset as usize + done;
            let part = (len - done).min(self.block_size - position % self.block_size);
            let (block, at) = self.block_mut(position);
            change(block, at, done..done + part);
            done += part;
        }
    }
}

/// Decides what each read of a marginal unit sees.
#[derive(Debug, Clone)]
pub(super) struct Eye {
    reading: Reading,
    looks: u32,
    random: Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Left,
    Other,
    Mixture,
    Fault,
}

impl Eye {
    pub(super) const fn new(reading: Reading) -> Self {
        let seed = match reading {
            Reading::Wavering(seed) => seed,
            Reading::AsLeft | Reading::Other | Reading::Faulting | Reading::TurnsAfter(_) => 0,
        };
        Self {
            reading,
            looks: 0,
            random: Random::new(seed),
        }
    }

    /// Looks at a marginal unit; `torn` says that it can fault.
    const fn look(&mut self, torn: bool) -> Look {
        self.looks = self.looks.saturating_add(1);
        match self.reading {
            Reading::AsLeft => Look::Left,
            Reading::Other => Look::Other,
            Reading::Faulting if torn => Look::Fault,
            Reading::Faulting => Look::Left,
            Reading::TurnsAfter(reads) if self.looks <= reads => Look::Left,
            Reading::TurnsAfter(_) if torn => Look::Fault,
            Reading::TurnsAfter(_) => Look::Other,
            Reading::Wavering(_) => match self.random.below(if torn { 4 } else { 3 }) {
                0 => Look::Left,
                1 => Look::Other,
                2 => Look::Mixture,
                _ => Look::Fault,
            },
        }
    }
}
