//! What an operator does: look for damage, copy, restore, prune, tidy.

use std::path::Path;
use std::time::Duration;

use keyfence_core::refusal::Holder;
use keyfence_core::{LedgerId, Name, TimeMs, Token};

use crate::error::Error;
use crate::ledger::{Ledger, Options};

/// How far long work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: &'static str,
    /// How much of it is done.
    pub done: u64,
    /// How much there is; 0 while that is not known.
    pub total: u64,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Sound,
    /// To be known or changed.
    Warning,
    /// The ledger is damaged or cannot be used.
    Damage,
}

/// One thing that the doctor looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for what was looked at.
    pub topic: &'static str,
    /// What was found.
    pub what: String,
    /// What to do; empty where nothing has to be done.
    pub next: String,
}

/// What the doctor found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of looking.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The worst finding.
    #[must_use]
    pub fn worst(&self) -> Severity {
        self.findings
            .iter()
            .map(|finding| finding.severity)
            .max()
            .unwrap_or(Severity::Sound)
    }
}

/// What a restore threw away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The replaced ledger was readable: its terminal rows were kept, this many of them that the backup did not have.
    Kept {
        /// How many terminal rows were carried over.
        terminal_rows: u64,
    },
    /// The replaced ledger could not be read: what it had done since the backup is lost.
    Unreadable {
        /// Why it could not be read.
        why: String,
    },
    /// There was no ledger to replace.
    NothingReplaced,
}

/// What a restore did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The ledger.
    pub ledger: LedgerId,
    /// Every token from now on lies above this one.
    pub floor: Token,
    /// How many claims were voided.
    pub voided: u64,
    /// What became of the replaced ledger's work.
    pub lost: Lost,
}

/// What a prune dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Messages of which only the id is left.
    pub messages: u64,
    /// Assignments of which only the id is left.
    pub assignments: u64,
    /// Sessions of which only the name is left.
    pub sessions: u64,
    /// Events that were dropped.
    pub events: u64,
}

/// A lease that lapsed and that nobody released or took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lapsed {
    /// Of which kind: `actor`, `host` or `session`.
    pub kind: &'static str,
    /// The actor, host or session.
    pub name: Name,
    /// Who held it.
    pub holder: Holder,
    /// When it lapsed.
    pub expired_at: TimeMs,
}

/// What one look of the supervisor did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// How many lapsed claims on messages were swept to NEW or DEAD.
    pub swept: u64,
    /// The assignments that were closed as FAILED `worker_lost`; the first hundred.
    pub closed: Vec<Name>,
    /// How many there were.
    pub closed_count: u64,
    /// Lapsed leases, for reporting; the first hundred.
    pub lapsed: Vec<Lapsed>,
    /// How many there are.
    pub lapsed_count: u64,
}

/// Looks for damage: where the file lies, SQLite and its settings, schema, integrity, counter, rows against the history
/// and its hash chain. Opens the ledger read-only and works on files that [`Ledger::open`] refuses.
#[must_use]
pub fn doctor(_ledger: &Path, _options: &Options, _progress: &mut dyn FnMut(Progress)) -> Report {
    Report {
        findings: vec![Finding {
            severity: Severity::Damage,
            topic: "doctor",
            what: crate::error::unavailable().to_string(),
            next: String::new(),
        }],
    }
}

/// Writes a consistent copy into a new file while others write.
///
/// # Errors
/// [`Error`].
pub fn backup(_ledger: &Ledger, _to: &Path, _progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
    Err(crate::error::unavailable())
}

/// Restores a backup into a ledger, voids every claim and lifts the counter.
///
/// # Errors
/// [`Error`].
pub fn restore(
    _ledger: &Path,
    _backup: &Path,
    _above: Option<Token>,
    _options: &Options,
    _progress: &mut dyn FnMut(Progress),
) -> Result<Restored, Error> {
    Err(crate::error::unavailable())
}

/// Drops what was finished more than `older_than` ago.
///
/// # Errors
/// [`Error`].
pub fn prune(_ledger: &Ledger, _older_than: Duration, _progress: &mut dyn FnMut(Progress)) -> Result<Pruned, Error> {
    Err(crate::error::unavailable())
}
