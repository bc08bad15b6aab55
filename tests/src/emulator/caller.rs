//! Somebody at the other end of an emulated kiosk's line: the host's end of the link, with time-outs.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use keyfence::emulator::Port;
use keyfence_core::{ProcessId, TimeMs};
use keyfence_firmware::link::{
    Call, Event, Exchange, Frame, Hello, HostEnd, Identity, NONCE_BYTES, Repetition, Reply, Request, RequestId,
};

use crate::random::Random;

/// How long an answer is waited for before the call is sent again.
const AGAIN: Duration = Duration::from_millis(500);
/// How often a call is sent.
const ATTEMPTS: usize = 8;

/// A host at the serial port of an emulated kiosk. Its port has a read time-out of a few milliseconds.
pub struct Caller {
    port: Port,
    identity: Identity,
    end: HostEnd,
    client: u8,
    number: u32,
    random: Random,
    begin: Instant,
}

impl Caller {
    /// Client `client` of the kiosk of this identity; its request ids begin above 0.
    #[must_use]
    pub fn new(port: Port, identity: Identity, client: u8, seed: u64) -> Self {
        Self {
            port,
            end: HostEnd::new(Some(identity.clone())),
            identity,
            client,
            number: 0,
            random: Random::new(seed),
            begin: Instant::now(),
        }
    }

    fn now(&self) -> TimeMs {
        TimeMs::new(self.begin.elapsed().as_millis() as u64).unwrap_or(TimeMs::MAX)
    }

    /// Forgets the link session, as after the kiosk's power was cut.
    pub fn forget(&mut self) {
        self.end = HostEnd::new(Some(self.identity.clone()));
    }

    /// The number of the last call that had a request id.
    #[must_use]
    pub const fn last_number(&self) -> u32 {
        self.number
    }

    /// A call with the next request id, if its request needs one.
    pub fn next_call(&mut self, request: Request) -> Call {
        let id = match request.repetition() {
            Repetition::Harmless => None,
            Repetition::NeedsId => {
                self.number += 1;
                RequestId::new(self.client, self.number)
            }
        };
        Call::new(id, request)
    }

    /// Asks for the hello, which needs no key.
    ///
    /// # Errors
    ///
    /// When none comes.
    pub fn hello(&mut self) -> Result<Hello> {
        let frame = self.end.hello()?;
        for _ in 0..ATTEMPTS {
            self.write(&frame)?;
            if let Some(Event::Hello(hello)) = self.wait(None, AGAIN)? {
                return Ok(hello);
            }
        }
        bail!("no hello")
    }

    /// Opens a link session.
    ///
    /// # Errors
    ///
    /// When the kiosk does not answer.
    pub fn open(&mut self) -> Result<ProcessId> {
        let mut nonce = [0; NONCE_BYTES];
        nonce.fill_with(|| self.random.byte());
        for _ in 0..ATTEMPTS {
            let frame = self.end.open(nonce)?;
            self.write(&frame)?;
            if let Some(Event::Opened(boot)) = self.wait(None, AGAIN)? {
                return Ok(boot);
            }
        }
        bail!("no link session")
    }

    /// Sends the frame of a call once.
    ///
    /// # Errors
    ///
    /// When no link session is open or the port is gone.
    pub fn send(&mut self, exchange: &mut Exchange) -> Result<()> {
        let now = self.now();
        let frame = self.end.send(exchange, now)?;
        self.write(&frame)
    }

    /// The answer to a call that was sent, if it comes within `timeout`.
    ///
    /// # Errors
    ///
    /// When the port is gone.
    pub fn receive(&mut self, exchange: &mut Exchange, timeout: Duration) -> Result<Option<Reply>> {
        let begin = Instant::now();
        while let Some(left) = timeout.checked_sub(begin.elapsed()) {
            if let Some(Event::Answered(answered)) = self.wait(Some(exchange), left)? {
                return Ok(Some(answered.into_reply()));
            }
        }
        Ok(None)
    }

    /// Sends a call, again if it has to be, and gives the answer. Opens a link session if none is open.
    ///
    /// # Errors
    ///
    /// When the kiosk does not answer.
    pub fn exchange(&mut self, exchange: &mut Exchange) -> Result<Reply> {
        for _ in 0..ATTEMPTS {
            if self.end.boot().is_none() {
                self.open()?;
            }
            self.send(exchange)?;
            if let Some(reply) = self.receive(exchange, AGAIN)? {
                return Ok(reply);
            }
            self.forget();
        }
        bail!("no answer to {:?}", exchange.call().request)
    }

    /// Asks something, under a new request id where it needs one.
    ///
    /// # Errors
    ///
    /// When the kiosk does not answer.
    pub fn call(&mut self, request: Request) -> Result<Reply> {
        let call = self.next_call(request);
        self.exchange(&mut Exchange::new(call))
    }

    fn write(&mut self, frame: &Frame) -> Result<()> {
        self.port.write_all(frame).context("the serial port")
    }

    /// What the line brings within `timeout`.
    fn wait(&mut self, mut exchange: Option<&mut Exchange>, timeout: Duration) -> Result<Option<Event>> {
        let begin = Instant::now();
        let mut byte = [0];
        while begin.elapsed() < timeout {
            match self.port.read(&mut byte) {
                Ok(0) => bail!("the serial port was closed"),
                Ok(_) => {
                    if let Some(event) = self.end.receive(byte[0], exchange.as_deref_mut()) {
                        return Ok(Some(event));
                    }
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ) => {}
                Err(error) => return Err(error).context("the serial port"),
            }
        }
        Ok(None)
    }
}
