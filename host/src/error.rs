//! What can go wrong besides a refusal, sorted by who has to act: the caller, the file's owner, the medium, or us.
//!
//! A refusal is no error: it comes as the `Err` of a [`Decision`].

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyfence_core::store::{Corrupt, Failure};
use keyfence_core::{Decision, LedgerId};
use rusqlite::ffi::{self, ErrorCode};

/// What a call ends with: granted, refused, or an [`Error`] (then nothing was decided, save for [`Error::Unknown`]).
pub type Outcome<T> = Result<Decision<T>, Error>;

/// The process that holds the ledger's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its number on this machine. It says whom to look at and is never used for a decision.
    pub pid: u32,
    /// The program it runs, where that can be read.
    pub program: Option<String>,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.program {
            Some(program) => write!(f, "process {} ({program})", self.pid),
            None => write!(f, "process {}", self.pid),
        }
    }
}

/// Why a call came to no decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The ledger's lock was not free by the caller's deadline. Nothing was decided.
    #[error("the ledger was busy for {} ms{}", .waited.as_millis(), held_by(.holder.as_ref()))]
    Busy {
        /// Who holds the lock, where it can be found.
        holder: Option<LockHolder>,
        /// How long the call waited.
        waited: Duration,
    },
    /// There is no file, or no file any more where this handle opened one. Nothing was committed.
    #[error("there is no ledger at {}", .path.display())]
    LedgerMissing {
        /// Where.
        path: PathBuf,
    },
    /// Another file stands where the one stood that this handle opened. Nothing was committed, to neither of them.
    #[error("another file stands in the place of the ledger that was opened at {}", .path.display())]
    LedgerReplaced {
        /// Where.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{} is not a ledger: {why}", .path.display())]
    NotALedger {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        why: String,
    },
    /// The ledger was written by a newer keyfence.
    #[error("the ledger's schema {found} is newer than {known}, the newest that this program knows")]
    SchemaNewer {
        /// The schema of the file.
        found: i64,
        /// The newest one that is known here.
        known: i64,
    },
    /// The ledger's state is not what was written. Authority is refused until somebody looked.
    #[error("{place} is damaged: {why}")]
    Damaged {
        /// Where.
        place: String,
        /// What is wrong there.
        why: String,
    },
    /// The file can be read, and cannot be written.
    #[error("{} is read-only: {why}", shown(.path))]
    ReadOnly {
        /// Which file or folder.
        path: PathBuf,
        /// What is in the way.
        why: String,
    },
    /// The file cannot be reached with the rights of this process.
    #[error("permission denied on {}: {why}", shown(.path))]
    PermissionDenied {
        /// Which file or folder.
        path: PathBuf,
        /// What is in the way.
        why: String,
    },
    /// There is a file already where a new one was to be written.
    #[error("{} exists already", .path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// What was asked for makes no sense, whatever the state of the ledger.
    #[error("{what}")]
    Misuse {
        /// Why not.
        what: String,
    },
    /// A backup is the copy of another ledger than the one it would replace.
    #[error("{} is a copy of another ledger, {of}, and would replace {instead_of}", .path.display())]
    OtherLedger {
        /// Which backup.
        path: PathBuf,
        /// The ledger that it is a copy of.
        of: LedgerId,
        /// The ledger that is there.
        instead_of: LedgerId,
    },
    /// A backup failed to be read or written. The ledger is as it was.
    #[error("the backup {}: {source}", .path.display())]
    Backup {
        /// Which backup.
        path: PathBuf,
        /// How.
        source: Box<Self>,
    },
    /// The disk is full. Nothing was committed.
    #[error("no space is left on the disk")]
    DiskFull,
    /// Others may write the ledger's file or folder, or the file lies where SQLite's locks cannot be relied on.
    #[error("{} is not a safe place: {why}", .path.display())]
    UnsafeLocation {
        /// Which file or folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The SQLite library is known to damage ledgers.
    #[error("SQLite {found} can damage a ledger that several processes write")]
    SqliteTooOld {
        /// Its version.
        found: &'static str,
    },
    /// The same request id came with another call.
    #[error("the request id `{id}` was used for another call")]
    RequestMisused {
        /// The request id.
        id: String,
    },
    /// The history is not the one that was read before: a restore has put an earlier one in its place.
    #[error("the history was rewound: it is not the one that had event {seq}")]
    HistoryRewound {
        /// The event that was read last.
        seq: u64,
    },
    /// A call was made in a transaction that does not allow it.
    #[error("this call is not possible in this transaction: {why}")]
    Transaction {
        /// Why not.
        why: String,
    },
    /// The operating system failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// On which file.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
    /// SQLite failed. Nothing was committed.
    #[error("SQLite: {0}")]
    Sqlite(rusqlite::Error),
    /// The store failed when the commit may already have happened. Neither committed nor refused may be told: ask again
    /// with the same request id, or look at the row.
    #[error("whether it was committed is unknown: {0}")]
    Unknown(Box<Self>),
    /// A write did not find the row as it was read in the same transaction. Nothing was committed.
    #[error("keyfence broke one of its own rules, and committed nothing: {what}")]
    Bug {
        /// Which rule.
        what: String,
    },
}

/// A path for people. SQLite's errors have none until whoever knows it names it.
fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        "the ledger".into()
    } else {
        path.display().to_string()
    }
}

fn held_by(holder: Option<&LockHolder>) -> String {
    holder.map(|holder| format!(", held by {holder}")).unwrap_or_default()
}

impl Error {
    /// The stable name that scripts match on.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::LedgerMissing { .. } => "ledger_missing",
            Self::LedgerReplaced { .. } => "ledger_replaced",
            Self::NotALedger { .. } => "not_a_ledger",
            Self::SchemaNewer { .. } => "schema_newer",
            Self::Damaged { .. } => "damaged",
            Self::ReadOnly { .. } => "read_only",
            Self::PermissionDenied { .. } => "permission_denied",
            Self::Exists { .. } => "exists",
            Self::Misuse { .. } => "usage",
            Self::OtherLedger { .. } => "other_ledger",
            Self::Backup { source, .. } => source.name(),
            Self::DiskFull => "disk_full",
            Self::UnsafeLocation { .. } => "unsafe_location",
            Self::SqliteTooOld { .. } => "sqlite_too_old",
            Self::RequestMisused { .. } => "request_misused",
            Self::HistoryRewound { .. } => "history_rewound",
            Self::Transaction { .. } => "transaction",
            Self::Io { .. } => "io",
            Self::Sqlite(_) => "sqlite",
            Self::Unknown(_) => "unknown",
            Self::Bug { .. } => "bug",
        }
    }

    /// What to do now.
    #[must_use]
    pub fn next(&self) -> String {
        match self {
            Self::Busy {
                holder: Some(holder), ..
            } => {
                format!("wait and ask again; if {holder} is stopped, resume it or end it")
            }
            Self::Busy { holder: None, .. } => "wait and ask again, or ask with a longer time-out".into(),
            Self::LedgerMissing { .. } => "check the path, or create the ledger with `keyfence init`".into(),
            Self::LedgerReplaced { .. } => {
                "find out who replaced the file, then start this program again; a backup comes back by `keyfence restore`"
                    .into()
            }
            Self::NotALedger { .. } => "check the path; keyfence did not touch this file".into(),
            Self::SchemaNewer { .. } => "use the newer keyfence that wrote this ledger".into(),
            Self::Damaged { .. } => "run `keyfence doctor`; if it confirms the damage, restore a backup".into(),
            Self::ReadOnly { path, .. } => {
                format!(
                    "make {} writable for this user, or call as the user who may write it",
                    shown(path)
                )
            }
            Self::PermissionDenied { path, .. } => {
                format!(
                    "give this user access to {}, or call as the user who has it",
                    shown(path)
                )
            }
            Self::Exists { .. } => "name a new file: nothing is ever written over".into(),
            Self::Misuse { .. } => "see `--help`".into(),
            Self::OtherLedger { .. } => "use a backup of this ledger, or restore that one at a path of its own".into(),
            Self::Backup { path, source } => next_of_backup(path, source),
            Self::DiskFull => "free some space on that disk, then ask again".into(),
            Self::UnsafeLocation { .. } => {
                "move it to a local folder that only its user may write, or allow this place with `--allow-unsafe-location`".into()
            }
            Self::SqliteTooOld { .. } => "use a build of keyfence with its own SQLite, 3.51.3 or newer".into(),
            Self::RequestMisused { .. } => "draw a fresh request id for every new call".into(),
            Self::HistoryRewound { .. } => {
                "a restore has put an earlier history in place: read it again from its beginning".into()
            }
            Self::Transaction { .. } => "begin a write transaction through keyfence".into(),
            Self::Io { .. } => "look at the file and its disk, then ask again".into(),
            Self::Sqlite(_) => "run `keyfence doctor`, then ask again".into(),
            Self::Unknown(_) => "ask again with the same request id, or look at the row".into(),
            Self::Bug { .. } => "nothing was written; please report this".into(),
        }
    }

    /// What failed on which file.
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// Whether the connection that failed can no longer be trusted: it has to be closed, and the file read again.
    pub(crate) fn poisons(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::DiskFull | Self::Io { .. } | Self::Bug { .. } => true,
            Self::Sqlite(error) => !matches!(error.sqlite_error_code(), Some(ErrorCode::ConstraintViolation)),
            Self::Damaged { .. } => true,
            Self::Backup { source, .. } => source.poisons(),
            Self::Busy { .. }
            | Self::LedgerMissing { .. }
            | Self::LedgerReplaced { .. }
            | Self::NotALedger { .. }
            | Self::SchemaNewer { .. }
            | Self::ReadOnly { .. }
            | Self::PermissionDenied { .. }
            | Self::Exists { .. }
            | Self::Misuse { .. }
            | Self::OtherLedger { .. }
            | Self::UnsafeLocation { .. }
            | Self::SqliteTooOld { .. }
            | Self::RequestMisused { .. }
            | Self::HistoryRewound { .. }
            | Self::Transaction { .. } => false,
        }
    }
}

/// What to do about a backup: what helps a ledger may not help a copy of it.
fn next_of_backup(path: &Path, source: &Error) -> String {
    match source {
        Error::LedgerMissing { .. } => "check the path of the backup".into(),
        Error::Damaged { .. } => format!(
            "use another backup; `keyfence --ledger {} doctor` says what is wrong with this one",
            path.display()
        ),
        Error::Busy { .. }
        | Error::LedgerReplaced { .. }
        | Error::NotALedger { .. }
        | Error::SchemaNewer { .. }
        | Error::ReadOnly { .. }
        | Error::PermissionDenied { .. }
        | Error::Exists { .. }
        | Error::Misuse { .. }
        | Error::OtherLedger { .. }
        | Error::Backup { .. }
        | Error::DiskFull
        | Error::UnsafeLocation { .. }
        | Error::SqliteTooOld { .. }
        | Error::RequestMisused { .. }
        | Error::HistoryRewound { .. }
        | Error::Transaction { .. }
        | Error::Io { .. }
        | Error::Sqlite(_)
        | Error::Unknown(_)
        | Error::Bug { .. } => source.next(),
    }
}

/// Whether the shared index of the log did not fit onto the disk.
fn is_full(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_SHMSIZE)
}

/// What a file is that SQLite cannot read at all.
pub(crate) const NOT_A_DATABASE: &str = "it is no SQLite database";

impl From<rusqlite::Error> for Error {
    /// Names what SQLite says. A busy answer without a deadline of ours becomes [`Error::Busy`] without a wait.
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy {
                holder: None,
                waited: Duration::ZERO,
            },
            Some(ErrorCode::ReadOnly) => Self::ReadOnly {
                path: PathBuf::new(),
                why: "SQLite cannot write it".into(),
            },
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            // The index that all processes share could not grow: the disk has no room for it.
            Some(ErrorCode::SystemIoFailure) if is_full(&error) => Self::DiskFull,
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged {
                place: "the database file".into(),
                why: error.to_string(),
            },
            Some(ErrorCode::NotADatabase) => Self::NotALedger {
                path: PathBuf::new(),
                why: NOT_A_DATABASE.into(),
            },
            _ => Self::Sqlite(error),
        }
    }
}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        let place = match &corrupt.key {
            Some(key) => format!("{} `{key}`", corrupt.place.name()),
            None => corrupt.place.name().into(),
        };
        Self::Damaged {
            place,
            why: corrupt.why.into(),
        }
    }
}

impl From<Failure<Self>> for Error {
    fn from(failure: Failure<Self>) -> Self {
        match failure {
            Failure::Store(error) => error,
            Failure::Unknown(error) => Self::Unknown(Box::new(error)),
            Failure::Corrupt(corrupt) => corrupt.into(),
        }
    }
}
