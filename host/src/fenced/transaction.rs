//! The calls inside one transaction of keyfence's.

use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::attempt::{self, AttemptGrant, Done};
use keyfence_core::host::{self, HostGrant};
use keyfence_core::lease::Granted;
use keyfence_core::mailbox::{Claim, ClaimNext};
use keyfence_core::session::{self, SessionGrant};
use keyfence_core::store::Failure;
use keyfence_core::{Decision, Name, TimeMs, Token, counter};
use rusqlite::Connection;

use super::pending::TransactionId;
use super::{Pending, Receipt, Terminal};
use crate::call::mailbox as verbs;
use crate::error::{Error, Outcome};
use crate::message::{Delivery, NewMessage};
use crate::store::connection::Guest;
use crate::store::step::{SqliteStep, bug};

/// A write transaction that keyfence began. A call in it answers at once whether it is refused; what it granted is
/// [`Pending`] until the commit.
///
/// After a call that ended with an [`Error`] the transaction cannot commit any more.
pub struct Tx<'t> {
    step: SqliteStep<'t>,
    guest: Guest,
    id: TransactionId,
    failed: bool,
}

impl<'t> Tx<'t> {
    pub(super) fn new(step: SqliteStep<'t>, guest: Guest) -> Self {
        Self {
            step,
            guest,
            id: TransactionId::fresh(),
            failed: false,
        }
    }

    pub(super) fn finish(mut self) -> Result<Receipt, Failure<Error>> {
        if self.failed {
            return Err(bug("a transaction went on after a call in it had failed".into()));
        }
        self.step.finish()?;
        Ok(Receipt(self.id))
    }

    /// Runs SQL of the caller's own in this transaction.
    pub fn sql<R>(&self, work: impl FnOnce(&Connection) -> R) -> R {
        let connection = self.step.connection();
        self.guest.admit(|| work(connection))
    }

    /// The `now` that all calls in this transaction are decided with.
    #[must_use]
    pub const fn now(&self) -> TimeMs {
        self.step.now()
    }

    fn run<T>(
        &mut self,
        decide: impl FnOnce(&mut SqliteStep<'t>, TimeMs) -> Result<Decision<T>, Failure<Error>>,
    ) -> Outcome<Pending<T>> {
        if self.failed {
            return Err(Error::Transaction {
                why: "an earlier call in it failed".into(),
            });
        }
        let now = self.step.now();
        match decide(&mut self.step, now) {
            Ok(decision) => Ok(decision.map(|value| Pending::until_transaction(value, self.id))),
            Err(failure) => {
                self.failed = true;
                Err(failure.into())
            }
        }
    }

    /// A terminal write.
    ///
    /// # Errors
    /// [`Error`]. Refuses as the terminal call does.
    pub fn terminal(&mut self, terminal: Terminal<'_>) -> Outcome<Pending<Done>> {
        self.run(|step, now| terminal.apply(step, now))
    }

    /// Acquires an actor's lease, strictly.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`actor::acquire`] does.
    pub fn actor_acquire(&mut self, ask: &actor::Acquire) -> Outcome<Pending<Granted<ActorGrant>>> {
        self.run(|step, now| actor::acquire(step, ask, now))
    }

    /// Creates an assignment.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`attempt::create`] does.
    pub fn assignment_create(&mut self, ask: &attempt::Create) -> Outcome<Pending<Done>> {
        self.run(|step, now| attempt::create(step, ask, now))
    }

    /// Acquires an attempt, strictly.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`attempt::acquire`] does.
    pub fn attempt_acquire(&mut self, ask: &attempt::Acquire) -> Outcome<Pending<Granted<AttemptGrant>>> {
        self.run(|step, now| attempt::acquire(step, ask, now))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`send`](keyfence_core::mailbox::send) does.
    pub fn mailbox_send(&mut self, message: &NewMessage) -> Outcome<Pending<Done>> {
        self.run(|step, now| verbs::send(step, message, now))
    }

    /// Claims a message by its id.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`claim`](keyfence_core::mailbox::claim) does.
    pub fn mailbox_claim(&mut self, ask: &Claim) -> Outcome<Pending<Delivery>> {
        self.run(|step, now| verbs::deliver(step, ask, now))
    }

    /// Claims up to `limit` deliverable messages.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`claim_next`](keyfence_core::mailbox::claim_next) does.
    pub fn mailbox_claim_next(&mut self, ask: &ClaimNext, limit: usize) -> Outcome<Pending<Vec<Delivery>>> {
        self.run(|step, now| verbs::deliver_next(step, ask, limit, now))
    }

    /// Registers a host.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`host::register`] does.
    pub fn host_register(&mut self, ask: &host::Register) -> Outcome<Pending<Granted<HostGrant>>> {
        self.run(|step, now| host::register(step, ask, now))
    }

    /// Claims a session.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`session::claim`] does.
    pub fn session_claim(&mut self, ask: &session::ClaimSession) -> Outcome<Pending<Granted<SessionGrant>>> {
        self.run(|step, now| session::claim(step, ask, now))
    }

    /// Mints a token for a resource of the caller's own.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`counter::mint_for`] does.
    pub fn mint(&mut self, purpose: &Name) -> Outcome<Pending<Token>> {
        self.run(|step, now| counter::mint_for(step, purpose, now))
    }
}
