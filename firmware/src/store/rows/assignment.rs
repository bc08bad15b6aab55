//! Assignments and their attempts.

use keyfence_core::attempt::{Assignment, AssignmentState, Attempt, Finished, FinishedBy, Outcome};
use keyfence_core::{Expiry, Name, Token};

use super::{Outcomes, References, Row, read, read_head, read_reference, write_head, write_reference};
use crate::store::codec::{Reader, Writer};
use crate::store::keys::Kind;

impl Row for Assignment {
    const KIND: Kind = Kind::Assignment;

    fn write_fixed(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        write_reference(Kind::Actor, &self.actor, refs, out)?;
        out.name_or_none(self.retry_of.as_ref());
        Ok(())
    }

    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        match &self.state {
            AssignmentState::Created { released: None } => write_head(0, None, refs, out),
            AssignmentState::Created {
                released: Some((attempt, token)),
            } => {
                write_head(1, None, refs, out)?;
                out.bytes(attempt.as_bytes());
                out.number(token.get());
                Ok(())
            }
            AssignmentState::Running(attempt) => {
                write_head(2, Some(attempt.process), refs, out)?;
                out.bytes(attempt.id.as_bytes());
                out.number(attempt.token.get());
                out.number(attempt.lease_token.get());
                out.number(attempt.since.as_ms());
                Ok(())
            }
            AssignmentState::Finished(finished) => {
                let outcome = match finished.outcome {
                    Outcome::Completed => 3,
                    Outcome::Blocked => 4,
                    Outcome::Failed => 5,
                };
                write_head(outcome, None, refs, out)?;
                out.bytes(finished.attempt.as_bytes());
                out.number(finished.token.get());
                if let FinishedBy::Attempt(digest) = &finished.by {
                    out.bytes(digest.as_bytes());
                }
                Ok(())
            }
            AssignmentState::Pruned => write_head(6, None, refs, out),
        }
    }

    fn read(
        id: Name,
        mut fixed: Reader<'_>,
        mut state: Reader<'_>,
        refs: &mut impl References,
    ) -> Outcomes<Option<Self>> {
        let actor = read!(read_reference(Kind::Actor, &mut fixed, refs)?);
        let retry_of = fixed.name_or_none();
        let (tag, process) = read!(read_head(&mut state, refs)?);
        let read = match (tag, process) {
            (0, None) => AssignmentState::Created { released: None },
            (1, None) => AssignmentState::Created {
                released: Some((state.attempt(), state.token())),
            },
            (2, Some(process)) => AssignmentState::Running(Attempt {
                id: state.attempt(),
                token: state.token(),
                process,
                lease_token: state.token(),
                since: state.time(),
                expiry: Expiry::EarlierBoot,
            }),
            (3..=5, None) => AssignmentState::Finished(Finished {
                outcome: match tag {
                    3 => Outcome::Completed,
                    4 => Outcome::Blocked,
                    _ => Outcome::Failed,
                },
                attempt: state.attempt(),
                token: state.token(),
                by: if state.is_empty() {
                    FinishedBy::WorkerLost
                } else {
                    FinishedBy::Attempt(state.digest())
                },
            }),
            (6, None) => AssignmentState::Pruned,
            _ => return Ok(None),
        };
        let assignment = Self {
            id,
            actor,
            retry_of,
            state: read,
        };
        Ok(fixed.end(()).and(state.end(assignment)))
    }

    fn claim(&self) -> Option<(Token, Expiry)> {
        match &self.state {
            AssignmentState::Running(attempt) => Some((attempt.token, attempt.expiry)),
            AssignmentState::Created { .. } | AssignmentState::Finished(_) | AssignmentState::Pruned => None,
        }
    }

    fn expire(&mut self, expiry: Expiry) {
        if let AssignmentState::Running(attempt) = &mut self.state {
            attempt.expiry = expiry;
        }
    }
}
