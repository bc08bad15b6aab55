//! A consistent copy while others write.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::doctor::counted;
use super::salvage;
use super::{Progress, Stage};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::store::connection::Owner;
use crate::store::location;
use crate::store::lock::Deadline;

/// How long to sleep before a locked database is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How many pages are copied between two reports of progress.
const PAGES_AT_ONCE: i32 = 256;

/// Writes a consistent copy of the ledger, as it stood when the call began, into a new file that only its owner may read;
/// it is durable when this returns. Others write on meanwhile. It is written as `<to>-partial` and named at the end: one that
/// is interrupted leaves only that behind, which the next one replaces.
///
/// # Errors
/// [`Error::Damaged`] where rows of the ledger are not as they were written; [`Error::Exists`] where something is at `to` already; [`Error::Misuse`] where `to` is the name of one of the ledger's own
/// files; [`Error::Backup`] with what went wrong in writing the copy; other [`Error`]s of reading the ledger.
pub fn backup(ledger: &Ledger, to: &Path, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
    if location::is_part_of(ledger.path(), to) {
        return Err(Error::Misuse {
            what: format!("{} is the name of one of the ledger's own files", to.display()),
        });
    }
    location::check_length(to)?;
    let is_free = || match std::fs::symlink_metadata(to) {
        Ok(_) => Err(Error::Exists { path: to.to_owned() }),
        Err(_) => Ok(()),
    };
    is_free()?;
    let partial = partial(to);
    // What an interrupted one left; if it cannot be removed the creation says so.
    let _ = std::fs::remove_file(&partial);
    if !location::create_file(&partial).map_err(|error| of_backup(to, error))? {
        return Err(Error::Exists { path: partial });
    }
    copy_to(ledger, &partial, progress)
        .and_then(|()| is_free())
        .and_then(|()| std::fs::rename(&partial, to).map_err(|error| location::storage(to, error)))
        .and_then(|()| location::sync_folder_of(to))
        .map_err(|error| {
            if is_of_the_ledger(&error) {
                error
            } else {
                of_backup(to, error)
            }
        })
        .inspect_err(|_| {
            // It holds nothing that could be restored, and would only be in the way of the next try.
            let _ = std::fs::remove_file(&partial);
        })
}

/// What a backup is called until it is whole.
fn partial(to: &Path) -> PathBuf {
    let mut partial = to.as_os_str().to_owned();
    partial.push("-partial");
    partial.into()
}

/// Whether an error of a copy is what was found in reading the ledger, and not in writing.
fn is_of_the_ledger(error: &Error) -> bool {
    matches!(
        error,
        Error::Damaged { .. } | Error::Busy { .. } | Error::NotALedger { .. } | Error::Exists { .. }
    )
}

/// Names the backup in what is wrong with it.
pub(super) fn of_backup(backup: &Path, error: Error) -> Error {
    // What was looked at may have been a copy of it.
    let source = if let Error::NotALedger { why, .. } = error {
        Error::NotALedger {
            path: backup.to_owned(),
            why,
        }
    } else {
        error
    };
    Error::Backup {
        path: backup.to_owned(),
        source: Box::new(source),
    }
}

fn copy_to(ledger: &Ledger, to: &Path, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
    let mut copy = open_plain(to, Pages::Kept)?;
    ledger.read_for_long(|source| {
        // The snapshot that is open on `source` keeps the copy consistent over all its steps.
        copy_database(source, &mut copy, "backup", Deadline::after(ledger.timeout()), progress)
    })?;
    // A copy that no restore would take is no backup, and its ledger needs help now.
    let rows = salvage::damaged(&copy)?;
    if rows > 0 {
        return Err(Error::Damaged {
            place: format!("{} of its messages, assignments and sessions", counted(rows, "row")),
            why: "not as they were written".into(),
        });
    }
    if ledger.owner() == Owner::Keyfence {
        // One file without a log beside it.
        let _: String = copy.pragma_update_and_check(None, "journal_mode", "DELETE", |row| row.get(0))?;
    }
    copy.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// What is done with the pages that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// They are a database, or there are none.
    Kept,
    /// They cannot be read: SQLite takes the file as empty.
    Ignored,
}

/// Opens a file that is no shared ledger, durable all the same.
pub(super) fn open_plain(path: &Path, pages: Pages) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(location::literal(path)?, flags)?;
    // First of all: whatever is set next would look at them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, pages == Pages::Ignored)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// Copies all pages. Whoever has locked either database is waited for until the deadline.
pub(super) fn copy_database(
    source: &Connection,
    copy: &mut Connection,
    stage: &'static str,
    deadline: Deadline,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let backup = Backup::new(source, copy)?;
    let mut told = Stage::begin(progress, stage, 0);
    loop {
        let step = backup.step(PAGES_AT_ONCE)?;
        let pages = backup.progress();
        told.reach(
            u64::try_from(pages.pagecount - pages.remaining).unwrap_or_default(),
            u64::try_from(pages.pagecount).unwrap_or_default(),
        );
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "a foreign and open-ended list: what is not done is busy"
        )]
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            _ if deadline.has_passed() => {
                return Err(Error::Busy {
                    holder: None,
                    waited: deadline.waited(),
                });
            }
            _ => std::thread::sleep(LOOK_AGAIN),
        }
    }
    told.end();
    Ok(())
}
