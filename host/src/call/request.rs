//! Request ids: the first answer of a call, kept for a day.

use std::time::Duration;

use keyfence_core::store::{Corrupt, Failure, Place};
use keyfence_core::{Decision, Digest};
use rusqlite::{OptionalExtension as _, Row, params};

use super::Request;
use super::answer::Answer;
use crate::clock::{Clock as _, SystemClock};
use crate::error::Error;
use crate::store::check::{Decoder, Encoder};
use crate::store::step::{SqliteStep, failed};

/// How long an answer is kept at least, on the real clock: whatever clock the ledger decides by, a caller that retries
/// lives on that one.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// How many outdated answers a new one takes with it: more than one, so that they dwindle.
const FORGOTTEN_AT_ONCE: i64 = 8;

/// The first answer to this call, if it was made before.
pub(super) fn first_answer<T: Answer>(
    step: &mut SqliteStep<'_>,
    request: &Request,
    digest: Digest,
) -> Result<Option<Decision<T>>, Failure<Error>> {
    let kept: Option<([u8; 16], Vec<u8>)> = step
        .connection()
        .prepare_cached("SELECT call, answer FROM keyfence_request WHERE caller = ?1 AND id = ?2")
        .and_then(|mut statement| {
            statement
                .query_row([request.caller.as_str(), request.id.as_str()], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()
        })
        .map_err(failed)?;
    let Some((call, answer)) = kept else {
        return Ok(None);
    };
    if call != *digest.as_bytes() {
        return Err(Failure::Store(Error::RequestMisused {
            id: request.id.as_str().to_owned(),
        }));
    }
    let (answer, stored) = answer.split_last_chunk().unwrap_or((&[], &[0; 16]));
    let mut decoder = Decoder::new(answer);
    let decision = if check(request.caller.as_str(), request.id.as_str(), &call, answer) == *stored {
        T::replay(step, &mut decoder)?
    } else {
        None
    };
    match decision {
        Some(decision) if decoder.is_empty() => Ok(Some(decision)),
        Some(_) | None => Err(Failure::Corrupt(Corrupt {
            place: Place::History,
            key: Some(request.caller.clone()),
            why: "the kept answer of a request cannot be read",
        })),
    }
}

/// What a kept answer ends with: a digest over it and over whose call's it is.
fn check(caller: &str, id: &str, call: &[u8; 16], answer: &[u8]) -> [u8; 16] {
    let mut encoder = Encoder::new();
    encoder.text(caller);
    encoder.text(id);
    encoder.bytes(call);
    *encoder.digest_with(answer).as_bytes()
}

/// All kept answers, for [`is_kept`].
pub(crate) const ALL: &str = "SELECT caller, id, call, answer FROM keyfence_request";

/// Whether a row of [`ALL`] is as it was written.
pub(crate) fn is_kept(row: &Row<'_>) -> rusqlite::Result<bool> {
    let (caller, id): (String, String) = (row.get(0)?, row.get(1)?);
    let (call, answer): ([u8; 16], Vec<u8>) = (row.get(2)?, row.get(3)?);
    Ok(answer
        .split_last_chunk()
        .is_some_and(|(answer, stored)| check(&caller, &id, &call, answer) == *stored))
}

/// Keeps the answer in the same step as what it granted.
pub(super) fn keep<T: Answer>(
    step: &SqliteStep<'_>,
    request: &Request,
    digest: Digest,
    answer: &T,
) -> Result<(), Failure<Error>> {
    let mut encoder = Encoder::new();
    answer.encode(&mut encoder);
    let mut kept = encoder.as_slice().to_vec();
    kept.extend(check(
        request.caller.as_str(),
        request.id.as_str(),
        digest.as_bytes(),
        &kept,
    ));
    let now = SystemClock.now().as_ms().cast_signed();
    let connection = step.connection();
    let outdated = now.saturating_sub(i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX));
    let forget = |sql: &str| {
        connection
            .prepare_cached(sql)?
            .execute(params![outdated, FORGOTTEN_AT_ONCE])
    };
    forget(
        "DELETE FROM keyfence_request WHERE (caller, id) IN (SELECT caller, id FROM keyfence_request \
         WHERE answered_at_ms < ?1 ORDER BY answered_at_ms LIMIT ?2)",
    )
    .map_err(failed)?;
    connection
        .prepare_cached(
            "INSERT INTO keyfence_request (caller, id, call, answered_at_ms, answer) VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .and_then(|mut statement| {
            statement.execute(params![
                request.caller.as_str(),
                request.id.as_str(),
                digest.as_bytes(),
                now,
                kept
            ])
        })
        .map_err(failed)?;
    Ok(())
}
