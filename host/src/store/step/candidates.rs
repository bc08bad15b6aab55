//! Candidates: which rows a claim, a sweep or a supervisor may want to look at. Hints: each is decided again by the machine.
//!
//! One index, `keyfence_message_open`, holds what is not finished, by recipient, priority, state, expiry and due time.
//! For one recipient and one priority the deliverable messages lie in three runs of it:
//!
//! 1. NEW without a due time, by age;
//! 2. NEW with a due time that has come, by due time;
//! 3. CLAIMED and lapsed, by expiry.
//!
//! A claim reads the first run, which also tells whether the others have a head, and merges the runs by age, priority by
//! priority (at most 201), until it has enough. The second and third run are not in order of age, so [`DUE_MAX`] of each
//! are looked at: when more than that many messages of one recipient and priority are due or lapsed at once, those that
//! became so first count as the oldest.

use keyfence_core::Name;
use keyfence_core::TimeMs;
use keyfence_core::mailbox::Message;
use keyfence_core::store::{Candidates, Failure, Query};
use rusqlite::{Connection, Params, Row, params};

use super::assignment;
use super::message::{self, message_columns};
use super::rows::{Rows, Stored, number_of, query_one};
use super::{SqliteStep, failed};
use crate::error::Error;

/// How many due and how many lapsed messages of one recipient and one priority are compared by age.
const DUE_MAX: i64 = 64;

/// The greatest priority below ?2 in which ?1 has anything.
macro_rules! next_priority {
    () => {
        "SELECT priority FROM keyfence_message INDEXED BY keyfence_message_open \
         WHERE recipient = ?1 AND ended_at_ms IS NULL AND priority < ?2 ORDER BY priority DESC LIMIT 1"
    };
}

macro_rules! run {
    ($run:literal) => {
        concat!(
            "SELECT ",
            message_columns!(),
            " FROM keyfence_message INDEXED BY keyfence_message_open \
             WHERE recipient = ?1 AND priority = ?2 AND ended_at_ms IS NULL AND ",
            $run
        )
    };
}

/// The first run of the greatest priority below ?2 that has anything, up to ?3 messages; with each, whether the other two
/// runs of that priority have a head at ?4.
const READY: &str = concat!(
    "SELECT ",
    message_columns!(),
    ", EXISTS (SELECT 1 FROM keyfence_message AS due INDEXED BY keyfence_message_open \
        WHERE recipient = ?1 AND priority = ready.priority AND ended_at_ms IS NULL AND state = 0 \
        AND expires_at_ms IS NULL AND not_before_ms <= ?4), \
     EXISTS (SELECT 1 FROM keyfence_message AS lapsed INDEXED BY keyfence_message_open \
        WHERE recipient = ?1 AND priority = ready.priority AND ended_at_ms IS NULL AND state = 1 \
        AND expires_at_ms <= ?4) \
     FROM keyfence_message AS ready INDEXED BY keyfence_message_open \
     WHERE recipient = ?1 AND priority = (",
    next_priority!(),
    ") AND ended_at_ms IS NULL AND state = 0 AND expires_at_ms IS NULL AND not_before_ms IS NULL \
     ORDER BY number LIMIT ?3"
);
/// The second run, up to ?3 messages that are due at ?4.
const DUE: &str = run!("state = 0 AND expires_at_ms IS NULL AND not_before_ms <= ?4 ORDER BY not_before_ms LIMIT ?3");
/// The third run, up to ?3 messages whose claim has lapsed at ?4.
const LAPSED: &str = run!("state = 1 AND expires_at_ms <= ?4 ORDER BY expires_at_ms LIMIT ?3");

const NEXT_PRIORITY: &str = next_priority!();

/// The first recipient after ?1 that has anything.
const NEXT_RECIPIENT: &str = "SELECT recipient FROM keyfence_message INDEXED BY keyfence_message_open \
    WHERE recipient > ?1 AND ended_at_ms IS NULL ORDER BY recipient LIMIT 1";

/// Above every priority.
const ABOVE_ALL: i64 = i64::MAX;

/// Answers a query; messages that are offered are kept for the step.
pub(super) fn find(
    step: &mut SqliteStep<'_>,
    query: Query<'_>,
    now: TimeMs,
    limit: usize,
) -> Result<Candidates, Failure<Error>> {
    let limit = limit.min(keyfence_core::store::CANDIDATES_MAX);
    let mut found = Candidates::new();
    if limit == 0 {
        return Ok(found);
    }
    match query {
        Query::Deliverable(recipient) => deliverable(step, recipient, now, limit, &mut found)?,
        Query::LapsedMessages(Some(recipient)) => lapsed(step, recipient.as_str(), now, limit, &mut found)?,
        Query::LapsedMessages(None) => {
            let mut after = String::new();
            while found.len() < limit {
                let Some(recipient) = next_recipient(step.connection, &after)? else {
                    break;
                };
                lapsed(step, &recipient, now, limit, &mut found)?;
                after = recipient;
            }
        }
        Query::LostAttempts => lost_attempts(step, now, limit, &mut found)?,
    }
    Ok(found)
}

fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Offers a row, and keeps it for the step.
fn offer(step: &mut SqliteStep<'_>, stored: Stored<Message>, found: &mut Candidates) {
    // A full list offers no more: a hint may be too short.
    drop(found.push(stored.row.id.clone()));
    Message::cache(step).keep(stored);
}

fn deliverable(
    step: &mut SqliteStep<'_>,
    recipient: &Name,
    now: TimeMs,
    limit: usize,
    found: &mut Candidates,
) -> Result<(), Failure<Error>> {
    let connection = step.connection;
    let recipient = recipient.as_str();
    let at = number_of(now.as_ms());
    let mut below = ABOVE_ALL;
    while found.len() < limit {
        let wanted = limit - found.len();
        let mut heads = Vec::with_capacity(wanted);
        let mut others = None;
        let ready = params![recipient, below, sql_limit(wanted), at];
        read_run(connection, READY, ready, &mut heads, |row| {
            others = Some((row.get(4)?, row.get(24)?, row.get(25)?));
            Ok(())
        })?;
        let (priority, has_due, has_lapsed) = match others {
            Some(others) => others,
            // Without a first run nothing is known of the others.
            None => match next_priority(connection, recipient, below)? {
                Some(priority) => (priority, true, true),
                None => break,
            },
        };
        for (sql, has_head) in [(DUE, has_due), (LAPSED, has_lapsed)] {
            if has_head {
                let run = params![recipient, priority, DUE_MAX, at];
                read_run(connection, sql, run, &mut heads, |_| Ok(()))?;
            }
        }
        heads.sort_unstable_by_key(|stored| stored.number);
        let due = |stored: &Stored<Message>| stored.row.not_before.is_none_or(|due| due <= now);
        for stored in heads.into_iter().filter(due).take(wanted) {
            offer(step, stored, found);
        }
        below = priority;
    }
    Ok(())
}

/// Reads the head of a run.
fn read_run(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    heads: &mut Vec<Stored<Message>>,
    mut look: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Result<(), Failure<Error>> {
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query(params).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        heads.push(message::decode(row)?);
        look(row).map_err(failed)?;
    }
    Ok(())
}

fn next_priority(connection: &Connection, recipient: &str, below: i64) -> Result<Option<i64>, Failure<Error>> {
    query_one(connection, NEXT_PRIORITY, params![recipient, below], |row| {
        row.get(0).map_err(failed)
    })
}

fn next_recipient(connection: &Connection, after: &str) -> Result<Option<String>, Failure<Error>> {
    query_one(connection, NEXT_RECIPIENT, params![after], |row| {
        row.get(0).map_err(failed)
    })
}

fn lapsed(
    step: &mut SqliteStep<'_>,
    recipient: &str,
    now: TimeMs,
    limit: usize,
    found: &mut Candidates,
) -> Result<(), Failure<Error>> {
    let connection = step.connection;
    let mut below = ABOVE_ALL;
    while found.len() < limit
        && let Some(priority) = next_priority(connection, recipient, below)?
    {
        let mut heads = Vec::new();
        let wanted = sql_limit(limit - found.len());
        let at = number_of(now.as_ms());
        read_run(
            connection,
            LAPSED,
            params![recipient, priority, wanted, at],
            &mut heads,
            |_| Ok(()),
        )?;
        for stored in heads {
            offer(step, stored, found);
        }
        below = priority;
    }
    Ok(())
}

fn lost_attempts(
    step: &mut SqliteStep<'_>,
    now: TimeMs,
    limit: usize,
    found: &mut Candidates,
) -> Result<(), Failure<Error>> {
    let mut statement = step.connection.prepare_cached(assignment::LOST).map_err(failed)?;
    let mut rows = statement
        .query(params![number_of(now.as_ms()), sql_limit(limit)])
        .map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        // A full list offers no more.
        drop(found.push(assignment::decode(row)?.row.id));
    }
    Ok(())
}

/// The first recipient after `after` who has a lapsed claim.
pub(crate) fn next_recipient_with_lapsed(
    connection: &Connection,
    after: &str,
    now: TimeMs,
) -> Result<Option<String>, Error> {
    let mut after = after.to_owned();
    loop {
        let next = query_one(connection, NEXT_RECIPIENT, [&after], |row| row.get(0).map_err(failed))?;
        let Some(recipient): Option<String> = next else {
            return Ok(None);
        };
        let mut below = ABOVE_ALL;
        while let Some(priority) = next_priority(connection, &recipient, below)? {
            let lapsed =
                connection
                    .prepare_cached(LAPSED)?
                    .exists(params![recipient, priority, 1, number_of(now.as_ms())])?;
            if lapsed {
                return Ok(Some(recipient));
            }
            below = priority;
        }
        after = recipient;
    }
}

/// The statements, and what of the index each of their searches uses.
#[cfg(test)]
pub(super) const STATEMENTS: [(&str, &[&str]); 5] = [
    (
        READY,
        &[
            "recipient=? AND priority=? AND state=? AND expires_at_ms=? AND not_before_ms=?",
            "recipient=? AND priority<?",
            "recipient=? AND priority=? AND state=? AND expires_at_ms=? AND not_before_ms<?",
            "recipient=? AND priority=? AND state=? AND expires_at_ms<?",
        ],
    ),
    (
        DUE,
        &["recipient=? AND priority=? AND state=? AND expires_at_ms=? AND not_before_ms<?"],
    ),
    (LAPSED, &["recipient=? AND priority=? AND state=? AND expires_at_ms<?"]),
    (NEXT_PRIORITY, &["recipient=? AND priority<?"]),
    (NEXT_RECIPIENT, &["recipient>?"]),
];
