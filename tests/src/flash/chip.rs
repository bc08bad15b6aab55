//! The engine: operations, plans for what goes wrong, counters.

use std::fmt;

use embedded_storage::nor_flash::{NorFlashError, NorFlashErrorKind};

use super::image::{Eye, Verdict};
use super::{Geometry, Image, Operation, Reading, Tear};

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashError {
    /// The power is gone (F9).
    PowerLost,
    /// The call is not aligned to the chip's units (F2).
    NotAligned,
    /// The call leaves the region (F2).
    OutOfBounds,
    /// The chip refused to program the unit at this offset (F2).
    Refused(u32),
    /// The unit at this offset cannot be read: ECC (F8) or an injected read fault (F10).
    Unreadable(u32),
    /// The driver reports a failure: an injected lie, or a page that is broken (F10).
    Driver,
}

impl fmt::Display for FlashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerLost => write!(f, "the power is gone"),
            Self::NotAligned => write!(f, "not aligned"),
            Self::OutOfBounds => write!(f, "out of bounds"),
            Self::Refused(offset) => write!(f, "program refused at {offset:#x}"),
            Self::Unreadable(offset) => write!(f, "unreadable at {offset:#x}"),
            Self::Driver => write!(f, "the driver reports a failure"),
        }
    }
}

impl std::error::Error for FlashError {}

impl NorFlashError for FlashError {
    fn kind(&self) -> NorFlashErrorKind {
        match self {
            Self::NotAligned => NorFlashErrorKind::NotAligned,
            Self::OutOfBounds => NorFlashErrorKind::OutOfBounds,
            Self::PowerLost | Self::Refused(_) | Self::Unreadable(_) | Self::Driver => NorFlashErrorKind::Other,
        }
    }
}

/// A rule of the chip that a store broke; no store that is right ever earns one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abuse {
    /// Where.
    pub offset: u32,
    /// Which rule, in words.
    pub rule: &'static str,
}

/// What really happened to an operation about which the driver lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// All of it.
    Done,
    /// Nothing.
    Nothing,
    /// A part, as after a power cut, but the power stayed on.
    Torn(Tear),
}

/// What the driver said about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// Success.
    Success,
    /// A failure.
    Failure,
}

/// A driver's report that need not match the work done (F10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lie {
    /// What happened.
    pub work: Work,
    /// What was said.
    pub reported: Reported,
}

/// What goes wrong, once, at a numbered operation or read. Numbers are absolute: compare
/// [`Counters::operations`] and [`Counters::reads`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Plan {
    /// Nothing.
    #[default]
    Nothing,
    /// The power goes at this operation.
    Cut {
        /// The number of the operation, the first one being 0.
        at: u64,
        /// What it leaves.
        tear: Tear,
    },
    /// The driver lies about this operation.
    Lie {
        /// The number of the operation.
        at: u64,
        /// The lie.
        lie: Lie,
    },
    /// This read call fails.
    ReadFault {
        /// The number of the read call.
        at: u64,
    },
}

/// What the chip has done since it was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Operations begun: programs and erases, as small as they can be cut.
    pub operations: u64,
    /// Programs begun: write units, or parts of program pages on the RP2040.
    pub programs: u64,
    /// Bytes programmed.
    pub programmed_bytes: u64,
    /// Erases begun.
    pub erases: u64,
    /// Read calls.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Read calls that failed on an unreadable unit.
    pub faults: u64,
    /// Erases of each page.
    pub wear: Vec<u64>,
    /// How often the store broke a rule of the chip.
    pub abuses: u64,
}

impl Counters {
    /// 32-bit words read.
    #[must_use]
    pub const fn read_words(&self) -> u64 {
        self.read_bytes.div_ceil(4)
    }
}

/// An operation as it was about to begin.
#[derive(Debug, Clone)]
pub struct TracedOperation {
    /// Its number, as in [`Counters::operations`].
    pub number: u64,
    /// What it was to do.
    pub operation: Operation,
    /// What the region held.
    pub before: Image,
}

/// A region of simulated flash. The front that stores see is [`super::SimFlash`].
#[derive(Debug)]
pub struct Chip {
    image: Image,
    eye: Eye,
    powered: bool,
    plan: Plan,
    counters: Counters,
    abuse: Option<Abuse>,
    broken: u64,
    trace: Option<Vec<TracedOperation>>,
}

impl Chip {
    /// A blank region of `pages` pages (1 to 64) with the power on.
    ///
    /// # Panics
    ///
    /// When `pages` is out of range.
    #[must_use]
    pub fn new(geometry: &'static Geometry, pages: usize) -> Self {
        Self::with_image(Image::blank(geometry, pages))
    }

    /// A region that holds `image`, with the power on and cells read as left.
    #[must_use]
    pub fn with_image(image: Image) -> Self {
        let counters = Counters {
            wear: vec![0; image.pages()],
            ..Counters::default()
        };
        Self {
            image,
            eye: Eye::new(Reading::AsLeft),
            powered: true,
            plan: Plan::Nothing,
            counters,
            abuse: None,
            broken: 0,
            trace: None,
        }
    }

    /// The chip's kind.
    #[must_use]
    pub const fn geometry(&self) -> &'static Geometry {
        self.image.geometry()
    }

    /// What the region holds; clone it for a snapshot.
    #[must_use]
    pub const fn image(&self) -> &Image {
        &self.image
    }

    /// The region's content, to damage it by hand.
    pub const fn image_mut(&mut self) -> &mut Image {
        &mut self.image
    }

    /// Puts a snapshot back. Counters, plan and power stay as they are.
    ///
    /// # Panics
    ///
    /// When the snapshot is of another size or kind of chip.
    pub fn restore(&mut self, image: &Image) {
        assert_eq!(image.geometry(), self.geometry(), "an image of another chip");
        assert_eq!(image.pages(), self.image.pages(), "an image of another size");
        self.image.clone_from(image);
    }

    /// Switches the power on, or off and on again. No plan is armed afterwards.
    pub const fn power_up(&mut self, reading: Reading) {
        self.eye = Eye::new(reading);
        self.powered = true;
        self.plan = Plan::Nothing;
    }

    /// Switches the power off between operations.
    pub const fn power_down(&mut self) {
        self.powered = false;
    }

    /// Whether the power is on.
    #[must_use]
    pub const fn is_powered(&self) -> bool {
        self.powered
    }

    /// Plans what goes wrong next; replaces the plan before.
    pub const fn arm(&mut self, plan: Plan) {
        self.plan = plan;
    }

    /// Breaks a page for good: its erases and programs fail and change nothing, or heals it.
    pub const fn set_broken(&mut self, page: usize, broken: bool) {
        if broken {
            self.broken |= 1 << page;
        } else {
            self.broken &= !(1 << page);
        }
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The first rule that the store broke, if any.
    #[must_use]
    pub const fn abuse(&self) -> Option<Abuse> {
        self.abuse
    }

    /// Begins to record every operation with what the region held before it.
    pub fn start_trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// Ends the recording and gives what was recorded; empty without one.
    #[must_use]
    pub fn take_trace(&mut self) -> Vec<TracedOperation> {
        self.trace.take().unwrap_or_default()
    }

    /// Reads from the region.
    ///
    /// # Errors
    ///
    /// Without power, out of bounds, on a planned fault, on an unreadable unit.
    pub fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), FlashError> {
        if !self.powered {
            return Err(FlashError::PowerLost);
        }
        self.check_bounds(offset, bytes.len())?;
        let number = self.counters.reads;
        self.counters.reads += 1;
        self.counters.read_bytes += bytes.len() as u64;
        if let Plan::ReadFault { at } = self.plan
            && at == number
        {
            self.plan = Plan::Nothing;
            return Err(FlashError::Unreadable(offset));
        }
        self.image.read(offset, bytes, &mut self.eye).map_err(|offset| {
            self.counters.faults += 1;
            FlashError::Unreadable(offset)
        })
    }

    /// Programs whole units, one operation after the other.
    ///
    /// # Errors
    ///
    /// Without power, when the chip refuses, when the driver is planned to report a failure.
    pub fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), FlashError> {
        if !self.powered {
            return Err(FlashError::PowerLost);
        }
        self.check_bounds(offset, bytes.len())?;
        let (unit, page) = (self.geometry().write_size_bytes, self.geometry().program_size_bytes);
        if !(offset as usize).is_multiple_of(unit) || !bytes.len().is_multiple_of(unit) {
            self.blame(offset, "writes are aligned to the write unit");
            return Err(FlashError::NotAligned);
        }
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let room = page - at as usize % page;
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.program(at, now)?;
            at += now.len() as u32;
            rest = later;
        }
        Ok(())
    }

    /// Erases the pages from `from` up to `to`, one operation each.
    ///
    /// # Errors
    ///
    /// Without power, when the range is not one of whole pages, when the driver is planned to
    /// report a failure.
    pub fn erase(&mut self, from: u32, to: u32) -> Result<(), FlashError> {
        if !self.powered {
            return Err(FlashError::PowerLost);
        }
        let size = self.geometry().erase_size_bytes;
        let Some(len) = to.checked_sub(from) else {
            self.blame(from, "an erase ends after it begins");
            return Err(FlashError::OutOfBounds);
        };
        self.check_bounds(from, len as usize)?;
        if !(from as usize).is_multiple_of(size) || !(to as usize).is_multiple_of(size) {
            self.blame(from, "erases are of whole pages");
            return Err(FlashError::NotAligned);
        }
        (from as usize / size..to as usize / size).try_for_each(|page| self.erase_page(page))
    }

    fn program(&mut self, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        self.counters.programs += 1;
        self.counters.programmed_bytes += data.len() as u64;
        let describe = || Operation::Program {
            offset,
            data: data.to_vec(),
        };
        let page = self.geometry().page_of(offset);
        self.run(page, describe, |chip| match chip.image.program(offset, data) {
            Verdict::Done => Ok(()),
            Verdict::Refused { abuse } => {
                if abuse {
                    chip.blame(offset, "a unit is programmed no more often than the chip allows");
                }
                Err(FlashError::Refused(offset))
            }
            Verdict::Destroyed { abuse } => {
                if abuse {
                    chip.blame(offset, "a programmed unit is not programmed again");
                }
                Ok(())
            }
        })
    }

    fn erase_page(&mut self, page: usize) -> Result<(), FlashError> {
        self.counters.erases += 1;
        self.counters.wear[page] += 1;
        self.run(
            page,
            || Operation::Erase { page },
            |chip| {
                chip.image.erase(page);
                Ok(())
            },
        )
    }

    /// Numbers and traces one operation, then does it as the plan says.
    fn run(
        &mut self,
        page: usize,
        describe: impl Fn() -> Operation,
        work: impl FnOnce(&mut Self) -> Result<(), FlashError>,
    ) -> Result<(), FlashError> {
        let number = self.counters.operations;
        self.counters.operations += 1;
        if let Some(trace) = &mut self.trace {
            let before = self.image.clone();
            trace.push(TracedOperation {
                number,
                operation: describe(),
                before,
            });
        }
        match self.plan {
            Plan::Cut { at, tear } if at == number => {
                self.image.tear(&describe(), &tear);
                self.powered = false;
                Err(FlashError::PowerLost)
            }
            Plan::Lie { at, lie } if at == number => {
                self.plan = Plan::Nothing;
                match lie.work {
                    Work::Done => work(self)?,
                    Work::Nothing => {}
                    Work::Torn(tear) => self.image.tear(&describe(), &tear),
                }
                match lie.reported {
                    Reported::Success => Ok(()),
                    Reported::Failure => Err(FlashError::Driver),
                }
            }
            _ if self.broken & (1 << page) != 0 => Err(FlashError::Driver),
            Plan::Nothing | Plan::Cut { .. } | Plan::Lie { .. } | Plan::ReadFault { .. } => work(self),
        }
    }

    fn check_bounds(&mut self, offset: u32, len: usize) -> Result<(), FlashError> {
        let size = self.image.size_bytes();
        if len > size || offset as usize > size - len {
            self.blame(offset, "calls stay inside the region");
            return Err(FlashError::OutOfBounds);
        }
        Ok(())
    }

    fn blame(&mut self, offset: u32, rule: &'static str) {
        self.counters.abuses += 1;
        self.abuse.get_or_insert(Abuse { offset, rule });
    }
}
