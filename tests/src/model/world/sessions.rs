//! The job as a session, and the hosts that hold it.

use keyfence_core::Digest;
use keyfence_core::host::{self, HostGrant, Proof};
use keyfence_core::session::{self, ClaimSession, SessionGrant};

use super::{Broken, Of, Presented, Tell, World, host_name, job, presented, process, under};

impl World {
    pub(super) fn register(&mut self, contender: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let ask = host::Register {
            host: host_name(contender),
            process: process(contender),
            proof: Proof::Process,
            ttl: self.lease_ttl,
        };
        let answered = self.step(&Presented::default(), |step, now| host::register(step, &ask, now))?;
        let (effect, grant) = self.claimed(Of::Host, &ask.host, answered, HostGrant::token, tell)?;
        self.hosts.extend(grant);
        Ok(effect)
    }

    pub(super) fn renew_host(&mut self, grant: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let (grant, ttl) = (self.hosts[grant].clone(), self.lease_ttl);
        let answered = self.step(&presented(grant.token(), None), |step, now| {
            host::renew(step, &grant, ttl, now)
        })?;
        Ok(self
            .claimed(Of::Host, grant.name(), answered, HostGrant::token, tell)?
            .0)
    }

    pub(super) fn release_host(&mut self, grant: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let grant = self.hosts[grant].clone();
        let answered = self.step(&presented(grant.token(), None), |step, now| {
            host::release(step, &grant, now)
        })?;
        self.released(Of::Host, grant.name(), grant.token(), answered, tell)
    }

    pub(super) fn hold(&mut self, host: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let ask = ClaimSession {
            session: job(),
            host: self.hosts[host].clone(),
            ttl: self.claim_ttl,
        };
        let answered = self.step(&under(Some(ask.host.token())), |step, now| {
            session::claim(step, &ask, now)
        })?;
        let (effect, grant) = self.claimed(Of::Session, &job(), answered, SessionGrant::token, tell)?;
        self.sessions.extend(grant);
        Ok(effect)
    }

    pub(super) fn release_session(&mut self, grant: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let grant = self.sessions[grant].clone();
        let answered = self.step(&of_session(&grant), |step, now| session::release(step, &grant, now))?;
        self.released(Of::Session, &job(), grant.token(), answered, tell)
    }

    pub(super) fn finish_session(&mut self, grant: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let grant = self.sessions[grant].clone();
        let answered = self.step(&of_session(&grant), |step, now| {
            session::finish(step, &grant, Digest::NONE, now)
        })?;
        self.ended(Of::Session, &job(), grant.token(), "finish", answered, tell)
    }
}

fn of_session(grant: &SessionGrant) -> Presented {
    Presented {
        generation: Some(grant.generation().clone()),
        ..presented(grant.token(), Some(grant.generation().host_token))
    }
}
