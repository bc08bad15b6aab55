//! The ledger at a glance.

use keyfence_core::TimeMs;
use rusqlite::{Connection, params};

use super::Status;
use crate::error::Error;
use crate::store::step::head::Head;
use crate::store::step::rows::number_of;

/// Where claims with an expiry are. Those of messages are found in the index of what is open, however many are finished.
const CLAIMS: [&str; 5] = [ACTORS, HOSTS, ASSIGNMENTS, MESSAGES, SESSIONS];
const ACTORS: &str = "keyfence_actor WHERE true";
const HOSTS: &str = "keyfence_host WHERE true";
const ASSIGNMENTS: &str = "keyfence_assignment WHERE state = 1";
const MESSAGES: &str = "keyfence_message INDEXED BY keyfence_message_open WHERE ended_at_ms IS NULL";
const SESSIONS: &str = "keyfence_session WHERE true";

fn count(connection: &Connection, sql: &str, at: i64) -> Result<u64, Error> {
    let count: i64 = connection.prepare_cached(sql)?.query_row([at], |row| row.get(0))?;
    Ok(count.cast_unsigned())
}

/// How many rows of a table are in each state: an array by the state's number.
fn states<const N: usize>(connection: &Connection, table: &str, rows: &str) -> Result<[u64; N], Error> {
    let mut counts = [0; N];
    let mut statement = connection.prepare_cached(&format!("SELECT state, count(*) FROM {rows} GROUP BY state"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let state: usize = row.get::<_, i64>(0)?.try_into().unwrap_or(usize::MAX);
        let rows: i64 = row.get(1)?;
        match counts.get_mut(state) {
            Some(count) => *count += rows.cast_unsigned(),
            None => {
                return Err(Error::Damaged {
                    place: table.into(),
                    why: format!("a row is in an unknown state, {state}"),
                });
            }
        }
    }
    Ok(counts)
}

/// How many claims expire later than `now` and the longest lease that was ever asked for allow.
pub(crate) fn expiries_too_far(connection: &Connection, head: &Head, now: TimeMs) -> Result<u64, Error> {
    let furthest = number_of(now.as_ms().saturating_add(head.longest_ttl_ms));
    CLAIMS
        .iter()
        .map(|claims| {
            count(
                connection,
                &format!("SELECT count(*) FROM {claims} AND expires_at_ms > ?1"),
                furthest,
            )
        })
        .sum()
}

/// Counts, in the snapshot of `connection`.
pub(super) fn take(connection: &Connection, now: TimeMs) -> Result<Status, Error> {
    let head = Head::read(connection)?;
    let at = number_of(now.as_ms());
    let live = |claims: &str| {
        count(
            connection,
            &format!("SELECT count(*) FROM {claims} AND expires_at_ms > ?1"),
            at,
        )
    };
    let lapsed = |claims: &str| {
        count(
            connection,
            &format!("SELECT count(*) FROM {claims} AND expires_at_ms <= ?1"),
            at,
        )
    };
    let [created, running, completed, blocked, failed, _pruned] =
        states::<6>(connection, "keyfence_assignment", "keyfence_assignment")?;
    let [new, ..] = states::<5>(connection, "keyfence_message", MESSAGES)?;
    let [.., done, dead, _pruned] = states::<5>(connection, "keyfence_message", "keyfence_message WHERE state >= 2")?;
    let [free, claimed, finished, _pruned] = states::<4>(connection, "keyfence_session", "keyfence_session")?;
    let first_event: Option<i64> = connection
        .prepare_cached("SELECT min(seq) FROM keyfence_event")?
        .query_row(params![], |row| row.get(0))?;
    let refusals: Option<i64> = connection
        .prepare_cached("SELECT max(number) FROM keyfence_refusal")?
        .query_row(params![], |row| row.get(0))?;
    Ok(Status {
        now,
        counter: head.last_token,
        last_event: head.event_seq,
        first_event: first_event.unwrap_or_default().cast_unsigned(),
        actors_live: live(ACTORS)?,
        actors_lapsed: lapsed(ACTORS)?,
        hosts_live: live(HOSTS)?,
        hosts_lapsed: lapsed(HOSTS)?,
        assignments_created: created,
        assignments_running: running,
        assignments_finished: completed + blocked + failed,
        messages_new: new,
        messages_claimed: live(MESSAGES)?,
        messages_lapsed: lapsed(MESSAGES)?,
        messages_done: done,
        messages_dead: dead,
        sessions_claimed: claimed,
        sessions_free: free,
        sessions_finished: finished,
        refusals: refusals.unwrap_or_default().cast_unsigned(),
        longest_ttl_ms: head.longest_ttl_ms,
        expiries_too_far: expiries_too_far(connection, &head, now)?,
    })
}
