//! What the disk under a watched folder does: fails where the plan says so, and writes down what reached it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::ffi;

/// The calls of SQLite that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Opening or creating a file.
    Open,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Cutting a file short.
    Truncate,
    /// `fsync`.
    Sync,
    /// Removing a file.
    Delete,
    /// Mapping the shared memory of the write-ahead log's index, which grows a file.
    Map,
}

impl Kind {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Truncate,
        Self::Sync,
        Self::Delete,
        Self::Map,
    ];

    /// SQLite's code for its failure.
    const fn code(self) -> i32 {
        match self {
            Self::Open => ffi::SQLITE_CANTOPEN,
            Self::Read => ffi::SQLITE_IOERR_READ,
            Self::Write => ffi::SQLITE_IOERR_WRITE,
            Self::Truncate => ffi::SQLITE_IOERR_TRUNCATE,
            Self::Sync => ffi::SQLITE_IOERR_FSYNC,
            Self::Delete => ffi::SQLITE_IOERR_DELETE,
            Self::Map => ffi::SQLITE_IOERR_SHMMAP,
        }
    }

    /// Whether the call needs room on the disk.
    const fn grows(self) -> bool {
        match self {
            Self::Open | Self::Write | Self::Map => true,
            Self::Read | Self::Truncate | Self::Sync | Self::Delete => false,
        }
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The `nth` call of this kind fails, counted from 1; the ones after it work again.
    Once(Kind, u64),
    /// The `nth` call of this kind fails, and every one after it.
    From(Kind, u64),
    /// The `nth` write leaves half of its bytes behind and fails.
    HalfWritten(u64),
    /// The `nth` sync fails although everything written reached the disk.
    SyncedButFailed(u64),
    /// From the `nth` call that needs room on, the disk is full.
    Full(u64),
}

/// What SQLite is told about one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Do it.
    Go,
    /// Do nothing and answer with this code.
    Fail(i32),
    /// Write the first half, then answer with this code.
    Half(i32),
    /// Do it, then answer with this code.
    DoAndFail(i32),
}

/// One thing that reached the disk, as its file's name within the folder and what was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A file that was not there was created.
    Create(String),
    /// Bytes were written at an offset.
    Write(String, u64, Vec<u8>),
    /// The file was cut, or stretched, to this size.
    Truncate(String, u64),
    /// The file was synced.
    Sync(String),
    /// The file was removed.
    Delete(String),
    /// The folder was synced: what was created and removed in it stays so.
    SyncFolder,
    /// The program got this far: a note of the test's own.
    Mark(u64),
}

#[derive(Debug, Default)]
struct State {
    fault: Option<Fault>,
    /// Calls so far, by kind and those that need room.
    calls: [u64; Kind::ALL.len()],
    growing: u64,
    hits: u64,
    recording: bool,
    /// The files that the log knows to be there.
    known: BTreeSet<String>,
    log: Vec<Entry>,
}

/// The disk under one folder.
#[derive(Debug, Default)]
pub struct Disk {
    state: Mutex<State>,
}

impl Disk {
    /// A disk that works and remembers nothing.
    #[must_use]
    pub fn sound() -> Self {
        Self::default()
    }

    /// A disk that works and remembers everything.
    #[must_use]
    pub fn recording() -> Self {
        let disk = Self::default();
        disk.state().recording = true;
        disk
    }

    /// A disk on which this goes wrong.
    #[must_use]
    pub fn failing(fault: Fault) -> Self {
        let disk = Self::default();
        disk.state().fault = Some(fault);
        disk
    }

    /// Lets this go wrong from now on: calls are counted anew.
    pub fn strike(&self, fault: Fault) {
        let mut state = self.state();
        state.fault = Some(fault);
        state.calls = Default::default();
        (state.growing, state.hits) = (0, 0);
    }

    /// Lets nothing go wrong any more.
    pub fn heal(&self) {
        self.state().fault = None;
    }

    /// How many calls of this kind there were.
    #[must_use]
    pub fn calls(&self, kind: Kind) -> u64 {
        self.state().calls[kind as usize]
    }

    /// How many calls needed room.
    #[must_use]
    pub fn growing_calls(&self) -> u64 {
        self.state().growing
    }

    /// How many calls failed by the plan.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.state().hits
    }

    /// Notes in the log how far the program got.
    pub fn mark(&self, number: u64) {
        self.record(|| Entry::Mark(number));
    }

    /// Notes in the log that the program synced the folder by other means than SQLite.
    pub fn folder_synced(&self) {
        self.record(|| Entry::SyncFolder);
    }

    /// Takes what reached the disk so far.
    #[must_use]
    pub fn take_log(&self) -> Vec<Entry> {
        std::mem::take(&mut self.state().log)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that SQLite opened a file. The program may have made it by other means, empty: the log says so now.
    pub(crate) fn opened(&self, name: &str) {
        let mut state = self.state();
        if state.recording && state.known.insert(name.to_owned()) {
            state.log.push(Entry::Create(name.to_owned()));
        }
    }

    /// Notes that SQLite removed a file.
    pub(crate) fn deleted(&self, name: String) {
        let mut state = self.state();
        if state.recording {
            state.known.remove(&name);
            state.log.push(Entry::Delete(name));
        }
    }

    pub(crate) fn record(&self, entry: impl FnOnce() -> Entry) {
        let mut state = self.state();
        if state.recording {
            state.log.push(entry());
        }
    }

    pub(crate) fn verdict(&self, kind: Kind) -> Verdict {
        let mut state = self.state();
        let calls = &mut state.calls[kind as usize];
        *calls += 1;
        let call = *calls;
        if kind.grows() {
            state.growing += 1;
        }
        let verdict = match state.fault {
            Some(Fault::Once(failing, nth)) if failing == kind && nth == call => Verdict::Fail(kind.code()),
            Some(Fault::From(failing, nth)) if failing == kind && nth <= call => Verdict::Fail(kind.code()),
            Some(Fault::HalfWritten(nth)) if kind == Kind::Write && nth == call => Verdict::Half(kind.code()),
            Some(Fault::SyncedButFailed(nth)) if kind == Kind::Sync && nth == call => Verdict::DoAndFail(kind.code()),
            Some(Fault::Full(nth)) if kind.grows() && nth <= state.growing => Verdict::Fail(match kind {
                Kind::Map => ffi::SQLITE_IOERR_SHMSIZE,
                Kind::Open => ffi::SQLITE_CANTOPEN,
                Kind::Read | Kind::Write | Kind::Truncate | Kind::Sync | Kind::Delete => ffi::SQLITE_FULL,
            }),
            Some(
                Fault::Once(..) | Fault::From(..) | Fault::HalfWritten(_) | Fault::SyncedButFailed(_) | Fault::Full(_),
            )
            | None => Verdict::Go,
        };
        if verdict != Verdict::Go {
            state.hits += 1;
        }
        verdict
    }
}
