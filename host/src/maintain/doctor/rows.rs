//! Rows against their check values, and against the history: the last event of a row says where it stands.
//!
//! The history is sorted by row on disk, not in memory.

use keyfence_core::attempt::{Assignment, AssignmentState, FinishedBy, Outcome};
use keyfence_core::event::{Event, EventKind};
use keyfence_core::gate::Gate;
use keyfence_core::lease::{Kind, Lease, LeaseState};
use keyfence_core::mailbox::{Message, MessageState};
use keyfence_core::session::{Session, SessionState};
use keyfence_core::store::Failure;
use keyfence_core::{Expiry, actor, host};
use rusqlite::{Connection, Row};

use super::super::{Progress, Stage};
use super::counted;
use crate::error::Error;
use crate::store::step::cells::corrupt;
use crate::store::step::head::Head;
use crate::store::step::history;
use crate::store::step::lease::{self, Tabled};
use crate::store::step::message::{self, message_columns};
use crate::store::step::rows::{Rows, Stored, query_one};
use crate::store::step::{assignment, gate, session};

/// The last event of each row of one machine: ?1 and ?2 are the patterns of its kinds.
const LAST_EVENTS: &str = "SELECT max(seq), at_ms, kind, subject, holder, process, token, parent_token, \
    expires_at_ms, attempt, incarnation, retries, replaced_holder, replaced_process, replaced_token, \
    replaced_expires_at_ms, refers_to, note, link FROM keyfence_event WHERE kind GLOB ?1 OR kind GLOB ?2 \
    GROUP BY subject";

pub(super) fn examine(connection: &Connection, progress: &mut dyn FnMut(Progress)) -> Result<String, Error> {
    let pruned = Head::read(connection)?.anchor_seq > 0;
    let rows = look::<actor::ActorLease>(connection, pruned, progress)?
        + look::<host::HostLease>(connection, pruned, progress)?
        + look::<Assignment>(connection, pruned, progress)?
        + look::<Message>(connection, pruned, progress)?
        + look::<Session>(connection, pruned, progress)?
        + verify_all::<Gate>(connection, &mut Stage::begin(progress, "gates", 0))?;
    Ok(format!("{}, as written and as the history says", counted(rows, "row")))
}

/// A record that can be looked at without a step.
trait Readable: Rows {
    const ALL: &'static str;
    const ONE: &'static str;
    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>>;
}

/// A record whose every state follows from an event.
trait Tracked: Readable {
    const STAGE: &'static str;
    /// The patterns of its events' kinds.
    const KINDS: [&'static str; 2];
    /// Whether the row is where its last event left it. A tombstone has forgotten.
    fn follows(&self, last: &Event) -> bool;
}

fn look<R: Tracked>(connection: &Connection, pruned: bool, progress: &mut dyn FnMut(Progress)) -> Result<u64, Error> {
    let mut stage = Stage::begin(progress, R::STAGE, 0);
    let rows = verify_all::<R>(connection, &mut stage)?;
    let tracked = compare::<R>(connection, &mut stage)?;
    stage.end();
    // Every row has the event that made it; only a prune drops some.
    if tracked != rows && !pruned {
        return Err(Error::Damaged {
            place: R::STAGE.into(),
            why: format!("there are {rows} rows, and the history knows {tracked}"),
        });
    }
    Ok(rows)
}

/// Reads every row, which verifies its check value; returns how many there are.
fn verify_all<R: Readable>(connection: &Connection, stage: &mut Stage<'_>) -> Result<u64, Error> {
    let mut statement = connection.prepare(R::ALL)?;
    let mut rows = statement.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        R::decode(row)?;
        count += 1;
        stage.advance(1);
    }
    Ok(count)
}

/// Compares every row with its last event; returns how many rows have one.
fn compare<R: Tracked>(connection: &Connection, stage: &mut Stage<'_>) -> Result<u64, Error> {
    let mut statement = connection.prepare(LAST_EVENTS)?;
    let mut rows = statement.query(R::KINDS)?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let last = history::decode(row)?.event;
        let key = last.subject.as_str();
        let stored = query_one(connection, R::ONE, [key], R::decode)?;
        let stored = stored.ok_or_else(|| corrupt(R::PLACE, Some(key), "the history knows it, but it is not there"))?;
        if !stored.row.follows(&last) {
            return Err(corrupt(R::PLACE, Some(key), "it is not where its last event left it").into());
        }
        count += 1;
        stage.advance(1);
    }
    Ok(count)
}

/// Whether the expiry is the event's or a later one: renewals leave no event.
fn not_before(expiry: Expiry, last: &Event) -> bool {
    expiry.time() >= last.expires_at
}

impl<K: Tabled> Readable for Lease<K> {
    const ALL: &'static str = K::SQL.all;
    const ONE: &'static str = K::SQL.select;

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        lease::decode(row)
    }
}

impl Tracked for actor::ActorLease {
    const STAGE: &'static str = "actors";
    const KINDS: [&'static str; 2] = ["actor.*", "actor.*"];

    fn follows(&self, last: &Event) -> bool {
        lease_follows(self, last)
    }
}

impl Tracked for host::HostLease {
    const STAGE: &'static str = "hosts";
    const KINDS: [&'static str; 2] = ["host.*", "host.*"];

    fn follows(&self, last: &Event) -> bool {
        lease_follows(self, last)
    }
}

fn lease_follows<K: Kind>(lease: &Lease<K>, last: &Event) -> bool {
    match &lease.state {
        LeaseState::Held(held) => {
            last.kind == K::ACQUIRED && last.token == Some(held.token) && not_before(held.expiry, last)
        }
        LeaseState::Free {
            released: Some((_, token)),
        } => last.kind == K::RELEASED && last.token == Some(*token),
        LeaseState::Free { released: None } => last.kind == K::REVOKED,
    }
}

impl Readable for Assignment {
    const ALL: &'static str = assignment::ALL;
    const ONE: &'static str = assignment::SELECT;

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        assignment::decode(row)
    }
}

impl Tracked for Assignment {
    const STAGE: &'static str = "assignments";
    const KINDS: [&'static str; 2] = ["assignment.*", "attempt.*"];

    fn follows(&self, last: &Event) -> bool {
        match &self.state {
            AssignmentState::Created {
                released: Some((_, token)),
            } => last.kind == EventKind::AttemptReleased && last.token == Some(*token),
            AssignmentState::Created { released: None } => {
                matches!(last.kind, EventKind::AssignmentCreated | EventKind::AttemptRevoked)
            }
            AssignmentState::Running(attempt) => {
                last.kind == EventKind::AttemptAcquired
                    && last.token == Some(attempt.token)
                    && not_before(attempt.expiry, last)
            }
            AssignmentState::Finished(finished) => match (&finished.by, finished.outcome) {
                (FinishedBy::WorkerLost, _) => last.kind == EventKind::AttemptWorkerLost,
                (FinishedBy::Attempt(_), outcome) => {
                    let kind = match outcome {
                        Outcome::Completed => EventKind::AttemptCompleted,
                        Outcome::Blocked => EventKind::AttemptBlocked,
                        Outcome::Failed => EventKind::AttemptFailed,
                    };
                    last.kind == kind && last.token == Some(finished.token)
                }
            },
            AssignmentState::Pruned => true,
        }
    }
}

impl Readable for Message {
    const ALL: &'static str = concat!("SELECT ", message_columns!(), " FROM keyfence_message ORDER BY number");
    const ONE: &'static str = message::SELECT;

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        message::decode(row)
    }
}

impl Tracked for Message {
    const STAGE: &'static str = "messages";
    const KINDS: [&'static str; 2] = ["message.*", "message.*"];

    fn follows(&self, last: &Event) -> bool {
        let budget = last.retries == Some(self.retries);
        match &self.state {
            MessageState::New(_) => {
                budget
                    && matches!(
                        last.kind,
                        EventKind::MessageSent
                            | EventKind::MessageRedriven
                            | EventKind::MessageLapsed
                            | EventKind::MessageGivenBack
                            | EventKind::MessageRetried
                            | EventKind::MessageRevoked
                    )
            }
            MessageState::Claimed(claimed) => {
                budget
                    && last.kind == EventKind::MessageClaimed
                    && last.token == Some(claimed.token)
                    && not_before(claimed.expiry, last)
            }
            MessageState::Done(done) => {
                budget && last.kind == EventKind::MessageCompleted && last.token == Some(done.token)
            }
            MessageState::Dead(_) => budget && last.kind == EventKind::MessageDead,
            MessageState::Pruned => true,
        }
    }
}

impl Readable for Session {
    const ALL: &'static str = session::ALL;
    const ONE: &'static str = session::SELECT;

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        session::decode(row)
    }
}

impl Tracked for Session {
    const STAGE: &'static str = "sessions";
    const KINDS: [&'static str; 2] = ["session.*", "session.*"];

    fn follows(&self, last: &Event) -> bool {
        match &self.state {
            SessionState::Claimed(claim) => {
                last.kind == EventKind::SessionClaimed
                    && last.token == Some(claim.generation.token)
                    && last.incarnation == Some(claim.generation.incarnation)
                    && not_before(claim.expiry, last)
            }
            SessionState::Free { incarnation, .. } => {
                matches!(last.kind, EventKind::SessionReleased | EventKind::SessionRevoked)
                    && last.incarnation == Some(*incarnation)
            }
            SessionState::Finished(generation, _) => {
                last.kind == EventKind::SessionFinished && last.token == Some(generation.token)
            }
            SessionState::Pruned => true,
        }
    }
}

impl Readable for Gate {
    const ALL: &'static str = gate::ALL;
    const ONE: &'static str = gate::SELECT;

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        gate::decode(row)
    }
}
