//! The handle of a ledger: opening and reading. [`write`] has the one way in which every write is made.

mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyfence_core::store::{Query, Transaction as _};
use keyfence_core::{LedgerId, Name, TimeMs, Token};
use rusqlite::Connection;

use crate::call::Call;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::store::connection::{Guest, Hooks, Owner, Source};
use crate::store::location::{self, FileId, Standing};
use crate::store::lock::{Deadline, WriteLock};
use crate::store::reading::Reader;
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
    // It closes first: the writer, closing last, copies the log into the file and takes it away.
    reader: Handle,
    writer: Handle,
    /// The last claim of what is next found nothing.
    ran_dry: AtomicBool,
}

impl Ledger {
    /// Opens a ledger that owns its file: `application_id` and `user_version` are keyfence's. A missing one is created if
    /// [`Options::create`] says so, and is durable, folder entry included, when this returns. One of an older schema is
    /// migrated, by one process while the others wait.
    ///
    /// # Errors
    /// [`Error::LedgerMissing`], [`Error::NotALedger`] (then no file was made beside it), [`Error::SchemaNewer`],
    /// [`Error::Damaged`], [`Error::ReadOnly`], [`Error::PermissionDenied`], [`Error::UnsafeLocation`], [`Error::SqliteTooOld`], [`Error::Busy`] after [`Options::timeout`], [`Error::DiskFull`],
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
        let standing = location::standing(path)?;
        if !options.allow_unsafe_location {
            location::check(path)?;
        }
        if standing == Standing::Nothing && (source.read_only || !options.create) {
            return Err(Error::LedgerMissing { path: path.to_owned() });
        }
        let hooks = Hooks::default();
        let deadline = Deadline::after(options.timeout);
        hooks.patience.set(Some(deadline));
        // Where it may not be written it is looked at all the same: every call says the same of the same file.
        let bar = location::bar_to_writing(path).filter(|_| !source.read_only);
        if source.read_only || (bar.is_some() && standing == Standing::File) {
            let reading = Source {
                read_only: true,
                ..source.clone()
            };
            let lock = WriteLock::new(path, false);
            let named = |error| told(&lock, deadline, error);
            let file = FileId::at(path)?;
            let mut reader = reading.connect_to_read(&hooks).map_err(named)?;
            reading.prepare(&mut reader.connection).map_err(named)?;
            let id = reader
                .read(|connection| Ok(Head::read(connection)?.ledger))
                .map_err(named)?;
            hooks.patience.set(None);
            return match bar {
                Some(bar) => Err(bar),
                None => Ok(Self {
                    id,
                    path: path.to_owned(),
                    source: source.standing_still(file)?,
                    file,
                    clock: options.clock,
                    timeout: options.timeout,
                    reader: Handle::new(reader.into_shared(), hooks),
                    writer: Handle::new(None, Hooks::default()),
                    lock,
                    ran_dry: AtomicBool::new(false),
                }),
            };
        }
        if let Some(bar) = bar {
            return Err(bar);
        }
        // What is no ledger is refused before anything is made beside it.
        let looked_at = match standing {
            Standing::File => {
                let file = FileId::at(path)?;
                let connection = source.connect_to_ledger(&hooks, options.create);
                Some((
                    file,
                    connection.map_err(|error| told(&WriteLock::new(path, false), deadline, error))?,
                ))
            }
            Standing::Nothing => {
                location::create_folder(path)?;
                None
            }
        };
        let lock = WriteLock::new(path, true);
        let named = |error| told(&lock, deadline, error);
        let (file, connection) = match looked_at {
            // What most find: a ledger for which nothing has to be written, so that nobody has to be waited for.
            Some((file, connection)) if source.adopt(&connection).map_err(named)? => (file, connection),
            looked_at => {
                // One process creates or migrates, the others wait.
                let _turn = lock.acquire(deadline)?;
                let (file, mut connection) = match looked_at {
                    Some(found) => found,
                    None => {
                        location::create_file(path)?;
                        (FileId::at(path)?, source.connect(&hooks).map_err(named)?)
                    }
                };
                source.prepare(&mut connection).map_err(named)?;
                (file, connection)
            }
        };
        let id = Head::read(&connection)?.ledger;
        let source = source.standing_still(file)?;
        hooks.patience.set(None);
        Ok(Self {
            id,
            path: path.to_owned(),
            source,
            file,
            clock: options.clock,
            timeout: options.timeout,
            lock,
            reader: Handle::new(None, Hooks::default()),
            writer: Handle::new(Some(connection), hooks),
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
        let hooks = Hooks::default();
        let deadline = Deadline::after(self.timeout);
        hooks.patience.set(Some(deadline));
        let named = |error| told(&self.lock, deadline, error);
        let reader = self.source.connect_to_read(&hooks).map_err(named)?;
        hooks.patience.set(None);
        reader.read(look)
    }

    /// Reads in one snapshot; never writes.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        self.check_in_place()?;
        let deadline = Deadline::after(self.timeout);
        let named = |error| told(&self.lock, deadline, error);
        let mut handle = self.reader.get();
        self.reader.hooks.patience.set(Some(deadline));
        let reader = match handle.take() {
            Some(connection) => Reader::shared(connection),
            None => self.source.connect_to_read(&self.reader.hooks).map_err(named)?,
        };
        let answer = reader.read(look).map_err(named);
        self.reader.hooks.patience.set(None);
        if !answer.as_ref().is_err_and(Error::poisons) {
            *handle = reader.into_shared();
        }
        answer
    }
}

/// Whether `path` names the ledger or the gate at `own`, or one of the files that lie beside it while it is in use: nothing
/// else must be written there, whether or not something is there now.
#[must_use]
pub fn is_own_file(own: &Path, path: &Path) -> bool {
    location::is_part_of(own, path)
}

/// Adds who holds the lock and how long the call waited.
pub(crate) fn told(lock: &WriteLock, deadline: Deadline, error: Error) -> Error {
    if matches!(error, Error::Busy { .. }) {
        lock.busy(deadline)
    } else {
        error
    }
}
