//! Rows as a kiosk shows them: those of the core's machines.

use core::marker::PhantomData;

use keyfence_core::actor::ActorLease;
use keyfence_core::attempt::{Assignment, AssignmentState, Attempt, Finished, FinishedBy};
use keyfence_core::gate::Gate;
use keyfence_core::host::HostLease;
use keyfence_core::lease::{Held, Lease, LeaseState};
use keyfence_core::mailbox::{Act, Cause, Claimed, Dead, Last, Message, MessageState, Open};
use keyfence_core::session::{Claim, Session, SessionState};
use keyfence_core::{AttemptId, Expiry, ProcessId, TimeMs, Token};

use super::wire::{self, In, Out, Wire, wire_enum, wire_struct, wire_words};

/// A row of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// An actor's lease.
    Actor(ActorLease),
    /// An assignment.
    Assignment(Assignment),
    /// A message.
    Message(Message),
    /// A host's lease.
    Host(HostLease),
    /// A session.
    Session(Session),
    /// A gate.
    Gate(Gate),
}

wire_enum!(Row {
    0 => Actor(row), 1 => Assignment(row), 2 => Message(row), 3 => Host(row), 4 => Session(row), 5 => Gate(row),
});

impl<K> Wire for Lease<K> {
    fn put(&self, out: &mut Out<'_>) {
        out.array(2);
        self.name.put(out);
        self.state.put(out);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        from.array_of(2)?;
        Some(Self {
            name: Wire::take(from)?,
            state: Wire::take(from)?,
            kind: PhantomData,
        })
    }
}

wire_enum!(LeaseState { 0 => Free { released }, 1 => Held(held) });
wire_enum!(AssignmentState { 0 => Created { released }, 1 => Running(attempt), 2 => Finished(finished), 3 => Pruned });
wire_enum!(SessionState {
    0 => Free { incarnation, released }, 1 => Claimed(claim), 2 => Finished(generation, result), 3 => Pruned,
});

wire_struct!(Held {
    process,
    token,
    since,
    expiry
});
wire_struct!(Attempt {
    id,
    token,
    process,
    lease_token,
    since,
    expiry
});
wire_struct!(Finished {
    outcome,
    attempt,
    token,
    by
});
wire_enum!(FinishedBy { 0 => Attempt(result), 1 => WorkerLost });
wire_struct!(Assignment {
    id,
    actor,
    retry_of,
    state
});
wire_struct!(Message {
    id,
    recipient,
    content,
    priority,
    not_before,
    retries,
    retries_max,
    deliveries,
    redrive_of,
    state,
});
wire_enum!(MessageState { 0 => New(open), 1 => Claimed(claimed), 2 => Done(last), 3 => Dead(dead), 4 => Pruned });
wire_struct!(Open { last });
wire_struct!(Claimed {
    process,
    token,
    lease_token,
    since,
    expiry
});
wire_struct!(Last {
    process,
    token,
    act,
    digest
});
wire_words!(Act { 0 => GivenBack, 1 => Retried, 2 => Completed, 3 => DeadLettered });
wire_struct!(Dead {
    cause,
    last,
    redriven_as
});
wire_words!(Cause { 0 => RetriesExhausted, 1 => WorkerLost, 2 => Holder, 3 => Operator });
wire_struct!(Session { name, state });
wire_struct!(Claim {
    generation,
    process,
    since,
    expiry
});
wire_struct!(Gate {
    name,
    binding,
    high_water
});

/// Who gave a claim up.
macro_rules! wire_pair {
    ($id:ty) => {
        impl Wire for ($id, Token) {
            fn put(&self, out: &mut Out<'_>) {
                out.array(2);
                self.0.put(out);
                self.1.put(out);
            }
            fn take(from: &mut In<'_>) -> Option<Self> {
                from.array_of(2)?;
                Some((Wire::take(from)?, Wire::take(from)?))
            }
        }
    };
}
wire_pair!(ProcessId);
wire_pair!(AttemptId);

/// The expiry of a claim: none for one of an earlier boot.
impl Wire for Expiry {
    fn put(&self, out: &mut Out<'_>) {
        self.time().put(out);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        <Option<TimeMs> as Wire>::take(from).map(|time| time.map_or(Self::EarlierBoot, Self::At))
    }
}
