//! The job as an assignment.

use keyfence_core::attempt::{self, AttemptGrant, CloseLost, Outcome};
use keyfence_core::{AttemptId, Digest};

use super::{Broken, Of, Presented, Tell, World, job, presented, under};

impl World {
    pub(super) fn attempt(&mut self, lease: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let lease = self.leases[lease].clone();
        let ask = attempt::Acquire {
            assignment: job(),
            actor: lease.name().clone(),
            process: lease.process(),
            lease_token: lease.token(),
            // The worst id there can be: all attempts of a process share it, so that only the token tells them apart.
            attempt: AttemptId::from_bytes(*lease.process().as_bytes()),
            ttl: self.claim_ttl,
        };
        let answered = self.step(&under(Some(lease.token())), |step, now| {
            attempt::acquire(step, &ask, now)
        })?;
        let (effect, grant) = self.claimed(Of::Assignment, &job(), answered, AttemptGrant::token, tell)?;
        self.attempts.extend(grant.map(|grant| (grant, lease.token())));
        Ok(effect)
    }

    pub(super) fn renew_attempt(&mut self, grant: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let ((grant, parent), ttl) = (self.attempts[grant].clone(), self.claim_ttl);
        let answered = self.step(&presented(grant.token(), Some(parent)), |step, now| {
            attempt::renew(step, &grant, ttl, now)
        })?;
        Ok(self
            .claimed(Of::Assignment, &job(), answered, AttemptGrant::token, tell)?
            .0)
    }

    pub(super) fn release_attempt(&mut self, grant: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let (grant, parent) = self.attempts[grant].clone();
        let answered = self.step(&presented(grant.token(), Some(parent)), |step, now| {
            attempt::release(step, &grant, now)
        })?;
        self.released(Of::Assignment, &job(), grant.token(), answered, tell)
    }

    pub(super) fn finish(&mut self, grant: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let (grant, parent) = self.attempts[grant].clone();
        let answered = self.step(&presented(grant.token(), Some(parent)), |step, now| {
            attempt::finish(step, &grant, Outcome::Completed, Digest::NONE, now)
        })?;
        self.ended(Of::Assignment, &job(), grant.token(), "finish", answered, tell)
    }

    pub(super) fn close_lost(&mut self, tell: Tell<'_>) -> Result<bool, Broken> {
        let (decision, events) = self.step(&Presented::default(), |step, now| {
            attempt::close_lost(step, &job(), now)
        })?;
        match decision {
            Ok(CloseLost::Closed) => tell(format_args!("the job FAILED, worker lost")),
            Ok(CloseLost::Live) => tell(format_args!("the attempt is live")),
            Ok(CloseLost::NotRunning) => tell(format_args!("nobody works on it")),
            Err(refusal) => tell(format_args!("refused: {refusal}")),
        }
        Ok(!events.is_empty())
    }
}
