//! The kit on the store in memory.

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
use keyfence_core::store::{Place, Record, Store, Table};
use keyfence_core::{Expiry, Incarnation, Name, TimeMs, Token};

use super::bench::Bench;
use super::subject::{BadExpiry, Bounds, Can};

/// How many rows of a kind there is room for.
const ROWS: usize = 12;
/// How many events are kept: more than any scenario leaves.
const EVENTS: usize = 96;

/// The store in memory, as the kit drives it.
pub struct OnMemory(Box<Memory<ROWS, EVENTS>>);

impl OnMemory {
    /// A new ledger.
    #[must_use]
    pub fn new() -> Self {
        Self(Box::new(Memory::new()))
    }

    /// Rewrites the rows of one kind.
    fn rewrite<R: Record>(&mut self, change: impl Fn(&R) -> Option<R>)
    where
        MemoryStep<ROWS, EVENTS>: Rows<R> + Table<R, Error = core::convert::Infallible>,
    {
        for before in self.0.rows::<R>().to_vec() {
            if let Some(after) = change(&before) {
                self.0
                    .step(|step, _now| step.put(Some(&before), &after).map(Ok))
                    .expect("memory does not fail")
                    .expect("a rewriting is not refused");
            }
        }
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
    type Store = Memory<ROWS, EVENTS>;

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
        self.0.set_now(now);
    }

    fn history(&mut self) -> Vec<Event> {
        self.0.events().cloned().collect()
    }

    fn refusals(&mut self) -> Vec<RefusedCall> {
        self.0.refused().cloned().collect()
    }

    /// Rows in memory have no form that could be malformed in more than one way.
    fn damage(&mut self, place: Place, key: &Name, _how: BadExpiry) {
        assert!(self.0.damage(place, key), "no room for another mark");
    }

    fn prune(&mut self) {
        self.0.prune();
    }

    fn lift_counter(&mut self, floor: Token) {
        self.0.lift_counter(floor);
    }

    fn raise_incarnations(&mut self, floor: Incarnation) {
        self.0.raise_incarnation_floor(floor);
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
