//! What an operator does: look for damage, copy, restore, prune, tidy. One file for each.

mod backup;
mod doctor;
mod history;
mod prune;
mod restore;
mod salvage;
mod supervise;

pub use backup::backup;
pub use doctor::{Finding, Report, Severity, doctor, doctor_embedded};
pub use prune::{Pruned, prune};
pub use restore::{DamagedRows, Dropped, Lost, Restored, restore};
pub use supervise::{Damage, Lapsed, Tick};

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

/// Tells how far a stage has come, now and then.
pub(crate) struct Stage<'p> {
    progress: &'p mut dyn FnMut(Progress),
    now: Progress,
}

impl<'p> Stage<'p> {
    /// Every how many steps progress is told.
    const EVERY: u64 = 1_000;

    pub(crate) fn begin(progress: &'p mut dyn FnMut(Progress), stage: &'static str, total: u64) -> Self {
        let now = Progress { stage, done: 0, total };
        progress(now);
        Self { progress, now }
    }

    pub(crate) fn advance(&mut self, steps: u64) {
        let told = self.now.done / Self::EVERY;
        self.now.done += steps;
        if self.now.done / Self::EVERY > told {
            (self.progress)(self.now);
        }
    }

    /// Tells where the work stands.
    pub(crate) fn reach(&mut self, done: u64, total: u64) {
        self.now = Progress {
            done,
            total,
            ..self.now
        };
        (self.progress)(self.now);
    }

    pub(crate) fn end(self) {
        (self.progress)(Progress {
            done: self.now.total.max(self.now.done),
            ..self.now
        });
    }
}
