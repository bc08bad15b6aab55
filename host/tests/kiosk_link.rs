//! The link's user: lost frames, kiosks that start again, ports that go away, keys that do not fit.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use keyfence::core::actor;
use keyfence::core::memory::Memory;
use keyfence::core::store::Store as _;
use keyfence::kiosk::{
    Answer, DeviceId, Extension, Fault, Grant, Identity, KioskError, KioskLink, LinkKey, Options, Place, Request,
    RequestId, Tolerance, now,
};
use keyfence::{Name, ProcessId, Reason, TimeMs, Ttl};
use keyfence_firmware::link::{Call, Handler, KioskEnd, Reply, State, Tally};

fn identity(device: u8, key: u8) -> Identity {
    Identity {
        device: DeviceId::from_bytes([device; 16]),
        key: LinkKey::from_bytes([key; 32]),
    }
}

/// A ledger in RAM that keeps the last answer of its one client, and counts.
#[derive(Default)]
struct Ledger {
    rows: Memory<8>,
    kept: Option<(u32, [u8; 8], Answer)>,
    acts: usize,
}

impl Ledger {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the tests ask for nothing else")]
    fn act(&mut self, request: &Request) -> Answer {
        let now = TimeMs::ZERO;
        self.rows.set_now(now);
        match request {
            Request::ActorAcquire(ask) => {
                let decision = self.rows.step(|step, now| actor::acquire(step, ask, now));
                match decision.expect("nothing is damaged") {
                    Ok(granted) => Answer::Granted(Grant::of(&granted, granted.grant.token(), now)),
                    Err(refusal) => Answer::Refused(refusal),
                }
            }
            Request::ActorRenew(grant, ttl) => {
                let decision = self.rows.step(|step, now| actor::renew(step, grant, *ttl, now));
                match decision.expect("nothing is damaged") {
                    Ok(granted) => Answer::Granted(Grant::of(&granted, granted.grant.token(), now)),
                    Err(refusal) => Answer::Refused(refusal),
                }
            }
            Request::ActorRelease(grant) => {
                let decision = self.rows.step(|step, now| actor::release(step, grant, now));
                Answer::Released(decision.expect("nothing is damaged").expect("never refused"))
            }
            Request::LastNumber(_) => Answer::LastNumber(self.kept.as_ref().map(|(number, ..)| *number)),
            other => panic!("no test asks for {other:?}"),
        }
    }
}

impl Handler for Ledger {
    fn state(&self) -> State {
        State::Ready
    }

    fn handle(&mut self, call: &Call, _: &Tally) -> Reply {
        let Some(id) = call.id else {
            return Reply::new(self.act(&call.request));
        };
        match &self.kept {
            Some((number, fingerprint, answer)) if *number == id.number() => Reply {
                replayed: true,
                answer: if *fingerprint == call.fingerprint() {
                    answer.clone()
                } else {
                    Answer::Failed(Fault::RequestMisused)
                },
            },
            Some((last, ..)) if *last > id.number() => Reply::new(Answer::Failed(Fault::RequestTooOld { last: *last })),
            Some(_) | None => {
                self.acts += 1;
                let answer = self.act(&call.request);
                self.kept = Some((id.number(), call.fingerprint(), answer.clone()));
                Reply::new(answer)
            }
        }
    }
}

/// A kiosk and what is wrong with its cable.
struct Kiosk {
    end: KioskEnd,
    identity: Option<Identity>,
    ledger: Ledger,
    to_host: VecDeque<u8>,
    drawn: u8,
    /// How many of the next frames to the kiosk, and to the host, are lost.
    lose: (usize, usize),
    /// The kiosk starts again after it handled its next call, before it can answer.
    dies_after_next: bool,
}

impl Kiosk {
    fn new(identity: Option<Identity>) -> Self {
        Self {
            end: KioskEnd::new(identity.clone(), ProcessId::from_bytes([1; 16])),
            identity,
            ledger: Ledger::default(),
            to_host: VecDeque::new(),
            drawn: 0,
            lose: (0, 0),
            dies_after_next: false,
        }
    }

    fn restart(&mut self) {
        self.drawn += 1;
        let boot = ProcessId::from_bytes([100 + self.drawn; 16]);
        self.end = KioskEnd::new(self.identity.clone(), boot);
    }

    /// Takes bytes from the host.
    fn take(&mut self, frame: &[u8]) {
        if self.lose.0 > 0 {
            self.lose.0 -= 1;
            return;
        }
        for byte in frame {
            let drawn = &mut self.drawn;
            let mut random = |bytes: &mut [u8]| {
                *drawn += 1;
                bytes.fill(*drawn);
            };
            let acts = self.ledger.acts;
            let answer = self
                .end
                .receive(*byte, &mut random, &mut self.ledger)
                .map(<[u8]>::to_vec);
            if self.dies_after_next && self.ledger.acts > acts {
                self.dies_after_next = false;
                self.restart();
            } else if let Some(answer) = answer {
                if self.lose.1 > 0 {
                    self.lose.1 -= 1;
                } else {
                    self.to_host.extend(answer);
                }
            }
        }
    }
}

/// The host's end of a cable.
#[derive(Clone)]
struct Cable(Arc<Mutex<Kiosk>>);

impl Cable {
    fn to(identity: Option<Identity>) -> Self {
        Self(Arc::new(Mutex::new(Kiosk::new(identity))))
    }

    fn kiosk(&self) -> MutexGuard<'_, Kiosk> {
        self.0.lock().expect("no test thread panicked")
    }

    fn link(&self, identity: Identity) -> KioskLink {
        let options = Options {
            client: 0,
            timeout: Duration::from_secs(2),
        };
        KioskLink::over(self.clone(), identity, options)
    }
}

impl Write for Cable {
    fn write(&mut self, frame: &[u8]) -> io::Result<usize> {
        self.kiosk().take(frame);
        Ok(frame.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Cable {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.kiosk().to_host.read(bytes)?;
        if read == 0 {
            std::thread::sleep(Duration::from_millis(1));
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(read)
    }
}

fn ask(actor: &str) -> actor::Acquire {
    actor::Acquire {
        actor: Name::new(actor).expect("a name"),
        process: ProcessId::from_bytes([7; 16]),
        ttl: Ttl::ACTOR_LEASE,
    }
}

#[test]
fn a_claim_over_the_link_is_the_cores_grant_and_a_refusal_carries_its_evidence() {
    let cable = Cable::to(Some(identity(1, 1)));
    let mut link = cable.link(identity(1, 1));
    let lease = link.actor_acquire(&ask("closing")).unwrap().unwrap();
    assert_eq!(lease.granted.grant.name().as_str(), "closing");
    assert_eq!(lease.granted.grant.token().get(), 1);
    assert!(!lease.granted.renewed && !lease.replayed());
    let refusal = link.actor_acquire(&ask("closing")).unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::ActorLeaseHeld);
    assert_eq!(refusal.held_token, Some(lease.granted.grant.token()));
    assert_eq!(link.boot(), Some(ProcessId::from_bytes([1; 16])));
}

#[test]
fn a_holder_counts_from_its_own_sending_and_a_renewal_extends() {
    let cable = Cable::to(Some(identity(1, 1)));
    let mut link = cable.link(identity(1, 1));
    let before = now();
    let lease = link.actor_acquire(&ask("closing")).unwrap().unwrap();
    let after = now();
    let mut tenure = lease.tenure(Tolerance::DEFAULT).unwrap();
    assert!(tenure.may_act(now()));
    // 300 seconds, less one in a hundred and 20 ms.
    let length = 300_000 - 3_000 - 20;
    assert!((before.as_ms() + length..=after.as_ms() + length).contains(&tenure.until().as_ms()));
    let longer = Ttl::from_ms(600_000).unwrap();
    let renewal = link.actor_renew(&lease.granted.grant, longer).unwrap().unwrap();
    assert_eq!(renewal.extend(&mut tenure, Tolerance::DEFAULT), Extension::Later);
    assert!(tenure.until().as_ms() >= before.as_ms() + 600_000 - 6_000 - 20);
    assert_eq!(lease.extend(&mut tenure, Tolerance::DEFAULT), Extension::Unchanged);
}

#[test]
fn what_the_line_loses_is_sent_again_and_done_once() {
    for lose in [(1, 0), (2, 0), (0, 1), (0, 2), (1, 1)] {
        let cable = Cable::to(Some(identity(1, 1)));
        let mut link = cable.link(identity(1, 1));
        let first = link.actor_acquire(&ask("closing")).unwrap().unwrap();
        cable.kiosk().lose = lose;
        let second = link.actor_acquire(&ask("opening")).unwrap().unwrap();
        assert_eq!(first.granted.grant.token().get(), 1);
        assert_eq!(second.granted.grant.token().get(), 2, "{lose:?}");
        assert_eq!(second.replayed(), lose.1 > 0, "{lose:?}");
        // The first answer again is timed from the first sending.
        assert!(second.tenure(Tolerance::DEFAULT).is_some());
        assert_eq!(cable.kiosk().ledger.acts, 2);
    }
}

#[test]
fn a_kiosk_that_started_again_is_found_by_the_next_call() {
    let cable = Cable::to(Some(identity(1, 1)));
    let mut link = cable.link(identity(1, 1));
    let lease = link.actor_acquire(&ask("closing")).unwrap().unwrap();
    let mut tenure = lease.tenure(Tolerance::DEFAULT).unwrap();
    cable.kiosk().restart();
    let _ = link.actor_release(&lease.granted.grant).unwrap().unwrap();
    let boot = link.boot().unwrap();
    assert_ne!(boot, ProcessId::from_bytes([1; 16]));
    tenure.heard(boot);
    assert!(!tenure.may_act(TimeMs::ZERO));
}

#[test]
fn a_kiosk_that_dies_between_its_commit_and_its_answer_has_done_it_once() {
    let cable = Cable::to(Some(identity(1, 1)));
    let mut link = cable.link(identity(1, 1));
    link.open().unwrap();
    cable.kiosk().dies_after_next = true;
    let lease = link.actor_acquire(&ask("closing")).unwrap().unwrap();
    assert!(lease.replayed());
    assert_eq!(cable.kiosk().ledger.acts, 1);
    // It was granted in a boot that is over: nothing tells until when.
    assert!(lease.tenure(Tolerance::DEFAULT).is_none());
}

#[test]
fn without_an_answer_a_reading_failed_and_an_act_is_unknown() {
    let cable = Cable::to(Some(identity(1, 1)));
    let mut link = cable.link(identity(1, 1));
    let lease = link.actor_acquire(&ask("closing")).unwrap().unwrap();
    cable.kiosk().lose = (usize::MAX, 0);
    let unknown = link.actor_release(&lease.granted.grant).unwrap_err();
    assert!(unknown.is_unknown(), "{unknown:?}");
    let KioskError::Unknown { id: Some(id), .. } = unknown else {
        panic!("{unknown:?}");
    };
    let renewal = link.actor_renew(&lease.granted.grant, Ttl::ACTOR_LEASE).unwrap_err();
    assert!(matches!(renewal, KioskError::NoAnswer { .. }), "{renewal:?}");
    // No link session is open any more: what was not sent was not done.
    let unsent = link.actor_acquire(&ask("opening")).unwrap_err();
    assert!(matches!(unsent, KioskError::NoAnswer { .. }), "{unsent:?}");
    // Asking again under its id tells.
    cable.kiosk().lose = (0, 0);
    let answer = link
        .call_again(id, Request::ActorRelease(lease.granted.grant.clone()))
        .unwrap();
    assert_eq!(answer.into_reply().answer, Answer::Released(actor::Released::Now));
    assert_eq!(cable.kiosk().ledger.acts, 2);
}

#[test]
fn another_program_that_used_the_same_client_is_noticed_and_nothing_is_done() {
    let cable = Cable::to(Some(identity(1, 1)));
    let mut link = cable.link(identity(1, 1));
    link.actor_acquire(&ask("closing")).unwrap().unwrap();
    let later = RequestId::new(0, 40).unwrap();
    cable
        .link(identity(1, 1))
        .call_again(later, Request::ActorAcquire(ask("opening")))
        .unwrap();
    let error = link.actor_acquire(&ask("third")).unwrap_err();
    assert!(
        matches!(error, KioskError::Kiosk(Fault::RequestTooOld { last: 40 })),
        "{error:?}"
    );
    assert_eq!(
        link.actor_acquire(&ask("third"))
            .unwrap()
            .unwrap()
            .granted
            .grant
            .token()
            .get(),
        3
    );
}

#[test]
fn each_reason_why_no_session_opens_is_named() {
    let error = |kiosk: Option<Identity>, host: Identity| Cable::to(kiosk).link(host).open().unwrap_err().name();
    assert_eq!(error(None, identity(1, 1)), "unprovisioned");
    assert_eq!(error(Some(identity(1, 1)), identity(1, 2)), "not_its_key");
    assert_eq!(error(Some(identity(2, 1)), identity(1, 1)), "other_device");
    let silent = Cable::to(None);
    silent.kiosk().lose = (usize::MAX, 0);
    assert_eq!(silent.link(identity(1, 1)).open().unwrap_err().name(), "no_answer");
}

#[test]
fn a_result_that_a_kiosk_cannot_keep_is_not_sent() {
    use keyfence::core::session::{Generation, SessionGrant};
    use keyfence::{Incarnation, Token};
    let cable = Cable::to(Some(identity(1, 1)));
    let generation = Generation {
        host: Name::new("kiosk-a").unwrap(),
        incarnation: Incarnation::FIRST,
        token: Token::FIRST,
        host_token: Token::FIRST,
    };
    let grant = SessionGrant::presented(Name::new("supplier-chat").unwrap(), generation);
    let error = cable.link(identity(1, 1)).session_finish(&grant, &[0; 65]).unwrap_err();
    assert!(matches!(error, KioskError::TooLong { max: 64, .. }));
    assert_eq!(cable.kiosk().ledger.acts, 0);
}

/// Serves a kiosk over a stream until it ends or the last of `calls` calls was handled.
fn serve(kiosk: &mut Kiosk, stream: &mut (impl Read + Write), calls: Option<usize>) {
    let until = calls.map(|calls| kiosk.ledger.acts + calls);
    let begun = Instant::now();
    let mut byte = [0];
    while until.is_none_or(|until| kiosk.ledger.acts < until) {
        match stream.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => kiosk.take(&byte),
            // A terminal's other side that nobody has opened yet.
            Err(_) if begun.elapsed() < Duration::from_secs(20) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("nobody comes: {error}"),
        }
        let answer: Vec<u8> = kiosk.to_host.drain(..).collect();
        if stream.write_all(&answer).is_err() {
            break;
        }
    }
}

#[test]
fn a_port_that_goes_away_and_comes_back_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kiosk.socket");
    let missing = KioskLink::at(
        Place::Socket(path.clone()),
        identity(1, 1),
        Options {
            client: 0,
            timeout: Duration::from_millis(50),
        },
    )
    .open()
    .unwrap_err();
    assert_eq!(missing.name(), "port_missing");

    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let mut kiosk = Kiosk::new(Some(identity(1, 1)));
        for calls in [Some(1), None] {
            let (mut stream, _) = listener.accept().unwrap();
            serve(&mut kiosk, &mut stream, calls);
        }
        kiosk.ledger.acts
    });
    let mut link = KioskLink::at(Place::Socket(path), identity(1, 1), Options::default());
    let first = link.actor_acquire(&ask("closing")).unwrap().unwrap();
    let second = link.actor_acquire(&ask("opening")).unwrap().unwrap();
    assert_eq!(first.granted.grant.token().get(), 1);
    assert_eq!(second.granted.grant.token().get(), 2);
    drop(link);
    assert_eq!(server.join().unwrap(), 2);
}

#[test]
fn a_serial_port_is_opened_for_one_program_at_a_time() {
    let (mut master, slave) = serialport::TTYPort::pair().unwrap();
    let path: std::path::PathBuf = serialport::SerialPort::name(&slave).unwrap().into();
    drop(slave);
    serialport::SerialPort::set_timeout(&mut master, Duration::from_secs(10)).unwrap();
    let server = std::thread::spawn(move || {
        let mut kiosk = Kiosk::new(Some(identity(1, 1)));
        serve(&mut kiosk, &mut master, Some(1));
        // What was written is lost when this side closes before it was read.
        (kiosk.ledger.acts, master)
    });
    let place = Place::Serial(path);
    let mut link = KioskLink::at(place.clone(), identity(1, 1), Options::default());
    link.open().unwrap();
    assert_eq!(place.connect().err().map(|error| error.name()), Some("port_busy"));
    let lease = link.actor_acquire(&ask("closing")).unwrap().unwrap();
    assert_eq!(lease.granted.grant.token().get(), 1);
    assert_eq!(server.join().unwrap().0, 1);

    let nowhere = Place::Serial("/dev/there-is-no-such-port".into());
    assert_eq!(nowhere.connect().err().map(|error| error.name()), Some("port_missing"));
}
