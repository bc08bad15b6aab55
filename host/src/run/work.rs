//! A closure under the fence: the same path as for a program, for work that is done in this process.

use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::Duration;

use keyfence_core::{Decision, Refusal, attempt};

use super::authority::{self, Taken};
use super::boot_clock;
use super::keeper::Leases;
use super::plan::{Authority, Ending, Plan, Report, RunError};
use crate::Ledger;

/// What the work can ask while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'a> {
    authority: &'a Authority,
    leases: &'a Leases,
}

impl Watch<'_> {
    /// What the work runs under.
    #[must_use]
    pub const fn authority(&self) -> &Authority {
        self.authority
    }

    /// How long the leases are certainly kept from now on; zero when they may have lapsed or a renewal was refused. Work
    /// that takes long looks here between its steps: nobody can stop it from outside.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.leases.refused() {
            Some(_) => Duration::ZERO,
            None => self.leases.expiry().saturating_sub(boot_clock::now()),
        }
    }

    /// The refusal of a renewal, when there was one.
    #[must_use]
    pub fn refused(&self) -> Option<Refusal> {
        self.leases.refused()
    }
}

/// Does `work` as an attempt at the plan's assignment: a fresh process identity, the strict lease, the attempt, the work
/// while both leases are renewed, the terminal write, and everything given back on every path.
///
/// `work` returns the state and the result to write. When the leases may have lapsed by then, FAILED `lease_lapsed` is
/// written instead, if nobody superseded this run. A panic of `work` is written as FAILED `panicked` and goes on.
///
/// # Errors
/// [`RunError`]; what had been taken was given back. A refusal before the start is the inner `Err`, and then too.
pub fn work(
    ledger: &Ledger,
    plan: &Plan,
    work: impl FnOnce(&Watch<'_>) -> (attempt::Outcome, Vec<u8>),
) -> Result<Decision<Report>, RunError> {
    let Taken { authority, leases } = match authority::take(ledger, plan)? {
        Ok(taken) => taken,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let worked = thread::scope(|scope| {
        scope.spawn(|| leases.keep(ledger, &authority.lease, &authority.attempt));
        let watch = Watch {
            authority: &authority,
            leases: &leases,
        };
        // The panic goes on below, when the authority is given back; nothing of the closure is looked at after it.
        let worked = panic::catch_unwind(AssertUnwindSafe(|| work(&watch)));
        leases.stop();
        worked
    });
    let ending = if boot_clock::now() >= leases.expiry() {
        Ending::Lapsed
    } else if leases.refused().is_some() {
        Ending::Superseded
    } else {
        Ending::Ended
    };
    let (outcome, result, panicked) = match (ending, worked) {
        (_, Err(panic)) => (attempt::Outcome::Failed, b"panicked".to_vec(), Some(panic)),
        (Ending::Ended | Ending::Interrupted(_), Ok((outcome, result))) => (outcome, result, None),
        (Ending::Lapsed | Ending::Superseded, Ok(_)) => (attempt::Outcome::Failed, b"lease_lapsed".to_vec(), None),
    };
    let written = authority::finish(ledger, &authority.attempt, outcome, &result);
    let released = authority::release_actor(ledger, &authority.lease);
    if let Some(panic) = panicked {
        panic::resume_unwind(panic);
    }
    Ok(Ok(Report {
        authority,
        ending,
        program: None,
        outcome,
        result,
        written,
        released,
    }))
}
