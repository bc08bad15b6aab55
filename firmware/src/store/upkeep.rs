//! What a ledger does besides its machines: pruning, contents, request ids, lifting the counter.

use keyfence_core::actor::ActorLease;
use keyfence_core::attempt::{Assignment, AssignmentState};
use keyfence_core::gate::Gate;
use keyfence_core::host::HostLease;
use keyfence_core::mailbox::{Message, MessageState, Priority};
use keyfence_core::refusal::RefusedCall;
use keyfence_core::session::{Session, SessionState};
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Digest, Incarnation, Name, Token};

use super::codec::{self, Bytes, Writer};
use super::keys::{self, Keys, Kind};
use super::step::{Tombstone, corrupt};
use super::{
    ANSWER_BYTES_MAX, BODY_BYTES_MAX, CLIENTS, Clock, Error, FlashStep, Ledger, SUBJECT_BYTES_MAX, Slot, Trouble,
    for_all_bounds, not_committed,
};

type Outcomes<T> = Result<T, Trouble>;

/// Bytes that a ledger keeps for a row and that no machine looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(Bytes);

impl Content {
    /// The bytes: of a message's body record, its subject's length, its subject, its body.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The subject and the body of a message.
    #[must_use]
    pub fn letter(&self) -> Option<(&[u8], &[u8])> {
        let (len, rest) = self.0.split_first()?;
        rest.split_at_checked((*len).into())
    }
}

/// Which bytes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// A message's subject and body.
    Letter,
    /// The result of a message, an assignment or a session, or the reason of its end.
    Result,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    /// It was not answered yet.
    New,
    /// It was, with these bytes.
    Answered(Content),
    /// A later one of this client was answered.
    TooOld,
}

impl Tombstone for Message {
    fn pruned(name: &Name) -> Option<Self> {
        Some(Self {
            id: name.clone(),
            recipient: name.clone(),
            content: Digest::NONE,
            priority: Priority::default(),
            not_before: None,
            retries: 0,
            retries_max: 0,
            deliveries: 0,
            redrive_of: None,
            state: MessageState::Pruned,
        })
    }
}

impl Tombstone for Assignment {
    fn pruned(name: &Name) -> Option<Self> {
        Some(Self {
            id: name.clone(),
            actor: name.clone(),
            retry_of: None,
            state: AssignmentState::Pruned,
        })
    }
}

/// Kinds that leave no name behind: sessions start above a floor, the others are never pruned.
macro_rules! leave_nothing {
    ($($row:ty),*) => {$(
        impl Tombstone for $row {
            fn pruned(_: &Name) -> Option<Self> {
                None
            }
        }
    )*};
}
leave_nothing!(ActorLease, HostLease, Session, Gate);

for_all_bounds! { FlashStep<> {
    const KEYS: Keys = Keys { counts: [ACTORS, ASSIGNMENTS, MESSAGES, HOSTS, SESSIONS, GATES] };

    /// Keeps a message's subject and body in the step that sends it.
    ///
    /// # Errors
    ///
    /// When they are too long or there is no such message.
    pub fn keep_letter(&mut self, message: &Name, subject: &[u8], body: &[u8]) -> Result<(), Failure<Error>> {
        if subject.len() > SUBJECT_BYTES_MAX || body.len() > BODY_BYTES_MAX {
            return Err(Failure::Store(Error::ContentTooLong));
        }
        let row = self.find(Kind::Message, message)?.ok_or(corrupt(Place::Message))?;
        let mut out = Writer::default();
        out.byte(subject.len() as u8);
        out.bytes(subject);
        out.bytes(body);
        Ok(self.stage(Self::KEYS.body(row), &out.finish().map_err(Trouble::Store)?)?)
    }

    /// Keeps the result of a message, an assignment or a session in the step that ends it.
    ///
    /// # Errors
    ///
    /// When it is too long or there is no such row.
    pub fn keep_result(&mut self, place: Place, name: &Name, result: &[u8]) -> Result<(), Failure<Error>> {
        if result.len() > BODY_BYTES_MAX {
            return Err(Failure::Store(Error::ContentTooLong));
        }
        let key = self.content_key(place, name, ContentKind::Result)?;
        let key = key.ok_or(corrupt(place))?;
        Ok(self.stage(key, result)?)
    }

    fn content_key(&mut self, place: Place, name: &Name, which: ContentKind) -> Outcomes<Option<u8>> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.place() == place);
        let Some(kind) = kind else {
            return Ok(None);
        };
        let Some(row) = self.find(kind, name)? else {
            return Ok(None);
        };
        Ok(match which {
            ContentKind::Letter => (kind == Kind::Message).then(|| Self::KEYS.body(row)),
            ContentKind::Result => Self::KEYS.result(kind, row),
        })
    }

    /// The bytes that are kept for a row, if there are any.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn content(&mut self, place: Place, name: &Name, which: ContentKind) -> Result<Option<Content>, Failure<Error>> {
        match self.content_key(place, name, which)? {
            Some(key) => Ok(self.read(key, place)?.map(Content)),
            None => Ok(None),
        }
    }

    /// Keeps the answer to a client's request in the step that answers it. Numbers of a client grow.
    ///
    /// # Errors
    ///
    /// When it is too long, or the client has no number below [`CLIENTS`].
    pub fn keep_answer(&mut self, client: u8, number: u32, answer: &[u8]) -> Result<(), Failure<Error>> {
        if answer.len() > ANSWER_BYTES_MAX || usize::from(client) >= CLIENTS {
            return Err(Failure::Store(Error::ContentTooLong));
        }
        let mut out = Writer::default();
        out.bytes(&number.to_le_bytes());
        out.bytes(answer);
        Ok(self.stage(keys::ANSWERS + client, &out.finish().map_err(Trouble::Store)?)?)
    }

    /// What is known of a client's request.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn answered(&mut self, client: u8, number: u32) -> Result<Replay, Failure<Error>> {
        if usize::from(client) >= CLIENTS {
            return Ok(Replay::New);
        }
        let Some(kept) = self.read(keys::ANSWERS + client, Place::History)? else {
            return Ok(Replay::New);
        };
        let (last, answer) = kept.split_first_chunk().ok_or(corrupt(Place::History))?;
        let last = u32::from_le_bytes(*last);
        let answer = Bytes::from_slice(answer).map_err(|_| corrupt(Place::History))?;
        Ok(match number.cmp(&last) {
            core::cmp::Ordering::Greater => Replay::New,
            core::cmp::Ordering::Equal => Replay::Answered(Content(answer)),
            core::cmp::Ordering::Less => Replay::TooOld,
        })
    }

    /// The number of a client's last request whose answer was kept.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn last_number(&mut self, client: u8) -> Result<Option<u32>, Failure<Error>> {
        if usize::from(client) >= CLIENTS {
            return Ok(None);
        }
        let Some(kept) = self.read(keys::ANSWERS + client, Place::History)? else {
            return Ok(None);
        };
        let number = kept.first_chunk().ok_or(corrupt(Place::History))?;
        Ok(Some(u32::from_le_bytes(*number)))
    }

    /// Whether a name was pruned.
    pub(super) fn is_buried(&mut self, kind: Kind, name: &Name) -> Outcomes<bool> {
        if !matches!(kind, Kind::Message | Kind::Assignment) {
            return Ok(false);
        }
        let hash = codec::hash(kind as u8, name.as_str()).to_le_bytes();
        for record in 0..keys::TOMBSTONE_RECORDS as u8 {
            let kept = self.read(keys::TOMBSTONES + record, kind.place())?;
            if kept.is_some_and(|kept| kept.chunks(8).any(|kept| *kept == hash)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a name to those that were pruned; the record that is full longest makes room.
    fn bury(&mut self, kind: Kind, name: &Name) -> Outcomes<()> {
        let hash = codec::hash(kind as u8, name.as_str()).to_le_bytes();
        for record in 0..keys::TOMBSTONE_RECORDS as u8 {
            let key = keys::TOMBSTONES + record;
            let mut kept = self.read(key, kind.place())?.unwrap_or_default();
            if kept.len() < keys::TOMBSTONES_PER_RECORD * 8 {
                kept.extend_from_slice(&hash).map_err(|_| Trouble::Store(Error::TooMuch))?;
                self.stage(key, &kept)?;
                // The next one is emptied before it is needed, so that one is always the oldest.
                if kept.len() == keys::TOMBSTONES_PER_RECORD * 8 {
                    let next = (record + 1) % keys::TOMBSTONE_RECORDS as u8;
                    self.stage(keys::TOMBSTONES + next, &[])?;
                }
                return Ok(());
            }
        }
        Err(corrupt(kind.place()))
    }

    /// Drops the records of a row.
    fn drop_row(&mut self, kind: Kind, row: usize) -> Outcomes<()> {
        let body = (kind == Kind::Message).then(|| Self::KEYS.body(row));
        let keys = [Self::KEYS.name(kind, row), Self::KEYS.state(kind, row)];
        for key in keys.into_iter().chain(body).chain(Self::KEYS.result(kind, row)) {
            if self.journal.has(key) {
                self.stage(key, &[])?;
            }
        }
        Ok(())
    }

    /// Puts what is left of a finished row, and drops the rest. `None`: the row is not finished.
    fn prune_row(&mut self, kind: Kind, row: usize) -> Outcomes<Option<()>> {
        let name = match kind {
            Kind::Message => match self.row::<Message>(row)? {
                Some(message) => match message.state {
                    MessageState::Done(_) | MessageState::Dead(_) => message.id,
                    MessageState::New(_) | MessageState::Claimed(_) | MessageState::Pruned => return Ok(None),
                },
                None => return Ok(None),
            },
            Kind::Assignment => match self.row::<Assignment>(row)? {
                Some(assignment) => match assignment.state {
                    AssignmentState::Finished(_) => assignment.id,
                    AssignmentState::Created { .. } | AssignmentState::Running(_) | AssignmentState::Pruned => {
                        return Ok(None);
                    }
                },
                None => return Ok(None),
            },
            Kind::Session => {
                let generation = match self.row::<Session>(row)? {
                    Some(session) => match session.state {
                        SessionState::Finished(generation, _) => generation,
                        SessionState::Claimed(_) | SessionState::Free { .. } | SessionState::Pruned => {
                            return Ok(None);
                        }
                    },
                    None => return Ok(None),
                };
                self.raise_floor(generation.incarnation)?;
                return self.drop_row(kind, row).map(Some);
            }
            Kind::Actor | Kind::Host | Kind::Gate => return Ok(None),
        };
        self.bury(kind, &name)?;
        self.drop_row(kind, row).map(Some)
    }

    fn raise_floor(&mut self, floor: Incarnation) -> Outcomes<()> {
        if self.incarnation_floor.is_none_or(|known| known < floor) {
            self.incarnation_floor = Some(floor);
            self.put_meta()?;
        }
        Ok(())
    }
} }

for_all_bounds! { Ledger<C: Clock> {
    /// Prunes every finished row (contract, rule 7): a message or an assignment leaves its name, as a hash among the last
    /// 24 to 32; a session raises the floor that new sessions start above. Gives how many rows were pruned.
    ///
    /// # Errors
    ///
    /// When a row cannot be read or the ledger not written; rows pruned before stay so.
    pub fn prune(&mut self) -> Result<usize, Failure<Error>> {
        let mut pruned = 0;
        for kind in [Kind::Message, Kind::Assignment, Kind::Session] {
            for row in 0..self.step.slots(kind).len() {
                if !self.step.slots(kind).get(row).is_some_and(|slot| slot.used) {
                    continue;
                }
                if self.upkeep(|step| step.prune_row(kind, row))?.is_some() {
                    pruned += 1;
                    if let Some(slot) = self.step.slots_mut(kind).get_mut(row) {
                        *slot = Slot::default();
                    }
                }
            }
        }
        Ok(pruned)
    }

    /// Lifts the counter, so that the next token lies above `floor`. Never lowers it.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn lift_counter(&mut self, floor: Token) -> Result<(), Failure<Error>> {
        self.step.begin()?;
        Ok(self.step.journal.lift(floor.get()).map_err(not_committed)?)
    }

    /// Makes new sessions start above `floor`. Never lowers it.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn raise_incarnation_floor(&mut self, floor: Incarnation) -> Result<(), Failure<Error>> {
        self.upkeep(|step| step.raise_floor(floor))
    }

    /// What is known of a client's request.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn answered(&mut self, client: u8, number: u32) -> Result<Replay, Failure<Error>> {
        self.step.begin()?;
        self.step.answered(client, number)
    }

    /// The number of a client's last request whose answer was kept.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn last_number(&mut self, client: u8) -> Result<Option<u32>, Failure<Error>> {
        self.step.begin()?;
        self.step.last_number(client)
    }

    /// The bytes that are kept for a row.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn content(&mut self, place: Place, name: &Name, which: ContentKind) -> Result<Option<Content>, Failure<Error>> {
        self.step.begin()?;
        self.step.content(place, name, which)
    }

    /// The last refused call and how many there were since the last time this was asked, for the audit ring.
    pub fn take_refused(&mut self) -> Option<(RefusedCall, u32)> {
        self.step.take_refused()
    }
} }
