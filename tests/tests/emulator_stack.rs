//! The stack of the real image: painted when it starts, read back after every kind of call at the bounds of a kiosk.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the one answer that it wants"
)]

use keyfence_core::attempt::{self, AttemptGrant, Outcome};
use keyfence_core::gate::{Admit, Binding, ClaimKind, LedgerCounter};
use keyfence_core::host::{HostGrant, Proof, Register};
use keyfence_core::mailbox::{Claim, ClaimNext, MessageGrant, Priority, Redrive};
use keyfence_core::session::{ClaimSession, Generation, SessionGrant};
use keyfence_core::store::Place;
use keyfence_core::{AttemptId, LedgerId, Name, ProcessId, Token, Ttl, actor};
use keyfence_firmware::link::{
    Answer, BODY_BYTES_MAX, Bytes, Call, ContentKind, Exchange, Grant, Letter, Request, RequestId,
};
use keyfence_tests::emulator::caller::Caller;
use keyfence_tests::emulator::{Build, counter, deepest_stack, image, is_available};

/// What an interrupt takes in the worst moment, and a margin as large again.
const SPARE_BYTES: usize = 256;

/// A name as long as a kiosk keeps them.
fn name(letter: char, number: u32) -> Name {
    Name::new(&format!("{}{number:02}", letter.to_string().repeat(30))).unwrap()
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_ms(ms).unwrap()
}

fn process(number: u8) -> ProcessId {
    ProcessId::from_bytes([number; 16])
}

fn full() -> Bytes {
    Bytes::from_slice(&[b'x'; BODY_BYTES_MAX]).unwrap()
}

struct Desk(Caller);

impl Desk {
    fn ask(&mut self, request: Request) -> Answer {
        self.0.call(request).unwrap().answer
    }

    #[track_caller]
    fn granted(&mut self, request: Request) -> Grant {
        match self.ask(request) {
            Answer::Granted(grant) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Any answer but a fault.
    #[track_caller]
    fn served(&mut self, request: Request) -> Answer {
        match self.ask(request) {
            Answer::Failed(fault) => panic!("not served: {fault}"),
            answer => answer,
        }
    }
}

fn send(number: u32, retries_max: u16) -> Request {
    Request::MessageSend(Letter {
        id: name('m', number),
        sender: Some(name('s', number)),
        recipient: name('a', 0),
        subject: "subject".try_into().unwrap(),
        body: full(),
        priority: Priority::default(),
        not_before: None,
        retries_max,
    })
}

#[test]
fn the_stack_holds_every_call_at_the_bounds() {
    if !is_available() {
        return;
    }
    let image = image(Build::Product).unwrap();
    let (mut machine, caller) = counter::start(&image, "kiosk-a", 5).unwrap();
    let mut desk = Desk(caller);

    // Actors and attempts.
    let acquire = |number| actor::Acquire {
        actor: name('a', number),
        process: process(1),
        ttl: ttl(600_000),
    };
    let mut lease = None;
    for number in (0..8).rev() {
        lease = Some(desk.granted(Request::ActorAcquire(acquire(number))));
    }
    let lease = lease.unwrap().token;
    desk.served(Request::ActorAcquire(acquire(0)));
    desk.granted(Request::ActorAcquireOrRenew(acquire(0)));
    for number in 0..8 {
        desk.served(Request::AssignmentCreate(attempt::Create {
            id: name('j', number),
            actor: name('a', 0),
            retry_of: (number > 0).then(|| name('j', 0)),
        }));
    }
    let attempt = |number: u32| attempt::Acquire {
        assignment: name('j', number),
        actor: name('a', 0),
        process: process(1),
        lease_token: lease,
        attempt: AttemptId::from_bytes([number as u8; 16]),
        ttl: ttl(600_000),
    };
    let attempted =
        |number: u32, token: Token| AttemptGrant::presented(name('j', number), attempt(number).attempt, token);
    for number in 0..4 {
        let token = desk.granted(Request::AttemptAcquire(attempt(number))).token;
        desk.granted(Request::AttemptRenew(attempted(number, token), ttl(700_000)));
        match number {
            0 => desk.served(Request::AttemptFinish(attempted(0, token), Outcome::Blocked, full())),
            1 => desk.served(Request::AttemptRelease(attempted(1, token))),
            2 => desk.served(Request::Revoke(ClaimKind::Attempt, name('j', 2))),
            _ => desk.served(Request::AttemptCloseLost(name('j', number))),
        };
    }

    // Messages: as many as there can be, claims that lapse, retries that end dead.
    for number in 0..8 {
        desk.served(send(number, 9));
    }
    let next = |ms| ClaimNext {
        owner: name('a', 0),
        process: Some(process(1)),
        lease_token: Some(lease),
        ttl: ttl(ms),
    };
    let claim = |number, ms| Claim {
        message: name('m', number),
        owner: name('a', 0),
        process: Some(process(1)),
        lease_token: Some(lease),
        ttl: ttl(ms),
    };
    let grant = |message: Name, token| MessageGrant::presented(message, name('a', 0), Some(process(1)), token);
    for _ in 0..6 {
        desk.granted(Request::MessageClaimNext(next(1)));
    }
    let token = desk.granted(Request::MessageClaim(claim(0, 1))).token;
    desk.served(Request::MessageExtend(grant(name('m', 0), token), ttl(60_000)));
    desk.served(Request::MessageSweep(None, 4));
    desk.served(send(8, 1));
    desk.served(send(9, 1));
    let token = desk.granted(Request::MessageClaim(claim(8, 60_000))).token;
    desk.granted(Request::MessageExtend(grant(name('m', 8), token), ttl(90_000)));
    desk.served(Request::MessageRetry(grant(name('m', 8), token), None, full()));
    let token = desk.granted(Request::MessageClaim(claim(8, 60_000))).token;
    desk.served(Request::MessageRetry(grant(name('m', 8), token), None, full()));
    desk.served(Request::MessageRedrive(Redrive {
        dead: name('m', 8),
        id: name('m', 80),
    }));
    let token = desk.granted(Request::MessageClaim(claim(9, 60_000))).token;
    desk.served(Request::MessageGiveBack(grant(name('m', 9), token)));
    let token = desk.granted(Request::MessageClaim(claim(9, 60_000))).token;
    desk.served(Request::MessageComplete(grant(name('m', 9), token), full()));
    desk.served(Request::MessageComplete(grant(name('m', 9), token), full()));
    desk.served(Request::MessageDeadLetterNew(name('m', 80)));
    desk.served(Request::Revoke(ClaimKind::Message, name('m', 1)));

    // Hosts and sessions.
    let register = Register {
        host: name('h', 0),
        process: process(2),
        proof: Proof::Process,
        ttl: ttl(600_000),
    };
    let token = desk.granted(Request::HostRegister(register.clone())).token;
    let host = HostGrant::presented(name('h', 0), process(2), token);
    desk.granted(Request::HostRenew(host.clone(), ttl(700_000)));
    let claim_session = ClaimSession {
        session: name('t', 0),
        host: host.clone(),
        ttl: ttl(600_000),
    };
    // Under one request id twice: the second time the kept answer is read and its grant looked at.
    let call = || Call::new(RequestId::new(5, 1), Request::SessionClaim(claim_session.clone()));
    let first = desk.0.exchange(&mut Exchange::new(call())).unwrap().answer;
    let again = desk.0.exchange(&mut Exchange::again(call())).unwrap();
    assert!(again.replayed);
    assert_eq!(again.answer, first);
    let Answer::Granted(session) = first else {
        panic!("not granted: {first:?}");
    };
    let replayed_extend = || Call::new(RequestId::new(6, 1), Request::MessageClaim(claim(2, 60_000)));
    desk.0.exchange(&mut Exchange::new(replayed_extend())).unwrap();
    assert!(
        desk.0
            .exchange(&mut Exchange::again(replayed_extend()))
            .unwrap()
            .replayed
    );
    let generation = Generation {
        host: name('h', 0),
        incarnation: session.incarnation.unwrap(),
        token: session.token,
        host_token: token,
    };
    let session = SessionGrant::presented(name('t', 0), generation);
    desk.served(Request::SessionFinish(session.clone(), full()));
    desk.served(Request::SessionFinish(session.clone(), full()));
    desk.served(Request::SessionRelease(session));

    // Gates, readings, upkeep.
    let admit = Admit {
        gate: name('g', 0),
        binding: Binding {
            ledger: LedgerId::from_bytes([1; 16]),
            kind: ClaimKind::Session,
            name: name('t', 0),
        },
        token,
        counter: LedgerCounter::Read(Some(token)),
    };
    desk.served(Request::GateAdmit(admit.clone()));
    desk.served(Request::GateRebind(name('g', 0), admit.binding));
    desk.served(Request::Info);
    desk.served(Request::Dump(0));
    for (place, key) in [
        (Place::Message, name('m', 8)),
        (Place::Assignment, name('j', 0)),
        (Place::Session, name('t', 0)),
    ] {
        desk.served(Request::Row(place, key.clone()));
        desk.served(Request::Content(place, key, ContentKind::Result));
    }
    desk.served(Request::Revoke(ClaimKind::Host, name('h', 0)));
    desk.served(Request::ActorRelease(actor::ActorGrant::presented(
        name('a', 0),
        process(1),
        lease,
    )));
    desk.served(Request::AttemptCloseNextLost);
    desk.served(Request::Prune);
    desk.served(Request::Lift(Token::presented(100_000), None));

    // The mount of a region that is not empty, and the work ahead.
    let (used, size) = deepest_stack(&mut machine, &image).unwrap();
    machine.reset().unwrap();
    machine.run().unwrap();
    desk.0.forget();
    desk.served(Request::Info);
    let (after_reset, _) = deepest_stack(&mut machine, &image).unwrap();
    println!("stack: {used} bytes seen in calls, {after_reset} in a mount, of {size}");
    assert!(used.max(after_reset) + SPARE_BYTES <= size, "the stack is too small");
}
