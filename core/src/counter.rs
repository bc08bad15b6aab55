//! The one counter that claims of every kind draw their token from.

use crate::event::{Event, EventKind};
use crate::name::Name;
use crate::refusal::{Decision, Reason, Refusal, RefusedCall, granted};
use crate::store::{Failure, Transaction};
use crate::time::TimeMs;
use crate::token::Token;

/// Mints the token of a claim, or refuses at the end of the range. A machine calls this last, when nothing else can
/// refuse the claim any more: a refused claim mints nothing.
pub(crate) fn mint<S: Transaction>(step: &mut S) -> Result<Decision<Token>, Failure<S::Error>> {
    Ok(step.mint()?.ok_or(Refusal::new(Reason::TokenExhausted)))
}

/// Mints a token for a resource of the caller's own. `purpose` names it in the history.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::TokenExhausted`] at the end of the range.
pub fn mint_for<S: Transaction>(
    step: &mut S,
    purpose: &Name,
    now: TimeMs,
) -> Result<Decision<Token>, Failure<S::Error>> {
    let token = granted!(mint(step)?);
    step.append(&Event {
        token: Some(token),
        ..Event::new(now, EventKind::TokenMinted, purpose)
    })?;
    Ok(Ok(token))
}

/// Whether `presented` lies above everything minted on this ledger. Such a number is never adopted.
pub(crate) fn never_issued<S: Transaction>(step: &mut S, presented: Token) -> Result<bool, Failure<S::Error>> {
    Ok(step.last_minted()?.is_none_or(|last| presented > last))
}

/// Completes and records the refusal of a call that presented a stale or a foreign token. A counter that cannot be read
/// is damage and is reported.
pub(crate) fn refuse<S: Transaction>(
    step: &mut S,
    mut refusal: Refusal,
    subject: &Name,
    presented: Token,
    now: TimeMs,
) -> Result<Refusal, Failure<S::Error>> {
    refusal.never_issued = never_issued(step, presented)?;
    record(step, &refusal, subject, presented, now);
    Ok(refusal)
}

/// Records a refusal as it is. It stands whether or not its record could be written.
pub(crate) fn record<S: Transaction>(step: &mut S, refusal: &Refusal, subject: &Name, presented: Token, now: TimeMs) {
    let call = RefusedCall {
        at: now,
        reason: refusal.reason,
        subject: subject.clone(),
        presented,
        never_issued: refusal.never_issued,
    };
    drop(step.record_refusal(&call));
}
