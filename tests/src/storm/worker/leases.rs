//! The half of a worker's acts that need a lease: assignments under an actor's, sessions under a host's; and the operator's.

use keyfence_core::attempt::{self, AttemptGrant, Done};
use keyfence_core::event::EventKind;
use keyfence_core::gate::ClaimKind;
use keyfence_core::lease::Released;
use keyfence_core::session::SessionGrant;
use keyfence_core::{AttemptId, Name, actor, host, session};

use super::{OLD_MAX, Worker};
use crate::storm::plan;

impl Worker {
    pub(in crate::storm) fn lease(&mut self, actor: Name) -> anyhow::Result<Option<actor::ActorGrant>> {
        let ask = actor::Acquire {
            actor,
            process: self.process,
            ttl: self.ttl(),
        };
        let acquired = self.ledger.call().actor_acquire_or_renew(&ask);
        let Some(granted) = self.answer("actor_acquire", acquired)? else {
            return Ok(None);
        };
        let grant = granted.grant;
        self.journal
            .told(EventKind::ActorAcquired, grant.name(), grant.token())?;
        Ok(Some(grant))
    }

    fn release(&mut self, lease: &actor::ActorGrant) -> anyhow::Result<()> {
        let released = self.ledger.call().actor_release(lease);
        if let Some(Released::Now | Released::Already) = self.answer("actor_release", released)? {
            self.journal
                .told(EventKind::ActorReleased, lease.name(), lease.token())?;
        }
        Ok(())
    }

    pub(in crate::storm) fn attempt(&mut self, lease: &actor::ActorGrant) -> anyhow::Result<Option<AttemptGrant>> {
        let target = plan::target(self.random.u64(..));
        let assignment = plan::name(&format!("a-{}-{target}", lease.name()));
        let create = attempt::Create {
            id: assignment.clone(),
            actor: lease.name().clone(),
            retry_of: None,
        };
        let created = self.ledger.call().assignment_create(&create);
        self.answer("assignment_create", created)?;
        let ask = attempt::Acquire {
            assignment,
            actor: lease.name().clone(),
            process: lease.process(),
            lease_token: lease.token(),
            attempt: AttemptId::from_bytes(*uuid::Uuid::new_v4().as_bytes()),
            ttl: self.ttl(),
        };
        let acquired = self.ledger.call().attempt_acquire(&ask);
        let Some(granted) = self.answer("attempt_acquire", acquired)? else {
            return Ok(None);
        };
        let grant = granted.grant;
        self.journal
            .told(EventKind::AttemptAcquired, grant.assignment(), grant.token())?;
        if self.attempts.len() == OLD_MAX {
            self.attempts.pop_front();
        }
        self.attempts.push_back(grant.clone());
        Ok(Some(grant))
    }

    /// A captain's lease, an assignment and a message under it.
    pub(super) fn assignment(&mut self) -> anyhow::Result<()> {
        let captain = plan::captain(self.random.u64(0..plan::CAPTAINS));
        let Some(lease) = self.lease(captain.clone())? else {
            return Ok(());
        };
        let attempt = self.attempt(&lease)?;
        let ask = self.next_of(captain, Some(&lease));
        let claimed = self.ledger.call().mailbox_claim_next(&ask, 2);
        if let Some(deliveries) = self.answer("claim_next", claimed)? {
            self.remember(&deliveries)?;
            for delivery in &deliveries {
                self.settle(&delivery.granted.grant)?;
            }
        }
        if let Some(attempt) = attempt {
            match self.random.u32(0..40) {
                0 => self.stall(),
                1..3 => return Ok(()), // Walks away.
                3..10 => {
                    let renewed = self.ledger.call().actor_renew(&lease, self.ttl());
                    self.answer("actor_renew", renewed)?;
                    let renewed = self.ledger.call().attempt_renew(&attempt, self.ttl());
                    self.answer("attempt_renew", renewed)?;
                }
                10..18 => {
                    let released = self.ledger.call().attempt_release(&attempt);
                    if let Some(Released::Now | Released::Already) = self.answer("attempt_release", released)? {
                        self.journal
                            .told(EventKind::AttemptReleased, attempt.assignment(), attempt.token())?;
                    }
                }
                18..22 => self.release(&lease)?, // Too early: the finish has to be refused.
                _ => {}
            }
            self.finish_attempt(&attempt)?;
        }
        self.release(&lease)
    }

    pub(super) fn finish_attempt(&mut self, grant: &AttemptGrant) -> anyhow::Result<()> {
        let (outcome, kind) = match self.random.u8(0..4) {
            0 => (attempt::Outcome::Blocked, EventKind::AttemptBlocked),
            1 => (attempt::Outcome::Failed, EventKind::AttemptFailed),
            _ => (attempt::Outcome::Completed, EventKind::AttemptCompleted),
        };
        let finished = self.ledger.call().attempt_finish(grant, outcome, b"result");
        if let Some(Done::Now | Done::Already) = self.answer("attempt_finish", finished)? {
            self.journal.told(kind, grant.assignment(), grant.token())?;
        }
        Ok(())
    }

    pub(in crate::storm) fn host(&mut self) -> anyhow::Result<Option<host::HostGrant>> {
        let ask = host::Register {
            host: plan::host(self.random.u64(0..plan::HOSTS)),
            process: self.process,
            proof: host::Proof::Process,
            ttl: self.ttl(),
        };
        let registered = self.ledger.call().host_register(&ask);
        let Some(granted) = self.answer("host_register", registered)? else {
            return Ok(None);
        };
        let grant = granted.grant;
        self.journal
            .told(EventKind::HostRegistered, grant.name(), grant.token())?;
        Ok(Some(grant))
    }

    pub(in crate::storm) fn session_name(&mut self) -> Name {
        plan::name(&format!("s-{}", plan::target(self.random.u64(..))))
    }

    pub(in crate::storm) fn claim_session(&mut self, host: &host::HostGrant) -> anyhow::Result<Option<SessionGrant>> {
        let ask = session::ClaimSession {
            session: self.session_name(),
            host: host.clone(),
            ttl: self.ttl(),
        };
        let claimed = self.ledger.call().session_claim(&ask);
        let Some(granted) = self.answer("session_claim", claimed)? else {
            return Ok(None);
        };
        let grant = granted.grant;
        self.journal
            .told(EventKind::SessionClaimed, grant.session(), grant.token())?;
        if self.sessions.len() == OLD_MAX {
            self.sessions.pop_front();
        }
        self.sessions.push_back(grant.clone());
        Ok(Some(grant))
    }

    pub(super) fn session(&mut self) -> anyhow::Result<()> {
        let Some(host) = self.host()? else { return Ok(()) };
        let Some(grant) = self.claim_session(&host)? else {
            return Ok(());
        };
        match self.random.u32(0..40) {
            0 => self.stall(),
            1..12 => return Ok(()), // Walks away: another host takes it over.
            12..20 => {
                let released = self.ledger.call().session_release(&grant);
                if let Some(Released::Now | Released::Already) = self.answer("session_release", released)? {
                    self.journal
                        .told(EventKind::SessionReleased, grant.session(), grant.token())?;
                }
            }
            20..22 => self.release_host(&host)?, // Too early: the finish has to be refused.
            22..26 => {
                let renewed = self.ledger.call().host_renew(&host, self.ttl());
                self.answer("host_renew", renewed)?;
            }
            _ => {}
        }
        self.finish_session(&grant)?;
        if self.random.bool() {
            self.release_host(&host)
        } else {
            Ok(())
        }
    }

    fn release_host(&mut self, host: &host::HostGrant) -> anyhow::Result<()> {
        let released = self.ledger.call().host_release(host);
        if let Some(Released::Now | Released::Already) = self.answer("host_release", released)? {
            self.journal.told(EventKind::HostReleased, host.name(), host.token())?;
        }
        Ok(())
    }

    pub(super) fn finish_session(&mut self, grant: &SessionGrant) -> anyhow::Result<()> {
        let finished = self.ledger.call().session_finish(grant, b"result");
        if let Some(Done::Now | Done::Already) = self.answer("session_finish", finished)? {
            self.journal
                .told(EventKind::SessionFinished, grant.session(), grant.token())?;
        }
        Ok(())
    }

    /// An operator's act, or a token for something else.
    pub(super) fn operate(&mut self) -> anyhow::Result<()> {
        let index = self.random.u64(0..self.orders.messages);
        let (kind, name) = match self.random.u32(0..8) {
            0 => (ClaimKind::Actor, plan::captain(index)),
            1 => (ClaimKind::Host, plan::host(index)),
            2 => (ClaimKind::Session, self.session_name()),
            3 => (
                ClaimKind::Attempt,
                plan::name(&format!("a-{}-{}", plan::captain(index), plan::target(index))),
            ),
            4 | 5 => (ClaimKind::Message, plan::message_id(index)),
            _ => {
                let purpose = plan::name("purpose");
                let minted = self.ledger.call().mint(&purpose);
                if let Some(token) = self.answer("mint", minted)? {
                    self.journal.told(EventKind::TokenMinted, &purpose, token)?;
                }
                return Ok(());
            }
        };
        let revoked = self.ledger.call().revoke(kind, &name, "for the storm");
        self.answer("revoke", revoked).map(drop)
    }
}
