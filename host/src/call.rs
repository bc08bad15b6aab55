//! One call on a ledger: a verb with a deadline and, where wanted, a request id.

use std::time::Duration;

use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::attempt::{self, AttemptGrant, CloseLost, Done};
use keyfence_core::gate::ClaimKind;
use keyfence_core::host::{self, HostGrant};
use keyfence_core::lease::{Granted, Released, Revoked};
use keyfence_core::mailbox::{self, MessageGrant, Settled};
use keyfence_core::name::NameError;
use keyfence_core::session::{self, SessionGrant};
use keyfence_core::{Decision, Name, Token, Ttl};

use crate::error::Outcome;
use crate::ledger::{Ledger, unavailable};
use crate::maintain::Tick;
use crate::message::{BatchAndNext, CompletedAndNext, Completion, Delivery, NewMessage};
use crate::view::{MessageView, Page};

/// Names one call of one caller, so that a lost answer can be asked for again: 1 to 64 bytes of UTF-8 without control
/// characters, fresh for every new call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(Name);

impl RequestId {
    /// Checks and takes an id.
    ///
    /// # Errors
    /// [`NameError`] says which rule the text breaks.
    pub fn new(text: &str) -> Result<Self, NameError> {
        Name::new(text).map(Self)
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// One call.
#[must_use]
pub struct Call<'l> {
    ledger: &'l Ledger,
    timeout: Option<Duration>,
    request: Option<(RequestId, Name)>,
    replayed: bool,
}

impl<'l> Call<'l> {
    pub(crate) const fn new(ledger: &'l Ledger) -> Self {
        Self {
            ledger,
            timeout: None,
            request: None,
            replayed: false,
        }
    }

    /// Bounds the wait for the ledger's lock.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Names the call. `caller` is the process or the actor that asks: ids of different callers never meet.
    pub fn request(mut self, id: RequestId, caller: Name) -> Self {
        self.request = Some((id, caller));
        self
    }

    /// Whether the last verb's answer was a replay of the first one.
    #[must_use]
    pub const fn replayed(&self) -> bool {
        self.replayed
    }

    /// Acquires an actor's lease, strictly: a live lease refuses, the caller's own too.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn actor_acquire(&mut self, _ask: &actor::Acquire) -> Outcome<Granted<ActorGrant>> {
        Err(unavailable())
    }

    /// Acquires an actor's lease, or renews the caller's own live one.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn actor_acquire_or_renew(&mut self, _ask: &actor::Acquire) -> Outcome<Granted<ActorGrant>> {
        Err(unavailable())
    }

    /// Moves the expiry of a live lease; never shortens it.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn actor_renew(&mut self, _grant: &ActorGrant, _ttl: Ttl) -> Outcome<Granted<ActorGrant>> {
        Err(unavailable())
    }

    /// Gives an actor's lease up.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn actor_release(&mut self, _grant: &ActorGrant) -> Outcome<Released> {
        Err(unavailable())
    }

    /// Creates an assignment; the same one again is recognised.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn assignment_create(&mut self, _ask: &attempt::Create) -> Outcome<Done> {
        Err(unavailable())
    }

    /// Acquires an attempt, strictly.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn attempt_acquire(&mut self, _ask: &attempt::Acquire) -> Outcome<Granted<AttemptGrant>> {
        Err(unavailable())
    }

    /// Moves the expiry of a live attempt; never shortens it.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn attempt_renew(&mut self, _grant: &AttemptGrant, _ttl: Ttl) -> Outcome<Granted<AttemptGrant>> {
        Err(unavailable())
    }

    /// Gives the assignment back to CREATED.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn attempt_release(&mut self, _grant: &AttemptGrant) -> Outcome<Released> {
        Err(unavailable())
    }

    /// Finishes the assignment: the terminal write.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn attempt_finish(
        &mut self,
        _grant: &AttemptGrant,
        _outcome: attempt::Outcome,
        _result: &[u8],
    ) -> Outcome<Done> {
        Err(unavailable())
    }

    /// Closes the assignment as FAILED `worker_lost` if its attempt is not live.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn attempt_close_lost(&mut self, _assignment: &Name) -> Outcome<CloseLost> {
        Err(unavailable())
    }

    /// Sends a message; the same one again is recognised.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_send(&mut self, _message: &NewMessage) -> Outcome<Done> {
        Err(unavailable())
    }

    /// Sends messages in one transaction, each decided for itself.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_send_batch(&mut self, _messages: &[NewMessage]) -> Outcome<Vec<Decision<Done>>> {
        Err(unavailable())
    }

    /// Claims a message by its id.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_claim(&mut self, _ask: &mailbox::Claim) -> Outcome<Delivery> {
        Err(unavailable())
    }

    /// Claims up to `limit` deliverable messages, by priority, then age; empty when there are none.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_claim_next(&mut self, _ask: &mailbox::ClaimNext, _limit: usize) -> Outcome<Vec<Delivery>> {
        Err(unavailable())
    }

    /// Moves the expiry of a live claim; never shortens it.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_extend(&mut self, _grant: &MessageGrant, _ttl: Ttl) -> Outcome<Granted<MessageGrant>> {
        Err(unavailable())
    }

    /// Gives the message back unfinished.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_give_back(&mut self, _grant: &MessageGrant) -> Outcome<Settled> {
        Err(unavailable())
    }

    /// Asks for another try after a failure, `delay` from now at the earliest.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_retry(
        &mut self,
        _grant: &MessageGrant,
        _delay: Option<Duration>,
        _reason: &str,
    ) -> Outcome<Settled> {
        Err(unavailable())
    }

    /// Completes the message: the terminal write.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_complete(&mut self, _grant: &MessageGrant, _result: &[u8]) -> Outcome<Done> {
        Err(unavailable())
    }

    /// Completes messages in one transaction, each decided for itself.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_complete_batch(&mut self, _completions: &[Completion<'_>]) -> Outcome<Vec<Decision<Done>>> {
        Err(unavailable())
    }

    /// Completes the message and claims the next ones in one transaction. When the completion is refused nothing is claimed; when the claim is refused the completion stands.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_complete_and_next(
        &mut self,
        _grant: &MessageGrant,
        _result: &[u8],
        _ask: &mailbox::ClaimNext,
        _limit: usize,
    ) -> Outcome<CompletedAndNext> {
        Err(unavailable())
    }

    /// Completes messages, each decided for itself, and claims the next ones in one transaction.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_complete_batch_and_next(
        &mut self,
        _completions: &[Completion<'_>],
        _ask: &mailbox::ClaimNext,
        _limit: usize,
    ) -> Outcome<BatchAndNext> {
        Err(unavailable())
    }

    /// Dead-letters the message: a terminal write.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_dead_letter(&mut self, _grant: &MessageGrant, _reason: &str) -> Outcome<Done> {
        Err(unavailable())
    }

    /// Dead-letters a NEW message by an operator's act.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_dead_letter_new(&mut self, _message: &Name, _reason: &str) -> Outcome<Done> {
        Err(unavailable())
    }

    /// Sends a DEAD message once more under a new id.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_redrive(&mut self, _dead: &Name, _new_id: Name) -> Outcome<(Name, Done)> {
        Err(unavailable())
    }

    /// Sweeps lapsed claims of the recipient and lists NEW and CLAIMED messages.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mailbox_inbox(&mut self, _recipient: &Name, _page: Page) -> Outcome<Vec<MessageView>> {
        Err(unavailable())
    }

    /// Registers a host, or renews the caller's own live lease.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn host_register(&mut self, _ask: &host::Register) -> Outcome<Granted<HostGrant>> {
        Err(unavailable())
    }

    /// Moves the expiry of a live lease; never shortens it.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn host_renew(&mut self, _grant: &HostGrant, _ttl: Ttl) -> Outcome<Granted<HostGrant>> {
        Err(unavailable())
    }

    /// Gives a host's lease up.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn host_release(&mut self, _grant: &HostGrant) -> Outcome<Released> {
        Err(unavailable())
    }

    /// Claims a session, or renews the caller's own live claim.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn session_claim(&mut self, _ask: &session::ClaimSession) -> Outcome<Granted<SessionGrant>> {
        Err(unavailable())
    }

    /// Gives a session up.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn session_release(&mut self, _grant: &SessionGrant) -> Outcome<Released> {
        Err(unavailable())
    }

    /// Finishes the session: the terminal write.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn session_finish(&mut self, _grant: &SessionGrant, _result: &[u8]) -> Outcome<Done> {
        Err(unavailable())
    }

    /// Mints a token for a resource of the caller's own.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn mint(&mut self, _purpose: &Name) -> Outcome<Token> {
        Err(unavailable())
    }

    /// Clears a claim by an operator's act; its token is dead.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn revoke(&mut self, _kind: ClaimKind, _name: &Name, _reason: &str) -> Outcome<Revoked> {
        Err(unavailable())
    }

    /// One look of the supervisor: sweeps lapsed claims, closes lost attempts, reports lapsed leases.
    ///
    /// # Errors
    /// [`Error`](crate::Error).
    pub fn supervise_tick(&mut self) -> Outcome<Tick> {
        Err(unavailable())
    }
}
