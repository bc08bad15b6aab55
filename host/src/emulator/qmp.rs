//! QEMU's control protocol: one JSON object a line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::{ANSWER_TIMEOUT, EmulatorError};

const SOCKET: &str = "control socket";

/// A connection that has been greeted.
#[derive(Debug)]
pub(super) struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    pub(super) fn greet(stream: UnixStream) -> Result<Self, EmulatorError> {
        stream
            .set_read_timeout(Some(ANSWER_TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(ANSWER_TIMEOUT)))
            .map_err(|error| failed("being greeted", error))?;
        let mut qmp = Self {
            stream: BufReader::new(stream),
        };
        qmp.line("being greeted")?;
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and gives what it returns. Events in between are passed over.
    pub(super) fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, EmulatorError> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        sent.map_err(|error| failed(command, error))?;
        loop {
            let mut answer = self.line(command)?;
            if let Some(returned) = answer.get_mut("return") {
                return Ok(returned.take());
            }
            if answer.get("event").is_none() {
                return Err(EmulatorError::Answer {
                    socket: SOCKET,
                    asked: command.to_owned(),
                    answer: answer.to_string(),
                });
            }
        }
    }

    fn line(&mut self, asked: &str) -> Result<Value, EmulatorError> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).map_err(|error| failed(asked, error))?;
        if read == 0 {
            return Err(EmulatorError::Ended(format!("at {asked}")));
        }
        serde_json::from_str(&line).map_err(|_| EmulatorError::Answer {
            socket: SOCKET,
            asked: asked.to_owned(),
            answer: line,
        })
    }
}

fn failed(while_doing: &str, source: std::io::Error) -> EmulatorError {
    EmulatorError::Socket {
        socket: SOCKET,
        while_doing: while_doing.to_owned(),
        source,
    }
}
