//! The job as a message.

use std::convert::Infallible;

use keyfence_core::attempt::Done;
use keyfence_core::lease::Granted;
use keyfence_core::mailbox::{self, Message, MessageGrant};
use keyfence_core::store::Failure;
use keyfence_core::{Decision, Digest, ProcessId, TimeMs, Token};

use super::{
    Answered, Broken, Lens, Monitor, Of, Presented, Step, Tell, World, actor_name, job, presented, process, under,
};

impl World {
    pub(super) fn claim(&mut self, process: ProcessId, lease: Option<Token>, tell: Tell<'_>) -> Result<bool, Broken> {
        let ask = mailbox::Claim {
            message: job(),
            owner: actor_name(),
            process: Some(process),
            lease_token: lease,
            ttl: self.claim_ttl,
        };
        let answered = self.step(&under(lease), |step, now| mailbox::claim(step, &ask, now))?;
        self.delivered(answered, lease, tell)
    }

    pub(super) fn claim_next(&mut self, contender: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let ask = mailbox::ClaimNext {
            owner: actor_name(),
            process: Some(process(contender)),
            lease_token: None,
            ttl: self.claim_ttl,
        };
        let mut first = None;
        let (decision, events) = self.step(&Presented::default(), |step, now| {
            mailbox::claim_next(step, &ask, 1, now, |granted| first = Some(granted))
        })?;
        let decision = match (decision, first) {
            (Ok(_), None) => {
                tell(format_args!("nothing to do"));
                Monitor::refused(&events)?;
                return Ok(!events.is_empty());
            }
            (Ok(_), Some(granted)) => Ok(granted),
            (Err(refusal), _) => Err(refusal),
        };
        self.delivered((decision, events), None, tell)
    }

    fn delivered(
        &mut self,
        answered: Answered<Granted<MessageGrant>>,
        lease: Option<Token>,
        tell: Tell<'_>,
    ) -> Result<bool, Broken> {
        let (effect, grant) = self.claimed(Of::Message, &job(), answered, MessageGrant::token, tell)?;
        let row = self.ledger.rows::<Message>()[0].state.clone();
        self.claims.extend(grant.map(|grant| (grant, lease, row)));
        Ok(effect)
    }

    pub(super) fn extend(&mut self, grant: usize, tell: Tell<'_>) -> Result<bool, Broken> {
        let ((grant, parent, _), ttl) = (self.claims[grant].clone(), self.claim_ttl);
        let answered = self.step(&presented(grant.token(), parent), |step, now| {
            mailbox::extend(step, &grant, ttl, now)
        })?;
        Ok(self
            .claimed(Of::Message, &job(), answered, MessageGrant::token, tell)?
            .0)
    }

    pub(super) fn settle(
        &mut self,
        grant: usize,
        act: &'static str,
        tell: Tell<'_>,
        verb: impl Fn(&mut Lens<'_, Step>, &MessageGrant, Digest, TimeMs) -> Result<Decision<Done>, Failure<Infallible>>,
    ) -> Result<bool, Broken> {
        let (grant, parent, claimed) = self.claims[grant].clone();
        let presented = Presented {
            claimed: Some(claimed),
            ..presented(grant.token(), parent)
        };
        // What each generation produces is its own, so that one result is not taken for another's.
        let bytes = Digest::from_bytes([u8::try_from(grant.token().get()).unwrap_or(u8::MAX); 16]);
        let answered = self.step(&presented, |step, now| verb(step, &grant, bytes, now))?;
        self.ended(Of::Message, &job(), grant.token(), act, answered, tell)
    }

    pub(super) fn sweep(&mut self, tell: Tell<'_>) -> Result<bool, Broken> {
        let (decision, events) = self.step(&Presented::default(), |step, now| mailbox::sweep(step, None, 8, now))?;
        match decision {
            Ok(swept) => tell(format_args!("{swept} swept")),
            Err(refusal) => tell(format_args!("refused: {refusal}")),
        }
        Ok(!events.is_empty())
    }

    pub(super) fn dead_letter_new(&mut self, tell: Tell<'_>) -> Result<bool, Broken> {
        let (decision, events) = self.step(&Presented::default(), |step, now| {
            mailbox::dead_letter_new(step, &job(), now)
        })?;
        match decision {
            Ok(Done::Now) => tell(format_args!("the message is DEAD")),
            Ok(Done::Already) => tell(format_args!("was done already")),
            Err(refusal) => tell(format_args!("refused: {refusal}")),
        }
        Ok(!events.is_empty())
    }
}
