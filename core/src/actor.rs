//! The actor lease: which process may act as an actor now.
//!
//! * [`acquire`] wins if there is no claim or it has lapsed; a live one of anyone, the same process included, refuses
//!   with [`Reason::ActorLeaseHeld`]. [`acquire_or_renew`] renews the caller's own.
//! * [`renew`] wants the exact process and token, and a live lease; else [`Reason::ActorLeaseLost`].
//! * [`release`] gives it up on exact process and token; otherwise it is a reported no-op.

use crate::counter;
use crate::event::EventKind;
use crate::lease::{self, Held, Kind, Lease, LeaseGrant};
use crate::name::{Name, ProcessId};
use crate::refusal::{Decision, Reason, Refusal};
use crate::store::{Failure, Place, Table};
use crate::time::{TimeMs, Ttl};
use crate::token::Token;

pub use crate::lease::{Granted, LeaseState, Released, Revoked};

/// Marks the leases of actors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Actor;

impl Kind for Actor {
    const PLACE: Place = Place::Actor;
    const HELD: Reason = Reason::ActorLeaseHeld;
    const LOST: Reason = Reason::ActorLeaseLost;
    const ACQUIRED: EventKind = EventKind::ActorAcquired;
    const RELEASED: EventKind = EventKind::ActorReleased;
    const REVOKED: EventKind = EventKind::ActorRevoked;
}

/// A row of an actor's lease.
pub type ActorLease = Lease<Actor>;
/// What an issued claim on an actor is named by.
pub type ActorGrant = LeaseGrant<Actor>;

/// Asks for an actor's lease.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// The actor.
    pub actor: Name,
    /// The running instance that wants to act as it.
    pub process: ProcessId,
    /// For how long.
    pub ttl: Ttl,
}

/// Acquires the lease, strictly: a live lease refuses, the caller's own too.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::ActorLeaseHeld`], [`Reason::Full`] or [`Reason::TokenExhausted`].
pub fn acquire<S: Table<ActorLease>>(
    step: &mut S,
    ask: &Acquire,
    now: TimeMs,
) -> Result<Decision<Granted<ActorGrant>>, Failure<S::Error>> {
    lease::acquire(step, &ask.actor, ask.process, ask.ttl, now)
}

/// Acquires the lease, or renews the caller's own live one: the idempotent form.
///
/// # Errors
/// [`Failure`]. Refuses as [`acquire`] does, save on the caller's own live lease.
pub fn acquire_or_renew<S: Table<ActorLease>>(
    step: &mut S,
    ask: &Acquire,
    now: TimeMs,
) -> Result<Decision<Granted<ActorGrant>>, Failure<S::Error>> {
    match lease::renew_if(step, &ask.actor, ask.ttl, now, |held| held.process == ask.process)? {
        Some(granted) => Ok(Ok(granted)),
        None => acquire(step, ask, now),
    }
}

/// Moves the expiry of a live lease to `max(old, now + ttl)`; leaves no event.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::ActorLeaseLost`].
pub fn renew<S: Table<ActorLease>>(
    step: &mut S,
    grant: &ActorGrant,
    ttl: Ttl,
    now: TimeMs,
) -> Result<Decision<Granted<ActorGrant>>, Failure<S::Error>> {
    lease::renew(step, grant, ttl, now)
}

/// Gives the lease up. A stale grant changes nothing, is told so and is recorded.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn release<S: Table<ActorLease>>(
    step: &mut S,
    grant: &ActorGrant,
    now: TimeMs,
) -> Result<Decision<Released>, Failure<S::Error>> {
    lease::release(step, grant, now)
}

/// Clears the claim by an operator's act. Attempts that descend from it can no longer commit.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn revoke<S: Table<ActorLease>>(
    step: &mut S,
    actor: &Name,
    now: TimeMs,
) -> Result<Decision<Revoked>, Failure<S::Error>> {
    lease::revoke(step, actor, now)
}

/// The claim that carries exactly `token`, live or lapsed: what a descendant needs to commit.
pub(crate) fn carrying<S: Table<ActorLease>>(
    step: &mut S,
    actor: &Name,
    token: Token,
) -> Result<Option<Held>, Failure<S::Error>> {
    let lease: Option<ActorLease> = step.get(actor)?;
    Ok(lease
        .and_then(|lease| lease.claim().copied())
        .filter(|held| held.token == token))
}

/// Checks that the actor's lease is live and carries this token and this process: what a new descendant needs.
pub(crate) fn check_current<S: Table<ActorLease>>(
    step: &mut S,
    actor: &Name,
    process: Option<ProcessId>,
    token: Token,
    now: TimeMs,
) -> Result<Decision<()>, Failure<S::Error>> {
    let current =
        carrying(step, actor, token)?.is_some_and(|held| Some(held.process) == process && held.expiry.is_live(now));
    if current {
        return Ok(Ok(()));
    }
    let refusal = lost(step, actor)?;
    Ok(Err(counter::refuse(step, refusal, actor, token, now)?))
}

/// The refusal of a call under an actor lease that is gone, with who holds it now.
pub(crate) fn lost<S: Table<ActorLease>>(step: &mut S, actor: &Name) -> Result<Refusal, Failure<S::Error>> {
    let lease: Option<ActorLease> = step.get(actor)?;
    Ok(lease::refusal_by(Reason::ActorLeaseLost, lease.as_ref()))
}
