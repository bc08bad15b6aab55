//! The rows of assignments.

use keyfence_core::attempt::{Assignment, AssignmentState, Attempt, Finished, FinishedBy, Outcome};
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Expiry, Name, TimeMs};
use rusqlite::{Row, params};

use super::cells::Cells;
use super::rows::{Cache, Rows, Stored, number_of, one_changed, query_one, stored_expiry};
use super::{SqliteStep, bug, failed};
use crate::error::Error;
use crate::store::check::Check;

macro_rules! select {
    ($rest:literal) => {
        select!("", $rest)
    };
    ($more:literal, $rest:literal) => {
        concat!(
            "SELECT number, id, actor, retry_of, state, attempt, process, token, lease_token, since_ms, expires_at_ms, ",
            "last_attempt, last_token, last_digest, ended_at_ms, row_check",
            $more,
            " FROM keyfence_assignment ",
            $rest
        )
    };
}

pub(crate) const SELECT: &str = select!("WHERE id = ?1");
/// All rows.
pub(crate) const ALL: &str = select!("ORDER BY number");
/// All rows, with their results.
pub(crate) const WITH_RESULTS: &str = select!(", result", "ORDER BY number");
/// A page of the table.
pub(crate) const PAGE: &str = select!("WHERE number > ?1 ORDER BY number LIMIT ?2");
/// The RUNNING ones whose attempt is not live: it has lapsed, or its actor's row does not carry its lease token.
pub(crate) const LOST: &str = select!(
    "WHERE state = 1 AND (expires_at_ms <= ?1 OR NOT EXISTS (SELECT 1 FROM keyfence_actor \
     WHERE name = keyfence_assignment.actor AND token = keyfence_assignment.lease_token)) LIMIT ?2"
);
const INSERT: &str = "INSERT INTO keyfence_assignment (id, actor, retry_of, state, attempt, process, token, \
    lease_token, since_ms, expires_at_ms, last_attempt, last_token, last_digest, ended_at_ms, row_check, result) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
const UPDATE: &str = "UPDATE keyfence_assignment SET state = ?2, attempt = ?3, process = ?4, token = ?5, \
    lease_token = ?6, since_ms = ?7, expires_at_ms = ?8, last_attempt = ?9, last_token = ?10, last_digest = ?11, \
    ended_at_ms = ?12, row_check = ?13, result = ?14 \
    WHERE number = ?1 AND state = ?15 AND token IS ?16 AND expires_at_ms IS ?17 AND row_check = ?18";

const CREATED: i64 = 0;
const RUNNING: i64 = 1;
const COMPLETED: i64 = 2;
const BLOCKED: i64 = 3;
const FAILED: i64 = 4;
const PRUNED: i64 = 5;

/// The row as its columns have it.
#[derive(Default)]
struct Columns {
    state: i64,
    attempt: Option<[u8; 16]>,
    process: Option<[u8; 16]>,
    token: Option<i64>,
    lease_token: Option<i64>,
    since: Option<i64>,
    expiry: Option<i64>,
    last_attempt: Option<[u8; 16]>,
    last_token: Option<i64>,
    last_digest: Option<[u8; 16]>,
}

fn columns(assignment: &Assignment) -> Result<Columns, Failure<Error>> {
    Ok(match &assignment.state {
        AssignmentState::Created { released } => Columns {
            state: CREATED,
            last_attempt: released.map(|(attempt, _)| *attempt.as_bytes()),
            last_token: released.map(|(_, token)| number_of(token.get())),
            ..Columns::default()
        },
        AssignmentState::Running(attempt) => Columns {
            state: RUNNING,
            attempt: Some(*attempt.id.as_bytes()),
            process: Some(*attempt.process.as_bytes()),
            token: Some(number_of(attempt.token.get())),
            lease_token: Some(number_of(attempt.lease_token.get())),
            since: Some(number_of(attempt.since.as_ms())),
            expiry: Some(stored_expiry(attempt.expiry)?),
            ..Columns::default()
        },
        AssignmentState::Finished(finished) => Columns {
            state: match finished.outcome {
                Outcome::Completed => COMPLETED,
                Outcome::Blocked => BLOCKED,
                Outcome::Failed => FAILED,
            },
            last_attempt: Some(*finished.attempt.as_bytes()),
            last_token: Some(number_of(finished.token.get())),
            last_digest: match &finished.by {
                FinishedBy::Attempt(digest) => Some(*digest.as_bytes()),
                FinishedBy::WorkerLost => None,
            },
            ..Columns::default()
        },
        AssignmentState::Pruned => Columns {
            state: PRUNED,
            ..Columns::default()
        },
    })
}

/// Reads a row.
pub(crate) fn decode(row: &Row<'_>) -> Result<Stored<Assignment>, Failure<Error>> {
    let cells = Cells::new(row, Place::Assignment, 1);
    let state = cells.integer(4)?;
    let finished = |outcome| -> Result<AssignmentState, Failure<Error>> {
        Ok(AssignmentState::Finished(Finished {
            outcome,
            attempt: cells.with(cells.opt_attempt(11))?,
            token: cells.token(12)?,
            by: match cells.opt_digest(13)? {
                Some(digest) => FinishedBy::Attempt(digest),
                None => FinishedBy::WorkerLost,
            },
        }))
    };
    let state = match state {
        CREATED => AssignmentState::Created {
            released: match cells.opt_token(12)? {
                Some(token) => Some((cells.with(cells.opt_attempt(11))?, token)),
                None => None,
            },
        },
        RUNNING => AssignmentState::Running(Attempt {
            id: cells.with(cells.opt_attempt(5))?,
            token: cells.token(7)?,
            process: cells.with(cells.opt_process(6))?,
            lease_token: cells.token(8)?,
            since: cells.time(9)?,
            expiry: cells.expiry(10)?,
        }),
        COMPLETED => finished(Outcome::Completed)?,
        BLOCKED => finished(Outcome::Blocked)?,
        FAILED => finished(Outcome::Failed)?,
        PRUNED => AssignmentState::Pruned,
        _ => return Err(cells.damaged("its state is unknown")),
    };
    let assignment = Assignment {
        id: cells.name(1)?,
        actor: cells.name(2)?,
        retry_of: cells.opt_name(3)?,
        state,
    };
    let ended_at = cells.opt_time(14)?;
    let check = cells.integer(15)?;
    cells.verify(check, assignment.check(ended_at))?;
    Ok(Stored {
        number: cells.integer(0)?,
        check,
        ended_at,
        row: assignment,
    })
}

impl Rows for Assignment {
    fn cache<'s>(step: &'s mut SqliteStep<'_>) -> &'s mut Cache<Self> {
        &mut step.caches.assignments
    }

    fn expiry(&self) -> Option<Expiry> {
        match &self.state {
            AssignmentState::Running(attempt) => Some(attempt.expiry),
            AssignmentState::Created { .. } | AssignmentState::Finished(_) | AssignmentState::Pruned => None,
        }
    }

    fn ends(&self) -> bool {
        match &self.state {
            AssignmentState::Finished(_) | AssignmentState::Pruned => true,
            AssignmentState::Created { .. } | AssignmentState::Running(_) => false,
        }
    }

    fn check(&self, ended_at: Option<TimeMs>) -> i64 {
        let mut check = Check::new("keyfence_assignment");
        check.text(self.id.as_str());
        check.text(self.actor.as_str());
        check.opt(self.retry_of.as_ref(), |check, id| check.text(id.as_str()));
        match &self.state {
            AssignmentState::Created { released } => {
                check.word(CREATED.cast_unsigned());
                check.opt(released.as_ref(), |check, (attempt, token)| {
                    check.bytes(attempt.as_bytes());
                    check.word(token.get());
                });
            }
            AssignmentState::Running(attempt) => {
                check.word(RUNNING.cast_unsigned());
                check.bytes(attempt.id.as_bytes());
                check.word(attempt.token.get());
                check.bytes(attempt.process.as_bytes());
                check.word(attempt.lease_token.get());
                check.word(attempt.since.as_ms());
                check.opt(attempt.expiry.time(), |check, time| check.word(time.as_ms()));
            }
            AssignmentState::Finished(finished) => {
                check.text(finished.outcome.name());
                check.bytes(finished.attempt.as_bytes());
                check.word(finished.token.get());
                match &finished.by {
                    FinishedBy::Attempt(digest) => check.bytes(digest.as_bytes()),
                    FinishedBy::WorkerLost => check.word(0),
                }
            }
            AssignmentState::Pruned => check.word(PRUNED.cast_unsigned()),
        }
        check.opt(ended_at, |check, time| check.word(time.as_ms()));
        check.finish()
    }

    fn load(step: &mut SqliteStep<'_>, key: &Name) -> Result<Option<Stored<Self>>, Failure<Error>> {
        query_one(step.connection, SELECT, params![key.as_str()], decode)
    }

    fn insert(&self, step: &mut SqliteStep<'_>, check: i64, ended_at: Option<TimeMs>) -> Result<i64, Failure<Error>> {
        let c = columns(self)?;
        let mut statement = step.connection.prepare_cached(INSERT).map_err(failed)?;
        statement
            .insert(params![
                self.id.as_str(),
                self.actor.as_str(),
                self.retry_of.as_ref().map(Name::as_str),
                c.state,
                c.attempt,
                c.process,
                c.token,
                c.lease_token,
                c.since,
                c.expiry,
                c.last_attempt,
                c.last_token,
                c.last_digest,
                ended_at.map(|time| number_of(time.as_ms())),
                check,
                step.texts.result
            ])
            .map_err(failed)
    }

    fn update(
        &self,
        step: &mut SqliteStep<'_>,
        before: &Stored<Self>,
        check: i64,
        ended_at: Option<TimeMs>,
    ) -> Result<(), Failure<Error>> {
        // The update leaves these alone.
        if self.actor != before.row.actor || self.retry_of != before.row.retry_of {
            return Err(bug(format!(
                "the assignment `{}` was changed where none changes",
                self.id
            )));
        }
        let c = columns(self)?;
        let b = columns(&before.row)?;
        let mut statement = step.connection.prepare_cached(UPDATE).map_err(failed)?;
        let changed = statement
            .execute(params![
                before.number,
                c.state,
                c.attempt,
                c.process,
                c.token,
                c.lease_token,
                c.since,
                c.expiry,
                c.last_attempt,
                c.last_token,
                c.last_digest,
                ended_at.map(|time| number_of(time.as_ms())),
                check,
                step.texts.result,
                b.state,
                b.token,
                b.expiry,
                before.check
            ])
            .map_err(failed)?;
        one_changed(changed, Place::Assignment, &self.id)
    }
}
