//! Taking what a run needs, and giving it back on every path.
//!
//! The order is: the assignment, the actor's lease (strict), the attempt. So a second run of the same actor is refused
//! before its work starts, and its assignment is there, CREATED. What a later step fails to get, the earlier one gives back.

use std::time::Duration;

use keyfence_core::actor::{self, ActorGrant, Released};
use keyfence_core::attempt::{self, AttemptGrant};
use keyfence_core::{Decision, Name, ProcessId, Reason};

use super::boot_clock;
use super::keeper::Leases;
use super::plan::{Authority, Plan, RunError, Written};
use crate::{Call, Error, Ledger, Outcome, RequestId, fresh};

/// How long the last writes of a run are tried again while the ledger is busy or its answer unknown. They are the same
/// call with the same grant, so a repetition is recognised.
const LAST_WRITES: Duration = Duration::from_secs(30);

/// What was taken, and the leases that have to be kept.
pub(super) struct Taken {
    pub(super) authority: Authority,
    pub(super) leases: Leases,
}

/// Takes all that the work needs, or nothing.
pub(super) fn take(ledger: &Ledger, plan: &Plan) -> Result<Decision<Taken>, RunError> {
    let process = fresh::process();
    let create = attempt::Create {
        id: plan.assignment.clone(),
        actor: plan.actor.clone(),
        retry_of: None,
    };
    match settle(|| ledger.call().assignment_create(&create))? {
        Ok(_) => {}
        // It exists, as the retry of another or as another actor's: the attempt decides which.
        Err(refusal) if refusal.reason == Reason::AssignmentExists => {}
        Err(refusal) => return Ok(Err(refusal)),
    }

    let acquire = actor::Acquire {
        actor: plan.actor.clone(),
        process,
        ttl: plan.ttl,
    };
    let lease_sent = boot_clock::now();
    let request = fresh::request();
    let lease = settle(|| named(ledger.call(), &request, process).actor_acquire(&acquire))?;
    let lease = match lease {
        Ok(granted) => granted.grant,
        Err(refusal) => return Ok(Err(refusal)),
    };

    let acquire = attempt::Acquire {
        assignment: plan.assignment.clone(),
        actor: plan.actor.clone(),
        process,
        lease_token: lease.token(),
        attempt: fresh::attempt(),
        ttl: plan.attempt_ttl,
    };
    let attempt_sent = boot_clock::now();
    let request = fresh::request();
    let attempt = settle(|| named(ledger.call(), &request, process).attempt_acquire(&acquire));
    let attempt = match attempt {
        Ok(Ok(granted)) => granted.grant,
        Ok(Err(refusal)) => {
            let _ = release_actor(ledger, &lease);
            return Ok(Err(refusal));
        }
        Err(error) => {
            let _ = release_actor(ledger, &lease);
            return Err(error.into());
        }
    };

    let leases = Leases::new((plan.ttl, lease_sent), (plan.attempt_ttl, attempt_sent), plan.grace);
    let authority = Authority {
        process,
        lease,
        attempt,
    };
    match leases {
        Ok(leases) => Ok(Ok(Taken { authority, leases })),
        Err(error) => {
            give_back(ledger, &authority);
            Err(error.into())
        }
    }
}

/// Names a call, so that a lost answer can be asked for again.
fn named<'l>(call: Call<'l>, request: &RequestId, process: ProcessId) -> Call<'l> {
    match Name::new(&process.to_string()) {
        Ok(caller) => call.request(request.clone(), caller),
        // 37 bytes of ASCII are a name; without one the call would go unnamed, and no more.
        Err(_) => call,
    }
}

/// Makes a call, and once more if its outcome is unknown: it is one that recognises its repetition.
fn settle<T>(mut call: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    match call() {
        Err(Error::Unknown(_)) => call(),
        answer => answer,
    }
}

/// The work was not started: the assignment goes back to CREATED and the actor's lease is given up.
pub(super) fn give_back(ledger: &Ledger, authority: &Authority) {
    // Best effort: what cannot be given back lapses.
    let _ = settle(|| ledger.call().attempt_release(&authority.attempt));
    let _ = release_actor(ledger, &authority.lease);
}

/// The terminal write.
pub(super) fn finish(ledger: &Ledger, attempt: &AttemptGrant, outcome: attempt::Outcome, result: &[u8]) -> Written {
    match insist(|| ledger.call().attempt_finish(attempt, outcome, result)) {
        Ok(Ok(done)) => Written::Committed(outcome, done),
        Ok(Err(refusal)) => Written::Refused(refusal),
        Err(error) => Written::Failed(error),
    }
}

/// Gives the actor's lease up.
pub(super) fn release_actor(ledger: &Ledger, lease: &ActorGrant) -> Outcome<Released> {
    insist(|| ledger.call().actor_release(lease))
}

/// Repeats a call that was busy or has an unknown outcome; its repetition is recognised by the grant.
fn insist<T>(mut call: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    let until = boot_clock::now() + LAST_WRITES;
    loop {
        match call() {
            Err(Error::Busy { .. } | Error::Unknown(_)) if boot_clock::now() < until => {}
            answer => return answer,
        }
    }
}
