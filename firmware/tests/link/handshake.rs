//! Opening a link session, and what may come in between.

use keyfence_core::Name;
use keyfence_firmware::link::{Answer, Call, Event, Exchange, HostEnd, Request, SendError, State};

use crate::line::{Line, Random, Way, frame, identity, nobody, packet};

fn mint() -> Request {
    Request::Mint(Name::new("till").expect("a name"))
}

/// Opens a session by hand; returns the open and the challenge.
fn open(line: &mut Line) -> (Vec<u8>, Vec<u8>) {
    let nonce = line.random.nonce();
    let open = line.host.open(nonce).unwrap();
    let challenge = line.give_kiosk(&open).remove(0);
    (open.to_vec(), challenge)
}

/// Whether the host's present session still works.
fn works(line: &mut Line) -> bool {
    let mut exchange = Exchange::new(Call::new(None, Request::LastNumber(0)));
    let Ok(frame) = line.host.send(&mut exchange, line.now) else {
        return false;
    };
    let events = line.pass(&frame, Some(&mut exchange), &mut nobody);
    events.iter().any(|event| matches!(event, Event::Answered(_)))
}

#[test]
fn the_current_session_lives_until_the_first_call_of_the_new_one() {
    let mut line = Line::new();
    line.call(mint(), &mut nobody);
    assert!(works(&mut line));

    // Cut off after the open reached the kiosk: the old session goes on.
    let (_, challenge) = open(&mut line);
    assert!(works(&mut line), "a challenge was made and nobody took it");

    // Cut off before the kiosk hears of it.
    let nonce = line.random.nonce();
    drop(line.host.open(nonce).unwrap());
    assert!(works(&mut line), "an open that was lost");

    // A challenge to an earlier open is not taken any more.
    assert!(line.give_host(&challenge, None).is_empty());
    assert!(works(&mut line));

    // Cut off after the host has opened it and before its first call: the kiosk still takes the old one.
    let sessions = line.kiosk.tally().sessions;
    let (_, challenge) = open(&mut line);
    let mut old_call = Exchange::new(Call::new(None, Request::LastNumber(0)));
    let old_frame = line.host.send(&mut old_call, line.now).unwrap();
    assert!(matches!(line.give_host(&challenge, None)[..], [Event::Opened(_)]));
    assert_eq!(line.kiosk.tally().sessions, sessions);
    let replies = line.give_kiosk(&old_frame);
    assert_eq!(replies.len(), 1, "the kiosk answers under the old session");
    assert!(
        line.give_host(&replies[0], Some(&mut old_call)).is_empty(),
        "the host has left it"
    );

    // The first call of the new one ends the old one.
    assert!(works(&mut line));
    assert_eq!(line.kiosk.tally().sessions, sessions + 1);
    let handled = line.model.handled;
    let replies = line.give_kiosk(&old_frame);
    assert_eq!(line.model.handled, handled);
    assert!(matches!(line.give_host(&replies[0], None)[..], [Event::Hello(_)]));
}

#[test]
fn an_open_that_comes_twice_gets_the_same_challenge() {
    let mut line = Line::new();
    let (open_frame, challenge) = open(&mut line);
    assert_eq!(line.give_kiosk(&open_frame), std::slice::from_ref(&challenge));
    assert!(matches!(line.give_host(&challenge, None)[..], [Event::Opened(_)]));
    assert!(line.give_host(&challenge, None).is_empty(), "a challenge is taken once");
    assert!(works(&mut line));
    // Once the session is there, the old open offers another one, which is none of the host's business.
    let other = line.give_kiosk(&open_frame).remove(0);
    assert_ne!(other, challenge);
    assert!(line.give_host(&other, None).is_empty());
    assert!(works(&mut line));
}

#[test]
fn a_session_that_was_recorded_cannot_be_had_again() {
    let mut line = Line::new();
    line.call(mint(), &mut nobody);
    line.call(mint(), &mut nobody);
    let to_kiosk = line.sent.iter().filter(|(way, _)| *way == Way::ToKiosk);
    let recorded: Vec<Vec<u8>> = to_kiosk.map(|(_, frame)| frame.clone()).collect();
    let mut accepted = |boot, seed| {
        line.restart_kiosk(boot);
        // The host's nonce was drawn first, then the kiosk's.
        line.random = Random(seed);
        line.random.nonce();
        for frame in &recorded {
            drop(line.give_kiosk(frame));
        }
        line.kiosk.tally().accepted
    };
    assert_eq!(accepted(1, 2), 0, "the kiosk draws another nonce");
    assert_eq!(accepted(2, 1), 0, "the same nonce in another boot");
    assert_eq!(
        accepted(1, 1),
        2,
        "the same of both, which a kiosk never has: that is what protects it"
    );
}

#[test]
fn a_handshake_cut_off_at_each_byte_is_taken_up_again() {
    let mut line = Line::new();
    line.call(mint(), &mut nobody);
    let (open_frame, challenge) = open(&mut line);
    for len in 0..open_frame.len() {
        let mut line = Line::new();
        line.call(mint(), &mut nobody);
        let nonce = line.random.nonce();
        let open = line.host.open(nonce).unwrap();
        drop(line.give_kiosk(&open[..len]));
        // Without its last zero the open is ended by the call: then the session changes under that call, which goes again.
        let is_whole = len == open.len() - 1;
        assert_eq!(works(&mut line), !is_whole, "an open cut at {len}");
        assert!(works(&mut line), "an open cut at {len}");
        line.hang_up();
        line.call(mint(), &mut nobody);
        assert_eq!(line.model.acts.len(), 2);
    }
    for len in 0..challenge.len() {
        let mut line = Line::new();
        line.call(mint(), &mut nobody);
        let (_, challenge) = open(&mut line);
        let taken = !line.give_host(&challenge[..len], None).is_empty();
        assert!(!taken, "a challenge cut at {len}");
        // Without its last zero it is ended by the answer to the call, in the same way.
        let is_whole = len == challenge.len() - 1;
        assert_eq!(works(&mut line), !is_whole, "a challenge cut at {len}");
        assert!(works(&mut line), "a challenge cut at {len}");
        line.hang_up();
        line.call(mint(), &mut nobody);
        assert_eq!(line.model.acts.len(), 2);
    }
}

#[test]
fn a_kiosk_of_another_version_says_so_and_so_does_a_host() {
    let mut line = Line::new();
    // A host of another version begins with a hello or an open, and gets this kiosk's hello.
    for kind in [1, 2] {
        let replies = line.give_kiosk(&frame(&[9, kind, 0, 0]));
        let said = line.give_host(&replies[0], None);
        assert!(matches!(said[..], [Event::Hello(hello)] if hello.version == 1));
    }
    assert!(
        line.give_kiosk(&frame(&[9, 3, 0, 0])).is_empty(),
        "noise of another version"
    );
    assert!(
        line.give_kiosk(&frame(&[9, 0x81, 0, 0])).is_empty(),
        "a kiosk answers no kiosk"
    );

    // A kiosk of another version says hello in the same words, and perhaps more of them.
    let mut hello = packet(&line.give_kiosk(&line.host.hello().unwrap())[0]);
    hello[0] = 9;
    hello[18] = 200;
    hello.extend([1, 2, 3]);
    let said = line.give_host(&frame(&hello), None);
    let [Event::Hello(said)] = said[..] else {
        panic!("{said:?}");
    };
    assert_eq!((said.version, said.device, said.state), (9, line.identity.device, None));
}

#[test]
fn a_kiosk_without_a_key_says_hello_and_nothing_else() {
    let mut line = Line::new();
    line.kiosk = keyfence_firmware::link::KioskEnd::new(None, keyfence_core::ProcessId::from_bytes([1; 16]));
    let nonce = line.random.nonce();
    let open = line.host.open(nonce).unwrap();
    for ask in [line.host.hello().unwrap(), open] {
        let replies = line.give_kiosk(&ask);
        let said = line.give_host(&replies[0], None);
        assert!(matches!(said[..], [Event::Hello(hello)] if hello.state == Some(State::Unprovisioned)));
    }
    assert_eq!(line.host.boot(), None);
}

#[test]
fn two_kiosks_on_one_line_are_silent() {
    let mut a = Line::new();
    let mut b = Line::new();
    b.identity = identity(2, 2);
    b.restart_kiosk(2);
    a.call(mint(), &mut nobody);
    let said: Vec<Vec<u8>> = a
        .sent
        .iter()
        .filter(|(way, _)| *way == Way::ToHost)
        .map(|(_, said)| said.clone())
        .collect();
    assert!(said.len() >= 2);
    for said in said {
        assert!(b.give_kiosk(&said).is_empty());
    }
}

#[test]
fn what_cannot_be_sent_says_why() {
    let mut line = Line::new();
    let mut exchange = Exchange::new(Call::new(None, mint()));
    assert_eq!(line.host.send(&mut exchange, line.now), Err(SendError::NoSession));
    assert_eq!(HostEnd::new(None).open([0; 16]), Err(SendError::NoKey));
    assert!(!exchange.was_sent());
    line.open(&mut nobody);
    let first = line.host.send(&mut exchange, line.now).unwrap();
    assert_eq!(line.host.send(&mut exchange, line.now), Err(SendError::NotRepeatable));
    // Once it is sent, its answer is taken as ever.
    let events = line.pass(&first, Some(&mut exchange), &mut nobody);
    assert!(
        matches!(&events[..], [Event::Answered(answered)] if matches!(answered.reply().answer, Answer::LastNumber(_)))
    );
}
