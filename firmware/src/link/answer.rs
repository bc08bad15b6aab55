//! What a kiosk answers.

use core::fmt;

use keyfence_core::attempt::{CloseLost, Done};
use keyfence_core::gate::Admitted;
use keyfence_core::lease::{Granted, Released, Revoked};
use keyfence_core::mailbox::Settled;
use keyfence_core::refusal::Holder;
use keyfence_core::store::Place;
use keyfence_core::{Incarnation, Name, Reason, Refusal, TimeMs, Token};

use super::row::Row;
use super::state::{Dump, Info, Why};
use super::wire::{self, In, Out, Wire, wire_enum, wire_struct, wire_words};
use crate::journal::Checkpoint;
use crate::store::{BODY_BYTES_MAX, SUBJECT_BYTES_MAX};

/// No answer to a request that needs an id is longer than this, with the names that a kiosk keeps: room for it is kept
/// with the request's number.
pub const KEPT_BYTES_MAX: usize = 66;
/// Bytes kept for a row: a message's subject with its length, and its body.
const CONTENT_BYTES_MAX: usize = 1 + SUBJECT_BYTES_MAX + BODY_BYTES_MAX;

/// What was granted. Names are not echoed: the host has its own ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token.
    pub token: Token,
    /// Of a session: its incarnation.
    pub incarnation: Option<Incarnation>,
    /// Of the next message: which one it is.
    pub message: Option<Name>,
    /// Until when, on the kiosk's clock.
    pub expires_at: TimeMs,
    /// How much of that was left when it was decided, in milliseconds. A holder counts it from the moment it sent the
    /// request.
    pub lasts_ms: u64,
    /// Whether an earlier claim was kept: same generation, same token.
    pub renewed: bool,
}

impl Grant {
    /// A grant of a machine, decided at `now`.
    #[must_use]
    pub fn of<G>(granted: &Granted<G>, token: Token, now: TimeMs) -> Self {
        Self {
            token,
            incarnation: None,
            message: None,
            expires_at: granted.expires_at,
            lasts_ms: granted.expires_at.as_ms().saturating_sub(now.as_ms()),
            renewed: granted.renewed,
        }
    }
}

/// Why a call was neither granted nor refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call cannot be read: the host is newer, or wrong.
    Malformed,
    /// The kiosk was not provisioned with a ledger.
    Unprovisioned,
    /// The ledger is closed.
    Closed(Why),
    /// A name or a content is longer than the kiosk keeps.
    TooLong,
    /// A later call of this client was answered.
    RequestTooOld {
        /// The number of that one.
        last: u32,
    },
    /// Another call was answered under this request id.
    RequestMisused,
    /// Whether it was done is not known. Asking again under the same request id tells.
    Unknown,
    /// A row, or what belongs to it, cannot be read as it was written. Nothing was done.
    Damaged(Place),
    /// The flash takes no more. Nothing was done.
    Worn,
    /// This kiosk does not do such a thing.
    Unsupported,
}

impl Fault {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unprovisioned => "unprovisioned",
            Self::Closed(_) => "closed",
            Self::TooLong => "too_long",
            Self::RequestTooOld { .. } => "request_too_old",
            Self::RequestMisused => "request_misused",
            Self::Unknown => "unknown",
            Self::Damaged(_) => "damaged",
            Self::Worn => "worn",
            Self::Unsupported => "unsupported",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the kiosk cannot read this call"),
            Self::Unprovisioned => f.write_str("the kiosk was not provisioned"),
            Self::Closed(why) => write!(f, "the kiosk's ledger is closed: {}", why.name()),
            Self::TooLong => f.write_str("a name or a content is longer than the kiosk keeps"),
            Self::RequestTooOld { last } => write!(f, "the kiosk has answered request {last} of this client already"),
            Self::RequestMisused => f.write_str("another call was answered under this request id"),
            Self::Unknown => f.write_str("whether it was done is not known"),
            Self::Damaged(place) => write!(f, "damaged: {}", place.name()),
            Self::Worn => f.write_str("the kiosk's flash takes no more"),
            Self::Unsupported => f.write_str("this kiosk does not do such a thing"),
        }
    }
}

impl core::error::Error for Fault {}

/// What a kiosk answers to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A claim or a renewal was granted.
    Granted(Grant),
    /// There is no next message, or no next lost attempt.
    Nothing,
    /// A token was minted.
    Minted(Token),
    /// It is done.
    Done(Done),
    /// A retry or a give-back is done.
    Settled(Settled),
    /// What became of a release.
    Released(Released),
    /// What became of a revocation.
    Revoked(Revoked),
    /// What was found of an attempt.
    Closed(CloseLost),
    /// This assignment was closed.
    ClosedNext(Name),
    /// The token may pass.
    Admitted(Admitted),
    /// How many rows were swept or pruned.
    Count(u32),
    /// The new message's id, and whether it was made now.
    Redriven(Name, Done),
    /// What was given is kept.
    Written,
    /// How things stand.
    Info(Info),
    /// The number of a client's last answered call.
    LastNumber(Option<u32>),
    /// A row, if there is one.
    Row(Option<Row>),
    /// The bytes of a row, if there are any.
    Content(Option<heapless::Vec<u8, CONTENT_BYTES_MAX>>),
    /// The checkpoint that is kept, if there is one.
    Checkpoint(Option<Checkpoint>),
    /// A piece of the journal's region.
    Dump(Dump),
    /// The machine refused.
    Refused(Refusal),
    /// There is no decision.
    Failed(Fault),
}

impl Answer {
    /// Writes the answer, to be kept with a request's number; `None` when it does not fit.
    #[must_use]
    pub fn encode(&self, bytes: &mut [u8]) -> Option<usize> {
        let mut out = Out::new(bytes);
        self.put(&mut out);
        out.finish()
    }

    /// Reads an answer that was kept; `None` when it is not as it was written.
    ///
    /// It reads what a request that needs an id can be answered with and nothing else: the codec of all the rest, which
    /// only a host reads, would take 5 KB of a kiosk's flash. The numbers are those of the codec.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = In::new(bytes);
        let items = from.array()?;
        let answer = match (from.number()?, items) {
            (0, 2) => Self::Granted(Wire::take(&mut from)?),
            (1, 1) => Self::Nothing,
            (2, 2) => Self::Minted(Wire::take(&mut from)?),
            (3, 2) => Self::Done(Wire::take(&mut from)?),
            (4, 2) => Self::Settled(Wire::take(&mut from)?),
            (5, 2) => Self::Released(Wire::take(&mut from)?),
            (6, 2) => Self::Revoked(Wire::take(&mut from)?),
            (7, 2) => Self::Closed(Wire::take(&mut from)?),
            (8, 2) => Self::ClosedNext(Wire::take(&mut from)?),
            (9, 2) => Self::Admitted(Wire::take(&mut from)?),
            (10, 2) => Self::Count(Wire::take(&mut from)?),
            (11, 3) => Self::Redriven(Wire::take(&mut from)?, Wire::take(&mut from)?),
            (12, 1) => Self::Written,
            _ => return None,
        };
        from.is_at_end().then_some(answer)
    }
}

/// An answer, and whether it is a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The call was answered before: this is the first answer again.
    pub replayed: bool,
    /// The answer.
    pub answer: Answer,
}

impl Reply {
    /// A new answer.
    #[must_use]
    pub const fn new(answer: Answer) -> Self {
        Self {
            replayed: false,
            answer,
        }
    }

    pub(super) fn encode(&self, bytes: &mut [u8]) -> Option<usize> {
        let mut out = Out::new(bytes);
        self.put(&mut out);
        out.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = In::new(bytes);
        let reply = Self::take(&mut from)?;
        from.is_at_end().then_some(reply)
    }
}

wire_struct!(Reply { replayed, answer });
wire_enum!(Answer {
    0 => Granted(grant),
    1 => Nothing,
    2 => Minted(token),
    3 => Done(done),
    4 => Settled(settled),
    5 => Released(released),
    6 => Revoked(revoked),
    7 => Closed(found),
    8 => ClosedNext(assignment),
    9 => Admitted(admitted),
    10 => Count(count),
    11 => Redriven(id, done),
    12 => Written,
    13 => Info(info),
    14 => LastNumber(number),
    15 => Row(row),
    16 => Content(bytes),
    17 => Checkpoint(checkpoint),
    18 => Dump(dump),
    19 => Refused(refusal),
    20 => Failed(fault),
});

wire_struct!(Grant {
    token,
    incarnation,
    message,
    expires_at,
    lasts_ms,
    renewed
});
wire_words!(Done { 0 => Now, 1 => Already });
wire_struct!(Settled { done, dead });
wire_words!(Released { 0 => Now, 1 => Already, 2 => NotHeld });
wire_enum!(Revoked { 0 => Claim(holder, token), 1 => Nothing });
wire_words!(CloseLost { 0 => Closed, 1 => Live, 2 => NotRunning });
wire_words!(Admitted { 0 => AtMark, 1 => Raised });
wire_struct!(Holder { name, process });
wire_struct!(Refusal {
    reason,
    holder,
    held_token,
    since,
    expires_at,
    due_at,
    high_water,
    never_issued
});
wire_words!(Reason {
    0 => TokenExhausted, 1 => IncarnationExhausted, 2 => Full,
    10 => ActorLeaseHeld, 11 => ActorLeaseLost,
    20 => AssignmentMissing, 21 => AssignmentExists, 22 => WrongActor, 23 => AssignmentFinished,
    24 => ExecutionAttemptHeld, 25 => ExecutionAttemptLost,
    30 => MessageMissing, 31 => MessageExists, 32 => WrongRecipient, 33 => MessageNotDue, 34 => MessageHeld,
    35 => MessageFinished, 36 => MessageNotDead, 37 => ClaimLapsed, 38 => FencingTokenStale, 39 => NotClaimant,
    50 => HostLeaseHeld, 51 => HostLeaseLost,
    60 => SessionHeld, 61 => SessionFinished, 62 => SessionClaimStale,
    70 => Fenced, 71 => GateMismatch, 72 => LedgerUnreadable,
});

wire_enum!(Fault {
    0 => Malformed,
    1 => Unprovisioned,
    2 => Closed(why),
    3 => TooLong,
    4 => RequestTooOld { last },
    5 => RequestMisused,
    6 => Unknown,
    7 => Damaged(place),
    8 => Worn,
    9 => Unsupported,
});
