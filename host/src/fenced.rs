//! A fence for rows of the caller's own: they and the fence commit together.

use keyfence_core::Decision;
use keyfence_core::attempt::{self, AttemptGrant, Done};
use keyfence_core::mailbox::MessageGrant;
use keyfence_core::session::SessionGrant;
use rusqlite::Connection;

use crate::error::{Error, Outcome};
use crate::ledger::Ledger;

/// The terminal write that the caller's rows are committed with.
#[derive(Clone, Copy, Debug)]
pub enum Terminal<'a> {
    /// Completes a message.
    Complete {
        /// The claim.
        grant: &'a MessageGrant,
        /// What came of the work.
        result: &'a [u8],
    },
    /// Dead-letters a message.
    DeadLetter {
        /// The claim.
        grant: &'a MessageGrant,
        /// Why.
        reason: &'a str,
    },
    /// Finishes an assignment.
    FinishAttempt {
        /// The attempt.
        grant: &'a AttemptGrant,
        /// How it ends.
        outcome: attempt::Outcome,
        /// What came of the work.
        result: &'a [u8],
    },
    /// Finishes a session.
    FinishSession {
        /// The claim.
        grant: &'a SessionGrant,
        /// What came of the work.
        result: &'a [u8],
    },
}

/// What became of a fenced write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fenced<R> {
    /// The caller's rows and the terminal write are committed; this is what the closure returned.
    Now(R),
    /// The act had been done before by this very grant with this very outcome: the closure did not run.
    Already,
}

/// Why a fenced write came to no decision. Nothing of it was committed, save for [`Error::Unknown`].
#[derive(Debug, thiserror::Error)]
pub enum FencedError<E> {
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] Error),
    /// The caller's closure failed; everything was rolled back.
    #[error("the fenced work failed")]
    Work(E),
}

/// What a call inside a transaction will have answered once the transaction is committed.
#[derive(Debug)]
#[must_use]
pub struct Pending<T> {
    value: T,
}

impl<T> Pending<T> {
    /// The answer, now that the transaction is committed; `None` with another transaction's receipt.
    pub fn redeem(self, _receipt: &Receipt) -> Option<T> {
        Some(self.value)
    }
}

/// Shows that a transaction is committed.
#[derive(Debug)]
pub struct Receipt {}

/// A transaction that keyfence began.
pub struct Tx<'t> {
    connection: &'t Connection,
}

impl Tx<'_> {
    /// The connection, for the caller's own rows.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        self.connection
    }

    /// A terminal write.
    ///
    /// # Errors
    /// [`Error`].
    pub fn terminal(&mut self, _terminal: Terminal<'_>) -> Outcome<Pending<Done>> {
        Err(crate::error::unavailable())
    }
}

impl Ledger {
    /// Runs `work` in the transaction of a terminal write: both commit or neither does.
    ///
    /// # Errors
    /// [`FencedError`].
    pub fn fenced<R, E>(
        &self,
        _terminal: Terminal<'_>,
        _work: impl FnOnce(&Connection) -> Result<R, E>,
    ) -> Result<Decision<Fenced<R>>, FencedError<E>> {
        Err(crate::error::unavailable().into())
    }

    /// Runs `work` in one write transaction.
    ///
    /// # Errors
    /// [`FencedError`].
    pub fn transaction<R, E>(
        &self,
        _work: impl FnOnce(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Receipt), FencedError<E>> {
        Err(crate::error::unavailable().into())
    }

    /// Makes a terminal write in a write transaction that the caller began on a connection of his own to this file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn terminal_in(&self, _connection: &Connection, _terminal: Terminal<'_>) -> Outcome<Pending<Done>> {
        Err(crate::error::unavailable())
    }
}
