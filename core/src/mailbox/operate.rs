//! Sending, and the operator's acts: dead-letter a message that nobody works on, redrive a DEAD one, revoke a claim.

use super::deliver;
use super::message::{Budget, Cause, Dead, Last, Message, MessageState, Open, Priority};
use crate::attempt::Done;
use crate::event::{Event, EventKind};
use crate::lease::Revoked;
use crate::name::{Digest, Name};
use crate::refusal::{Decision, Holder, Reason, Refusal, granted};
use crate::store::{Failure, Table};
use crate::time::TimeMs;

/// Asks for a message to be sent.
#[derive(Clone, Debug)]
pub struct Send {
    /// Its id: the same id with the same content is one message.
    pub id: Name,
    /// Who sends it, for the history.
    pub sender: Option<Name>,
    /// Who may claim it.
    pub recipient: Name,
    /// A digest over everything the sender chose: sender, recipient, subject, body, priority, delay, budget.
    pub content: Digest,
    /// How urgent it is.
    pub priority: Priority,
    /// Before which moment it is not delivered.
    pub not_before: Option<TimeMs>,
    /// How many retries it has.
    pub retries_max: u16,
}

/// Asks for a DEAD message to be sent once more.
#[derive(Clone, Debug)]
pub struct Redrive {
    /// The DEAD message.
    pub dead: Name,
    /// The id of the new one.
    pub id: Name,
}

/// Sends a message; the same one again is recognised.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::MessageExists`], [`Reason::MessageFinished`] (an id that was pruned) or [`Reason::Full`].
pub fn send<S: Table<Message>>(step: &mut S, ask: &Send, now: TimeMs) -> Result<Decision<Done>, Failure<S::Error>> {
    let existing: Option<Message> = step.get(&ask.id)?;
    if let Some(existing) = existing {
        return Ok(if existing.state == MessageState::Pruned {
            Err(Refusal::new(Reason::MessageFinished))
        } else if existing.content == ask.content {
            Ok(Done::Already)
        } else {
            Err(Refusal::new(Reason::MessageExists))
        });
    }
    granted!(step.room_for(&ask.id)?);
    let message = Message {
        id: ask.id.clone(),
        recipient: ask.recipient.clone(),
        content: ask.content,
        priority: ask.priority,
        not_before: ask.not_before,
        retries: 0,
        retries_max: ask.retries_max,
        deliveries: 0,
        redrive_of: None,
        state: MessageState::New(Open { last: None }),
    };
    step.put(None, &message)?;
    step.append(&Event {
        holder: ask.sender.clone().map(|name| Holder { name, process: None }),
        retries: Some(0),
        ..Event::new(now, EventKind::MessageSent, &ask.id)
    })?;
    Ok(Ok(Done::Now))
}

/// Dead-letters a message that nobody works on, by an operator's act: a NEW one, or one whose claim has lapsed. The lapse
/// is written first, as any look would write it; when it leaves no budget the message is DEAD for that, and this act
/// finds it finished.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::MessageMissing`], [`Reason::MessageHeld`] (revoke the claim first) or
/// [`Reason::MessageFinished`].
pub fn dead_letter_new<S: Table<Message>>(
    step: &mut S,
    message: &Name,
    now: TimeMs,
) -> Result<Decision<Done>, Failure<S::Error>> {
    let Some(before): Option<Message> = step.get(message)? else {
        return Ok(Err(Refusal::new(Reason::MessageMissing)));
    };
    match &before.state {
        MessageState::New(open) => park(step, &before, before.retries, open.last.clone(), now),
        MessageState::Claimed(claimed) if claimed.expiry.is_live(now) => Ok(Err(before.refusal(Reason::MessageHeld))),
        MessageState::Claimed(lapsed) => match before.after_lapse(lapsed) {
            Budget::Again(retries) => {
                step.append(&Event {
                    retries: Some(retries),
                    replaced: Some(before.replaced(lapsed)),
                    ..Event::new(now, EventKind::MessageLapsed, message)
                })?;
                park(step, &before, retries, None, now)
            }
            Budget::Exhausted => {
                deliver::lapse(step, &before, lapsed, EventKind::MessageLapsed, now)?;
                Ok(Err(Refusal::new(Reason::MessageFinished)))
            }
        },
        MessageState::Dead(dead) if dead.cause == Cause::Operator => Ok(Ok(Done::Already)),
        MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => {
            Ok(Err(Refusal::new(Reason::MessageFinished)))
        }
    }
}

/// Parks a message that nobody owns any more as DEAD.
fn park<S: Table<Message>>(
    step: &mut S,
    before: &Message,
    retries: u16,
    last: Option<Last>,
    now: TimeMs,
) -> Result<Decision<Done>, Failure<S::Error>> {
    let dead = Dead {
        cause: Cause::Operator,
        last,
        redriven_as: None,
    };
    let after = Message {
        retries,
        ..before.with(MessageState::Dead(dead))
    };
    step.put(Some(before), &after)?;
    step.append(&Event {
        retries: Some(retries),
        ..Event::new(now, EventKind::MessageDead, &before.id)
    })?;
    Ok(Ok(Done::Now))
}

/// Makes a new message from a DEAD one, once, by an operator's act. Returns the new message's id and whether it was made
/// now; the store copies subject and body in the same step.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::MessageMissing`], [`Reason::MessageNotDead`], [`Reason::MessageFinished`] (pruned),
/// [`Reason::MessageExists`] (the new id is taken) or [`Reason::Full`].
pub fn redrive<S: Table<Message>>(
    step: &mut S,
    ask: &Redrive,
    now: TimeMs,
) -> Result<Decision<(Name, Done)>, Failure<S::Error>> {
    let Some(before): Option<Message> = step.get(&ask.dead)? else {
        return Ok(Err(Refusal::new(Reason::MessageMissing)));
    };
    let dead = match &before.state {
        MessageState::Dead(dead) => dead,
        MessageState::Pruned => return Ok(Err(Refusal::new(Reason::MessageFinished))),
        MessageState::New(_) | MessageState::Claimed(_) | MessageState::Done(_) => {
            return Ok(Err(before.refusal(Reason::MessageNotDead)));
        }
    };
    if let Some(id) = &dead.redriven_as {
        return Ok(Ok((id.clone(), Done::Already)));
    }
    let taken: Option<Message> = step.get(&ask.id)?;
    if taken.is_some() {
        return Ok(Err(Refusal::new(Reason::MessageExists)));
    }
    granted!(step.room_for(&ask.id)?);
    let message = Message {
        id: ask.id.clone(),
        not_before: None,
        retries: 0,
        deliveries: 0,
        redrive_of: Some(ask.dead.clone()),
        state: MessageState::New(Open { last: None }),
        ..before.clone()
    };
    step.put(None, &message)?;
    let dead = Dead {
        redriven_as: Some(ask.id.clone()),
        ..dead.clone()
    };
    step.put(Some(&before), &before.with(MessageState::Dead(dead)))?;
    step.append(&Event {
        retries: Some(0),
        refers_to: Some(ask.dead.clone()),
        ..Event::new(now, EventKind::MessageRedriven, &ask.id)
    })?;
    Ok(Ok((ask.id.clone(), Done::Now)))
}

/// Clears a claim by an operator's act: NEW; the claim's token is dead. A live claim costs the budget nothing; one that had
/// lapsed already costs what a lapse costs, and without budget the message is DEAD.
///
/// # Errors
/// [`Failure`]. Never refuses: of a message that is not there nothing was claimed.
pub fn revoke<S: Table<Message>>(
    step: &mut S,
    message: &Name,
    now: TimeMs,
) -> Result<Decision<Revoked>, Failure<S::Error>> {
    let before: Option<Message> = step.get(message)?;
    let Some(before) = before else {
        return Ok(Ok(Revoked::Nothing));
    };
    let MessageState::Claimed(claimed) = &before.state else {
        return Ok(Ok(Revoked::Nothing));
    };
    if claimed.expiry.is_live(now) {
        step.put(Some(&before), &before.with(MessageState::New(Open { last: None })))?;
        step.append(&Event {
            retries: Some(before.retries),
            replaced: Some(before.replaced(claimed)),
            ..Event::new(now, EventKind::MessageRevoked, message)
        })?;
    } else {
        deliver::lapse(step, &before, claimed, EventKind::MessageRevoked, now)?;
    }
    Ok(Ok(Revoked::Claim(before.holder(claimed.process), claimed.token)))
}
