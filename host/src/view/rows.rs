//! Rows of each kind with their texts, in pages and one by one.

use keyfence_core::Name;
use keyfence_core::actor::Actor;
use keyfence_core::host::Host;
use keyfence_core::store::{Failure, Place};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{ActorView, AssignmentView, Claims, HostView, MessageView, Page, SessionView, list, texts};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::store::step::cells::Cells;
use crate::store::step::lease::{self, Tabled};
use crate::store::step::message::{self, message_columns};
use crate::store::step::rows::{Stored, query_one};
use crate::store::step::{assignment, session};

macro_rules! messages {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            message_columns!(),
            ", sender, sent_at_ms, subject, length(body) FROM keyfence_message LEFT JOIN keyfence_body USING (number) ",
            $rest
        )
    };
}

const MESSAGES: &str = messages!("WHERE number > ?1 ORDER BY number LIMIT ?2");
const MESSAGE: &str = messages!("WHERE id = ?1");
/// What is open for a recipient, by age: for few of them, wherever they lie.
const OPEN_FEW: &str =
    messages!("WHERE +number > ?1 AND recipient = ?3 AND ended_at_ms IS NULL ORDER BY number LIMIT ?2");
/// The same for many of them: in the order in which they lie.
const OPEN_MANY: &str =
    messages!("WHERE number > ?1 AND +recipient = ?3 AND +ended_at_ms IS NULL ORDER BY number LIMIT ?2");

/// From how many on messages are many.
const MANY: i64 = 5_000;

/// Row numbers are positive.
fn number(number: i64) -> u64 {
    number.cast_unsigned()
}

fn message_view(row: &Row<'_>) -> Result<MessageView, Failure<Error>> {
    let Stored {
        number: place,
        row: message,
        ..
    } = message::decode(row)?;
    let cells = Cells::new(row, Place::Message, 1);
    Ok(MessageView {
        number: number(place),
        row: message,
        sender: cells.opt_name(24)?,
        sent_at: cells.opt_time(25)?,
        subject: cells.opt_text(26)?.unwrap_or_default().to_owned(),
        body_bytes: cells.opt_number(27)?.unwrap_or_default(),
        body: None,
        result: None,
        reason: None,
    })
}

/// The NEW and CLAIMED messages of a recipient, by age.
pub(crate) fn open_messages(connection: &Connection, recipient: &Name, page: Page) -> Result<Vec<MessageView>, Error> {
    let open: i64 = connection
        .prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM keyfence_message INDEXED BY keyfence_message_open \
             WHERE recipient = ?1 AND ended_at_ms IS NULL LIMIT ?2)",
        )?
        .query_row(params![recipient.as_str(), MANY], |row| row.get(0))?;
    let sql = if open < MANY { OPEN_FEW } else { OPEN_MANY };
    let mut statement = connection.prepare_cached(sql)?;
    let after = i64::try_from(page.after).unwrap_or(i64::MAX);
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![after, limit, recipient.as_str()])?;
    let mut views = Vec::new();
    while let Some(row) = rows.next()? {
        views.push(message_view(row)?);
    }
    Ok(views)
}

/// The claims of each kind, found without a look at what is finished.
pub(super) fn claims(connection: &Connection, limit: usize) -> Result<Claims, Error> {
    Ok(Claims {
        actors: claimed(
            connection,
            "SELECT name FROM keyfence_actor WHERE token IS NOT NULL ORDER BY number LIMIT ?1",
            limit,
            |key| query_one(connection, Actor::SQL.select, [key], actor_view),
        )?,
        assignments: claimed(
            connection,
            "SELECT id FROM keyfence_assignment WHERE state = 1 ORDER BY number LIMIT ?1",
            limit,
            |key| query_one(connection, assignment::SELECT, [key], assignment_view),
        )?,
        messages: claimed(
            connection,
            "SELECT id FROM keyfence_message INDEXED BY keyfence_message_open \
             WHERE ended_at_ms IS NULL AND state = 1 ORDER BY number LIMIT ?1",
            limit,
            |key| query_one(connection, MESSAGE, [key], message_view),
        )?,
        hosts: claimed(
            connection,
            "SELECT name FROM keyfence_host WHERE token IS NOT NULL ORDER BY number LIMIT ?1",
            limit,
            |key| query_one(connection, Host::SQL.select, [key], host_view),
        )?,
        sessions: claimed(
            connection,
            "SELECT name FROM keyfence_session WHERE state = 1 ORDER BY number LIMIT ?1",
            limit,
            |key| query_one(connection, session::SELECT, [key], session_view),
        )?,
    })
}

/// Reads the rows whose keys `sql` finds.
fn claimed<T>(
    connection: &Connection,
    sql: &str,
    limit: usize,
    mut view: impl FnMut(&str) -> Result<Option<T>, Failure<Error>>,
) -> Result<Vec<T>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut keys = statement.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut views = Vec::new();
    while let Some(key) = keys.next()? {
        let key: String = key.get(0)?;
        views.extend(view(&key)?);
    }
    Ok(views)
}

fn actor_view(row: &Row<'_>) -> Result<ActorView, Failure<Error>> {
    let stored = lease::decode::<Actor>(row)?;
    Ok(ActorView {
        number: number(stored.number),
        row: stored.row,
    })
}

fn host_view(row: &Row<'_>) -> Result<HostView, Failure<Error>> {
    let stored = lease::decode::<Host>(row)?;
    Ok(HostView {
        number: number(stored.number),
        row: stored.row,
    })
}

fn assignment_view(row: &Row<'_>) -> Result<AssignmentView, Failure<Error>> {
    let stored = assignment::decode(row)?;
    Ok(AssignmentView {
        number: number(stored.number),
        row: stored.row,
        result: None,
    })
}

fn session_view(row: &Row<'_>) -> Result<SessionView, Failure<Error>> {
    let stored = session::decode(row)?;
    Ok(SessionView {
        number: number(stored.number),
        row: stored.row,
        result: None,
    })
}

/// The result in the row of an assignment or a session.
fn result_of(connection: &Connection, sql: &str, number: u64) -> Result<Option<Vec<u8>>, Error> {
    let result: Option<Option<Vec<u8>>> = connection
        .prepare_cached(sql)?
        .query_row([number.cast_signed()], |row| row.get(0))
        .optional()?;
    Ok(result.flatten())
}

impl Ledger {
    /// A page of the actor leases.
    ///
    /// # Errors
    /// [`Error`]: they could not be read.
    pub fn actors(&self, page: Page) -> Result<Vec<ActorView>, Error> {
        self.read(|connection| list(connection, Actor::SQL.page, page, actor_view))
    }

    /// An actor's lease; `None` if it was never claimed.
    ///
    /// # Errors
    /// [`Error`]: it could not be read.
    pub fn actor(&self, name: &Name) -> Result<Option<ActorView>, Error> {
        self.read(|connection| Ok(query_one(connection, Actor::SQL.select, [name.as_str()], actor_view)?))
    }

    /// A page of the host leases.
    ///
    /// # Errors
    /// [`Error`]: they could not be read.
    pub fn hosts(&self, page: Page) -> Result<Vec<HostView>, Error> {
        self.read(|connection| list(connection, Host::SQL.page, page, host_view))
    }

    /// A host's lease; `None` if it was never registered.
    ///
    /// # Errors
    /// [`Error`]: it could not be read.
    pub fn host(&self, name: &Name) -> Result<Option<HostView>, Error> {
        self.read(|connection| Ok(query_one(connection, Host::SQL.select, [name.as_str()], host_view)?))
    }

    /// A page of the assignments, without their results.
    ///
    /// # Errors
    /// [`Error`]: they could not be read.
    pub fn assignments(&self, page: Page) -> Result<Vec<AssignmentView>, Error> {
        self.read(|connection| list(connection, assignment::PAGE, page, assignment_view))
    }

    /// An assignment with its result; `None` if there is none of this id.
    ///
    /// # Errors
    /// [`Error::Damaged`] also where the result is not what its digest says; other [`Error`]s: it could not be read.
    pub fn assignment(&self, id: &Name) -> Result<Option<AssignmentView>, Error> {
        self.read(|connection| {
            let Some(view) = query_one(connection, assignment::SELECT, [id.as_str()], assignment_view)? else {
                return Ok(None);
            };
            let result = result_of(
                connection,
                "SELECT result FROM keyfence_assignment WHERE number = ?1",
                view.number,
            )?;
            texts::check_assignment(&view.row, result.as_deref())?;
            Ok(Some(AssignmentView { result, ..view }))
        })
    }

    /// A page of the messages, by age, without body, result and reason.
    ///
    /// # Errors
    /// [`Error`]: they could not be read.
    pub fn messages(&self, page: Page) -> Result<Vec<MessageView>, Error> {
        self.read(|connection| list(connection, MESSAGES, page, message_view))
    }

    /// A message with all its texts; `None` if there is none of this id.
    ///
    /// # Errors
    /// [`Error::Damaged`] also where a text is missing or not what its digest says; other [`Error`]s: it could not be read.
    pub fn message(&self, id: &Name) -> Result<Option<MessageView>, Error> {
        self.read(|connection| {
            let whole = query_one(connection, texts::MESSAGE, [id.as_str()], |row| {
                let texts = texts::check_message(row)?;
                Ok((texts.body, texts.result, texts.reason))
            })?;
            let Some((body, result, reason)) = whole else {
                return Ok(None);
            };
            let view = query_one(connection, MESSAGE, [id.as_str()], message_view)?;
            Ok(view.map(|view| MessageView {
                body,
                result,
                reason,
                ..view
            }))
        })
    }

    /// A page of the sessions, without their results.
    ///
    /// # Errors
    /// [`Error`]: they could not be read.
    pub fn sessions(&self, page: Page) -> Result<Vec<SessionView>, Error> {
        self.read(|connection| list(connection, session::PAGE, page, session_view))
    }

    /// A session with its result; `None` if it was never claimed.
    ///
    /// # Errors
    /// [`Error::Damaged`] also where the result is not what its digest says; other [`Error`]s: it could not be read.
    pub fn session(&self, name: &Name) -> Result<Option<SessionView>, Error> {
        self.read(|connection| {
            let Some(view) = query_one(connection, session::SELECT, [name.as_str()], session_view)? else {
                return Ok(None);
            };
            let result = result_of(
                connection,
                "SELECT result FROM keyfence_session WHERE number = ?1",
                view.number,
            )?;
            texts::check_session(&view.row, result.as_deref())?;
            Ok(Some(SessionView { result, ..view }))
        })
    }
}
