//! How a claim stands now: whether a call under it can still be accepted. `show` says so of a row, and a replay of the
//! grant that it tells once more.

use keyfence::core::attempt::AssignmentState;
use keyfence::core::lease::{Kind, Lease};
use keyfence::core::mailbox::{Claimed, MessageState};
use keyfence::core::session::{Claim, SessionGrant};
use keyfence::core::{AttemptId, Expiry, Name, TimeMs, Token, attempt};
use keyfence::{Ledger, MessageView};

use super::Context;
use super::exit::Failure;
use super::output::Answer;

/// How a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Until when it lasts by itself; none when the ledger carries another claim now, or a lease of an earlier boot.
    pub(crate) expires_at: Option<TimeMs>,
    /// Whether the lease that it descends from, if there is one, is still the current one.
    pub(crate) descends: bool,
    /// Whether it is live: unexpired, and under its lease.
    pub(crate) live: bool,
}

impl Standing {
    /// The claim is no longer there.
    const GONE: Self = Self {
        expires_at: None,
        descends: false,
        live: false,
    };

    fn of(context: &Context, expiry: Expiry, descends: bool) -> Self {
        Self {
            expires_at: expiry.time(),
            descends,
            live: descends && expiry.is_live(context.now()),
        }
    }
}

/// The lease of an actor or a host under this token.
pub(crate) fn of_lease<K: Kind>(context: &Context, row: Option<&Lease<K>>, token: Token) -> Standing {
    match row.and_then(Lease::claim) {
        Some(held) if held.token == token => Standing::of(context, held.expiry, true),
        Some(_) | None => Standing::GONE,
    }
}

/// Whether the actor's row carries this lease token.
fn carries(ledger: &Ledger, actor: &Name, lease_token: Token) -> Result<bool, Failure> {
    let lease = ledger.actor(actor)?;
    let held = lease.as_ref().and_then(|view| view.row.claim());
    Ok(held.is_some_and(|held| held.token == lease_token))
}

/// A running attempt: live while it is unexpired and the actor's row carries its lease token.
pub(crate) fn of_attempt(
    context: &Context,
    ledger: &Ledger,
    actor: &Name,
    attempt: &attempt::Attempt,
) -> Result<Standing, Failure> {
    let descends = carries(ledger, actor, attempt.lease_token)?;
    Ok(Standing::of(context, attempt.expiry, descends))
}

/// The attempt at an assignment under this token.
pub(crate) fn of_attempt_grant(
    context: &Context,
    ledger: &Ledger,
    assignment: &Name,
    (id, token): (AttemptId, Token),
) -> Result<Standing, Failure> {
    let Some(view) = ledger.assignment(assignment)? else {
        return Ok(Standing::GONE);
    };
    match &view.row.state {
        AssignmentState::Running(attempt) if attempt.id == id && attempt.token == token => {
            of_attempt(context, ledger, &view.row.actor, attempt)
        }
        AssignmentState::Running(_)
        | AssignmentState::Created { .. }
        | AssignmentState::Finished(_)
        | AssignmentState::Pruned => Ok(Standing::GONE),
    }
}

/// A claim on a message: live while it is unexpired and the recipient's row carries the lease token that it names, if it
/// names one.
pub(crate) fn of_message(
    context: &Context,
    ledger: &Ledger,
    recipient: &Name,
    claimed: &Claimed,
) -> Result<Standing, Failure> {
    let descends = match claimed.lease_token {
        Some(lease_token) => carries(ledger, recipient, lease_token)?,
        None => true,
    };
    Ok(Standing::of(context, claimed.expiry, descends))
}

/// The claim on a message under this token, and the lease token that it names.
pub(crate) fn of_delivery(
    context: &Context,
    ledger: &Ledger,
    view: Option<&MessageView>,
    token: Token,
) -> Result<(Standing, Option<Token>), Failure> {
    match view.map(|view| (&view.row.state, &view.row.recipient)) {
        Some((MessageState::Claimed(claimed), recipient)) if claimed.token == token => {
            Ok((of_message(context, ledger, recipient, claimed)?, claimed.lease_token))
        }
        Some(_) | None => Ok((Standing::GONE, None)),
    }
}

/// A claim on a session: live while it and its host's lease are, and the host's row carries its host token.
pub(crate) fn of_session(context: &Context, ledger: &Ledger, claim: &Claim) -> Result<Standing, Failure> {
    let host = ledger.host(&claim.generation.host)?;
    let descends = host
        .as_ref()
        .and_then(|view| view.row.live(context.now()))
        .is_some_and(|held| held.token == claim.generation.host_token);
    Ok(Standing::of(context, claim.expiry, descends))
}

/// The claim on a session under exactly this generation.
pub(crate) fn of_session_grant(context: &Context, ledger: &Ledger, grant: &SessionGrant) -> Result<Standing, Failure> {
    let view = ledger.session(grant.session())?;
    match view.as_ref().and_then(|view| view.row.claim()) {
        Some(claim) if claim.generation == *grant.generation() => of_session(context, ledger, claim),
        Some(_) | None => Ok(Standing::GONE),
    }
}

/// Marks a grant that is told once more. It is the first answer; whether it is still live, and since when it is not, is
/// said beside it, so that nobody begins to work under a lease that has lapsed.
pub(crate) fn replayed(context: &Context, answer: Answer, standing: Standing) -> Answer {
    let lapsed = standing
        .expires_at
        .and_then(|expires_at| context.now().as_ms().checked_sub(expires_at.as_ms()));
    let next = "this grant is no longer live: begin nothing under it, and claim again under a fresh request id";
    answer
        .with("replayed", true)
        .with("live", standing.live)
        .with_some("lapsed_ms", lapsed)
        .with_some("next", (!standing.live).then_some(next))
}
