//! What can go wrong on the way to a kiosk, sorted by who has to act. A refusal is no error.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use keyfence_core::Decision;
use keyfence_firmware::link::{DeviceId, Fault, RequestId};

/// What a call to a kiosk ends with: granted, refused, or a [`KioskError`] (then nothing was decided, save for
/// [`KioskError::Unknown`]).
pub type KioskOutcome<T> = Result<Decision<T>, KioskError>;

/// Why a call to a kiosk came to no decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KioskError {
    /// There is no such port.
    #[error("there is no port at {}", .path.display())]
    PortMissing {
        /// Where.
        path: PathBuf,
    },
    /// Another program has the port open.
    #[error("the port {} is used by another program", .path.display())]
    PortBusy {
        /// Which port.
        path: PathBuf,
    },
    /// The port may not be opened by this user.
    #[error("the port {} may not be opened by this user", .path.display())]
    PortDenied {
        /// Which port.
        path: PathBuf,
    },
    /// The port failed, and did not come back by the call's deadline. Nothing was sent.
    #[error("the port failed: {0}")]
    Port(#[source] io::Error),
    /// Nothing that belongs to the call came back by its deadline. Nothing was done.
    #[error("the kiosk did not answer within {} ms", .waited.as_millis())]
    NoAnswer {
        /// How long the call waited.
        waited: Duration,
    },
    /// The call was sent and no answer to it came back: it may have been done.
    #[error("it may have been done: {cause}")]
    Unknown {
        /// Under which request id it was sent: asking again under it tells.
        id: Option<RequestId>,
        /// Why there is no answer.
        cause: Box<KioskError>,
    },
    /// What answers is another kiosk.
    #[error("this is {found}, not {expected}")]
    OtherDevice {
        /// Whom the key belongs to.
        expected: DeviceId,
        /// Who says hello.
        found: DeviceId,
    },
    /// The kiosk was never provisioned, or its provisioning was cut off.
    #[error("the kiosk was not provisioned")]
    Unprovisioned,
    /// A kiosk of this id is there and does not know the key.
    #[error("the kiosk {device} does not answer under the key that is known here")]
    NotItsKey {
        /// Who says hello.
        device: DeviceId,
    },
    /// The kiosk's image speaks another version of the link.
    #[error("the kiosk speaks version {theirs} of the link; this program speaks version {ours}")]
    OtherVersion {
        /// The kiosk's.
        theirs: u8,
        /// This program's.
        ours: u8,
    },
    /// The kiosk answered that it came to no decision. Nothing was done.
    #[error("{0}")]
    Kiosk(Fault),
    /// A name, a text or a result is longer than a kiosk keeps. Nothing was sent.
    #[error("{what} has at most {max} bytes on a kiosk")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// How long it may be.
        max: usize,
    },
    /// The client has used up its request numbers.
    #[error("client {client} of the kiosk has used up its request numbers")]
    NumbersExhausted {
        /// Which client.
        client: u8,
    },
    /// The kiosk's answer is none to what was asked: one of both ends is wrong.
    #[error("the kiosk's answer is none to what was asked")]
    Unexpected,
}

impl KioskError {
    /// The stable name: scripts match on it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PortMissing { .. } => "port_missing",
            Self::PortBusy { .. } => "port_busy",
            Self::PortDenied { .. } => "port_denied",
            Self::Port(_) => "port_failed",
            Self::NoAnswer { .. } => "no_answer",
            Self::Unknown { .. } => "unknown",
            Self::OtherDevice { .. } => "other_device",
            Self::Unprovisioned => "unprovisioned",
            Self::NotItsKey { .. } => "not_its_key",
            Self::OtherVersion { .. } => "other_version",
            Self::Kiosk(fault) => fault.name(),
            Self::TooLong { .. } => "too_long",
            Self::NumbersExhausted { .. } => "numbers_exhausted",
            Self::Unexpected => "unexpected_answer",
        }
    }

    /// What to do now.
    #[must_use]
    pub const fn next(&self) -> &'static str {
        match self {
            Self::PortMissing { .. } => "plug the kiosk in, or name another port",
            Self::PortBusy { .. } => "end the program that uses it: a kiosk has one host at a time",
            Self::PortDenied { .. } => "join the group that owns the port (often `dialout`), then log in again",
            Self::Port(_) => "check the cable, then ask again",
            Self::NoAnswer { .. } => "check that the kiosk runs and that this is its port, then ask again",
            Self::Unknown { .. } => "ask again under the same request id: the kiosk tells whether it was done",
            Self::OtherDevice { .. } => "name the kiosk that is plugged in, or plug in the one that is named",
            Self::Unprovisioned => "provision it",
            Self::NotItsKey { .. } => "use the key that it was provisioned with",
            Self::OtherVersion { .. } => {
                "flash the image that belongs to this program, or use the program of that image"
            }
            Self::Kiosk(fault) => match fault {
                Fault::Malformed | Fault::Unsupported => "flash the image that belongs to this program",
                Fault::Unprovisioned => "provision it",
                Fault::Closed(_) | Fault::Damaged(_) => "save a dump, then see what the kiosk says of itself",
                Fault::TooLong => "use a shorter name",
                Fault::RequestTooOld { .. } | Fault::RequestMisused => "ask under a new request id",
                Fault::Unknown => "ask again under the same request id: the kiosk tells whether it was done",
                Fault::Worn => "replace the kiosk",
            },
            Self::TooLong { .. } => "make it shorter",
            Self::NumbersExhausted { .. } => "use another client",
            Self::Unexpected => "flash the image that belongs to this program",
        }
    }

    /// Whether the call may have been done.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Kiosk(Fault::Unknown))
    }
}
