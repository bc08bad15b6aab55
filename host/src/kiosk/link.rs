//! Calls over the line: sending, waiting, asking again, opening anew.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use keyfence_core::{ProcessId, TimeMs};
use keyfence_firmware::link::{
    Answer, Answered, Call, DeviceId, Event, Exchange, Fault, Frame, Hello, HostEnd, Identity, NAME_BYTES_MAX,
    Repetition, Request, RequestId, SendError, State, VERSION,
};
use uuid::Uuid;

use super::error::KioskError;
use super::port::{Place, Port};
use crate::run::boot_clock;

/// How long a link waits before it sends the same again the first time; then twice as long, up to [`PATIENCE_MAX`].
const PATIENCE: Duration = Duration::from_millis(250);
/// The longest of these waits: longer than any chip erases a page.
const PATIENCE_MAX: Duration = Duration::from_secs(3);
/// How often a call is sent in one link session before the session is given up.
const SENDS_MAX: u32 = 3;
/// How often a session is asked for before a hello is believed about why there is none.
const TRIES_MAX: u32 = 3;
/// How long a port that failed is left alone.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How a link is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which of the kiosk's 8 clients this is, from 0. Two programs that use a kiosk in turn may be the same client.
    pub client: u8,
    /// How long one call may take: its sending again, and what the port needs to come back, included.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client: 0,
            timeout: Duration::from_secs(5),
        }
    }
}

/// The clock that holders of kiosk leases count on: milliseconds since this machine booted, suspend included.
#[must_use]
pub fn now() -> TimeMs {
    let ms = u64::try_from(boot_clock::now().as_millis()).unwrap_or(u64::MAX);
    TimeMs::new(ms).unwrap_or(TimeMs::MAX)
}

/// How a link gets its port, and gets it again.
type Connect = Box<dyn FnMut() -> Result<Box<dyn Port>, KioskError> + Send>;

/// A link to one kiosk.
pub struct KioskLink {
    connect: Connect,
    port: Option<Box<dyn Port>>,
    end: HostEnd,
    device: DeviceId,
    options: Options,
    /// The number of this client's last call; `None` until the kiosk was asked.
    number: Option<u32>,
    /// The kiosk does not know the link session, or seems not to.
    is_lost: bool,
    /// What the kiosk said without a seal last.
    hello: Option<Hello>,
    /// Bytes that arrived and were not looked at yet.
    received: VecDeque<u8>,
}

impl std::fmt::Debug for KioskLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KioskLink")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl KioskLink {
    /// A link to the kiosk of this identity at `place`, which is opened by the first call and again whenever it fails.
    #[must_use]
    pub fn at(place: Place, identity: Identity, options: Options) -> Self {
        Self::new(Box::new(move || place.connect()), identity, options)
    }

    /// A link over a port that is open. When it fails it does not come back.
    #[must_use]
    pub fn over(port: impl Port + 'static, identity: Identity, options: Options) -> Self {
        let mut port: Option<Box<dyn Port>> = Some(Box::new(port));
        let gone = || KioskError::Port(io::ErrorKind::NotConnected.into());
        Self::new(Box::new(move || port.take().ok_or_else(gone)), identity, options)
    }

    fn new(connect: Connect, identity: Identity, options: Options) -> Self {
        Self {
            connect,
            port: None,
            device: identity.device,
            end: HostEnd::new(Some(identity)),
            options,
            number: None,
            is_lost: true,
            hello: None,
            received: VecDeque::new(),
        }
    }

    /// Which kiosk this is.
    #[must_use]
    pub const fn device(&self) -> DeviceId {
        self.device
    }

    /// In which boot the kiosk was when it last showed that it has the key; `None` before that.
    #[must_use]
    pub fn boot(&self) -> Option<ProcessId> {
        self.end.boot()
    }

    /// Opens a new link session, whether or not one is open: the kiosk shows that it has the key, and which boot it is in.
    ///
    /// # Errors
    /// [`KioskError`]. Nothing is done on the kiosk.
    pub fn open(&mut self) -> Result<ProcessId, KioskError> {
        let begun = Instant::now();
        self.handshake(begun)
    }

    /// Makes a call under the next request id of this client, if it is one that needs an id (K1).
    ///
    /// # Errors
    /// [`KioskError`]. A refusal or a fault of the kiosk is an answer.
    pub fn call(&mut self, request: Request) -> Result<Answered, KioskError> {
        let begun = Instant::now();
        let id = match request.repetition() {
            Repetition::Harmless => None,
            Repetition::NeedsId => Some(self.next_id(begun)?),
        };
        self.exchange(&mut Exchange::new(Call::new(id, request)), begun)
    }

    /// Makes a call under a request id that may have been used for it before: when it was, it is not done again.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn call_again(&mut self, id: RequestId, request: Request) -> Result<Answered, KioskError> {
        self.exchange(&mut Exchange::again(Call::new(Some(id), request)), Instant::now())
    }

    /// The next request id of this client. The kiosk is asked once for the number of the last one.
    fn next_id(&mut self, begun: Instant) -> Result<RequestId, KioskError> {
        let client = self.options.client;
        let last = match self.number {
            Some(last) => last,
            None => {
                let mut ask = Exchange::new(Call::new(None, Request::LastNumber(client)));
                let answer = self.exchange(&mut ask, begun)?.into_reply().answer;
                let Answer::LastNumber(last) = answer else {
                    return Err(unexpected(&answer));
                };
                last.unwrap_or(0)
            }
        };
        let number = last.checked_add(1).ok_or(KioskError::NumbersExhausted { client })?;
        self.number = Some(number);
        RequestId::new(client, number).ok_or(KioskError::Unexpected)
    }

    /// Sends a call until it is answered, or the call's time is over.
    fn exchange(&mut self, exchange: &mut Exchange, begun: Instant) -> Result<Answered, KioskError> {
        let answered = self.until_answered(exchange, begun);
        if let Ok(answered) = &answered
            && let Answer::Failed(Fault::RequestTooOld { last }) = answered.reply().answer
        {
            self.number = Some(last);
        }
        answered
    }

    fn until_answered(&mut self, exchange: &mut Exchange, begun: Instant) -> Result<Answered, KioskError> {
        let mut patience = PATIENCE;
        for sends in 1.. {
            match self.attempt(exchange, begun, patience) {
                Ok(Some(answered)) => return Ok(answered),
                Ok(None) => {}
                // The port may come back.
                Err(KioskError::Port(_) | KioskError::PortMissing { .. }) if !self.left(begun).is_zero() => {
                    std::thread::sleep(RECONNECT_PAUSE.min(self.left(begun)));
                    continue;
                }
                Err(cause) => return Err(given_up(exchange, cause)),
            }
            if self.left(begun).is_zero() {
                break;
            }
            patience = (2 * patience).min(PATIENCE_MAX);
            self.is_lost |= sends % SENDS_MAX == 0;
        }
        Err(given_up(
            exchange,
            KioskError::NoAnswer {
                waited: begun.elapsed(),
            },
        ))
    }

    /// Sends a call once and waits a while for its answer.
    fn attempt(
        &mut self,
        exchange: &mut Exchange,
        begun: Instant,
        patience: Duration,
    ) -> Result<Option<Answered>, KioskError> {
        if self.is_lost {
            self.handshake(begun)?;
        }
        let frame = match self.end.send(exchange, now()) {
            Ok(frame) => frame,
            Err(SendError::NoSession | SendError::SessionExhausted) => {
                self.is_lost = true;
                return Ok(None);
            }
            Err(SendError::TooLong) => {
                return Err(KioskError::TooLong {
                    what: "a name",
                    max: NAME_BYTES_MAX,
                });
            }
            Err(SendError::NoKey | SendError::NotRepeatable) => return Err(KioskError::Unexpected),
        };
        self.write(&frame)?;
        let until = Instant::now() + patience.min(self.left(begun));
        while let Some(event) = self.wait(until, Some(exchange))? {
            match event {
                Event::Answered(answered) => return Ok(Some(answered)),
                Event::Unreadable => return Err(KioskError::Unexpected),
                Event::Opened(_) => {}
                Event::Hello(hello) => {
                    self.hello = Some(hello);
                    self.is_lost = true;
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Opens a link session, or says as exactly as a hello can tell why there is none (K3).
    fn handshake(&mut self, begun: Instant) -> Result<ProcessId, KioskError> {
        self.hello = None;
        let nonce = Uuid::new_v4().into_bytes();
        let open = self.end.open(nonce).map_err(|_| KioskError::Unexpected)?;
        let hello = self.end.hello().map_err(|_| KioskError::Unexpected)?;
        let mut patience = PATIENCE;
        for tries in 1.. {
            self.write(&open)?;
            let until = Instant::now() + patience.min(self.left(begun));
            while let Some(event) = self.wait(until, None)? {
                match event {
                    Event::Opened(boot) => {
                        self.is_lost = false;
                        return Ok(boot);
                    }
                    Event::Hello(hello) => {
                        self.hello = Some(hello);
                        if hello.state == Some(State::Unprovisioned) {
                            // That was the answer.
                            break;
                        }
                    }
                    Event::Answered(_) | Event::Unreadable => {}
                }
            }
            let is_over = self.left(begun).is_zero();
            match self.hello {
                Some(hello) if is_over || tries >= TRIES_MAX => return Err(self.why_closed(hello)),
                Some(_) | None if is_over => break,
                // Whoever is there says who it is, before it is asked once more.
                Some(_) | None => self.write(&hello)?,
            }
            patience = (2 * patience).min(PATIENCE_MAX);
        }
        Err(KioskError::NoAnswer {
            waited: begun.elapsed(),
        })
    }

    /// What a hello says about why no session was opened.
    fn why_closed(&self, hello: Hello) -> KioskError {
        if hello.version != VERSION {
            KioskError::OtherVersion {
                theirs: hello.version,
                ours: VERSION,
            }
        } else if hello.state == Some(State::Unprovisioned) {
            KioskError::Unprovisioned
        } else if hello.device != self.device {
            KioskError::OtherDevice {
                expected: self.device,
                found: hello.device,
            }
        } else {
            KioskError::NotItsKey { device: hello.device }
        }
    }

    /// What is left of a call's time.
    fn left(&self, begun: Instant) -> Duration {
        self.options.timeout.saturating_sub(begun.elapsed())
    }

    fn write(&mut self, frame: &Frame) -> Result<(), KioskError> {
        let port = match &mut self.port {
            Some(port) => port,
            None => self.port.insert((self.connect)()?),
        };
        port.write_all(frame)
            .and_then(|()| port.flush())
            .map_err(|error| self.failed(error))
    }

    /// Waits for the next thing that arrives, up to `until`.
    fn wait(&mut self, until: Instant, mut exchange: Option<&mut Exchange>) -> Result<Option<Event>, KioskError> {
        loop {
            while let Some(byte) = self.received.pop_front() {
                if let Some(event) = self.end.receive(byte, exchange.as_deref_mut()) {
                    return Ok(Some(event));
                }
            }
            let Some(port) = &mut self.port else {
                return Ok(None);
            };
            let mut bytes = [0; 256];
            match port.read(&mut bytes) {
                Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(len) => self.received.extend(&bytes[..len]),
                Err(error) if is_silence(&error) => {
                    if Instant::now() >= until {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Lets go of a port that failed.
    fn failed(&mut self, error: io::Error) -> KioskError {
        self.port = None;
        self.received.clear();
        self.is_lost = true;
        KioskError::Port(error)
    }
}

/// What a call comes to that gets no answer (K2).
fn given_up(exchange: &Exchange, cause: KioskError) -> KioskError {
    match exchange.call().request.repetition() {
        Repetition::NeedsId if exchange.was_sent() => KioskError::Unknown {
            id: exchange.call().id,
            cause: Box::new(cause),
        },
        Repetition::NeedsId | Repetition::Harmless => cause,
    }
}

/// The error that an answer is which is none to the call: a fault of the kiosk, or of one of the ends.
pub(super) const fn unexpected(answer: &Answer) -> KioskError {
    if let Answer::Failed(fault) = answer {
        KioskError::Kiosk(*fault)
    } else {
        KioskError::Unexpected
    }
}

/// Nothing has arrived yet.
fn is_silence(error: &io::Error) -> bool {
    [
        io::ErrorKind::WouldBlock,
        io::ErrorKind::TimedOut,
        io::ErrorKind::Interrupted,
    ]
    .contains(&error.kind())
}

/// Asks whoever is at the port who it is, without a key. What comes back is a hint.
///
/// # Errors
/// [`KioskError::NoAnswer`] or [`KioskError::Port`].
pub fn hello(port: &mut dyn Port, timeout: Duration) -> Result<Hello, KioskError> {
    let begun = Instant::now();
    let mut end = HostEnd::new(None);
    let frame = end.hello().map_err(|_| KioskError::Unexpected)?;
    loop {
        port.write_all(&frame)
            .and_then(|()| port.flush())
            .map_err(KioskError::Port)?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let mut byte = [0];
            match port.read(&mut byte) {
                Ok(0) => return Err(KioskError::Port(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {
                    if let Some(Event::Hello(hello)) = end.receive(byte[0], None) {
                        return Ok(hello);
                    }
                }
                Err(error) if is_silence(&error) => {}
                Err(error) => return Err(KioskError::Port(error)),
            }
        }
        if begun.elapsed() >= timeout {
            return Err(KioskError::NoAnswer {
                waited: begun.elapsed(),
            });
        }
    }
}
