//! What a weakened worker does every other time: the one act whose predicate it leaves out.

use std::time::Duration;

use keyfence::Error;
use keyfence_core::mailbox::MessageGrant;
use keyfence_core::store::{Failure, Store};
use keyfence_core::{Decision, Digest, actor};

use super::plan;
use super::weak::{self, Loose, Weakness};
use super::worker::{Worker, fresh_process};

/// How many messages it looks at to find one that suits it.
const LOOKS: u64 = 24;

impl Worker {
    pub(super) fn act_weakly(&mut self, weakness: Weakness) -> anyhow::Result<()> {
        match weakness {
            Weakness::CompletesUnderAnyToken => self.complete_weakly(false),
            Weakness::CompletesTwice => self.complete_weakly(true),
            Weakness::ClaimsTheLive => self.claim_weakly(Loose::Live),
            Weakness::ClaimsWithoutCompareAndSet => self.claim_in_two_steps(),
            Weakness::ClaimsWithoutMint => self.claim_weakly(Loose::SameToken),
            Weakness::TakesOverForFree => self.take_over_for_free(),
            Weakness::AcquiresTheLive => self.acquire_weakly(),
            Weakness::FinishesAnOrphan => self.finish_an_orphan(),
            Weakness::KeepsTheIncarnation => self.keep_the_incarnation(),
            Weakness::FinishesAnotherGeneration => self.finish_a_session(true),
            Weakness::FinishesTheLapsed => self.finish_a_session(false),
        }
    }

    /// Runs one step; whatever keeps the weak verb from its purpose is fine, and counted.
    fn step<T>(
        &mut self,
        decide: impl FnMut(
            &mut <keyfence::Ledger as Store>::Step<'_>,
            keyfence_core::TimeMs,
        ) -> Result<Decision<T>, Failure<Error>>,
    ) -> anyhow::Result<Option<T>> {
        match self.ledger.step(decide) {
            Ok(Ok(value)) => Ok(Some(value)),
            Ok(Err(_)) => Ok(None),
            Err(failure) => {
                let error = Error::from(failure);
                self.journal.counted(&format!("weakness.stopped.{}", error.name()))?;
                Ok(None)
            }
        }
    }

    fn some_claim(&mut self) -> anyhow::Result<Option<MessageGrant>> {
        let ask = self.next_of(plan::crew(), None);
        let claimed = self.ledger.call().mailbox_claim_next(&ask, 1);
        let deliveries = self.answer("claim_next", claimed)?.unwrap_or_default();
        Ok(deliveries.into_iter().next().map(|delivery| delivery.granted.grant))
    }

    fn complete_weakly(&mut self, finished_too: bool) -> anyhow::Result<()> {
        if let Some(grant) = self.some_claim()? {
            if finished_too {
                let completed = self.ledger.call().mailbox_complete(&grant, b"first");
                self.answer("complete", completed)?;
            } else {
                // Long enough for somebody to take it over.
                self.stall();
            }
            self.step(|step, now| weak::complete(step, &grant, Digest::NONE, finished_too, now))?;
        }
        Ok(())
    }

    /// A claim of a message that suits it: somebody else's live one lies near its own.
    fn claim_weakly(&mut self, loose: Loose) -> anyhow::Result<()> {
        let (process, ttl) = (fresh_process(), self.ttl());
        let own = self.some_claim()?;
        let near = own.and_then(|grant| plan::index(grant.message())).unwrap_or_default();
        for distance in 1..LOOKS {
            let id = plan::message_id((near + distance) % self.orders.messages);
            let claimed = self.step(|step, now| weak::claim(step, &id, process, ttl, loose, now))?;
            if claimed.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Takes over what is lapsed.
    fn take_over_for_free(&mut self) -> anyhow::Result<()> {
        let (process, ttl) = (fresh_process(), self.ttl());
        let lapsed = self.step(|step, now| weak::next_lapsed(step, now))?.flatten();
        if let Some(id) = lapsed {
            self.step(|step, now| weak::claim(step, &id, process, ttl, Loose::ForFree, now))?;
        }
        Ok(())
    }

    /// Looks at the message that everybody wants next, and claims it a moment later.
    fn claim_in_two_steps(&mut self) -> anyhow::Result<()> {
        let (crew, process, ttl) = (plan::crew(), fresh_process(), self.ttl());
        let next = self.step(|step, now| weak::next_new(step, &crew, now))?.flatten();
        if let Some(id) = next {
            std::thread::sleep(Duration::from_millis(2));
            self.step(|step, now| weak::claim(step, &id, process, ttl, Loose::WasNew, now))?;
        }
        Ok(())
    }

    fn acquire_weakly(&mut self) -> anyhow::Result<()> {
        let ask = actor::Acquire {
            actor: plan::captain(self.random.u64(0..plan::CAPTAINS)),
            process: fresh_process(),
            ttl: self.ttl(),
        };
        self.step(|step, now| weak::acquire(step, &ask, now)).map(drop)
    }

    fn finish_an_orphan(&mut self) -> anyhow::Result<()> {
        let captain = plan::captain(self.random.u64(0..plan::CAPTAINS));
        let Some(lease) = self.lease(captain)? else {
            return Ok(());
        };
        let Some(attempt) = self.attempt(&lease)? else {
            return Ok(());
        };
        let released = self.ledger.call().actor_release(&lease);
        self.answer("actor_release", released)?;
        self.step(|step, now| weak::finish_attempt(step, &attempt, Digest::NONE, now))
            .map(drop)
    }

    fn keep_the_incarnation(&mut self) -> anyhow::Result<()> {
        let Some(host) = self.host()? else { return Ok(()) };
        let Some(grant) = self.claim_session(&host)? else {
            return Ok(());
        };
        std::thread::sleep(Duration::from_millis(self.orders.ttl_ms + 1));
        let (session, ttl) = (grant.session().clone(), self.ttl());
        self.step(|step, now| weak::claim_session(step, &session, &host, ttl, now))
            .map(drop)
    }

    fn finish_a_session(&mut self, any: bool) -> anyhow::Result<()> {
        let Some(host) = self.host()? else { return Ok(()) };
        let Some(grant) = self.claim_session(&host)? else {
            return Ok(());
        };
        if any {
            // Given up and claimed again: the same host in the next incarnation.
            let released = self.ledger.call().session_release(&grant);
            self.answer("session_release", released)?;
            let ask = keyfence_core::session::ClaimSession {
                session: grant.session().clone(),
                host: host.clone(),
                ttl: self.ttl(),
            };
            let claimed = self.ledger.call().session_claim(&ask);
            self.answer("session_claim", claimed)?;
        } else {
            std::thread::sleep(Duration::from_millis(self.orders.ttl_ms + 1));
        }
        let process = host.process();
        self.step(|step, now| weak::finish_session(step, &grant, process, Digest::NONE, any, now))
            .map(drop)
    }
}
