//! Rows of each kind with their texts, in pages and one by one.

use keyfence_core::Name;
use keyfence_core::actor::Actor;
use keyfence_core::host::Host;
use keyfence_core::store::{Failure, Place};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{ActorView, AssignmentView, HostView, MessageView, Page, SessionView, list};
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

/// The result in the row of an assignment or a session.
fn result_of(connection: &Connection, sql: &str, place: i64) -> Result<Option<Vec<u8>>, Error> {
    let result: Option<Option<Vec<u8>>> = connection
        .prepare_cached(sql)?
        .query_row([place], |row| row.get(0))
        .optional()?;
    Ok(result.flatten())
}

impl Ledger {
    /// A page of the actor leases.
    ///
    /// # Errors
    /// [`Error`]: they could not be read.
    pub fn actors(&self, page: Page) -> Result<Vec<ActorView>, Error> {
        self.read(|connection| {
            list(connection, Actor::SQL.page, page, |row| {
                let stored = lease::decode::<Actor>(row)?;
                Ok(ActorView {
                    number: number(stored.number),
                    row: stored.row,
                })
            })
        })
    }

    /// An actor's lease; `None` if it was never claimed.
    ///
    /// # Errors
    /// [`Error`]: it could not be read.
    pub fn actor(&self, name: &Name) -> Result<Option<ActorView>, Error> {
        self.read(|connection| {
            let stored = query_one(connection, Actor::SQL.select, [name.as_str()], lease::decode::<Actor>)?;
            Ok(stored.map(|stored| ActorView {
                number: number(stored.number),
                row: stored.row,
            }))
        })
    }

    /// A page of the host leases.
    ///
    /// # Errors
    /// [`Error`]: they could not be read.
    pub fn hosts(&self, page: Page) -> Result<Vec<HostView>, Error> {
        self.read(|connection| {
            list(connection, Host::SQL.page, page, |row| {
                let stored = lease::decode::<Host>(row)?;
                Ok(HostView {
                    number: number(stored.number),
                    row: stored.row,
                })
            })
        })
    }

    /// A host's lease; `None` if it was never registered.
    ///
    /// # Errors
    /// [`Error`]: it could not be read.
    pub fn host(&self, name: &Name) -> Result<Option<HostView>, Error> {
        self.read(|connection| {
            let stored = query_one(connection, Host::SQL.select, [name.as_str()], lease::decode::<Host>)?;
            Ok(stored.map(|stored| HostView {
                number: number(stored.number),
                row: stored.row,
            }))
        })
    }

    /// A page of the assignments, without their results.
    ///
    /// # Errors
    /// [`Error`]: they could not be read.
    pub fn assignments(&self, page: Page) -> Result<Vec<AssignmentView>, Error> {
        self.read(|connection| {
            list(connection, assignment::PAGE, page, |row| {
                let stored = assignment::decode(row)?;
                Ok(AssignmentView {
                    number: number(stored.number),
                    row: stored.row,
                    result: None,
                })
            })
        })
    }

    /// An assignment with its result; `None` if there is none of this id.
    ///
    /// # Errors
    /// [`Error`]: it could not be read.
    pub fn assignment(&self, id: &Name) -> Result<Option<AssignmentView>, Error> {
        self.read(|connection| {
            let Some(stored) = query_one(connection, assignment::SELECT, [id.as_str()], assignment::decode)? else {
                return Ok(None);
            };
            let result = result_of(
                connection,
                "SELECT result FROM keyfence_assignment WHERE number = ?1",
                stored.number,
            )?;
            Ok(Some(AssignmentView {
                number: number(stored.number),
                row: stored.row,
                result,
            }))
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
    /// [`Error`]: it could not be read.
    pub fn message(&self, id: &Name) -> Result<Option<MessageView>, Error> {
        self.read(|connection| {
            let Some(view) = query_one(connection, MESSAGE, [id.as_str()], message_view)? else {
                return Ok(None);
            };
            let place = view.number.cast_signed();
            let body = result_of(connection, "SELECT body FROM keyfence_body WHERE number = ?1", place)?;
            let outcome: Option<(Option<Vec<u8>>, Option<String>)> = connection
                .prepare_cached("SELECT result, reason FROM keyfence_result WHERE number = ?1")?
                .query_row([place], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let (result, reason) = outcome.unwrap_or_default();
            Ok(Some(MessageView {
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
        self.read(|connection| {
            list(connection, session::PAGE, page, |row| {
                let stored = session::decode(row)?;
                Ok(SessionView {
                    number: number(stored.number),
                    row: stored.row,
                    result: None,
                })
            })
        })
    }

    /// A session with its result; `None` if it was never claimed.
    ///
    /// # Errors
    /// [`Error`]: it could not be read.
    pub fn session(&self, name: &Name) -> Result<Option<SessionView>, Error> {
        self.read(|connection| {
            let Some(stored) = query_one(connection, session::SELECT, [name.as_str()], session::decode)? else {
                return Ok(None);
            };
            let result = result_of(
                connection,
                "SELECT result FROM keyfence_session WHERE number = ?1",
                stored.number,
            )?;
            Ok(Some(SessionView {
                number: number(stored.number),
                row: stored.row,
                result,
            }))
        })
    }
}
