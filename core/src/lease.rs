//! What an actor lease and a host lease have in common: one row, held by one process until it lapses.
//!
//! * **L1.** A held row is live iff its expiry lies after `now`; only a row that is not live can be acquired.
//! * **L2.** Acquiring mints; renewing keeps the token and never shortens.
//! * **L3.** Releasing leaves the row behind, free, with who released it: so that a repeated release is recognised.

use core::marker::PhantomData;

use crate::counter;
use crate::event::{Event, EventKind, Replaced};
use crate::name::{Name, ProcessId};
use crate::refusal::{Decision, Holder, Reason, Refusal, granted};
use crate::store::{Failure, Place, Record, Table};
use crate::time::{Expiry, TimeMs, Ttl};
use crate::token::Token;

/// What tells the two kinds of lease apart.
pub trait Kind: Clone + PartialEq + core::fmt::Debug {
    /// Where its rows live.
    const PLACE: Place;
    /// The refusal of a claim on a live row.
    const HELD: Reason;
    /// The refusal of a call under a lease that is gone.
    const LOST: Reason;
    /// The event of an acquisition or a takeover.
    const ACQUIRED: EventKind;
    /// The event of a release.
    const RELEASED: EventKind;
    /// The event of a revocation.
    const REVOKED: EventKind;
}

/// A row of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Lease<K> {
    /// The actor or the host.
    pub name: Name,
    /// Held or free.
    pub state: LeaseState,
    /// Tells actors and hosts apart.
    pub kind: PhantomData<K>,
}

/// Whether a lease is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum LeaseState {
    /// Held, live or lapsed.
    Held(Held),
    /// Given up by its holder, who is recognised when the release is repeated; or revoked, and then by nobody.
    Free {
        /// The process and the token that released it.
        released: Option<(ProcessId, Token)>,
    },
}

/// A lease that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Held {
    /// By which process.
    pub process: ProcessId,
    /// Under which token.
    pub token: Token,
    /// Since when.
    pub since: TimeMs,
    /// Until when.
    pub expiry: Expiry,
}

impl<K: Kind> Record for Lease<K> {
    const PLACE: Place = K::PLACE;
    fn key(&self) -> &Name {
        &self.name
    }
}

impl<K: Kind> Lease<K> {
    fn held(name: &Name, held: Held) -> Self {
        Self {
            name: name.clone(),
            state: LeaseState::Held(held),
            kind: PhantomData,
        }
    }

    fn free(name: &Name, released: Option<(ProcessId, Token)>) -> Self {
        Self {
            name: name.clone(),
            state: LeaseState::Free { released },
            kind: PhantomData,
        }
    }

    /// The claim, if somebody holds the row, live or lapsed.
    #[must_use]
    pub fn claim(&self) -> Option<&Held> {
        match &self.state {
            LeaseState::Held(held) => Some(held),
            LeaseState::Free { .. } => None,
        }
    }

    /// The claim, if it is live at `now`.
    #[must_use]
    pub fn live(&self, now: TimeMs) -> Option<&Held> {
        self.claim().filter(|held| held.expiry.is_live(now))
    }
}

/// What an issued claim on a lease is named by. It can be made only by a claim, or decoded from one that was issued:
///
/// ```compile_fail
/// # use keyfence_core::{actor::ActorGrant, Name, ProcessId, Token};
/// fn forge(name: Name, process: ProcessId, token: Token) -> ActorGrant {
///     ActorGrant { name, process, token, kind: core::marker::PhantomData }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LeaseGrant<K> {
    name: Name,
    process: ProcessId,
    token: Token,
    kind: PhantomData<K>,
}

impl<K> LeaseGrant<K> {
    /// Decodes a grant from what an issued one was written down as. It confers nothing: every call compares it with
    /// what the ledger holds.
    #[must_use]
    pub const fn presented(name: Name, process: ProcessId, token: Token) -> Self {
        Self {
            name,
            process,
            token,
            kind: PhantomData,
        }
    }

    /// The actor or the host.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// The process that holds it.
    #[must_use]
    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// The fencing token.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }
}

/// A grant that is, or still is, in force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Granted<G> {
    /// What to present at every later call.
    pub grant: G,
    /// Until when it is live.
    pub expires_at: TimeMs,
    /// Whether an earlier claim was kept: same generation, same token.
    pub renewed: bool,
}

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum Released {
    /// The claim is given up.
    Now,
    /// This very claim was released before; nothing was written.
    Already,
    /// The presented claim is not the current one; whoever holds it still does. What was presented is recorded.
    NotHeld,
}

/// What became of an operator's revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum Revoked {
    /// This claim is gone and its token is dead.
    Claim(Holder, Token),
    /// Nothing was claimed; nothing was written.
    Nothing,
}

/// The refusal that names the current holder of `lease`, if there is one.
pub(crate) fn refusal_by<K: Kind>(reason: Reason, lease: Option<&Lease<K>>) -> Refusal {
    let refusal = Refusal::new(reason);
    match lease.and_then(|lease| lease.claim().map(|held| (&lease.name, held))) {
        Some((name, held)) => refusal
            .held_by(name, Some(held.process), held.since, held.expiry)
            .under(held.token),
        None => refusal,
    }
}

pub(crate) fn replaced<K: Kind>(lease: &Lease<K>) -> Option<Replaced> {
    lease.claim().map(|held| Replaced {
        holder: Holder {
            name: lease.name.clone(),
            process: Some(held.process),
        },
        token: held.token,
        expiry: held.expiry,
    })
}

/// Claims a lease. Strict: a live row of anyone refuses, the caller's own too.
pub(crate) fn acquire<K: Kind, S: Table<Lease<K>>>(
    step: &mut S,
    name: &Name,
    process: ProcessId,
    ttl: Ttl,
    now: TimeMs,
) -> Result<Decision<Granted<LeaseGrant<K>>>, Failure<S::Error>> {
    let before = step.get(name)?;
    if before.as_ref().is_some_and(|lease| lease.live(now).is_some()) {
        return Ok(Err(refusal_by(K::HELD, before.as_ref())));
    }
    if before.is_none() {
        granted!(step.room_for(name)?);
    }
    let token = granted!(counter::mint(step)?);
    let expires_at = now.after(ttl);
    let held = Held {
        process,
        token,
        since: now,
        expiry: Expiry::At(expires_at),
    };
    step.put(before.as_ref(), &Lease::held(name, held))?;
    step.append(&Event {
        holder: Some(Holder {
            name: name.clone(),
            process: Some(process),
        }),
        token: Some(token),
        expires_at: Some(expires_at),
        replaced: before.as_ref().and_then(replaced),
        ..Event::new(now, K::ACQUIRED, name)
    })?;
    Ok(Ok(Granted {
        grant: LeaseGrant::presented(name.clone(), process, token),
        expires_at,
        renewed: false,
    }))
}

/// Moves the expiry of a live lease that `allowed` recognises as the caller's own.
pub(crate) fn renew_if<K: Kind, S: Table<Lease<K>>>(
    step: &mut S,
    name: &Name,
    ttl: Ttl,
    now: TimeMs,
    allowed: impl FnOnce(&Held) -> bool,
) -> Result<Option<Granted<LeaseGrant<K>>>, Failure<S::Error>> {
    let before = step.get(name)?;
    let Some(held) = before
        .as_ref()
        .and_then(|lease| lease.live(now))
        .copied()
        .filter(allowed)
    else {
        return Ok(None);
    };
    let expires_at = held.expiry.renewed(now, ttl);
    step.put(
        before.as_ref(),
        &Lease::held(
            name,
            Held {
                expiry: Expiry::At(expires_at),
                ..held
            },
        ),
    )?;
    let grant = LeaseGrant::presented(name.clone(), held.process, held.token);
    Ok(Some(Granted {
        grant,
        expires_at,
        renewed: true,
    }))
}

/// Renews on exact process and token and a live row.
pub(crate) fn renew<K: Kind, S: Table<Lease<K>>>(
    step: &mut S,
    grant: &LeaseGrant<K>,
    ttl: Ttl,
    now: TimeMs,
) -> Result<Decision<Granted<LeaseGrant<K>>>, Failure<S::Error>> {
    let renewed = renew_if(step, &grant.name, ttl, now, |held| {
        held.process == grant.process && held.token == grant.token
    })?;
    match renewed {
        Some(granted) => Ok(Ok(granted)),
        None => {
            let lease = step.get(&grant.name)?;
            let refusal = refusal_by(K::LOST, lease.as_ref());
            Ok(Err(counter::refuse(step, refusal, &grant.name, grant.token, now)?))
        }
    }
}

/// Gives a lease up on exact process and token, live or lapsed. A stale grant changes nothing and is recorded.
pub(crate) fn release<K: Kind, S: Table<Lease<K>>>(
    step: &mut S,
    grant: &LeaseGrant<K>,
    now: TimeMs,
) -> Result<Decision<Released>, Failure<S::Error>> {
    let Some(before) = step.get(&grant.name)? else {
        return counter::not_held(step, K::LOST, &grant.name, grant.token, now);
    };
    match &before.state {
        LeaseState::Free { released } if *released == Some((grant.process, grant.token)) => Ok(Ok(Released::Already)),
        LeaseState::Held(held) if held.process == grant.process && held.token == grant.token => {
            step.put(
                Some(&before),
                &Lease::free(&grant.name, Some((grant.process, grant.token))),
            )?;
            step.append(&Event {
                holder: Some(Holder {
                    name: grant.name.clone(),
                    process: Some(grant.process),
                }),
                token: Some(grant.token),
                expires_at: held.expiry.time(),
                ..Event::new(now, K::RELEASED, &grant.name)
            })?;
            Ok(Ok(Released::Now))
        }
        LeaseState::Free { .. } | LeaseState::Held(_) => {
            counter::not_held(step, K::LOST, &grant.name, grant.token, now)
        }
    }
}

/// Clears a claim by an operator's act, live or lapsed; its token is dead.
pub(crate) fn revoke<K: Kind, S: Table<Lease<K>>>(
    step: &mut S,
    name: &Name,
    now: TimeMs,
) -> Result<Decision<Revoked>, Failure<S::Error>> {
    let before = step.get(name)?;
    let Some((lease, held)) = before
        .as_ref()
        .and_then(|lease| lease.claim().map(|held| (lease, *held)))
    else {
        return Ok(Ok(Revoked::Nothing));
    };
    step.put(Some(lease), &Lease::free(name, None))?;
    step.append(&Event {
        replaced: replaced(lease),
        ..Event::new(now, K::REVOKED, name)
    })?;
    Ok(Ok(Revoked::Claim(
        Holder {
            name: name.clone(),
            process: Some(held.process),
        },
        held.token,
    )))
}
