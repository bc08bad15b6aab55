//! The execution attempt: which process works on an assignment, under which lease of its actor.
//!
//! * **A1. Descent.** An attempt stores the token of the actor lease it was acquired under. It is *live* while it is
//!   unexpired **and** the actor's row still carries that token.
//! * **A2.** [`acquire`] checks, in this order: the actor's lease, the assignment, its actor, its state, a live attempt.
//! * **A3.** [`finish`] is allowed iff the assignment is RUNNING, points at this attempt with this token, and the actor's row
//!   still carries the token the attempt descends from. Expiry alone does not refuse: a generation that nobody
//!   superseded is still the current one.
//! * **A4.** [`close_lost`] closes only an attempt that is not live, decided in the same step, never by a process id of the
//!   operating system.
//!
//! [`assignment`] has the rows.

pub mod assignment;

use crate::actor::{self, ActorLease};
use crate::counter;
use crate::event::{Event, EventKind};
use crate::lease::{Granted, Released, Revoked};
use crate::name::{AttemptId, Digest, Name, ProcessId};
use crate::refusal::{Decision, Holder, Reason, Refusal, granted};
use crate::store::{Failure, Query, Table, Transaction, wanted};
use crate::time::{Expiry, TimeMs, Ttl};
use crate::token::Token;

pub use assignment::{Assignment, AssignmentState, Attempt, AttemptGrant, Finished, FinishedBy, Outcome};

/// Asks for an assignment to be created.
#[derive(Clone, Debug)]
pub struct Create {
    /// Its id.
    pub id: Name,
    /// The actor that has to work on it.
    pub actor: Name,
    /// The assignment that it retries.
    pub retry_of: Option<Name>,
}

/// Asks for an attempt.
#[derive(Clone, Debug)]
pub struct Acquire {
    /// The assignment.
    pub assignment: Name,
    /// The actor that wants to work on it.
    pub actor: Name,
    /// The process that runs the work.
    pub process: ProcessId,
    /// The token of the actor's lease, from the grant of that lease.
    pub lease_token: Token,
    /// A fresh id for the attempt.
    pub attempt: AttemptId,
    /// For how long.
    pub ttl: Ttl,
}

/// Whether a call took effect now or had done so before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum Done {
    /// Now.
    Now,
    /// Before, by this very grant and with this very outcome; nothing was written.
    Already,
}

/// What [`close_lost`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum CloseLost {
    /// The attempt was not live: the assignment is now FAILED `worker_lost`.
    Closed,
    /// The attempt is live.
    Live,
    /// The assignment is not RUNNING, or not there.
    NotRunning,
}

/// Creates an assignment; the same one again is recognised.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::AssignmentExists`], [`Reason::AssignmentFinished`] (pruned), [`Reason::AssignmentMissing`] or
/// [`Reason::WrongActor`] (of the one it retries), [`Reason::Full`].
pub fn create<S: Table<Assignment>>(
    step: &mut S,
    ask: &Create,
    now: TimeMs,
) -> Result<Decision<Done>, Failure<S::Error>> {
    if let Some(existing) = step.get(&ask.id)? {
        return Ok(if existing.state == AssignmentState::Pruned {
            Err(Refusal::new(Reason::AssignmentFinished))
        } else if existing.actor == ask.actor && existing.retry_of == ask.retry_of {
            Ok(Done::Already)
        } else {
            Err(Refusal::new(Reason::AssignmentExists))
        });
    }
    if let Some(retried) = &ask.retry_of {
        match step.get(retried)? {
            None => return Ok(Err(Refusal::new(Reason::AssignmentMissing))),
            // A pruned one has only its name left.
            Some(retried) if retried.state != AssignmentState::Pruned && retried.actor != ask.actor => {
                return Ok(Err(Refusal::new(Reason::WrongActor)));
            }
            Some(_) => {}
        }
    }
    granted!(step.room_for(&ask.id)?);
    let assignment = Assignment {
        id: ask.id.clone(),
        actor: ask.actor.clone(),
        retry_of: ask.retry_of.clone(),
        state: AssignmentState::Created { released: None },
    };
    step.put(None, &assignment)?;
    step.append(&Event {
        holder: Some(Holder {
            name: ask.actor.clone(),
            process: None,
        }),
        refers_to: ask.retry_of.clone(),
        ..Event::new(now, EventKind::AssignmentCreated, &ask.id)
    })?;
    Ok(Ok(Done::Now))
}

/// Whether an attempt is live (A1).
fn is_live<S: Table<ActorLease>>(
    step: &mut S,
    actor: &Name,
    attempt: &Attempt,
    now: TimeMs,
) -> Result<bool, Failure<S::Error>> {
    Ok(attempt.expiry.is_live(now) && actor::carrying(step, actor, attempt.lease_token)?.is_some())
}

/// Acquires an attempt, strictly (A2). An older attempt that is no longer live is replaced.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::ActorLeaseLost`], [`Reason::AssignmentMissing`], [`Reason::WrongActor`],
/// [`Reason::AssignmentFinished`], [`Reason::ExecutionAttemptHeld`] or [`Reason::TokenExhausted`].
pub fn acquire<S: Table<Assignment> + Table<ActorLease>>(
    step: &mut S,
    ask: &Acquire,
    now: TimeMs,
) -> Result<Decision<Granted<AttemptGrant>>, Failure<<S as Transaction>::Error>> {
    granted!(actor::check_current(
        step,
        &ask.actor,
        Some(ask.process),
        ask.lease_token,
        now
    )?);
    let Some(before): Option<Assignment> = step.get(&ask.assignment)? else {
        return Ok(Err(Refusal::new(Reason::AssignmentMissing)));
    };
    if before.state != AssignmentState::Pruned && before.actor != ask.actor {
        return Ok(Err(Refusal::new(Reason::WrongActor)));
    }
    let older = match &before.state {
        AssignmentState::Created { .. } => None,
        AssignmentState::Running(attempt) => Some(attempt),
        AssignmentState::Finished(_) | AssignmentState::Pruned => {
            return Ok(Err(Refusal::new(Reason::AssignmentFinished)));
        }
    };
    if let Some(attempt) = older
        && is_live(step, &before.actor, attempt, now)?
    {
        return Ok(Err(before.refusal(Reason::ExecutionAttemptHeld)));
    }
    let token = granted!(counter::mint(step)?);
    let expires_at = now.after(ask.ttl);
    let attempt = Attempt {
        id: ask.attempt,
        token,
        process: ask.process,
        lease_token: ask.lease_token,
        since: now,
        expiry: Expiry::At(expires_at),
    };
    step.put(Some(&before), &before.with(AssignmentState::Running(attempt)))?;
    step.append(&Event {
        holder: Some(before.holder(&attempt)),
        token: Some(token),
        parent_token: Some(ask.lease_token),
        expires_at: Some(expires_at),
        attempt: Some(ask.attempt),
        replaced: older.map(|older| before.replaced(older)),
        ..Event::new(now, EventKind::AttemptAcquired, &ask.assignment)
    })?;
    let grant = AttemptGrant::presented(ask.assignment.clone(), ask.attempt, token);
    Ok(Ok(Granted {
        grant,
        expires_at,
        renewed: false,
    }))
}

/// The assignment if it is RUNNING under exactly this attempt and token; otherwise the recorded refusal.
fn current<S: Table<Assignment>>(
    step: &mut S,
    grant: &AttemptGrant,
    now: TimeMs,
) -> Result<Decision<(Assignment, Attempt)>, Failure<S::Error>> {
    let Some(assignment): Option<Assignment> = step.get(grant.assignment())? else {
        let refusal = Refusal::new(Reason::AssignmentMissing);
        return Ok(Err(refuse(step, grant, refusal, now)?));
    };
    match assignment.running().copied() {
        Some(attempt) if grant.names(&attempt) => Ok(Ok((assignment, attempt))),
        Some(_) | None => Ok(Err(refuse(
            step,
            grant,
            assignment.refusal(Reason::ExecutionAttemptLost),
            now,
        )?)),
    }
}

/// The refusal of a call that presented `grant`, recorded.
fn refuse<S: Transaction>(
    step: &mut S,
    grant: &AttemptGrant,
    refusal: Refusal,
    now: TimeMs,
) -> Result<Refusal, Failure<S::Error>> {
    counter::refuse(step, refusal, grant.assignment(), grant.token(), now)
}

/// Moves the expiry of a live attempt under a live lease to `max(old, now + ttl)`; leaves no event.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::AssignmentMissing`], [`Reason::ExecutionAttemptLost`] or [`Reason::ActorLeaseLost`].
pub fn renew<S: Table<Assignment> + Table<ActorLease>>(
    step: &mut S,
    grant: &AttemptGrant,
    ttl: Ttl,
    now: TimeMs,
) -> Result<Decision<Granted<AttemptGrant>>, Failure<<S as Transaction>::Error>> {
    let (before, attempt) = granted!(current(step, grant, now)?);
    let lease = actor::carrying(step, &before.actor, attempt.lease_token)?;
    if !lease.is_some_and(|lease| lease.expiry.is_live(now)) {
        let refusal = actor::lost(step, &before.actor)?;
        return Ok(Err(refuse(step, grant, refusal, now)?));
    }
    if !attempt.expiry.is_live(now) {
        let refusal = before.refusal(Reason::ExecutionAttemptLost);
        return Ok(Err(refuse(step, grant, refusal, now)?));
    }
    let expires_at = attempt.expiry.renewed(now, ttl);
    let renewed = Attempt {
        expiry: Expiry::At(expires_at),
        ..attempt
    };
    step.put(Some(&before), &before.with(AssignmentState::Running(renewed)))?;
    Ok(Ok(Granted {
        grant: grant.clone(),
        expires_at,
        renewed: true,
    }))
}

/// Finishes the assignment: the terminal write (A3). `result` is the digest of the bytes that the store keeps with it.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::AssignmentMissing`], [`Reason::ExecutionAttemptLost`] or [`Reason::ActorLeaseLost`];
/// then nothing of the result is written.
pub fn finish<S: Table<Assignment> + Table<ActorLease>>(
    step: &mut S,
    grant: &AttemptGrant,
    outcome: Outcome,
    result: Digest,
    now: TimeMs,
) -> Result<Decision<Done>, Failure<<S as Transaction>::Error>> {
    let finished = Finished {
        outcome,
        attempt: grant.attempt(),
        token: grant.token(),
        by: FinishedBy::Attempt(result),
    };
    let existing: Option<Assignment> = step.get(grant.assignment())?;
    if existing.is_some_and(|row| row.state == AssignmentState::Finished(finished)) {
        return Ok(Ok(Done::Already));
    }
    let (before, attempt) = granted!(current(step, grant, now)?);
    if actor::carrying(step, &before.actor, attempt.lease_token)?.is_none() {
        let refusal = actor::lost(step, &before.actor)?;
        return Ok(Err(refuse(step, grant, refusal, now)?));
    }
    step.put(Some(&before), &before.with(AssignmentState::Finished(finished)))?;
    step.append(&ended(&before, &attempt, outcome.event(), now))?;
    Ok(Ok(Done::Now))
}

/// The event of a holder that ends its own attempt.
fn ended(assignment: &Assignment, attempt: &Attempt, kind: EventKind, now: TimeMs) -> Event {
    Event {
        holder: Some(assignment.holder(attempt)),
        token: Some(attempt.token),
        parent_token: Some(attempt.lease_token),
        expires_at: attempt.expiry.time(),
        attempt: Some(attempt.id),
        ..Event::new(now, kind, &assignment.id)
    }
}

/// Gives the assignment back to CREATED, on exact attempt and token while the actor's row carries the token that the
/// attempt descends from. A stale grant changes nothing, is told so and is recorded.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn release<S: Table<Assignment> + Table<ActorLease>>(
    step: &mut S,
    grant: &AttemptGrant,
    now: TimeMs,
) -> Result<Decision<Released>, Failure<<S as Transaction>::Error>> {
    let not_held = |step: &mut S, reason| counter::not_held(step, reason, grant.assignment(), grant.token(), now);
    let Some(before): Option<Assignment> = step.get(grant.assignment())? else {
        return not_held(step, Reason::AssignmentMissing);
    };
    let released = Some((grant.attempt(), grant.token()));
    if before.state == (AssignmentState::Created { released }) {
        return Ok(Ok(Released::Already));
    }
    let Some(attempt) = before.running().copied().filter(|attempt| grant.names(attempt)) else {
        return not_held(step, Reason::ExecutionAttemptLost);
    };
    if actor::carrying(step, &before.actor, attempt.lease_token)?.is_none() {
        return not_held(step, Reason::ActorLeaseLost);
    }
    step.put(Some(&before), &before.with(AssignmentState::Created { released }))?;
    step.append(&ended(&before, &attempt, EventKind::AttemptReleased, now))?;
    Ok(Ok(Released::Now))
}

/// Closes the assignment as FAILED `worker_lost` if its attempt is not live (A4): the supervisor's call.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn close_lost<S: Table<Assignment> + Table<ActorLease>>(
    step: &mut S,
    assignment: &Name,
    now: TimeMs,
) -> Result<Decision<CloseLost>, Failure<<S as Transaction>::Error>> {
    let before: Option<Assignment> = step.get(assignment)?;
    let Some((before, attempt)) = before.and_then(|row| row.running().copied().map(|attempt| (row, attempt))) else {
        return Ok(Ok(CloseLost::NotRunning));
    };
    if is_live(step, &before.actor, &attempt, now)? {
        return Ok(Ok(CloseLost::Live));
    }
    let finished = Finished {
        outcome: Outcome::Failed,
        attempt: attempt.id,
        token: attempt.token,
        by: FinishedBy::WorkerLost,
    };
    step.put(Some(&before), &before.with(AssignmentState::Finished(finished)))?;
    step.append(&Event {
        attempt: Some(attempt.id),
        replaced: Some(before.replaced(&attempt)),
        ..Event::new(now, EventKind::AttemptWorkerLost, assignment)
    })?;
    Ok(Ok(CloseLost::Closed))
}

/// Closes up to `limit` assignments whose attempt is not live; each closed one goes to `sink`, and how many there were is
/// returned.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn close_all_lost<S: Table<Assignment> + Table<ActorLease>>(
    step: &mut S,
    limit: usize,
    now: TimeMs,
    mut sink: impl FnMut(&Name),
) -> Result<Decision<usize>, Failure<<S as Transaction>::Error>> {
    let mut closed = 0;
    while let Some(wanted) = wanted(limit, closed) {
        let batch = step.candidates(Query::LostAttempts, now, wanted)?;
        let mut moved = false;
        for assignment in &batch {
            if close_lost(step, assignment, now)? == Ok(CloseLost::Closed) {
                sink(assignment);
                closed += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    Ok(Ok(closed))
}

/// Clears the attempt by an operator's act: the assignment is CREATED again and the attempt's token is dead.
///
/// # Errors
/// [`Failure`]. Never refuses.
pub fn revoke<S: Table<Assignment>>(
    step: &mut S,
    assignment: &Name,
    now: TimeMs,
) -> Result<Decision<Revoked>, Failure<S::Error>> {
    let before: Option<Assignment> = step.get(assignment)?;
    let Some((before, attempt)) = before.and_then(|row| row.running().copied().map(|attempt| (row, attempt))) else {
        return Ok(Ok(Revoked::Nothing));
    };
    step.put(Some(&before), &before.with(AssignmentState::Created { released: None }))?;
    step.append(&Event {
        attempt: Some(attempt.id),
        replaced: Some(before.replaced(&attempt)),
        ..Event::new(now, EventKind::AttemptRevoked, assignment)
    })?;
    Ok(Ok(Revoked::Claim(before.holder(&attempt), attempt.token)))
}
