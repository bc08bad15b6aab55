//! The kit on the store in memory.

use core::convert::Infallible;

use keyfence_core::actor::ActorLease;
use keyfence_core::attempt::{Assignment, AssignmentState};
use keyfence_core::event::Event;
use keyfence_core::host::HostLease;
use keyfence_core::lease::{Kind, Lease, LeaseState};
use keyfence_core::mailbox::{Message, MessageState};
use keyfence_core::memory::{Memory, MemoryStep, Rows};
use keyfence_core::name::NAME_BYTES_MAX;
use keyfence_core::refusal::RefusedCall;
use keyfence_core::session::{Session, SessionState};
use keyfence_core::store::{Candidates, Failure, Place, Query, Record, Store, Table, Transaction};
use keyfence_core::{Decision, Expiry, Incarnation, Name, TimeMs, Token};

use super::bench::Bench;
use super::subject::{BadExpiry, Bounds, Can};

/// How many rows of a kind there is room for.
const ROWS: usize = 12;
/// How many events are kept: more than any scenario leaves.
const EVENTS: usize = 96;

/// The store in memory, as the kit drives it.
pub struct OnMemory(Box<Offering>);

impl OnMemory {
    /// A new ledger, which offers exactly the candidates that it is asked for.
    #[must_use]
    pub fn new() -> Self {
        Self(Box::new(Offering {
            memory: Memory::new(),
            generous: false,
        }))
    }

    /// A new ledger, which offers more than it is asked for: after the right candidates all other rows there are.
    #[must_use]
    pub fn generous() -> Self {
        Self(Box::new(Offering {
            memory: Memory::new(),
            generous: true,
        }))
    }

    /// Rewrites the rows of one kind.
    fn rewrite<R: Record>(&mut self, change: impl Fn(&R) -> Option<R>)
    where
        MemoryStep<ROWS, EVENTS>: Rows<R> + Table<R, Error = Infallible>,
    {
        for before in self.0.memory.rows::<R>().to_vec() {
            if let Some(after) = change(&before) {
                self.0
                    .memory
                    .step(|step, _now| step.put(Some(&before), &after).map(Ok))
                    .expect("memory does not fail")
                    .expect("a rewriting is not refused");
            }
        }
    }
}

/// The store in memory, with candidates that may be too many.
pub struct Offering {
    memory: Memory<ROWS, EVENTS>,
    generous: bool,
}

/// A step of [`Offering`].
pub struct OfferingStep<'s> {
    step: &'s mut MemoryStep<ROWS, EVENTS>,
    generous: bool,
}

impl Store for Offering {
    type Error = Infallible;
    type Step<'a> = OfferingStep<'a>;

    fn step<T>(
        &mut self,
        mut decide: impl FnMut(&mut Self::Step<'_>, TimeMs) -> Result<Decision<T>, Failure<Infallible>>,
    ) -> Result<Decision<T>, Failure<Infallible>> {
        let generous = self.generous;
        self.memory
            .step(|step, now| decide(&mut OfferingStep { step, generous }, now))
    }
}

impl Transaction for OfferingStep<'_> {
    type Error = Infallible;

    fn last_minted(&mut self) -> Result<Option<Token>, Failure<Infallible>> {
        self.step.last_minted()
    }

    fn mint(&mut self) -> Result<Option<Token>, Failure<Infallible>> {
        self.step.mint()
    }

    fn incarnation_floor(&mut self) -> Result<Option<Incarnation>, Failure<Infallible>> {
        self.step.incarnation_floor()
    }

    fn append(&mut self, event: &Event) -> Result<(), Failure<Infallible>> {
        self.step.append(event)
    }

    fn record_refusal(&mut self, call: &RefusedCall) -> Result<(), Failure<Infallible>> {
        self.step.record_refusal(call)
    }

    fn candidates(&mut self, query: Query<'_>, now: TimeMs, limit: usize) -> Result<Candidates, Failure<Infallible>> {
        let mut offered = self.step.candidates(query, now, limit)?;
        if self.generous {
            let messages = Rows::<Message>::rows(self.step).iter().map(|row| &row.id);
            let assignments = Rows::<Assignment>::rows(self.step).iter().map(|row| &row.id);
            for key in messages.chain(assignments) {
                if offered.len() < limit && !offered.contains(key) {
                    offered.push(key.clone()).expect("there is room up to the limit");
                }
            }
        }
        Ok(offered)
    }
}

impl<R: Record> Table<R> for OfferingStep<'_>
where
    MemoryStep<ROWS, EVENTS>: Table<R, Error = Infallible>,
{
    fn get(&mut self, key: &Name) -> Result<Option<R>, Failure<Infallible>> {
        self.step.get(key)
    }

    fn room_for(&mut self, key: &Name) -> Result<Decision<()>, Failure<Infallible>> {
        Table::<R>::room_for(self.step, key)
    }

    fn put(&mut self, before: Option<&R>, after: &R) -> Result<(), Failure<Infallible>> {
        self.step.put(before, after)
    }
}

impl Default for OnMemory {
    fn default() -> Self {
        Self::new()
    }
}

fn dark_lease<K: Kind>(row: &Lease<K>) -> Option<Lease<K>> {
    let LeaseState::Held(held) = &row.state else {
        return None;
    };
    let mut held = *held;
    held.expiry = Expiry::EarlierBoot;
    Some(Lease {
        state: LeaseState::Held(held),
        ..row.clone()
    })
}

impl Bench for OnMemory {
    type Store = Offering;

    fn store(&mut self) -> &mut Self::Store {
        &mut self.0
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            epoch: TimeMs::new(1_000_000_000_000).expect("a moment of the year 2001"),
            name_bytes_max: NAME_BYTES_MAX,
            rows_max: Some(ROWS),
            can: &[
                Can::SeeHistory,
                Can::SeeRefusals,
                Can::Damage,
                Can::Prune,
                Can::Lift,
                Can::Reboot,
                Can::Fill,
            ],
        }
    }

    fn set_now(&mut self, now: TimeMs) {
        self.0.memory.set_now(now);
    }

    fn history(&mut self) -> Vec<Event> {
        self.0.memory.events().cloned().collect()
    }

    fn refusals(&mut self) -> Vec<RefusedCall> {
        self.0.memory.refused().cloned().collect()
    }

    /// Rows in memory have no form that could be malformed in more than one way.
    fn damage(&mut self, place: Place, key: &Name, _how: BadExpiry) {
        assert!(self.0.memory.damage(place, key), "no room for another mark");
    }

    fn prune(&mut self) {
        self.0.memory.prune();
    }

    fn lift_counter(&mut self, floor: Token) {
        self.0.memory.lift_counter(floor);
    }

    fn raise_incarnations(&mut self, floor: Incarnation) {
        self.0.memory.raise_incarnation_floor(floor);
    }

    fn reboot(&mut self) {
        self.rewrite::<ActorLease>(dark_lease);
        self.rewrite::<HostLease>(dark_lease);
        self.rewrite::<Assignment>(|row| {
            let AssignmentState::Running(mut attempt) = row.state else {
                return None;
            };
            attempt.expiry = Expiry::EarlierBoot;
            Some(Assignment {
                state: AssignmentState::Running(attempt),
                ..row.clone()
            })
        });
        self.rewrite::<Message>(|row| {
            let MessageState::Claimed(claimed) = &row.state else {
                return None;
            };
            let mut claimed = claimed.clone();
            claimed.expiry = Expiry::EarlierBoot;
            Some(Message {
                state: MessageState::Claimed(claimed),
                ..row.clone()
            })
        });
        self.rewrite::<Session>(|row| {
            let mut claim = row.claim()?.clone();
            claim.expiry = Expiry::EarlierBoot;
            Some(Session {
                state: SessionState::Claimed(claim),
                ..row.clone()
            })
        });
    }
}
