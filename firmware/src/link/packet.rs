//! Packets and their seal.

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use keyfence_core::ProcessId;
use sha2::Sha256;
use zeroize::Zeroize as _;

use super::identity::{DeviceId, Identity, KEY_BYTES};

/// The version of the link that is spoken here.
pub const VERSION: u8 = 1;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 16;
/// The longest payload, in bytes: every message with names of the greatest length (tested).
pub const PAYLOAD_BYTES_MAX: usize = 400;

/// Bytes of a session's id.
const SESSION_BYTES: usize = 8;
/// Bytes of a tag: 128 bits of the HMAC.
pub(super) const TAG_BYTES: usize = 16;
/// Version, kind, session and counter.
pub(super) const HEAD_BYTES: usize = 2 + SESSION_BYTES + 8;
/// The longest packet.
pub(super) const PACKET_BYTES_MAX: usize = HEAD_BYTES + PAYLOAD_BYTES_MAX + TAG_BYTES;

/// Kinds of packets. The top bit says who speaks.
pub(super) mod kind {
    pub(crate) const HELLO_PLEASE: u8 = 0x01;
    pub(crate) const OPEN: u8 = 0x02;
    pub(crate) const CALL: u8 = 0x03;
    pub(crate) const HELLO: u8 = 0x81;
    pub(crate) const CHALLENGE: u8 = 0x82;
    pub(crate) const REPLY: u8 = 0x83;
}

/// Told apart from other uses of a kiosk's key.
const LABEL: &[u8] = b"keyfence link 1";

/// A nonce, drawn for one handshake.
pub(super) type Nonce = [u8; NONCE_BYTES];
/// Which link session.
pub(super) type SessionId = [u8; SESSION_BYTES];

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    Host,
    Kiosk,
}

/// The keys of one link session (L2, L10).
pub(super) struct Keys {
    device: DeviceId,
    session: SessionId,
    host: [u8; KEY_BYTES],
    kiosk: [u8; KEY_BYTES],
}

impl Keys {
    /// Derives them. There is none only if the hash could not make that many bytes.
    pub(super) fn derive(identity: &Identity, host: &Nonce, kiosk: &Nonce, boot: ProcessId) -> Option<Self> {
        let mut salt = [0; 2 * NONCE_BYTES];
        salt.iter_mut()
            .zip(host.iter().chain(kiosk))
            .for_each(|(slot, byte)| *slot = *byte);
        let information = [LABEL, identity.device.as_bytes(), boot.as_bytes()];
        let derived = Hkdf::<Sha256>::new(Some(&salt), identity.key.bytes());
        let mut keys = Self {
            device: identity.device,
            session: [0; SESSION_BYTES],
            host: [0; KEY_BYTES],
            kiosk: [0; KEY_BYTES],
        };
        let mut bytes = [0; SESSION_BYTES + 2 * KEY_BYTES];
        derived.expand_multi_info(&information, &mut bytes).ok()?;
        let Keys {
            session, host, kiosk, ..
        } = &mut keys;
        let slots = session.iter_mut().chain(host).chain(kiosk);
        slots.zip(&bytes).for_each(|(slot, byte)| *slot = *byte);
        bytes.zeroize();
        Some(keys)
    }

    /// Which session they are of.
    pub(super) const fn session(&self) -> SessionId {
        self.session
    }

    fn mac(&self, speaker: Speaker, sealed: &[u8]) -> Option<Hmac<Sha256>> {
        let key = match speaker {
            Speaker::Host => &self.host,
            Speaker::Kiosk => &self.kiosk,
        };
        let mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
        Some(mac.chain_update(self.device.as_bytes()).chain_update(sealed))
    }

    /// Puts the tag behind the first `len` bytes of a packet. Returns the length with it.
    pub(super) fn seal(&self, speaker: Speaker, packet: &mut [u8], len: usize) -> Option<usize> {
        let (sealed, rest) = packet.split_at_mut_checked(len)?;
        let tag = self.mac(speaker, sealed)?.finalize().into_bytes();
        let slots = rest.get_mut(..TAG_BYTES)?;
        slots.iter_mut().zip(tag).for_each(|(slot, byte)| *slot = byte);
        Some(len + TAG_BYTES)
    }

    /// What a packet says before its tag, if the tag is right (L1).
    pub(super) fn unseal<'a>(&self, speaker: Speaker, packet: &'a [u8]) -> Option<&'a [u8]> {
        let (sealed, tag) = packet.split_last_chunk::<TAG_BYTES>()?;
        // Compares in constant time.
        self.mac(speaker, sealed)?.verify_truncated_left(tag).ok()?;
        Some(sealed)
    }

    /// Writes the head of a call or a reply.
    pub(super) fn head(&self, kind: u8, counter: u64, packet: &mut [u8]) {
        let head = [VERSION, kind]
            .into_iter()
            .chain(self.session)
            .chain(counter.to_le_bytes());
        packet.iter_mut().zip(head).for_each(|(slot, byte)| *slot = byte);
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.host.zeroize();
        self.kiosk.zeroize();
    }
}

/// The session that a call or a reply says it is of.
pub(super) fn session_of(packet: &[u8]) -> Option<SessionId> {
    if packet.len() < HEAD_BYTES + TAG_BYTES {
        return None;
    }
    packet.get(2..)?.first_chunk().copied()
}

/// The counter and the payload of a call or a reply, without its tag.
pub(super) fn body_of(sealed: &[u8]) -> Option<(u64, &[u8])> {
    let (counter, payload) = sealed.get(2 + SESSION_BYTES..)?.split_first_chunk()?;
    Some((u64::from_le_bytes(*counter), payload))
}
