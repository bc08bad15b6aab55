//! A fence for rows of the caller's own: they and the fence commit together.
//!
//! * [`Ledger::fenced`] runs the caller's writes in the transaction of one terminal write.
//! * [`Ledger::transaction`] begins a transaction for several calls and writes. What a call in it answers is [`Pending`]
//!   until the transaction has committed: no token is shown to anyone before it is durable.
//! * [`Ledger::terminal_in`] makes a terminal write in a transaction that the caller began on a connection of his own;
//!   claims are not possible there.
//!
//! On keyfence's connections the caller may work on tables of his own in the same file: not on keyfence's tables, not on
//! the transaction itself, and not on attached files, because a write that spans files is not atomic under WAL.
//!
//! ```
//! use keyfence::core::mailbox::{ClaimNext, Priority};
//! use keyfence::{Fenced, Ledger, Name, NewMessage, Options, ProcessId, Terminal, Ttl};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("shop.db");
//! let ledger = Ledger::embedded(&path, Options::default())?;
//! // The shop's own table, in the same file.
//! # let own = keyfence::rusqlite::Connection::open(&path)?;
//! own.execute_batch("CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INTEGER)")?;
//!
//! # let (lucy, order) = (Name::new("lucy")?, Name::new("order-1")?);
//! # let process = ProcessId::from_bytes([7; 16]);
//! # let message = NewMessage {
//! #     id: order, sender: None, recipient: lucy.clone(), subject: "order".into(), body: b"3 lamps".to_vec(),
//! #     priority: Priority::default(), not_before: None, retries_max: 3,
//! # };
//! # let _ = ledger.call().mailbox_send(&message)?;
//! let ask = ClaimNext { owner: lucy, process: Some(process), lease_token: None, ttl: Ttl::MAILBOX_CLAIM };
//! let deliveries = ledger.call().mailbox_claim_next(&ask, 1)??;
//! let grant = &deliveries[0].granted.grant;
//! let done = ledger.fenced(Terminal::Complete { grant, result: b"" }, |shop| {
//!     shop.execute("INSERT INTO stock VALUES ('lamp', 3)", [])
//! })??;
//! assert_eq!(done, Fenced::Now(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod pending;
mod transaction;

use keyfence_core::attempt::{self, AttemptGrant, Done};
use keyfence_core::mailbox::MessageGrant;
use keyfence_core::session::SessionGrant;
use keyfence_core::store::Failure;
use keyfence_core::{Decision, TimeMs};
use rusqlite::{Connection, TransactionState};

use crate::call;
use crate::error::{Error, Outcome};
use crate::ledger::{Ended, Ledger, abandon, commit};
use crate::store::connection::check_durable;
use crate::store::step::SqliteStep;

pub use pending::{Pending, Receipt};
pub use transaction::Tx;

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

impl Terminal<'_> {
    fn apply(self, step: &mut SqliteStep<'_>, now: TimeMs) -> Result<Decision<Done>, Failure<Error>> {
        match self {
            Self::Complete { grant, result } => call::settle::complete(step, grant, result, now),
            Self::DeadLetter { grant, reason } => call::settle::dead_letter(step, grant, reason, now),
            Self::FinishAttempt { grant, outcome, result } => call::attempt::finish(step, grant, outcome, result, now),
            Self::FinishSession { grant, result } => call::session::finish(step, grant, result, now),
        }
    }
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
    Work(#[source] E),
}

impl<E> From<Failure<Error>> for FencedError<E> {
    fn from(failure: Failure<Error>) -> Self {
        Self::Ledger(failure.into())
    }
}

impl Ledger {
    /// Runs `work` in the transaction of a terminal write, after the grant was found current: both commit or neither does.
    /// When the act had been done before, `work` does not run; when the grant is refused or `work` fails, nothing is
    /// written but the record of the refusal.
    ///
    /// `work` holds the ledger's lock: it should do nothing but SQL. What it did outside the database, and then failed or
    /// crashed, nobody can take back.
    ///
    /// # Errors
    /// [`FencedError`]. Refuses as the terminal call does.
    pub fn fenced<R, E>(
        &self,
        terminal: Terminal<'_>,
        work: impl FnOnce(&Connection) -> Result<R, E>,
    ) -> Result<Decision<Fenced<R>>, FencedError<E>> {
        let guest = self.guest();
        self.with_writer(self.timeout(), |connection| {
            let now = self.now();
            let mut failed_work = None;
            let ended = crate::ledger::decided(connection, now, |step, now| {
                let done = match terminal.apply(step, now)? {
                    Ok(done) => done,
                    Err(refusal) => return Ok(Err(refusal)),
                };
                if done == Done::Already {
                    return Ok(Ok(Fenced::Already));
                }
                match guest.admit(|| work(connection)) {
                    Ok(answer) => Ok(Ok(Fenced::Now(answer))),
                    Err(error) => {
                        failed_work = Some(error);
                        Err(Failure::Store(Error::Transaction {
                            why: "the caller's work failed".into(),
                        }))
                    }
                }
            });
            match failed_work {
                // Rolled back already; the connection is as sound as it was left.
                Some(error) => Ended {
                    answer: Ok(Err(FencedError::Work(error))),
                    sound: ended.sound,
                },
                None => Ended {
                    answer: ended.answer.map(Ok),
                    sound: ended.sound,
                },
            }
        })?
    }

    /// Runs `work` in one write transaction of keyfence's, and commits it. What its calls answer is [`Pending`]; the
    /// [`Receipt`] turns it into the answer.
    ///
    /// `work` holds the ledger's lock: it should do nothing but SQL and calls on `tx`.
    ///
    /// # Errors
    /// [`FencedError`]: nothing was committed, save for [`Error::Unknown`].
    pub fn transaction<R, E>(
        &self,
        work: impl FnOnce(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Receipt), FencedError<E>> {
        let guest = self.guest();
        self.with_writer(self.timeout(), |connection| {
            let step = match SqliteStep::begin(connection, self.now()) {
                Ok(step) => step,
                Err(failure) => return abandon(connection, Err(failure)),
            };
            let mut tx = Tx::new(step, guest);
            let answer = match work(&mut tx) {
                Ok(answer) => answer,
                Err(error) => {
                    let Ended { sound, .. } = abandon(connection, Ok(()));
                    return Ended {
                        answer: Ok(Err(FencedError::Work(error))),
                        sound,
                    };
                }
            };
            match tx.finish().and_then(|receipt| commit(connection).map(|()| receipt)) {
                Ok(receipt) => Ended {
                    answer: Ok(Ok((answer, receipt))),
                    sound: true,
                },
                Err(failure) => abandon(connection, Err(failure)),
            }
        })?
    }

    /// Makes a terminal write in the write transaction that the caller began on a connection of his own to this file. It is
    /// pending until that transaction has committed; [`Ledger::confirm`] looks.
    ///
    /// The connection is not set up by keyfence, so it is looked at first: WAL, `synchronous=FULL`, an open write
    /// transaction (`BEGIN IMMEDIATE`), this ledger, and no other file attached.
    ///
    /// # Errors
    /// [`Error::Transaction`] says what is missing; other [`Error`]s: nothing of the call is left in the transaction, which
    /// the caller should roll back. Refuses as the terminal call does; the record of the refusal is in the transaction.
    pub fn terminal_in(&self, connection: &Connection, terminal: Terminal<'_>) -> Outcome<Pending<Done>> {
        check_foreign(connection)?;
        self.check_in_place()?;
        connection.execute_batch("SAVEPOINT keyfence")?;
        let decided = self.decide_in(connection, terminal);
        let end = if decided.is_ok() {
            "RELEASE keyfence"
        } else {
            "ROLLBACK TO keyfence; RELEASE keyfence"
        };
        connection.execute_batch(end)?;
        Ok(decided?)
    }

    fn decide_in(
        &self,
        connection: &Connection,
        terminal: Terminal<'_>,
    ) -> Result<Decision<Pending<Done>>, Failure<Error>> {
        let now = self.now();
        let mut step = SqliteStep::begin(connection, now)?;
        if step.head().ledger != self.id() {
            return Err(Failure::Store(Error::Transaction {
                why: "the connection belongs to another ledger".into(),
            }));
        }
        let decision = terminal.apply(&mut step, now)?;
        match step.finish() {
            // A refusal stands whether or not it could be recorded.
            Err(_) if decision.is_err() => {}
            finished => finished?,
        }
        Ok(decision.map(|done| Pending::until_event(done, step.head())))
    }

    /// What a call in a transaction of the caller's own answered, if that transaction has committed; `None` if it has not.
    ///
    /// # Errors
    /// [`Error`]: it cannot be told now. Ask again.
    pub fn confirm<T>(&self, pending: Pending<T>) -> Result<Option<T>, Error> {
        let committed = self.read(|connection| pending.is_committed(connection))?;
        Ok(committed.then(|| pending.into_value()))
    }
}

/// Whether a terminal write can be made in this transaction.
fn check_foreign(connection: &Connection) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Transaction { why: why.into() });
    if connection.is_autocommit() {
        return refuse("none is open");
    }
    if connection.transaction_state(Some("main"))? != TransactionState::Write {
        return refuse("it is not a write transaction: begin it with BEGIN IMMEDIATE");
    }
    check_durable(connection)?;
    let attached: i64 = connection.query_row(
        "SELECT count(*) FROM pragma_database_list WHERE name NOT IN ('main', 'temp')",
        [],
        |row| row.get(0),
    )?;
    if attached > 0 {
        return refuse("another file is attached, and a write that spans files is not atomic under WAL");
    }
    Ok(())
}
