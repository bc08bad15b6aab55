//! What a replaced ledger had finished, carried over into the restored one.

use keyfence_core::attempt::{Assignment, AssignmentState, Finished, FinishedBy, Outcome};
use keyfence_core::event::{Event, EventKind};
use keyfence_core::mailbox::{Last, Message, MessageState};
use keyfence_core::refusal::Holder;
use keyfence_core::session::{Session, SessionState};
use keyfence_core::store::{Failure, Table as _, Transaction as _};
use keyfence_core::{Incarnation, TimeMs};
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::Stage;
use crate::error::Error;
use crate::store::step::message::{self, message_columns};
use crate::store::step::rows::{Rows, Stored};
use crate::store::step::{SqliteStep, Texts, assignment, failed, session};

/// A record that ends, and how its end is carried over.
trait Salvaged: Rows {
    /// All of them, in order.
    const ALL: &'static str;
    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>>;
    /// The event of its end, at `now`; none of a tombstone.
    fn end(&self, now: TimeMs) -> Option<Event>;
    /// The result in its own row.
    fn result(old: &Connection, number: i64) -> rusqlite::Result<Option<Vec<u8>>>;
    /// Brings over what lies in other tables, after the row was put.
    fn carry_texts(&self, step: &SqliteStep<'_>, old: &Connection, number: i64, is_new: bool) -> rusqlite::Result<()>;
}

/// How many rows are not as they were written. An error: the file cannot be read.
pub(super) fn damaged(old: &Connection) -> Result<u64, Error> {
    let (messages, assignments, sessions) = (
        each::<Message>(old, &mut |_| ())?,
        each::<Assignment>(old, &mut |_| ())?,
        each::<Session>(old, &mut |_| ())?,
    );
    Ok(messages + assignments + sessions)
}

/// The greatest incarnation of the sessions that can be read.
pub(super) fn greatest_incarnation(old: &Connection) -> Result<Option<Incarnation>, Error> {
    let mut greatest = None;
    each::<Session>(old, &mut |session| {
        greatest = greatest.max(match session.row.state {
            SessionState::Claimed(claim) => Some(claim.generation.incarnation),
            SessionState::Free { incarnation, .. } => Some(incarnation),
            SessionState::Finished(generation, _) => Some(generation.incarnation),
            SessionState::Pruned => None,
        });
    })?;
    Ok(greatest)
}

/// Looks at all rows that are as they were written; returns how many are not.
fn each<R: Salvaged>(old: &Connection, look: &mut dyn FnMut(Stored<R>)) -> Result<u64, Error> {
    let mut statement = old.prepare(R::ALL)?;
    let mut rows = statement.query([])?;
    let mut damaged = 0;
    while let Some(row) = rows.next()? {
        match R::decode(row) {
            Ok(stored) => look(stored),
            Err(Failure::Corrupt(_)) => damaged += 1,
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(damaged)
}

/// What came of the rows of a replaced ledger.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    /// Terminal rows that were carried over.
    pub(super) kept: u64,
    /// Rows that had not ended and that the backup does not know.
    pub(super) dropped: u64,
}

/// Carries over every terminal row of `old` that the step's ledger does not have as terminal.
pub(super) fn carry_over(
    step: &mut SqliteStep<'_>,
    old: &Connection,
    stage: &mut Stage<'_>,
) -> Result<Carried, Failure<Error>> {
    let mut carried = Carried::default();
    carry::<Message>(step, old, stage, &mut carried)?;
    carry::<Assignment>(step, old, stage, &mut carried)?;
    carry::<Session>(step, old, stage, &mut carried)?;
    Ok(carried)
}

fn carry<R: Salvaged>(
    step: &mut SqliteStep<'_>,
    old: &Connection,
    stage: &mut Stage<'_>,
    carried: &mut Carried,
) -> Result<(), Failure<Error>> {
    let mut statement = old.prepare(R::ALL).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        stage.advance(1);
        let stored = match R::decode(row) {
            Ok(stored) => stored,
            // Counted before, and told.
            Err(Failure::Corrupt(_)) => continue,
            Err(failure) => return Err(failure),
        };
        let before: Option<R> = step.get(stored.row.key())?;
        if !stored.row.ends() {
            carried.dropped += u64::from(before.is_none());
            continue;
        }
        if before.as_ref().is_some_and(R::ends) {
            continue;
        }
        let result = R::result(old, stored.number).map_err(failed)?;
        let texts = Texts {
            note: Some("kept by a restore".into()),
            result,
        };
        step.with_texts(texts, |step| {
            step.put(before.as_ref(), &stored.row)?;
            match stored.row.end(step.now()) {
                Some(event) => step.append(&event),
                None => Ok(()),
            }
        })?;
        stored
            .row
            .carry_texts(step, old, stored.number, before.is_none())
            .map_err(failed)?;
        carried.kept += 1;
    }
    Ok(())
}

/// The end of a message: who did the last act, and under which token.
fn ended(message: &Message, last: Option<&Last>, kind: EventKind, now: TimeMs) -> Event {
    Event {
        holder: last.map(|last| Holder {
            name: message.recipient.clone(),
            process: last.process,
        }),
        token: last.map(|last| last.token),
        retries: Some(message.retries),
        ..Event::new(now, kind, &message.id)
    }
}

impl Salvaged for Message {
    const ALL: &'static str = concat!("SELECT ", message_columns!(), " FROM keyfence_message ORDER BY number");

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        message::decode(row)
    }

    fn end(&self, now: TimeMs) -> Option<Event> {
        match &self.state {
            MessageState::Done(last) => Some(ended(self, Some(last), EventKind::MessageCompleted, now)),
            MessageState::Dead(dead) => Some(ended(self, dead.last.as_ref(), EventKind::MessageDead, now)),
            MessageState::New(_) | MessageState::Claimed(_) | MessageState::Pruned => None,
        }
    }

    fn result(old: &Connection, number: i64) -> rusqlite::Result<Option<Vec<u8>>> {
        result_of(old, "SELECT result FROM keyfence_message WHERE number = ?1", number)
    }

    fn carry_texts(&self, step: &SqliteStep<'_>, old: &Connection, number: i64, is_new: bool) -> rusqlite::Result<()> {
        let new = step.connection();
        let here: i64 = new
            .prepare_cached("SELECT number FROM keyfence_message WHERE id = ?1")?
            .query_row([self.id.as_str()], |row| row.get(0))?;
        if is_new {
            copy_row(
                (old, number),
                (new, here),
                "SELECT sender, sent_at_ms, sent_not_before_ms, subject, body FROM keyfence_body WHERE number = ?1",
                "INSERT INTO keyfence_body (number, sender, sent_at_ms, sent_not_before_ms, subject, body) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
        }
        copy_row(
            (old, number),
            (new, here),
            "SELECT reason FROM keyfence_reason WHERE number = ?1",
            "INSERT OR REPLACE INTO keyfence_reason (number, reason) VALUES (?1, ?2)",
        )
    }
}

/// Copies a row, if it is there, under another number.
fn copy_row(from: (&Connection, i64), to: (&Connection, i64), select: &str, insert: &str) -> rusqlite::Result<()> {
    let mut statement = from.0.prepare_cached(select)?;
    let columns = statement.column_count();
    let mut rows = statement.query([from.1])?;
    let Some(row) = rows.next()? else {
        return Ok(());
    };
    let mut insert = to.0.prepare_cached(insert)?;
    insert.raw_bind_parameter(1, to.1)?;
    for column in 0..columns {
        insert.raw_bind_parameter(column + 2, ToSqlOutput::Borrowed(row.get_ref(column)?))?;
    }
    insert.raw_execute()?;
    Ok(())
}

impl Salvaged for Assignment {
    const ALL: &'static str = assignment::ALL;

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        assignment::decode(row)
    }

    fn end(&self, now: TimeMs) -> Option<Event> {
        let AssignmentState::Finished(Finished {
            outcome,
            attempt,
            token,
            by,
        }) = &self.state
        else {
            return None;
        };
        let kind = match (by, outcome) {
            (FinishedBy::WorkerLost, _) => EventKind::AttemptWorkerLost,
            (FinishedBy::Attempt(_), Outcome::Completed) => EventKind::AttemptCompleted,
            (FinishedBy::Attempt(_), Outcome::Blocked) => EventKind::AttemptBlocked,
            (FinishedBy::Attempt(_), Outcome::Failed) => EventKind::AttemptFailed,
        };
        Some(Event {
            attempt: Some(*attempt),
            token: Some(*token),
            ..Event::new(now, kind, &self.id)
        })
    }

    fn result(old: &Connection, number: i64) -> rusqlite::Result<Option<Vec<u8>>> {
        result_of(old, "SELECT result FROM keyfence_assignment WHERE number = ?1", number)
    }

    /// The result went with the row.
    fn carry_texts(&self, _: &SqliteStep<'_>, _: &Connection, _: i64, _: bool) -> rusqlite::Result<()> {
        Ok(())
    }
}

impl Salvaged for Session {
    const ALL: &'static str = session::ALL;

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        session::decode(row)
    }

    fn end(&self, now: TimeMs) -> Option<Event> {
        let SessionState::Finished(generation, _) = &self.state else {
            return None;
        };
        Some(Event {
            holder: Some(Holder {
                name: generation.host.clone(),
                process: None,
            }),
            token: Some(generation.token),
            parent_token: Some(generation.host_token),
            incarnation: Some(generation.incarnation),
            ..Event::new(now, EventKind::SessionFinished, &self.name)
        })
    }

    fn result(old: &Connection, number: i64) -> rusqlite::Result<Option<Vec<u8>>> {
        result_of(old, "SELECT result FROM keyfence_session WHERE number = ?1", number)
    }

    /// The result went with the row.
    fn carry_texts(&self, _: &SqliteStep<'_>, _: &Connection, _: i64, _: bool) -> rusqlite::Result<()> {
        Ok(())
    }
}

fn result_of(old: &Connection, sql: &str, number: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    let result: Option<Option<Vec<u8>>> = old
        .prepare_cached(sql)?
        .query_row([number], |row| row.get(0))
        .optional()?;
    Ok(result.flatten())
}
