//! The story of a region image: every frame in order, what counts, what was torn and which cut explains it.
//!
//! The bytes are decoded by the journal itself (`keyfence_firmware::journal::inspect`), and whether the region is sound is
//! what a mount says. This module only puts the pieces in order and says in words what they mean.

mod findings;
mod text;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use keyfence_firmware::journal::inspect::{FrameSight, HeaderCopy, Mark, RecordSight, Sight, StateSight, walk};
use keyfence_firmware::journal::{Damage, Journal, MountError, Report};
use serde::Serialize;

use super::stores::on_chip;
use crate::flash::{Chip, GEOMETRIES, Geometry, Image, SharedChip, SimFlash};

pub use findings::{Finding, FindingKind, compare};

/// As many keys as a journal can have.
const KEYS: usize = 0xf0;
/// As many pages as a region can have.
const PAGES: usize = 64;
/// The largest frame.
const FRAME: usize = 1012;

/// Why an image has no story.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// The image is no region of this geometry.
    #[error("{bytes} bytes are not 1 to 64 whole pages of {page} bytes ({name})")]
    Size {
        /// Its length.
        bytes: usize,
        /// The page of the geometry.
        page: usize,
        /// The geometry.
        name: &'static str,
    },
    /// No geometry was given, and no page header says which.
    #[error("no page header of a known geometry is in it: say which chip it is from")]
    NoHeader,
}

/// The verdict of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "mount", rename_all = "snake_case")]
pub enum Verdict {
    /// It would be mounted.
    Sound {
        /// The last boot.
        boot: u32,
        /// The highest sequence number.
        sequence: u64,
        /// No token above this one was handed out.
        limit: u64,
        /// The chain value over the whole history.
        chain: u32,
        /// Which ledger it is.
        instance: u32,
        /// Frames in which flipped bits were put right.
        repaired: u16,
    },
    /// It would be refused.
    Refused {
        /// Why.
        why: String,
        /// The page, where one is to blame.
        page: Option<u8>,
        /// The unit in the page.
        unit: Option<u16>,
    },
}

/// What a page is to the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It holds frames that count.
    Live,
    /// It was erased and headed for use later.
    Prepared,
    /// Its frames count no more; it waits for its erase.
    Retired,
    /// It has no valid header.
    Headless,
}

/// One page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PageStory {
    /// Its place in the region.
    pub page: usize,
    /// What it is to the history.
    pub role: Role,
    /// Its generation, when it has a header.
    pub generation: Option<u32>,
    /// How often it was erased, when it has a header.
    pub erases: Option<u32>,
    /// The ledger that it belongs to, when it has a header.
    pub instance: Option<u32>,
    /// Its two header copies: `blank`, `bad`, `good` or `unsupported`.
    pub headers: [&'static str; 2],
    /// Good frames in it.
    pub frames: usize,
    /// Units behind the last one that is not blank.
    pub blank_units: usize,
}

/// What a frame counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counts {
    /// Committed, in a page that counts.
    Committed,
    /// Not marked, and counted all the same: the last one, or the next one says so.
    RolledForward,
    /// Not marked and dropped: it was never acknowledged.
    Dropped,
    /// In a page that counts no more.
    Retired,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FrameStory {
    /// The page.
    pub page: usize,
    /// The unit in the page.
    pub unit: usize,
    /// The offset in the image.
    pub offset: usize,
    /// Units of the body, without the mark.
    pub units: usize,
    /// Its sequence number, as far as the frames before it tell.
    pub sequence: Option<u64>,
    /// `boot`, `absolute` or `batch` or `record`.
    pub kind: &'static str,
    /// What it counts for.
    pub counts: Counts,
    /// The boot that it says it is of.
    pub boot: Option<u32>,
    /// The limit of the tokens that it says.
    pub limit: Option<u64>,
    /// The chain value after it.
    pub chain: Option<u32>,
    /// Records put, with their length; deleted ones have length 0.
    pub records: BTreeMap<u8, usize>,
    /// Keys whose newest record is this one.
    pub live: Vec<u8>,
    /// Whether it holds a checkpoint.
    pub checkpoint: bool,
    /// Whether flipped bits were put right to read it.
    pub repaired: bool,
    #[serde(skip)]
    mark: MarkSeen,
    #[serde(skip)]
    state: Option<StateSight>,
    #[serde(skip)]
    low: u8,
    #[serde(skip)]
    sum: u32,
    #[serde(skip)]
    senseless: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkSeen {
    Blank,
    Complete,
    Torn,
}

/// What lies between frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Junk,
    Zeros,
    Damaged,
}

/// A piece that is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    page: usize,
    unit: usize,
    units: usize,
    rest: Rest,
}

/// The whole story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Story {
    /// The geometry that it was read as.
    pub geometry: &'static str,
    /// Bytes of a unit.
    pub unit_bytes: usize,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// What a mount says.
    pub verdict: Verdict,
    /// The pages, by their place.
    pub pages: Vec<PageStory>,
    /// The frames, in the order of the history.
    pub frames: Vec<FrameStory>,
    /// What is worth saying, in the order of the history.
    pub findings: Vec<Finding>,
}

/// The geometry whose page headers are in the image. Chips that write single bytes use units of four, and their regions read
/// the same as those of chips that write four: the latter are named.
#[must_use]
pub fn guess(bytes: &[u8]) -> Option<&'static Geometry> {
    let mut geometries = GEOMETRIES.iter().filter(|geometry| geometry.write_size_bytes >= 4);
    geometries.find(|geometry| {
        inspect(geometry, bytes).is_ok_and(|story| {
            let placed = |page: &PageStory| page.generation.is_some();
            story.pages.iter().any(placed) && !is_misplaced(&story.verdict)
        })
    })
}

fn is_misplaced(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Refused { why, .. } if why.contains("MisplacedPage"))
}

/// Tells the story of `bytes`, read as a region of `geometry`.
///
/// # Errors
///
/// When the length is not one of whole pages. Any content has a story.
pub fn inspect(geometry: &'static Geometry, bytes: &[u8]) -> Result<Story, InspectError> {
    let image = Image::from_bytes(geometry, bytes).ok_or(InspectError::Size {
        bytes: bytes.len(),
        page: geometry.erase_size_bytes,
        name: geometry.name,
    })?;
    let chip: SharedChip = Rc::new(RefCell::new(Chip::with_image(image)));
    Ok(on_chip!(&chip, told))
}

fn told<const WRITE: usize, const ERASE: usize>(chip: &SharedChip) -> Story {
    let size = chip.borrow().image().size_bytes() as u32;
    let geometry = chip.borrow().geometry();
    let mut flash = SimFlash::<WRITE, ERASE>::on(chip.clone());
    let mut journal = Box::new(Journal::<_, PAGES, KEYS, FRAME>::new(flash.clone(), 0..size, 1));
    let verdict = match journal.mount() {
        Ok(()) => sound(journal.report()),
        Err(error) => refused(error),
    };
    let unit_bytes = if WRITE < 4 { 4 } else { WRITE };
    let mut pieces = Pieces::new(unit_bytes, ERASE);
    // Mounted before, so that the range is a region; where it was not, there is nothing to show.
    let walked = walk(&mut flash, &(0..size), |page, unit, sight| {
        pieces.add(page, unit, sight)
    });
    let mut story = Story {
        geometry: geometry.name,
        unit_bytes,
        page_bytes: ERASE,
        verdict,
        pages: Vec::new(),
        frames: Vec::new(),
        findings: Vec::new(),
    };
    if walked.is_ok() {
        pieces.into_story(&mut story, |key| journal.place_of(key));
    }
    story
}

fn sound(report: Option<Report>) -> Verdict {
    report.map_or_else(
        || Verdict::Refused {
            why: "nothing was mounted".into(),
            page: None,
            unit: None,
        },
        |report| Verdict::Sound {
            boot: report.boot,
            sequence: report.sequence,
            limit: report.limit,
            chain: report.chain,
            instance: report.instance,
            repaired: report.repaired,
        },
    )
}

fn refused(error: MountError) -> Verdict {
    let (why, place) = match error {
        MountError::Damaged(Damage { page, unit, why }) => (format!("Damaged: {why:?}"), Some((page, unit))),
        MountError::Geometry(error) => (format!("Geometry: {error:?}"), None),
        MountError::Unprovisioned => ("Unprovisioned".into(), None),
        MountError::Unsupported { version } => (format!("Unsupported: format version {version}"), None),
    };
    Verdict::Refused {
        why,
        page: place.map(|(page, _)| page),
        unit: place.map(|(_, unit)| unit),
    }
}

/// What the walk has shown, page by page.
struct Pieces {
    unit_bytes: usize,
    page_bytes: usize,
    pages: Vec<(PageStory, [HeaderCopy; 2])>,
    frames: Vec<FrameStory>,
    rests: Vec<Piece>,
}

impl Pieces {
    const fn new(unit_bytes: usize, page_bytes: usize) -> Self {
        Self {
            unit_bytes,
            page_bytes,
            pages: Vec::new(),
            frames: Vec::new(),
            rests: Vec::new(),
        }
    }

    fn add(&mut self, page: usize, unit: usize, sight: Sight<'_>) {
        match sight {
            Sight::Headers(copies) => self.pages.push((page_story(page, &copies), copies)),
            Sight::Blank { units } => {
                if let Some((story, _)) = self.pages.last_mut() {
                    story.blank_units = units;
                }
            }
            Sight::Zeros { units } => self.rest(page, unit, units, Rest::Zeros),
            Sight::Damaged { units } => self.rest(page, unit, units, Rest::Damaged),
            Sight::Junk { units } => self.rest(page, unit, units, Rest::Junk),
            Sight::Frame(frame) => {
                let offset = page * self.page_bytes + unit * self.unit_bytes;
                self.used(page);
                if let Some((story, _)) = self.pages.last_mut() {
                    story.frames += 1;
                }
                self.frames.push(frame_story(page, unit, offset, &frame));
            }
        }
    }

    fn rest(&mut self, page: usize, unit: usize, units: usize, rest: Rest) {
        self.used(page);
        match self.rests.last_mut() {
            Some(last) if last.page == page && last.unit + last.units == unit && last.rest == rest => {
                last.units += units
            }
            Some(_) | None => self.rests.push(Piece {
                page,
                unit,
                units,
                rest,
            }),
        }
    }

    /// The page goes on: the blank units before were not its end.
    fn used(&mut self, page: usize) {
        if let Some((story, _)) = self.pages.last_mut().filter(|(story, _)| story.page == page) {
            story.blank_units = 0;
        }
    }
}

fn page_story(page: usize, copies: &[HeaderCopy; 2]) -> PageStory {
    let name = |copy: &HeaderCopy| match copy {
        HeaderCopy::Blank => "blank",
        HeaderCopy::Bad => "bad",
        HeaderCopy::Unsupported(_) => "unsupported",
        HeaderCopy::Good { .. } => "good",
    };
    let good = copies.iter().find_map(|copy| match copy {
        HeaderCopy::Good {
            generation,
            erases,
            instance,
            ..
        } => Some((*generation, *erases, *instance)),
        HeaderCopy::Blank | HeaderCopy::Bad | HeaderCopy::Unsupported(_) => None,
    });
    PageStory {
        page,
        role: Role::Headless,
        generation: good.map(|(generation, ..)| generation),
        erases: good.map(|(_, erases, _)| erases),
        instance: good.map(|(.., instance)| instance),
        headers: [name(&copies[0]), name(&copies[1])],
        frames: 0,
        blank_units: 0,
    }
}

fn frame_story(page: usize, unit: usize, offset: usize, frame: &FrameSight<'_>) -> FrameStory {
    let (mut records, mut limit, mut checkpoint, mut senseless) = (BTreeMap::new(), None, false, false);
    frame.records(|record| match record {
        RecordSight::Put(key, value) => {
            records.insert(key, value.len());
        }
        RecordSight::Deleted(key) => {
            records.insert(key, 0);
        }
        RecordSight::Limit(value) => limit = Some(value),
        RecordSight::Checkpoint => checkpoint = true,
        RecordSight::Senseless => senseless = true,
    });
    FrameStory {
        page,
        unit,
        offset,
        units: frame.units,
        sequence: frame.state.map(|state| state.sequence),
        kind: match frame.state {
            Some(state) if state.is_boot => "boot",
            Some(_) => "absolute",
            None if frame.is_batch() => "batch",
            None => "record",
        },
        counts: Counts::Retired,
        boot: frame.state.map(|state| state.boot),
        limit: frame.state.map(|state| state.limit).or(limit),
        chain: None,
        records,
        live: Vec::new(),
        checkpoint,
        repaired: frame.is_repaired,
        mark: match frame.mark {
            Mark::Blank => MarkSeen::Blank,
            Mark::Complete => MarkSeen::Complete,
            Mark::Torn => MarkSeen::Torn,
        },
        state: frame.state,
        low: frame.sequence_low,
        sum: frame.sum,
        senseless,
    }
}

impl Pieces {
    /// Puts the pieces into the order of the history and says what they mean.
    fn into_story(mut self, story: &mut Story, live: impl Fn(u8) -> Option<(usize, usize)>) {
        let generations: Vec<Option<u32>> = self.pages.iter().map(|(page, _)| page.generation).collect();
        let generation = |page: usize| generations.get(page).copied().flatten();
        self.frames
            .sort_by_key(|frame| (generation(frame.page), frame.page, frame.unit));
        self.rests
            .sort_by_key(|piece| (generation(piece.page), piece.page, piece.unit));
        // The last state that was committed says which pages count.
        let committed = self.frames.iter().filter(|frame| frame.mark == MarkSeen::Complete);
        let low = committed
            .filter_map(|frame| frame.state)
            .next_back()
            .map_or(0, |state| state.low);
        let newest = self.frames.last().and_then(|frame| generation(frame.page));
        for (page, _) in &mut self.pages {
            page.role = match page.generation {
                None => Role::Headless,
                Some(generation) if generation < low => Role::Retired,
                Some(generation) if newest.is_none_or(|newest| generation > newest) => Role::Prepared,
                Some(_) => Role::Live,
            };
        }
        let counts = |page: usize| generation(page).is_some_and(|generation| generation >= low);
        let place = |page: usize, unit: usize| (generation(page), page, unit);
        let mut history = findings::History::default();
        let mut rests = self.rests.iter().filter(|piece| counts(piece.page)).peekable();
        let mut frames = self.frames.clone();
        for (index, frame) in frames.iter_mut().enumerate() {
            let (page, unit) = (frame.page, frame.unit);
            // What lies before it comes first.
            while let Some(piece) = rests.next_if(|piece| place(piece.page, piece.unit) < place(page, unit)) {
                history.rest(piece, self.offset(piece.page, piece.unit), true, &mut story.findings);
            }
            let next = self.frames.get(index + 1);
            history.frame(frame, !counts(page), next, &mut story.findings);
            let keys = frame.records.keys().copied();
            frame.live = keys.filter(|key| live(*key) == Some((page, unit))).collect();
        }
        for piece in rests {
            history.rest(piece, self.offset(piece.page, piece.unit), false, &mut story.findings);
        }
        for (page, copies) in &self.pages {
            let is_used = |at: usize| at == page.page;
            let is_blank = !self.rests.iter().any(|piece| is_used(piece.page)) && page.frames == 0;
            findings::page(page, copies, is_blank, self.offset(page.page, 0), &mut story.findings);
        }
        findings::verdict(&story.verdict, &mut story.findings);
        story.frames = frames;
        story.pages = self.pages.into_iter().map(|(page, _)| page).collect();
    }

    const fn offset(&self, page: usize, unit: usize) -> usize {
        page * self.page_bytes + unit * self.unit_bytes
    }
}
