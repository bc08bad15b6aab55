//! The history: one event for every transition, in the same atomic step as the transition.

use core::fmt;

use crate::name::{AttemptId, Name};
use crate::refusal::Holder;
use crate::time::{Expiry, TimeMs};
use crate::token::{Incarnation, Token};

macro_rules! event_kinds {
    ($($(#[$doc:meta])* $variant:ident => $name:literal;)*) => {
        /// What happened. The names are stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub enum EventKind {
            $($(#[$doc])* $variant,)*
        }

        impl EventKind {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name: `machine.act`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The kind of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.name() == name)
            }
        }
    };
}

event_kinds! {
    /// An actor lease was acquired, or taken over.
    ActorAcquired => "actor.acquired";
    /// Its holder released it.
    ActorReleased => "actor.released";
    /// An operator revoked it.
    ActorRevoked => "actor.revoked";
    /// An assignment was created.
    AssignmentCreated => "assignment.created";
    /// An attempt was acquired, or taken over; the assignment is RUNNING.
    AttemptAcquired => "attempt.acquired";
    /// Its holder gave the assignment back: CREATED.
    AttemptReleased => "attempt.released";
    /// An operator revoked it: CREATED.
    AttemptRevoked => "attempt.revoked";
    /// The attempt was finished as COMPLETED.
    AttemptCompleted => "attempt.completed";
    /// The attempt was finished as BLOCKED.
    AttemptBlocked => "attempt.blocked";
    /// The attempt was finished as FAILED.
    AttemptFailed => "attempt.failed";
    /// The attempt was no longer live and was closed as FAILED `worker_lost`.
    AttemptWorkerLost => "attempt.worker_lost";
    /// A message was sent: NEW.
    MessageSent => "message.sent";
    /// A message was claimed, or taken over: CLAIMED.
    MessageClaimed => "message.claimed";
    /// A lapsed claim was swept: NEW again.
    MessageLapsed => "message.lapsed";
    /// Its holder gave it back: NEW.
    MessageGivenBack => "message.given_back";
    /// Its holder asked for another try: NEW.
    MessageRetried => "message.retried";
    /// Its holder completed it: DONE.
    MessageCompleted => "message.completed";
    /// It ended as DEAD.
    MessageDead => "message.dead";
    /// An operator revoked the claim: NEW.
    MessageRevoked => "message.revoked";
    /// A DEAD message was sent once more under a new id, which is the event's subject.
    MessageRedriven => "message.redriven";
    /// A host was registered, or taken over.
    HostRegistered => "host.registered";
    /// Its process released it.
    HostReleased => "host.released";
    /// An operator revoked it.
    HostRevoked => "host.revoked";
    /// A session was claimed: a new incarnation.
    SessionClaimed => "session.claimed";
    /// Its host gave it up.
    SessionReleased => "session.released";
    /// It was finished.
    SessionFinished => "session.finished";
    /// An operator revoked the claim.
    SessionRevoked => "session.revoked";
    /// A gate's mark was raised.
    GateRaised => "gate.raised";
    /// A gate was bound to another claim.
    GateRebound => "gate.rebound";
    /// A token was minted for a use of the caller's own.
    TokenMinted => "token.minted";
    /// The store was restored from a backup and every claim voided.
    LedgerRestored => "ledger.restored";
    /// Finished rows and a prefix of the history were dropped.
    LedgerPruned => "ledger.pruned";
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The claim that an event replaced or ended without its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Replaced {
    /// Who held it.
    pub holder: Holder,
    /// Under which token.
    pub token: Token,
    /// Until when.
    pub expiry: Expiry,
}

/// One transition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Event {
    /// The `now` that the decision was made with.
    pub at: TimeMs,
    /// What happened.
    pub kind: EventKind,
    /// The actor, assignment, message, host, session or gate it happened to.
    pub subject: Name,
    /// Who did it; `None` for a sweep or an operator.
    pub holder: Option<Holder>,
    /// The token it was done under.
    pub token: Option<Token>,
    /// The token of the lease that the claim descends from: an actor's or a host's.
    pub parent_token: Option<Token>,
    /// The expiry of the claim: the new one of a claim, the old one where a holder ends it.
    pub expires_at: Option<TimeMs>,
    /// The attempt.
    pub attempt: Option<AttemptId>,
    /// The session's incarnation.
    pub incarnation: Option<Incarnation>,
    /// How much of a message's budget is used up after the event.
    pub retries: Option<u16>,
    /// The claim that was taken over, swept or revoked.
    pub replaced: Option<Replaced>,
    /// The message that was redriven, or the assignment that is retried.
    pub refers_to: Option<Name>,
}

impl Event {
    /// An event without particulars.
    #[must_use]
    pub fn new(at: TimeMs, kind: EventKind, subject: &Name) -> Self {
        Self {
            at,
            kind,
            subject: subject.clone(),
            holder: None,
            token: None,
            parent_token: None,
            expires_at: None,
            attempt: None,
            incarnation: None,
            retries: None,
            replaced: None,
            refers_to: None,
        }
    }
}
