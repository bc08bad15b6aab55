//! What ends a claim on a message, and the fused form: complete and claim the next ones.

use std::time::Duration;

use keyfence_core::attempt::Done;
use keyfence_core::event::EventKind;
use keyfence_core::mailbox::{self, Act, ClaimNext, Message, MessageGrant, MessageState, Settled};
use keyfence_core::store::{Failure, Table as _};
use keyfence_core::{Decision, TimeMs};
use rusqlite::{OptionalExtension as _, params};

use super::Call;
use super::describe::{Bytes, Describe as _};
use super::mailbox::deliver_next;
use crate::error::{Error, Outcome};
use crate::message::{BatchAndNext, CompletedAndNext, Completion};
use crate::store::check::{Encoder, digest};
use crate::store::step::rows::number_of;
use crate::store::step::{SqliteStep, Texts, failed};

/// Completes a message and keeps its result.
pub(crate) fn complete(
    step: &mut SqliteStep<'_>,
    grant: &MessageGrant,
    result: &[u8],
    now: TimeMs,
) -> Result<Decision<Done>, Failure<Error>> {
    step.with_texts(Texts::resulting(result), |step| {
        mailbox::complete(step, grant, digest(result), now)
    })
}

/// Dead-letters a message and keeps the reason.
pub(crate) fn dead_letter(
    step: &mut SqliteStep<'_>,
    grant: &MessageGrant,
    reason: &str,
    now: TimeMs,
) -> Result<Decision<Done>, Failure<Error>> {
    let decision = step.with_texts(Texts::noted(reason), |step| {
        mailbox::dead_letter(step, grant, digest(reason.as_bytes()), now)
    })?;
    if decision == Ok(Done::Now) {
        step.put_reason(grant.message(), reason)?;
    }
    Ok(decision)
}

fn complete_all(
    step: &mut SqliteStep<'_>,
    completions: &[Completion<'_>],
    now: TimeMs,
) -> Result<Vec<Decision<Done>>, Failure<Error>> {
    completions
        .iter()
        .map(|completion| complete(step, completion.grant, completion.result, now))
        .collect()
}

impl Call<'_> {
    /// Gives the message back unfinished: NEW. It costs no retry while the claim is live.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`mailbox::give_back`] does.
    pub fn mailbox_give_back(&mut self, grant: &MessageGrant) -> Outcome<Settled> {
        self.run("mailbox_give_back", grant, |step, now| {
            mailbox::give_back(step, grant, now)
        })
    }

    /// Asks for another try after a failure, `delay` from now at the earliest: NEW with one retry less, or DEAD when none is
    /// left. `reason` is kept with the message and in its history. The act is recognised when it is repeated with the same
    /// delay and reason.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`mailbox::retry`] does.
    pub fn mailbox_retry(&mut self, grant: &MessageGrant, delay: Option<Duration>, reason: &str) -> Outcome<Settled> {
        self.run("mailbox_retry", (grant, delay, reason), |step, now| {
            let not_before = delay.map(|delay| later(now, delay));
            let act = if retried_otherwise(step, grant, delay)? {
                // Another act: one that the row's last one is not.
                let mut act = Encoder::new();
                (delay, reason).describe(&mut act);
                act.digest()
            } else {
                digest(reason.as_bytes())
            };
            let decision = step.with_texts(Texts::noted(reason), |step| {
                mailbox::retry(step, grant, not_before, act, now)
            })?;
            if matches!(decision, Ok(Settled { done: Done::Now, .. })) {
                step.put_reason(grant.message(), reason)?;
            }
            Ok(decision)
        })
    }

    /// Completes the message: the terminal write. `result` is kept with it.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`mailbox::complete`] does; then nothing is written but the record of the refusal.
    pub fn mailbox_complete(&mut self, grant: &MessageGrant, result: &[u8]) -> Outcome<Done> {
        self.run("mailbox_complete", (grant, Bytes(result)), |step, now| {
            complete(step, grant, result, now)
        })
    }

    /// Completes messages in one transaction, each decided for itself.
    ///
    /// # Errors
    /// [`Error`]: then none of them is completed.
    pub fn mailbox_complete_batch(&mut self, completions: &[Completion<'_>]) -> Outcome<Vec<Decision<Done>>> {
        self.run("mailbox_complete_batch", completions, |step, now| {
            Ok(Ok(complete_all(step, completions, now)?))
        })
    }

    /// Completes the message and claims up to `limit` next ones in one transaction: half the commits of doing so one by
    /// one. When the completion is refused nothing is claimed.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`mailbox::complete`] does.
    pub fn mailbox_complete_and_next(
        &mut self,
        grant: &MessageGrant,
        result: &[u8],
        ask: &ClaimNext,
        limit: usize,
    ) -> Outcome<CompletedAndNext> {
        let asked = (grant, Bytes(result), ask, limit as u64);
        self.run("mailbox_complete_and_next", asked, |step, now| {
            let done = match complete(step, grant, result, now)? {
                Ok(done) => done,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let next = deliver_next(step, ask, limit, now)?;
            Ok(Ok(CompletedAndNext { done, next }))
        })
    }

    /// Completes messages, each decided for itself, and claims up to `limit` next ones in one transaction.
    ///
    /// # Errors
    /// [`Error`]: then none is completed and none claimed.
    pub fn mailbox_complete_batch_and_next(
        &mut self,
        completions: &[Completion<'_>],
        ask: &ClaimNext,
        limit: usize,
    ) -> Outcome<BatchAndNext> {
        let asked = (completions, ask, limit as u64);
        self.run("mailbox_complete_batch_and_next", asked, |step, now| {
            let done = complete_all(step, completions, now)?;
            let next = deliver_next(step, ask, limit, now)?;
            Ok(Ok(BatchAndNext { done, next }))
        })
    }

    /// Dead-letters the message: a terminal write. `reason` is kept with the message and in its history.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`mailbox::dead_letter`] does.
    pub fn mailbox_dead_letter(&mut self, grant: &MessageGrant, reason: &str) -> Outcome<Done> {
        self.run("mailbox_dead_letter", (grant, reason), |step, now| {
            dead_letter(step, grant, reason, now)
        })
    }
}

/// Whether this grant has made the message NEW with another delay than this one: that was another retry. The row has the
/// moment it led to; when it was made is in the history, not far back where an answer was lost and is asked for again.
fn retried_otherwise(
    step: &mut SqliteStep<'_>,
    grant: &MessageGrant,
    delay: Option<Duration>,
) -> Result<bool, Failure<Error>> {
    let message: Option<Message> = step.get(grant.message())?;
    let Some(message) = message else {
        return Ok(false);
    };
    let last = match &message.state {
        MessageState::New(open) => open.last.as_ref(),
        MessageState::Claimed(_) | MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => None,
    };
    if !last.is_some_and(|last| last.act == Act::Retried && last.token == grant.token()) {
        return Ok(false);
    }
    let (Some(delay), Some(due)) = (delay, message.not_before) else {
        return Ok(delay.is_some() != message.not_before.is_some());
    };
    let at: Option<i64> = step
        .connection()
        .prepare_cached(
            "SELECT at_ms FROM keyfence_event WHERE kind = ?1 AND subject = ?2 AND token = ?3 ORDER BY seq DESC LIMIT 1",
        )
        .and_then(|mut event| {
            let kind = EventKind::MessageRetried.name();
            event
                .query_row(params![kind, grant.message().as_str(), number_of(grant.token().get())], |row| row.get(0))
                .optional()
        })
        .map_err(failed)?;
    // Where that event was pruned, nobody can tell one delay from another any more.
    let at = at.and_then(|at| TimeMs::new(at.cast_unsigned()));
    Ok(at.is_some_and(|at| later(at, delay) != due))
}

/// The moment `delay` later, or the last one that can be written down.
fn later(now: TimeMs, delay: Duration) -> TimeMs {
    u64::try_from(delay.as_millis())
        .ok()
        .and_then(|delay| now.as_ms().checked_add(delay))
        .and_then(TimeMs::new)
        .unwrap_or(TimeMs::MAX)
}
