//! What a host asks of a kiosk.

use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::attempt::{self, AttemptGrant, Outcome};
use keyfence_core::gate::{Admit, Binding, ClaimKind, LedgerCounter};
use keyfence_core::host::{HostGrant, Proof, Register};
use keyfence_core::lease::LeaseGrant;
use keyfence_core::mailbox::{Claim, ClaimNext, MessageGrant, Priority, Redrive};
use keyfence_core::session::{ClaimSession, Generation, SessionGrant};
use keyfence_core::store::Place;
use keyfence_core::{Digest, Incarnation, Name, TimeMs, Token, Ttl};
use sha2::{Digest as _, Sha256};

use super::wire::{self, In, Out, Wire, wire_enum, wire_struct, wire_words};
use crate::journal::Checkpoint;
use crate::store::{BODY_BYTES_MAX, CLIENTS, ContentKind, SUBJECT_BYTES_MAX};

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 8;

/// A result, a reason or a body: what a kiosk keeps of one.
pub type Bytes = heapless::Vec<u8, BODY_BYTES_MAX>;

/// Names one call, so that sending it again cannot do it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    client: u8,
    number: u32,
}

impl RequestId {
    /// The `number`th call of one of the kiosk's [`CLIENTS`] clients; `None` for a client that is none. Numbers of a
    /// client grow, and one call of a client is under way at a time.
    #[must_use]
    pub const fn new(client: u8, number: u32) -> Option<Self> {
        if (client as usize) < CLIENTS {
            Some(Self { client, number })
        } else {
            None
        }
    }

    /// Which client, from 0.
    #[must_use]
    pub const fn client(self) -> u8 {
        self.client
    }

    /// Which of its calls.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }
}

/// A message as its sender gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Its id: the same id with the same content is one message.
    pub id: Name,
    /// Who sends it.
    pub sender: Option<Name>,
    /// Who may claim it.
    pub recipient: Name,
    /// What it is about.
    pub subject: heapless::String<SUBJECT_BYTES_MAX>,
    /// What it says.
    pub body: Bytes,
    /// How urgent it is.
    pub priority: Priority,
    /// Before which moment of the kiosk's clock it is not delivered.
    pub not_before: Option<TimeMs>,
    /// How many retries it has.
    pub retries_max: u16,
}

/// What a host asks. The asks and grants are those of the core's machines; a moment is one of the kiosk's clock.
#[derive(Clone, Debug)]
pub enum Request {
    /// How things stand.
    Info,
    /// The number of the last call of a client that was answered under a request id.
    LastNumber(u8),
    /// A row as it stands.
    Row(Place, Name),
    /// The bytes kept for a row.
    Content(Place, Name, ContentKind),
    /// The checkpoint that the kiosk keeps.
    Checkpoint,
    /// A piece of the journal's region from this offset on; nothing outside of the region.
    Dump(u32),
    /// Keep this checkpoint.
    StoreCheckpoint(Checkpoint),
    /// [`counter::mint_for`](keyfence_core::counter::mint_for).
    Mint(Name),
    /// [`actor::acquire`].
    ActorAcquire(actor::Acquire),
    /// [`actor::acquire_or_renew`].
    ActorAcquireOrRenew(actor::Acquire),
    /// [`actor::renew`].
    ActorRenew(ActorGrant, Ttl),
    /// [`actor::release`].
    ActorRelease(ActorGrant),
    /// [`attempt::create`].
    AssignmentCreate(attempt::Create),
    /// [`attempt::acquire`].
    AttemptAcquire(attempt::Acquire),
    /// [`attempt::renew`].
    AttemptRenew(AttemptGrant, Ttl),
    /// [`attempt::release`].
    AttemptRelease(AttemptGrant),
    /// [`attempt::finish`], with the result.
    AttemptFinish(AttemptGrant, Outcome, Bytes),
    /// [`attempt::close_lost`].
    AttemptCloseLost(Name),
    /// [`attempt::close_all_lost`], one a call.
    AttemptCloseNextLost,
    /// [`mailbox::send`](keyfence_core::mailbox::send).
    MessageSend(Letter),
    /// [`mailbox::claim`](keyfence_core::mailbox::claim).
    MessageClaim(Claim),
    /// [`mailbox::claim_next`](keyfence_core::mailbox::claim_next), one a call.
    MessageClaimNext(ClaimNext),
    /// [`mailbox::sweep`](keyfence_core::mailbox::sweep).
    MessageSweep(Option<Name>, u16),
    /// [`mailbox::extend`](keyfence_core::mailbox::extend).
    MessageExtend(MessageGrant, Ttl),
    /// [`mailbox::give_back`](keyfence_core::mailbox::give_back).
    MessageGiveBack(MessageGrant),
    /// [`mailbox::retry`](keyfence_core::mailbox::retry), with the reason.
    MessageRetry(MessageGrant, Option<TimeMs>, Bytes),
    /// [`mailbox::complete`](keyfence_core::mailbox::complete), with the result.
    MessageComplete(MessageGrant, Bytes),
    /// [`mailbox::dead_letter`](keyfence_core::mailbox::dead_letter), with the reason.
    MessageDeadLetter(MessageGrant, Bytes),
    /// [`mailbox::dead_letter_new`](keyfence_core::mailbox::dead_letter_new).
    MessageDeadLetterNew(Name),
    /// [`mailbox::redrive`](keyfence_core::mailbox::redrive).
    MessageRedrive(Redrive),
    /// [`host::register`](keyfence_core::host::register).
    HostRegister(Register),
    /// [`host::renew`](keyfence_core::host::renew).
    HostRenew(HostGrant, Ttl),
    /// [`host::release`](keyfence_core::host::release).
    HostRelease(HostGrant),
    /// [`session::claim`](keyfence_core::session::claim).
    SessionClaim(ClaimSession),
    /// [`session::release`](keyfence_core::session::release).
    SessionRelease(SessionGrant),
    /// [`session::finish`](keyfence_core::session::finish), with the result.
    SessionFinish(SessionGrant, Bytes),
    /// [`gate::admit`](keyfence_core::gate::admit).
    GateAdmit(Admit),
    /// [`gate::rebind`](keyfence_core::gate::rebind).
    GateRebind(Name, Binding),
    /// The operator's revocation of a claim of this kind and name.
    Revoke(ClaimKind, Name),
    /// Drop finished rows.
    Prune,
    /// Lift the counter and the incarnations above these floors. Neither ever goes down.
    Lift(Option<Token>, Option<Incarnation>),
}

/// What sending a request a second time would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Nothing: it reads, or it moves an expiry to where it is already. Such a call costs no flash and needs no request
    /// id.
    Harmless,
    /// It might act twice, or be refused for what it did itself: only its request id tells.
    NeedsId,
}

impl Request {
    /// What sending it a second time would do.
    #[must_use]
    pub const fn repetition(&self) -> Repetition {
        match self {
            Self::Info
            | Self::LastNumber(_)
            | Self::Row(..)
            | Self::Content(..)
            | Self::Checkpoint
            | Self::Dump(_)
            | Self::ActorRenew(..)
            | Self::AttemptRenew(..)
            | Self::MessageExtend(..)
            | Self::HostRenew(..) => Repetition::Harmless,
            Self::StoreCheckpoint(_)
            | Self::Mint(_)
            | Self::ActorAcquire(_)
            | Self::ActorAcquireOrRenew(_)
            | Self::ActorRelease(_)
            | Self::AssignmentCreate(_)
            | Self::AttemptAcquire(_)
            | Self::AttemptRelease(_)
            | Self::AttemptFinish(..)
            | Self::AttemptCloseLost(_)
            | Self::AttemptCloseNextLost
            | Self::MessageSend(_)
            | Self::MessageClaim(_)
            | Self::MessageClaimNext(_)
            | Self::MessageSweep(..)
            | Self::MessageGiveBack(_)
            | Self::MessageRetry(..)
            | Self::MessageComplete(..)
            | Self::MessageDeadLetter(..)
            | Self::MessageDeadLetterNew(_)
            | Self::MessageRedrive(_)
            | Self::HostRegister(_)
            | Self::HostRelease(_)
            | Self::SessionClaim(_)
            | Self::SessionRelease(_)
            | Self::SessionFinish(..)
            | Self::GateAdmit(_)
            | Self::GateRebind(..)
            | Self::Revoke(..)
            | Self::Prune
            | Self::Lift(..) => Repetition::NeedsId,
        }
    }
}

/// A request and its id.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name, for a request that must not be done twice.
    pub id: Option<RequestId>,
    /// What is asked.
    pub request: Request,
    fingerprint: [u8; FINGERPRINT_BYTES],
}

impl Call {
    /// A call to be sent.
    #[must_use]
    pub const fn new(id: Option<RequestId>, request: Request) -> Self {
        Self {
            id,
            request,
            fingerprint: [0; FINGERPRINT_BYTES],
        }
    }

    /// Of a call that was received under a request id: the first bytes of the SHA-256 of its request, to tell another
    /// call under the same id. Zeros otherwise.
    #[must_use]
    pub const fn fingerprint(&self) -> [u8; FINGERPRINT_BYTES] {
        self.fingerprint
    }

    pub(super) fn encode(&self, bytes: &mut [u8]) -> Option<usize> {
        let mut out = Out::new(bytes);
        out.array(2);
        self.id.put(&mut out);
        self.request.put(&mut out);
        out.finish()
    }

    #[inline(never)] // its buffers are not to lie on the caller's stack, nor its code in it
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = In::new(bytes);
        from.array_of(2)?;
        let id = Wire::take(&mut from)?;
        let begin = from.position();
        let request = Request::take(&mut from)?;
        if !from.is_at_end() {
            return None;
        }
        let mut call = Self::new(id, request);
        if id.is_some() {
            let sum = Sha256::digest(bytes.get(begin..)?);
            call.fingerprint = *sum.first_chunk()?;
        }
        Some(call)
    }
}

/// The digest that a store keeps of a result or a reason: the first 16 bytes of its SHA-256, as on a PC.
#[must_use]
pub fn digest(bytes: &[u8]) -> Digest {
    shortened(Sha256::new_with_prefix(bytes))
}

fn shortened(sum: Sha256) -> Digest {
    Digest::from_bytes(sum.finalize().first_chunk().copied().unwrap_or_default())
}

impl Letter {
    /// The digest over everything that the sender chose but the id.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut sum = Sha256::new();
        let texts = [
            self.sender.as_ref().map_or("", Name::as_str).as_bytes(),
            self.recipient.as_str().as_bytes(),
            self.subject.as_bytes(),
            &self.body,
        ];
        for text in texts {
            sum.update((text.len() as u32).to_le_bytes());
            sum.update(text);
        }
        sum.update(self.priority.get().to_le_bytes());
        sum.update(self.not_before.map_or(u64::MAX, TimeMs::as_ms).to_le_bytes());
        sum.update(self.retries_max.to_le_bytes());
        shortened(sum)
    }
}

impl Wire for RequestId {
    fn put(&self, out: &mut Out<'_>) {
        out.array(2);
        self.client.put(out);
        self.number.put(out);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        from.array_of(2)?;
        Self::new(Wire::take(from)?, Wire::take(from)?)
    }
}

wire_enum!(Request {
    0 => Info,
    1 => LastNumber(client),
    2 => Row(place, name),
    3 => Content(place, name, kind),
    4 => Checkpoint,
    5 => Dump(offset),
    6 => StoreCheckpoint(checkpoint),
    7 => Mint(purpose),
    10 => ActorAcquire(ask),
    11 => ActorAcquireOrRenew(ask),
    12 => ActorRenew(grant, ttl),
    13 => ActorRelease(grant),
    20 => AssignmentCreate(ask),
    21 => AttemptAcquire(ask),
    22 => AttemptRenew(grant, ttl),
    23 => AttemptRelease(grant),
    24 => AttemptFinish(grant, outcome, result),
    25 => AttemptCloseLost(assignment),
    26 => AttemptCloseNextLost,
    30 => MessageSend(letter),
    31 => MessageClaim(ask),
    32 => MessageClaimNext(ask),
    33 => MessageSweep(recipient, limit),
    34 => MessageExtend(grant, ttl),
    35 => MessageGiveBack(grant),
    36 => MessageRetry(grant, not_before, reason),
    37 => MessageComplete(grant, result),
    38 => MessageDeadLetter(grant, reason),
    39 => MessageDeadLetterNew(message),
    40 => MessageRedrive(ask),
    50 => HostRegister(ask),
    51 => HostRenew(grant, ttl),
    52 => HostRelease(grant),
    60 => SessionClaim(ask),
    61 => SessionRelease(grant),
    62 => SessionFinish(grant, result),
    70 => GateAdmit(ask),
    71 => GateRebind(gate, binding),
    80 => Revoke(kind, name),
    81 => Prune,
    82 => Lift(counter, incarnation),
});

wire_words!(Place {
    0 => Counter, 1 => Actor, 2 => Assignment, 3 => Message, 4 => Host, 5 => Session, 6 => Gate, 7 => History,
});
wire_words!(ContentKind { 0 => Letter, 1 => Result });
wire_words!(ClaimKind { 0 => Actor, 1 => Attempt, 2 => Message, 3 => Host, 4 => Session });
wire_words!(Outcome { 0 => Completed, 1 => Blocked, 2 => Failed });
wire_enum!(Proof { 0 => Process, 1 => Bridge(token) });
wire_enum!(LedgerCounter { 0 => Read(last), 1 => Unreadable });

wire_struct!(Checkpoint { number, nonce });
wire_struct!(actor::Acquire { actor, process, ttl });
wire_struct!(attempt::Create { id, actor, retry_of });
wire_struct!(attempt::Acquire {
    assignment,
    actor,
    process,
    lease_token,
    attempt,
    ttl
});
wire_struct!(Letter {
    id,
    sender,
    recipient,
    subject,
    body,
    priority,
    not_before,
    retries_max
});
wire_struct!(Claim {
    message,
    owner,
    process,
    lease_token,
    ttl
});
wire_struct!(ClaimNext {
    owner,
    process,
    lease_token,
    ttl
});
wire_struct!(Redrive { dead, id });
wire_struct!(Register {
    host,
    process,
    proof,
    ttl
});
wire_struct!(ClaimSession { session, host, ttl });
wire_struct!(Generation {
    host,
    incarnation,
    token,
    host_token
});
wire_struct!(Binding { ledger, kind, name });
wire_struct!(Admit {
    gate,
    binding,
    token,
    counter
});

impl Wire for Priority {
    fn put(&self, out: &mut Out<'_>) {
        self.get().put(out);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        Self::new(i8::take(from)?.into())
    }
}

impl<K> Wire for LeaseGrant<K> {
    fn put(&self, out: &mut Out<'_>) {
        out.array(3);
        self.name().put(out);
        self.process().put(out);
        self.token().put(out);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        from.array_of(3)?;
        Some(Self::presented(Wire::take(from)?, Wire::take(from)?, Wire::take(from)?))
    }
}

impl Wire for AttemptGrant {
    fn put(&self, out: &mut Out<'_>) {
        out.array(3);
        self.assignment().put(out);
        self.attempt().put(out);
        self.token().put(out);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        from.array_of(3)?;
        Some(Self::presented(Wire::take(from)?, Wire::take(from)?, Wire::take(from)?))
    }
}

impl Wire for MessageGrant {
    fn put(&self, out: &mut Out<'_>) {
        out.array(4);
        self.message().put(out);
        self.owner().put(out);
        self.process().put(out);
        self.token().put(out);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        from.array_of(4)?;
        let (message, owner) = (Wire::take(from)?, Wire::take(from)?);
        Some(Self::presented(message, owner, Wire::take(from)?, Wire::take(from)?))
    }
}

impl Wire for SessionGrant {
    fn put(&self, out: &mut Out<'_>) {
        out.array(2);
        self.session().put(out);
        self.generation().put(out);
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        from.array_of(2)?;
        Some(Self::presented(Wire::take(from)?, Wire::take(from)?))
    }
}
