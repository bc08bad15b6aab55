//! Frames on the line: packets in COBS between zeros.

use cobs::{DecodeResult, DecoderState, EncoderState, PushResult};

use super::packet::PACKET_BYTES_MAX;

/// The longest frame: a packet, a byte more for each 254 and one for the first, a zero before and one behind.
pub const FRAME_BYTES_MAX: usize = PACKET_BYTES_MAX + PACKET_BYTES_MAX / 254 + 1 + 2;

/// The bytes of a frame, delimiters included.
pub type Frame = heapless::Vec<u8, FRAME_BYTES_MAX>;

/// Finds packets in received bytes (L6).
#[derive(Debug, Default)]
pub(super) struct Deframer {
    state: DecoderState,
    len: usize,
    overflowed: bool,
}

impl Deframer {
    /// Takes a byte. When it ends a frame, the packet lies in `packet` up to the length that is returned.
    pub(super) fn push(&mut self, byte: u8, packet: &mut [u8; PACKET_BYTES_MAX]) -> Option<usize> {
        match self.state.feed(byte) {
            Ok(DecodeResult::NoData) => None,
            Ok(DecodeResult::DataStart) => {
                self.len = 0;
                self.overflowed = false;
                None
            }
            Ok(DecodeResult::DataContinue(byte)) => {
                match packet.get_mut(self.len) {
                    Some(slot) => {
                        *slot = byte;
                        self.len += 1;
                    }
                    None => self.overflowed = true,
                }
                None
            }
            Ok(DecodeResult::DataComplete) => (!self.overflowed).then_some(self.len),
            // A frame that was cut off: the zero that ended it may begin the next one.
            Err(_) => None,
        }
    }
}

/// Writes the frame of `packet`; `None` if it does not fit.
pub(super) fn frame(packet: &[u8], frame: &mut [u8]) -> Option<usize> {
    let (first, body) = frame.split_first_mut()?;
    *first = 0;
    let mut encoder = EncoderState::default();
    let mut at = 1;
    for byte in packet {
        match encoder.push(*byte) {
            PushResult::AddSingle(byte) => {
                *body.get_mut(at)? = byte;
                at += 1;
            }
            PushResult::ModifyFromStartAndSkip((code_at, code)) => {
                *body.get_mut(code_at)? = code;
                at += 1;
            }
            PushResult::ModifyFromStartAndPushAndSkip((code_at, code, byte)) => {
                *body.get_mut(code_at)? = code;
                *body.get_mut(at)? = byte;
                at += 2;
            }
        }
    }
    let (code_at, code) = encoder.finalize();
    *body.get_mut(code_at)? = code;
    *body.get_mut(at)? = 0;
    Some(at + 2)
}

/// The frame of `packet` by itself.
pub(super) fn framed(packet: &[u8]) -> Option<Frame> {
    let mut bytes = Frame::new();
    bytes.resize_default(FRAME_BYTES_MAX).ok()?;
    let len = frame(packet, &mut bytes)?;
    bytes.truncate(len);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn packets(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut deframer = Deframer::default();
        let mut packet = [0; PACKET_BYTES_MAX];
        let mut found = Vec::new();
        for byte in bytes {
            if let Some(len) = deframer.push(*byte, &mut packet) {
                found.push(packet[..len].to_vec());
            }
        }
        found
    }

    #[test]
    fn a_packet_of_any_length_and_content_comes_through() {
        for len in 1..=PACKET_BYTES_MAX {
            for fill in [0, 1, 0xff] {
                let packet = std::vec![fill; len];
                let frame = framed(&packet).expect("it fits");
                assert_eq!(frame[1..frame.len() - 1].iter().position(|byte| *byte == 0), None);
                assert_eq!(packets(&frame), [packet], "{len} bytes of {fill}");
            }
        }
    }

    #[test]
    fn what_is_too_long_is_dropped_and_the_next_frame_is_read() {
        let mut line = std::vec![0x55; 10 * FRAME_BYTES_MAX];
        line.extend(framed(b"packet").unwrap());
        assert_eq!(packets(&line), [b"packet"]);

        let mut line = Vec::from(&[0][..]);
        line.extend(std::iter::repeat_n([2, 7], PACKET_BYTES_MAX).flatten());
        line.extend(framed(b"packet").unwrap());
        assert_eq!(packets(&line), [b"packet"]);
    }

    #[test]
    fn a_frame_that_was_cut_off_does_not_take_the_next_one_with_it() {
        let cut = framed(&[7; 300]).unwrap();
        for len in 0..cut.len() - 1 {
            let mut line = cut[..len].to_vec();
            line.extend(framed(b"packet").unwrap());
            let found = packets(&line);
            assert_eq!(found.last().map(Vec::as_slice), Some(&b"packet"[..]), "cut at {len}");
            assert!(found.iter().all(|found| found != &[7; 300]));
        }
    }
}
