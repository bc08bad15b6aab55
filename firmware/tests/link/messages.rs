//! Every message over the line and back, and how long the longest are.

use keyfence_core::mailbox::Priority;
use keyfence_core::{Name, TimeMs};
use keyfence_firmware::link::{
    Answer, Bytes, Call, Event, Exchange, Handler, KEPT_BYTES_MAX, Letter, Repetition, Reply, Request, RequestId,
    SendError, State, Tally,
};
use keyfence_firmware::store::NAME_BYTES_MAX;

use crate::line::{Line, nobody};
use crate::longest::{Longest, WHYS};

/// Hears what arrives and says what it is told to.
struct Echo {
    heard: Option<Call>,
    says: Reply,
    state: State,
}

impl Handler for Echo {
    fn state(&self) -> State {
        self.state
    }
    fn handle(&mut self, call: &Call, _: &Tally) -> Reply {
        self.heard = Some(call.clone());
        self.says.clone()
    }
}

/// Sends a call and an answer over an open line; returns what arrived of both.
fn there_and_back(line: &mut Line, id: Option<RequestId>, request: Request, says: Reply) -> (Call, Reply) {
    let mut echo = Echo {
        heard: None,
        says,
        state: State::Ready,
    };
    let mut exchange = Exchange::new(Call::new(id, request));
    let frame = line.host.send(&mut exchange, line.now).expect("it fits into a frame");
    let mut random = |bytes: &mut [u8]| bytes.fill(1);
    let mut answered = None;
    for byte in &frame {
        if let Some(answer) = line.kiosk.receive(*byte, &mut random, &mut echo).map(<[u8]>::to_vec) {
            for byte in answer {
                match line.host.receive(byte, Some(&mut exchange)) {
                    Some(Event::Answered(arrived)) => answered = Some(arrived.into_reply()),
                    other => assert!(other.is_none(), "{other:?}"),
                }
            }
        }
    }
    (
        echo.heard.expect("the call arrived"),
        answered.expect("the answer arrived"),
    )
}

/// The word of a request.
fn word(request: &Request) -> String {
    let text = format!("{request:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

#[test]
fn every_request_of_any_length_arrives_as_it_was_sent() {
    for length in [1, NAME_BYTES_MAX] {
        let mut line = Line::new();
        line.open(&mut nobody);
        for request in Longest(length).requests() {
            let id = RequestId::new(7, u32::MAX);
            let (call, _) = there_and_back(&mut line, id, request.clone(), Reply::new(Answer::Nothing));
            assert_eq!(format!("{:?}", call.request), format!("{request:?}"));
            assert_eq!(call.id, id);
            let (again, _) = there_and_back(&mut line, id, request.clone(), Reply::new(Answer::Nothing));
            assert_eq!(again.fingerprint(), call.fingerprint());
        }
    }
}

#[test]
fn a_name_that_no_kiosk_keeps_is_not_sent() {
    let mut line = Line::new();
    line.open(&mut nobody);
    let (mut refused, mut sent) = (0, 0);
    for (kept, longer) in Longest(NAME_BYTES_MAX)
        .requests()
        .into_iter()
        .zip(Longest(NAME_BYTES_MAX + 1).requests())
    {
        let mut exchange = Exchange::new(Call::new(RequestId::new(7, 1), longer.clone()));
        let tried = line.host.send(&mut exchange, TimeMs::ZERO);
        // Those without a name are the same.
        if format!("{kept:?}") == format!("{longer:?}") {
            assert!(tried.is_ok(), "{longer:?}");
            sent += 1;
        } else {
            assert_eq!(tried.err(), Some(SendError::TooLong), "{longer:?}");
            refused += 1;
        }
    }
    assert!(refused > sent && sent > 0, "{refused} refused, {sent} sent");
}

#[test]
fn every_answer_of_any_length_arrives_as_it_was_given() {
    for length in [1, NAME_BYTES_MAX] {
        let mut line = Line::new();
        line.open(&mut nobody);
        let longest = Longest(length);
        for answer in longest.kept_answers().into_iter().chain(longest.other_answers()) {
            for replayed in [false, true] {
                let says = Reply {
                    replayed,
                    answer: answer.clone(),
                };
                let (_, arrived) = there_and_back(&mut line, None, Request::Info, says.clone());
                assert_eq!(arrived, says);
            }
        }
    }
}

#[test]
fn every_answer_that_is_kept_fits_where_it_is_kept_and_reads_back() {
    let mut longest = 0;
    for answer in Longest(NAME_BYTES_MAX).kept_answers() {
        let mut bytes = [0; KEPT_BYTES_MAX];
        let len = answer
            .encode(&mut bytes)
            .unwrap_or_else(|| panic!("too long: {answer:?}"));
        assert_eq!(Answer::decode(&bytes[..len]), Some(answer.clone()));
        assert_eq!(Answer::decode(&bytes[..len - 1]), None, "{answer:?}");
        let mut with_more = bytes[..len].to_vec();
        with_more.push(0);
        assert_eq!(Answer::decode(&with_more), None, "{answer:?}");
        longest = longest.max(len);
    }
    assert_eq!(longest, KEPT_BYTES_MAX, "no more room is set aside than is needed");
}

#[test]
fn two_requests_never_have_one_fingerprint_and_one_request_has_one() {
    let mut line = Line::new();
    line.open(&mut nobody);
    let id = |number| RequestId::new(1, number);
    let mut seen = std::collections::HashMap::new();
    for (number, request) in Longest(8).requests().into_iter().enumerate() {
        let says = || Reply::new(Answer::Nothing);
        let (call, _) = there_and_back(&mut line, id(number as u32), request.clone(), says());
        let (other, _) = there_and_back(&mut line, id(1000), request.clone(), says());
        assert_eq!(call.fingerprint(), other.fingerprint(), "whatever the number");
        assert_eq!(seen.insert(call.fingerprint(), format!("{request:?}")), None);
    }
}

#[test]
fn readings_and_renewals_alone_go_without_a_request_id() {
    let harmless: Vec<String> = Longest(1)
        .requests()
        .iter()
        .filter(|request| request.repetition() == Repetition::Harmless)
        .map(word)
        .collect();
    let mut kinds = harmless.clone();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "ActorRenew",
            "AttemptRenew",
            "Checkpoint",
            "Content",
            "Dump",
            "HostRenew",
            "Info",
            "LastNumber",
            "MessageExtend",
            "Row",
        ]
    );
}

#[test]
fn the_content_of_a_letter_is_everything_in_it_but_its_id() {
    let letter = Longest(8).letter();
    let changed: [fn(&mut Letter); 8] = [
        |letter| letter.sender = None,
        |letter| letter.recipient = Name::new("other").expect("a name"),
        |letter| letter.subject.clear(),
        |letter| letter.body.clear(),
        |letter| letter.priority = Priority::default(),
        |letter| letter.not_before = None,
        |letter| letter.not_before = Some(TimeMs::ZERO),
        |letter| letter.retries_max = 0,
    ];
    let mut digests = vec![letter.digest()];
    for change in changed {
        let mut changed = letter.clone();
        change(&mut changed);
        digests.push(changed.digest());
    }
    let mut distinct = digests.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), digests.len());
    let renamed = Letter {
        id: Name::new("other").expect("a name"),
        ..letter.clone()
    };
    assert_eq!(renamed.digest(), letter.digest());
    // What moves from one text into the next is another content.
    let split = |subject: &str, body: &[u8]| Letter {
        subject: subject.try_into().expect("it fits"),
        body: Bytes::from_slice(body).expect("it fits"),
        ..letter.clone()
    };
    assert_ne!(split("ab", b"c").digest(), split("a", b"bc").digest());
}

/// The first 16 bytes of the SHA-256 of "abc" (FIPS 180-4, example B.1).
#[test]
fn the_digest_of_a_result_is_that_of_every_other_store() {
    let digest = keyfence_firmware::link::digest(b"abc").to_string();
    assert_eq!(digest, "sha_ba7816bf8f01cfea414140de5dae2223");
}

#[test]
fn a_kiosk_says_its_state_in_its_hello_and_its_device() {
    let states = [
        State::Unprovisioned,
        State::Starting,
        State::Ready,
        State::Full,
        State::Worn,
    ];
    for state in states.into_iter().chain(WHYS.map(State::Closed)) {
        let mut line = Line::new();
        let mut echo = Echo {
            heard: None,
            says: Reply::new(Answer::Nothing),
            state,
        };
        let mut random = |bytes: &mut [u8]| bytes.fill(1);
        let mut said = None;
        for byte in line.host.hello().expect("always") {
            if let Some(hello) = line.kiosk.receive(byte, &mut random, &mut echo) {
                let hello = hello.to_vec();
                said = hello.into_iter().find_map(|byte| line.host.receive(byte, None));
            }
        }
        let Some(Event::Hello(hello)) = said else {
            panic!("{said:?}");
        };
        assert_eq!(
            (hello.version, hello.device, hello.state),
            (1, line.identity.device, Some(state))
        );
        assert!(echo.heard.is_none());
    }
}
