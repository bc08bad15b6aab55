//! A line with a kiosk at one end and a host at the other.

use keyfence_core::attempt::Done;
use keyfence_core::{ProcessId, TimeMs, Token};
use keyfence_firmware::link::{
    Answer, Answered, CLIENTS, Call, DeviceId, Event, Exchange, Fault, Grant, Handler, HostEnd, Identity, KioskEnd,
    LinkKey, Repetition, Reply, Request, RequestId, State, Tally,
};

/// Equal seeds give equal streams (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.next() as u8);
    }

    pub(crate) fn nonce(&mut self) -> [u8; 16] {
        let mut nonce = [0; 16];
        self.fill(&mut nonce);
        nonce
    }
}

pub(crate) fn identity(device: u8, key: u8) -> Identity {
    Identity {
        device: DeviceId::from_bytes([device; 16]),
        key: LinkKey::from_bytes([key; 32]),
    }
}

/// A kiosk that mints a token for every call that has to be named, and keeps the last answer of each client.
#[derive(Default)]
pub(crate) struct Model {
    /// How often it was asked for anything.
    pub(crate) handled: usize,
    /// What it did, one for every call that was not done before: as it would be written to flash.
    pub(crate) acts: Vec<String>,
    kept: [Option<(u32, [u8; 8], Answer)>; CLIENTS],
}

impl Model {
    fn act(&mut self, request: &Request) -> Answer {
        self.acts.push(format!("{request:?}"));
        if let Request::Mint(_) = request {
            let token = Token::presented(self.acts.len() as u64).expect("a small number");
            Answer::Minted(token)
        } else {
            Answer::Done(Done::Now)
        }
    }

    /// What a call says that does nothing.
    fn read(&self, request: &Request) -> Answer {
        if let Request::ActorRenew(grant, ttl) = request {
            Answer::Granted(Grant {
                token: grant.token(),
                incarnation: None,
                message: None,
                expires_at: TimeMs::ZERO.after(*ttl),
                lasts_ms: ttl.as_ms(),
                renewed: true,
            })
        } else {
            Answer::LastNumber(Some(self.acts.len() as u32))
        }
    }
}

impl Handler for Model {
    fn state(&self) -> State {
        State::Ready
    }

    fn handle(&mut self, call: &Call, _: &Tally) -> Reply {
        self.handled += 1;
        let Some(id) = call.id else {
            return Reply::new(self.read(&call.request));
        };
        let kept = self.kept[usize::from(id.client())].clone();
        match kept {
            Some((number, fingerprint, answer)) if number == id.number() => Reply {
                replayed: fingerprint == call.fingerprint(),
                answer: if fingerprint == call.fingerprint() {
                    answer
                } else {
                    Answer::Failed(Fault::RequestMisused)
                },
            },
            Some((last, ..)) if last > id.number() => Reply::new(Answer::Failed(Fault::RequestTooOld { last })),
            Some(_) | None => {
                let answer = self.act(&call.request);
                self.kept[usize::from(id.client())] = Some((id.number(), call.fingerprint(), answer.clone()));
                Reply::new(answer)
            }
        }
    }
}

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToKiosk,
    ToHost,
}

/// Somebody on the line: sees each frame that is sent and says which bytes arrive instead.
pub(crate) type Meddler<'a> = &'a mut dyn FnMut(Way, &[u8]) -> Vec<Vec<u8>>;

/// Nobody.
pub(crate) fn nobody(_: Way, frame: &[u8]) -> Vec<Vec<u8>> {
    vec![frame.to_vec()]
}

/// How often a host tries before it gives up.
const TRIES: usize = 12;

pub(crate) struct Line {
    pub(crate) identity: Identity,
    pub(crate) kiosk: KioskEnd,
    pub(crate) model: Model,
    pub(crate) host: HostEnd,
    pub(crate) random: Random,
    pub(crate) now: TimeMs,
    /// Every frame that was sent, in order.
    pub(crate) sent: Vec<(Way, Vec<u8>)>,
    number: u32,
    is_open: bool,
}

impl Line {
    pub(crate) fn new() -> Self {
        let identity = identity(1, 1);
        Self {
            kiosk: KioskEnd::new(Some(identity.clone()), ProcessId::from_bytes([1; 16])),
            model: Model::default(),
            host: HostEnd::new(Some(identity.clone())),
            identity,
            random: Random(1),
            now: TimeMs::ZERO,
            sent: Vec::new(),
            number: 0,
            is_open: false,
        }
    }

    /// The kiosk starts again: another boot, the same flash.
    pub(crate) fn restart_kiosk(&mut self, boot: u8) {
        self.kiosk = KioskEnd::new(Some(self.identity.clone()), ProcessId::from_bytes([boot; 16]));
    }

    /// The host forgets its link session, and will open another one.
    pub(crate) fn hang_up(&mut self) {
        self.is_open = false;
    }

    /// Gives the kiosk bytes; returns the frames that it sends.
    pub(crate) fn give_kiosk(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut random = |bytes: &mut [u8]| self.random.fill(bytes);
        let frames = bytes
            .iter()
            .filter_map(|byte| {
                self.kiosk
                    .receive(*byte, &mut random, &mut self.model)
                    .map(<[u8]>::to_vec)
            })
            .collect::<Vec<_>>();
        assert!(frames.len() <= 1 + bytes.iter().filter(|byte| **byte == 0).count());
        frames
    }

    /// Gives the host bytes; returns what they brought.
    pub(crate) fn give_host(&mut self, bytes: &[u8], mut exchange: Option<&mut Exchange>) -> Vec<Event> {
        bytes
            .iter()
            .filter_map(|byte| self.host.receive(*byte, exchange.as_deref_mut()))
            .collect()
    }

    /// Sends a frame to the kiosk and takes what comes back.
    pub(crate) fn pass(
        &mut self,
        frame: &[u8],
        mut exchange: Option<&mut Exchange>,
        meddler: Meddler<'_>,
    ) -> Vec<Event> {
        self.sent.push((Way::ToKiosk, frame.to_vec()));
        let mut events = Vec::new();
        for arrived in meddler(Way::ToKiosk, frame) {
            for reply in self.give_kiosk(&arrived) {
                self.sent.push((Way::ToHost, reply.clone()));
                for arrived in meddler(Way::ToHost, &reply) {
                    events.extend(self.give_host(&arrived, exchange.as_deref_mut()));
                }
            }
        }
        events
    }

    /// Makes a call as a host does: opens a link session if there is none, sends again what was lost, opens anew when the
    /// kiosk does not know the session or nothing helps.
    pub(crate) fn call(&mut self, request: Request, meddler: Meddler<'_>) -> Answered {
        let id = (request.repetition() == Repetition::NeedsId).then(|| {
            self.number += 1;
            RequestId::new(0, self.number).expect("client 0 is one")
        });
        let mut exchange = Exchange::new(Call::new(id, request));
        for attempt in 0..TRIES {
            if !self.is_open || attempt % 3 == 2 {
                self.open(meddler);
            }
            let Ok(frame) = self.host.send(&mut exchange, self.now) else {
                continue;
            };
            for event in self.pass(&frame, Some(&mut exchange), meddler) {
                match event {
                    Event::Answered(answered) => return answered,
                    Event::Hello(_) => self.is_open = false,
                    Event::Opened(_) => {}
                    Event::Unreadable => panic!("both ends speak the same version"),
                }
            }
        }
        panic!("no answer after {TRIES} tries: {:?}", exchange.call());
    }

    /// Opens a link session, trying a few times.
    pub(crate) fn open(&mut self, meddler: Meddler<'_>) {
        let nonce = self.random.nonce();
        for _ in 0..TRIES {
            let frame = self.host.open(nonce).expect("the key is known");
            let events = self.pass(&frame, None, meddler);
            if events.iter().any(|event| matches!(event, Event::Opened(_))) {
                self.is_open = true;
                return;
            }
        }
    }
}

/// The packet in a frame.
pub(crate) fn packet(frame: &[u8]) -> Vec<u8> {
    let body = &frame[1..frame.len() - 1];
    let mut bytes = vec![0; frame.len()];
    let report = cobs::decode(body, &mut bytes).expect("a whole frame");
    bytes.truncate(report.frame_size());
    bytes
}

/// The frame of a packet.
pub(crate) fn frame(packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; cobs::max_encoding_length(packet.len()) + 2];
    let len = cobs::encode_including_sentinels(packet, &mut bytes);
    bytes.truncate(len);
    bytes
}
