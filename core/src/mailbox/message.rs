//! A message's row: one struct a state, and what a lapse costs.

use crate::event::{Event, EventKind, Replaced};
use crate::name::{Digest, Name, ProcessId};
use crate::refusal::{Holder, Reason, Refusal};
use crate::store::{Place, Record};
use crate::time::{Expiry, TimeMs};
use crate::token::Token;

/// How many retries a message has unless its sender says otherwise: with 3, attempts 0, 1 and 2 are retried and a
/// failure of attempt 3 is the end.
pub const RETRIES_MAX_DEFAULT: u16 = 3;

/// How urgent a message is: -100 to 100, the greater the sooner. Among equals the older is delivered first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Priority(i8);

impl Priority {
    /// The greatest distance from the default of 0.
    pub const LIMIT: i8 = 100;

    /// A priority from -100 to 100.
    #[must_use]
    pub fn new(priority: i64) -> Option<Self> {
        i8::try_from(priority)
            .ok()
            .filter(|p| (-Self::LIMIT..=Self::LIMIT).contains(p))
            .map(Self)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i8 {
        self.0
    }
}

/// A row of a message. Its subject and body belong to the store; the machines know their digest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Message {
    /// Its id.
    pub id: Name,
    /// Who may claim it.
    pub recipient: Name,
    /// What was sent, as a digest over everything that the sender chose.
    pub content: Digest,
    /// How urgent it is.
    pub priority: Priority,
    /// Before which moment it is not delivered.
    pub not_before: Option<TimeMs>,
    /// How many retries were used up.
    pub retries: u16,
    /// How many there are.
    pub retries_max: u16,
    /// How many claims were granted.
    pub deliveries: u32,
    /// The DEAD message that this one was made from.
    pub redrive_of: Option<Name>,
    /// Where it stands.
    pub state: MessageState,
}

/// Where a message stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum MessageState {
    /// NEW: nobody owns it.
    New(Open),
    /// CLAIMED: somebody owns it, live or lapsed.
    Claimed(Claimed),
    /// DONE.
    Done(Last),
    /// DEAD: parked for a person to look at.
    Dead(Dead),
    /// Finished, and pruned: only its id is kept.
    Pruned,
}

/// A NEW message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Open {
    /// The act that made it NEW again, so that its repetition is recognised; none after a lapse or a revocation.
    pub last: Option<Last>,
}

/// A CLAIMED message. Its owner is its recipient.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Claimed {
    /// By which process; none for the one anonymous process.
    pub process: Option<ProcessId>,
    /// Under which token.
    pub token: Token,
    /// The token of the actor lease that the claim descends from, where it named one.
    pub lease_token: Option<Token>,
    /// Since when.
    pub since: TimeMs,
    /// Until when.
    pub expiry: Expiry,
}

/// What a holder can do to end its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Act {
    /// Gave it back.
    GivenBack,
    /// Asked for another try.
    Retried,
    /// Completed it.
    Completed,
    /// Dead-lettered it.
    DeadLettered,
}

/// The last act under a token, kept for recognising its repetition and for nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Last {
    /// By which process.
    pub process: Option<ProcessId>,
    /// Under which token.
    pub token: Token,
    /// What it did.
    pub act: Act,
    /// With which bytes: a result, or a reason.
    pub digest: Digest,
}

/// A DEAD message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Dead {
    /// Why.
    pub cause: Cause,
    /// The last act of a holder: the one that ended it, or the one that had made it NEW before an operator ended it.
    pub last: Option<Last>,
    /// The message that was made from it.
    pub redriven_as: Option<Name>,
}

/// Why a message is DEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Cause {
    /// A retry, or a give-back after the claim lapsed, found no budget left.
    RetriesExhausted,
    /// Its last claim lapsed: its worker was lost, and no budget was left.
    WorkerLost,
    /// Its holder dead-lettered it.
    Holder,
    /// An operator dead-lettered it.
    Operator,
}

impl Cause {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RetriesExhausted => "retries_exhausted",
            Self::WorkerLost => "worker_lost",
            Self::Holder => "dead_lettered",
            Self::Operator => "operator",
        }
    }
}

/// What a failure of the current attempt leads to.
pub(crate) enum Budget {
    /// Another try; this many retries are used up.
    Again(u16),
    /// The end.
    Exhausted,
}

impl Record for Message {
    const PLACE: Place = Place::Message;
    fn key(&self) -> &Name {
        &self.id
    }
}

impl Message {
    /// The state's name. A pruned message was DONE or DEAD; which is forgotten.
    #[must_use]
    pub const fn state_name(&self) -> &'static str {
        match self.state {
            MessageState::New(_) => "NEW",
            MessageState::Claimed(_) => "CLAIMED",
            MessageState::Done(_) => "DONE",
            MessageState::Dead(_) => "DEAD",
            MessageState::Pruned => "PRUNED",
        }
    }

    pub(crate) fn with(&self, state: MessageState) -> Self {
        Self { state, ..self.clone() }
    }

    pub(crate) const fn is_finished(&self) -> bool {
        match self.state {
            MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => true,
            MessageState::New(_) | MessageState::Claimed(_) => false,
        }
    }

    pub(crate) const fn last(&self) -> Option<&Last> {
        match &self.state {
            MessageState::New(open) => open.last.as_ref(),
            MessageState::Done(last) => Some(last),
            MessageState::Dead(dead) => dead.last.as_ref(),
            MessageState::Claimed(_) | MessageState::Pruned => None,
        }
    }

    /// One more failure (M4).
    pub(crate) const fn after_failure(&self) -> Budget {
        if self.retries < self.retries_max {
            Budget::Again(self.retries + 1)
        } else {
            Budget::Exhausted
        }
    }

    /// What the lapse of a claim costs (M4).
    pub(crate) const fn after_lapse(&self, claimed: &Claimed) -> Budget {
        match claimed.expiry {
            Expiry::At(_) => self.after_failure(),
            Expiry::EarlierBoot => Budget::Again(self.retries),
        }
    }

    pub(crate) fn holder(&self, process: Option<ProcessId>) -> Holder {
        Holder {
            name: self.recipient.clone(),
            process,
        }
    }

    pub(crate) fn replaced(&self, claimed: &Claimed) -> Replaced {
        Replaced {
            holder: self.holder(claimed.process),
            token: claimed.token,
            expiry: claimed.expiry,
        }
    }

    /// A refusal that names the current claimant, and never its token.
    pub(crate) fn refusal(&self, reason: Reason) -> Refusal {
        let refusal = Refusal::new(reason);
        match &self.state {
            MessageState::Claimed(claimed) => {
                refusal.held_by(&self.recipient, claimed.process, claimed.since, claimed.expiry)
            }
            MessageState::New(_) | MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => refusal,
        }
    }

    /// The event of a holder's act.
    pub(crate) fn event(&self, claimed: &Claimed, kind: EventKind, retries: u16, now: TimeMs) -> Event {
        Event {
            holder: Some(self.holder(claimed.process)),
            token: Some(claimed.token),
            parent_token: claimed.lease_token,
            expires_at: claimed.expiry.time(),
            retries: Some(retries),
            ..Event::new(now, kind, &self.id)
        }
    }
}

/// What an issued claim on a message is named by. Made only by a claim, or decoded from one that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MessageGrant {
    message: Name,
    owner: Name,
    process: Option<ProcessId>,
    token: Token,
}

impl MessageGrant {
    /// Decodes a grant from what an issued one was written down as. It confers nothing.
    #[must_use]
    pub const fn presented(message: Name, owner: Name, process: Option<ProcessId>, token: Token) -> Self {
        Self {
            message,
            owner,
            process,
            token,
        }
    }

    /// The message.
    #[must_use]
    pub const fn message(&self) -> &Name {
        &self.message
    }

    /// Who owns it: its recipient.
    #[must_use]
    pub const fn owner(&self) -> &Name {
        &self.owner
    }

    /// The process that claimed it; none for the anonymous one.
    #[must_use]
    pub const fn process(&self) -> Option<ProcessId> {
        self.process
    }

    /// The fencing token.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }
}
