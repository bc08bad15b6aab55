//! The kiosk's end of the link.

use keyfence_core::ProcessId;

use super::answer::{Answer, Fault, Reply};
use super::framing::{self, Deframer, FRAME_BYTES_MAX};
use super::identity::{DeviceId, Identity, Random};
use super::packet::{self, HEAD_BYTES, Keys, NONCE_BYTES, Nonce, PACKET_BYTES_MAX, Speaker, TAG_BYTES, VERSION, kind};
use super::request::Call;
use super::state::State;

/// What became of received frames since this boot. It lies in RAM and wraps at the end of its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that were authentic and new.
    pub accepted: u32,
    /// Calls that were authentic and not new: repeated by the line, or by somebody.
    pub replayed: u32,
    /// Frames that were not authentic, or none at all.
    pub rejected: u32,
    /// Link sessions that came to be.
    pub sessions: u32,
}

/// What answers the calls.
pub trait Handler {
    /// How the kiosk is, for the hello. Called for frames that are not authentic: it changes nothing.
    fn state(&self) -> State;

    /// Answers a call. It is authentic and new (L1, L2); whether it was done before, under the same request id, is for the
    /// handler to know (L8). What the answer says is durable when this returns.
    fn handle(&mut self, call: &Call, tally: &Tally) -> Reply;
}

/// A link session that calls came under.
struct Session {
    keys: Keys,
    /// The counter of the last call.
    counter: u64,
}

/// A link session that was offered (L3).
struct Pending {
    keys: Keys,
    host: Nonce,
    kiosk: Nonce,
}

/// The kiosk's end: give it every byte that arrives, and send what it returns.
///
/// It has room for one packet and one frame, about 850 bytes, and the keys of two sessions. While it answers, received
/// bytes wait outside.
pub struct KioskEnd {
    identity: Option<Identity>,
    boot: ProcessId,
    current: Option<Session>,
    pending: Option<Pending>,
    tally: Tally,
    deframer: Deframer,
    packet: [u8; PACKET_BYTES_MAX],
    frame: [u8; FRAME_BYTES_MAX],
}

/// Drops a frame.
const DROPPED: Option<usize> = None;

impl KioskEnd {
    /// The end of a kiosk that began this boot under a fresh identity `boot`. One that was not provisioned has no identity:
    /// it only says hello.
    #[must_use]
    pub fn new(identity: Option<Identity>, boot: ProcessId) -> Self {
        Self {
            identity,
            boot,
            current: None,
            pending: None,
            tally: Tally::default(),
            deframer: Deframer::default(),
            packet: [0; PACKET_BYTES_MAX],
            frame: [0; FRAME_BYTES_MAX],
        }
    }

    /// What became of received frames.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes a received byte. If it ends a frame that wants an answer, returns the frame to send, as it goes onto the line
    /// (L7). A call is handled within this function.
    pub fn receive(&mut self, byte: u8, random: &mut impl Random, handler: &mut impl Handler) -> Option<&[u8]> {
        let len = self.deframer.push(byte, &mut self.packet)?;
        let answer = self.answer(len, random, handler)?;
        let len = framing::frame(self.packet.get(..answer)?, &mut self.frame)?;
        self.frame.get(..len)
    }

    /// Answers the packet of this length in the same buffer; returns the length of the answer.
    fn answer(&mut self, len: usize, random: &mut impl Random, handler: &mut impl Handler) -> Option<usize> {
        let packet = self.packet.get(..len)?;
        match *packet {
            [VERSION, kind::HELLO_PLEASE] => self.hello(handler.state()),
            [VERSION, kind::OPEN, ref nonce @ ..] => match <Nonce>::try_from(nonce) {
                Ok(nonce) => self.challenge(nonce, random, handler.state()),
                Err(_) => self.reject(),
            },
            [VERSION, kind::CALL, ..] => self.call(len, handler),
            // Hosts of every version begin like this.
            [version, kind::HELLO_PLEASE | kind::OPEN, ..] if version != VERSION => self.hello(handler.state()),
            _ => self.reject(),
        }
    }

    const fn reject(&mut self) -> Option<usize> {
        self.tally.rejected = self.tally.rejected.wrapping_add(1);
        DROPPED
    }

    /// Says hello (L5).
    fn hello(&mut self, state: State) -> Option<usize> {
        let (device, state) = match &self.identity {
            Some(identity) => (identity.device, state),
            None => (DeviceId::NONE, State::Unprovisioned),
        };
        let parts = [VERSION, kind::HELLO]
            .into_iter()
            .chain(*device.as_bytes())
            .chain([state.code()]);
        Some(self.write(parts))
    }

    /// Puts the bytes of a packet into the buffer; returns how many.
    fn write(&mut self, bytes: impl Iterator<Item = u8>) -> usize {
        let mut len = 0;
        for (slot, byte) in self.packet.iter_mut().zip(bytes) {
            *slot = byte;
            len += 1;
        }
        len
    }

    /// Offers a link session, the same one to the same nonce (L3).
    #[inline(never)] // its buffers are not to lie on the caller's stack, nor its code in it
    fn challenge(&mut self, host: Nonce, random: &mut impl Random, state: State) -> Option<usize> {
        let Some(identity) = &self.identity else {
            return self.hello(state);
        };
        let pending = match self.pending.take() {
            Some(pending) if pending.host == host => pending,
            Some(_) | None => {
                let mut kiosk = [0; NONCE_BYTES];
                random.fill(&mut kiosk);
                let keys = Keys::derive(identity, &host, &kiosk, self.boot)?;
                Pending { keys, host, kiosk }
            }
        };
        let parts = [VERSION, kind::CHALLENGE].into_iter().chain(pending.host);
        let len = self.write(parts.chain(pending.kiosk).chain(*self.boot.as_bytes()));
        let pending = self.pending.insert(pending);
        pending.keys.seal(Speaker::Kiosk, &mut self.packet, len)
    }

    /// Has a call handled, if it is authentic and new.
    #[inline(never)] // its buffers are not to lie on the caller's stack, nor its code in it
    fn call(&mut self, len: usize, handler: &mut impl Handler) -> Option<usize> {
        let packet = self.packet.get(..len)?;
        let Some(id) = packet::session_of(packet) else {
            return self.reject();
        };
        let current = self.current.as_ref().filter(|session| session.keys.session() == id);
        let pending = self.pending.as_ref().filter(|pending| pending.keys.session() == id);
        let (keys, last) = match (current, pending) {
            (Some(session), _) => (&session.keys, session.counter),
            (None, Some(pending)) => (&pending.keys, 0),
            (None, None) => {
                let _ = self.reject();
                return self.hello(handler.state());
            }
        };
        let Some((counter, payload)) = keys.unseal(Speaker::Host, packet).and_then(packet::body_of) else {
            return self.reject();
        };
        if counter <= last {
            self.tally.replayed = self.tally.replayed.wrapping_add(1);
            return DROPPED;
        }
        let call = Call::decode(payload);
        if current.is_none() {
            self.current = self
                .pending
                .take()
                .map(|Pending { keys, .. }| Session { keys, counter });
            self.tally.sessions = self.tally.sessions.wrapping_add(1);
        }
        self.tally.accepted = self.tally.accepted.wrapping_add(1);
        let session = self.current.as_mut()?;
        session.counter = counter;
        let reply = match &call {
            Some(call) => handler.handle(call, &self.tally),
            None => Reply::new(Answer::Failed(Fault::Malformed)),
        };
        session.keys.head(kind::REPLY, counter, &mut self.packet);
        let room = self.packet.get_mut(HEAD_BYTES..PACKET_BYTES_MAX - TAG_BYTES)?;
        let payload = match reply.encode(room) {
            Some(payload) => payload,
            // No answer of a machine is that long. What it stood for may have been done.
            None => Reply::new(Answer::Failed(Fault::Unknown)).encode(room)?,
        };
        session
            .keys
            .seal(Speaker::Kiosk, &mut self.packet, HEAD_BYTES + payload)
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::LinkKey;
    use super::super::packet::kind;
    use super::*;
    use std::vec::Vec;

    struct Silent(u32);

    impl Handler for Silent {
        fn state(&self) -> State {
            State::Ready
        }
        fn handle(&mut self, _: &Call, _: &Tally) -> Reply {
            self.0 += 1;
            Reply::new(Answer::Nothing)
        }
    }

    /// Has a packet answered with a packet.
    fn answered(kiosk: &mut KioskEnd, handler: &mut Silent, packet: &[u8]) -> Option<Vec<u8>> {
        let frame = framing::framed(packet).unwrap();
        let mut random = |bytes: &mut [u8]| bytes.fill(7);
        let said = frame
            .iter()
            .find_map(|byte| kiosk.receive(*byte, &mut random, handler).map(<[u8]>::to_vec))?;
        let mut deframer = Deframer::default();
        let mut packet = [0; PACKET_BYTES_MAX];
        let len = said.iter().find_map(|byte| deframer.push(*byte, &mut packet))?;
        Some(packet[..len].to_vec())
    }

    #[test]
    fn a_sealed_call_that_makes_no_sense_is_told_so_under_seal_and_not_handled() {
        let identity = Identity {
            device: DeviceId::from_bytes([1; 16]),
            key: LinkKey::from_bytes([1; 32]),
        };
        let boot = ProcessId::from_bytes([1; 16]);
        let mut kiosk = KioskEnd::new(Some(identity.clone()), boot);
        let mut handler = Silent(0);
        let open: Vec<u8> = [VERSION, kind::OPEN].into_iter().chain([3; NONCE_BYTES]).collect();
        let challenge = answered(&mut kiosk, &mut handler, &open).unwrap();
        assert_eq!(challenge[2..34], [[3; 16], [7; 16]].concat());
        let keys = Keys::derive(&identity, &[3; 16], &[7; 16], boot).unwrap();
        // Nothing, an unknown request, a known one with something behind it, an array that says it is endless.
        let senseless: [&[u8]; 5] = [
            &[],
            &[0x82, 0xf6, 0x81, 0x18, 0xff],
            &[0x82, 0xf6, 0x81, 0, 0],
            &[0x9f],
            &[0xff; 400],
        ];
        for (number, payload) in (1..).zip(senseless) {
            let mut packet = [0; PACKET_BYTES_MAX];
            keys.head(kind::CALL, number, &mut packet);
            packet[HEAD_BYTES..][..payload.len()].copy_from_slice(payload);
            let len = keys
                .seal(Speaker::Host, &mut packet, HEAD_BYTES + payload.len())
                .unwrap();
            let reply = answered(&mut kiosk, &mut handler, &packet[..len]).unwrap();
            let sealed = keys.unseal(Speaker::Kiosk, &reply).unwrap();
            let (counter, payload) = packet::body_of(sealed).unwrap();
            assert_eq!(counter, number);
            assert_eq!(
                Reply::decode(payload),
                Some(Reply::new(Answer::Failed(Fault::Malformed)))
            );
        }
        assert_eq!(handler.0, 0);
        assert_eq!(kiosk.tally().accepted, 5);
    }
}
