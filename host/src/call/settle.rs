//! What ends a claim on a message, and the fused form: complete and claim the next ones.

use std::time::Duration;

use keyfence_core::attempt::Done;
use keyfence_core::mailbox::{self, ClaimNext, MessageGrant, Settled};
use keyfence_core::store::Failure;
use keyfence_core::{Decision, Digest, TimeMs};

use super::Call;
use super::describe::{Bytes, Describe as _};
use super::mailbox::deliver_next;
use crate::error::{Error, Outcome};
use crate::message::{BatchAndNext, CompletedAndNext, Completion};
use crate::store::check::{Encoder, digest};
use crate::store::step::{SqliteStep, Texts};

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
            let decision = step.with_texts(Texts::noted(reason), |step| {
                mailbox::retry(step, grant, not_before, retried(delay, reason), now)
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

/// What a retry is recognised by. The delay counts and not the moment that it led to: that is another one each time.
fn retried(delay: Option<Duration>, reason: &str) -> Digest {
    match delay {
        None => digest(reason.as_bytes()),
        Some(_) => {
            let mut act = Encoder::new();
            (delay, reason).describe(&mut act);
            act.digest()
        }
    }
}

/// The moment `delay` later, or the last one that can be written down.
fn later(now: TimeMs, delay: Duration) -> TimeMs {
    u64::try_from(delay.as_millis())
        .ok()
        .and_then(|delay| now.as_ms().checked_add(delay))
        .and_then(TimeMs::new)
        .unwrap_or(TimeMs::MAX)
}
