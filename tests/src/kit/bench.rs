//! Every store of the core as a subject of the kit.

use std::fmt::{Debug, Display};

use keyfence_core::actor::{self, ActorGrant, ActorLease};
use keyfence_core::attempt::{self, Assignment, AssignmentState, AttemptGrant, CloseLost, Done, Outcome};
use keyfence_core::event::Event;
use keyfence_core::gate::{self, Admit, Admitted, Binding, Gate};
use keyfence_core::host::{self, HostGrant, HostLease};
use keyfence_core::lease::{Granted, Kind, Lease, Released, Revoked};
use keyfence_core::mailbox::{self, Claim, ClaimNext, Message, MessageGrant, MessageState, Settled};
use keyfence_core::refusal::RefusedCall;
use keyfence_core::session::{self, ClaimSession, Session, SessionGrant, SessionState};
use keyfence_core::store::{Failure, Place, Store, Table, Transaction};
use keyfence_core::{Digest, Incarnation, Name, TimeMs, Token, Ttl, counter};
use sha2::{Digest as _, Sha256};

use super::subject::{Answer, BadExpiry, Bounds, Fault, Letter, Seen, Subject};

/// A store of the core, and what a test can do to it from outside: everything a [`Subject`] is made of.
pub trait Bench {
    /// The store.
    type Store: Store<Error: Debug + Display>;

    /// The store.
    fn store(&mut self) -> &mut Self::Store;
    /// See [`Subject::bounds`].
    fn bounds(&self) -> Bounds;
    /// See [`Subject::set_now`].
    fn set_now(&mut self, now: TimeMs);
    /// See [`Subject::between`].
    fn between(&mut self) {}
    /// See [`Subject::history`].
    fn history(&mut self) -> Vec<Event>;
    /// See [`Subject::refusals`].
    fn refusals(&mut self) -> Vec<RefusedCall>;
    /// See [`Subject::damage`].
    fn damage(&mut self, place: Place, key: &Name, how: BadExpiry);
    /// See [`Subject::prune`].
    fn prune(&mut self);
    /// See [`Subject::lift_counter`].
    fn lift_counter(&mut self, floor: Token);
    /// See [`Subject::raise_incarnations`].
    fn raise_incarnations(&mut self, floor: Incarnation);
    /// See [`Subject::reboot`].
    fn reboot(&mut self);
}

/// The digest that a store keeps of the bytes of a call: the first 16 bytes of their SHA-256.
#[must_use]
pub fn digest(text: &str) -> Digest {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(text)[..16]);
    Digest::from_bytes(bytes)
}

fn fault<E: Display>(failure: Failure<E>) -> Fault {
    match failure {
        Failure::Store(error) => Fault::Failed(error.to_string()),
        Failure::Unknown(error) => Fault::Unknown(error.to_string()),
        Failure::Corrupt(corrupt) => Fault::Damaged(corrupt.to_string()),
    }
}

/// One verb of the core as one step of the store.
macro_rules! step {
    ($self:ident, |$step:ident, $now:ident| $verb:expr) => {{
        $self.between();
        $self.store().step(|$step, $now| $verb).map_err(fault)
    }};
}

impl<B: Bench> Subject for B {
    fn bounds(&self) -> Bounds {
        Bench::bounds(self)
    }
    fn set_now(&mut self, now: TimeMs) {
        Bench::set_now(self, now);
    }
    fn between(&mut self) {
        Bench::between(self);
    }

    fn mint(&mut self, purpose: &Name) -> Answer<Token> {
        step!(self, |step, now| counter::mint_for(step, purpose, now))
    }

    fn actor_acquire(&mut self, ask: &actor::Acquire) -> Answer<Granted<ActorGrant>> {
        step!(self, |step, now| actor::acquire(step, ask, now))
    }
    fn actor_acquire_or_renew(&mut self, ask: &actor::Acquire) -> Answer<Granted<ActorGrant>> {
        step!(self, |step, now| actor::acquire_or_renew(step, ask, now))
    }
    fn actor_renew(&mut self, grant: &ActorGrant, ttl: Ttl) -> Answer<Granted<ActorGrant>> {
        step!(self, |step, now| actor::renew(step, grant, ttl, now))
    }
    fn actor_release(&mut self, grant: &ActorGrant) -> Answer<Released> {
        step!(self, |step, now| actor::release(step, grant, now))
    }
    fn actor_revoke(&mut self, actor: &Name) -> Answer<Revoked> {
        step!(self, |step, now| actor::revoke(step, actor, now))
    }

    fn assignment_create(&mut self, ask: &attempt::Create) -> Answer<Done> {
        step!(self, |step, now| attempt::create(step, ask, now))
    }
    fn attempt_acquire(&mut self, ask: &attempt::Acquire) -> Answer<Granted<AttemptGrant>> {
        step!(self, |step, now| attempt::acquire(step, ask, now))
    }
    fn attempt_renew(&mut self, grant: &AttemptGrant, ttl: Ttl) -> Answer<Granted<AttemptGrant>> {
        step!(self, |step, now| attempt::renew(step, grant, ttl, now))
    }
    fn attempt_release(&mut self, grant: &AttemptGrant) -> Answer<Released> {
        step!(self, |step, now| attempt::release(step, grant, now))
    }
    fn attempt_finish(&mut self, grant: &AttemptGrant, outcome: Outcome, result: &str) -> Answer<Done> {
        step!(self, |step, now| attempt::finish(
            step,
            grant,
            outcome,
            digest(result),
            now
        ))
    }
    fn attempt_close_lost(&mut self, assignment: &Name) -> Answer<CloseLost> {
        step!(self, |step, now| attempt::close_lost(step, assignment, now))
    }
    fn attempt_close_all_lost(&mut self, limit: usize) -> Answer<Vec<Name>> {
        let mut closed = Vec::new();
        let count = step!(self, |step, now| {
            closed.clear();
            attempt::close_all_lost(step, limit, now, |assignment| closed.push(assignment.clone()))
        })?;
        Ok(count.map(|count| {
            assert_eq!(count, closed.len());
            closed
        }))
    }
    fn attempt_revoke(&mut self, assignment: &Name) -> Answer<Revoked> {
        step!(self, |step, now| attempt::revoke(step, assignment, now))
    }

    fn mailbox_send(&mut self, letter: &Letter) -> Answer<Done> {
        let ask = mailbox::Send {
            id: letter.id.clone(),
            sender: letter.sender.clone(),
            recipient: letter.recipient.clone(),
            content: digest(&format!("{letter:?}")),
            priority: letter.priority,
            not_before: letter.not_before,
            retries_max: letter.retries_max,
        };
        step!(self, |step, now| mailbox::send(step, &ask, now))
    }
    fn mailbox_claim(&mut self, ask: &Claim) -> Answer<Granted<MessageGrant>> {
        step!(self, |step, now| mailbox::claim(step, ask, now))
    }
    fn mailbox_claim_next(&mut self, ask: &ClaimNext, limit: usize) -> Answer<Vec<Granted<MessageGrant>>> {
        let mut granted = Vec::new();
        let count = step!(self, |step, now| {
            granted.clear();
            mailbox::claim_next(step, ask, limit, now, |grant| granted.push(grant))
        })?;
        Ok(count.map(|count| {
            assert_eq!(count, granted.len());
            granted
        }))
    }
    fn mailbox_sweep(&mut self, recipient: Option<&Name>, limit: usize) -> Answer<usize> {
        step!(self, |step, now| mailbox::sweep(step, recipient, limit, now))
    }
    fn mailbox_extend(&mut self, grant: &MessageGrant, ttl: Ttl) -> Answer<Granted<MessageGrant>> {
        step!(self, |step, now| mailbox::extend(step, grant, ttl, now))
    }
    fn mailbox_give_back(&mut self, grant: &MessageGrant) -> Answer<Settled> {
        step!(self, |step, now| mailbox::give_back(step, grant, now))
    }
    fn mailbox_retry(&mut self, grant: &MessageGrant, not_before: Option<TimeMs>, reason: &str) -> Answer<Settled> {
        step!(self, |step, now| mailbox::retry(
            step,
            grant,
            not_before,
            digest(reason),
            now
        ))
    }
    fn mailbox_complete(&mut self, grant: &MessageGrant, result: &str) -> Answer<Done> {
        step!(self, |step, now| mailbox::complete(step, grant, digest(result), now))
    }
    fn mailbox_dead_letter(&mut self, grant: &MessageGrant, reason: &str) -> Answer<Done> {
        step!(self, |step, now| mailbox::dead_letter(step, grant, digest(reason), now))
    }
    fn mailbox_dead_letter_new(&mut self, message: &Name) -> Answer<Done> {
        step!(self, |step, now| mailbox::dead_letter_new(step, message, now))
    }
    fn mailbox_redrive(&mut self, ask: &mailbox::Redrive) -> Answer<(Name, Done)> {
        step!(self, |step, now| mailbox::redrive(step, ask, now))
    }
    fn mailbox_revoke(&mut self, message: &Name) -> Answer<Revoked> {
        step!(self, |step, now| mailbox::revoke(step, message, now))
    }

    fn host_register(&mut self, ask: &host::Register) -> Answer<Granted<HostGrant>> {
        step!(self, |step, now| host::register(step, ask, now))
    }
    fn host_renew(&mut self, grant: &HostGrant, ttl: Ttl) -> Answer<Granted<HostGrant>> {
        step!(self, |step, now| host::renew(step, grant, ttl, now))
    }
    fn host_release(&mut self, grant: &HostGrant) -> Answer<Released> {
        step!(self, |step, now| host::release(step, grant, now))
    }
    fn host_revoke(&mut self, host: &Name) -> Answer<Revoked> {
        step!(self, |step, now| host::revoke(step, host, now))
    }

    fn session_claim(&mut self, ask: &ClaimSession) -> Answer<Granted<SessionGrant>> {
        step!(self, |step, now| session::claim(step, ask, now))
    }
    fn session_release(&mut self, grant: &SessionGrant) -> Answer<Released> {
        step!(self, |step, now| session::release(step, grant, now))
    }
    fn session_finish(&mut self, grant: &SessionGrant, result: &str) -> Answer<Done> {
        step!(self, |step, now| session::finish(step, grant, digest(result), now))
    }
    fn session_revoke(&mut self, session: &Name) -> Answer<Revoked> {
        step!(self, |step, now| session::revoke(step, session, now))
    }

    fn gate_admit(&mut self, ask: &Admit) -> Answer<Admitted> {
        step!(self, |step, now| gate::admit(step, ask, now))
    }
    fn gate_rebind(&mut self, gate: &Name, binding: &Binding) -> Answer<()> {
        step!(self, |step, now| gate::rebind(step, gate, binding, now))
    }

    fn counter(&mut self) -> Result<Option<Token>, Fault> {
        let last = step!(self, |step, _now| step.last_minted().map(Ok))?;
        Ok(last.expect("a reading is never refused"))
    }
    fn row(&mut self, place: Place, key: &Name) -> Result<Option<Seen>, Fault> {
        let seen = step!(self, |step, _now| see(step, place, key).map(Ok))?;
        Ok(seen.expect("a reading is never refused"))
    }
    fn history(&mut self) -> Vec<Event> {
        Bench::history(self)
    }
    fn refusals(&mut self) -> Vec<RefusedCall> {
        Bench::refusals(self)
    }

    fn damage(&mut self, place: Place, key: &Name, how: BadExpiry) {
        Bench::damage(self, place, key, how);
    }
    fn prune(&mut self) {
        Bench::prune(self);
    }
    fn lift_counter(&mut self, floor: Token) {
        Bench::lift_counter(self, floor);
    }
    fn raise_incarnations(&mut self, floor: Incarnation) {
        Bench::raise_incarnations(self, floor);
    }
    fn reboot(&mut self) {
        Bench::reboot(self);
    }
}

/// Reads the row of any kind.
fn see<S>(step: &mut S, place: Place, key: &Name) -> Result<Option<Seen>, Failure<S::Error>>
where
    S: keyfence_core::store::Step,
{
    Ok(match place {
        Place::Actor => Table::<ActorLease>::get(step, key)?.map(|row| see_lease(&row)),
        Place::Host => Table::<HostLease>::get(step, key)?.map(|row| see_lease(&row)),
        Place::Assignment => Table::<Assignment>::get(step, key)?.map(|row| see_assignment(&row)),
        Place::Message => Table::<Message>::get(step, key)?.map(|row| see_message(&row)),
        Place::Session => Table::<Session>::get(step, key)?.map(|row| see_session(&row)),
        Place::Gate => Table::<Gate>::get(step, key)?.map(|row| Seen {
            token: row.high_water,
            ..bare("GATE", &row)
        }),
        Place::Counter | Place::History => panic!("the {} has no rows", place.name()),
    })
}

fn bare(state: &'static str, row: &impl Debug) -> Seen {
    Seen {
        state,
        process: None,
        token: None,
        incarnation: None,
        expires_at: None,
        retries: None,
        deliveries: None,
        made_from: None,
        rest: format!("{row:?}"),
    }
}

fn see_lease<K: Kind>(row: &Lease<K>) -> Seen {
    match row.claim() {
        Some(held) => Seen {
            process: Some(held.process),
            token: Some(held.token),
            expires_at: held.expiry.time(),
            ..bare("HELD", row)
        },
        None => bare("FREE", row),
    }
}

fn see_assignment(row: &Assignment) -> Seen {
    let seen = |state| Seen {
        made_from: row.retry_of.clone(),
        ..bare(state, row)
    };
    match &row.state {
        AssignmentState::Created { .. } => seen("CREATED"),
        AssignmentState::Running(attempt) => Seen {
            process: Some(attempt.process),
            token: Some(attempt.token),
            expires_at: attempt.expiry.time(),
            ..seen("RUNNING")
        },
        AssignmentState::Finished(finished) => seen(finished.outcome.name()),
        AssignmentState::Pruned => seen("PRUNED"),
    }
}

fn see_message(row: &Message) -> Seen {
    let seen = Seen {
        retries: Some(row.retries),
        deliveries: Some(row.deliveries),
        made_from: row.redrive_of.clone(),
        ..bare(row.state_name(), row)
    };
    match &row.state {
        MessageState::Claimed(claimed) => Seen {
            process: claimed.process,
            token: Some(claimed.token),
            expires_at: claimed.expiry.time(),
            ..seen
        },
        MessageState::New(_) | MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => seen,
    }
}

fn see_session(row: &Session) -> Seen {
    match &row.state {
        SessionState::Claimed(claim) => Seen {
            process: Some(claim.process),
            token: Some(claim.generation.token),
            incarnation: Some(claim.generation.incarnation),
            expires_at: claim.expiry.time(),
            ..bare("CLAIMED", row)
        },
        SessionState::Free { incarnation, .. } => Seen {
            incarnation: Some(*incarnation),
            ..bare("FREE", row)
        },
        SessionState::Finished(generation, _) => Seen {
            incarnation: Some(generation.incarnation),
            ..bare("FINISHED", row)
        },
        SessionState::Pruned => bare("PRUNED", row),
    }
}
