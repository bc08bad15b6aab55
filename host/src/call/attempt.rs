//! Assignments and their attempts.

use keyfence_core::attempt::{self, AttemptGrant, CloseLost, Done};
use keyfence_core::lease::{Granted, Released};
use keyfence_core::store::Failure;
use keyfence_core::{Decision, Name, TimeMs, Ttl};

use super::Call;
use super::describe::Bytes;
use crate::error::{Error, Outcome};
use crate::store::check::digest;
use crate::store::step::{SqliteStep, Texts};

/// Finishes an assignment and keeps the result in its row.
pub(crate) fn finish(
    step: &mut SqliteStep<'_>,
    grant: &AttemptGrant,
    outcome: attempt::Outcome,
    result: &[u8],
    now: TimeMs,
) -> Result<Decision<Done>, Failure<Error>> {
    step.with_texts(Texts::resulting(result), |step| {
        attempt::finish(step, grant, outcome, digest(result), now)
    })
}

impl Call<'_> {
    /// Creates an assignment; the same one again is recognised.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`attempt::create`] does.
    pub fn assignment_create(&mut self, ask: &attempt::Create) -> Outcome<Done> {
        self.run("assignment_create", ask, |step, now| attempt::create(step, ask, now))
    }

    /// Acquires an attempt, strictly. An older attempt that is no longer live is replaced.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`attempt::acquire`] does.
    pub fn attempt_acquire(&mut self, ask: &attempt::Acquire) -> Outcome<Granted<AttemptGrant>> {
        self.run("attempt_acquire", ask, |step, now| attempt::acquire(step, ask, now))
    }

    /// Moves the expiry of a live attempt under a live lease to `max(old, now + ttl)`; leaves no event.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`attempt::renew`] does.
    pub fn attempt_renew(&mut self, grant: &AttemptGrant, ttl: Ttl) -> Outcome<Granted<AttemptGrant>> {
        self.run("attempt_renew", (grant, ttl), |step, now| {
            attempt::renew(step, grant, ttl, now)
        })
    }

    /// Gives the assignment back to CREATED. A stale grant changes nothing and is told so.
    ///
    /// # Errors
    /// [`Error`]. Never refuses.
    pub fn attempt_release(&mut self, grant: &AttemptGrant) -> Outcome<Released> {
        self.run("attempt_release", grant, |step, now| attempt::release(step, grant, now))
    }

    /// Finishes the assignment: the terminal write. `result` is kept with it.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`attempt::finish`] does; then nothing of the result is written.
    pub fn attempt_finish(&mut self, grant: &AttemptGrant, outcome: attempt::Outcome, result: &[u8]) -> Outcome<Done> {
        self.run("attempt_finish", (grant, outcome, Bytes(result)), |step, now| {
            finish(step, grant, outcome, result, now)
        })
    }

    /// Closes the assignment as FAILED `worker_lost` if its attempt is not live: the supervisor's call.
    ///
    /// # Errors
    /// [`Error`]. Never refuses.
    pub fn attempt_close_lost(&mut self, assignment: &Name) -> Outcome<CloseLost> {
        self.run("attempt_close_lost", assignment, |step, now| {
            attempt::close_lost(step, assignment, now)
        })
    }
}
