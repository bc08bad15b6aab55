//! The step as the machines see it: mint, read, put, candidates.

use embedded_storage::nor_flash::NorFlash;
use keyfence_core::actor::ActorLease;
use keyfence_core::attempt::{Assignment, AssignmentState};
use keyfence_core::event::Event;
use keyfence_core::mailbox::{Message, MessageState};
use keyfence_core::refusal::RefusedCall;
use keyfence_core::store::{Candidates, Failure, Place, Query, Table, Transaction};
use keyfence_core::{Decision, Incarnation, Name, Reason, Refusal, TimeMs, Token};

use super::{FlashStep, Outcomes, Tombstone, corrupt};
use crate::journal::{Policy, TOKEN_MAX};
use crate::store::codec::Reader;
use crate::store::keys::Kind;
use crate::store::rows::Row;
use crate::store::{Error, for_all_bounds};

for_all_bounds! { FlashStep<> as Transaction {
    type Error = Error;

    fn last_minted(&mut self) -> Result<Option<Token>, Failure<Error>> {
        Ok(Token::presented(self.journal.last_token() + u64::from(self.tokens)))
    }

    fn mint(&mut self) -> Result<Option<Token>, Failure<Error>> {
        let number = self.journal.last_token() + u64::from(self.tokens) + 1;
        let token = Token::presented(number).filter(|_| number <= TOKEN_MAX);
        if token.is_some() {
            self.tokens += 1;
        }
        Ok(token)
    }

    fn incarnation_floor(&mut self) -> Result<Option<Incarnation>, Failure<Error>> {
        Ok(self.incarnation_floor)
    }

    /// The frame of the step is its event.
    fn append(&mut self, _: &Event) -> Result<(), Failure<Error>> {
        Ok(())
    }

    fn record_refusal(&mut self, call: &RefusedCall) -> Result<(), Failure<Error>> {
        self.refused = Some(call.clone());
        self.refused_count = self.refused_count.saturating_add(1);
        Ok(())
    }

    fn candidates(&mut self, query: Query<'_>, now: TimeMs, limit: usize) -> Result<Candidates, Failure<Error>> {
        let mut found = Candidates::new();
        match query {
            Query::Deliverable(recipient) => {
                // The last one offered: by priority from the greatest down, then by age.
                let mut last: Option<(i8, u64, usize)> = None;
                while found.len() < limit {
                    let mut best: Option<((i8, u64, usize), Name)> = None;
                    for row in 0..MESSAGES {
                        let Some(message) = self.row::<Message>(row)? else {
                            continue;
                        };
                        let is_due = message.not_before.is_none_or(|due| due <= now);
                        let is_open = matches!(message.state, MessageState::New(_)) || has_lapsed(&message, now);
                        if message.recipient != *recipient || !is_due || !is_open {
                            continue;
                        }
                        let rank = (-message.priority.get(), self.age_of(row)?, row);
                        let is_next = last.is_none_or(|last| rank > last);
                        if is_next && best.as_ref().is_none_or(|(best, _)| rank < *best) {
                            best = Some((rank, message.id));
                        }
                    }
                    let Some((rank, id)) = best else {
                        break;
                    };
                    last = Some(rank);
                    if found.push(id).is_err() {
                        break;
                    }
                }
            }
            Query::LapsedMessages(recipient) => {
                for row in 0..MESSAGES {
                    let Some(message) = self.row::<Message>(row)? else {
                        continue;
                    };
                    let is_asked = recipient.is_none_or(|recipient| message.recipient == *recipient);
                    if !is_asked || !has_lapsed(&message, now) {
                        continue;
                    }
                    if found.len() >= limit || found.push(message.id).is_err() {
                        break;
                    }
                }
            }
            Query::LostAttempts => {
                for row in 0..ASSIGNMENTS {
                    let Some(assignment) = self.row::<Assignment>(row)? else {
                        continue;
                    };
                    let AssignmentState::Running(attempt) = &assignment.state else {
                        continue;
                    };
                    let lease: Option<ActorLease> = self.row_named(&assignment.actor)?;
                    let carried = lease.is_some_and(|lease| {
                        lease.claim().is_some_and(|held| held.token == attempt.lease_token)
                    });
                    if attempt.expiry.is_live(now) && carried {
                        continue;
                    }
                    if found.len() >= limit || found.push(assignment.id).is_err() {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }
} }

for_all_bounds! { FlashStep<> {
    /// What a message is ordered by among those of its priority.
    fn age_of(&mut self, row: usize) -> Outcomes<u64> {
        let fixed = self.read(Self::KEYS_OF.name(Kind::Message, row), Place::Message)?;
        let ordinal = fixed.as_ref().and_then(|fixed| {
            let mut fixed = Reader::new(fixed);
            fixed.name()?;
            let ordinal = fixed.number();
            fixed.so_far(ordinal)
        });
        ordinal.ok_or(corrupt(Place::Message))
    }
} }

impl<
    R: Row + Tombstone,
    F: NorFlash,
    P: Policy,
    const ACTORS: usize,
    const ASSIGNMENTS: usize,
    const MESSAGES: usize,
    const HOSTS: usize,
    const SESSIONS: usize,
    const GATES: usize,
    const PAGES: usize,
    const KEYS: usize,
    const FRAME: usize,
> Table<R> for FlashStep<F, ACTORS, ASSIGNMENTS, MESSAGES, HOSTS, SESSIONS, GATES, PAGES, KEYS, FRAME, P>
{
    fn get(&mut self, key: &Name) -> Result<Option<R>, Failure<Error>> {
        self.row_named(key)
            .map_err(|trouble| trouble.about(R::KIND.place(), key))
    }

    fn room_for(&mut self, key: &Name) -> Result<Decision<()>, Failure<Error>> {
        Ok(if self.has_room(R::KIND, key) {
            Ok(())
        } else {
            Err(Refusal::new(Reason::Full))
        })
    }

    fn put(&mut self, before: Option<&R>, after: &R) -> Result<(), Failure<Error>> {
        self.put_row(before, after)
    }
}

for_all_bounds! { FlashStep<> {
    fn row_named<R: Row + Tombstone>(&mut self, name: &Name) -> Outcomes<Option<R>> {
        match self.find_or_buried(R::KIND, name)? {
            Whereabouts::Row(row) => self.row(row),
            Whereabouts::Buried => Ok(R::pruned(name)),
            Whereabouts::Nowhere => Ok(None),
        }
    }

    fn find_or_buried(&mut self, kind: Kind, name: &Name) -> Outcomes<Whereabouts> {
        Ok(match self.find(kind, name)? {
            Some(row) => Whereabouts::Row(row),
            None if self.is_buried(kind, name)? => Whereabouts::Buried,
            None => Whereabouts::Nowhere,
        })
    }
} }

/// Where a row is.
enum Whereabouts {
    Row(usize),
    /// It was pruned.
    Buried,
    Nowhere,
}

/// Whether the claim on a message has lapsed.
fn has_lapsed(message: &Message, now: TimeMs) -> bool {
    match &message.state {
        MessageState::Claimed(claimed) => !claimed.expiry.is_live(now),
        MessageState::New(_) | MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => false,
    }
}
