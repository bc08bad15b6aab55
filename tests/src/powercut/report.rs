//! What a search has found, as data, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::case::{Case, CutKind, Path};
use super::oracle::Violation;
use super::script::Script;
use super::search::Settings;

/// Failures that are told in full, for each kind of cut.
const TOLD_MAX: usize = 10;

/// Cases of one kind of cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Count {
    /// Cases tried.
    pub cases: u64,
    /// Those that failed.
    pub failures: u64,
}

/// One case that failed.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    pub(super) seed: u64,
    pub(super) kind: CutKind,
    pub(super) case: Case,
    pub(super) during: String,
    pub(super) violation: Violation,
}

/// What one thread has counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    by_cut: BTreeMap<CutKind, Count>,
    by_depth: Vec<Count>,
    by_violation: BTreeMap<&'static str, u64>,
    told: BTreeMap<CutKind, Vec<Failed>>,
    /// Images that were reached again and not tried again.
    pub(super) repeated: u64,
}

impl Tally {
    pub(super) fn count(&mut self, kind: CutKind, depth: usize) {
        self.by_cut.entry(kind).or_default().cases += 1;
        if self.by_depth.len() < depth {
            self.by_depth.resize(depth, Count::default());
        }
        if let Some(count) = depth.checked_sub(1).and_then(|i| self.by_depth.get_mut(i)) {
            count.cases += 1;
        }
    }

    pub(super) fn fail(&mut self, failed: Failed) {
        let kind = failed.kind;
        self.by_cut.entry(kind).or_default().failures += 1;
        if let Some(count) = failed
            .case
            .depth()
            .checked_sub(1)
            .and_then(|i| self.by_depth.get_mut(i))
        {
            count.failures += 1;
        }
        *self.by_violation.entry(failed.violation.kind).or_default() += 1;
        let told = self.told.entry(kind).or_default();
        told.push(failed);
        if told.len() > 4 * TOLD_MAX {
            shorten(told);
        }
    }

    /// A life that failed without any cut.
    pub(super) fn life_failed(&mut self, seed: u64, violation: Violation) {
        self.fail(Failed {
            seed,
            kind: CutKind::Clean,
            case: Case::Cuts(Path::default()),
            during: "the life itself".into(),
            violation,
        });
    }
}

/// Keeps the simplest failures, so that the same ones are told however many threads search.
fn shorten(told: &mut Vec<Failed>) {
    told.sort_by_cached_key(|failed| {
        (
            failed.case.depth(),
            failed.seed,
            failed.case.place(),
            failed.case.to_string(),
        )
    });
    told.truncate(TOLD_MAX);
}

/// A failure as reports tell it.
#[derive(Debug, Clone, Serialize)]
pub struct FailureReport {
    /// The kind of cut.
    pub cut: CutKind,
    /// What the store was doing.
    pub during: String,
    /// The kind of violation.
    pub violation: &'static str,
    /// What was expected and what was seen.
    pub detail: String,
    /// The command that does it again.
    pub replay: String,
}

/// Everything that a search has found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The store.
    pub store: &'static str,
    /// The geometry.
    pub geometry: &'static str,
    /// Pages of the region.
    pub pages: usize,
    /// Commits of the life that was cut.
    pub commits: usize,
    /// Levels of cuts.
    pub depth: usize,
    /// The seed.
    pub seed: u64,
    /// One in this many cuts of recoveries was tried.
    pub sample: u64,
    /// Flash operations of the life.
    pub operations: usize,
    /// Those of them that erase a page.
    pub erases: usize,
    /// Commits of the ageing before the life.
    pub aged_commits: usize,
    /// The commit of the life in which the first page turned.
    pub first_turn: Option<usize>,
    /// Erases of each page, ageing included.
    pub wear: Vec<u64>,
    /// Cases tried.
    pub cases: u64,
    /// Cases that failed.
    pub failures: u64,
    /// Images that were reached again and not tried again.
    pub repeated: u64,
    /// Cases by kind of cut; a case of several cuts counts under the harshest of them.
    pub by_cut: BTreeMap<CutKind, Count>,
    /// Cases by the number of cuts in them, 1 first.
    pub by_depth: Vec<Count>,
    /// Failures by kind of violation.
    pub by_violation: BTreeMap<&'static str, u64>,
    /// The first failures of each kind of cut.
    pub first_failures: Vec<FailureReport>,
    /// Seconds that the search took.
    pub seconds: f64,
    #[serde(skip)]
    told: BTreeMap<CutKind, Vec<Failed>>,
}

impl Report {
    pub(super) fn begin(settings: &Settings, script: &Script) -> Self {
        Self {
            store: settings.store.name,
            geometry: settings.geometry.name,
            pages: script.pages,
            commits: settings.commits,
            depth: settings.depth,
            seed: settings.seed,
            sample: settings.sample,
            operations: script.places.len(),
            erases: script.erases().len(),
            aged_commits: script.aged_commits,
            first_turn: script.first_turn,
            wear: script.wear.clone(),
            cases: 0,
            failures: 0,
            repeated: 0,
            by_cut: CutKind::ALL.map(|kind| (kind, Count::default())).into(),
            by_depth: Vec::new(),
            by_violation: BTreeMap::new(),
            first_failures: Vec::new(),
            seconds: 0.0,
            told: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, tally: Tally) {
        self.repeated += tally.repeated;
        for (kind, count) in tally.by_cut {
            let sum = self.by_cut.entry(kind).or_default();
            sum.cases += count.cases;
            sum.failures += count.failures;
            self.cases += count.cases;
            self.failures += count.failures;
        }
        if self.by_depth.len() < tally.by_depth.len() {
            self.by_depth.resize(tally.by_depth.len(), Count::default());
        }
        for (sum, count) in self.by_depth.iter_mut().zip(tally.by_depth) {
            sum.cases += count.cases;
            sum.failures += count.failures;
        }
        for (kind, count) in tally.by_violation {
            *self.by_violation.entry(kind).or_default() += count;
        }
        for (kind, told) in tally.told {
            let sum = self.told.entry(kind).or_default();
            sum.extend(told);
            shorten(sum);
        }
        self.first_failures = self
            .told
            .iter()
            .flat_map(|(kind, told)| {
                told.iter().map(|failed| FailureReport {
                    cut: *kind,
                    during: failed.during.clone(),
                    violation: failed.violation.kind,
                    detail: failed.violation.detail.clone(),
                    replay: self.replay_command(failed),
                })
            })
            .collect();
    }

    fn replay_command(&self, failed: &Failed) -> String {
        format!(
            "{} sim --store {} --geometry {} --commits {} --seed {} --replay '{}'",
            program(),
            self.store,
            self.geometry,
            self.commits,
            failed.seed,
            failed.case
        )
    }

    /// The counts of `kind`.
    #[must_use]
    pub fn cut(&self, kind: CutKind) -> Count {
        self.by_cut.get(&kind).copied().unwrap_or_default()
    }

    /// Whether nothing failed and every kind of cut was tried.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.failures > 0 {
            Verdict::Failed
        } else if CutKind::ALL
            .into_iter()
            .any(|kind| kind.always_occurs() && self.cut(kind).cases == 0)
        {
            Verdict::Incomplete
        } else {
            Verdict::Held
        }
    }

    /// The report as a table for a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            let _ = out.write_fmt(text);
            out.push('\n');
        };
        line(format_args!(
            "{} on {}: {} pages, {} commits, depth {}, seed {}",
            self.store, self.geometry, self.pages, self.commits, self.depth, self.seed
        ));
        line(format_args!(
            "life: {} operations, {} erases, aged by {} commits, first page turn in commit {}",
            self.operations,
            self.erases,
            self.aged_commits,
            self.first_turn.map_or("none".to_owned(), |commit| commit.to_string())
        ));
        line(format_args!("wear per page: {:?}", self.wear));
        line(format_args!("{:<12} {:>12} {:>12}", "cut", "cases", "failures"));
        for (kind, count) in &self.by_cut {
            line(format_args!(
                "{:<12} {:>12} {:>12}",
                kind.name(),
                count.cases,
                count.failures
            ));
        }
        for (i, count) in self.by_depth.iter().enumerate() {
            let name = format!("depth {}", i + 1);
            line(format_args!("{name:<12} {:>12} {:>12}", count.cases, count.failures));
        }
        line(format_args!("{:<12} {:>12} {:>12}", "all", self.cases, self.failures));
        line(format_args!(
            "{} images came up again and were not tried twice; {:.1} s",
            self.repeated, self.seconds
        ));
        for (kind, count) in &self.by_violation {
            line(format_args!("  {kind:<24} {count}"));
        }
        for failure in &self.first_failures {
            line(format_args!(
                "\n{} during {}: {}: {}\n  {}",
                failure.cut.name(),
                failure.during,
                failure.violation,
                failure.detail,
                failure.replay
            ));
        }
        line(format_args!("{}", self.verdict().sentence()));
        out
    }
}

/// The running program as it was called, for a shell in the same folder.
fn program() -> String {
    let name = std::env::args().next().unwrap_or_else(|| "powercut".to_owned());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !name.is_empty() && name.chars().all(is_plain) {
        return name;
    }
    format!("'{}'", name.replace('\'', "'\\''"))
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing failed, and every kind of cut was tried.
    Held,
    /// Something failed.
    Failed,
    /// Nothing failed, but some kind of cut never occurred, so that the search proves little.
    Incomplete,
}

impl Verdict {
    /// The verdict in words.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Held => "held: no case failed",
            Self::Failed => "FAILED",
            Self::Incomplete => "INCOMPLETE: some kind of cut was never tried",
        }
    }

    /// The exit status of the command: 0 held, 1 failed, 3 incomplete (2 is for misuse).
    #[must_use]
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::Failed => 1,
            Self::Incomplete => 3,
        }
    }
}
