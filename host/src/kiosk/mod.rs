//! A kiosk, over its link: the same machines as in the SQLite ledger, on a microcontroller's flash.
//!
//! [`KioskLink`] sends a call, sends it again when the line lost it, opens a new link session when the kiosk has started
//! again, and says what came of it. Its verbs are those of [`Call`](crate::Call), with a kiosk's bounds:
//! names up to 32 bytes, texts up to 64.
//!
//! * **K1.** A call that changes something goes out under a request id that is never used for another one. So the same
//!   call, sent again, is done once.
//! * **K2.** Three outcomes: an answer, an error after which nothing was done, or [`KioskError::Unknown`].
//! * **K3.** What a kiosk says without a seal (its [`Hello`]) is a hint: it makes the link look again, and explains why
//!   nothing works; it never decides anything.
//! * **K4.** A lease is timed from the first sending of the call that was granted it, on a clock that goes on during
//!   suspend: [`Leased::tenure`].

mod error;
pub mod key_file;
mod link;
mod port;
mod verbs;

pub use error::{KioskError, KioskOutcome};
/// The messages and bounds of the link, which both ends share.
pub use keyfence_firmware::link::{
    Answer, Answered, BODY_BYTES_MAX, Checkpoint, ContentKind, DeviceId, DeviceIdError, Dump, Extension, Fault, Grant,
    Hello, Identity, Info, Letter, LinkKey, Output, Request, RequestId, Row, SUBJECT_BYTES_MAX, State, Tenure,
    Tolerance, Wear, Why,
};
pub use link::{KioskLink, Options, hello, now};
pub use port::{BAUD, Place, Port};
pub use verbs::Leased;
