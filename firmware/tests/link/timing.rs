//! What a holder concludes from its answers.

use keyfence_core::actor::{Acquire, ActorGrant};
use keyfence_core::{Name, ProcessId, TimeMs, Token, Ttl};
use keyfence_firmware::link::{
    Answer, Answered, Call, Event, Exchange, Extension, Grant, Handler, Reply, Request, RequestId, State, Tally,
    Tenure, Tolerance,
};

use crate::line::{Line, nobody};

const NO_DRIFT: Tolerance = Tolerance {
    per_mille: 0,
    fixed_ms: 0,
};
const LENGTH_MS: u64 = 60_000;

fn at(ms: u64) -> TimeMs {
    TimeMs::new(ms).expect("a moment")
}

fn ttl() -> Ttl {
    Ttl::from_ms(LENGTH_MS).expect("a length")
}

/// Grants whatever it is asked, under this token.
struct Granting {
    token: u64,
    replayed: bool,
}

impl Handler for Granting {
    fn state(&self) -> State {
        State::Ready
    }
    fn handle(&mut self, _: &Call, _: &Tally) -> Reply {
        Reply {
            replayed: self.replayed,
            answer: Answer::Granted(Grant {
                token: Token::presented(self.token).expect("a token"),
                incarnation: None,
                message: None,
                expires_at: at(LENGTH_MS),
                lasts_ms: LENGTH_MS,
                renewed: false,
            }),
        }
    }
}

fn acquire(number: u32) -> Call {
    let ask = Acquire {
        actor: Name::new("closing").expect("a name"),
        process: ProcessId::from_bytes([7; 16]),
        ttl: ttl(),
    };
    Call::new(RequestId::new(0, number), Request::ActorAcquire(ask))
}

fn renewal() -> Call {
    let grant = ActorGrant::presented(
        Name::new("closing").expect("a name"),
        ProcessId::from_bytes([7; 16]),
        Token::FIRST,
    );
    Call::new(None, Request::ActorRenew(grant, ttl()))
}

/// Has a frame answered; returns the answer's frame.
fn answer(line: &mut Line, frame: &[u8], token: u64, replayed: bool) -> Vec<u8> {
    let mut handler = Granting { token, replayed };
    let mut random = |bytes: &mut [u8]| bytes.fill(9);
    let answers = frame
        .iter()
        .filter_map(|byte| line.kiosk.receive(*byte, &mut random, &mut handler).map(<[u8]>::to_vec));
    answers.last().expect("an answer")
}

fn take(line: &mut Line, frame: &[u8], exchange: &mut Exchange) -> Option<Answered> {
    let events = line.give_host(frame, Some(exchange));
    events.into_iter().find_map(|event| match event {
        Event::Answered(answered) => Some(answered),
        Event::Hello(_) | Event::Opened(_) | Event::Unreadable => None,
    })
}

fn opened() -> Line {
    let mut line = Line::new();
    line.open(&mut nobody);
    line
}

#[test]
fn a_lease_counts_from_the_sending_however_late_the_answer_comes() {
    let mut line = opened();
    let mut exchange = Exchange::new(acquire(1));
    let frame = line.host.send(&mut exchange, at(1_000)).unwrap();
    let answer = answer(&mut line, &frame, 1, false);
    line.now = at(50_000);
    let answered = take(&mut line, &answer, &mut exchange).unwrap();
    let tenure = Tenure::begin(&answered, NO_DRIFT).unwrap();
    assert_eq!(tenure.until(), at(1_000 + LENGTH_MS));
    assert!(tenure.may_act(at(1_000 + LENGTH_MS - 1)));
    assert!(!tenure.may_act(at(1_000 + LENGTH_MS)), "lapsed at its very end");
    let tenure = Tenure::begin(&answered, Tolerance::DEFAULT).unwrap();
    assert_eq!(tenure.until(), at(1_000 + LENGTH_MS - LENGTH_MS / 100 - 20));
}

#[test]
fn a_call_that_was_sent_again_counts_from_its_first_sending_whichever_frame_is_answered() {
    for answered_frame in [0, 1] {
        for replayed in [false, true] {
            let mut line = opened();
            let mut exchange = Exchange::new(acquire(1));
            let frames = [1_000, 41_000].map(|now| line.host.send(&mut exchange, at(now)).unwrap());
            let answer = answer(&mut line, &frames[answered_frame], 1, replayed);
            let answered = take(&mut line, &answer, &mut exchange).unwrap();
            assert_eq!(
                Tenure::begin(&answered, NO_DRIFT).unwrap().until(),
                at(1_000 + LENGTH_MS)
            );
        }
    }
}

#[test]
fn a_call_that_was_sent_again_in_another_session_counts_from_its_first_sending_too() {
    let mut line = opened();
    let mut exchange = Exchange::new(acquire(1));
    let lost = line.host.send(&mut exchange, at(1_000)).unwrap();
    line.open(&mut nobody);
    let frame = line.host.send(&mut exchange, at(30_000)).unwrap();
    let answer_frame = answer(&mut line, &frame, 1, true);
    let answered = take(&mut line, &answer_frame, &mut exchange).unwrap();
    assert_eq!(
        Tenure::begin(&answered, NO_DRIFT).unwrap().until(),
        at(1_000 + LENGTH_MS)
    );
    drop(lost);
}

#[test]
fn a_first_answer_of_an_earlier_boot_or_of_nobody_knows_when_begins_nothing() {
    // The kiosk started again in between: it has forgotten the lease that its flash still has the answer of.
    let mut line = opened();
    let mut exchange = Exchange::new(acquire(1));
    line.host.send(&mut exchange, at(1_000)).unwrap();
    line.restart_kiosk(2);
    line.open(&mut nobody);
    let frame = line.host.send(&mut exchange, at(2_000)).unwrap();
    let answer_frame = answer(&mut line, &frame, 1, true);
    let answered = take(&mut line, &answer_frame, &mut exchange).unwrap();
    assert!(Tenure::begin(&answered, NO_DRIFT).is_none());

    // Somebody sent it before and does not remember when.
    for (replayed, begins) in [(true, false), (false, true)] {
        let mut exchange = Exchange::again(acquire(2));
        let frame = line.host.send(&mut exchange, at(3_000)).unwrap();
        let answer_frame = answer(&mut line, &frame, 1, replayed);
        let answered = take(&mut line, &answer_frame, &mut exchange).unwrap();
        assert_eq!(Tenure::begin(&answered, NO_DRIFT).is_some(), begins);
    }
}

#[test]
fn a_replayed_answer_extends_nothing() {
    let mut line = opened();
    let mut exchange = Exchange::new(acquire(1));
    let frame = line.host.send(&mut exchange, at(0)).unwrap();
    let granted = answer(&mut line, &frame, 1, false);
    let answered = take(&mut line, &granted, &mut exchange).unwrap();
    let mut tenure = Tenure::begin(&answered, NO_DRIFT).unwrap();

    let mut first = Exchange::new(renewal());
    let frame = line.host.send(&mut first, at(20_000)).unwrap();
    let renewed = answer(&mut line, &frame, 1, false);
    let answered = take(&mut line, &renewed, &mut first).unwrap();
    assert_eq!(tenure.extend(&answered, NO_DRIFT), Extension::Later);
    assert_eq!(tenure.until(), at(20_000 + LENGTH_MS));
    assert_eq!(tenure.extend(&answered, NO_DRIFT), Extension::Unchanged);

    // Recorded and given again for a later renewal: the frame is not an answer to that one.
    let mut later = Exchange::new(renewal());
    line.host.send(&mut later, at(70_000)).unwrap();
    for old in [&granted, &renewed] {
        assert!(take(&mut line, old, &mut later).is_none());
    }
    assert_eq!(tenure.until(), at(20_000 + LENGTH_MS));
}

#[test]
fn an_answer_that_was_held_back_is_no_answer_to_the_next_renewal() {
    let mut line = opened();
    let mut first = Exchange::new(renewal());
    let frame = line.host.send(&mut first, at(0)).unwrap();
    let held_back = answer(&mut line, &frame, 1, false);
    // The host gave the first one up, and asks anew. An answer to the first frame must not count from the second.
    let mut second = Exchange::new(renewal());
    line.host.send(&mut second, at(59_000)).unwrap();
    assert!(take(&mut line, &held_back, &mut second).is_none());
}

#[test]
fn only_the_same_claim_in_the_same_boot_extends() {
    let mut line = opened();
    let mut exchange = Exchange::new(acquire(1));
    let frame = line.host.send(&mut exchange, at(0)).unwrap();
    let granted = answer(&mut line, &frame, 1, false);
    let answered = take(&mut line, &granted, &mut exchange).unwrap();
    let mut tenure = Tenure::begin(&answered, NO_DRIFT).unwrap();
    let boot = answered.boot();
    tenure.heard(boot);
    assert!(tenure.may_act(at(1)));

    let mut other = Exchange::new(renewal());
    let frame = line.host.send(&mut other, at(10_000)).unwrap();
    let of_another = answer(&mut line, &frame, 2, false);
    let answered = take(&mut line, &of_another, &mut other).unwrap();
    assert_eq!(tenure.extend(&answered, NO_DRIFT), Extension::NotOfThisClaim);

    line.restart_kiosk(2);
    line.open(&mut nobody);
    let mut same = Exchange::new(renewal());
    let frame = line.host.send(&mut same, at(10_000)).unwrap();
    let of_later_boot = answer(&mut line, &frame, 1, false);
    let answered = take(&mut line, &of_later_boot, &mut same).unwrap();
    assert_eq!(tenure.extend(&answered, NO_DRIFT), Extension::NotOfThisClaim);
    assert_eq!(tenure.until(), at(LENGTH_MS));

    tenure.heard(answered.boot());
    assert!(!tenure.may_act(TimeMs::ZERO), "the kiosk has forgotten every lease");
}
