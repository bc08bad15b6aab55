//! The history: one row an event, chained by hash.

use keyfence_core::event::{Event, EventKind, Replaced};
use keyfence_core::refusal::Holder;
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Expiry, Name};
use rusqlite::{Connection, Row, params};

use super::cells::Cells;
use super::failed;
use super::rows::number_of;
use crate::error::Error;
use crate::store::check::Encoder;

const INSERT: &str = "INSERT INTO keyfence_event (seq, at_ms, kind, subject, holder, process, token, parent_token, \
    expires_at_ms, attempt, incarnation, retries, replaced_holder, replaced_process, replaced_token, \
    replaced_expires_at_ms, refers_to, note, link) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";

/// The events after ?1, in order, ?2 at most.
pub(crate) const SINCE: &str = "SELECT seq, at_ms, kind, subject, holder, process, token, parent_token, \
    expires_at_ms, attempt, incarnation, retries, replaced_holder, replaced_process, replaced_token, \
    replaced_expires_at_ms, refers_to, note, link FROM keyfence_event WHERE seq > ?1 ORDER BY seq LIMIT ?2";

/// An event as it stands in its table.
#[derive(Clone, Debug)]
pub(crate) struct StoredEvent {
    pub(crate) seq: u64,
    pub(crate) event: Event,
    pub(crate) note: Option<String>,
    pub(crate) link: i64,
}

/// Writes an event's row.
pub(super) fn insert(
    connection: &Connection,
    seq: u64,
    event: &Event,
    note: Option<&str>,
    link: i64,
) -> Result<(), Failure<Error>> {
    let mut statement = connection.prepare_cached(INSERT).map_err(failed)?;
    let holder = event.holder.as_ref();
    let replaced = event.replaced.as_ref();
    statement
        .execute(params![
            number_of(seq),
            number_of(event.at.as_ms()),
            event.kind.name(),
            event.subject.as_str(),
            holder.map(|holder| holder.name.as_str()),
            holder
                .and_then(|holder| holder.process.as_ref())
                .map(|process| process.as_bytes()),
            event.token.map(|token| number_of(token.get())),
            event.parent_token.map(|token| number_of(token.get())),
            event.expires_at.map(|time| number_of(time.as_ms())),
            event.attempt.as_ref().map(|attempt| attempt.as_bytes()),
            event.incarnation.map(|incarnation| number_of(incarnation.get())),
            event.retries,
            replaced.map(|replaced| replaced.holder.name.as_str()),
            replaced
                .and_then(|replaced| replaced.holder.process.as_ref())
                .map(|process| process.as_bytes()),
            replaced.map(|replaced| number_of(replaced.token.get())),
            replaced
                .and_then(|replaced| replaced.expiry.time())
                .map(|time| number_of(time.as_ms())),
            event.refers_to.as_ref().map(Name::as_str),
            note,
            link
        ])
        .map_err(failed)?;
    Ok(())
}

/// Reads a row of [`SINCE`].
pub(crate) fn decode(row: &Row<'_>) -> Result<StoredEvent, Failure<Error>> {
    let cells = Cells::new(row, Place::History, 3);
    let holder = |name: usize, process: usize| -> Result<Option<Holder>, Failure<Error>> {
        match cells.opt_name(name)? {
            None => Ok(None),
            Some(name) => Ok(Some(Holder {
                name,
                process: cells.opt_process(process)?,
            })),
        }
    };
    let replaced = match holder(12, 13)? {
        None => None,
        Some(holder) => Some(Replaced {
            holder,
            token: cells.token(14)?,
            expiry: cells.opt_time(15)?.map_or(Expiry::EarlierBoot, Expiry::At),
        }),
    };
    let event = Event {
        at: cells.time(1)?,
        kind: EventKind::from_name(cells.text(2)?).ok_or_else(|| cells.damaged("an event of an unknown kind"))?,
        subject: cells.name(3)?,
        holder: holder(4, 5)?,
        token: cells.opt_token(6)?,
        parent_token: cells.opt_token(7)?,
        expires_at: cells.opt_time(8)?,
        attempt: cells.opt_attempt(9)?,
        incarnation: cells.opt_incarnation(10)?,
        retries: cells.opt_number(11)?,
        replaced,
        refers_to: cells.opt_name(16)?,
    };
    Ok(StoredEvent {
        seq: cells.number(0)?,
        event,
        note: cells.opt_text(17)?.map(str::to_owned),
        link: cells.integer(18)?,
    })
}

fn encode_holder(encoder: &mut Encoder, holder: &Holder) {
    encoder.text(holder.name.as_str());
    encoder.opt(holder.process.as_ref(), |encoder, process| {
        encoder.bytes(process.as_bytes())
    });
}

/// The bytes that the chain runs over. Their order is part of the ledger's format.
pub(crate) fn encode(encoder: &mut Encoder, seq: u64, event: &Event, note: Option<&str>) {
    encoder.number(seq);
    encoder.number(event.at.as_ms());
    encoder.text(event.kind.name());
    encoder.text(event.subject.as_str());
    encoder.opt(event.holder.as_ref(), encode_holder);
    encoder.opt(event.token, |encoder, token| encoder.number(token.get()));
    encoder.opt(event.parent_token, |encoder, token| encoder.number(token.get()));
    encoder.opt(event.expires_at, |encoder, time| encoder.number(time.as_ms()));
    encoder.opt(event.attempt, |encoder, attempt| encoder.bytes(attempt.as_bytes()));
    encoder.opt(event.incarnation, |encoder, incarnation| {
        encoder.number(incarnation.get())
    });
    encoder.opt(event.retries, |encoder, retries| encoder.number(u64::from(retries)));
    encoder.opt(event.replaced.as_ref(), |encoder, replaced| {
        encode_holder(encoder, &replaced.holder);
        encoder.number(replaced.token.get());
        encoder.opt(replaced.expiry.time(), |encoder, time| encoder.number(time.as_ms()));
    });
    encoder.opt(event.refers_to.as_ref(), |encoder, name| encoder.text(name.as_str()));
    encoder.opt(note, Encoder::text);
}
