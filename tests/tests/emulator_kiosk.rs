//! The real image, over its serial line: claims, takeovers, finishes, power cuts.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the one answer that it wants"
)]

use keyfence::emulator::{Image, Machine};
use keyfence_core::attempt::Done;
use keyfence_core::host::{HostGrant, Proof, Register};
use keyfence_core::session::{ClaimSession, Generation, SessionGrant, SessionState};
use keyfence_core::store::Place;
use keyfence_core::{Name, ProcessId, Reason, Token, Ttl, actor};
use keyfence_firmware::link::{Answer, Bytes, Call, Exchange, Fault, Grant, Info, Request, RequestId, Row, State};
use keyfence_tests::emulator::caller::Caller;
use keyfence_tests::emulator::{Build, counter, image, is_available};

/// The register of the pins' levels, and the output `till`, which follows the session of that name.
const GPIO_OUT: u32 = 0x5000_0504;
const TILL: u32 = 1 << 3;

fn product() -> Image {
    image(Build::Product).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_ms(ms).unwrap()
}

fn granted(answer: Answer) -> Grant {
    match answer {
        Answer::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn refused(answer: Answer) -> Reason {
    match answer {
        Answer::Refused(refusal) => refusal.reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn info(caller: &mut Caller) -> Info {
    match caller.call(Request::Info).unwrap().answer {
        Answer::Info(info) => info,
        other => panic!("no info: {other:?}"),
    }
}

fn register(caller: &mut Caller, host: &str, ms: u64) -> HostGrant {
    let process = ProcessId::from_bytes([host.as_bytes()[0]; 16]);
    let ask = Register {
        host: name(host),
        process,
        proof: Proof::Process,
        ttl: ttl(ms),
    };
    let grant = granted(caller.call(Request::HostRegister(ask)).unwrap().answer);
    HostGrant::presented(name(host), process, grant.token)
}

fn claim(caller: &mut Caller, host: &HostGrant, ms: u64) -> Answer {
    let ask = ClaimSession {
        session: name("till"),
        host: host.clone(),
        ttl: ttl(ms),
    };
    caller.call(Request::SessionClaim(ask)).unwrap().answer
}

fn session_grant(host: &HostGrant, grant: &Grant) -> SessionGrant {
    let generation = Generation {
        host: host.name().clone(),
        incarnation: grant.incarnation.unwrap(),
        token: grant.token,
        host_token: host.token(),
    };
    SessionGrant::presented(name("till"), generation)
}

fn finish(caller: &mut Caller, grant: &SessionGrant, result: &[u8]) -> Answer {
    let result = Bytes::from_slice(result).unwrap();
    caller
        .call(Request::SessionFinish(grant.clone(), result))
        .unwrap()
        .answer
}

fn is_till_open(machine: &mut Machine) -> bool {
    machine.register(GPIO_OUT).unwrap() & TILL != 0
}

#[test]
fn it_says_hello_without_a_key_and_writes_nothing_until_somebody_is_authenticated() {
    if !is_available() {
        return;
    }
    let image = product();
    let (mut machine, mut caller) = counter::start(&image, "kiosk-a", 1).unwrap();
    let before = machine.journal().unwrap();
    let hello = caller.hello().unwrap();
    assert_eq!(hello.state, Some(State::Starting));
    assert_eq!(hello.device, counter::identity("kiosk-a").device);
    let boot = caller.open().unwrap();
    assert_eq!(machine.journal().unwrap(), before);
    let info = info(&mut caller);
    assert_eq!(info.state, State::Ready);
    assert_eq!(info.boot_id, boot);
    assert_ne!(
        machine.journal().unwrap(),
        before,
        "the boot is on record before anything is answered"
    );
    assert_eq!(info.wear.pages, 24);
    let names: Vec<_> = info.outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(names, ["till", "freezer", "alarm"]);
}

#[test]
fn a_session_is_claimed_taken_over_and_finished_and_the_stale_finish_is_refused() {
    if !is_available() {
        return;
    }
    let image = product();
    let (mut machine, mut caller) = counter::start(&image, "kiosk-a", 2).unwrap();
    let first_host = register(&mut caller, "a-host", 60_000);
    let first = granted(claim(&mut caller, &first_host, 1));
    let first_grant = session_grant(&first_host, &first);
    let second_host = register(&mut caller, "b-host", 60_000);
    let second = granted(claim(&mut caller, &second_host, 60_000));
    assert_eq!(first.incarnation.map(|n| n.get()), Some(1));
    assert_eq!(second.incarnation.map(|n| n.get()), Some(2));
    assert!(second.token > first.token);
    assert!(is_till_open(&mut machine), "the output follows the live claim");
    assert_eq!(
        refused(finish(&mut caller, &first_grant, b"late")),
        Reason::SessionClaimStale
    );
    assert_eq!(refused(claim(&mut caller, &first_host, 1)), Reason::SessionHeld);
    assert!(is_till_open(&mut machine));
    let second_grant = session_grant(&second_host, &second);
    assert_eq!(finish(&mut caller, &second_grant, b"sent"), Answer::Done(Done::Now));
    assert_eq!(finish(&mut caller, &second_grant, b"sent"), Answer::Done(Done::Already));
    assert!(!is_till_open(&mut machine));
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_and_the_token_of_before_is_refused() {
    if !is_available() {
        return;
    }
    let image = product();
    let (mut machine, mut caller) = counter::start(&image, "kiosk-a", 3).unwrap();
    let host = register(&mut caller, "a-host", 60_000);
    let first = granted(claim(&mut caller, &host, 60_000));
    let grant = session_grant(&host, &first);
    let before = info(&mut caller);
    assert!(is_till_open(&mut machine));

    machine.cut_power(7).unwrap();
    machine.run().unwrap();
    caller.forget();

    let after = info(&mut caller);
    assert_eq!(after.boot, before.boot + 1);
    assert_ne!(after.boot_id, before.boot_id);
    assert!(!is_till_open(&mut machine), "safe until somebody claims anew");
    let row = caller.call(Request::Row(Place::Session, name("till"))).unwrap().answer;
    let Answer::Row(Some(Row::Session(row))) = row else {
        panic!("no row: {row:?}");
    };
    let SessionState::Claimed(kept) = &row.state else {
        panic!("not claimed: {row:?}");
    };
    assert_eq!(kept.generation, *grant.generation());
    assert_eq!(refused(finish(&mut caller, &grant, b"late")), Reason::SessionClaimStale);
    let host = register(&mut caller, "a-host", 60_000);
    let again = granted(claim(&mut caller, &host, 60_000));
    assert!(again.token > first.token);
    assert_eq!(again.incarnation.map(|n| n.get()), Some(2));
    assert!(is_till_open(&mut machine));
    assert_eq!(refused(finish(&mut caller, &grant, b"late")), Reason::SessionClaimStale);
}

#[test]
fn a_call_under_a_known_request_id_is_answered_from_memory_and_not_done_again() {
    if !is_available() {
        return;
    }
    let image = product();
    let (mut machine, mut caller) = counter::start(&image, "kiosk-a", 4).unwrap();
    let mint = |purpose: &str, number| Call::new(RequestId::new(3, number), Request::Mint(name(purpose)));
    let minted = |answer: Answer| -> Token {
        match answer {
            Answer::Minted(token) => token,
            other => panic!("not minted: {other:?}"),
        }
    };
    let first = caller.exchange(&mut Exchange::new(mint("one", 5))).unwrap();
    assert!(!first.replayed);
    let again = caller.exchange(&mut Exchange::again(mint("one", 5))).unwrap();
    assert!(again.replayed);
    let token = minted(first.answer);
    assert_eq!(minted(again.answer), token);

    machine.cut_power(1).unwrap();
    machine.run().unwrap();
    caller.forget();
    let later = caller.exchange(&mut Exchange::again(mint("one", 5))).unwrap();
    assert!(later.replayed, "the answer is kept in the frame of the call");
    assert_eq!(minted(later.answer), token);
    let other = caller.exchange(&mut Exchange::again(mint("another", 5))).unwrap();
    assert_eq!(other.answer, Answer::Failed(Fault::RequestMisused));
    let old = caller.exchange(&mut Exchange::again(mint("one", 4))).unwrap();
    assert_eq!(old.answer, Answer::Failed(Fault::RequestTooOld { last: 5 }));
    let next = caller.exchange(&mut Exchange::new(mint("one", 6))).unwrap();
    assert!(minted(next.answer) > token);

    // A grant that is answered again after a power cut is not current: the answer is the refusal that it would get.
    let ask = actor::Acquire {
        actor: name("closing"),
        process: ProcessId::from_bytes([9; 16]),
        ttl: ttl(60_000),
    };
    let acquire = || Call::new(RequestId::new(3, 7), Request::ActorAcquire(ask.clone()));
    let granted_first = granted(caller.exchange(&mut Exchange::new(acquire())).unwrap().answer);
    let replayed = caller.exchange(&mut Exchange::again(acquire())).unwrap();
    assert!(replayed.replayed);
    assert_eq!(granted(replayed.answer).token, granted_first.token);
    machine.cut_power(2).unwrap();
    machine.run().unwrap();
    caller.forget();
    let stale = caller.exchange(&mut Exchange::again(acquire())).unwrap();
    assert_eq!(refused(stale.answer), Reason::ActorLeaseLost);
}
