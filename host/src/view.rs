//! Reading without writing: rows with their texts, the history, refusals, the whole at a glance.

mod rows;
mod status;
pub(crate) mod texts;

use keyfence_core::actor::ActorLease;
use keyfence_core::attempt::Assignment;
use keyfence_core::event::Event;
use keyfence_core::host::HostLease;
use keyfence_core::mailbox::Message;
use keyfence_core::refusal::RefusedCall;
use keyfence_core::session::Session;
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Name, Reason, TimeMs, Token};
use rusqlite::{Connection, Row};

use crate::error::Error;
use crate::ledger::Ledger;
use crate::store::step::cells::Cells;
use crate::store::step::head::Head;
use crate::store::step::history;

pub(crate) use rows::open_messages;
pub(crate) use status::expiries_too_far;

/// A part of a list, so that no list has to fit in memory: the rows after the one numbered `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The `number` of the last row that was read; 0 to begin.
    pub after: u64,
    /// How many rows at most.
    pub limit: usize,
}

impl Page {
    /// The first hundred rows.
    pub const FIRST: Self = Self { after: 0, limit: 100 };

    /// As many rows after the one of this number.
    #[must_use]
    pub const fn after(self, number: u64) -> Self {
        Self { after: number, ..self }
    }
}

/// An actor's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorView {
    /// The row's number, for [`Page::after`].
    pub number: u64,
    /// The row.
    pub row: ActorLease,
}

/// A host's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// The row's number, for [`Page::after`].
    pub number: u64,
    /// The row.
    pub row: HostLease,
}

/// An assignment with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentView {
    /// The row's number, for [`Page::after`].
    pub number: u64,
    /// The row.
    pub row: Assignment,
    /// What came of it: read only where one assignment is asked for by its id.
    pub result: Option<Vec<u8>>,
}

/// A session with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The row's number, for [`Page::after`].
    pub number: u64,
    /// The row.
    pub row: Session,
    /// What came of it: read only where one session is asked for by its name.
    pub result: Option<Vec<u8>>,
}

/// A message with its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageView {
    /// The row's number, for [`Page::after`]; messages are numbered by age.
    pub number: u64,
    /// The row.
    pub row: Message,
    /// Who sent it.
    pub sender: Option<Name>,
    /// When it was sent; `None` once it is pruned.
    pub sent_at: Option<TimeMs>,
    /// What it is about; empty once it is pruned.
    pub subject: String,
    /// How long its body is, in bytes.
    pub body_bytes: u64,
    /// Its body: read only where one message is asked for by its id.
    pub body: Option<Vec<u8>>,
    /// What came of it: read only where one message is asked for by its id.
    pub result: Option<Vec<u8>>,
    /// Why it was last retried or dead-lettered: read only where one message is asked for by its id.
    pub reason: Option<String>,
}

/// An event of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// Its place in the history: 1, 2, 3, ...
    pub seq: u64,
    /// What happened.
    pub event: Event,
    /// The reason that an operator or a holder gave.
    pub note: Option<String>,
    /// What tells this event from another of the same number, which a restore may have put in its place.
    link: i64,
}

/// A recorded refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalRecord {
    /// Its number among all that were ever recorded.
    pub number: u64,
    /// The call.
    pub call: RefusedCall,
}

/// The ledger at a glance, as it stands at `now`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The moment on the ledger's clock.
    pub now: TimeMs,
    /// The greatest token.
    pub counter: Option<Token>,
    /// The last event.
    pub last_event: u64,
    /// The first event that is still kept.
    pub first_event: u64,
    /// Actor leases: live.
    pub actors_live: u64,
    /// Actor leases: lapsed and not released.
    pub actors_lapsed: u64,
    /// Host leases: live.
    pub hosts_live: u64,
    /// Host leases: lapsed and not released.
    pub hosts_lapsed: u64,
    /// Assignments: CREATED.
    pub assignments_created: u64,
    /// Assignments: RUNNING, the attempt live or not.
    pub assignments_running: u64,
    /// Assignments: COMPLETED, BLOCKED or FAILED.
    pub assignments_finished: u64,
    /// Messages: NEW.
    pub messages_new: u64,
    /// Messages: CLAIMED and live.
    pub messages_claimed: u64,
    /// Messages: CLAIMED and lapsed.
    pub messages_lapsed: u64,
    /// Messages: DONE.
    pub messages_done: u64,
    /// Messages: DEAD.
    pub messages_dead: u64,
    /// Sessions: claimed.
    pub sessions_claimed: u64,
    /// Sessions: free.
    pub sessions_free: u64,
    /// Sessions: finished.
    pub sessions_finished: u64,
    /// How many refusals were ever recorded.
    pub refusals: u64,
    /// The longest lease that was ever asked for, in milliseconds.
    pub longest_ttl_ms: u64,
    /// How many claims expire later than `now` plus the longest lease that was asked for: a clock was set back.
    pub expiries_too_far: u64,
}

/// What is claimed, live or lapsed: the oldest rows of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Held actor leases.
    pub actors: Vec<ActorView>,
    /// RUNNING assignments.
    pub assignments: Vec<AssignmentView>,
    /// CLAIMED messages.
    pub messages: Vec<MessageView>,
    /// Held host leases.
    pub hosts: Vec<HostView>,
    /// Claimed sessions.
    pub sessions: Vec<SessionView>,
}

fn events(connection: &Connection, since: u64, limit: usize) -> Result<Vec<EventRecord>, Error> {
    list(connection, history::SINCE, Page { after: since, limit }, |row| {
        let stored = history::decode(row)?;
        Ok(EventRecord {
            seq: stored.seq,
            event: stored.event,
            note: stored.note,
            link: stored.link,
        })
    })
}

impl Ledger {
    /// The events after the one of number `since`, oldest first, `limit` at most; 0: from the first that is kept.
    ///
    /// # Errors
    /// [`Error::HistoryRewound`]: the history ends before `since`. Other [`Error`]s: they could not be read.
    pub fn events(&self, since: u64, limit: usize) -> Result<Vec<EventRecord>, Error> {
        self.read(|connection| {
            if Head::read(connection)?.event_seq < since {
                return Err(Error::HistoryRewound { seq: since });
            }
            events(connection, since, limit)
        })
    }

    /// The events after one that was read, oldest first, `limit` at most.
    ///
    /// # Errors
    /// [`Error::HistoryRewound`]: `last` is no event of this history. Other [`Error`]s: they could not be read.
    pub fn events_after(&self, last: &EventRecord, limit: usize) -> Result<Vec<EventRecord>, Error> {
        self.read(|connection| {
            let is_pruned = last.seq <= Head::read(connection)?.anchor_seq;
            let found = events(connection, last.seq - 1, 1)?;
            if is_pruned || found.first().is_some_and(|found| found.link == last.link) {
                events(connection, last.seq, limit)
            } else {
                Err(Error::HistoryRewound { seq: last.seq })
            }
        })
    }

    /// The last recorded refusals, newest first.
    ///
    /// # Errors
    /// [`Error`]: they could not be read.
    pub fn refusals(&self, limit: usize) -> Result<Vec<RefusalRecord>, Error> {
        const LAST: &str = "SELECT number, subject, at_ms, reason, presented, never_issued FROM keyfence_refusal \
            WHERE number > ?1 ORDER BY number DESC LIMIT ?2";
        self.read(|connection| list(connection, LAST, Page { after: 0, limit }, refusal))
    }

    /// The ledger at a glance. It counts the rows of each table once.
    ///
    /// # Errors
    /// [`Error`]: it could not be read.
    pub fn status(&self) -> Result<Status, Error> {
        let now = self.now();
        self.read(|connection| status::take(connection, now))
    }

    /// What is claimed, live or lapsed; `limit` of each kind at most. Finished rows are not looked at.
    ///
    /// # Errors
    /// [`Error`]: it could not be read.
    pub fn claims(&self, limit: usize) -> Result<Claims, Error> {
        self.read(|connection| rows::claims(connection, limit))
    }
}

/// Whether all recorded refusals can be read.
pub(crate) fn check_refusals(connection: &Connection) -> Result<(), Error> {
    let mut statement =
        connection.prepare("SELECT number, subject, at_ms, reason, presented, never_issued FROM keyfence_refusal")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        refusal(row)?;
    }
    Ok(())
}

fn refusal(row: &Row<'_>) -> Result<RefusalRecord, Failure<Error>> {
    let cells = Cells::new(row, Place::History, 1);
    let word = cells.text(3)?;
    let reason = Reason::ALL.iter().copied().find(|reason| reason.name() == word);
    Ok(RefusalRecord {
        number: cells.number(0)?,
        call: RefusedCall {
            at: cells.time(2)?,
            reason: reason.ok_or_else(|| cells.damaged("a refusal for an unknown reason"))?,
            subject: cells.name(1)?,
            presented: cells.token(4)?,
            never_issued: cells.integer(5)? != 0,
        },
    })
}

/// Reads a page: ?1 is the number to go on after, ?2 how many.
fn list<T>(
    connection: &Connection,
    sql: &str,
    page: Page,
    mut decode: impl FnMut(&Row<'_>) -> Result<T, Failure<Error>>,
) -> Result<Vec<T>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let after = i64::try_from(page.after).unwrap_or(i64::MAX);
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
    let mut rows = statement.query([after, limit])?;
    let mut list = Vec::new();
    while let Some(row) = rows.next()? {
        list.push(decode(row)?);
    }
    Ok(list)
}
