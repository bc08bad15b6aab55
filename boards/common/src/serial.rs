//! The serial port: a driver whose interrupt fills and empties its buffers.

use core::task::Poll;

use embassy_futures::poll_once;
use embedded_io_async::{Read, Write};

use crate::Shared;

/// The port. Bytes that are lost (a full buffer, a line that is disturbed) cost a frame; the link recovers from that.
#[derive(Debug)]
pub struct Serial<U>(Shared<U>);

impl<U: Read + Write> Default for Serial<U> {
    fn default() -> Self {
        Self::new()
    }
}

impl<U: Read + Write> Serial<U> {
    /// No driver yet: nothing is received, and what is sent goes nowhere.
    #[must_use]
    pub const fn new() -> Self {
        Self(Shared::new())
    }

    /// Takes the driver.
    pub fn start(&self, driver: U) {
        self.0.put(driver);
    }

    /// The oldest byte that was received and not yet taken.
    pub fn receive(&self) -> Option<u8> {
        let mut byte = [0];
        let read = self.0.with(|driver| poll_once(driver.read(&mut byte)))?;
        match read {
            Poll::Ready(Ok(1..)) => Some(byte[0]),
            Poll::Ready(Ok(0) | Err(_)) | Poll::Pending => None,
        }
    }

    /// Sends all bytes; waits while the driver's buffer is full.
    pub fn send(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.0.with(|driver| poll_once(driver.write(bytes))) {
                // Its interrupt makes room meanwhile.
                Some(Poll::Pending) => {}
                Some(Poll::Ready(Ok(sent @ 1..))) => bytes = bytes.get(sent..).unwrap_or_default(),
                Some(Poll::Ready(Ok(0) | Err(_))) | None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::future::pending;

    use embedded_io_async::{ErrorKind, ErrorType};

    use super::*;

    /// A port that gives and takes two bytes at a time, is not ready every other time, and has one byte spoilt.
    #[derive(Default)]
    struct Port {
        to_read: &'static [u8],
        written: [u8; 8],
        count: usize,
        turns: usize,
    }

    impl ErrorType for Port {
        type Error = ErrorKind;
    }

    impl Read for Port {
        async fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ErrorKind> {
            let Some((first, rest)) = self.to_read.split_first() else {
                return pending().await;
            };
            self.to_read = rest;
            if *first == b'?' {
                return Err(ErrorKind::Other);
            }
            bytes[0] = *first;
            Ok(1)
        }
    }

    impl Write for Port {
        async fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
            self.turns += 1;
            if self.turns.is_multiple_of(2) {
                return pending().await;
            }
            let sent = bytes.len().min(2);
            self.written[self.count..self.count + sent].copy_from_slice(&bytes[..sent]);
            self.count += sent;
            Ok(sent)
        }

        async fn flush(&mut self) -> Result<(), ErrorKind> {
            Ok(())
        }
    }

    #[test]
    fn bytes_are_taken_one_by_one_and_a_spoilt_one_is_none() {
        let serial = Serial::new();
        assert_eq!(serial.receive(), None);
        serial.start(Port {
            to_read: b"a?b",
            ..Port::default()
        });
        let received = [(); 5].map(|()| serial.receive());
        assert_eq!(received, [Some(b'a'), None, Some(b'b'), None, None]);
    }

    #[test]
    fn all_bytes_are_sent_whatever_fits_at_a_time() {
        let serial = Serial::new();
        serial.send(b"nobody is there");
        serial.start(Port::default());
        serial.send(b"seven b");
        let (written, count) = serial.0.with(|port: &mut Port| (port.written, port.count)).unwrap();
        assert_eq!(&written[..count], b"seven b");
    }
}
