//! Claims: one message by its id, the next ones by priority and age, and the sweep of lapsed ones.

use super::message::{Budget, Cause, Claimed, Dead, Message, MessageGrant, MessageState, Open};
use super::settle;
use crate::actor::{self, ActorLease};
use crate::counter;
use crate::event::{Event, EventKind};
use crate::lease::Granted;
use crate::name::{Name, ProcessId};
use crate::refusal::{Decision, Reason, Refusal, granted};
use crate::store::{CANDIDATES_MAX, Failure, Query, Table, Transaction};
use crate::time::{Expiry, TimeMs, Ttl};
use crate::token::Token;

/// Asks for one message by its id.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The message.
    pub message: Name,
    /// Who asks: only the recipient is granted it.
    pub owner: Name,
    /// The process that will work on it. Callers that give none are one anonymous process, and not fenced from each
    /// other inside a live claim.
    pub process: Option<ProcessId>,
    /// The token of the actor lease that the claim shall descend from.
    pub lease_token: Option<Token>,
    /// For how long.
    pub ttl: Ttl,
}

/// Asks for the next messages of a recipient.
#[derive(Clone, Debug)]
pub struct ClaimNext {
    /// The recipient, who asks.
    pub owner: Name,
    /// The process that will work on them.
    pub process: Option<ProcessId>,
    /// The token of the actor lease that the claims shall descend from.
    pub lease_token: Option<Token>,
    /// For how long.
    pub ttl: Ttl,
}

fn grant(message: &Message, claimed: &Claimed) -> MessageGrant {
    MessageGrant::presented(
        message.id.clone(),
        message.recipient.clone(),
        claimed.process,
        claimed.token,
    )
}

/// Checks the lease that a claim wants to descend from.
fn check_lease<S: Table<ActorLease>>(
    step: &mut S,
    owner: &Name,
    process: Option<ProcessId>,
    lease_token: Option<Token>,
    now: TimeMs,
) -> Result<Decision<()>, Failure<S::Error>> {
    match lease_token {
        Some(token) => actor::check_current(step, owner, process, token, now),
        None => Ok(Ok(())),
    }
}

/// Claims a message (M2). The same ask inside its live claim is granted the same again. A claim of the same process that
/// descends from another actor lease than the ask names is not that grant: it is held until it lapses.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::MessageMissing`], [`Reason::WrongRecipient`], [`Reason::ActorLeaseLost`],
/// [`Reason::MessageNotDue`], [`Reason::MessageHeld`], [`Reason::MessageFinished`] or [`Reason::TokenExhausted`].
pub fn claim<S: Table<Message> + Table<ActorLease>>(
    step: &mut S,
    ask: &Claim,
    now: TimeMs,
) -> Result<Decision<Granted<MessageGrant>>, Failure<<S as Transaction>::Error>> {
    let Some(message): Option<Message> = step.get(&ask.message)? else {
        return Ok(Err(Refusal::new(Reason::MessageMissing)));
    };
    if message.state == MessageState::Pruned {
        return Ok(Err(Refusal::new(Reason::MessageFinished)));
    }
    if message.recipient != ask.owner {
        return Ok(Err(Refusal::new(Reason::WrongRecipient)));
    }
    if let MessageState::Claimed(claimed) = &message.state
        && claimed.process == ask.process
        && (ask.lease_token.is_none() || ask.lease_token == claimed.lease_token)
        && let Expiry::At(expires_at) = claimed.expiry
        && expires_at > now
    {
        if let Some(refusal) = settle::descent_lost(step, &message, claimed)? {
            return Ok(Err(match ask.lease_token {
                Some(token) => counter::refuse(step, refusal, &ask.owner, token, now)?,
                None => refusal,
            }));
        }
        return Ok(Ok(Granted {
            grant: grant(&message, claimed),
            expires_at,
            renewed: true,
        }));
    }
    granted!(check_lease(step, &ask.owner, ask.process, ask.lease_token, now)?);
    if let Some(due) = message.not_before.filter(|due| *due > now) {
        return Ok(Err(Refusal {
            due_at: Some(due),
            ..Refusal::new(Reason::MessageNotDue)
        }));
    }
    take(step, &message, ask.process, ask.lease_token, ask.ttl, now)
}

/// The compare-and-set of a claim: NEW or lapsed becomes CLAIMED under a fresh token.
fn take<S: Table<Message>>(
    step: &mut S,
    message: &Message,
    process: Option<ProcessId>,
    lease_token: Option<Token>,
    ttl: Ttl,
    now: TimeMs,
) -> Result<Decision<Granted<MessageGrant>>, Failure<S::Error>> {
    let (retries, older) = match &message.state {
        MessageState::New(_) => (message.retries, None),
        MessageState::Claimed(older) if older.expiry.is_live(now) => {
            return Ok(Err(message.refusal(Reason::MessageHeld)));
        }
        MessageState::Claimed(older) => match message.after_lapse(older) {
            Budget::Again(retries) => (retries, Some(older)),
            Budget::Exhausted => {
                lapse(step, message, older, EventKind::MessageLapsed, now)?;
                return Ok(Err(Refusal::new(Reason::MessageFinished)));
            }
        },
        MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => {
            return Ok(Err(Refusal::new(Reason::MessageFinished)));
        }
    };
    let token = granted!(counter::mint(step)?);
    let expires_at = now.after(ttl);
    let claimed = Claimed {
        process,
        token,
        lease_token,
        since: now,
        expiry: Expiry::At(expires_at),
    };
    let after = Message {
        retries,
        deliveries: message.deliveries.saturating_add(1),
        state: MessageState::Claimed(claimed.clone()),
        ..message.clone()
    };
    step.put(Some(message), &after)?;
    step.append(&Event {
        replaced: older.map(|older| message.replaced(older)),
        ..message.event(&claimed, EventKind::MessageClaimed, retries, now)
    })?;
    Ok(Ok(Granted {
        grant: grant(message, &claimed),
        expires_at,
        renewed: false,
    }))
}

/// Claims up to `limit` messages that are NEW and due, or lapsed, by priority, then age; one token each. A live claim is
/// never returned, the caller's own included. Each grant goes to `sink`; how many there were is returned, 0 when the
/// mailbox holds nothing deliverable.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::ActorLeaseLost`]; with [`Reason::TokenExhausted`] when not even one could be minted.
pub fn claim_next<S: Table<Message> + Table<ActorLease>>(
    step: &mut S,
    ask: &ClaimNext,
    limit: usize,
    now: TimeMs,
    mut sink: impl FnMut(Granted<MessageGrant>),
) -> Result<Decision<usize>, Failure<<S as Transaction>::Error>> {
    granted!(check_lease(step, &ask.owner, ask.process, ask.lease_token, now)?);
    let mut claimed = 0;
    while claimed < limit {
        let batch = step.candidates(
            Query::Deliverable(&ask.owner),
            now,
            (limit - claimed).min(CANDIDATES_MAX),
        )?;
        let mut moved = false;
        for id in &batch {
            let Some(message) = deliverable(step, id, &ask.owner, now)? else {
                continue;
            };
            match take(step, &message, ask.process, ask.lease_token, ask.ttl, now)? {
                Ok(granted) => {
                    claimed += 1;
                    sink(granted);
                }
                Err(refusal) if refusal.reason == Reason::TokenExhausted => {
                    return Ok(if claimed > 0 { Ok(claimed) } else { Err(refusal) });
                }
                // Out of budget: it is DEAD now, and no candidate any more.
                Err(_) => {}
            }
            moved = true;
        }
        if !moved {
            break;
        }
    }
    Ok(Ok(claimed))
}

/// Reads a candidate again: candidates are hints.
fn deliverable<S: Table<Message>>(
    step: &mut S,
    id: &Name,
    owner: &Name,
    now: TimeMs,
) -> Result<Option<Message>, Failure<S::Error>> {
    let message: Option<Message> = step.get(id)?;
    Ok(message.filter(|message| {
        message.recipient == *owner
            && message.not_before.is_none_or(|due| due <= now)
            && match &message.state {
                MessageState::New(_) => true,
                MessageState::Claimed(claimed) => !claimed.expiry.is_live(now),
                MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => false,
            }
    }))
}

/// Moves the expiry of a live claim to `max(old, now + ttl)`; leaves no event.
///
/// # Errors
/// [`Failure`]. Refuses as [`super::complete`] does, and with [`Reason::ClaimLapsed`].
pub fn extend<S: Table<Message> + Table<ActorLease>>(
    step: &mut S,
    presented: &MessageGrant,
    ttl: Ttl,
    now: TimeMs,
) -> Result<Decision<Granted<MessageGrant>>, Failure<<S as Transaction>::Error>> {
    let (message, claimed) = granted!(settle::current(step, presented, now)?);
    if !claimed.expiry.is_live(now) {
        return Ok(Err(message.refusal(Reason::ClaimLapsed)));
    }
    let expires_at = claimed.expiry.renewed(now, ttl);
    let extended = Claimed {
        expiry: Expiry::At(expires_at),
        ..claimed
    };
    step.put(Some(&message), &message.with(MessageState::Claimed(extended)))?;
    Ok(Ok(Granted {
        grant: presented.clone(),
        expires_at,
        renewed: true,
    }))
}

/// Turns a lapsed claim into NEW, recorded as `again`, or into DEAD when its budget is used up. Its token is dead.
pub(super) fn lapse<S: Table<Message>>(
    step: &mut S,
    message: &Message,
    lapsed: &Claimed,
    again: EventKind,
    now: TimeMs,
) -> Result<(), Failure<S::Error>> {
    let (kind, after) = match message.after_lapse(lapsed) {
        Budget::Again(retries) => {
            let open = MessageState::New(Open { last: None });
            (
                again,
                Message {
                    retries,
                    ..message.with(open)
                },
            )
        }
        Budget::Exhausted => {
            let dead = Dead {
                cause: Cause::WorkerLost,
                last: None,
                redriven_as: None,
            };
            (EventKind::MessageDead, message.with(MessageState::Dead(dead)))
        }
    };
    step.put(Some(message), &after)?;
    step.append(&Event {
        retries: Some(after.retries),
        replaced: Some(message.replaced(lapsed)),
        ..Event::new(now, kind, &message.id)
    })
}

/// Sweeps up to `limit` lapsed claims of a recipient, or of all, back to NEW or to DEAD; returns how many. It only
/// tidies: a claim does the same for the message it takes.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn sweep<S: Table<Message>>(
    step: &mut S,
    recipient: Option<&Name>,
    limit: usize,
    now: TimeMs,
) -> Result<Decision<usize>, Failure<S::Error>> {
    let mut swept = 0;
    while swept < limit {
        let batch = step.candidates(
            Query::LapsedMessages(recipient),
            now,
            (limit - swept).min(CANDIDATES_MAX),
        )?;
        let mut moved = false;
        for id in &batch {
            let message: Option<Message> = step.get(id)?;
            if let Some(message) = message
                && let MessageState::Claimed(claimed) = &message.state
                && !claimed.expiry.is_live(now)
            {
                lapse(step, &message, claimed, EventKind::MessageLapsed, now)?;
                swept += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    Ok(Ok(swept))
}
