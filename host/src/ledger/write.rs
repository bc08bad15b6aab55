//! The one way in which every write is made: the right to write, a write transaction, a decision, a commit.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keyfence_core::store::{Failure, Store};
use keyfence_core::{Decision, TimeMs};
use rusqlite::Connection;
use rusqlite::ffi::ErrorCode;

use super::{Ledger, told};
use crate::error::Error;
use crate::store::connection::Hooks;
use crate::store::lock::{Deadline, Turn, Waited};
use crate::store::step::SqliteStep;
use crate::store::step::head::Head;

/// The statements that begin and end a transaction of ours. Their remark keeps a guest's `prepare_cached` from finding them.
const BEGIN: &str = "BEGIN IMMEDIATE -- keyfence";
const COMMIT: &str = "COMMIT -- keyfence";
const ROLLBACK: &str = "ROLLBACK -- keyfence";

/// A connection that is opened when it is needed, and again after a failure (H6).
pub(super) struct Handle {
    connection: Mutex<Option<Connection>>,
    pub(super) hooks: Hooks,
}

impl Handle {
    pub(super) const fn new(connection: Option<Connection>, hooks: Hooks) -> Self {
        Self {
            connection: Mutex::new(connection),
            hooks,
        }
    }

    pub(super) fn get(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a step ended.
pub(crate) struct Ended<T> {
    pub(crate) answer: Result<T, Failure<Error>>,
    /// Whether the connection can be used again.
    pub(crate) sound: bool,
}

impl Ledger {
    /// Makes one step: waits for the right to write, decides, and commits what was put.
    pub(crate) fn write<T>(
        &self,
        timeout: Duration,
        decide: impl FnOnce(&mut SqliteStep<'_>, TimeMs) -> Result<Decision<T>, Failure<Error>>,
    ) -> Result<Decision<T>, Failure<Error>> {
        // Every wait is over when the clock is asked (H5).
        self.with_writer(timeout, |connection| decided(connection, self.clock.now(), decide))
    }

    /// Lends the writing connection, under the lock, with an open write transaction.
    pub(crate) fn with_writer<T>(
        &self,
        timeout: Duration,
        act: impl FnOnce(&Connection) -> Ended<T>,
    ) -> Result<T, Failure<Error>> {
        if self.source.read_only {
            return Err(Failure::Store(Error::ReadOnly {
                path: self.source.path.clone(),
                why: "it was opened for reading".into(),
            }));
        }
        let deadline = Deadline::after(timeout);
        let mut turn = self.lock.enter(deadline).map_err(Failure::Store)?;
        let mut handle = self.writer.get();
        self.writer.hooks.patience.set(Some(deadline));
        let connection = match handle.take() {
            Some(connection) => connection,
            None => self
                .reopen()
                .map_err(|error| Failure::Store(told(&self.lock, deadline, error)))?,
        };
        if let Err(error) = self.begin(&connection, &mut turn, deadline) {
            if !error.poisons() {
                *handle = Some(connection);
            }
            return Err(Failure::Store(error));
        }
        // Every wait is over. What is written from here on to a file that lost its name, nobody would ever see.
        let ended = match self.check_in_place() {
            Ok(()) => act(&connection),
            Err(error) => abandon(&connection, Err(Failure::Store(error))),
        };
        self.writer.hooks.patience.set(None);
        if ended.sound {
            *handle = Some(connection);
        }
        ended.answer
    }

    /// Begins the write transaction, under the lock or past it (K4).
    fn begin(&self, connection: &Connection, turn: &mut Turn<'_>, deadline: Deadline) -> Result<(), Error> {
        let patience = &self.writer.hooks.patience;
        loop {
            let waited = turn.wait(deadline)?;
            patience.set((waited == Waited::Ours).then_some(deadline));
            let begun = connection.prepare_cached(BEGIN).and_then(|mut begin| begin.execute([]));
            patience.set(Some(deadline));
            match (begun, waited) {
                (Ok(_), Waited::Ours) => return Ok(()),
                (Ok(_), Waited::PastPatience) => {
                    turn.went_past();
                    return Ok(());
                }
                (Err(error), Waited::PastPatience)
                    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && !deadline.has_passed() => {}
                (Err(error), Waited::Ours | Waited::PastPatience) => {
                    return Err(told(&self.lock, deadline, error.into()));
                }
            }
        }
    }

    /// Opens the file again, if it is the same one still.
    fn reopen(&self) -> Result<Connection, Error> {
        self.check_in_place()?;
        let mut connection = self.source.connect(&self.writer.hooks)?;
        self.source.prepare(&mut connection)?;
        if Head::read(&connection)?.ledger != self.id {
            return Err(Error::LedgerReplaced {
                path: self.source.path.clone(),
            });
        }
        Ok(connection)
    }
}

/// Decides and commits in the write transaction that is open.
pub(crate) fn decided<T>(
    connection: &Connection,
    now: TimeMs,
    decide: impl FnOnce(&mut SqliteStep<'_>, TimeMs) -> Result<Decision<T>, Failure<Error>>,
) -> Ended<Decision<T>> {
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
    let only_recorded = !step.wrote();
    match step.finish().and_then(|()| commit(connection)) {
        Ok(()) => Ended {
            answer: Ok(decision),
            sound: true,
        },
        // A refusal, and a release that changed nothing, stand whether or not they could be recorded.
        Err(failure) if decision.is_err() || only_recorded => Ended {
            answer: Ok(decision),
            ..abandon(connection, Err(failure))
        },
        Err(failure) => abandon(connection, Err(failure)),
    }
}

/// Rolls the transaction back and keeps the answer.
pub(crate) fn abandon<T>(connection: &Connection, answer: Result<T, Failure<Error>>) -> Ended<T> {
    let poisoned = match &answer {
        Ok(_) => false,
        Err(Failure::Store(error)) => error.poisons(),
        Err(Failure::Unknown(_) | Failure::Corrupt(_)) => true,
    };
    // SQLite may have rolled back by itself.
    let rolled_back = connection.is_autocommit()
        || connection
            .prepare_cached(ROLLBACK)
            .and_then(|mut rollback| rollback.execute([]))
            .is_ok();
    Ended {
        answer,
        sound: rolled_back && !poisoned,
    }
}

/// Commits, and tells apart a commit that did not happen from one that may have.
pub(crate) fn commit(connection: &Connection) -> Result<(), Failure<Error>> {
    if connection.is_autocommit() {
        return Err(Failure::Store(Error::Transaction {
            why: "it has ended before its commit".into(),
        }));
    }
    let committed = connection
        .prepare_cached(COMMIT)
        .and_then(|mut commit| commit.execute([]));
    match committed {
        Ok(_) => Ok(()),
        Err(error) => {
            let code = error.sqlite_error_code();
            let error = Error::from(error);
            let not_written = match code {
                // A page did not fit into the log, so the record that makes a commit was not written: it is the last one.
                // (SQLite pads a log behind that record only where sectors are not safe to overwrite; ours are.)
                Some(ErrorCode::DiskFull) => true,
                // A lock was missing before anything was written, and the transaction is open still.
                Some(ErrorCode::DatabaseBusy) => !connection.is_autocommit(),
                // After any other failure the record may be in the log.
                Some(_) | None => false,
            };
            Err(if not_written {
                Failure::Store(error)
            } else {
                Failure::Unknown(error)
            })
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
