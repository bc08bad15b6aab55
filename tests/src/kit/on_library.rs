//! The kit on the library's own calls: each verb as a program makes it, with its texts.

use std::time::Duration;

use keyfence::{Error, NewMessage, Outcome as Called};
use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::attempt::{self, AttemptGrant, CloseLost, Done, Outcome};
use keyfence_core::event::Event;
use keyfence_core::gate::{Admit, Admitted, Binding, ClaimKind};
use keyfence_core::host::{self, HostGrant};
use keyfence_core::lease::{Granted, Released, Revoked};
use keyfence_core::mailbox::{self, Claim, ClaimNext, MessageGrant, Settled};
use keyfence_core::refusal::RefusedCall;
use keyfence_core::session::{ClaimSession, SessionGrant};
use keyfence_core::store::Place;
use keyfence_core::{Incarnation, Name, TimeMs, Token, Ttl};

use super::on_sqlite::OnSqlite;
use super::subject::{Answer, BadExpiry, Bounds, Fault, Letter, Seen, Subject};

/// An SQLite ledger, as a program drives it. What the library has no call for (sweeps with a limit, gates that are rows)
/// goes to the store below.
#[derive(Default)]
pub struct OnLibrary(OnSqlite);

impl OnLibrary {
    /// A new ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

fn answer<T>(called: Called<T>) -> Answer<T> {
    called.map_err(|error| {
        let text = error.to_string();
        match error {
            Error::Damaged { .. } => Fault::Damaged(text),
            Error::Unknown(_) => Fault::Unknown(text),
            Error::Busy { .. }
            | Error::LedgerMissing { .. }
            | Error::NotALedger { .. }
            | Error::SchemaNewer { .. }
            | Error::ReadOnly { .. }
            | Error::DiskFull
            | Error::UnsafeLocation { .. }
            | Error::SqliteTooOld { .. }
            | Error::RequestMisused { .. }
            | Error::Transaction { .. }
            | Error::Io { .. }
            | Error::Sqlite(_)
            | Error::Bug { .. }
            | _ => Fault::Failed(text),
        }
    })
}

impl Subject for OnLibrary {
    fn bounds(&self) -> Bounds {
        self.0.bounds()
    }
    fn set_now(&mut self, now: TimeMs) {
        Subject::set_now(&mut self.0, now);
    }

    fn mint(&mut self, purpose: &Name) -> Answer<Token> {
        answer(self.0.ledger().call().mint(purpose))
    }

    fn actor_acquire(&mut self, ask: &actor::Acquire) -> Answer<Granted<ActorGrant>> {
        answer(self.0.ledger().call().actor_acquire(ask))
    }
    fn actor_acquire_or_renew(&mut self, ask: &actor::Acquire) -> Answer<Granted<ActorGrant>> {
        answer(self.0.ledger().call().actor_acquire_or_renew(ask))
    }
    fn actor_renew(&mut self, grant: &ActorGrant, ttl: Ttl) -> Answer<Granted<ActorGrant>> {
        answer(self.0.ledger().call().actor_renew(grant, ttl))
    }
    fn actor_release(&mut self, grant: &ActorGrant) -> Answer<Released> {
        answer(self.0.ledger().call().actor_release(grant))
    }
    fn actor_revoke(&mut self, actor: &Name) -> Answer<Revoked> {
        self.revoke(ClaimKind::Actor, actor)
    }

    fn assignment_create(&mut self, ask: &attempt::Create) -> Answer<Done> {
        answer(self.0.ledger().call().assignment_create(ask))
    }
    fn attempt_acquire(&mut self, ask: &attempt::Acquire) -> Answer<Granted<AttemptGrant>> {
        answer(self.0.ledger().call().attempt_acquire(ask))
    }
    fn attempt_renew(&mut self, grant: &AttemptGrant, ttl: Ttl) -> Answer<Granted<AttemptGrant>> {
        answer(self.0.ledger().call().attempt_renew(grant, ttl))
    }
    fn attempt_release(&mut self, grant: &AttemptGrant) -> Answer<Released> {
        answer(self.0.ledger().call().attempt_release(grant))
    }
    fn attempt_finish(&mut self, grant: &AttemptGrant, outcome: Outcome, result: &str) -> Answer<Done> {
        answer(self.0.ledger().call().attempt_finish(grant, outcome, result.as_bytes()))
    }
    fn attempt_close_lost(&mut self, assignment: &Name) -> Answer<CloseLost> {
        answer(self.0.ledger().call().attempt_close_lost(assignment))
    }
    fn attempt_close_all_lost(&mut self, limit: usize) -> Answer<Vec<Name>> {
        self.0.attempt_close_all_lost(limit)
    }
    fn attempt_revoke(&mut self, assignment: &Name) -> Answer<Revoked> {
        self.revoke(ClaimKind::Attempt, assignment)
    }

    fn mailbox_send(&mut self, letter: &Letter) -> Answer<Done> {
        let message = NewMessage {
            id: letter.id.clone(),
            sender: letter.sender.clone(),
            recipient: letter.recipient.clone(),
            subject: String::new(),
            body: letter.body.clone().into_bytes(),
            priority: letter.priority,
            not_before: letter.not_before,
            retries_max: letter.retries_max,
        };
        answer(self.0.ledger().call().mailbox_send(&message))
    }
    fn mailbox_claim(&mut self, ask: &Claim) -> Answer<Granted<MessageGrant>> {
        let delivery = answer(self.0.ledger().call().mailbox_claim(ask))?;
        Ok(delivery.map(|delivery| delivery.granted))
    }
    fn mailbox_claim_next(&mut self, ask: &ClaimNext, limit: usize) -> Answer<Vec<Granted<MessageGrant>>> {
        let deliveries = answer(self.0.ledger().call().mailbox_claim_next(ask, limit))?;
        Ok(deliveries.map(|deliveries| deliveries.into_iter().map(|delivery| delivery.granted).collect()))
    }
    fn mailbox_sweep(&mut self, recipient: Option<&Name>, limit: usize) -> Answer<usize> {
        self.0.mailbox_sweep(recipient, limit)
    }
    fn mailbox_extend(&mut self, grant: &MessageGrant, ttl: Ttl) -> Answer<Granted<MessageGrant>> {
        answer(self.0.ledger().call().mailbox_extend(grant, ttl))
    }
    fn mailbox_give_back(&mut self, grant: &MessageGrant) -> Answer<Settled> {
        answer(self.0.ledger().call().mailbox_give_back(grant))
    }
    fn mailbox_retry(&mut self, grant: &MessageGrant, not_before: Option<TimeMs>, reason: &str) -> Answer<Settled> {
        let now = self.0.now().as_ms();
        let delay = not_before.map(|due| Duration::from_millis(due.as_ms() - now));
        answer(self.0.ledger().call().mailbox_retry(grant, delay, reason))
    }
    fn mailbox_complete(&mut self, grant: &MessageGrant, result: &str) -> Answer<Done> {
        answer(self.0.ledger().call().mailbox_complete(grant, result.as_bytes()))
    }
    fn mailbox_dead_letter(&mut self, grant: &MessageGrant, reason: &str) -> Answer<Done> {
        answer(self.0.ledger().call().mailbox_dead_letter(grant, reason))
    }
    fn mailbox_dead_letter_new(&mut self, message: &Name) -> Answer<Done> {
        answer(self.0.ledger().call().mailbox_dead_letter_new(message, "why not"))
    }
    fn mailbox_redrive(&mut self, ask: &mailbox::Redrive) -> Answer<(Name, Done)> {
        answer(self.0.ledger().call().mailbox_redrive(&ask.dead, ask.id.clone()))
    }
    fn mailbox_revoke(&mut self, message: &Name) -> Answer<Revoked> {
        self.revoke(ClaimKind::Message, message)
    }

    fn host_register(&mut self, ask: &host::Register) -> Answer<Granted<HostGrant>> {
        answer(self.0.ledger().call().host_register(ask))
    }
    fn host_renew(&mut self, grant: &HostGrant, ttl: Ttl) -> Answer<Granted<HostGrant>> {
        answer(self.0.ledger().call().host_renew(grant, ttl))
    }
    fn host_release(&mut self, grant: &HostGrant) -> Answer<Released> {
        answer(self.0.ledger().call().host_release(grant))
    }
    fn host_revoke(&mut self, host: &Name) -> Answer<Revoked> {
        self.revoke(ClaimKind::Host, host)
    }

    fn session_claim(&mut self, ask: &ClaimSession) -> Answer<Granted<SessionGrant>> {
        answer(self.0.ledger().call().session_claim(ask))
    }
    fn session_release(&mut self, grant: &SessionGrant) -> Answer<Released> {
        answer(self.0.ledger().call().session_release(grant))
    }
    fn session_finish(&mut self, grant: &SessionGrant, result: &str) -> Answer<Done> {
        answer(self.0.ledger().call().session_finish(grant, result.as_bytes()))
    }
    fn session_revoke(&mut self, session: &Name) -> Answer<Revoked> {
        self.revoke(ClaimKind::Session, session)
    }

    fn gate_admit(&mut self, ask: &Admit) -> Answer<Admitted> {
        self.0.gate_admit(ask)
    }
    fn gate_rebind(&mut self, gate: &Name, binding: &Binding) -> Answer<()> {
        self.0.gate_rebind(gate, binding)
    }

    fn counter(&mut self) -> Result<Option<Token>, Fault> {
        self.0.counter()
    }
    fn row(&mut self, place: Place, key: &Name) -> Result<Option<Seen>, Fault> {
        self.0.row(place, key)
    }
    fn history(&mut self) -> Vec<Event> {
        Subject::history(&mut self.0)
    }
    fn refusals(&mut self) -> Vec<RefusedCall> {
        Subject::refusals(&mut self.0)
    }

    fn damage(&mut self, place: Place, key: &Name, how: BadExpiry) {
        Subject::damage(&mut self.0, place, key, how);
    }
    fn prune(&mut self) {
        Subject::prune(&mut self.0);
    }
    fn lift_counter(&mut self, floor: Token) {
        Subject::lift_counter(&mut self.0, floor);
    }
    fn raise_incarnations(&mut self, floor: Incarnation) {
        Subject::raise_incarnations(&mut self.0, floor);
    }
    fn reboot(&mut self) {
        Subject::reboot(&mut self.0);
    }
}

impl OnLibrary {
    fn revoke(&mut self, kind: ClaimKind, name: &Name) -> Answer<Revoked> {
        answer(self.0.ledger().call().revoke(kind, name, "why not"))
    }
}
