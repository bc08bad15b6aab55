//! The handle of a ledger: opening and reading. [`write`] has the one way in which every write is made.

mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyfence_core::store::{Query, Transaction as _};
use keyfence_core::{LedgerId, Name, TimeMs, Token};
use rusqlite::Connection;
use rusqlite::ffi::ErrorCode;

use crate::call::Call;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::store::connection::{Guest, Hooks, Owner, Source};
use crate::store::location::{self, FileId};
use crate::store::lock::{Deadline, WriteLock};
use crate::store::step::SqliteStep;
use crate::store::step::head::Head;
use write::Handle;

pub(crate) use write::{Ended, abandon, commit, decided};

/// How a ledger is opened.
#[derive(Clone)]
pub struct Options {
    /// Whether a missing ledger is created, readable and writable by its owner only.
    pub create: bool,
    /// Whether nothing shall be written: no creation, no migration, no call.
    pub read_only: bool,
    /// Whether a file or folder that others may write, a symbolic link or a network file system is accepted.
    pub allow_unsafe_location: bool,
    /// The clock of lease decisions.
    pub clock: Arc<dyn Clock>,
    /// How long a call waits for the ledger's lock unless it says otherwise.
    pub timeout: Duration,
}

impl Default for Options {
    /// Created where missing, in a safe place, on the system's clock, with 5 seconds for the lock.
    fn default() -> Self {
        Self {
            create: true,
            read_only: false,
            allow_unsafe_location: false,
            clock: Arc::new(SystemClock),
            timeout: Duration::from_secs(5),
        }
    }
}

/// A ledger in an SQLite file. Threads share a handle by reference; many processes share the file, and no daemon is needed.
///
/// A forked child must not use its parent's handle: SQLite's locks do not survive a fork.
///
/// A handle belongs to the file that it opened. When that is gone, or another one stands in its place, every call is
/// [`Error::LedgerMissing`] or [`Error::LedgerReplaced`], and nothing is written to the file that lost its name.
pub struct Ledger {
    id: LedgerId,
    /// As it was given.
    path: PathBuf,
    source: Source,
    file: FileId,
    clock: Arc<dyn Clock>,
    timeout: Duration,
    lock: WriteLock,
    writer: Handle,
    reader: Handle,
    /// The last claim of what is next found nothing.
    ran_dry: AtomicBool,
}

impl Ledger {
    /// Opens a ledger that owns its file: `application_id` and `user_version` are keyfence's. A missing one is created if
    /// [`Options::create`] says so, and is durable, folder entry included, when this returns. One of an older schema is
    /// migrated, by one process while the others wait.
    ///
    /// # Errors
    /// [`Error::LedgerMissing`], [`Error::NotALedger`], [`Error::SchemaNewer`], [`Error::Damaged`], [`Error::ReadOnly`],
    /// [`Error::UnsafeLocation`], [`Error::SqliteTooOld`], [`Error::Busy`] after [`Options::timeout`], [`Error::DiskFull`],
    /// [`Error::Io`] or [`Error::Sqlite`]. An interrupted creation is completed by whoever opens the file next.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        Self::open_as(path, Owner::Keyfence, options)
    }

    /// Opens a ledger whose tables (prefix `keyfence_`) live in a file of the caller's own, so that his rows and the fence
    /// commit together. The file is switched to WAL; its `application_id` and `user_version` are left alone.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn embedded(path: &Path, options: Options) -> Result<Self, Error> {
        Self::open_as(path, Owner::Embedding, options)
    }

    fn open_as(path: &Path, owner: Owner, options: Options) -> Result<Self, Error> {
        Self::open_source(Source::new(path, owner, options.read_only), options)
    }

    pub(crate) fn open_source(source: Source, options: Options) -> Result<Self, Error> {
        let path = &*source.path.clone();
        let exists = path.try_exists().map_err(|error| location::storage(path, error))?;
        if !exists {
            if !options.create || options.read_only {
                return Err(Error::LedgerMissing { path: path.to_owned() });
            }
            location::create_folder(path)?;
        }
        if !options.allow_unsafe_location {
            location::check(path)?;
        }
        let deadline = Deadline::after(options.timeout);
        let hooks = Hooks::default();
        hooks.patience.set(Some(deadline));
        let lock = WriteLock::new(path, !source.read_only);
        let named = |error| told(&lock, deadline, error);
        // What most find: a ledger for which nothing has to be written, so that nobody has to be waited for.
        let ready = if exists {
            let file = FileId::at(path)?;
            source.open_ready(&hooks).map_err(named)?.map(|ready| (file, ready))
        } else {
            None
        };
        let (file, connection) = match ready {
            Some(ready) => ready,
            None => {
                // One process creates or migrates, the others wait.
                let _turn = lock.acquire(deadline)?;
                location::create_file(path)?;
                let file = FileId::at(path)?;
                let mut connection = source.connect(&hooks).map_err(named)?;
                source.prepare(&mut connection).map_err(named)?;
                (file, connection)
            }
        };
        let id = Head::read(&connection)?.ledger;
        // It is the file that was opened, if it stood there before and after.
        file.check(path)?;
        // The same place wherever the process goes.
        let source = Source {
            path: location::literal(path)?,
            ..source
        };
        hooks.patience.set(None);
        let writer = Handle::new(Some(connection), hooks);
        let reader = Handle::new(None, Hooks::default());
        Ok(Self {
            id,
            path: path.to_owned(),
            source,
            file,
            clock: options.clock,
            timeout: options.timeout,
            lock,
            writer,
            reader,
            ran_dry: AtomicBool::new(false),
        })
    }

    /// The ledger's identity, drawn when it was created and kept by a restore.
    #[must_use]
    pub const fn id(&self) -> LedgerId {
        self.id
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The moment on the ledger's clock.
    #[must_use]
    pub fn now(&self) -> TimeMs {
        self.clock.now()
    }

    /// One call, with the handle's time-out and without a request id.
    pub const fn call(&self) -> Call<'_> {
        Call::new(self)
    }

    /// The greatest token that was ever minted here or that the counter was lifted to; `None` on a new ledger. It is
    /// evidence and no authority.
    ///
    /// # Errors
    /// [`Error`]: it could not be read.
    pub fn counter(&self) -> Result<Option<Token>, Error> {
        self.read(|connection| Ok(Head::read(connection)?.last_token))
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Who watches what a caller does inside a transaction of ours.
    pub(crate) fn guest(&self) -> Guest {
        self.writer.hooks.guest.clone()
    }

    /// Whose file it is.
    pub(crate) const fn owner(&self) -> Owner {
        self.source.owner
    }

    /// Refuses a ledger whose file is gone or was replaced.
    pub(crate) fn check_in_place(&self) -> Result<(), Error> {
        self.file.check(&self.source.path)
    }

    /// Whether a claim of what is next for `recipient` would find nothing, as far as a look without a write can tell; only
    /// asked where the last one found nothing, so that a worker at work does not look twice.
    pub(crate) fn is_still_dry(&self, recipient: &Name) -> Result<bool, Error> {
        if !self.ran_dry.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.read(|connection| {
            let now = self.now();
            let mut step = SqliteStep::begin(connection, now)?;
            Ok(step.candidates(Query::Deliverable(recipient), now, 1)?.is_empty())
        })
    }

    /// Notes whether a claim of what is next found nothing.
    pub(crate) fn ran_dry(&self, dry: bool) {
        self.ran_dry.store(dry, Ordering::Relaxed);
    }

    /// Reads in one snapshot on a connection of its own, for as long as it takes: other reads go on meanwhile.
    pub(crate) fn read_for_long<T>(&self, look: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        self.check_in_place()?;
        let source = Source {
            read_only: true,
            ..self.source.clone()
        };
        let hooks = Hooks::default();
        let deadline = Deadline::after(self.timeout);
        hooks.patience.set(Some(deadline));
        let connection = source
            .connect(&hooks)
            .map_err(|error| told(&self.lock, deadline, error))?;
        hooks.patience.set(None);
        snapshot(&connection, look)
    }

    /// Reads in one snapshot; never writes.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        self.check_in_place()?;
        let deadline = Deadline::after(self.timeout);
        let mut handle = self.reader.get();
        self.reader.hooks.patience.set(Some(deadline));
        let connection = match handle.take() {
            Some(connection) => connection,
            None => {
                let source = Source {
                    read_only: true,
                    ..self.source.clone()
                };
                source
                    .connect(&self.reader.hooks)
                    .map_err(|error| told(&self.lock, deadline, error))?
            }
        };
        let answer = snapshot(&connection, look).map_err(|error| told(&self.lock, deadline, error));
        self.reader.hooks.patience.set(None);
        if !answer.as_ref().is_err_and(Error::poisons) {
            *handle = Some(connection);
        }
        answer
    }
}

/// Adds who holds the lock and how long the call waited.
pub(crate) fn told(lock: &WriteLock, deadline: Deadline, error: Error) -> Error {
    let interrupted = matches!(&error, Error::Sqlite(error)
        if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted));
    if matches!(error, Error::Busy { .. }) || (interrupted && deadline.has_passed()) {
        lock.busy(deadline)
    } else {
        error
    }
}

/// Runs `look` in a read transaction.
fn snapshot<T>(connection: &Connection, look: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let answer = look(connection);
    let ended = connection
        .prepare_cached("ROLLBACK")
        .and_then(|mut rollback| rollback.execute([]));
    match (answer, ended) {
        (Ok(answer), Ok(_)) => Ok(answer),
        (Ok(_), Err(error)) => Err(error.into()),
        (Err(error), _) => Err(error),
    }
}
