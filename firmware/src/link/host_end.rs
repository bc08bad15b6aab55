//! The host's end of the link.

use core::fmt;

use keyfence_core::{ProcessId, TimeMs};

use super::answer::Reply;
use super::exchange::{Answered, Exchange, Sent};
use super::framing::{self, Deframer, Frame};
use super::identity::{DeviceId, Identity};
use super::packet::{
    self, HEAD_BYTES, Keys, NONCE_BYTES, Nonce, PACKET_BYTES_MAX, SessionId, Speaker, TAG_BYTES, VERSION, kind,
};
use super::state::State;

/// What a kiosk says of itself without a seal: a hint (L5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version of the link that it speaks.
    pub version: u8,
    /// Its id; [`DeviceId::NONE`] before it is provisioned.
    pub device: DeviceId,
    /// How it is; `None` for a state that only a newer version knows.
    pub state: Option<State>,
}

/// What a received byte brought.
#[expect(
    clippy::large_enum_variant,
    reason = "an answer is taken at once; nothing here allocates"
)]
#[derive(Debug)]
pub enum Event {
    /// A kiosk said hello. While an answer is awaited it means that the kiosk does not know the link session (L6).
    Hello(Hello),
    /// The link session that was asked for is open; the kiosk is in this boot.
    Opened(ProcessId),
    /// The call was answered.
    Answered(Answered),
    /// The call was answered with something that cannot be read here: the kiosk is newer.
    Unreadable,
}

/// Why a frame cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The kiosk's key is not known here.
    NoKey,
    /// No link session is open.
    NoSession,
    /// It was sent before, and nothing would tell a second sending from another call (L8).
    NotRepeatable,
    /// The link session has no counters left: open a new one.
    SessionExhausted,
    /// It does not fit into a frame, or has a name of more than [`NAME_BYTES_MAX`](crate::store::NAME_BYTES_MAX) bytes. No
    /// other request is too long.
    TooLong,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "the kiosk's key is not known here",
            Self::NoSession => "no link session is open",
            Self::NotRepeatable => "a call without a request id cannot be sent twice",
            Self::SessionExhausted => "the link session is used up",
            Self::TooLong => "the call does not fit into a frame",
        })
    }
}

impl core::error::Error for SendError {}

/// An open link session.
struct Session {
    keys: Keys,
    boot: ProcessId,
    /// The counter of the last call sent.
    sent: u64,
    /// The counter of the last answer taken.
    answered: u64,
}

/// The host's end: it makes frames to send, and is given every byte that arrives.
///
/// Sending, waiting, asking again and opening anew are for its user. One call is under way at a time.
pub struct HostEnd {
    identity: Option<Identity>,
    /// The nonce of the handshake under way.
    opening: Option<Nonce>,
    session: Option<Session>,
    deframer: Deframer,
    packet: [u8; PACKET_BYTES_MAX],
}

impl HostEnd {
    /// The end for the kiosk of this identity. Without one it can only ask for a hello.
    #[must_use]
    pub fn new(identity: Option<Identity>) -> Self {
        Self {
            identity,
            opening: None,
            session: None,
            deframer: Deframer::default(),
            packet: [0; PACKET_BYTES_MAX],
        }
    }

    /// In which boot the kiosk is, as far as the open link session tells.
    #[must_use]
    pub fn boot(&self) -> Option<ProcessId> {
        self.session.as_ref().map(|session| session.boot)
    }

    /// Asks a kiosk for its hello.
    ///
    /// # Errors
    /// None that a caller can cause.
    pub fn hello(&self) -> Result<Frame, SendError> {
        framing::framed(&[VERSION, kind::HELLO_PLEASE]).ok_or(SendError::TooLong)
    }

    /// Begins to open a link session. `nonce` is drawn at random for it. The same frame may be sent again until something
    /// comes back. The session that is open stays so until then.
    ///
    /// # Errors
    /// [`SendError::NoKey`].
    pub fn open(&mut self, nonce: [u8; NONCE_BYTES]) -> Result<Frame, SendError> {
        if self.identity.is_none() {
            return Err(SendError::NoKey);
        }
        self.opening = Some(nonce);
        let mut packet = [0; 2 + NONCE_BYTES];
        let parts = [VERSION, kind::OPEN].into_iter().chain(nonce);
        packet.iter_mut().zip(parts).for_each(|(slot, byte)| *slot = byte);
        framing::framed(&packet).ok_or(SendError::TooLong)
    }

    /// Makes the next frame of a call: of one that was not sent yet, or again. `now` is the moment of sending, on the
    /// host's clock: a lease that is granted counts from the first one (L9).
    ///
    /// # Errors
    /// [`SendError`]; then the call was not sent.
    pub fn send(&mut self, exchange: &mut Exchange, now: TimeMs) -> Result<Frame, SendError> {
        let session = self.session.as_mut().ok_or(SendError::NoSession)?;
        if !exchange.may_be_sent() {
            return Err(SendError::NotRepeatable);
        }
        let counter = session.sent.checked_add(1).ok_or(SendError::SessionExhausted)?;
        let mut packet = [0; PACKET_BYTES_MAX];
        session.keys.head(kind::CALL, counter, &mut packet);
        let framed = packet
            .get_mut(HEAD_BYTES..PACKET_BYTES_MAX - TAG_BYTES)
            .and_then(|room| exchange.call.encode(room))
            .and_then(|payload| session.keys.seal(Speaker::Host, &mut packet, HEAD_BYTES + payload))
            .and_then(|len| packet.get(..len))
            .and_then(framing::framed)
            .ok_or(SendError::TooLong)?;
        session.sent = counter;
        let id = session.keys.session();
        exchange.sent = Some(match exchange.sent {
            Some(sent) if sent.session == id => sent,
            Some(sent) => Sent {
                session: id,
                from: counter,
                ..sent
            },
            None => Sent {
                first_at: now,
                first_boot: session.boot,
                session: id,
                from: counter,
            },
        });
        Ok(framed)
    }

    /// Takes a received byte. `exchange` is the call that is under way, if there is one; an answer to anything else is
    /// dropped (L4).
    pub fn receive(&mut self, byte: u8, exchange: Option<&mut Exchange>) -> Option<Event> {
        let len = self.deframer.push(byte, &mut self.packet)?;
        let packet = self.packet.get(..len)?;
        match *packet {
            [version, kind::HELLO, ref rest @ ..] => hello(version, rest).map(Event::Hello),
            [VERSION, kind::CHALLENGE, ..] => self.challenged(len),
            [VERSION, kind::REPLY, ..] => self.replied(len, exchange?),
            _ => None,
        }
    }

    /// Opens the session that the kiosk offers, if it is the one that was asked for and the kiosk shows that it has the key.
    fn challenged(&mut self, len: usize) -> Option<Event> {
        let packet = self.packet.get(..len)?;
        let identity = self.identity.as_ref()?;
        let (host, rest) = packet.get(2..)?.split_first_chunk::<NONCE_BYTES>()?;
        let (kiosk, rest) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let (boot, tag) = rest.split_first_chunk::<16>()?;
        if tag.len() != TAG_BYTES || self.opening.as_ref() != Some(host) {
            return None;
        }
        let boot = ProcessId::from_bytes(*boot);
        let keys = Keys::derive(identity, host, kiosk, boot)?;
        keys.unseal(Speaker::Kiosk, packet)?;
        self.opening = None;
        self.session = Some(Session {
            keys,
            boot,
            sent: 0,
            answered: 0,
        });
        Some(Event::Opened(boot))
    }

    /// Takes an answer, if it is authentic, new, and one to this call.
    fn replied(&mut self, len: usize, exchange: &mut Exchange) -> Option<Event> {
        let packet = self.packet.get(..len)?;
        let session = self.session.as_mut()?;
        let id: SessionId = session.keys.session();
        if packet::session_of(packet)? != id {
            return None;
        }
        let sealed = session.keys.unseal(Speaker::Kiosk, packet)?;
        let (counter, payload) = packet::body_of(sealed)?;
        if counter <= session.answered || counter > session.sent {
            return None;
        }
        session.answered = counter;
        match Reply::decode(payload) {
            Some(reply) => exchange.answered(id, counter, session.boot, reply).map(Event::Answered),
            None => Some(Event::Unreadable),
        }
    }
}

/// Reads a hello, whatever the version; a later one may say more.
fn hello(version: u8, rest: &[u8]) -> Option<Hello> {
    let (device, rest) = rest.split_first_chunk()?;
    Some(Hello {
        version,
        device: DeviceId::from_bytes(*device),
        state: State::from_code(*rest.first()?),
    })
}
