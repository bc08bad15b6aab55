//! A bounded ledger in RAM, for tests, models and examples. It allocates nothing and forgets everything when dropped: it
//! is not a place for claims that matter.
//!
//! A step works on a draft, which replaces the ledger's state when it ends with a decision. So it is all or nothing.

use core::convert::Infallible;

use crate::actor::ActorLease;
use crate::attempt::{Assignment, AssignmentState};
use crate::event::Event;
use crate::gate::Gate;
use crate::host::HostLease;
use crate::mailbox::{Message, MessageState};
use crate::name::Name;
use crate::refusal::{Decision, Reason, Refusal, RefusedCall};
use crate::session::{Session, SessionState};
use crate::store::{Candidates, Corrupt, Failure, Place, Query, Record, Store, Table, Transaction};
use crate::time::TimeMs;
use crate::token::{Incarnation, Token};

/// How many rows can be marked as damaged at a time.
const DAMAGED_MAX: usize = 4;

/// A ledger with room for `ROWS` rows of each kind, and for the last `EVENTS` events and as many refused calls.
#[derive(Clone, Debug)]
pub struct Memory<const ROWS: usize, const EVENTS: usize = 64> {
    now: TimeMs,
    state: MemoryStep<ROWS, EVENTS>,
}

/// The draft that a step of [`Memory`] works on.
#[derive(Clone, Debug)]
pub struct MemoryStep<const ROWS: usize, const EVENTS: usize> {
    last_minted: Option<Token>,
    incarnation_floor: Option<Incarnation>,
    actors: heapless::Vec<ActorLease, ROWS>,
    assignments: heapless::Vec<Assignment, ROWS>,
    messages: heapless::Vec<Message, ROWS>,
    hosts: heapless::Vec<HostLease, ROWS>,
    sessions: heapless::Vec<Session, ROWS>,
    gates: heapless::Vec<Gate, ROWS>,
    events: heapless::Deque<Event, EVENTS>,
    refused: heapless::Deque<RefusedCall, EVENTS>,
    damaged: heapless::Vec<(Place, Name), DAMAGED_MAX>,
}

impl<const ROWS: usize, const EVENTS: usize> Default for Memory<ROWS, EVENTS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const ROWS: usize, const EVENTS: usize> Memory<ROWS, EVENTS> {
    /// An empty ledger whose clock stands at the origin.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            now: TimeMs::ZERO,
            state: MemoryStep {
                last_minted: None,
                incarnation_floor: None,
                actors: heapless::Vec::new(),
                assignments: heapless::Vec::new(),
                messages: heapless::Vec::new(),
                hosts: heapless::Vec::new(),
                sessions: heapless::Vec::new(),
                gates: heapless::Vec::new(),
                events: heapless::Deque::new(),
                refused: heapless::Deque::new(),
                damaged: heapless::Vec::new(),
            },
        }
    }

    /// Sets the clock that steps are decided by; it may jump either way.
    pub const fn set_now(&mut self, now: TimeMs) {
        self.now = now;
    }

    /// Lifts the counter so that the next token lies above `floor`. Never lowers it.
    pub fn lift_counter(&mut self, floor: Token) {
        self.state.last_minted = self.state.last_minted.max(Some(floor));
    }

    /// Makes new sessions start above `floor`. Never lowers it.
    pub fn raise_incarnation_floor(&mut self, floor: Incarnation) {
        self.state.incarnation_floor = self.state.incarnation_floor.max(Some(floor));
    }

    /// Makes reads of this row report damage from now on. Returns whether the mark found room.
    pub fn damage(&mut self, place: Place, key: &Name) -> bool {
        self.state.damaged.push((place, key.clone())).is_ok()
    }

    /// Prunes every finished row: only its name stays.
    pub fn prune(&mut self) {
        for row in &mut self.state.messages {
            if matches!(row.state, MessageState::Done(_) | MessageState::Dead(_)) {
                row.state = MessageState::Pruned;
            }
        }
        for row in &mut self.state.assignments {
            if matches!(row.state, AssignmentState::Finished(_)) {
                row.state = AssignmentState::Pruned;
            }
        }
        for row in &mut self.state.sessions {
            if matches!(row.state, SessionState::Finished(..)) {
                row.state = SessionState::Pruned;
            }
        }
    }

    /// The last events, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.state.events.iter()
    }

    /// The last refused calls, oldest first.
    pub fn refused(&self) -> impl Iterator<Item = &RefusedCall> {
        self.state.refused.iter()
    }

    /// The rows of one kind, in the order in which they were made.
    pub fn rows<R: Record>(&self) -> &[R]
    where
        MemoryStep<ROWS, EVENTS>: Rows<R>,
    {
        self.state.rows()
    }
}

impl<const ROWS: usize, const EVENTS: usize> Store for Memory<ROWS, EVENTS> {
    type Error = Infallible;
    type Step<'a> = MemoryStep<ROWS, EVENTS>;

    fn step<T>(
        &mut self,
        mut decide: impl FnMut(&mut Self::Step<'_>, TimeMs) -> Result<Decision<T>, Failure<Infallible>>,
    ) -> Result<Decision<T>, Failure<Infallible>> {
        let mut draft = self.state.clone();
        let decision = decide(&mut draft, self.now)?;
        self.state = draft;
        Ok(decision)
    }
}

/// Appends to a ring, dropping the oldest entry when it is full.
fn push<T, const N: usize>(ring: &mut heapless::Deque<T, N>, entry: T) {
    if ring.is_full() {
        ring.pop_front();
    }
    // A ring of no entries keeps none.
    drop(ring.push_back(entry));
}

impl<const ROWS: usize, const EVENTS: usize> Transaction for MemoryStep<ROWS, EVENTS> {
    type Error = Infallible;

    fn last_minted(&mut self) -> Result<Option<Token>, Failure<Infallible>> {
        Ok(self.last_minted)
    }

    fn mint(&mut self) -> Result<Option<Token>, Failure<Infallible>> {
        let token = match self.last_minted {
            None => Some(Token::FIRST),
            Some(last) => last.successor(),
        };
        if token.is_some() {
            self.last_minted = token;
        }
        Ok(token)
    }

    fn incarnation_floor(&mut self) -> Result<Option<Incarnation>, Failure<Infallible>> {
        Ok(self.incarnation_floor)
    }

    fn append(&mut self, event: &Event) -> Result<(), Failure<Infallible>> {
        push(&mut self.events, event.clone());
        Ok(())
    }

    fn record_refusal(&mut self, call: &RefusedCall) -> Result<(), Failure<Infallible>> {
        push(&mut self.refused, call.clone());
        Ok(())
    }

    fn candidates(&mut self, query: Query<'_>, now: TimeMs, limit: usize) -> Result<Candidates, Failure<Infallible>> {
        let lapsed = |message: &Message| match &message.state {
            MessageState::Claimed(claimed) => !claimed.expiry.is_live(now),
            MessageState::New(_) | MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => false,
        };
        let mut found = Candidates::new();
        let mut offer = |key: &Name| found.len() < limit && found.push(key.clone()).is_ok();
        match query {
            Query::Deliverable(recipient) => {
                let deliverable = |message: &&Message| {
                    message.recipient == *recipient
                        && message.not_before.is_none_or(|due| due <= now)
                        && (matches!(message.state, MessageState::New(_)) || lapsed(message))
                };
                let mut below = None;
                // One pass for each priority that occurs, from the greatest down; rows lie in order of age.
                while let Some(priority) = self
                    .messages
                    .iter()
                    .filter(deliverable)
                    .map(|message| message.priority)
                    .filter(|priority| below.is_none_or(|below| *priority < below))
                    .max()
                {
                    for message in self.messages.iter().filter(deliverable) {
                        if message.priority == priority && !offer(&message.id) {
                            return Ok(found);
                        }
                    }
                    below = Some(priority);
                }
            }
            Query::LapsedMessages(recipient) => {
                for message in self.messages.iter().filter(|message| lapsed(message)) {
                    if recipient.is_none_or(|recipient| message.recipient == *recipient) && !offer(&message.id) {
                        break;
                    }
                }
            }
            Query::LostAttempts => {
                let carried = |assignment: &Assignment, token| {
                    self.actors.iter().any(|lease| {
                        lease.name == assignment.actor && lease.claim().is_some_and(|held| held.token == token)
                    })
                };
                for assignment in &self.assignments {
                    if let AssignmentState::Running(attempt) = &assignment.state
                        && !(attempt.expiry.is_live(now) && carried(assignment, attempt.lease_token))
                        && !offer(&assignment.id)
                    {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Where the rows of one kind lie in a [`MemoryStep`].
pub trait Rows<R> {
    /// The rows.
    fn rows(&self) -> &[R];
    /// The row of this name, or a new one; `None` when there is no room.
    fn write(&mut self, row: &R) -> Option<()>;
    /// Whether another row fits.
    fn has_room(&self) -> bool;
}

macro_rules! rows {
    ($($record:ty: $field:ident;)*) => {$(
        impl<const ROWS: usize, const EVENTS: usize> Rows<$record> for MemoryStep<ROWS, EVENTS> {
            fn rows(&self) -> &[$record] {
                &self.$field
            }

            fn write(&mut self, row: &$record) -> Option<()> {
                match self.$field.iter_mut().find(|old| old.key() == row.key()) {
                    Some(old) => *old = row.clone(),
                    None => self.$field.push(row.clone()).ok()?,
                }
                Some(())
            }

            fn has_room(&self) -> bool {
                !self.$field.is_full()
            }
        }
    )*};
}

rows! {
    ActorLease: actors;
    Assignment: assignments;
    Message: messages;
    HostLease: hosts;
    Session: sessions;
    Gate: gates;
}

impl<R: Record + PartialEq, const ROWS: usize, const EVENTS: usize> Table<R> for MemoryStep<ROWS, EVENTS>
where
    Self: Rows<R>,
{
    fn get(&mut self, key: &Name) -> Result<Option<R>, Failure<Infallible>> {
        if self
            .damaged
            .iter()
            .any(|(place, name)| *place == R::PLACE && name == key)
        {
            return Err(Corrupt {
                place: R::PLACE,
                key: Some(key.clone()),
                why: "marked as damaged",
            }
            .into());
        }
        Ok(self.rows().iter().find(|row| row.key() == key).cloned())
    }

    fn room_for(&mut self, _key: &Name) -> Result<Decision<()>, Failure<Infallible>> {
        Ok(if Rows::<R>::has_room(self) {
            Ok(())
        } else {
            Err(Refusal::new(Reason::Full))
        })
    }

    fn put(&mut self, before: Option<&R>, after: &R) -> Result<(), Failure<Infallible>> {
        let key = after.key().clone();
        let corrupt = |why| {
            Failure::from(Corrupt {
                place: R::PLACE,
                key: Some(key),
                why,
            })
        };
        if self.rows().iter().find(|row| row.key() == after.key()) != before {
            return Err(corrupt("written over a row that was not read"));
        }
        self.write(after)
            .ok_or_else(|| corrupt("written without asking for room"))
    }
}
