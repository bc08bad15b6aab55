//! QEMU's debugger socket: the remote protocol of gdb, as far as it is needed here.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{ANSWER_TIMEOUT, EmulatorError};

const SOCKET: &str = "debugger socket";
/// Bytes of memory in one packet; QEMU takes packets of 4,096 bytes, two for each byte of memory.
const CHUNK_BYTES: usize = 1_024;

/// A connection of a debugger. The processor is halted while it is made.
#[derive(Debug)]
pub(super) struct Gdb {
    stream: BufReader<UnixStream>,
}

impl Gdb {
    pub(super) fn attach(stream: UnixStream) -> Result<Self, EmulatorError> {
        stream
            .set_write_timeout(Some(ANSWER_TIMEOUT))
            .map_err(|error| failed("attaching", error))?;
        let mut gdb = Self {
            stream: BufReader::new(stream),
        };
        // Registers cannot be asked for before this.
        gdb.ask("qXfer:features:read:target.xml:0,ffb")?;
        Ok(gdb)
    }

    /// Sends a packet and gives the answer.
    fn ask(&mut self, packet: &str) -> Result<String, EmulatorError> {
        self.send(packet)?;
        self.answer(packet, ANSWER_TIMEOUT)?.ok_or_else(|| {
            let timeout = std::io::Error::from(std::io::ErrorKind::TimedOut);
            failed(packet, timeout)
        })
    }

    fn ask_ok(&mut self, packet: &str) -> Result<(), EmulatorError> {
        let answer = self.ask(packet)?;
        if answer == "OK" {
            return Ok(());
        }
        Err(EmulatorError::Answer {
            socket: SOCKET,
            asked: packet.chars().take(40).collect(),
            answer,
        })
    }

    fn send(&mut self, packet: &str) -> Result<(), EmulatorError> {
        let sum = packet.bytes().fold(0u8, u8::wrapping_add);
        let sent = write!(self.stream.get_mut(), "${packet}#{sum:02x}");
        sent.map_err(|error| failed(packet, error))
    }

    /// The next packet; `None` when there is none within `timeout`.
    fn answer(&mut self, asked: &str, timeout: Duration) -> Result<Option<String>, EmulatorError> {
        let set = self.stream.get_ref().set_read_timeout(Some(timeout));
        set.map_err(|error| failed(asked, error))?;
        let mut before = Vec::new();
        match self.stream.read_until(b'$', &mut before) {
            Ok(0) => return Err(EmulatorError::Ended(format!("at {asked}"))),
            Ok(_) => {}
            Err(error) if is_timeout(&error) => return Ok(None),
            Err(error) => return Err(failed(asked, error)),
        }
        let set = self.stream.get_ref().set_read_timeout(Some(ANSWER_TIMEOUT));
        let mut packet = Vec::new();
        let mut sum = [0; 2];
        let read = set
            .and_then(|()| self.stream.read_until(b'#', &mut packet))
            .and_then(|_| self.stream.read_exact(&mut sum))
            .and_then(|()| self.stream.get_mut().write_all(b"+"));
        read.map_err(|error| failed(asked, error))?;
        packet.pop();
        Ok(Some(String::from_utf8_lossy(&packet).into_owned()))
    }

    /// Lets the processor run.
    pub(super) fn resume(&mut self) -> Result<(), EmulatorError> {
        self.send("c")
    }

    /// Waits until a running processor halts by itself; `false` when it does not within `timeout`.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<bool, EmulatorError> {
        Ok(self.answer("waiting", timeout)?.is_some())
    }

    /// Halts a running processor.
    pub(super) fn interrupt(&mut self) -> Result<(), EmulatorError> {
        let sent = self.stream.get_mut().write_all(b"\x03");
        sent.map_err(|error| failed("interrupting", error))?;
        if self.wait(ANSWER_TIMEOUT)? {
            return Ok(());
        }
        Err(failed("interrupting", std::io::ErrorKind::TimedOut.into()))
    }

    /// Runs one instruction of a halted processor.
    pub(super) fn step(&mut self) -> Result<(), EmulatorError> {
        self.ask("s").map(drop)
    }

    /// Has the processor halt before each store to these bytes, or no longer.
    pub(super) fn watch(&mut self, at: u32, len: u32, is_on: bool) -> Result<(), EmulatorError> {
        let verb = if is_on { 'Z' } else { 'z' };
        self.ask_ok(&format!("{verb}2,{at:x},{len:x}"))
    }

    /// Reads memory.
    pub(super) fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), EmulatorError> {
        for (index, chunk) in bytes.chunks_mut(CHUNK_BYTES).enumerate() {
            let from = at + (index * CHUNK_BYTES) as u32;
            let packet = format!("m{from:x},{:x}", chunk.len());
            let answer = self.ask(&packet)?;
            let digits: Option<Vec<u8>> = answer
                .chars()
                .map(|digit| digit.to_digit(16).map(|d| d as u8))
                .collect();
            let pairs = digits.filter(|digits| digits.len() == 2 * chunk.len());
            let Some(pairs) = pairs else {
                return Err(EmulatorError::Answer {
                    socket: SOCKET,
                    asked: packet,
                    answer,
                });
            };
            for (byte, pair) in chunk.iter_mut().zip(pairs.chunks_exact(2)) {
                *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
            }
        }
        Ok(())
    }

    /// Writes memory, the flash too, whatever the chip's own rules are.
    pub(super) fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), EmulatorError> {
        for (index, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            let from = at + (index * CHUNK_BYTES) as u32;
            let mut packet = format!("M{from:x},{:x}:", chunk.len());
            chunk.iter().for_each(|byte| packet.push_str(&format!("{byte:02x}")));
            self.ask_ok(&packet)?;
        }
        Ok(())
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
    )
}

fn failed(while_doing: &str, source: std::io::Error) -> EmulatorError {
    EmulatorError::Socket {
        socket: SOCKET,
        while_doing: while_doing.chars().take(40).collect(),
        source,
    }
}
