//! Packets and their seal.

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

/// Bytes of a SHA-256.
const HASH_BYTES: usize = 32;
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
    #[inline(never)] // once in an image, and not a copy for each caller
    pub(super) fn derive(identity: &Identity, host: &Nonce, kiosk: &Nonce, boot: ProcessId) -> Option<Self> {
        let mut salt = [0; 2 * NONCE_BYTES];
        salt.iter_mut()
            .zip(host.iter().chain(kiosk))
            .for_each(|(slot, byte)| *slot = *byte);
        let information = [LABEL, identity.device.as_bytes(), boot.as_bytes()];
        let mut bytes = [0; SESSION_BYTES + 2 * KEY_BYTES];
        hkdf(&salt, identity.key.bytes(), &information, &mut bytes)?;
        let mut keys = Self {
            device: identity.device,
            session: [0; SESSION_BYTES],
            host: [0; KEY_BYTES],
            kiosk: [0; KEY_BYTES],
        };
        let Self {
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
    #[inline(never)] // as `derive`
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

/// HKDF (RFC 5869) with HMAC-SHA-256. Written here because the crate of that name can panic by its code, which an image
/// must not. `None` for more than 255 blocks.
fn hkdf(salt: &[u8], key: &[u8], information: &[&[u8]], bytes: &mut [u8]) -> Option<()> {
    let extracted = Hmac::<Sha256>::new_from_slice(salt)
        .ok()?
        .chain_update(key)
        .finalize()
        .into_bytes();
    let mut expanded = [0; HASH_BYTES];
    for (number, chunk) in (1..=u8::MAX).zip(bytes.chunks_mut(HASH_BYTES)) {
        let mut mac = Hmac::<Sha256>::new_from_slice(&extracted).ok()?;
        if number > 1 {
            mac.update(&expanded);
        }
        information.iter().for_each(|part| mac.update(part));
        expanded = mac.chain_update([number]).finalize().into_bytes().into();
        chunk.iter_mut().zip(expanded).for_each(|(slot, byte)| *slot = byte);
    }
    (bytes.len() <= 255 * HASH_BYTES).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    /// RFC 5869, appendix A.1 and A.2.
    #[test]
    fn keys_are_derived_as_the_standard_says() {
        let mut bytes = [0; 42];
        let information = hex("f0f1f2f3f4f5f6f7f8f9");
        let (first, rest) = information.split_at(3);
        hkdf(
            &hex("000102030405060708090a0b0c"),
            &[0x0b; 22],
            &[first, rest],
            &mut bytes,
        )
        .unwrap();
        let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        assert_eq!(bytes.to_vec(), hex(expected));

        let range = |from: u8, to: u8| (from..=to).collect::<Vec<u8>>();
        let mut bytes = [0; 82];
        hkdf(&range(0x60, 0xaf), &range(0, 0x4f), &[&range(0xb0, 0xff)], &mut bytes).unwrap();
        let expected = "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09\
                        da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87";
        assert_eq!(bytes.to_vec(), hex(expected));
        assert_eq!(hkdf(&[], &[], &[], &mut [0; 255 * 32 + 1]), None);
    }

    #[test]
    fn every_part_of_a_session_changes_its_keys() {
        let identity = |device, key| Identity {
            device: DeviceId::from_bytes([device; 16]),
            key: super::super::identity::LinkKey::from_bytes([key; 32]),
        };
        let boot = |boot| ProcessId::from_bytes([boot; 16]);
        let all = [
            Keys::derive(&identity(1, 1), &[1; 16], &[1; 16], boot(1)),
            Keys::derive(&identity(2, 1), &[1; 16], &[1; 16], boot(1)),
            Keys::derive(&identity(1, 2), &[1; 16], &[1; 16], boot(1)),
            Keys::derive(&identity(1, 1), &[2; 16], &[1; 16], boot(1)),
            Keys::derive(&identity(1, 1), &[1; 16], &[2; 16], boot(1)),
            Keys::derive(&identity(1, 1), &[1; 16], &[1; 16], boot(2)),
        ]
        .map(|keys| keys.map(|keys| (keys.session, keys.host, keys.kiosk)).unwrap());
        for (at, (session, host, kiosk)) in all.iter().enumerate() {
            assert_ne!(host, kiosk);
            for (other_session, other_host, other_kiosk) in &all[at + 1..] {
                assert_ne!(session, other_session);
                assert!(host != other_host && host != other_kiosk && kiosk != other_kiosk);
            }
        }
    }
}
