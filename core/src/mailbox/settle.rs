//! What ends a claim: complete, retry, give back, dead-letter; each compares the grant in the step that writes (M3) and
//! recognises its own repetition first (M5).

use super::message::{Act, Budget, Cause, Claimed, Dead, Last, Message, MessageGrant, MessageState, Open};
use crate::actor::{self, ActorLease};
use crate::attempt::Done;
use crate::counter;
use crate::event::EventKind;
use crate::name::Digest;
use crate::refusal::{Decision, Reason, Refusal, granted};
use crate::store::{Failure, Table, Transaction};
use crate::time::TimeMs;

/// What became of a retry or a give-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub struct Settled {
    /// Whether it took effect now or had done so before.
    pub done: Done,
    /// Whether the message is DEAD now, for want of budget; otherwise it is NEW.
    pub dead: bool,
}

/// The refusal of any call on a claim that descends from an actor lease which the actor's row no longer carries.
pub(super) fn descent_lost<S: Table<ActorLease>>(
    step: &mut S,
    message: &Message,
    claimed: &Claimed,
) -> Result<Option<Refusal>, Failure<S::Error>> {
    if let Some(lease_token) = claimed.lease_token
        && actor::carrying(step, &message.recipient, lease_token)?.is_none()
    {
        return Ok(Some(actor::lost(step, &message.recipient)?));
    }
    Ok(None)
}

/// The message if it is CLAIMED under exactly this grant (M3); otherwise the recorded refusal.
pub(super) fn current<S: Table<Message> + Table<ActorLease>>(
    step: &mut S,
    presented: &MessageGrant,
    now: TimeMs,
) -> Result<Decision<(Message, Claimed)>, Failure<<S as Transaction>::Error>> {
    let message: Option<Message> = step.get(presented.message())?;
    let refusal = match message {
        None => Refusal::new(Reason::MessageMissing),
        Some(message) => match &message.state {
            MessageState::Claimed(claimed) if claimed.token != presented.token() => {
                message.refusal(Reason::FencingTokenStale)
            }
            MessageState::Claimed(claimed)
                if message.recipient != *presented.owner() || claimed.process != presented.process() =>
            {
                message.refusal(Reason::NotClaimant)
            }
            MessageState::Claimed(claimed) => match descent_lost(step, &message, claimed)? {
                Some(refusal) => refusal,
                None => {
                    let claimed = claimed.clone();
                    return Ok(Ok((message, claimed)));
                }
            },
            MessageState::New(_) => message.refusal(Reason::FencingTokenStale),
            MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => {
                message.refusal(Reason::MessageFinished)
            }
        },
    };
    Ok(Err(counter::refuse(
        step,
        refusal,
        presented.message(),
        presented.token(),
        now,
    )?))
}

/// The record of an act under this grant.
const fn last(presented: &MessageGrant, act: Act, digest: Digest) -> Last {
    Last {
        process: presented.process(),
        token: presented.token(),
        act,
        digest,
    }
}

/// The message, if its last act was this very one (M5).
fn repeated<S: Table<Message>>(
    step: &mut S,
    presented: &MessageGrant,
    act: &Last,
) -> Result<Option<Message>, Failure<S::Error>> {
    let message: Option<Message> = step.get(presented.message())?;
    Ok(message.filter(|message| message.last() == Some(act) && message.recipient == *presented.owner()))
}

/// Completes the message: the terminal write. `result` is the digest of the bytes that the store keeps with it. A claim
/// that lapsed and that nobody took over or swept may still complete.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::MessageMissing`], [`Reason::FencingTokenStale`], [`Reason::NotClaimant`],
/// [`Reason::MessageFinished`] or [`Reason::ActorLeaseLost`]; then nothing is written but the record of the refusal.
pub fn complete<S: Table<Message> + Table<ActorLease>>(
    step: &mut S,
    presented: &MessageGrant,
    result: Digest,
    now: TimeMs,
) -> Result<Decision<Done>, Failure<<S as Transaction>::Error>> {
    let act = last(presented, Act::Completed, result);
    if repeated(step, presented, &act)?.is_some() {
        return Ok(Ok(Done::Already));
    }
    let (message, claimed) = granted!(current(step, presented, now)?);
    step.put(Some(&message), &message.with(MessageState::Done(act)))?;
    step.append(&message.event(&claimed, EventKind::MessageCompleted, message.retries, now))?;
    Ok(Ok(Done::Now))
}

/// Dead-letters the message: a terminal write. `reason` is the digest of the text that the store keeps with it.
///
/// # Errors
/// [`Failure`]. Refuses as [`complete`] does.
pub fn dead_letter<S: Table<Message> + Table<ActorLease>>(
    step: &mut S,
    presented: &MessageGrant,
    reason: Digest,
    now: TimeMs,
) -> Result<Decision<Done>, Failure<<S as Transaction>::Error>> {
    let act = last(presented, Act::DeadLettered, reason);
    if repeated(step, presented, &act)?.is_some() {
        return Ok(Ok(Done::Already));
    }
    let (message, claimed) = granted!(current(step, presented, now)?);
    let dead = Dead {
        cause: Cause::Holder,
        last: Some(act),
        redriven_as: None,
    };
    step.put(Some(&message), &message.with(MessageState::Dead(dead)))?;
    step.append(&message.event(&claimed, EventKind::MessageDead, message.retries, now))?;
    Ok(Ok(Done::Now))
}

/// Asks for another try after a failure: NEW with one retry less, or DEAD when none is left. `not_before` delays the next
/// delivery. `reason` is the digest of the text that the store keeps with it.
///
/// # Errors
/// [`Failure`]. Refuses as [`complete`] does.
pub fn retry<S: Table<Message> + Table<ActorLease>>(
    step: &mut S,
    presented: &MessageGrant,
    not_before: Option<TimeMs>,
    reason: Digest,
    now: TimeMs,
) -> Result<Decision<Settled>, Failure<<S as Transaction>::Error>> {
    let act = last(presented, Act::Retried, reason);
    if let Some(message) = repeated(step, presented, &act)? {
        return Ok(Ok(Settled {
            done: Done::Already,
            dead: message.is_finished(),
        }));
    }
    let (message, claimed) = granted!(current(step, presented, now)?);
    let delayed = Message {
        not_before,
        ..message.clone()
    };
    reopen(
        step,
        &message,
        delayed,
        &claimed,
        message.after_failure(),
        act,
        EventKind::MessageRetried,
        now,
    )
}

/// Gives the message back unfinished: NEW. It costs no retry while the claim is live, and one like any lapse after that.
///
/// # Errors
/// [`Failure`]. Refuses as [`complete`] does.
pub fn give_back<S: Table<Message> + Table<ActorLease>>(
    step: &mut S,
    presented: &MessageGrant,
    now: TimeMs,
) -> Result<Decision<Settled>, Failure<<S as Transaction>::Error>> {
    let act = last(presented, Act::GivenBack, Digest::NONE);
    if let Some(message) = repeated(step, presented, &act)? {
        return Ok(Ok(Settled {
            done: Done::Already,
            dead: message.is_finished(),
        }));
    }
    let (message, claimed) = granted!(current(step, presented, now)?);
    let budget = if claimed.expiry.is_live(now) {
        Budget::Again(message.retries)
    } else {
        message.after_lapse(&claimed)
    };
    reopen(
        step,
        &message,
        message.clone(),
        &claimed,
        budget,
        act,
        EventKind::MessageGivenBack,
        now,
    )
}

/// Writes NEW, or DEAD when the budget is used up.
#[allow(
    clippy::too_many_arguments,
    reason = "one private place for what retry and give_back share"
)]
fn reopen<S: Table<Message>>(
    step: &mut S,
    before: &Message,
    after: Message,
    claimed: &Claimed,
    budget: Budget,
    act: Last,
    kind: EventKind,
    now: TimeMs,
) -> Result<Decision<Settled>, Failure<S::Error>> {
    let (kind, after) = match budget {
        Budget::Again(retries) => (
            kind,
            Message {
                retries,
                ..after.with(MessageState::New(Open { last: Some(act) }))
            },
        ),
        Budget::Exhausted => {
            let dead = Dead {
                cause: Cause::RetriesExhausted,
                last: Some(act),
                redriven_as: None,
            };
            (EventKind::MessageDead, before.with(MessageState::Dead(dead)))
        }
    };
    step.put(Some(before), &after)?;
    step.append(&before.event(claimed, kind, after.retries, now))?;
    Ok(Ok(Settled {
        done: Done::Now,
        dead: after.is_finished(),
    }))
}
