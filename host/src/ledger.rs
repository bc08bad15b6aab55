//! The handle of a ledger, and the one way in which every write is made.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keyfence_core::store::{Failure, Store};
use keyfence_core::{Decision, LedgerId, TimeMs, Token};
use rusqlite::Connection;
use rusqlite::ffi::ErrorCode;

use crate::call::Call;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::store::connection::{Owner, Patience, Source};
use crate::store::location;
use crate::store::lock::{Deadline, WriteLock};
use crate::store::step::SqliteStep;
use crate::store::step::head::Head;

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
pub struct Ledger {
    id: LedgerId,
    source: Source,
    clock: Arc<dyn Clock>,
    timeout: Duration,
    lock: WriteLock,
    writer: Handle,
    reader: Handle,
}

/// A connection that is opened when it is needed, and again after a failure (H6).
pub(crate) struct Handle {
    connection: Mutex<Option<Connection>>,
    patience: Patience,
}

impl Handle {
    const fn closed(patience: Patience) -> Self {
        Self {
            connection: Mutex::new(None),
            patience,
        }
    }

    fn get(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a step ended.
struct Ended<T> {
    answer: Result<Decision<T>, Failure<Error>>,
    /// Whether the connection can be used again.
    sound: bool,
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
        if !path.try_exists().map_err(|error| location::storage(path, error))? {
            if !options.create || options.read_only {
                return Err(Error::LedgerMissing { path: path.to_owned() });
            }
            location::create_folder(path)?;
        }
        if !options.allow_unsafe_location {
            location::check(path)?;
        }
        let deadline = Deadline::after(options.timeout);
        let patience = Patience::default();
        patience.set(Some(deadline));
        let lock = WriteLock::new(path, !source.read_only);
        let (id, connection) = {
            // One process creates or migrates, the others wait.
            let _turn = if source.read_only {
                None
            } else {
                Some(lock.acquire(deadline)?)
            };
            if !source.read_only {
                location::create_file(path)?;
            }
            let mut connection = source
                .connect(&patience)
                .map_err(|error| told(&lock, deadline, error))?;
            source
                .prepare(&mut connection)
                .map_err(|error| told(&lock, deadline, error))?;
            (Head::read(&connection)?.ledger, connection)
        };
        patience.set(None);
        let first = Some(connection);
        let (writer, reader) = (Handle::closed(patience), Handle::closed(Patience::default()));
        *writer.get() = first;
        Ok(Self {
            id,
            source,
            clock: options.clock,
            timeout: options.timeout,
            lock,
            writer,
            reader,
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
        &self.source.path
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

    pub(crate) const fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) const fn lock(&self) -> &WriteLock {
        &self.lock
    }

    /// Reads in one snapshot; never writes.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        let deadline = Deadline::after(self.timeout);
        let mut handle = self.reader.get();
        self.reader.patience.set(Some(deadline));
        let connection = match handle.take() {
            Some(connection) => connection,
            None => {
                let source = Source {
                    read_only: true,
                    ..self.source.clone()
                };
                source
                    .connect(&self.reader.patience)
                    .map_err(|error| told(&self.lock, deadline, error))?
            }
        };
        let answer = snapshot(&connection, look).map_err(|error| told(&self.lock, deadline, error));
        self.reader.patience.set(None);
        if !answer.as_ref().is_err_and(Error::poisons) {
            *handle = Some(connection);
        }
        answer
    }

    /// Makes one step: waits for the right to write, decides, and commits what was put.
    pub(crate) fn write<T>(
        &self,
        timeout: Duration,
        decide: impl FnOnce(&mut SqliteStep<'_>, TimeMs) -> Result<Decision<T>, Failure<Error>>,
    ) -> Result<Decision<T>, Failure<Error>> {
        self.with_writer(timeout, |connection| step(connection, &*self.clock, decide))
    }

    /// Lends the writing connection, under the lock, with an open write transaction.
    fn with_writer<T>(
        &self,
        timeout: Duration,
        act: impl FnOnce(&Connection) -> Ended<T>,
    ) -> Result<Decision<T>, Failure<Error>> {
        if self.source.read_only {
            return Err(Failure::Store(Error::ReadOnly));
        }
        let deadline = Deadline::after(timeout);
        let _turn = self.lock.acquire(deadline).map_err(Failure::Store)?;
        let mut handle = self.writer.get();
        self.writer.patience.set(Some(deadline));
        let connection = match handle.take() {
            Some(connection) => connection,
            None => self
                .reopen()
                .map_err(|error| Failure::Store(told(&self.lock, deadline, error)))?,
        };
        let begun = connection
            .prepare_cached("BEGIN IMMEDIATE")
            .and_then(|mut begin| begin.execute([]));
        if let Err(error) = begun {
            let error = told(&self.lock, deadline, error.into());
            if !error.poisons() {
                *handle = Some(connection);
            }
            return Err(Failure::Store(error));
        }
        let ended = act(&connection);
        self.writer.patience.set(None);
        if ended.sound {
            *handle = Some(connection);
        }
        ended.answer
    }

    fn reopen(&self) -> Result<Connection, Error> {
        let mut connection = self.source.connect(&self.writer.patience)?;
        self.source.prepare(&mut connection)?;
        Ok(connection)
    }
}

/// Adds who holds the lock and how long the call waited.
fn told(lock: &WriteLock, deadline: Deadline, error: Error) -> Error {
    let interrupted = matches!(&error, Error::Sqlite(error)
        if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted));
    match error {
        Error::Busy { .. } => lock.busy(deadline),
        _ if interrupted && deadline.has_passed() => lock.busy(deadline),
        other => other,
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

/// Decides and commits in the write transaction that is open.
fn step<T>(
    connection: &Connection,
    clock: &dyn Clock,
    decide: impl FnOnce(&mut SqliteStep<'_>, TimeMs) -> Result<Decision<T>, Failure<Error>>,
) -> Ended<T> {
    // Every wait is over (H5).
    let now = clock.now();
    let mut step = match SqliteStep::begin(connection, now) {
        Ok(step) => step,
        Err(failure) => return abandon(connection, Err(failure)),
    };
    let decision = match decide(&mut step, now) {
        Ok(decision) => decision,
        Err(failure) => return abandon(connection, Err(failure)),
    };
    if decision.is_err() && step.minted() {
        let what = "a refused call minted a token".into();
        return abandon(connection, Err(Failure::Store(Error::Bug { what })));
    }
    if !step.is_dirty() && !step.is_broken() {
        return abandon(connection, Ok(decision));
    }
    match step.finish().and_then(|()| commit(connection)) {
        Ok(()) => Ended {
            answer: Ok(decision),
            sound: true,
        },
        // A refusal stands whether or not it could be recorded.
        Err(failure) if decision.is_err() => Ended {
            sound: !Error::from(failure).poisons() && abandon(connection, Ok(Ok(()))).sound,
            answer: Ok(decision),
        },
        Err(failure) => abandon(connection, Err(failure)),
    }
}

/// Rolls the transaction back and keeps the answer.
fn abandon<T>(connection: &Connection, answer: Result<Decision<T>, Failure<Error>>) -> Ended<T> {
    let poisoned = match &answer {
        Ok(_) => false,
        Err(Failure::Store(error)) => error.poisons(),
        Err(Failure::Unknown(_) | Failure::Corrupt(_)) => true,
    };
    // SQLite may have rolled back by itself.
    let rolled_back = connection.is_autocommit()
        || connection
            .prepare_cached("ROLLBACK")
            .and_then(|mut rollback| rollback.execute([]))
            .is_ok();
    Ended {
        answer,
        sound: rolled_back && !poisoned,
    }
}

/// Commits, and tells apart a commit that did not happen from one that may have.
fn commit(connection: &Connection) -> Result<(), Failure<Error>> {
    if connection.is_autocommit() {
        return Err(Failure::Store(Error::Bug {
            what: "the transaction had ended before its commit".into(),
        }));
    }
    let committed = connection
        .prepare_cached("COMMIT")
        .and_then(|mut commit| commit.execute([]));
    match committed {
        Ok(_) => Ok(()),
        Err(error) => {
            let code = error.sqlite_error_code();
            let error = Error::from(error);
            // A full disk and a busy file are met before the record that makes a commit is written: the transaction
            // is still open. After any other failure it may be in the log.
            let not_written = matches!(code, Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy));
            if not_written && !connection.is_autocommit() {
                Err(Failure::Store(error))
            } else {
                Err(Failure::Unknown(error))
            }
        }
    }
}

impl Store for Ledger {
    type Error = Error;
    type Step<'a> = SqliteStep<'a>;

    fn step<T>(
        &mut self,
        mut decide: impl FnMut(&mut Self::Step<'_>, TimeMs) -> Result<Decision<T>, Failure<Error>>,
    ) -> Result<Decision<T>, Failure<Error>> {
        self.write(self.timeout, |step, now| decide(step, now))
    }
}
