//! The rows of sessions.

use keyfence_core::session::{Claim, Generation, Session, SessionState};
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Expiry, Name, TimeMs};
use rusqlite::{Row, params};

use super::cells::Cells;
use super::rows::{Cache, Rows, Stored, number_of, one_changed, query_one, stored_expiry};
use super::{SqliteStep, failed};
use crate::error::Error;
use crate::store::check::Check;

macro_rules! select {
    ($rest:literal) => {
        select!("", $rest)
    };
    ($more:literal, $rest:literal) => {
        concat!(
            "SELECT number, name, state, incarnation, host, host_token, process, token, since_ms, expires_at_ms, ",
            "last_host, last_incarnation, last_token, last_host_token, last_digest, ended_at_ms, row_check",
            $more,
            " FROM keyfence_session ",
            $rest
        )
    };
}

pub(crate) const SELECT: &str = select!("WHERE name = ?1");
/// All rows.
pub(crate) const ALL: &str = select!("ORDER BY number");
/// All rows, with their results.
pub(crate) const WITH_RESULTS: &str = select!(", result", "ORDER BY number");
/// A page of the table.
pub(crate) const PAGE: &str = select!("WHERE number > ?1 ORDER BY number LIMIT ?2");
const INSERT: &str = "INSERT INTO keyfence_session (name, state, incarnation, host, host_token, process, token, \
    since_ms, expires_at_ms, last_host, last_incarnation, last_token, last_host_token, last_digest, ended_at_ms, \
    row_check, result) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
const UPDATE: &str = "UPDATE keyfence_session SET state = ?2, incarnation = ?3, host = ?4, host_token = ?5, \
    process = ?6, token = ?7, since_ms = ?8, expires_at_ms = ?9, last_host = ?10, last_incarnation = ?11, \
    last_token = ?12, last_host_token = ?13, last_digest = ?14, ended_at_ms = ?15, row_check = ?16, result = ?17 \
    WHERE number = ?1 AND state = ?18 AND token IS ?19 AND expires_at_ms IS ?20 AND row_check = ?21";

const FREE: i64 = 0;
const CLAIMED: i64 = 1;
const FINISHED: i64 = 2;
const PRUNED: i64 = 3;

/// The row as its columns have it.
#[derive(Default)]
struct Columns<'r> {
    state: i64,
    incarnation: Option<i64>,
    claim: Option<&'r Claim>,
    token: Option<i64>,
    expiry: Option<i64>,
    last: Option<&'r Generation>,
    digest: Option<&'r [u8; 16]>,
}

fn columns(session: &Session) -> Result<Columns<'_>, Failure<Error>> {
    Ok(match &session.state {
        SessionState::Claimed(claim) => Columns {
            state: CLAIMED,
            incarnation: Some(number_of(claim.generation.incarnation.get())),
            claim: Some(claim),
            token: Some(number_of(claim.generation.token.get())),
            expiry: Some(stored_expiry(claim.expiry)?),
            ..Columns::default()
        },
        SessionState::Free { incarnation, released } => Columns {
            state: FREE,
            incarnation: Some(number_of(incarnation.get())),
            last: released.as_ref(),
            ..Columns::default()
        },
        SessionState::Finished(generation, digest) => Columns {
            state: FINISHED,
            incarnation: Some(number_of(generation.incarnation.get())),
            last: Some(generation),
            digest: Some(digest.as_bytes()),
            ..Columns::default()
        },
        SessionState::Pruned => Columns {
            state: PRUNED,
            ..Columns::default()
        },
    })
}

fn last(cells: &Cells<'_>) -> Result<Option<Generation>, Failure<Error>> {
    let Some(token) = cells.opt_token(12)? else {
        return Ok(None);
    };
    Ok(Some(Generation {
        host: cells.name(10)?,
        incarnation: cells.incarnation(11)?,
        token,
        host_token: cells.token(13)?,
    }))
}

/// Reads a row.
pub(crate) fn decode(row: &Row<'_>) -> Result<Stored<Session>, Failure<Error>> {
    let cells = Cells::new(row, Place::Session, 1);
    let state = match cells.integer(2)? {
        FREE => SessionState::Free {
            incarnation: cells.incarnation(3)?,
            released: last(&cells)?,
        },
        CLAIMED => SessionState::Claimed(Claim {
            generation: Generation {
                host: cells.name(4)?,
                incarnation: cells.incarnation(3)?,
                token: cells.token(7)?,
                host_token: cells.token(5)?,
            },
            process: cells.with(cells.opt_process(6))?,
            since: cells.time(8)?,
            expiry: cells.expiry(9)?,
        }),
        FINISHED => SessionState::Finished(cells.with(last(&cells))?, cells.digest(14)?),
        PRUNED => SessionState::Pruned,
        _ => return Err(cells.damaged("its state is unknown")),
    };
    let session = Session {
        name: cells.name(1)?,
        state,
    };
    let ended_at = cells.opt_time(15)?;
    let check = cells.integer(16)?;
    cells.verify(check, session.check(ended_at))?;
    Ok(Stored {
        number: cells.integer(0)?,
        check,
        ended_at,
        row: session,
    })
}

fn check_generation(check: &mut Check, generation: &Generation) {
    check.text(generation.host.as_str());
    check.word(generation.incarnation.get());
    check.word(generation.token.get());
    check.word(generation.host_token.get());
}

impl Rows for Session {
    fn cache<'s>(step: &'s mut SqliteStep<'_>) -> &'s mut Cache<Self> {
        &mut step.caches.sessions
    }

    fn expiry(&self) -> Option<Expiry> {
        self.claim().map(|claim| claim.expiry)
    }

    fn ends(&self) -> bool {
        match &self.state {
            SessionState::Finished(..) | SessionState::Pruned => true,
            SessionState::Claimed(_) | SessionState::Free { .. } => false,
        }
    }

    fn check(&self, ended_at: Option<TimeMs>) -> i64 {
        let mut check = Check::new("keyfence_session");
        check.text(self.name.as_str());
        match &self.state {
            SessionState::Claimed(claim) => {
                check.word(CLAIMED.cast_unsigned());
                check_generation(&mut check, &claim.generation);
                check.bytes(claim.process.as_bytes());
                check.word(claim.since.as_ms());
                check.opt(claim.expiry.time(), |check, time| check.word(time.as_ms()));
            }
            SessionState::Free { incarnation, released } => {
                check.word(FREE.cast_unsigned());
                check.word(incarnation.get());
                check.opt(released.as_ref(), check_generation);
            }
            SessionState::Finished(generation, digest) => {
                check.word(FINISHED.cast_unsigned());
                check_generation(&mut check, generation);
                check.bytes(digest.as_bytes());
            }
            SessionState::Pruned => check.word(PRUNED.cast_unsigned()),
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
                self.name.as_str(),
                c.state,
                c.incarnation,
                c.claim.map(|claim| claim.generation.host.as_str()),
                c.claim.map(|claim| number_of(claim.generation.host_token.get())),
                c.claim.map(|claim| claim.process.as_bytes()),
                c.token,
                c.claim.map(|claim| number_of(claim.since.as_ms())),
                c.expiry,
                c.last.map(|generation| generation.host.as_str()),
                c.last.map(|generation| number_of(generation.incarnation.get())),
                c.last.map(|generation| number_of(generation.token.get())),
                c.last.map(|generation| number_of(generation.host_token.get())),
                c.digest,
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
        let c = columns(self)?;
        let b = columns(&before.row)?;
        let mut statement = step.connection.prepare_cached(UPDATE).map_err(failed)?;
        let changed = statement
            .execute(params![
                before.number,
                c.state,
                c.incarnation,
                c.claim.map(|claim| claim.generation.host.as_str()),
                c.claim.map(|claim| number_of(claim.generation.host_token.get())),
                c.claim.map(|claim| claim.process.as_bytes()),
                c.token,
                c.claim.map(|claim| number_of(claim.since.as_ms())),
                c.expiry,
                c.last.map(|generation| generation.host.as_str()),
                c.last.map(|generation| number_of(generation.incarnation.get())),
                c.last.map(|generation| number_of(generation.token.get())),
                c.last.map(|generation| number_of(generation.host_token.get())),
                c.digest,
                ended_at.map(|time| number_of(time.as_ms())),
                check,
                step.texts.result,
                b.state,
                b.token,
                b.expiry,
                before.check
            ])
            .map_err(failed)?;
        one_changed(changed, Place::Session, &self.name)
    }
}
