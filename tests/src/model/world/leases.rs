//! The actor's lease.

use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::lease::Granted;

use super::{Answered, Broken, Of, Presented, Tell, World, actor_name, presented, process};

impl World {
    pub(super) fn acquire(&mut self, contender: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let ask = self.ask(contender);
        let answered = self.step(&Presented::default(), |step, now| actor::acquire(step, &ask, now))?;
        self.leased(answered, tell)
    }

    pub(super) fn acquire_or_renew(&mut self, contender: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let ask = self.ask(contender);
        let answered = self.step(&Presented::default(), |step, now| {
            actor::acquire_or_renew(step, &ask, now)
        })?;
        self.leased(answered, tell)
    }

    fn ask(&self, contender: usize) -> actor::Acquire {
        actor::Acquire {
            actor: actor_name(),
            process: process(contender),
            ttl: self.lease_ttl,
        }
    }

    fn leased(&mut self, answered: Answered<Granted<ActorGrant>>, tell: Tell<'_>) -> Result<bool, Broken> {
        let (effect, grant) = self.claimed(Of::Actor, &actor_name(), answered, ActorGrant::token, tell)?;
        self.leases.extend(grant);
        Ok(effect)
    }

    pub(super) fn renew_lease(&mut self, grant: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let (grant, ttl) = (self.leases[grant].clone(), self.lease_ttl);
        let answered = self.step(&presented(grant.token(), None), |step, now| {
            actor::renew(step, &grant, ttl, now)
        })?;
        self.leased(answered, tell)
    }

    pub(super) fn release_lease(&mut self, grant: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let grant = self.leases[grant].clone();
        let answered = self.step(&presented(grant.token(), None), |step, now| {
            actor::release(step, &grant, now)
        })?;
        self.released(Of::Actor, grant.name(), grant.token(), answered, tell)
    }
}
