//! Sending, claiming and listing messages.

use keyfence_core::attempt::Done;
use keyfence_core::lease::Granted;
use keyfence_core::mailbox::{self, Claim, ClaimNext, MessageGrant};
use keyfence_core::store::Failure;
use keyfence_core::{Decision, Name, TimeMs, Ttl};

use super::Call;
use crate::error::{Error, Outcome};
use crate::message::{Delivery, NewMessage};
use crate::store::step::SqliteStep;
use crate::store::step::texts::{Content, content};
use crate::view::{MessageView, Page, open_messages};

/// How many lapsed claims one look at an inbox sweeps at most.
const SWEPT_AT_ONCE: usize = 1_000;

/// Sends a message and keeps its texts.
pub(crate) fn send(
    step: &mut SqliteStep<'_>,
    message: &NewMessage,
    now: TimeMs,
) -> Result<Decision<Done>, Failure<Error>> {
    let ask = mailbox::Send {
        id: message.id.clone(),
        sender: message.sender.clone(),
        recipient: message.recipient.clone(),
        content: content(&Content {
            sender: message.sender.as_ref(),
            recipient: &message.recipient,
            subject: &message.subject,
            body: &message.body,
            priority: message.priority,
            not_before: message.not_before,
            retries_max: message.retries_max,
        }),
        priority: message.priority,
        not_before: message.not_before,
        retries_max: message.retries_max,
    };
    let decision = mailbox::send(step, &ask, now)?;
    if decision == Ok(Done::Now) {
        step.put_body(message)?;
    }
    Ok(decision)
}

/// Claims a message and reads its texts.
pub(crate) fn deliver(
    step: &mut SqliteStep<'_>,
    ask: &Claim,
    now: TimeMs,
) -> Result<Decision<Delivery>, Failure<Error>> {
    match mailbox::claim(step, ask, now)? {
        Ok(granted) => Ok(Ok(step.delivery(granted)?)),
        Err(refusal) => Ok(Err(refusal)),
    }
}

/// Claims the next messages and reads their texts.
pub(crate) fn deliver_next(
    step: &mut SqliteStep<'_>,
    ask: &ClaimNext,
    limit: usize,
    now: TimeMs,
) -> Result<Decision<Vec<Delivery>>, Failure<Error>> {
    let mut claimed = Vec::new();
    if let Err(refusal) = mailbox::claim_next(step, ask, limit, now, |granted| claimed.push(granted))? {
        return Ok(Err(refusal));
    }
    let deliveries: Result<Vec<Delivery>, _> = claimed.into_iter().map(|granted| step.delivery(granted)).collect();
    Ok(Ok(deliveries?))
}

impl Call<'_> {
    /// Sends a message; the same one again is recognised.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`mailbox::send`] does.
    pub fn mailbox_send(&mut self, message: &NewMessage) -> Outcome<Done> {
        message.check_size()?;
        self.run("mailbox_send", message, |step, now| send(step, message, now))
    }

    /// Sends messages in one transaction, each decided for itself.
    ///
    /// # Errors
    /// [`Error`]: then none of them is sent.
    pub fn mailbox_send_batch(&mut self, messages: &[NewMessage]) -> Outcome<Vec<Decision<Done>>> {
        messages.iter().try_for_each(NewMessage::check_size)?;
        self.run("mailbox_send_batch", messages, |step, now| {
            let decisions: Result<Vec<_>, _> = messages.iter().map(|message| send(step, message, now)).collect();
            Ok(Ok(decisions?))
        })
    }

    /// Claims a message by its id. The same process asking again inside its live claim gets the same token and expiry.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`mailbox::claim`] does.
    pub fn mailbox_claim(&mut self, ask: &Claim) -> Outcome<Delivery> {
        self.run("mailbox_claim", ask, |step, now| deliver(step, ask, now))
    }

    /// Claims up to `limit` messages that are NEW and due, or lapsed, by priority, then age; empty when there are none. A
    /// live claim is never returned, the caller's own included: a lost answer is recovered by its request id.
    ///
    /// To ask again and again is cheap: after an empty answer the handle looks without a write transaction whether there is
    /// anything now, unless the call has a request id or names a lease.
    ///
    /// # Errors
    /// [`Error`]. [`Error::Damaged`] names the row when one that is next in line is not as it was written: then nothing is
    /// claimed, by anyone, until somebody looked. Behind damage nobody knows what is next; other messages can be claimed by
    /// their ids meanwhile. Refuses as [`mailbox::claim_next`] does.
    pub fn mailbox_claim_next(&mut self, ask: &ClaimNext, limit: usize) -> Outcome<Vec<Delivery>> {
        if self.request.is_none() && ask.lease_token.is_none() && self.ledger.is_still_dry(&ask.owner)? {
            self.replayed = false;
            return Ok(Ok(Vec::new()));
        }
        let answer = self.run("mailbox_claim_next", (ask, limit as u64), |step, now| {
            deliver_next(step, ask, limit, now)
        })?;
        self.ledger.ran_dry(answer.as_ref().is_ok_and(Vec::is_empty));
        Ok(answer)
    }

    /// Moves the expiry of a live claim to `max(old, now + ttl)`; leaves no event.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`mailbox::extend`] does.
    pub fn mailbox_extend(&mut self, grant: &MessageGrant, ttl: Ttl) -> Outcome<Granted<MessageGrant>> {
        self.run("mailbox_extend", (grant, ttl), |step, now| {
            mailbox::extend(step, grant, ttl, now)
        })
    }

    /// Sweeps up to 1,000 lapsed claims of the recipient to NEW or DEAD, and lists a page of what is NEW or CLAIMED then, by
    /// age. Never a replay.
    ///
    /// # Errors
    /// [`Error`]. Never refuses.
    pub fn mailbox_inbox(&mut self, recipient: &Name, page: Page) -> Outcome<Vec<MessageView>> {
        self.step(|step, now| {
            if let Err(refusal) = mailbox::sweep(step, Some(recipient), SWEPT_AT_ONCE, now)? {
                return Ok(Err(refusal));
            }
            Ok(Ok(
                open_messages(step.connection(), recipient, page).map_err(Failure::Store)?
            ))
        })
    }
}
