//! Each request as the core's machine decides it.

use embedded_storage::nor_flash::NorFlash;
use keyfence_core::actor;
use keyfence_core::attempt::{self, AttemptGrant, Done};
use keyfence_core::gate::{self, Admit, ClaimKind, LedgerCounter};
use keyfence_core::host;
use keyfence_core::lease::{Granted, LeaseGrant};
use keyfence_core::mailbox::{self, MessageGrant};
use keyfence_core::session;
use keyfence_core::store::{Failure, Place, Table, Transaction};
use keyfence_core::{Decision, LedgerId, Name, Reason, Refusal, TimeMs, counter};

use super::authority;
use super::board::Board;
use super::serve::{Outcome, Step};
use crate::journal::Policy;
use crate::link::{Answer, Bytes, Fault, Grant, Letter, Request, Row, digest};
use crate::store::Error;

/// Rows that one call sweeps at most: what it writes has to fit into one frame.
const SWEEP_MAX: usize = 4;
/// Decides a request in a step of the ledger `own`, and puts the answer into `out`: what is granted, or the refusal.
///
/// An answer can be half a kilobyte, and it passes six functions: it is written once, where it stays.
pub(super) fn decide<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    step: &mut Step<F, B, PAGES, P>,
    request: &Request,
    own: LedgerId,
    now: TimeMs,
    out: &mut Answer,
) -> Outcome<Verdict> {
    match request {
        Request::Row(place, name) => apart(|| {
            *out = row(step, *place, name)?.map_or(Answer::Failed(Fault::Unsupported), Answer::Row);
            Ok(Verdict::Granted)
        }),
        Request::Mint(purpose) => apart(|| told(out, counter::mint_for(step, purpose, now)?, Answer::Minted)),
        Request::ActorAcquire(ask) => apart(|| leased(out, actor::acquire(step, ask, now)?, now)),
        Request::ActorAcquireOrRenew(ask) => apart(|| leased(out, actor::acquire_or_renew(step, ask, now)?, now)),
        Request::ActorRenew(grant, ttl) => apart(|| leased(out, actor::renew(step, grant, *ttl, now)?, now)),
        Request::ActorRelease(grant) => apart(|| told(out, actor::release(step, grant, now)?, Answer::Released)),
        Request::AssignmentCreate(ask) => apart(|| told(out, attempt::create(step, ask, now)?, Answer::Done)),
        Request::AttemptAcquire(ask) => apart(|| attempted(out, attempt::acquire(step, ask, now)?, now)),
        Request::AttemptRenew(grant, ttl) => apart(|| attempted(out, attempt::renew(step, grant, *ttl, now)?, now)),
        Request::AttemptRelease(grant) => apart(|| told(out, attempt::release(step, grant, now)?, Answer::Released)),
        Request::AttemptFinish(grant, outcome, result) => apart(|| {
            let decision = attempt::finish(step, grant, *outcome, digest(result), now)?;
            finished(step, Place::Assignment, grant.assignment(), result, &decision)?;
            told(out, decision, Answer::Done)
        }),
        Request::AttemptCloseLost(assignment) => {
            apart(|| told(out, attempt::close_lost(step, assignment, now)?, Answer::Closed))
        }
        Request::AttemptCloseNextLost => apart(|| {
            *out = Answer::Nothing;
            let closed = |assignment: &Name| *out = Answer::ClosedNext(assignment.clone());
            let decision = attempt::close_all_lost(step, 1, now, closed)?;
            decided(out, decision.map(|_| ()))
        }),
        Request::MessageSend(letter) => apart(|| send(step, letter, now, out)),
        Request::MessageClaim(ask) => apart(|| delivered(out, mailbox::claim(step, ask, now)?, now)),
        Request::MessageClaimNext(ask) => apart(|| {
            *out = Answer::Nothing;
            let claimed = |granted: Granted<MessageGrant>| {
                *out = Answer::Granted(Grant {
                    message: Some(granted.grant.message().clone()),
                    ..Grant::of(&granted, granted.grant.token(), now)
                });
            };
            let decision = mailbox::claim_next(step, ask, 1, now, claimed)?;
            decided(out, decision.map(|_| ()))
        }),
        Request::MessageSweep(recipient, limit) => apart(|| {
            let limit = usize::from(*limit).min(SWEEP_MAX);
            let swept = mailbox::sweep(step, recipient.as_ref(), limit, now)?;
            told(out, swept, |swept| Answer::Count(swept as u32))
        }),
        Request::MessageExtend(grant, ttl) => apart(|| delivered(out, mailbox::extend(step, grant, *ttl, now)?, now)),
        Request::MessageGiveBack(grant) => apart(|| told(out, mailbox::give_back(step, grant, now)?, Answer::Settled)),
        Request::MessageRetry(grant, not_before, reason) => apart(|| {
            let decision = mailbox::retry(step, grant, *not_before, digest(reason), now)?;
            if let Ok(settled) = &decision
                && settled.done == Done::Now
                && settled.dead
            {
                step.keep_result(Place::Message, grant.message(), reason)?;
            }
            told(out, decision, Answer::Settled)
        }),
        Request::MessageComplete(grant, result) => apart(|| {
            let decision = mailbox::complete(step, grant, digest(result), now)?;
            finished(step, Place::Message, grant.message(), result, &decision)?;
            told(out, decision, Answer::Done)
        }),
        Request::MessageDeadLetter(grant, reason) => apart(|| {
            let decision = mailbox::dead_letter(step, grant, digest(reason), now)?;
            finished(step, Place::Message, grant.message(), reason, &decision)?;
            told(out, decision, Answer::Done)
        }),
        Request::MessageDeadLetterNew(message) => {
            apart(|| told(out, mailbox::dead_letter_new(step, message, now)?, Answer::Done))
        }
        Request::MessageRedrive(ask) => apart(|| {
            let redriven = mailbox::redrive(step, ask, now)?;
            told(out, redriven, |(id, done)| Answer::Redriven(id, done))
        }),
        Request::HostRegister(ask) => apart(|| leased(out, host::register(step, ask, now)?, now)),
        Request::HostRenew(grant, ttl) => apart(|| leased(out, host::renew(step, grant, *ttl, now)?, now)),
        Request::HostRelease(grant) => apart(|| told(out, host::release(step, grant, now)?, Answer::Released)),
        Request::SessionClaim(ask) => apart(|| {
            told(out, session::claim(step, ask, now)?, |granted| {
                Answer::Granted(Grant {
                    incarnation: Some(granted.grant.incarnation()),
                    ..Grant::of(&granted, granted.grant.token(), now)
                })
            })
        }),
        Request::SessionRelease(grant) => apart(|| told(out, session::release(step, grant, now)?, Answer::Released)),
        Request::SessionFinish(grant, result) => apart(|| {
            let decision = session::finish(step, grant, digest(result), now)?;
            finished(step, Place::Session, grant.session(), result, &decision)?;
            told(out, decision, Answer::Done)
        }),
        Request::GateAdmit(ask) => apart(|| {
            // What this ledger has minted it knows better than its caller.
            let counter = if ask.binding.ledger == own {
                LedgerCounter::Read(step.last_minted()?)
            } else {
                ask.counter
            };
            let ask = Admit { counter, ..ask.clone() };
            told(out, gate::admit(step, &ask, now)?, Answer::Admitted)
        }),
        Request::GateRebind(gate, binding) => {
            apart(|| told(out, gate::rebind(step, gate, binding, now)?, |()| Answer::Written))
        }
        Request::Revoke(kind, name) => apart(|| {
            let decision = match kind {
                ClaimKind::Actor => actor::revoke(step, name, now),
                ClaimKind::Attempt => attempt::revoke(step, name, now),
                ClaimKind::Message => mailbox::revoke(step, name, now),
                ClaimKind::Host => host::revoke(step, name, now),
                ClaimKind::Session => session::revoke(step, name, now),
            };
            told(out, decision?, Answer::Revoked)
        }),
        // No step of the ledger: served beside it.
        Request::Info
        | Request::LastNumber(_)
        | Request::Content(..)
        | Request::Checkpoint
        | Request::Dump(_)
        | Request::StoreCheckpoint(_)
        | Request::Prune
        | Request::Lift(..) => {
            *out = Answer::Failed(Fault::Unsupported);
            Ok(Verdict::Granted)
        }
    }
}

/// Whether the grant that answered `request` before is still in force; otherwise the answer is a refusal, by the reason that
/// presenting the grant would be refused for.
pub(super) fn check_current<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    step: &mut Step<F, B, PAGES, P>,
    request: &Request,
    now: TimeMs,
    out: &mut Answer,
) -> Outcome<Verdict> {
    let Answer::Granted(grant) = &*out else {
        return Ok(Verdict::Granted);
    };
    let (kind, name, reason) = match request {
        Request::ActorAcquire(ask) | Request::ActorAcquireOrRenew(ask) => {
            (ClaimKind::Actor, &ask.actor, Reason::ActorLeaseLost)
        }
        Request::HostRegister(ask) => (ClaimKind::Host, &ask.host, Reason::HostLeaseLost),
        Request::AttemptAcquire(ask) => (ClaimKind::Attempt, &ask.assignment, Reason::ExecutionAttemptLost),
        Request::MessageClaim(ask) => (ClaimKind::Message, &ask.message, Reason::FencingTokenStale),
        Request::MessageClaimNext(_) => match &grant.message {
            Some(message) => (ClaimKind::Message, message, Reason::FencingTokenStale),
            None => return Ok(Verdict::Granted),
        },
        Request::SessionClaim(ask) => (ClaimKind::Session, &ask.session, Reason::SessionClaimStale),
        Request::Info
        | Request::LastNumber(_)
        | Request::Row(..)
        | Request::Content(..)
        | Request::Checkpoint
        | Request::Dump(_)
        | Request::StoreCheckpoint(_)
        | Request::Mint(_)
        | Request::ActorRenew(..)
        | Request::ActorRelease(_)
        | Request::AssignmentCreate(_)
        | Request::AttemptRenew(..)
        | Request::AttemptRelease(_)
        | Request::AttemptFinish(..)
        | Request::AttemptCloseLost(_)
        | Request::AttemptCloseNextLost
        | Request::MessageSend(_)
        | Request::MessageSweep(..)
        | Request::MessageExtend(..)
        | Request::MessageGiveBack(_)
        | Request::MessageRetry(..)
        | Request::MessageComplete(..)
        | Request::MessageDeadLetter(..)
        | Request::MessageDeadLetterNew(_)
        | Request::MessageRedrive(_)
        | Request::HostRenew(..)
        | Request::HostRelease(_)
        | Request::SessionRelease(_)
        | Request::SessionFinish(..)
        | Request::GateAdmit(_)
        | Request::GateRebind(..)
        | Request::Revoke(..)
        | Request::Prune
        | Request::Lift(..) => return Ok(Verdict::Granted),
    };
    let live = authority::live(step, kind, name, now)?;
    Ok(match live {
        Some((current, _)) if current == grant.token => Verdict::Granted,
        Some(_) | None => refused(out, Refusal::new(reason)),
    })
}

/// Keeps a verb out of the function that knows them all: their variables would share one frame of the stack.
#[inline(never)]
pub(super) fn apart<T>(verb: impl FnOnce() -> T) -> T {
    verb()
}

/// What a machine decided; the words for it are in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Verdict {
    /// It is done.
    Granted,
    /// It is refused, and nothing of it is done.
    Refused(Reason),
}

/// Puts what a machine decided into words.
fn told<T>(out: &mut Answer, decision: Decision<T>, words: impl FnOnce(T) -> Answer) -> Outcome<Verdict> {
    match decision {
        Ok(value) => {
            *out = words(value);
            Ok(Verdict::Granted)
        }
        Err(refusal) => Ok(refused(out, refusal)),
    }
}

/// The same where the words for what was done are there already.
fn decided(out: &mut Answer, decision: Decision<()>) -> Outcome<Verdict> {
    match decision {
        Ok(()) => Ok(Verdict::Granted),
        Err(refusal) => Ok(refused(out, refusal)),
    }
}

#[inline(never)]
fn refused(out: &mut Answer, refusal: Refusal) -> Verdict {
    let verdict = Verdict::Refused(refusal.reason);
    *out = Answer::Refused(refusal);
    verdict
}

fn leased<K>(out: &mut Answer, decision: Decision<Granted<LeaseGrant<K>>>, now: TimeMs) -> Outcome<Verdict> {
    told(out, decision, |granted| {
        Answer::Granted(Grant::of(&granted, granted.grant.token(), now))
    })
}

fn attempted(out: &mut Answer, decision: Decision<Granted<AttemptGrant>>, now: TimeMs) -> Outcome<Verdict> {
    told(out, decision, |granted| {
        Answer::Granted(Grant::of(&granted, granted.grant.token(), now))
    })
}

fn delivered(out: &mut Answer, decision: Decision<Granted<MessageGrant>>, now: TimeMs) -> Outcome<Verdict> {
    told(out, decision, |granted| {
        Answer::Granted(Grant::of(&granted, granted.grant.token(), now))
    })
}

/// Keeps the result of a terminal write in the same step.
fn finished<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    step: &mut Step<F, B, PAGES, P>,
    place: Place,
    name: &Name,
    result: &Bytes,
    decision: &Decision<Done>,
) -> Outcome<()> {
    match decision {
        Ok(Done::Now) if !result.is_empty() => step.keep_result(place, name, result),
        Ok(Done::Now | Done::Already) | Err(_) => Ok(()),
    }
}

fn send<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    step: &mut Step<F, B, PAGES, P>,
    letter: &Letter,
    now: TimeMs,
    out: &mut Answer,
) -> Outcome<Verdict> {
    let ask = mailbox::Send {
        id: letter.id.clone(),
        sender: letter.sender.clone(),
        recipient: letter.recipient.clone(),
        content: letter.digest(),
        priority: letter.priority,
        not_before: letter.not_before,
        retries_max: letter.retries_max,
    };
    let decision = mailbox::send(step, &ask, now)?;
    if let Ok(Done::Now) = &decision {
        step.keep_letter(&letter.id, letter.subject.as_bytes(), &letter.body)?;
    }
    told(out, decision, Answer::Done)
}

/// A row as it stands; the outer `None` for what has no rows.
fn row<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    step: &mut Step<F, B, PAGES, P>,
    place: Place,
    name: &Name,
) -> Result<Option<Option<Row>>, Failure<Error>> {
    Ok(Some(match place {
        Place::Actor => step.get(name)?.map(Row::Actor),
        Place::Assignment => step.get(name)?.map(Row::Assignment),
        Place::Message => step.get(name)?.map(Row::Message),
        Place::Host => step.get(name)?.map(Row::Host),
        Place::Session => step.get(name)?.map(Row::Session),
        Place::Gate => step.get(name)?.map(Row::Gate),
        Place::Counter | Place::History => return Ok(None),
    }))
}
