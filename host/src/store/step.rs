//! One atomic step: what the machines read and write inside one SQLite transaction.

pub(crate) mod assignment;
pub(crate) mod candidates;
pub(crate) mod cells;
pub(crate) mod gate;
pub(crate) mod head;
pub(crate) mod history;
pub(crate) mod lease;
pub(crate) mod message;
pub(crate) mod rows;
pub(crate) mod session;
#[cfg(test)]
mod tests;
pub(crate) mod texts;

use keyfence_core::actor::ActorLease;
use keyfence_core::attempt::Assignment;
use keyfence_core::event::Event;
use keyfence_core::gate::Gate;
use keyfence_core::host::HostLease;
use keyfence_core::mailbox::Message;
use keyfence_core::refusal::RefusedCall;
use keyfence_core::session::Session;
use keyfence_core::store::{Candidates, Failure, Query, Transaction};
use keyfence_core::{Expiry, Incarnation, TimeMs, Token};
use rusqlite::{Connection, params};

use crate::error::Error;
use crate::store::check::{ChainHead, Encoder, chained, link};
use crate::store::schema::SCHEMA;
use head::Head;
use rows::{Cache, number_of};

/// How many refusals are kept.
pub(crate) const REFUSALS_MAX: i64 = 10_000;

/// The transaction that the machines work in. It holds nothing but SQL: no lock of the caller's, no callback.
pub struct SqliteStep<'c> {
    connection: &'c Connection,
    now: TimeMs,
    /// The ledger's row as it was read.
    before: Head,
    /// The ledger's row as it will be written.
    head: Head,
    caches: Caches,
    texts: Texts,
    encoder: Encoder,
    /// Whether anything was written besides records of refusals.
    wrote: bool,
    /// Whether a refusal was recorded.
    recorded: bool,
    /// Why recording a refusal failed: the step is not committed.
    broken: Option<Error>,
}

#[derive(Default)]
struct Caches {
    actors: Cache<ActorLease>,
    assignments: Cache<Assignment>,
    messages: Cache<Message>,
    hosts: Cache<HostLease>,
    sessions: Cache<Session>,
    gates: Cache<Gate>,
}

/// What a verb carries besides what the machines see.
#[derive(Default)]
pub(crate) struct Texts {
    /// The reason that goes into the event.
    pub(crate) note: Option<String>,
    /// The result that goes into the row of an assignment or a session.
    pub(crate) result: Option<Vec<u8>>,
}

impl Texts {
    /// A reason for the history; an empty one is none.
    pub(crate) fn noted(reason: &str) -> Self {
        Self {
            note: (!reason.is_empty()).then(|| reason.to_owned()),
            result: None,
        }
    }

    /// A result for the row.
    pub(crate) fn resulting(result: &[u8]) -> Self {
        Self {
            note: None,
            result: Some(result.to_vec()),
        }
    }
}

/// SQLite failed inside a step: nothing of it is committed.
pub(crate) fn failed(error: rusqlite::Error) -> Failure<Error> {
    Failure::Store(error.into())
}

/// One of our own rules is broken.
pub(crate) fn bug(what: String) -> Failure<Error> {
    Failure::Store(Error::Bug { what })
}

impl<'c> SqliteStep<'c> {
    /// Begins a step in the transaction that is open on `connection`.
    pub(crate) fn begin(connection: &'c Connection, now: TimeMs) -> Result<Self, Failure<Error>> {
        let head = Head::read(connection)?;
        if head.schema > SCHEMA {
            return Err(Failure::Store(Error::SchemaNewer {
                found: head.schema,
                known: SCHEMA,
            }));
        }
        Ok(Self {
            connection,
            now,
            before: head.clone(),
            head,
            caches: Caches::default(),
            texts: Texts::default(),
            encoder: Encoder::new(),
            wrote: false,
            recorded: false,
            broken: None,
        })
    }

    /// The `now` of this step.
    pub(crate) const fn now(&self) -> TimeMs {
        self.now
    }

    pub(crate) const fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Runs `act` with a note for its events and a result for its row.
    pub(crate) fn with_texts<T>(&mut self, texts: Texts, act: impl FnOnce(&mut Self) -> T) -> T {
        self.texts = texts;
        let answer = act(self);
        self.texts = Texts::default();
        answer
    }

    /// Whether there is anything to commit.
    pub(crate) const fn is_dirty(&self) -> bool {
        self.wrote || self.recorded
    }

    /// Whether anything was written besides records of refusals.
    pub(crate) const fn wrote(&self) -> bool {
        self.wrote
    }

    /// Whether a token was minted.
    pub(crate) fn minted(&self) -> bool {
        self.head.last_token != self.before.last_token
    }

    /// Whether nothing of this step can be committed.
    pub(crate) const fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Lifts the counter and the floor of incarnations; neither is ever lowered.
    pub(crate) fn lift(&mut self, token: Token, incarnations: Option<Incarnation>) {
        self.head.last_token = self.head.last_token.max(Some(token));
        self.head.incarnation_floor = self.head.incarnation_floor.max(incarnations);
        self.wrote = true;
    }

    /// Drops the events up to `seq`, after which the chain's head was `chain_head`.
    pub(crate) fn move_anchor(&mut self, seq: u64, chain_head: ChainHead) -> Result<(), Failure<Error>> {
        self.head.anchor_seq = seq;
        self.head.anchor_head = chain_head;
        self.wrote = true;
        // The trigger that keeps the history lets go of what lies behind the anchor.
        self.finish()?;
        self.connection
            .prepare_cached("DELETE FROM keyfence_event WHERE seq <= ?1")
            .and_then(|mut statement| statement.execute([number_of(seq)]))
            .map_err(failed)?;
        Ok(())
    }

    /// Last event of this step and the chain after it.
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    /// Writes the ledger's row, once a step (H3).
    pub(crate) fn finish(&mut self) -> Result<(), Failure<Error>> {
        self.check_sound()?;
        if self.head != self.before {
            self.head.write(self.connection, &self.before)?;
            self.before = self.head.clone();
        }
        Ok(())
    }

    /// Nothing may be written once the transaction has ended: by SQLite after a failed write, or by a guest's SQL.
    fn check_sound(&mut self) -> Result<(), Failure<Error>> {
        match self.broken.take() {
            None if self.connection.is_autocommit() => Err(Failure::Store(Error::Transaction {
                why: "it has ended before its commit".into(),
            })),
            None => Ok(()),
            Some(error) => {
                self.broken = Some(Error::Bug {
                    what: "a step went on after a failed write".into(),
                });
                Err(Failure::Store(error))
            }
        }
    }

    /// Keeps the longest lease that was asked for: an expiry that moved lies exactly one lease after `now`.
    fn note_expiry(&mut self, before: Option<Expiry>, after: Option<Expiry>) {
        if after != before
            && let Some(Expiry::At(expires_at)) = after
        {
            let ttl = expires_at.as_ms().saturating_sub(self.now.as_ms());
            self.head.longest_ttl_ms = self.head.longest_ttl_ms.max(ttl);
        }
    }

    fn insert_refusal(&self, call: &RefusedCall) -> rusqlite::Result<()> {
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO keyfence_refusal (at_ms, reason, subject, presented, never_issued) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let number = insert.insert(params![
            number_of(call.at.as_ms()),
            call.reason.name(),
            call.subject.as_str(),
            number_of(call.presented.get()),
            call.never_issued
        ])?;
        let mut forget = self
            .connection
            .prepare_cached("DELETE FROM keyfence_refusal WHERE number <= ?1")?;
        forget.execute(params![number - REFUSALS_MAX])?;
        Ok(())
    }
}

impl Transaction for SqliteStep<'_> {
    type Error = Error;

    fn last_minted(&mut self) -> Result<Option<Token>, Failure<Error>> {
        Ok(self.head.last_token)
    }

    fn mint(&mut self) -> Result<Option<Token>, Failure<Error>> {
        self.check_sound()?;
        let token = match self.head.last_token {
            None => Some(Token::FIRST),
            Some(last) => last.successor(),
        };
        if token.is_some() {
            self.head.last_token = token;
            self.wrote = true;
        }
        Ok(token)
    }

    fn incarnation_floor(&mut self) -> Result<Option<Incarnation>, Failure<Error>> {
        Ok(self.head.incarnation_floor)
    }

    fn append(&mut self, event: &Event) -> Result<(), Failure<Error>> {
        self.check_sound()?;
        let seq = self.head.event_seq + 1;
        let note = self.texts.note.as_deref();
        self.encoder.clear();
        history::encode(&mut self.encoder, seq, event, note);
        let chain_head = chained(&self.head.chain_head, self.encoder.as_slice());
        history::insert(self.connection, seq, event, note, link(&chain_head))?;
        self.head.event_seq = seq;
        self.head.chain_head = chain_head;
        self.wrote = true;
        Ok(())
    }

    /// A refusal that cannot be recorded stands all the same: the step is then rolled back.
    fn record_refusal(&mut self, call: &RefusedCall) -> Result<(), Failure<Error>> {
        self.check_sound()?;
        match self.insert_refusal(call) {
            Ok(()) => self.recorded = true,
            Err(error) => self.broken = Some(error.into()),
        }
        Ok(())
    }

    fn candidates(&mut self, query: Query<'_>, now: TimeMs, limit: usize) -> Result<Candidates, Failure<Error>> {
        self.check_sound()?;
        candidates::find(self, query, now, limit)
    }
}
