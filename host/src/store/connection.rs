//! How a ledger's file is opened: what it must be, what is set and verified, and how it comes to have its tables.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::ffi::ErrorCode;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use uuid::Uuid;

use super::location::{self, FileId};
use super::lock::Deadline;
use super::reading::{Reader, has_log};
use super::schema::{APPLICATION_ID, MIGRATIONS};
use super::step::head::Head;
use crate::error::Error;
use keyfence_core::LedgerId;

/// The oldest SQLite that several processes can write a WAL with and not damage it: 3.51.3.
const SQLITE_MIN: i32 = 3_051_003;

/// After how many pages in the WAL a commit copies them into the file: 8 MiB.
const CHECKPOINT_PAGES: i64 = 2_000;

/// How long the WAL's file may stay after it was copied.
const WAL_BYTES_KEPT: i64 = 16 * 1024 * 1024;

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Keyfence's: marked by `application_id`, numbered by `user_version`.
    Keyfence,
    /// Somebody else's, with keyfence's tables in it.
    Embedding,
}

/// What a connection needs to be opened, and opened again after a failure.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) owner: Owner,
    pub(crate) read_only: bool,
    /// What makes a schema; always [`MIGRATIONS`] but in tests of newer ones.
    pub(crate) migrations: &'static [&'static str],
}

/// The deadline of the call that is being made, for SQLite's busy handler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patience(Arc<Mutex<Option<Deadline>>>);

impl Patience {
    pub(crate) fn set(&self, deadline: Option<Deadline>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    fn deadline(&self) -> Option<Deadline> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps a little while there is time left: for a writer that did not take the lock. Without a deadline, nothing is
    /// waited for.
    fn wait(&self, tries: i32) -> bool {
        let left = self.deadline().map_or(Duration::ZERO, Deadline::remaining);
        if left.is_zero() {
            return false;
        }
        let pause = Duration::from_micros(100 << tries.clamp(0, 6));
        std::thread::sleep(pause.min(left));
        true
    }
}

/// Whether a guest's SQL is being prepared: that of a caller inside one of our transactions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guest(Arc<AtomicBool>);

impl Guest {
    /// Runs a caller's code with what it may do on the connection.
    pub(crate) fn admit<T>(&self, act: impl FnOnce() -> T) -> T {
        /// Shows the guest out, whether or not it panicked.
        struct Out<'g>(&'g AtomicBool);
        impl Drop for Out<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Relaxed);
            }
        }
        self.0.store(true, Ordering::Relaxed);
        let _out = Out(&self.0);
        act()
    }

    fn is_in(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// A guest may work on tables of its own: not on keyfence's, not on the transaction, not on other files.
    fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        if self.is_in() && is_reserved(&context.action) {
            Authorization::Deny
        } else {
            Authorization::Allow
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "SQLite's own actions, a foreign and open-ended list: what is not named here works on the guest's own tables"
)]
fn is_reserved(action: &AuthAction<'_>) -> bool {
    match action {
        AuthAction::Transaction { .. }
        | AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::Pragma { .. }
        | AuthAction::Unknown { .. } => true,
        AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name }
        | AuthAction::CreateIndex { table_name, .. }
        | AuthAction::CreateTrigger { table_name, .. }
        | AuthAction::CreateTempTrigger { table_name, .. }
        | AuthAction::DropIndex { table_name, .. }
        | AuthAction::DropTable { table_name }
        | AuthAction::DropTrigger { table_name, .. }
        | AuthAction::AlterTable { table_name, .. }
        | AuthAction::CreateTable { table_name } => table_name
            .get(..PREFIX.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX)),
        _ => false,
    }
}

/// What the names of keyfence's tables begin with.
const PREFIX: &str = "keyfence_";

/// What a connection asks while it works.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) patience: Patience,
    pub(crate) guest: Guest,
}

/// Refuses an SQLite that can damage ledgers.
pub(crate) fn check_sqlite_version(number: i32) -> Result<(), Error> {
    if number < SQLITE_MIN {
        return Err(Error::SqliteTooOld {
            found: rusqlite::version(),
        });
    }
    Ok(())
}

/// Names the file in an error that SQLite gave without it.
pub(crate) fn named(path: &Path, error: Error) -> Error {
    if let Error::NotALedger { why, .. } = error {
        return Error::NotALedger {
            path: path.to_owned(),
            why,
        };
    }
    if let Error::ReadOnly { path: unnamed, why } = &error
        && unnamed.as_os_str().is_empty()
    {
        return location::bar_to_writing(path).unwrap_or_else(|| Error::ReadOnly {
            path: path.to_owned(),
            why: why.clone(),
        });
    }
    let cannot_open = matches!(&error, Error::Sqlite(error)
        if matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied)));
    if cannot_open {
        return location::cannot_open(path).unwrap_or(error);
    }
    error
}

impl Source {
    /// A ledger's file.
    pub(crate) fn new(path: &Path, owner: Owner, read_only: bool) -> Self {
        Self {
            path: path.to_owned(),
            owner,
            read_only,
            migrations: MIGRATIONS,
        }
    }

    /// The newest schema that is known here.
    const fn known(&self) -> i64 {
        self.migrations.len().cast_signed() as i64
    }

    /// Opens the file for writing and sets the connection up. The file must be there.
    pub(crate) fn connect(&self, hooks: &Hooks) -> Result<Connection, Error> {
        let open = || {
            check_sqlite_version(rusqlite::version_number())?;
            // The handle is behind a mutex of ours.
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut connection = Connection::open_with_flags(location::literal(&self.path)?, flags)?;
            self.set_up(&mut connection, hooks)?;
            Ok(connection)
        };
        open().map_err(|error| named(&self.path, error))
    }

    /// Opens for writing a file that is a ledger, or empty where one may be made of it.
    pub(crate) fn connect_to_ledger(&self, hooks: &Hooks, create: bool) -> Result<Connection, Error> {
        let connection = self.connect(hooks)?;
        match self.identify(&connection).map_err(|error| named(&self.path, error))? {
            Identity::Ledger { .. } => Ok(connection),
            Identity::Empty if create => Ok(connection),
            Identity::Empty => Err(self.empty()),
        }
    }

    /// Opens the file for reading and sets the connection up. The file must be there.
    pub(crate) fn connect_to_read(&self, hooks: &Hooks) -> Result<Reader, Error> {
        let open = || {
            check_sqlite_version(rusqlite::version_number())?;
            let mut reader = Reader::open(&self.path)?;
            self.set_up(&mut reader.connection, hooks)?;
            Ok(reader)
        };
        open().map_err(|error| named(&self.path, error))
    }

    fn set_up(&self, connection: &mut Connection, hooks: &Hooks) -> Result<(), Error> {
        // Until it is known to be a ledger's, and for a reader always (F2).
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log(&self.path))?;
        let handler = hooks.patience.clone();
        connection.busy_handler(Some(move |tries| handler.wait(tries)))?;
        let guest = hooks.guest.clone();
        connection.authorizer(Some(move |context: AuthContext<'_>| guest.authorize(&context)))?;
        // A guest whose SQL ended our transaction must not commit by itself what it does next.
        let guest = hooks.guest.clone();
        connection.commit_hook(Some(move || guest.is_in()))?;
        connection.set_prepared_statement_cache_capacity(96);
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
        // Plans do not depend on what is bound, so that no statement is ever planned again for that.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        connection.pragma_update(None, "mmap_size", 0)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "temp_store", "FILE")?;
        connection.pragma_update(None, "cache_size", -8_000)?;
        Ok(())
    }

    /// What the file is; looks before anything is written.
    pub(crate) fn identify(&self, connection: &Connection) -> Result<Identity, Error> {
        // One snapshot: somebody else may be making the ledger right now.
        let _snapshot = if connection.is_autocommit() {
            Some(connection.unchecked_transaction()?)
        } else {
            None
        };
        let application_id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let user_version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let has_ledger: bool = connection.query_row(
            "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'keyfence_ledger')",
            [],
            |row| row.get(0),
        )?;
        let other = |why: String| Error::NotALedger {
            path: self.path.clone(),
            why,
        };
        let schema = match self.owner {
            Owner::Keyfence => {
                if application_id == 0 && user_version == 0 && tables == 0 {
                    return Ok(Identity::Empty);
                }
                if application_id != APPLICATION_ID {
                    let embedded = if has_ledger {
                        ", with a ledger embedded in it"
                    } else {
                        ""
                    };
                    return Err(other(format!(
                        "a database of another application (application_id {application_id}){embedded}"
                    )));
                }
                user_version
            }
            Owner::Embedding => {
                if !has_ledger {
                    return Ok(Identity::Empty);
                }
                connection.query_row("SELECT schema FROM keyfence_ledger", [], |row| row.get(0))?
            }
        };
        if schema > self.known() {
            return Err(Error::SchemaNewer {
                found: schema,
                known: self.known(),
            });
        }
        if schema < 1 || !has_ledger {
            return Err(Error::Damaged {
                place: "the schema".into(),
                why: format!("its number is {schema}, and keyfence's tables are not all there"),
            });
        }
        Ok(Identity::Ledger { schema })
    }

    /// Refuses a file that is no ledger yet: one that must not be made into one.
    pub(crate) fn check_is_ledger(&self, connection: &Connection) -> Result<(), Error> {
        match self.identify(connection).map_err(|error| named(&self.path, error))? {
            Identity::Ledger { .. } => Ok(()),
            Identity::Empty => Err(self.empty()),
        }
    }

    fn empty(&self) -> Error {
        let why = match self.owner {
            Owner::Keyfence => "it is empty",
            Owner::Embedding => "no ledger is embedded in it",
        };
        Error::NotALedger {
            path: self.path.clone(),
            why: why.into(),
        }
    }

    /// Makes the connection a ledger's: durable, and of the newest schema. The caller holds the lock; a caller that does
    /// not is serialized by SQLite.
    pub(crate) fn prepare(&self, connection: &mut Connection) -> Result<(), Error> {
        self.try_prepare(connection).map_err(|error| named(&self.path, error))
    }

    fn try_prepare(&self, connection: &mut Connection) -> Result<(), Error> {
        if self.adopt(connection)? {
            return Ok(());
        }
        switch_to_wal(connection)?;
        self.migrate(connection)?;
        // Nothing of the new schema may be lost that a token could have been told from.
        settle(connection)?;
        location::sync_folder_of(&self.path)
    }

    /// Sets up a connection to a ledger that is of the newest schema and in WAL; `false`: it is not, and has to be prepared,
    /// by one process at a time. Writes nothing.
    pub(crate) fn adopt(&self, connection: &Connection) -> Result<bool, Error> {
        self.try_adopt(connection).map_err(|error| named(&self.path, error))
    }

    fn try_adopt(&self, connection: &Connection) -> Result<bool, Error> {
        match self.identify(connection)? {
            Identity::Ledger { schema } if schema == self.known() => {}
            Identity::Ledger { schema } if self.read_only => {
                return Err(Error::ReadOnly {
                    path: self.path.clone(),
                    why: format!(
                        "its schema {schema} is older than {}, and a reader migrates nothing",
                        self.known()
                    ),
                });
            }
            Identity::Empty if self.read_only => return Err(self.empty()),
            Identity::Ledger { .. } | Identity::Empty => return Ok(false),
        }
        if self.read_only {
            return Ok(true);
        }
        if !is_wal(&journal_mode(connection)?) {
            return Ok(false);
        }
        make_durable(connection)?;
        if Head::read(connection)?.event_seq == 0 {
            // Whoever created it may have died before its folder was synced; nothing was told yet.
            location::sync_folder_of(&self.path)?;
        }
        Ok(true)
    }

    /// The same place wherever the process goes. `file` stood there before the file was opened: it is the one that was
    /// opened if it stands there still.
    pub(crate) fn standing_still(self, file: FileId) -> Result<Self, Error> {
        file.check(&self.path)?;
        Ok(Self {
            path: location::literal(&self.path)?,
            ..self
        })
    }

    /// Applies the migrations that the file does not have yet, each in one transaction.
    fn migrate(&self, connection: &mut Connection) -> Result<(), Error> {
        loop {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Another process may have migrated while this one waited.
            let have = match self.identify(&transaction)? {
                Identity::Empty => 0,
                Identity::Ledger { schema } => schema,
            };
            let Some(next) = usize::try_from(have).ok().and_then(|have| self.migrations.get(have)) else {
                return Ok(());
            };
            transaction.execute_batch(next)?;
            if have == 0 {
                let ledger = LedgerId::from_bytes(*Uuid::new_v4().as_bytes());
                Head::new(ledger).insert(&transaction)?;
            } else {
                let before = Head::read(&transaction)?;
                let after = Head {
                    schema: have + 1,
                    ..before.clone()
                };
                after.write(&transaction, &before)?;
            }
            if self.owner == Owner::Keyfence {
                transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
                transaction.pragma_update(None, "user_version", have + 1)?;
            }
            transaction.commit()?;
        }
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Nothing yet.
    Empty,
    /// A ledger of this schema.
    Ledger { schema: i64 },
}

/// Switches the file to WAL, and sets FULL.
fn switch_to_wal(connection: &Connection) -> Result<(), Error> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // A switch that failed on the disk answers `wal` all the same, until the file is read again.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    make_durable(connection)
}

/// Sets FULL, and verifies that and WAL (H1).
fn make_durable(connection: &Connection) -> Result<(), Error> {
    // A writer that closes last copies the log.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    let _: i64 = connection.pragma_update_and_check(None, "journal_size_limit", WAL_BYTES_KEPT, |row| row.get(0))?;
    check_durable(connection)
}

fn journal_mode(connection: &Connection) -> rusqlite::Result<String> {
    connection.pragma_query_value(None, "journal_mode", |row| row.get(0))
}

const fn is_wal(mode: &str) -> bool {
    mode.eq_ignore_ascii_case("wal")
}

/// Whether a commit on this connection, which somebody else may have set up, is durable when it returns.
pub(crate) fn check_durable(connection: &Connection) -> Result<(), Error> {
    let mode = journal_mode(connection)?;
    let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    if !is_wal(&mode) || synchronous < 2 {
        return Err(Error::Transaction {
            why: format!("a commit would not be durable here: journal mode {mode}, synchronous {synchronous}"),
        });
    }
    Ok(())
}

/// Copies the WAL into the file and syncs both.
pub(crate) fn settle(connection: &Connection) -> Result<(), Error> {
    // A reader may keep it from being complete; what is in the WAL is durable there.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

#[cfg(test)]
mod tests;
