//! The host lease: which process speaks for a runtime that can hold sessions.
//!
//! [`register`] is idempotent: live and the same process, it renews. A bridge, which speaks for a kiosk from outside, must
//! show the host token it was granted as well: a second bridge for the same boot has none and is refused. [`renew`] and
//! [`release`] are those of an actor lease.

use crate::counter;
use crate::event::EventKind;
use crate::lease::{self, Held, Kind, Lease, LeaseGrant};
use crate::name::{Name, ProcessId};
use crate::refusal::{Decision, Reason, Refusal};
use crate::store::{Failure, Place, Table};
use crate::time::{TimeMs, Ttl};
use crate::token::Token;

pub use crate::lease::{Granted, LeaseState, Released, Revoked};

/// Marks the leases of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Host;

impl Kind for Host {
    const PLACE: Place = Place::Host;
    const HELD: Reason = Reason::HostLeaseHeld;
    const LOST: Reason = Reason::HostLeaseLost;
    const ACQUIRED: EventKind = EventKind::HostRegistered;
    const RELEASED: EventKind = EventKind::HostReleased;
    const REVOKED: EventKind = EventKind::HostRevoked;
}

/// A row of a host's lease.
pub type HostLease = Lease<Host>;
/// What an issued claim on a host is named by.
pub type HostGrant = LeaseGrant<Host>;

/// How a registration proves that a live lease is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Proof {
    /// By the process identity alone.
    Process,
    /// By the process identity and the host token that it was granted, which a new bridge does not have.
    Bridge(Option<Token>),
}

/// Asks for a host's lease.
#[derive(Clone, Debug)]
pub struct Register {
    /// The host.
    pub host: Name,
    /// The running instance: of a kiosk, its boot.
    pub process: ProcessId,
    /// What shows that a live lease is the caller's own.
    pub proof: Proof,
    /// For how long.
    pub ttl: Ttl,
}

/// Registers the host, or renews the caller's own live lease.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::HostLeaseHeld`], [`Reason::Full`] or [`Reason::TokenExhausted`].
pub fn register<S: Table<HostLease>>(
    step: &mut S,
    ask: &Register,
    now: TimeMs,
) -> Result<Decision<Granted<HostGrant>>, Failure<S::Error>> {
    let own = |held: &Held| {
        held.process == ask.process
            && match ask.proof {
                Proof::Process => true,
                Proof::Bridge(token) => token == Some(held.token),
            }
    };
    if let Some(granted) = lease::renew_if(step, &ask.host, ask.ttl, now, own)? {
        return Ok(Ok(granted));
    }
    match (lease::acquire(step, &ask.host, ask.process, ask.ttl, now)?, ask.proof) {
        (Err(refusal), Proof::Bridge(Some(token))) if refusal.reason == Reason::HostLeaseHeld => {
            Ok(Err(counter::refuse(step, refusal, &ask.host, token, now)?))
        }
        (decision, Proof::Bridge(_) | Proof::Process) => Ok(decision),
    }
}

/// Moves the expiry of a live lease to `max(old, now + ttl)`; leaves no event.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::HostLeaseLost`].
pub fn renew<S: Table<HostLease>>(
    step: &mut S,
    grant: &HostGrant,
    ttl: Ttl,
    now: TimeMs,
) -> Result<Decision<Granted<HostGrant>>, Failure<S::Error>> {
    lease::renew(step, grant, ttl, now)
}

/// Gives the lease up; sessions that descend from it are no longer live.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn release<S: Table<HostLease>>(
    step: &mut S,
    grant: &HostGrant,
    now: TimeMs,
) -> Result<Decision<Released>, Failure<S::Error>> {
    lease::release(step, grant, now)
}

/// Clears the claim by an operator's act; sessions that descend from it are no longer live.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn revoke<S: Table<HostLease>>(
    step: &mut S,
    host: &Name,
    now: TimeMs,
) -> Result<Decision<Revoked>, Failure<S::Error>> {
    lease::revoke(step, host, now)
}

/// The claim that carries exactly `token`, live or lapsed.
pub(crate) fn carrying<S: Table<HostLease>>(
    step: &mut S,
    host: &Name,
    token: Token,
) -> Result<Option<Held>, Failure<S::Error>> {
    let lease: Option<HostLease> = step.get(host)?;
    Ok(lease
        .and_then(|lease| lease.claim().copied())
        .filter(|held| held.token == token))
}

/// The refusal of a call under a host lease that is gone, with who holds it now.
pub(crate) fn lost<S: Table<HostLease>>(step: &mut S, host: &Name) -> Result<Refusal, Failure<S::Error>> {
    let lease: Option<HostLease> = step.get(host)?;
    Ok(lease::refusal_by(Reason::HostLeaseLost, lease.as_ref()))
}
