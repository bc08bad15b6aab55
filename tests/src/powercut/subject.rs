//! The seam between the bench and a store.

use std::fmt;

use super::life::{Change, Key, Model, Rows, Verb};
use crate::flash::{Geometry, SharedChip};

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The store found its state damaged, or was not there at all.
    Corrupt(String),
    /// The store has no room.
    Full(String),
    /// The flash driver failed; after a cut every call ends here.
    Flash(String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(why) => write!(f, "corrupt: {why}"),
            Self::Full(why) => write!(f, "full: {why}"),
            Self::Flash(why) => write!(f, "flash: {why}"),
            Self::Other(why) => write!(f, "{why}"),
        }
    }
}

/// What a mount tells of the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mounted {
    /// No token above this one can have been handed out; the next one is greater than every token
    /// that was.
    pub counter: u64,
    /// The highest number that was ever being reserved, as far as the store knows.
    pub reserved: u64,
}

/// A store under test, on a chip that the bench holds too.
///
/// The bench calls `provision` once in the life of a chip. At every power-up it calls `mount`, `rows`,
/// `prepare` until nothing is left, then `perform` and `rows` as often as it likes, and it drops the subject when the power goes. After a cut every call
/// returns an error or anything at all: the bench looks only at what a later mount says.
pub trait Subject {
    /// Makes an empty store on a blank chip; `mount` comes next.
    ///
    /// # Errors
    ///
    /// When the store cannot.
    fn provision(&mut self) -> Result<(), Failure>;

    /// Starts the store on what the chip holds.
    ///
    /// # Errors
    ///
    /// When the store refuses to start.
    fn mount(&mut self) -> Result<Mounted, Failure>;

    /// Does the next thing that the store needs after a mount before it can do verbs, such as the registration of a host,
    /// and returns the token that it drew; `None` when there is nothing more.
    ///
    /// # Errors
    ///
    /// When the outcome is not committed, or not known to be.
    fn prepare(&mut self) -> Result<Option<u64>, Failure> {
        Ok(None)
    }

    /// Does `verb`, which is never [`Verb::Reboot`], durably and returns the token that it drew, if it drew one. `change` says
    /// what the verb means for the rows, for stores that keep records and know no verbs.
    ///
    /// # Errors
    ///
    /// When the outcome is not committed, or not known to be.
    fn perform(&mut self, verb: Verb, change: &Change) -> Result<Option<u64>, Failure>;

    /// The rows under `keys`, as the store would answer for them. `model` says which names they have, and nothing else.
    ///
    /// # Errors
    ///
    /// When the store cannot read one of them.
    fn rows(&mut self, keys: &[Key], model: &Model) -> Result<Rows, Failure>;

    /// The highest number being reserved now; the last token of stores that reserve nothing.
    fn reserved(&self) -> u64;

    /// How many numbers one reservation takes: 1 for stores that reserve nothing ahead.
    fn reservation(&self) -> u64 {
        1
    }
}

/// A kind of store: what the command line can choose from.
#[derive(Debug, Clone, Copy)]
pub struct Store {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Whether a renewal costs the flash nothing.
    pub renews_in_ram: bool,
    /// The pages that it needs on a geometry; `None` where it does not run.
    pub pages: fn(&Geometry) -> Option<usize>,
    /// Puts it on a chip. Only called where `pages` has an answer.
    pub build: fn(&SharedChip) -> Box<dyn Subject>,
}
