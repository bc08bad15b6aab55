//! Refusals: normal answers that say why not, who holds it, since when and until when.

use core::fmt;

use crate::name::{Name, ProcessId};
use crate::time::{Expiry, TimeMs};
use crate::token::Token;

/// What a machine answers: what was asked for, or why not.
pub type Decision<T> = Result<T, Refusal>;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident => $name:literal, $next:literal;)*) => {
        /// Why a call was refused. The names are stable; scripts match on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What the caller can do now, where nothing else is known.
            #[must_use]
            pub const fn next(self) -> &'static str {
                match self { $(Self::$variant => $next,)* }
            }
        }
    };
}

reasons! {
    /// The counter is at the end of its range.
    TokenExhausted => "token_exhausted", "this ledger can mint no more tokens: start a new one above it";
    /// The session's incarnation is at the end of its range.
    IncarnationExhausted => "incarnation_exhausted", "use a session of another name";
    /// The store has no room for another row of this kind; nothing was written.
    Full => "full", "prune finished rows, then ask again";
    /// A live actor lease exists, whoever holds it.
    ActorLeaseHeld => "actor_lease_held", "wait until it lapses or is released, then acquire again";
    /// The actor's lease is gone, lapsed, or carries another token or process.
    ActorLeaseLost => "actor_lease_lost", "stop this work, then acquire the actor again";
    /// There is no such assignment.
    AssignmentMissing => "assignment_missing", "check the id, or create that assignment first";
    /// An assignment of this id exists with other content.
    AssignmentExists => "assignment_exists", "choose another id";
    /// The assignment belongs to another actor.
    WrongActor => "wrong_actor", "ask as the actor that the assignment belongs to";
    /// The assignment is COMPLETED, BLOCKED or FAILED.
    AssignmentFinished => "assignment_finished", "create a new assignment that names the one it retries";
    /// The assignment has a live attempt.
    ExecutionAttemptHeld => "execution_attempt_held", "wait until that attempt ends or lapses";
    /// The assignment is not running under this attempt and token.
    ExecutionAttemptLost => "execution_attempt_lost", "drop this result; look at the assignment before working on it again";
    /// There is no such message.
    MessageMissing => "message_missing", "check the id";
    /// A message of this id exists with other content.
    MessageExists => "message_exists", "send it under another id";
    /// The message is addressed to somebody else.
    WrongRecipient => "wrong_recipient", "ask as the recipient";
    /// The message may not be delivered yet.
    MessageNotDue => "message_not_due", "ask again when it is due";
    /// The message has a live claim.
    MessageHeld => "message_held", "claim another one, or wait until the claim lapses";
    /// The message is DONE or DEAD.
    MessageFinished => "message_finished", "nothing is left to do with this message";
    /// Only a DEAD message can be redriven.
    MessageNotDead => "message_not_dead", "wait until it is DEAD, or let a worker claim it";
    /// The claim has lapsed and cannot be extended.
    ClaimLapsed => "claim_lapsed", "claim the message again: it may have been given to another worker";
    /// The token is not that of the message's current claim.
    FencingTokenStale => "fencing_token_stale", "drop this result; claim again and work from the new grant";
    /// The claim belongs to another owner or process.
    NotClaimant => "not_claimant", "only the process that claimed the message can do this";
    /// The host has a live lease of another process.
    HostLeaseHeld => "host_lease_held", "wait until it lapses or is released, then register again";
    /// The host's lease is gone, lapsed, or carries another token or process.
    HostLeaseLost => "host_lease_lost", "register the host again";
    /// The session has a live claim.
    SessionHeld => "session_held", "wait until it lapses or is released, then claim again";
    /// The session is finished.
    SessionFinished => "session_finished", "use a session of another name";
    /// The grant is not that of the session's current, live claim.
    SessionClaimStale => "session_claim_stale", "drop this result; where the session is not finished claim it again, under a live host lease";
    /// The token lies below the gate's high-water mark, or above everything that its ledger minted.
    Fenced => "fenced", "stop: a newer claim has passed this gate";
    /// The gate is bound to another ledger, kind or name.
    GateMismatch => "gate_mismatch", "use the gate of this claim, or rebind it";
    /// A first or greater token cannot be admitted while the gate's ledger is unreadable.
    LedgerUnreadable => "ledger_unreadable", "see that the ledger is there and readable, then ask again";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who a claim belongs to: an actor or a host, and the process that acts for it (none for an anonymous claimant).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Holder {
    /// The actor or host.
    pub name: Name,
    /// The running instance.
    pub process: Option<ProcessId>,
}

/// A refusal with its evidence. It never carries a token as authority: [`Refusal::held_token`] is evidence about
/// somebody else's claim and is left out for messages.
///
/// ```compile_fail
/// // There is no token to go on with.
/// fn take(refusal: keyfence_core::Refusal) -> keyfence_core::Token { refusal.token }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// Who holds the claim now, where somebody does.
    pub holder: Option<Holder>,
    /// The token of the current claim; never for messages.
    pub held_token: Option<Token>,
    /// When the current claim was made.
    pub since: Option<TimeMs>,
    /// Until when the current claim is, or was, live.
    pub expires_at: Option<TimeMs>,
    /// When the message is due.
    pub due_at: Option<TimeMs>,
    /// The gate's mark.
    pub high_water: Option<Token>,
    /// The presented token is greater than everything minted here: a copy of another ledger, or a mistake.
    pub never_issued: bool,
}

impl Refusal {
    /// A refusal without evidence.
    pub const fn new(reason: Reason) -> Self {
        Self {
            reason,
            holder: None,
            held_token: None,
            since: None,
            expires_at: None,
            due_at: None,
            high_water: None,
            never_issued: false,
        }
    }

    /// Adds who holds the claim, since when and until when.
    pub fn held_by(mut self, name: &Name, process: Option<ProcessId>, since: TimeMs, expiry: Expiry) -> Self {
        self.holder = Some(Holder {
            name: name.clone(),
            process,
        });
        self.expires_at = expiry.time();
        // A start in an earlier boot is on a clock that says nothing now.
        self.since = self.expires_at.map(|_| since);
        self
    }

    /// What the caller can do now.
    #[must_use]
    pub const fn next(&self) -> &'static str {
        if self.never_issued {
            "present the token that your own claim was granted, to the ledger that granted it"
        } else {
            self.reason.next()
        }
    }

    /// Adds the token of the current claim, as evidence.
    pub fn under(mut self, held: Token) -> Self {
        self.held_token = Some(held);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl core::error::Error for Refusal {}

/// What a store keeps of a call that presented a stale or a foreign token.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RefusedCall {
    /// When, on the clock of lease decisions.
    pub at: TimeMs,
    /// Why.
    pub reason: Reason,
    /// The actor, host, session, assignment, message or gate it was about.
    pub subject: Name,
    /// The token that was presented.
    pub presented: Token,
    /// Whether it lies above everything minted here.
    pub never_issued: bool,
}

/// Takes the value out of a [`Decision`], or returns the refusal from a machine.
macro_rules! granted {
    ($decision:expr) => {
        match $decision {
            Ok(value) => value,
            Err(refusal) => return Ok(Err(refusal)),
        }
    };
}
pub(crate) use granted;
