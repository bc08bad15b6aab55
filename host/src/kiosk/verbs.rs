//! The verbs, with the core's asks and grants.

use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::attempt::{self, AttemptGrant, CloseLost, Done, Outcome};
use keyfence_core::gate::{Admit, Admitted, Binding, ClaimKind};
use keyfence_core::host::{self, HostGrant};
use keyfence_core::lease::{Granted, Released, Revoked};
use keyfence_core::mailbox::{self, MessageGrant, Settled};
use keyfence_core::session::{ClaimSession, Generation, SessionGrant};
use keyfence_core::store::Place;
use keyfence_core::{Incarnation, Name, TimeMs, Token, Ttl};
use keyfence_firmware::link::{
    Answer, Answered, BODY_BYTES_MAX, Bytes, Checkpoint, ContentKind, Dump, Extension, Grant, Info, Letter, Request,
    Row, Tenure, Tolerance,
};

use super::error::{KioskError, KioskOutcome};
use super::link::{KioskLink, unexpected};

/// A claim that was granted or renewed, and from when on it counts.
#[derive(Debug)]
pub struct Leased<G> {
    /// The grant. Its expiry is a moment of the kiosk's clock.
    pub granted: Granted<G>,
    answered: Answered,
}

impl<G> Leased<G> {
    /// Until when the holder may act, on this machine's clock ([`now`](super::now)). `None` when the kiosk gave a first
    /// answer again of which it is not known here when it was given: renew the claim.
    #[must_use]
    pub fn tenure(&self, tolerance: Tolerance) -> Option<Tenure> {
        Tenure::begin(&self.answered, tolerance)
    }

    /// Extends a tenure by this renewal.
    pub fn extend(&self, tenure: &mut Tenure, tolerance: Tolerance) -> Extension {
        tenure.extend(&self.answered, tolerance)
    }

    /// When the claim lapses on another clock, on which the call was sent at `sent` or later: never after it does on the
    /// kiosk's, save for how the two clocks drift apart. `None` for a first answer again.
    #[must_use]
    pub fn lapses(&self, sent: TimeMs) -> Option<TimeMs> {
        if let Answer::Granted(grant) = &self.answered.reply().answer
            && !self.replayed()
        {
            return TimeMs::new(sent.as_ms().saturating_add(grant.lasts_ms));
        }
        None
    }

    /// Whether the call was answered before: this is the first answer again.
    #[must_use]
    pub const fn replayed(&self) -> bool {
        self.answered.reply().replayed
    }
}

/// What a text becomes on its way.
fn bytes(what: &'static str, text: &[u8]) -> Result<Bytes, KioskError> {
    Bytes::from_slice(text).map_err(|_| KioskError::TooLong {
        what,
        max: BODY_BYTES_MAX,
    })
}

/// Takes an answer apart: this verb's own kinds, a refusal, or none to the call.
macro_rules! decided {
    ($answered:expr, $($own:pat => $value:expr),+ $(,)?) => {
        match $answered {
            $($own => Ok(Ok($value)),)+
            Answer::Refused(refusal) => Ok(Err(refusal)),
            other => Err(unexpected(&other)),
        }
    };
}

/// The same for a reading, which is never refused.
macro_rules! read {
    ($answered:expr, $own:pat => $value:expr) => {
        match $answered {
            $own => Ok($value),
            other => Err(unexpected(&other)),
        }
    };
}

impl KioskLink {
    fn answer(&mut self, request: Request) -> Result<Answer, KioskError> {
        Ok(self.call(request)?.into_reply().answer)
    }

    /// A claim or a renewal; `grant` makes the core's grant of the kiosk's.
    fn leased<G>(&mut self, request: Request, grant: impl FnOnce(&Grant) -> Option<G>) -> KioskOutcome<Leased<G>> {
        let answered = self.call(request)?;
        decided!(answered.reply().answer.clone(), Answer::Granted(granted) => Leased {
            granted: Granted {
                grant: grant(&granted).ok_or(KioskError::Unexpected)?,
                expires_at: granted.expires_at,
                renewed: granted.renewed,
            },
            answered,
        })
    }

    /// How the kiosk stands.
    ///
    /// # Errors
    /// [`KioskError`].
    pub fn info(&mut self) -> Result<Info, KioskError> {
        read!(self.answer(Request::Info)?, Answer::Info(info) => info)
    }

    /// A row as it stands.
    ///
    /// # Errors
    /// [`KioskError`].
    pub fn row(&mut self, place: Place, name: &Name) -> Result<Option<Row>, KioskError> {
        read!(self.answer(Request::Row(place, name.clone()))?, Answer::Row(row) => row)
    }

    /// The bytes that are kept for a row: a result, or a message's subject behind one byte of its length, and its body.
    ///
    /// # Errors
    /// [`KioskError`].
    pub fn content(&mut self, place: Place, name: &Name, kind: ContentKind) -> Result<Option<Vec<u8>>, KioskError> {
        let request = Request::Content(place, name.clone(), kind);
        read!(self.answer(request)?, Answer::Content(bytes) => bytes.map(|bytes| bytes.to_vec()))
    }

    /// The checkpoint that the kiosk keeps.
    ///
    /// # Errors
    /// [`KioskError`].
    pub fn checkpoint(&mut self) -> Result<Option<Checkpoint>, KioskError> {
        read!(self.answer(Request::Checkpoint)?, Answer::Checkpoint(checkpoint) => checkpoint)
    }

    /// Has the kiosk keep a checkpoint; it is durable when this returns.
    ///
    /// # Errors
    /// [`KioskError`].
    pub fn store_checkpoint(&mut self, checkpoint: Checkpoint) -> Result<(), KioskError> {
        read!(self.answer(Request::StoreCheckpoint(checkpoint))?, Answer::Written => ())
    }

    /// A piece of the journal's region from `offset` on.
    ///
    /// # Errors
    /// [`KioskError`].
    pub fn dump(&mut self, offset: u32) -> Result<Dump, KioskError> {
        read!(self.answer(Request::Dump(offset))?, Answer::Dump(dump) => dump)
    }

    /// Drops finished rows; returns how many.
    ///
    /// # Errors
    /// [`KioskError`].
    pub fn prune(&mut self) -> Result<u32, KioskError> {
        read!(self.answer(Request::Prune)?, Answer::Count(count) => count)
    }

    /// Lifts the counter and the incarnations above these floors; neither ever goes down.
    ///
    /// # Errors
    /// [`KioskError`].
    pub fn lift(&mut self, counter: Option<Token>, incarnation: Option<Incarnation>) -> Result<(), KioskError> {
        read!(self.answer(Request::Lift(counter, incarnation))?, Answer::Written => ())
    }
}

/// The verbs. After [`KioskError::Unknown`] one may have been done; after any other error it was not.
impl KioskLink {
    /// Mints a token for a resource of the caller's own.
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mint(&mut self, purpose: &Name) -> KioskOutcome<Token> {
        decided!(self.answer(Request::Mint(purpose.clone()))?, Answer::Minted(token) => token)
    }

    /// [`actor::acquire`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn actor_acquire(&mut self, ask: &actor::Acquire) -> KioskOutcome<Leased<ActorGrant>> {
        self.leased(Request::ActorAcquire(ask.clone()), |grant| {
            Some(ActorGrant::presented(ask.actor.clone(), ask.process, grant.token))
        })
    }

    /// [`actor::acquire_or_renew`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn actor_acquire_or_renew(&mut self, ask: &actor::Acquire) -> KioskOutcome<Leased<ActorGrant>> {
        self.leased(Request::ActorAcquireOrRenew(ask.clone()), |grant| {
            Some(ActorGrant::presented(ask.actor.clone(), ask.process, grant.token))
        })
    }

    /// [`actor::renew`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn actor_renew(&mut self, grant: &ActorGrant, ttl: Ttl) -> KioskOutcome<Leased<ActorGrant>> {
        self.leased(Request::ActorRenew(grant.clone(), ttl), |_| Some(grant.clone()))
    }

    /// [`actor::release`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn actor_release(&mut self, grant: &ActorGrant) -> KioskOutcome<Released> {
        decided!(self.answer(Request::ActorRelease(grant.clone()))?, Answer::Released(released) => released)
    }

    /// [`attempt::create`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn assignment_create(&mut self, ask: &attempt::Create) -> KioskOutcome<Done> {
        decided!(self.answer(Request::AssignmentCreate(ask.clone()))?, Answer::Done(done) => done)
    }

    /// [`attempt::acquire`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn attempt_acquire(&mut self, ask: &attempt::Acquire) -> KioskOutcome<Leased<AttemptGrant>> {
        self.leased(Request::AttemptAcquire(ask.clone()), |grant| {
            Some(AttemptGrant::presented(
                ask.assignment.clone(),
                ask.attempt,
                grant.token,
            ))
        })
    }

    /// [`attempt::renew`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn attempt_renew(&mut self, grant: &AttemptGrant, ttl: Ttl) -> KioskOutcome<Leased<AttemptGrant>> {
        self.leased(Request::AttemptRenew(grant.clone(), ttl), |_| Some(grant.clone()))
    }

    /// [`attempt::release`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn attempt_release(&mut self, grant: &AttemptGrant) -> KioskOutcome<Released> {
        decided!(self.answer(Request::AttemptRelease(grant.clone()))?, Answer::Released(released) => released)
    }

    /// [`attempt::finish`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn attempt_finish(&mut self, grant: &AttemptGrant, outcome: Outcome, result: &[u8]) -> KioskOutcome<Done> {
        let request = Request::AttemptFinish(grant.clone(), outcome, bytes("a result", result)?);
        decided!(self.answer(request)?, Answer::Done(done) => done)
    }

    /// [`attempt::close_lost`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn attempt_close_lost(&mut self, assignment: &Name) -> KioskOutcome<CloseLost> {
        decided!(self.answer(Request::AttemptCloseLost(assignment.clone()))?, Answer::Closed(found) => found)
    }

    /// Closes the next assignment whose attempt is not live; `None` when there is none.
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn attempt_close_next_lost(&mut self) -> KioskOutcome<Option<Name>> {
        decided!(
            self.answer(Request::AttemptCloseNextLost)?,
            Answer::ClosedNext(assignment) => Some(assignment),
            Answer::Nothing => None,
        )
    }

    /// [`mailbox::send`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_send(&mut self, letter: &Letter) -> KioskOutcome<Done> {
        decided!(self.answer(Request::MessageSend(letter.clone()))?, Answer::Done(done) => done)
    }

    /// [`mailbox::claim`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_claim(&mut self, ask: &mailbox::Claim) -> KioskOutcome<Leased<MessageGrant>> {
        self.leased(Request::MessageClaim(ask.clone()), |grant| {
            Some(MessageGrant::presented(
                ask.message.clone(),
                ask.owner.clone(),
                ask.process,
                grant.token,
            ))
        })
    }

    /// Claims the next message; `None` when the mailbox holds nothing deliverable.
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_claim_next(&mut self, ask: &mailbox::ClaimNext) -> KioskOutcome<Option<Leased<MessageGrant>>> {
        let answered = self.call(Request::MessageClaimNext(ask.clone()))?;
        if answered.reply().answer == Answer::Nothing {
            return Ok(Ok(None));
        }
        decided!(answered.reply().answer.clone(), Answer::Granted(granted) => {
            let message = granted.message.ok_or(KioskError::Unexpected)?;
            let grant = MessageGrant::presented(message, ask.owner.clone(), ask.process, granted.token);
            Some(Leased {
                granted: Granted {
                    grant,
                    expires_at: granted.expires_at,
                    renewed: granted.renewed,
                },
                answered,
            })
        })
    }

    /// [`mailbox::sweep`]; returns how many were swept.
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_sweep(&mut self, recipient: Option<&Name>, limit: u16) -> KioskOutcome<u32> {
        decided!(self.answer(Request::MessageSweep(recipient.cloned(), limit))?, Answer::Count(count) => count)
    }

    /// [`mailbox::extend`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_extend(&mut self, grant: &MessageGrant, ttl: Ttl) -> KioskOutcome<Leased<MessageGrant>> {
        self.leased(Request::MessageExtend(grant.clone(), ttl), |_| Some(grant.clone()))
    }

    /// [`mailbox::give_back`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_give_back(&mut self, grant: &MessageGrant) -> KioskOutcome<Settled> {
        decided!(self.answer(Request::MessageGiveBack(grant.clone()))?, Answer::Settled(settled) => settled)
    }

    /// [`mailbox::retry`]. `not_before` is a moment of the kiosk's clock.
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_retry(
        &mut self,
        grant: &MessageGrant,
        not_before: Option<TimeMs>,
        reason: &[u8],
    ) -> KioskOutcome<Settled> {
        let request = Request::MessageRetry(grant.clone(), not_before, bytes("a reason", reason)?);
        decided!(self.answer(request)?, Answer::Settled(settled) => settled)
    }

    /// [`mailbox::complete`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_complete(&mut self, grant: &MessageGrant, result: &[u8]) -> KioskOutcome<Done> {
        let request = Request::MessageComplete(grant.clone(), bytes("a result", result)?);
        decided!(self.answer(request)?, Answer::Done(done) => done)
    }

    /// [`mailbox::dead_letter`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_dead_letter(&mut self, grant: &MessageGrant, reason: &[u8]) -> KioskOutcome<Done> {
        let request = Request::MessageDeadLetter(grant.clone(), bytes("a reason", reason)?);
        decided!(self.answer(request)?, Answer::Done(done) => done)
    }

    /// [`mailbox::dead_letter_new`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_dead_letter_new(&mut self, message: &Name) -> KioskOutcome<Done> {
        decided!(self.answer(Request::MessageDeadLetterNew(message.clone()))?, Answer::Done(done) => done)
    }

    /// [`mailbox::redrive`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn mailbox_redrive(&mut self, ask: &mailbox::Redrive) -> KioskOutcome<(Name, Done)> {
        decided!(self.answer(Request::MessageRedrive(ask.clone()))?, Answer::Redriven(id, done) => (id, done))
    }

    /// [`host::register`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn host_register(&mut self, ask: &host::Register) -> KioskOutcome<Leased<HostGrant>> {
        self.leased(Request::HostRegister(ask.clone()), |grant| {
            Some(HostGrant::presented(ask.host.clone(), ask.process, grant.token))
        })
    }

    /// [`host::renew`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn host_renew(&mut self, grant: &HostGrant, ttl: Ttl) -> KioskOutcome<Leased<HostGrant>> {
        self.leased(Request::HostRenew(grant.clone(), ttl), |_| Some(grant.clone()))
    }

    /// [`host::release`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn host_release(&mut self, grant: &HostGrant) -> KioskOutcome<Released> {
        decided!(self.answer(Request::HostRelease(grant.clone()))?, Answer::Released(released) => released)
    }

    /// [`keyfence_core::session::claim`]; again is a renewal.
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn session_claim(&mut self, ask: &ClaimSession) -> KioskOutcome<Leased<SessionGrant>> {
        self.leased(Request::SessionClaim(ask.clone()), |grant| {
            let generation = Generation {
                host: ask.host.name().clone(),
                incarnation: grant.incarnation?,
                token: grant.token,
                host_token: ask.host.token(),
            };
            Some(SessionGrant::presented(ask.session.clone(), generation))
        })
    }

    /// [`keyfence_core::session::release`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn session_release(&mut self, grant: &SessionGrant) -> KioskOutcome<Released> {
        decided!(self.answer(Request::SessionRelease(grant.clone()))?, Answer::Released(released) => released)
    }

    /// [`keyfence_core::session::finish`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn session_finish(&mut self, grant: &SessionGrant, result: &[u8]) -> KioskOutcome<Done> {
        let request = Request::SessionFinish(grant.clone(), bytes("a result", result)?);
        decided!(self.answer(request)?, Answer::Done(done) => done)
    }

    /// [`keyfence_core::gate::admit`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn gate_admit(&mut self, ask: &Admit) -> KioskOutcome<Admitted> {
        decided!(self.answer(Request::GateAdmit(ask.clone()))?, Answer::Admitted(admitted) => admitted)
    }

    /// [`keyfence_core::gate::rebind`].
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn gate_rebind(&mut self, gate: &Name, binding: &Binding) -> KioskOutcome<()> {
        decided!(self.answer(Request::GateRebind(gate.clone(), binding.clone()))?, Answer::Written => ())
    }

    /// The operator's revocation of a claim.
    ///
    /// # Errors
    /// [`KioskError`]. Refuses as the core's verb does.
    pub fn revoke(&mut self, kind: ClaimKind, name: &Name) -> KioskOutcome<Revoked> {
        decided!(self.answer(Request::Revoke(kind, name.clone()))?, Answer::Revoked(revoked) => revoked)
    }
}
