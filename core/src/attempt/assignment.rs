//! An assignment's row: one struct a state, and the grant that is compared with it.

use crate::event::{EventKind, Replaced};
use crate::name::{AttemptId, Digest, Name, ProcessId};
use crate::refusal::{Holder, Reason, Refusal};
use crate::store::{Place, Record};
use crate::time::{Expiry, TimeMs};
use crate::token::Token;

/// A row of an assignment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Assignment {
    /// Its id.
    pub id: Name,
    /// The actor that has to work on it.
    pub actor: Name,
    /// The assignment that it retries.
    pub retry_of: Option<Name>,
    /// Where it stands.
    pub state: AssignmentState,
}

/// Where an assignment stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum AssignmentState {
    /// CREATED: nobody works on it.
    Created {
        /// The attempt that gave it back, so that a repeated release is recognised.
        released: Option<(AttemptId, Token)>,
    },
    /// RUNNING: this attempt works on it, live or not.
    Running(Attempt),
    /// COMPLETED, BLOCKED or FAILED: never left.
    Finished(Finished),
    /// Finished, and pruned: only its name is kept.
    Pruned,
}

/// The attempt that a RUNNING assignment points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Attempt {
    /// Its id.
    pub id: AttemptId,
    /// Its token.
    pub token: Token,
    /// The process that runs it.
    pub process: ProcessId,
    /// The token of the actor lease it descends from.
    pub lease_token: Token,
    /// Since when.
    pub since: TimeMs,
    /// Until when.
    pub expiry: Expiry,
}

/// How an assignment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Outcome {
    /// The work is done.
    Completed,
    /// The work cannot go on without somebody else.
    Blocked,
    /// The work failed.
    Failed,
}

impl Outcome {
    /// The state's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Blocked => "BLOCKED",
            Self::Failed => "FAILED",
        }
    }

    pub(crate) const fn event(self) -> EventKind {
        match self {
            Self::Completed => EventKind::AttemptCompleted,
            Self::Blocked => EventKind::AttemptBlocked,
            Self::Failed => EventKind::AttemptFailed,
        }
    }
}

/// The end of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// The attempt that it ended under.
    pub attempt: AttemptId,
    /// That attempt's token.
    pub token: Token,
    /// Who ended it.
    pub by: FinishedBy,
}

/// Who ended an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum FinishedBy {
    /// The attempt itself, with a result of this digest.
    Attempt(Digest),
    /// [`super::close_lost`]: FAILED `worker_lost`.
    WorkerLost,
}

impl Record for Assignment {
    const PLACE: Place = Place::Assignment;
    fn key(&self) -> &Name {
        &self.id
    }
}

impl Assignment {
    pub(crate) fn with(&self, state: AssignmentState) -> Self {
        Self { state, ..self.clone() }
    }

    pub(crate) fn holder(&self, attempt: &Attempt) -> Holder {
        Holder {
            name: self.actor.clone(),
            process: Some(attempt.process),
        }
    }

    pub(crate) fn replaced(&self, attempt: &Attempt) -> Replaced {
        Replaced {
            holder: self.holder(attempt),
            token: attempt.token,
            expiry: attempt.expiry,
        }
    }

    pub(crate) fn running(&self) -> Option<&Attempt> {
        match &self.state {
            AssignmentState::Running(attempt) => Some(attempt),
            AssignmentState::Created { .. } | AssignmentState::Finished(_) | AssignmentState::Pruned => None,
        }
    }

    pub(crate) fn refusal(&self, reason: Reason) -> Refusal {
        let refusal = Refusal::new(reason);
        match self.running() {
            Some(attempt) => refusal
                .held_by(&self.actor, Some(attempt.process), attempt.since, attempt.expiry)
                .under(attempt.token),
            None => refusal,
        }
    }
}

/// What an issued claim on an assignment is named by. Made only by a claim, or decoded from one that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct AttemptGrant {
    assignment: Name,
    attempt: AttemptId,
    token: Token,
}

impl AttemptGrant {
    /// Decodes a grant from what an issued one was written down as. It confers nothing.
    #[must_use]
    pub const fn presented(assignment: Name, attempt: AttemptId, token: Token) -> Self {
        Self {
            assignment,
            attempt,
            token,
        }
    }

    /// The assignment.
    #[must_use]
    pub const fn assignment(&self) -> &Name {
        &self.assignment
    }

    /// The attempt.
    #[must_use]
    pub const fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// The fencing token.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn names(&self, attempt: &Attempt) -> bool {
        attempt.id == self.attempt && attempt.token == self.token
    }
}
