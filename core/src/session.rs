//! The session: a long-lived conversation or job that moves between hosts, one incarnation at a time.
//!
//! A host's name cannot tell its current run from an earlier one: A(1), B(2), A(3) names the same host twice. The
//! incarnation can.
//!
//! * **S1. Live claim.** Its lease is live, and the host's row is live and carries the host token the claim descends from.
//! * **S2.** A live claim under the caller's own host token is renewed; a live one of another refuses; any other claim is
//!   the next incarnation under a fresh token.
//! * **S3.** [`finish`] compares host, incarnation, token and host token with the row, the host's row with the host token, and
//!   wants both leases live: an expired session cannot finish even when nobody took it over.

use crate::counter;
use crate::event::{Event, EventKind, Replaced};
use crate::host::{self, HostGrant, HostLease};
use crate::lease::{Granted, Released, Revoked};
use crate::name::{Digest, Name, ProcessId};
use crate::refusal::{Decision, Holder, Reason, Refusal, granted};
use crate::store::{Failure, Place, Record, Table, Transaction};
use crate::time::{Expiry, TimeMs, Ttl};
use crate::token::{Incarnation, Token};

pub use crate::attempt::Done;

/// A row of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Session {
    /// Its name.
    pub name: Name,
    /// Where it stands.
    pub state: SessionState,
}

/// Where a session stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum SessionState {
    /// A host has claimed it, live or not.
    Claimed(Claim),
    /// Given up, revoked or voided; the next claim is a greater incarnation than this one.
    Free {
        /// The last incarnation.
        incarnation: Incarnation,
        /// Who gave it up, so that a repeated release is recognised.
        released: Option<Generation>,
    },
    /// Finished by this generation, with a result of this digest: never left.
    Finished(Generation, Digest),
    /// Finished, and pruned: only its name is kept.
    Pruned,
}

/// One generation of a session: what a grant is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Generation {
    /// The host.
    pub host: Name,
    /// The incarnation.
    pub incarnation: Incarnation,
    /// The session's token.
    pub token: Token,
    /// The token of the host lease it descends from.
    pub host_token: Token,
}

/// A session that a host has claimed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Claim {
    /// By whom and under which numbers.
    pub generation: Generation,
    /// The process that spoke for the host.
    pub process: ProcessId,
    /// Since when.
    pub since: TimeMs,
    /// Until when.
    pub expiry: Expiry,
}

impl Record for Session {
    const PLACE: Place = Place::Session;
    fn key(&self) -> &Name {
        &self.name
    }
}

impl Session {
    /// The claim, live or not.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        match &self.state {
            SessionState::Claimed(claim) => Some(claim),
            SessionState::Free { .. } | SessionState::Finished(..) | SessionState::Pruned => None,
        }
    }

    fn with(&self, state: SessionState) -> Self {
        Self {
            name: self.name.clone(),
            state,
        }
    }
}

impl Claim {
    fn holder(&self) -> Holder {
        Holder {
            name: self.generation.host.clone(),
            process: Some(self.process),
        }
    }

    fn replaced(&self) -> Replaced {
        Replaced {
            holder: self.holder(),
            token: self.generation.token,
            expiry: self.expiry,
        }
    }

    fn event(&self, session: &Name, kind: EventKind, now: TimeMs) -> Event {
        Event {
            holder: Some(self.holder()),
            token: Some(self.generation.token),
            parent_token: Some(self.generation.host_token),
            expires_at: self.expiry.time(),
            incarnation: Some(self.generation.incarnation),
            ..Event::new(now, kind, session)
        }
    }
}

/// What an issued claim on a session is named by. Made only by a claim, or decoded from one that was issued:
///
/// ```compile_fail
/// # use keyfence_core::{Name, session::{Generation, SessionGrant}};
/// fn forge(session: Name, generation: Generation) -> SessionGrant {
///     SessionGrant { session, generation }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SessionGrant {
    session: Name,
    generation: Generation,
}

impl SessionGrant {
    /// Decodes a grant from what an issued one was written down as. It confers nothing.
    #[must_use]
    pub const fn presented(session: Name, generation: Generation) -> Self {
        Self { session, generation }
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &Name {
        &self.session
    }

    /// Host, incarnation, token and host token.
    #[must_use]
    pub const fn generation(&self) -> &Generation {
        &self.generation
    }

    /// The fencing token.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.generation.token
    }

    /// The incarnation.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.generation.incarnation
    }
}

/// Asks for a session.
#[derive(Clone, Debug)]
pub struct ClaimSession {
    /// The session.
    pub session: Name,
    /// The grant of the host that wants it.
    pub host: HostGrant,
    /// For how long.
    pub ttl: Ttl,
}

/// Whether a claim is live (S1).
fn is_live<S: Table<HostLease>>(step: &mut S, claim: &Claim, now: TimeMs) -> Result<bool, Failure<S::Error>> {
    Ok(claim.expiry.is_live(now)
        && host::carrying(step, &claim.generation.host, claim.generation.host_token)?
            .is_some_and(|held| held.expiry.is_live(now)))
}

/// A refusal that names the claim and says until when it is, or was, live (S1): the earlier of both expiries, and none
/// that could be told when the host's lease was given up or taken over.
fn held<S: Table<HostLease>>(step: &mut S, reason: Reason, claim: &Claim) -> Result<Refusal, Failure<S::Error>> {
    let Generation {
        host,
        host_token,
        token,
        ..
    } = &claim.generation;
    let mut refusal = Refusal::new(reason)
        .held_by(host, Some(claim.process), claim.since, claim.expiry)
        .under(*token);
    refusal.expires_at = match host::carrying(step, host, *host_token)? {
        Some(host) => host
            .expiry
            .time()
            .zip(refusal.expires_at)
            .map(|(host, own)| host.min(own)),
        None => None,
    };
    Ok(refusal)
}

/// Claims a session for a host, or renews the claim of the same host lease (S2).
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::HostLeaseLost`], [`Reason::SessionHeld`], [`Reason::SessionFinished`], [`Reason::Full`],
/// [`Reason::TokenExhausted`] or [`Reason::IncarnationExhausted`].
pub fn claim<S: Table<Session> + Table<HostLease>>(
    step: &mut S,
    ask: &ClaimSession,
    now: TimeMs,
) -> Result<Decision<Granted<SessionGrant>>, Failure<<S as Transaction>::Error>> {
    let (host, host_token) = (ask.host.name(), ask.host.token());
    let current = host::carrying(step, host, host_token)?
        .is_some_and(|held| held.process == ask.host.process() && held.expiry.is_live(now));
    if !current {
        let refusal = host::lost(step, host)?;
        return Ok(Err(counter::refuse(step, refusal, host, host_token, now)?));
    }
    let before: Option<Session> = step.get(&ask.session)?;
    let last = match before.as_ref().map(|session| &session.state) {
        None => {
            granted!(Table::<Session>::room_for(step, &ask.session)?);
            step.incarnation_floor()?
        }
        Some(SessionState::Claimed(claim)) => {
            if is_live(step, claim, now)? {
                // Tokens are never used twice, so the same host token is the same host.
                if claim.generation.host_token == host_token {
                    return renew(step, before.as_ref(), &ask.session, claim, ask.ttl, now);
                }
                return Ok(Err(held(step, Reason::SessionHeld, claim)?));
            }
            Some(claim.generation.incarnation)
        }
        Some(SessionState::Free { incarnation, .. }) => Some(*incarnation),
        Some(SessionState::Finished(..) | SessionState::Pruned) => {
            return Ok(Err(Refusal::new(Reason::SessionFinished)));
        }
    };
    let Some(incarnation) = last.map_or(Some(Incarnation::FIRST), Incarnation::successor) else {
        return Ok(Err(Refusal::new(Reason::IncarnationExhausted)));
    };
    let token = granted!(counter::mint(step)?);
    let expires_at = now.after(ask.ttl);
    let claim = Claim {
        generation: Generation {
            host: host.clone(),
            incarnation,
            token,
            host_token,
        },
        process: ask.host.process(),
        since: now,
        expiry: Expiry::At(expires_at),
    };
    let after = Session {
        name: ask.session.clone(),
        state: SessionState::Claimed(claim.clone()),
    };
    step.put(before.as_ref(), &after)?;
    step.append(&Event {
        replaced: before.as_ref().and_then(Session::claim).map(Claim::replaced),
        ..claim.event(&ask.session, EventKind::SessionClaimed, now)
    })?;
    let grant = SessionGrant::presented(ask.session.clone(), claim.generation);
    Ok(Ok(Granted {
        grant,
        expires_at,
        renewed: false,
    }))
}

/// Keeps the generation of a live claim and moves its expiry; leaves no event.
fn renew<S: Table<Session>>(
    step: &mut S,
    before: Option<&Session>,
    session: &Name,
    claim: &Claim,
    ttl: Ttl,
    now: TimeMs,
) -> Result<Decision<Granted<SessionGrant>>, Failure<S::Error>> {
    let expires_at = claim.expiry.renewed(now, ttl);
    let renewed = Claim {
        expiry: Expiry::At(expires_at),
        ..claim.clone()
    };
    step.put(
        before,
        &Session {
            name: session.clone(),
            state: SessionState::Claimed(renewed),
        },
    )?;
    let grant = SessionGrant::presented(session.clone(), claim.generation.clone());
    Ok(Ok(Granted {
        grant,
        expires_at,
        renewed: true,
    }))
}

/// Finishes the session: the terminal write (S3). `result` is the digest of the bytes that the store keeps with it.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::SessionClaimStale`]; then nothing is written.
pub fn finish<S: Table<Session> + Table<HostLease>>(
    step: &mut S,
    grant: &SessionGrant,
    result: Digest,
    now: TimeMs,
) -> Result<Decision<Done>, Failure<<S as Transaction>::Error>> {
    let presented = &grant.generation;
    let before: Option<Session> = step.get(&grant.session)?;
    if let Some(SessionState::Finished(generation, digest)) = before.as_ref().map(|row| &row.state)
        && generation == presented
        && *digest == result
    {
        return Ok(Ok(Done::Already));
    }
    if let Some(row) = &before
        && let Some(stored) = row.claim()
        && stored.generation.host == presented.host
        && stored.generation.incarnation == presented.incarnation
        && stored.generation.token == presented.token
        && stored.generation.host_token == presented.host_token
        && let Some(host) = host::carrying(step, &stored.generation.host, stored.generation.host_token)?
        && stored.expiry.is_live(now)
        && host.expiry.is_live(now)
    {
        step.put(Some(row), &row.with(SessionState::Finished(presented.clone(), result)))?;
        step.append(&stored.event(&grant.session, EventKind::SessionFinished, now))?;
        return Ok(Ok(Done::Now));
    }
    let refusal = match before.as_ref().and_then(Session::claim) {
        Some(claim) => held(step, Reason::SessionClaimStale, claim)?,
        None => Refusal::new(Reason::SessionClaimStale),
    };
    Ok(Err(counter::refuse(
        step,
        refusal,
        &grant.session,
        presented.token,
        now,
    )?))
}

/// Gives the session up, on exact host, incarnation, token and host token while the host's row carries that host token.
/// The next claim is the next incarnation. A stale grant changes nothing, is told so and is recorded.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn release<S: Table<Session> + Table<HostLease>>(
    step: &mut S,
    grant: &SessionGrant,
    now: TimeMs,
) -> Result<Decision<Released>, Failure<<S as Transaction>::Error>> {
    let presented = &grant.generation;
    let not_held =
        |step: &mut S| counter::not_held(step, Reason::SessionClaimStale, &grant.session, presented.token, now);
    let Some(before): Option<Session> = step.get(&grant.session)? else {
        return not_held(step);
    };
    if let SessionState::Free {
        released: Some(generation),
        ..
    } = &before.state
        && generation == presented
    {
        return Ok(Ok(Released::Already));
    }
    let Some(claim) = before.claim().filter(|claim| claim.generation == *presented) else {
        return not_held(step);
    };
    if host::carrying(step, &presented.host, presented.host_token)?.is_none() {
        return not_held(step);
    }
    let free = SessionState::Free {
        incarnation: presented.incarnation,
        released: Some(presented.clone()),
    };
    step.put(Some(&before), &before.with(free))?;
    step.append(&claim.event(&grant.session, EventKind::SessionReleased, now))?;
    Ok(Ok(Released::Now))
}

/// Clears the claim by an operator's act; its token is dead and the next claim is the next incarnation.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn revoke<S: Table<Session>>(
    step: &mut S,
    session: &Name,
    now: TimeMs,
) -> Result<Decision<Revoked>, Failure<S::Error>> {
    let before: Option<Session> = step.get(session)?;
    let Some((row, claim)) = before.as_ref().and_then(|row| row.claim().map(|claim| (row, claim))) else {
        return Ok(Ok(Revoked::Nothing));
    };
    let incarnation = claim.generation.incarnation;
    step.put(
        Some(row),
        &row.with(SessionState::Free {
            incarnation,
            released: None,
        }),
    )?;
    step.append(&Event {
        incarnation: Some(incarnation),
        replaced: Some(claim.replaced()),
        ..Event::new(now, EventKind::SessionRevoked, session)
    })?;
    Ok(Ok(Revoked::Claim(claim.holder(), claim.generation.token)))
}
