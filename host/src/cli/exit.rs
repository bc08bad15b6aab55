//! How a call ends: its exit status, and what it says when it did not get what it asked for.

use std::process::ExitCode;

use keyfence::GateError;
use keyfence::core::Refusal;
use keyfence::core::gate::Binding;
use keyfence::emulator::EmulatorError;
use keyfence::kiosk::KioskError;
use keyfence::kiosk::key_file::KeyFileError;
use keyfence::run::RunError;

use super::output::Unanswered;

/// The exit status. Scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Done or granted.
    Done,
    /// The store or the system failed, or the outcome is unknown.
    Failed,
    /// Wrong usage.
    Usage,
    /// Refused by the fence.
    Refused,
    /// A program's own.
    Program(u8),
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Done => Self::from(0),
            Status::Failed => Self::from(1),
            Status::Usage => Self::from(2),
            Status::Refused => Self::from(3),
            Status::Program(status) => Self::from(status),
        }
    }
}

/// What a subcommand's `run` answers: its status once it has printed its answer, or why it has none.
pub(crate) type Answered = Result<Status, Failure>;

/// Why a subcommand has no answer of its own. Printed in one place, as text or as JSON.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments are wrong in a way that only their combination shows.
    Usage(String),
    /// The fence refused; the text says what was asked for.
    Refused(Box<Refusal>, String),
    /// A gate refused: it belongs to another claim.
    Mismatch(Box<Mismatch>),
    /// The ledger failed, or the outcome is unknown.
    Ledger(keyfence::Error),
    /// A gate failed: nothing was admitted.
    Gate(GateError),
    /// A kiosk did not answer, or came to no decision.
    Kiosk(KioskError),
    /// The key file of a kiosk is of no use.
    KeyFile(KeyFileError),
    /// The emulator failed.
    Emulator(EmulatorError),
    /// A program could not be started: the status a shell would give, and why.
    NotStarted(u8, String),
    /// The system failed.
    System(anyhow::Error),
    /// Nobody reads the output any more.
    NobodyReads,
    /// The call was made, and its answer could not be written.
    Unanswered(std::io::Error),
}

/// What a gate is bound to, and what was presented to it.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) refusal: Refusal,
    pub(crate) asked: String,
    pub(crate) bound: Binding,
    pub(crate) presented: Binding,
}

impl From<keyfence::Error> for Failure {
    fn from(error: keyfence::Error) -> Self {
        if let keyfence::Error::Misuse { what } = error {
            Self::Usage(what)
        } else {
            Self::Ledger(error)
        }
    }
}

impl From<GateError> for Failure {
    fn from(error: GateError) -> Self {
        if matches!(error, GateError::Name { .. }) {
            Self::Usage(error.to_string())
        } else {
            Self::Gate(error)
        }
    }
}

impl From<KioskError> for Failure {
    fn from(error: KioskError) -> Self {
        if let KioskError::TooLong { .. } = error {
            Self::Usage(error.to_string())
        } else {
            Self::Kiosk(error)
        }
    }
}

impl From<KeyFileError> for Failure {
    fn from(error: KeyFileError) -> Self {
        Self::KeyFile(error)
    }
}

impl From<EmulatorError> for Failure {
    fn from(error: EmulatorError) -> Self {
        Self::Emulator(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<std::io::Error>() {
            Ok(error) => error.into(),
            Err(error) => Self::System(error),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::NobodyReads
        } else {
            Self::System(error.into())
        }
    }
}

impl From<Unanswered> for Failure {
    fn from(Unanswered(error): Unanswered) -> Self {
        Self::Unanswered(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Ledger(error) => Self::Ledger(error),
            RunError::NotStarted { ref source, .. } => Self::NotStarted(status_of_no_start(source), error.to_string()),
            RunError::Interrupted(signal) => Self::NotStarted(
                u8::try_from(128 + signal).unwrap_or(u8::MAX),
                format!("interrupted by signal {signal} before the start"),
            ),
            RunError::System(error) => Self::System(error.into()),
            error => Self::System(error.into()),
        }
    }
}

/// A program that is not there is 127, one that cannot be executed 126: what shells, `env` and `nohup` say.
pub(crate) fn status_of_no_start(source: &std::io::Error) -> u8 {
    if source.kind() == std::io::ErrorKind::NotFound {
        127
    } else {
        126
    }
}

/// Takes the value out of a decision, or leaves with the refusal.
pub(crate) fn decided<T>(decision: keyfence::core::Decision<T>, asked: impl FnOnce() -> String) -> Result<T, Failure> {
    decision.map_err(|refusal| Failure::Refused(Box::new(refusal), asked()))
}
