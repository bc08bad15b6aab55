//! What a run is asked for, and what it answers.

use std::io;
use std::time::Duration;

use keyfence_core::actor::{ActorGrant, Released};
use keyfence_core::attempt::{self, AttemptGrant, Done};
use keyfence_core::{Decision, Name, ProcessId, Ttl};

use super::child::Ended;
use crate::Error;

/// How long before the expiry the work is asked to end, unless the plan says otherwise.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(10);

/// What a run is asked for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The actor to work as.
    pub actor: Name,
    /// The assignment to work on; made when it does not exist.
    pub assignment: Name,
    /// The length of the actor's lease.
    pub ttl: Ttl,
    /// The length of the attempt.
    pub attempt_ttl: Ttl,
    /// How long before the expiry the work is asked to end; a third of the lease at most.
    pub grace: Duration,
    /// The exit status that means BLOCKED; no status does unless it is named.
    pub blocked_exit: Option<u8>,
}

impl Plan {
    /// A plan with the default lengths.
    #[must_use]
    pub const fn new(actor: Name, assignment: Name) -> Self {
        Self {
            actor,
            assignment,
            ttl: Ttl::ACTOR_LEASE,
            attempt_ttl: Ttl::ATTEMPT,
            grace: GRACE_DEFAULT,
            blocked_exit: None,
        }
    }
}

/// What the work runs under: a fresh process identity, the actor's lease and the attempt.
#[derive(Clone, Debug)]
pub struct Authority {
    /// The identity that this run drew.
    pub process: ProcessId,
    /// The actor's lease.
    pub lease: ActorGrant,
    /// The attempt.
    pub attempt: AttemptGrant,
}

/// Why the work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Ended,
    /// It was interrupted by this signal.
    Interrupted(i32),
    /// The leases could not be kept: it was stopped before they lapsed, or as soon as this process could act again.
    Lapsed,
    /// A renewal was refused: somebody else holds the claim, or an operator revoked it.
    Superseded,
}

/// What became of the terminal write.
#[derive(Debug)]
pub enum Written {
    /// The state is on the ledger.
    Committed(attempt::Outcome, Done),
    /// Somebody superseded this run: nothing of its result was written.
    Refused(keyfence_core::Refusal),
    /// The store failed, or whether it wrote is unknown; the supervisor closes the attempt when it has lapsed.
    Failed(Error),
}

/// How a run went whose work was started.
#[derive(Debug)]
pub struct Report {
    /// What the work ran under.
    pub authority: Authority,
    /// Why it ended.
    pub ending: Ending,
    /// How the program ended; none where the work was no program, or was never begun.
    pub program: Option<Ended>,
    /// The state that was to be written.
    pub outcome: attempt::Outcome,
    /// The result that was to be written with it.
    pub result: Vec<u8>,
    /// What became of that.
    pub written: Written,
    /// Whether the actor's lease was given up; an error leaves it to lapse.
    pub released: Result<Decision<Released>, Error>,
}

impl Report {
    /// Whether the authority held to the end and the result is on the ledger.
    #[must_use]
    pub const fn is_canonical(&self) -> bool {
        match (&self.ending, &self.written) {
            (Ending::Ended | Ending::Interrupted(_), Written::Committed(..)) => true,
            (Ending::Ended | Ending::Interrupted(_), Written::Refused(_) | Written::Failed(_))
            | (Ending::Lapsed | Ending::Superseded, _) => false,
        }
    }
}

/// A run that was neither refused nor reported on. What it had taken was given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] Error),
    /// The program could not be started; the assignment is CREATED again.
    #[error("cannot start {program:?}: {source}")]
    NotStarted {
        /// The program.
        program: std::ffi::OsString,
        /// Why not.
        source: io::Error,
    },
    /// It was interrupted by this signal before the work was started.
    #[error("interrupted by signal {0} before the start")]
    Interrupted(i32),
    /// The system failed.
    #[error("the system failed: {0}")]
    System(#[from] io::Error),
}
