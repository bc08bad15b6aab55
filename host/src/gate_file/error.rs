//! Why a gate comes to no decision. A gate is no ledger: what is told is about the gate's file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, LockHolder};

/// Why a gate came to no decision. Nothing was admitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The file's name is no name for a gate.
    #[error("{} is no name for a gate: its file's name must have 1 to 64 bytes of UTF-8 without control characters", .path.display())]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// The gate's lock was not free in time: another program acts under it.
    #[error("the gate {} was busy for {} ms{}", .path.display(), .waited.as_millis(), held_by(.holder.as_ref()))]
    Busy {
        /// The gate.
        path: PathBuf,
        /// Who holds the lock, where it can be found.
        holder: Option<LockHolder>,
        /// How long the call waited.
        waited: Duration,
    },
    /// The gate is not as it was written: its mark is lost.
    #[error("the gate {} is damaged: it is not as it was written, so its mark is lost", .path.display())]
    Damaged {
        /// The gate.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{} is not a gate: {why}", .path.display())]
    NotAGate {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        why: &'static str,
    },
    /// The place or the system.
    #[error("the gate {}: {source}", .path.display())]
    Place {
        /// The gate.
        path: PathBuf,
        /// What is in the way.
        source: Error,
    },
}

fn held_by(holder: Option<&LockHolder>) -> String {
    holder.map(|holder| format!(", held by {holder}")).unwrap_or_default()
}

impl GateError {
    /// The stable name that scripts match on.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Name { .. } => "usage",
            Self::Busy { .. } => "busy",
            Self::Damaged { .. } => "damaged",
            Self::NotAGate { .. } => "not_a_gate",
            Self::Place { source, .. } => source.name(),
        }
    }

    /// What to do now.
    #[must_use]
    pub fn next(&self) -> String {
        match self {
            Self::Name { .. } => "choose a shorter name for the gate's file".into(),
            Self::Busy {
                holder: Some(holder), ..
            } => format!("wait and ask again; if {holder} is stopped, resume it or end it"),
            Self::Busy { holder: None, .. } => "wait and ask again, or ask with a longer time-out".into(),
            Self::Damaged { path } => format!(
                "stop whoever may hold an older token; take a fresh claim; then `keyfence gate rebind {0} --for KIND:NAME` \
                 and at once `keyfence gate admit {0}` with the fresh token, so that all older ones are refused again",
                path.display()
            ),
            Self::NotAGate { .. } => "check the path; keyfence did not touch this file".into(),
            Self::Place { source, .. } => source.next(),
        }
    }

    pub(super) fn place(path: &Path, source: Error) -> Self {
        Self::Place {
            path: path.to_owned(),
            source,
        }
    }
}
