//! Until when an output's claim is live.
//!
//! A claim of an earlier boot is not live, so every output is safe from a power-up until somebody claims anew.

use keyfence_core::actor::ActorLease;
use keyfence_core::attempt::{Assignment, AssignmentState};
use keyfence_core::gate::{ClaimKind, Gate};
use keyfence_core::host::HostLease;
use keyfence_core::lease::{Kind, Lease};
use keyfence_core::mailbox::{Message, MessageState};
use keyfence_core::session::Session;
use keyfence_core::store::{Failure, Step};
use keyfence_core::{Expiry, LedgerId, Name, TimeMs, Token};

use super::board::Follows;

/// A live claim: its token, and the first moment at which it is not live any more.
pub(super) type Live = Option<(Token, TimeMs)>;

/// Until when the claim that an output follows is live; `None` when it is not. `ledger` is this ledger.
pub(super) fn until<S: Step>(
    step: &mut S,
    follows: Follows,
    ledger: LedgerId,
    now: TimeMs,
) -> Result<Option<TimeMs>, Failure<S::Error>> {
    match follows {
        Follows::Claim(kind, name) => {
            let Ok(name) = Name::new(name) else {
                return Ok(None);
            };
            Ok(live(step, kind, &name, now)?.map(|(_, until)| until))
        }
        Follows::Gate(name) => {
            let Ok(name) = Name::new(name) else {
                return Ok(None);
            };
            let gate: Option<Gate> = step.get(&name)?;
            let Some(gate) = gate.filter(|gate| gate.binding.ledger == ledger) else {
                return Ok(None);
            };
            let claim = live(step, gate.binding.kind, &gate.binding.name, now)?;
            Ok(claim
                .filter(|(token, _)| gate.high_water == Some(*token))
                .map(|(_, until)| until))
        }
    }
}

/// The claim of this kind and name, if it is live.
pub(super) fn live<S: Step>(
    step: &mut S,
    kind: ClaimKind,
    name: &Name,
    now: TimeMs,
) -> Result<Live, Failure<S::Error>> {
    match kind {
        ClaimKind::Actor => {
            let lease: Option<ActorLease> = step.get(name)?;
            Ok(of_lease(lease.as_ref(), now))
        }
        ClaimKind::Host => {
            let lease: Option<HostLease> = step.get(name)?;
            Ok(of_lease(lease.as_ref(), now))
        }
        ClaimKind::Session => {
            let session: Option<Session> = step.get(name)?;
            let Some(claim) = session.as_ref().and_then(Session::claim) else {
                return Ok(None);
            };
            let host: Option<HostLease> = step.get(&claim.generation.host)?;
            let own = until_of(claim.expiry, now).map(|until| (claim.generation.token, until));
            Ok(under(own, of_lease(host.as_ref(), now), claim.generation.host_token))
        }
        ClaimKind::Attempt => {
            let assignment: Option<Assignment> = step.get(name)?;
            let Some(assignment) = assignment else {
                return Ok(None);
            };
            let AssignmentState::Running(attempt) = &assignment.state else {
                return Ok(None);
            };
            let lease: Option<ActorLease> = step.get(&assignment.actor)?;
            let own = until_of(attempt.expiry, now).map(|until| (attempt.token, until));
            Ok(under(own, of_lease(lease.as_ref(), now), attempt.lease_token))
        }
        ClaimKind::Message => {
            let message: Option<Message> = step.get(name)?;
            let Some(message) = message else {
                return Ok(None);
            };
            let MessageState::Claimed(claimed) = &message.state else {
                return Ok(None);
            };
            let own = until_of(claimed.expiry, now).map(|until| (claimed.token, until));
            let Some(lease_token) = claimed.lease_token else {
                return Ok(own);
            };
            let lease: Option<ActorLease> = step.get(&message.recipient)?;
            Ok(under(own, of_lease(lease.as_ref(), now), lease_token))
        }
    }
}

fn until_of(expiry: Expiry, now: TimeMs) -> Option<TimeMs> {
    expiry.time().filter(|_| expiry.is_live(now))
}

fn of_lease<K: Kind>(lease: Option<&Lease<K>>, now: TimeMs) -> Live {
    let held = lease?.live(now)?;
    Some((held.token, held.expiry.time()?))
}

/// A claim that descends from a lease: live while both are, and the lease carries the token that it descends from. For
/// attempts and messages that is stricter than the machines are: an output needs somebody who is there.
fn under(own: Live, lease: Live, lease_token: Token) -> Live {
    let (token, until) = own?;
    let (carried, lease_until) = lease?;
    (carried == lease_token).then_some((token, until.min(lease_until)))
}
