//! Answers as bytes, for replaying them: what was granted is granted again only while it is current.

use keyfence_core::attempt::{Assignment, AssignmentState, AttemptGrant, CloseLost, Done};
use keyfence_core::lease::{Granted, Kind, Lease, LeaseGrant, Released, Revoked};
use keyfence_core::mailbox::{Message, MessageGrant, MessageState, Settled};
use keyfence_core::refusal::Holder;
use keyfence_core::session::{Generation, Session, SessionGrant};
use keyfence_core::store::{Failure, Table};
use keyfence_core::{AttemptId, Decision, Incarnation, Name, ProcessId, Reason, Refusal, TimeMs, Token};

use super::describe::Describe as _;
use crate::error::Error;
use crate::message::{BatchAndNext, CompletedAndNext, Delivery};
use crate::store::check::{Decoder, Encoder};
use crate::store::step::SqliteStep;

/// What came of replaying: `None` when the bytes are not an answer of this kind.
type Replay<T> = Result<Option<Decision<T>>, Failure<Error>>;

/// An answer that can be kept.
pub(crate) trait Answer: Sized {
    fn encode(&self, answer: &mut Encoder);
    /// Reads what [`Answer::encode`] wrote, and asks the ledger whether it is still current.
    fn replay(step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self>;
}

/// Leaves a replay when the bytes are not an answer.
macro_rules! read {
    ($field:expr) => {
        match $field {
            Some(field) => field,
            None => return Ok(None),
        }
    };
}

fn name(answer: &mut Decoder<'_>) -> Option<Name> {
    Name::new(answer.text()?).ok()
}

fn token(answer: &mut Decoder<'_>) -> Option<Token> {
    Token::presented(answer.number()?)
}

fn time(answer: &mut Decoder<'_>) -> Option<TimeMs> {
    TimeMs::new(answer.number()?)
}

fn process(answer: &mut Decoder<'_>) -> Option<ProcessId> {
    answer.bytes()?.try_into().ok().map(ProcessId::from_bytes)
}

fn flag(answer: &mut Decoder<'_>) -> Option<bool> {
    match answer.number()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// A grant that says whether it is current.
trait Current: Sized {
    fn encode(&self, answer: &mut Encoder);
    fn decode(answer: &mut Decoder<'_>) -> Option<Self>;
    /// The refusal of a grant that is no longer current.
    fn superseded(&self, step: &mut SqliteStep<'_>) -> Result<Option<Refusal>, Failure<Error>>;
}

impl<K: Kind> Current for LeaseGrant<K>
where
    for<'c> SqliteStep<'c>: Table<Lease<K>, Error = Error>,
{
    fn encode(&self, answer: &mut Encoder) {
        self.describe(answer);
    }

    fn decode(answer: &mut Decoder<'_>) -> Option<Self> {
        Some(Self::presented(name(answer)?, process(answer)?, token(answer)?))
    }

    fn superseded(&self, step: &mut SqliteStep<'_>) -> Result<Option<Refusal>, Failure<Error>> {
        let lease: Option<Lease<K>> = step.get(self.name())?;
        let held = lease.as_ref().and_then(Lease::claim);
        Ok(match held {
            Some(held) if held.token == self.token() && held.process == self.process() => None,
            Some(held) => Some(
                Refusal::new(K::LOST)
                    .held_by(self.name(), Some(held.process), held.since, held.expiry)
                    .under(held.token),
            ),
            None => Some(Refusal::new(K::LOST)),
        })
    }
}

impl Current for AttemptGrant {
    fn encode(&self, answer: &mut Encoder) {
        self.describe(answer);
    }

    fn decode(answer: &mut Decoder<'_>) -> Option<Self> {
        Some(Self::presented(
            name(answer)?,
            AttemptId::from_bytes(answer.bytes()?.try_into().ok()?),
            token(answer)?,
        ))
    }

    fn superseded(&self, step: &mut SqliteStep<'_>) -> Result<Option<Refusal>, Failure<Error>> {
        let row: Option<Assignment> = step.get(self.assignment())?;
        let lost = Refusal::new(Reason::ExecutionAttemptLost);
        let Some(row) = row else {
            return Ok(Some(lost));
        };
        Ok(match &row.state {
            AssignmentState::Running(attempt) if attempt.id == self.attempt() && attempt.token == self.token() => None,
            AssignmentState::Running(attempt) => Some(
                lost.held_by(&row.actor, Some(attempt.process), attempt.since, attempt.expiry)
                    .under(attempt.token),
            ),
            AssignmentState::Created { .. } | AssignmentState::Finished(_) | AssignmentState::Pruned => Some(lost),
        })
    }
}

impl Current for MessageGrant {
    fn encode(&self, answer: &mut Encoder) {
        self.describe(answer);
    }

    fn decode(answer: &mut Decoder<'_>) -> Option<Self> {
        Some(Self::presented(
            name(answer)?,
            name(answer)?,
            answer.opt(process)?,
            token(answer)?,
        ))
    }

    fn superseded(&self, step: &mut SqliteStep<'_>) -> Result<Option<Refusal>, Failure<Error>> {
        let row: Option<Message> = step.get(self.message())?;
        let Some(row) = row else {
            return Ok(Some(Refusal::new(Reason::MessageMissing)));
        };
        Ok(match &row.state {
            MessageState::Claimed(claimed) if claimed.token == self.token() && claimed.process == self.process() => {
                None
            }
            MessageState::Claimed(claimed) => Some(Refusal::new(Reason::FencingTokenStale).held_by(
                &row.recipient,
                claimed.process,
                claimed.since,
                claimed.expiry,
            )),
            MessageState::New(_) => Some(Refusal::new(Reason::FencingTokenStale)),
            MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => {
                Some(Refusal::new(Reason::MessageFinished))
            }
        })
    }
}

impl Current for SessionGrant {
    fn encode(&self, answer: &mut Encoder) {
        self.describe(answer);
    }

    fn decode(answer: &mut Decoder<'_>) -> Option<Self> {
        let session = name(answer)?;
        let generation = Generation {
            host: name(answer)?,
            incarnation: Incarnation::presented(answer.number()?)?,
            token: token(answer)?,
            host_token: token(answer)?,
        };
        Some(Self::presented(session, generation))
    }

    fn superseded(&self, step: &mut SqliteStep<'_>) -> Result<Option<Refusal>, Failure<Error>> {
        let row: Option<Session> = step.get(self.session())?;
        let stale = Refusal::new(Reason::SessionClaimStale);
        Ok(match row.as_ref().and_then(Session::claim) {
            Some(claim) if claim.generation == *self.generation() => None,
            Some(claim) => Some(
                stale
                    .held_by(&claim.generation.host, Some(claim.process), claim.since, claim.expiry)
                    .under(claim.generation.token),
            ),
            None => Some(stale),
        })
    }
}

fn encode_granted<G: Current>(granted: &Granted<G>, answer: &mut Encoder) {
    granted.grant.encode(answer);
    answer.number(granted.expires_at.as_ms());
    answer.number(u64::from(granted.renewed));
}

fn decode_granted<G: Current>(answer: &mut Decoder<'_>) -> Option<Granted<G>> {
    Some(Granted {
        grant: G::decode(answer)?,
        expires_at: time(answer)?,
        renewed: flag(answer)?,
    })
}

impl<G: Current> Answer for Granted<G> {
    fn encode(&self, answer: &mut Encoder) {
        encode_granted(self, answer);
    }

    fn replay(step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
        let granted: Self = read!(decode_granted(answer));
        Ok(Some(match granted.grant.superseded(step)? {
            None => Ok(granted),
            Some(refusal) => Err(refusal),
        }))
    }
}

/// The texts are read again: they never change while the claim is current.
impl Answer for Delivery {
    fn encode(&self, answer: &mut Encoder) {
        encode_granted(&self.granted, answer);
    }

    fn replay(step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
        let granted: Granted<MessageGrant> = read!(decode_granted(answer));
        Ok(Some(match granted.grant.superseded(step)? {
            None => Ok(step.delivery(granted)?),
            Some(refusal) => Err(refusal),
        }))
    }
}

/// Of several deliveries those that are still current are granted again; a refusal, when none is.
impl Answer for Vec<Delivery> {
    fn encode(&self, answer: &mut Encoder) {
        answer.number(self.len() as u64);
        for delivery in self {
            delivery.encode(answer);
        }
    }

    fn replay(step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
        let mut current = Self::new();
        let mut superseded = None;
        for _ in 0..read!(answer.number()) {
            match read!(Delivery::replay(step, answer)?) {
                Ok(delivery) => current.push(delivery),
                Err(refusal) => superseded = Some(refusal),
            }
        }
        Ok(Some(match superseded {
            Some(refusal) if current.is_empty() => Err(refusal),
            Some(_) | None => Ok(current),
        }))
    }
}

/// Answers that stay true whatever happened since: numbered from 0.
macro_rules! lasting {
    ($($type:ty { $($value:pat => $number:literal => $read:expr,)+ })+) => {$(
        impl Answer for $type {
            fn encode(&self, answer: &mut Encoder) {
                answer.number(match self { $($value => $number,)+ });
            }

            fn replay(_step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
                Ok(match read!(answer.number()) {
                    $($number => Some(Ok($read)),)+
                    _ => None,
                })
            }
        }
    )+};
}

lasting! {
    Done {
        Self::Now => 0 => Self::Now,
        Self::Already => 1 => Self::Already,
    }
    Released {
        Self::Now => 0 => Self::Now,
        Self::Already => 1 => Self::Already,
        Self::NotHeld => 2 => Self::NotHeld,
    }
    CloseLost {
        Self::Closed => 0 => Self::Closed,
        Self::Live => 1 => Self::Live,
        Self::NotRunning => 2 => Self::NotRunning,
    }
    Settled {
        Self { done: Done::Now, dead: false } => 0 => Self { done: Done::Now, dead: false },
        Self { done: Done::Now, dead: true } => 1 => Self { done: Done::Now, dead: true },
        Self { done: Done::Already, dead: false } => 2 => Self { done: Done::Already, dead: false },
        Self { done: Done::Already, dead: true } => 3 => Self { done: Done::Already, dead: true },
    }
}

impl Answer for Token {
    fn encode(&self, answer: &mut Encoder) {
        answer.number(self.get());
    }

    fn replay(_step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
        Ok(token(answer).map(Ok))
    }
}

impl Answer for Revoked {
    fn encode(&self, answer: &mut Encoder) {
        let claim = match self {
            Self::Claim(holder, token) => Some((holder, token)),
            Self::Nothing => None,
        };
        answer.opt(claim, |answer, (holder, token)| {
            (&holder.name, holder.process, token).describe(answer);
        });
    }

    fn replay(_step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
        let claim = read!(answer.opt(|answer| {
            let holder = Holder {
                name: name(answer)?,
                process: answer.opt(process)?,
            };
            Some(Self::Claim(holder, token(answer)?))
        }));
        Ok(Some(Ok(claim.unwrap_or(Self::Nothing))))
    }
}

impl Answer for (Name, Done) {
    fn encode(&self, answer: &mut Encoder) {
        self.0.describe(answer);
        self.1.encode(answer);
    }

    fn replay(step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
        let id = read!(name(answer));
        Ok(match Done::replay(step, answer)? {
            Some(Ok(done)) => Some(Ok((id, done))),
            Some(Err(refusal)) => Some(Err(refusal)),
            None => None,
        })
    }
}

/// A decision inside a batch. A refusal is kept by its reason, without the evidence, which is of its moment.
impl<T: Answer> Answer for Decision<T> {
    fn encode(&self, answer: &mut Encoder) {
        match self {
            Ok(value) => {
                answer.number(0);
                value.encode(answer);
            }
            Err(refusal) => {
                answer.number(1);
                answer.text(refusal.reason.name());
                answer.number(u64::from(refusal.never_issued));
            }
        }
    }

    fn replay(step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
        match read!(answer.number()) {
            0 => Ok(T::replay(step, answer)?.map(Ok)),
            1 => {
                let word = read!(answer.text());
                let reason = read!(Reason::ALL.iter().copied().find(|reason| reason.name() == word));
                let never_issued = read!(flag(answer));
                Ok(Some(Ok(Err(Refusal {
                    never_issued,
                    ..Refusal::new(reason)
                }))))
            }
            _ => Ok(None),
        }
    }
}

impl Answer for Vec<Decision<Done>> {
    fn encode(&self, answer: &mut Encoder) {
        answer.number(self.len() as u64);
        for decision in self {
            decision.encode(answer);
        }
    }

    fn replay(step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
        let mut decisions = Self::new();
        for _ in 0..read!(answer.number()) {
            match read!(Decision::<Done>::replay(step, answer)?) {
                Ok(decision) => decisions.push(decision),
                Err(refusal) => return Ok(Some(Err(refusal))),
            }
        }
        Ok(Some(Ok(decisions)))
    }
}

/// The completion is told as it was; what was claimed next, as far as it is current.
impl Answer for CompletedAndNext {
    fn encode(&self, answer: &mut Encoder) {
        self.done.encode(answer);
        self.next.encode(answer);
    }

    fn replay(step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
        let done = read!(Done::replay(step, answer)?);
        let next = read!(Decision::<Vec<Delivery>>::replay(step, answer)?);
        Ok(Some(done.map(|done| Self {
            done,
            next: next.unwrap_or_else(Err),
        })))
    }
}

impl Answer for BatchAndNext {
    fn encode(&self, answer: &mut Encoder) {
        self.done.encode(answer);
        self.next.encode(answer);
    }

    fn replay(step: &mut SqliteStep<'_>, answer: &mut Decoder<'_>) -> Replay<Self> {
        let done = read!(Vec::<Decision<Done>>::replay(step, answer)?);
        let next = read!(Decision::<Vec<Delivery>>::replay(step, answer)?);
        Ok(Some(done.map(|done| Self {
            done,
            next: next.unwrap_or_else(Err),
        })))
    }
}
