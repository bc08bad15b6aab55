//! What the pieces of an image mean.

use keyfence_firmware::journal::inspect::{HeaderCopy, StateSight, chain_after};
use serde::Serialize;

use super::{Counts, FrameStory, MarkSeen, PageStory, Piece, Rest, Role, Story, Verdict};

/// Kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A cut during the body of a frame.
    TornBody,
    /// A cut before the mark of a frame was complete.
    TornMark,
    /// A mount has settled what a cut had left.
    Settled,
    /// A cut during the erase of a page.
    TornErase,
    /// A cut between an erase and the end of the page's headers.
    TornHeader,
    /// Flipped bits that were put right.
    Repaired,
    /// Something committed that cannot be read.
    Damaged,
    /// Frames or pages are missing.
    Gap,
    /// Parts of the image are of different times or histories.
    RolledBack,
    /// Pages that there can be only once are there twice, or two histories have parted.
    Cloned,
    /// Pages of another ledger.
    Foreign,
    /// The region holds no ledger, or one of another format.
    NoLedger,
}

/// Something worth saying.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The page, where it has one.
    pub page: Option<usize>,
    /// The offset in the image, where it has one.
    pub offset: Option<usize>,
    /// In words.
    pub text: String,
}

impl Finding {
    fn at(kind: FindingKind, page: usize, offset: usize, text: String) -> Self {
        Self {
            kind,
            page: Some(page),
            offset: Some(offset),
            text,
        }
    }

    const fn of_all(kind: FindingKind, text: String) -> Self {
        Self {
            kind,
            page: None,
            offset: None,
            text,
        }
    }
}

/// Where the history stands after the frames that were shown so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct History {
    sequence: Option<u64>,
    chain: Option<u32>,
    boot: u32,
}

impl History {
    /// Says what a frame counts for, given the one behind it, and goes on.
    pub(super) fn frame(
        &mut self,
        frame: &mut FrameStory,
        retired: bool,
        next: Option<&FrameStory>,
        findings: &mut Vec<Finding>,
    ) {
        let due = self.sequence.map(|sequence| sequence + 1);
        let by_low = due.filter(|due| (*due & 0x3f) as u8 == frame.low);
        frame.sequence = frame.state.map(|state| state.sequence).or(by_low);
        let mut found = |kind, text| {
            if !retired {
                findings.push(Finding::at(kind, frame.page, frame.offset, text));
            }
        };
        let number = frame
            .sequence
            .map_or_else(|| "a frame".to_owned(), |n| format!("frame {n}"));
        if frame.repaired {
            found(
                FindingKind::Repaired,
                format!("{number} has flipped bits; its check sum puts them right"),
            );
        }
        if frame.senseless {
            found(
                FindingKind::Damaged,
                format!("{number} is good and its content makes no sense"),
            );
        }
        let is_counted = frame.mark == MarkSeen::Complete || {
            let how = if frame.mark == MarkSeen::Blank {
                "before its mark"
            } else {
                "during its mark"
            };
            let (counts, text) = unmarked(frame.sequence, next);
            found(
                FindingKind::TornMark,
                format!("{number}: the power went {how}, so it was not acknowledged; {text}"),
            );
            counts
        };
        frame.counts = match (is_counted, retired, frame.mark) {
            (false, ..) => Counts::Dropped,
            (true, true, _) => Counts::Retired,
            (true, false, MarkSeen::Complete) => Counts::Committed,
            (true, false, MarkSeen::Blank | MarkSeen::Torn) => Counts::RolledForward,
        };
        if !is_counted {
            return;
        }
        match frame.state {
            Some(state) => self.absolute(state, &mut found),
            None if frame.sequence.is_none() && self.sequence.is_some() => {
                found(FindingKind::Gap, "committed frames are missing before this one".into());
                // The next number that ends like this one's.
                let least = due.unwrap_or(0);
                frame.sequence = (least..=least + 0x3f).find(|n| (*n & 0x3f) as u8 == frame.low);
                self.chain = None;
            }
            None => {}
        }
        let before = frame.state.map(|state| state.chain).or(self.chain);
        frame.chain = before.map(|chain| chain_after(chain, frame.sum));
        (self.sequence, self.chain) = (frame.sequence, frame.chain);
    }

    fn absolute(&mut self, state: StateSight, found: &mut impl FnMut(FindingKind, String)) {
        let Some(sequence) = self.sequence else {
            self.boot = state.boot;
            return;
        };
        let reaches = if state.is_boot { state.base } else { state.sequence - 1 };
        if reaches > sequence {
            found(
                FindingKind::Gap,
                format!("frames {} to {reaches} are missing before this one", sequence + 1),
            );
        } else if state.sequence <= sequence && !state.is_boot {
            found(
                FindingKind::RolledBack,
                format!(
                    "frame {} comes after frame {sequence}: pages of two times",
                    state.sequence
                ),
            );
        }
        if state.boot < self.boot || (state.is_boot && state.boot == self.boot) {
            found(
                FindingKind::RolledBack,
                format!("boot {} comes after boot {}: pages of two times", state.boot, self.boot),
            );
        }
        let is_next = state.sequence == sequence + 1;
        if is_next && self.chain.is_some_and(|chain| chain != state.chain) {
            found(
                FindingKind::Cloned,
                format!("the chain before frame {} is that of another history", state.sequence),
            );
        }
        self.boot = state.boot;
    }

    /// Says what a piece between frames means. `is_followed`: frames come behind it.
    pub(super) fn rest(&self, piece: &Piece, offset: usize, is_followed: bool, findings: &mut Vec<Finding>) {
        let units = if piece.units == 1 {
            "1 unit".to_owned()
        } else {
            format!("{} units", piece.units)
        };
        let (kind, text) = match piece.rest {
            Rest::Junk if is_followed => (
                FindingKind::TornBody,
                format!("{units} of a frame whose body was cut; it was never acknowledged, and a mount has dropped it"),
            ),
            Rest::Junk => (
                FindingKind::TornBody,
                format!(
                    "{units} of a frame whose body was cut; it was never acknowledged, and the next mount drops it"
                ),
            ),
            Rest::Zeros => (
                FindingKind::Settled,
                format!("{units} of zeros: a mount has settled here, so that nothing weak is read later"),
            ),
            Rest::Damaged => (
                FindingKind::Damaged,
                format!("a committed frame of {units} cannot be put right"),
            ),
        };
        findings.push(Finding::at(kind, piece.page, offset, text));
    }
}

/// Whether a frame without a complete mark counts, and what to say about that.
fn unmarked(sequence: Option<u64>, next: Option<&FrameStory>) -> (bool, &'static str) {
    let Some(next) = next else {
        return (true, "the next mount counts it and says so in its boot frame");
    };
    let Some(sequence) = sequence else {
        return (false, "it does not follow the frames before it, and is dropped");
    };
    match next.state {
        Some(state) if state.is_boot && state.sequence == sequence + 1 => (true, "the boot behind it has counted it"),
        Some(state) if !state.is_boot && state.sequence == sequence + 1 => (true, "what follows shows that it counted"),
        None if next.low == ((sequence + 1) & 0x3f) as u8 => (true, "what follows shows that it counted"),
        Some(_) | None => (false, "the boot behind it could not read it, and dropped it"),
    }
}

/// What the headers of a page mean.
pub(super) fn page(
    page: &PageStory,
    copies: &[HeaderCopy; 2],
    is_blank: bool,
    offset: usize,
    findings: &mut Vec<Finding>,
) {
    let number = page.page;
    let (kind, text) = match (copies, page.role) {
        ([HeaderCopy::Good { .. }, HeaderCopy::Good { .. }], _) => return,
        ([HeaderCopy::Good { .. }, HeaderCopy::Blank], Role::Prepared | Role::Retired | Role::Headless) => (
            FindingKind::TornHeader,
            "the power went between the two header copies; the page is erased again before it is used",
        ),
        ([HeaderCopy::Good { .. }, _], Role::Prepared) => (
            FindingKind::TornHeader,
            "the power went during the second header copy, after the erase was complete",
        ),
        ([HeaderCopy::Good { .. }, _] | [_, HeaderCopy::Good { .. }], Role::Live) => (
            FindingKind::Repaired,
            "one header copy has flipped bits; the other one stands for it",
        ),
        ([HeaderCopy::Good { .. }, _] | [_, HeaderCopy::Good { .. }], _) => (
            FindingKind::TornErase,
            "the power went during its erase; nothing in it counts",
        ),
        ([HeaderCopy::Unsupported(_), _] | [_, HeaderCopy::Unsupported(_)], _) => (
            FindingKind::NoLedger,
            "it is of a format version that this program does not know",
        ),
        ([HeaderCopy::Blank, HeaderCopy::Blank], _) if is_blank => (
            FindingKind::TornHeader,
            "it is blank: the power went between its erase and its first header copy, or it was never used",
        ),
        ([HeaderCopy::Blank | HeaderCopy::Bad, HeaderCopy::Blank | HeaderCopy::Bad], _) => (
            FindingKind::TornErase,
            "no header copy can be read: the power went during its erase or its first header copy, or it is damaged",
        ),
    };
    findings.push(Finding::at(kind, number, offset, format!("page {number}: {text}")));
}

/// What a refusal to mount means.
pub(super) fn verdict(verdict: &Verdict, findings: &mut Vec<Finding>) {
    let Verdict::Refused { why, .. } = verdict else {
        return;
    };
    let words = [
        (
            "DuplicatePage",
            FindingKind::Cloned,
            "two pages of the same generation: one was copied from the other or from another image",
        ),
        (
            "ForeignPage",
            FindingKind::Foreign,
            "pages of two ledgers: a re-provisioning was cut, or pages of another chip were put in",
        ),
        (
            "MisplacedPage",
            FindingKind::Foreign,
            "a page lies where another one belongs, or the region had another size",
        ),
        (
            "MissingFrames",
            FindingKind::RolledBack,
            "committed frames are missing: a page was put back to an earlier state, or lost",
        ),
        (
            "MissingPage",
            FindingKind::RolledBack,
            "a page with committed frames is missing: it was lost, or others were put back",
        ),
        (
            "Unprovisioned",
            FindingKind::NoLedger,
            "no ledger was ever provisioned here, or its provisioning was cut",
        ),
        ("Unsupported", FindingKind::NoLedger, "the format is of another version"),
    ];
    let known = words.into_iter().find(|(word, ..)| why.contains(word));
    let (_, kind, text) = known.unwrap_or(("", FindingKind::Damaged, "a committed frame is damaged"));
    findings.push(Finding::of_all(
        kind,
        format!("a mount refuses this region ({why}): {text}"),
    ));
}

/// What comparing with an earlier image of the same ledger shows.
#[must_use]
pub fn compare(now: &Story, earlier: &Story) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |kind, text| findings.push(Finding::of_all(kind, text));
    let (
        Verdict::Sound {
            sequence,
            boot,
            instance,
            ..
        },
        Verdict::Sound {
            sequence: then,
            boot: boot_then,
            instance: instance_then,
            ..
        },
    ) = (&now.verdict, &earlier.verdict)
    else {
        found(
            FindingKind::NoLedger,
            "one of the two images is not sound; nothing can be compared".into(),
        );
        return findings;
    };
    if instance != instance_then {
        found(
            FindingKind::Foreign,
            format!("another ledger: instance {instance}, not {instance_then}"),
        );
        return findings;
    }
    if sequence < then || boot < boot_then {
        found(
            FindingKind::RolledBack,
            format!(
                "rolled back: this image ends at frame {sequence} of boot {boot}, the earlier one at frame {then} of boot {boot_then}"
            ),
        );
    }
    let counted = |story: &Story| -> Vec<(u64, u32)> {
        let frames = story.frames.iter().filter(|frame| frame.counts != Counts::Dropped);
        frames
            .filter_map(|frame| Some((frame.sequence?, frame.chain?)))
            .collect()
    };
    let (mine, theirs) = (counted(now), counted(earlier));
    let shared = mine.iter().filter_map(|(n, chain)| {
        let other = theirs.iter().find(|(other, _)| other == n);
        other.map(|(_, other)| (*n, chain == other))
    });
    let shared: Vec<(u64, bool)> = shared.collect();
    if let Some((n, _)) = shared.iter().find(|(_, same)| !same) {
        found(
            FindingKind::Cloned,
            format!("parted: frame {n} is another one than in the earlier image; both were written to"),
        );
    }
    findings
}
