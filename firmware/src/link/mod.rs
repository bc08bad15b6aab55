//! The link between a kiosk and its host: one serial line, calls one way and answers the other.
//!
//! Both ends are here, and neither does any I/O: [`KioskEnd`] takes received bytes and gives back the frame to send,
//! [`HostEnd`] makes the host's frames and says what came back. [`Request`] and [`Answer`] are the messages, on the
//! core's own types; [`Tenure`] is what a holder may conclude from a grant. The modules: `identity` (ids and keys),
//! `request`, `answer`, `state`, `row` (the messages), `wire` (their bytes), `packet` (their seal), `framing` (their
//! frames), `kiosk_end`, `host_end`, `exchange`, `tenure`.
//!
//! # The frames
//!
//! A frame is a zero, a packet in COBS, a zero. Numbers of a packet are little endian.
//!
//! | byte | | |
//! | --- | --- | --- |
//! | 0 | version | 1 |
//! | 1 | kind | the top bit says who speaks: 0 the host, 1 the kiosk |
//!
//! | kind | packet after these two bytes |
//! | --- | --- |
//! | `01` hello, please | nothing |
//! | `02` open | the host's nonce (16) |
//! | `03` call | link session (8), counter (8), payload, tag (16) |
//! | `81` hello | device id (16), state (1) |
//! | `82` challenge | the host's nonce (16), the kiosk's nonce (16), the boot (16), tag (16) |
//! | `83` reply | link session (8), the counter of the call (8), payload, tag (16) |
//!
//! A tag is HMAC-SHA-256 over the device id and all of the packet before the tag, cut to 128 bits. Each link session has
//! one key for either direction and an id: HKDF-SHA-256 of the kiosk's key, with both nonces as salt and the device id
//! and the boot as information. Payloads are CBOR.
//!
//! The first two bytes and the hello stay as they are in every version: that is how ends of different versions find out.
//!
//! # The invariants
//!
//! **L1. What is not authentic does nothing.** Only a call whose tag is right is decoded, and only such a call reaches
//! the [`Handler`]. The tag covers version, direction, device, session, counter and payload, and is compared in constant
//! time. A reflected frame has the other direction's kind and key, a foreign one another key or device.
//!
//! **L2. What is not new does nothing.** A session's counter only grows; a call is taken only when its counter is above
//! every one taken before. A session cannot come again: its keys need both ends' nonces and the boot's identity.
//!
//! **L3. A link session is replaced by proof only.** An open makes a *pending* session; the current one lives until the
//! first call under the pending one is authentic. An open that comes twice gets the same challenge twice.
//!
//! **L4. An answer belongs to its call.** It carries the counter of the very frame that it answers. The host takes it
//! once, and only for the [`Exchange`] that this frame was sent for.
//!
//! **L5. Every answer is sealed, errors too.** The only thing a kiosk says without a seal is its hello. It changes nothing
//! on either end: a hint to look again, never a fact.
//!
//! **L6. The link recovers by itself.** Whatever came before, a frame that follows a zero is read as if nothing had. What
//! is longer than a frame can be is dropped to the next zero. A kiosk that gets a call under a session it does not know
//! (it has started again) says hello, so that the host opens a new one.
//!
//! **L7. A kiosk speaks when spoken to:** at most one frame for one frame, and never for a frame of a kiosk, so that two
//! kiosks on one line are silent.
//!
//! **L8. Sending a call again does not do it again.** The kiosk keeps the last answer of each client in the commit that
//! it answers; a call is sent again under the same [`RequestId`], or is one that is [harmless](Repetition::Harmless).
//!
//! **L9. A holder counts from its own sending.** A [`Tenure`] ends, on the holder's clock, no later than the kiosk's lease:
//! it begins when the request was first sent, which was before the kiosk decided, and is shorter by a tolerance of
//! clocks. The session and the counter of the frame are the request's nonce: an answer to another one is not taken.
//!
//! **L10. A key is in one place.** It cannot be printed, and copies of it are wiped when they are dropped.
//!
//! Frames that are dropped cost no flash: they are counted in RAM ([`Tally`]).

mod answer;
mod exchange;
mod framing;
mod host_end;
mod identity;
mod kiosk_end;
mod packet;
mod request;
mod row;
mod state;
mod tenure;
mod wire;

pub use crate::store::NAME_BYTES_MAX;
pub use answer::{Answer, Fault, Grant, KEPT_BYTES_MAX, Reply};
pub use exchange::{Answered, Exchange};
pub use framing::{FRAME_BYTES_MAX, Frame};
pub use host_end::{Event, Hello, HostEnd, SendError};
pub use identity::{DeviceId, DeviceIdError, Identity, KEY_BYTES, LinkKey, Random};
pub use kiosk_end::{Handler, KioskEnd, Tally};
pub use packet::{NONCE_BYTES, PAYLOAD_BYTES_MAX, VERSION};
pub use request::{Bytes, Call, FINGERPRINT_BYTES, Letter, Repetition, Request, RequestId, digest};
pub use row::Row;
pub use state::{DUMP_BYTES_MAX, Dump, Info, OUTPUT_NAME_BYTES_MAX, OUTPUTS_MAX, Output, State, Wear, Why};
pub use tenure::{Extension, Tenure, Tolerance};

pub use crate::journal::Checkpoint;
pub use crate::store::{BODY_BYTES_MAX, CLIENTS, ContentKind, SUBJECT_BYTES_MAX};
