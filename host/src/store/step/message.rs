//! The rows of messages: the hot table. A claim's candidates are read as whole rows and kept for the step.

use keyfence_core::mailbox::{Act, Cause, Claimed, Dead, Last, Message, MessageState, Open, Priority};
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Expiry, Name, TimeMs};
use rusqlite::{Row, params};

use super::cells::Cells;
use super::rows::{Cache, Rows, Stored, number_of, one_changed, query_one, stored_expiry};
use super::{SqliteStep, bug, failed};
use crate::error::Error;
use crate::store::check::Check;

/// The columns that [`decode`] reads, from the table or an alias of it.
macro_rules! message_columns {
    () => {
        "number, id, recipient, content, priority, not_before_ms, retries, retries_max, deliveries, redrive_of, state, \
         process, token, lease_token, since_ms, expires_at_ms, last_process, last_token, last_act, last_digest, cause, \
         redriven_as, ended_at_ms, row_check"
    };
}
pub(crate) use message_columns;

pub(crate) const SELECT: &str = concat!("SELECT ", message_columns!(), " FROM keyfence_message WHERE id = ?1");
const INSERT: &str = "INSERT INTO keyfence_message (id, recipient, content, priority, not_before_ms, retries, \
    retries_max, deliveries, redrive_of, state, process, token, lease_token, since_ms, expires_at_ms, last_process, \
    last_token, last_act, last_digest, cause, redriven_as, ended_at_ms, row_check) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)";
const UPDATE: &str = "UPDATE keyfence_message SET not_before_ms = ?2, retries = ?3, deliveries = ?4, state = ?5, \
    process = ?6, token = ?7, lease_token = ?8, since_ms = ?9, expires_at_ms = ?10, last_process = ?11, \
    last_token = ?12, last_act = ?13, last_digest = ?14, cause = ?15, redriven_as = ?16, ended_at_ms = ?17, \
    row_check = ?18 \
    WHERE number = ?1 AND state = ?19 AND token IS ?20 AND expires_at_ms IS ?21 AND row_check = ?22";

pub(crate) const NEW: i64 = 0;
pub(crate) const CLAIMED: i64 = 1;
pub(crate) const DONE: i64 = 2;
pub(crate) const DEAD: i64 = 3;
pub(crate) const PRUNED: i64 = 4;

const fn act_number(act: Act) -> i64 {
    match act {
        Act::GivenBack => 0,
        Act::Retried => 1,
        Act::Completed => 2,
        Act::DeadLettered => 3,
    }
}

const fn cause_number(cause: Cause) -> i64 {
    match cause {
        Cause::RetriesExhausted => 0,
        Cause::WorkerLost => 1,
        Cause::Holder => 2,
        Cause::Operator => 3,
    }
}

/// The row as its columns have it.
#[derive(Default)]
struct Columns<'r> {
    state: i64,
    claimed: Option<&'r Claimed>,
    expiry: Option<i64>,
    last: Option<&'r Last>,
    cause: Option<i64>,
    redriven_as: Option<&'r Name>,
}

impl<'r> Columns<'r> {
    fn of(message: &'r Message) -> Result<Self, Failure<Error>> {
        Ok(match &message.state {
            MessageState::New(open) => Self {
                state: NEW,
                last: open.last.as_ref(),
                ..Self::default()
            },
            MessageState::Claimed(claimed) => Self {
                state: CLAIMED,
                claimed: Some(claimed),
                expiry: Some(stored_expiry(claimed.expiry)?),
                ..Self::default()
            },
            MessageState::Done(last) => Self {
                state: DONE,
                last: Some(last),
                ..Self::default()
            },
            MessageState::Dead(dead) => Self {
                state: DEAD,
                last: dead.last.as_ref(),
                cause: Some(cause_number(dead.cause)),
                redriven_as: dead.redriven_as.as_ref(),
                ..Self::default()
            },
            MessageState::Pruned => Self {
                state: PRUNED,
                ..Self::default()
            },
        })
    }

    fn token(&self) -> Option<i64> {
        self.claimed.map(|claimed| number_of(claimed.token.get()))
    }

    fn process(&self) -> Option<&'r [u8; 16]> {
        self.claimed
            .and_then(|claimed| claimed.process.as_ref())
            .map(|process| process.as_bytes())
    }

    fn lease_token(&self) -> Option<i64> {
        self.claimed
            .and_then(|claimed| claimed.lease_token)
            .map(|token| number_of(token.get()))
    }

    fn since(&self) -> Option<i64> {
        self.claimed.map(|claimed| number_of(claimed.since.as_ms()))
    }

    fn last_process(&self) -> Option<&'r [u8; 16]> {
        self.last
            .and_then(|last| last.process.as_ref())
            .map(|process| process.as_bytes())
    }

    fn last_token(&self) -> Option<i64> {
        self.last.map(|last| number_of(last.token.get()))
    }

    fn last_act(&self) -> Option<i64> {
        self.last.map(|last| act_number(last.act))
    }

    fn last_digest(&self) -> Option<&'r [u8; 16]> {
        self.last.map(|last| last.digest.as_bytes())
    }
}

fn last(cells: &Cells<'_>) -> Result<Option<Last>, Failure<Error>> {
    let Some(token) = cells.opt_token(17)? else {
        return Ok(None);
    };
    Ok(Some(Last {
        process: cells.opt_process(16)?,
        token,
        act: match cells.integer(18)? {
            0 => Act::GivenBack,
            1 => Act::Retried,
            2 => Act::Completed,
            3 => Act::DeadLettered,
            _ => return Err(cells.damaged("its last act is unknown")),
        },
        digest: cells.digest(19)?,
    }))
}

/// Reads a row of [`message_columns`].
pub(crate) fn decode(row: &Row<'_>) -> Result<Stored<Message>, Failure<Error>> {
    let cells = Cells::new(row, Place::Message, 1);
    let state = match cells.integer(10)? {
        NEW => MessageState::New(Open { last: last(&cells)? }),
        CLAIMED => MessageState::Claimed(Claimed {
            process: cells.opt_process(11)?,
            token: cells.token(12)?,
            lease_token: cells.opt_token(13)?,
            since: cells.time(14)?,
            expiry: cells.expiry(15)?,
        }),
        DONE => MessageState::Done(cells.with(last(&cells))?),
        DEAD => MessageState::Dead(Dead {
            cause: match cells.integer(20)? {
                0 => Cause::RetriesExhausted,
                1 => Cause::WorkerLost,
                2 => Cause::Holder,
                3 => Cause::Operator,
                _ => return Err(cells.damaged("the cause of its end is unknown")),
            },
            last: last(&cells)?,
            redriven_as: cells.opt_name(21)?,
        }),
        PRUNED => MessageState::Pruned,
        _ => return Err(cells.damaged("its state is unknown")),
    };
    let message = Message {
        id: cells.name(1)?,
        recipient: cells.name(2)?,
        content: cells.digest(3)?,
        priority: Priority::new(cells.integer(4)?).ok_or_else(|| cells.damaged("its priority is out of range"))?,
        not_before: cells.opt_time(5)?,
        retries: cells.number(6)?,
        retries_max: cells.number(7)?,
        deliveries: cells.number(8)?,
        redrive_of: cells.opt_name(9)?,
        state,
    };
    let ended_at = cells.opt_time(22)?;
    let check = cells.integer(23)?;
    cells.verify(check, message.check(ended_at))?;
    Ok(Stored {
        number: cells.integer(0)?,
        check,
        ended_at,
        row: message,
    })
}

fn check_last(check: &mut Check, last: &Last) {
    check.opt(last.process.as_ref(), |check, process| check.bytes(process.as_bytes()));
    check.word(last.token.get());
    check.word(act_number(last.act).cast_unsigned());
    check.bytes(last.digest.as_bytes());
}

/// Whether the fields are as before that [`UPDATE`] leaves alone.
fn keeps_what_was_sent(after: &Message, before: &Message) -> bool {
    after.recipient == before.recipient
        && after.content == before.content
        && after.priority == before.priority
        && after.retries_max == before.retries_max
        && after.redrive_of == before.redrive_of
}

impl Rows for Message {
    fn cache<'s>(step: &'s mut SqliteStep<'_>) -> &'s mut Cache<Self> {
        &mut step.caches.messages
    }

    fn expiry(&self) -> Option<Expiry> {
        match &self.state {
            MessageState::Claimed(claimed) => Some(claimed.expiry),
            MessageState::New(_) | MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => None,
        }
    }

    fn ends(&self) -> bool {
        match &self.state {
            MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => true,
            MessageState::New(_) | MessageState::Claimed(_) => false,
        }
    }

    fn check(&self, ended_at: Option<TimeMs>) -> i64 {
        let mut check = Check::new("keyfence_message");
        check.text(self.id.as_str());
        check.text(self.recipient.as_str());
        check.bytes(self.content.as_bytes());
        check.word(i64::from(self.priority.get()).cast_unsigned());
        check.opt(self.not_before, |check, time| check.word(time.as_ms()));
        check.word(u64::from(self.retries));
        check.word(u64::from(self.retries_max));
        check.word(u64::from(self.deliveries));
        check.opt(self.redrive_of.as_ref(), |check, id| check.text(id.as_str()));
        match &self.state {
            MessageState::New(open) => {
                check.word(NEW.cast_unsigned());
                check.opt(open.last.as_ref(), check_last);
            }
            MessageState::Claimed(claimed) => {
                check.word(CLAIMED.cast_unsigned());
                check.opt(claimed.process.as_ref(), |check, process| {
                    check.bytes(process.as_bytes());
                });
                check.word(claimed.token.get());
                check.opt(claimed.lease_token, |check, token| check.word(token.get()));
                check.word(claimed.since.as_ms());
                check.opt(claimed.expiry.time(), |check, time| check.word(time.as_ms()));
            }
            MessageState::Done(last) => {
                check.word(DONE.cast_unsigned());
                check_last(&mut check, last);
            }
            MessageState::Dead(dead) => {
                check.word(DEAD.cast_unsigned());
                check.word(cause_number(dead.cause).cast_unsigned());
                check.opt(dead.last.as_ref(), check_last);
                check.opt(dead.redriven_as.as_ref(), |check, id| check.text(id.as_str()));
            }
            MessageState::Pruned => check.word(PRUNED.cast_unsigned()),
        }
        check.opt(ended_at, |check, time| check.word(time.as_ms()));
        check.finish()
    }

    fn load(step: &mut SqliteStep<'_>, key: &Name) -> Result<Option<Stored<Self>>, Failure<Error>> {
        query_one(step.connection, SELECT, params![key.as_str()], decode)
    }

    fn insert(&self, step: &mut SqliteStep<'_>, check: i64, ended_at: Option<TimeMs>) -> Result<i64, Failure<Error>> {
        let c = Columns::of(self)?;
        let mut statement = step.connection.prepare_cached(INSERT).map_err(failed)?;
        statement
            .insert(params![
                self.id.as_str(),
                self.recipient.as_str(),
                self.content.as_bytes(),
                self.priority.get(),
                self.not_before.map(|time| number_of(time.as_ms())),
                self.retries,
                self.retries_max,
                self.deliveries,
                self.redrive_of.as_ref().map(Name::as_str),
                c.state,
                c.process(),
                c.token(),
                c.lease_token(),
                c.since(),
                c.expiry,
                c.last_process(),
                c.last_token(),
                c.last_act(),
                c.last_digest(),
                c.cause,
                c.redriven_as.map(Name::as_str),
                ended_at.map(|time| number_of(time.as_ms())),
                check
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
        if !keeps_what_was_sent(self, &before.row) {
            return Err(bug(format!("the message `{}` was changed where none changes", self.id)));
        }
        let c = Columns::of(self)?;
        let b = Columns::of(&before.row)?;
        let mut statement = step.connection.prepare_cached(UPDATE).map_err(failed)?;
        let changed = statement
            .execute(params![
                before.number,
                self.not_before.map(|time| number_of(time.as_ms())),
                self.retries,
                self.deliveries,
                c.state,
                c.process(),
                c.token(),
                c.lease_token(),
                c.since(),
                c.expiry,
                c.last_process(),
                c.last_token(),
                c.last_act(),
                c.last_digest(),
                c.cause,
                c.redriven_as.map(Name::as_str),
                ended_at.map(|time| number_of(time.as_ms())),
                check,
                b.state,
                b.token(),
                b.expiry,
                before.check
            ])
            .map_err(failed)?;
        one_changed(changed, Place::Message, &self.id)
    }
}
