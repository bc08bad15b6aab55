//! What a restore replaces: how much of it can be read, and what is kept of what cannot.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::ffi::ErrorCode;

use super::DamagedRows;
use crate::clock::{Clock as _, SystemClock};
use crate::error::{Error, NOT_A_DATABASE};
use crate::maintain::salvage;
use crate::store::connection::{Hooks, Identity, Owner, Source};
use crate::store::location;
use crate::store::lock::Deadline;
use crate::store::schema::APPLICATION_ID;
use crate::store::step::head::Head;

/// What stands where the backup shall go.
pub(super) enum Replaced {
    /// Nothing, or an empty file.
    Nothing,
    /// A ledger whose rows can be read, but for those that are named.
    Readable(Box<(Connection, Head, Option<DamagedRows>)>),
    /// A file that cannot be read as a ledger, and why.
    Unreadable(String),
}

impl Replaced {
    pub(super) fn look(ledger: &Path, deadline: Deadline) -> Result<Self, Error> {
        match fs::metadata(ledger) {
            Ok(metadata) if metadata.len() > 0 => {}
            Ok(_) => return Ok(Self::Nothing),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::Nothing),
            Err(error) => return Err(location::storage(ledger, error)),
        }
        let source = Source::new(ledger, Owner::Keyfence, false);
        let read = || -> Result<_, Error> {
            let hooks = Hooks::default();
            hooks.patience.set(Some(deadline));
            let mut connection = source.connect(&hooks)?;
            if source.identify(&connection)? == Identity::Empty {
                return Ok(None);
            }
            source.prepare(&mut connection)?;
            let head = Head::read(&connection)?;
            hooks.patience.set(None);
            Ok(Some((connection, head)))
        };
        let looked = read().and_then(|found| match found {
            Some((connection, head)) => {
                let rows = salvage::damaged(&connection)?;
                Ok(Some((connection, head, rows)))
            }
            None => Ok(None),
        });
        match looked {
            Ok(Some((connection, head, 0))) => Ok(Self::Readable(Box::new((connection, head, None)))),
            Ok(Some((connection, _, rows))) => {
                // Closed before the file is opened otherwise, so that no lock is dropped.
                connection.close().map_err(|(_, error)| error)?;
                let kept_as = keep_aside(ledger)?;
                let Some((connection, head)) = read()? else {
                    return Ok(Self::Nothing);
                };
                Ok(Self::Readable(Box::new((
                    connection,
                    head,
                    Some(DamagedRows { rows, kept_as }),
                ))))
            }
            Ok(None) => Ok(Self::Nothing),
            Err(error) => is_unreadable(ledger, error).map(Self::Unreadable),
        }
    }

    pub(super) fn head(&self) -> Option<&Head> {
        match self {
            Self::Readable(old) => Some(&old.1),
            Self::Nothing | Self::Unreadable(_) => None,
        }
    }
}

/// Why a ledger is beyond reading, or the error if it is not: it is merely busy, newer, or no ledger at all. What SQLite
/// cannot read is taken for a ledger only if it is still marked as one.
pub(super) fn is_unreadable(ledger: &Path, error: Error) -> Result<String, Error> {
    // What the file says is wrong; a system that is short of something now says nothing about the file.
    let broken = matches!(error, Error::Damaged { .. })
        || matches!(&error, Error::Sqlite(error) if matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown)
        ));
    if broken && is_marked(ledger)? {
        return Ok(error.to_string());
    }
    let unknown = broken || matches!(&error, Error::NotALedger { why, .. } if why == NOT_A_DATABASE);
    Err(if unknown {
        Error::NotALedger {
            path: ledger.to_owned(),
            why: format!(
                "{NOT_A_DATABASE} that is marked as one; if it is what is left of the ledger, move it away first"
            ),
        }
    } else {
        error
    })
}

/// Whether the file begins as a ledger's does (<https://sqlite.org/fileformat.html>, 1.3). No connection of this process
/// has it open, so opening it drops no lock.
fn is_marked(ledger: &Path) -> Result<bool, Error> {
    let mut header = [0; 72];
    let read = fs::File::open(ledger).and_then(|mut file| file.read_exact(&mut header));
    match read {
        Ok(()) => Ok(header.starts_with(b"SQLite format 3\0") && header.ends_with(&APPLICATION_ID.to_be_bytes())),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(location::storage(ledger, error)),
    }
}

/// Keeps a copy of a file that could not be read whole, before it is written over; returns where it is. No connection of
/// this process has it open, so opening it drops no lock.
pub(super) fn keep_aside(ledger: &Path) -> Result<PathBuf, Error> {
    let mut aside = ledger.as_os_str().to_owned();
    aside.push(format!("-unreadable-{}", SystemClock.now().as_ms()));
    let aside = PathBuf::from(aside);
    fs::copy(ledger, &aside).map_err(|error| location::storage(&aside, error))?;
    Ok(aside)
}
