//! A conversation, and everything that a line can do to it.

use keyfence_core::actor::ActorGrant;
use keyfence_core::{Name, ProcessId, Token, Ttl};
use keyfence_firmware::link::{Answer, Event, Exchange, KioskEnd, Request};

use crate::line::{Line, Meddler, Way, frame, identity, nobody, packet};

fn mint(purpose: &str) -> Request {
    Request::Mint(Name::new(purpose).expect("a name"))
}

fn renewal() -> Request {
    let grant = ActorGrant::presented(
        Name::new("closing").expect("a name"),
        ProcessId::from_bytes([9; 16]),
        Token::FIRST,
    );
    Request::ActorRenew(grant, Ttl::ACTOR_LEASE)
}

/// What the host does: calls of all sorts, a second link session in the middle, a kiosk that starts again.
const STEPS: usize = 9;

fn step(line: &mut Line, step: usize, meddler: Meddler<'_>) -> Answer {
    match step {
        3 => line.hang_up(),
        6 => line.restart_kiosk(2),
        _ => {}
    }
    let request = match step {
        0 => Request::LastNumber(0),
        2 => renewal(),
        _ => mint(["till", "drawer", "alarm"][step % 3]),
    };
    line.call(request, meddler).into_reply().answer
}

/// Has the whole conversation; `between` runs before each step. Returns the answers.
fn converse(
    line: &mut Line,
    mut meddler: impl FnMut(Way, &[u8]) -> Vec<Vec<u8>>,
    mut between: impl FnMut(&mut Line, usize),
) -> Vec<Answer> {
    (0..STEPS)
        .map(|number| {
            between(line, number);
            step(line, number, &mut meddler)
        })
        .collect()
}

struct Reference {
    answers: Vec<Answer>,
    acts: Vec<String>,
    sent: Vec<(Way, Vec<u8>)>,
}

fn reference() -> Reference {
    let mut line = Line::new();
    let answers = converse(&mut line, nobody, |_, _| {});
    Reference {
        answers,
        acts: line.model.acts,
        sent: line.sent,
    }
}

impl Reference {
    /// Asserts that this conversation came to the same as the undisturbed one.
    #[track_caller]
    fn assert_same(&self, answers: &[Answer], line: &Line, what: &str) {
        assert_eq!(answers, self.answers, "answers with {what}");
        assert_eq!(line.model.acts, self.acts, "acts with {what}");
    }
}

#[test]
fn an_undisturbed_conversation_takes_one_frame_each_way_for_a_call() {
    let reference = reference();
    assert_eq!(reference.acts.len(), STEPS - 2);
    // Three handshakes, and the hello after the kiosk has started again.
    let frames = |way| reference.sent.iter().filter(|(sent, _)| *sent == way).count();
    assert_eq!(frames(Way::ToKiosk), STEPS + 3 + 1);
    assert_eq!(frames(Way::ToHost), STEPS + 3 + 1);
    assert_eq!(reference.answers[8], Answer::Minted(Token::presented(7).unwrap()));
}

#[test]
fn every_frame_replayed_at_every_later_point_does_nothing() {
    let reference = reference();
    for (way, old) in &reference.sent {
        for point in 0..STEPS {
            let mut line = Line::new();
            let answers = converse(&mut line, nobody, |line, step| {
                let was_sent = line.sent.iter().any(|(_, sent)| sent == old);
                if step != point || !was_sent {
                    return;
                }
                let (handled, acts) = (line.model.handled, line.model.acts.len());
                match way {
                    Way::ToKiosk => drop(line.give_kiosk(old)),
                    Way::ToHost => {
                        let mut exchange = Exchange::again(keyfence_firmware::link::Call::new(None, Request::Info));
                        let events = line.give_host(old, Some(&mut exchange));
                        assert!(
                            events.iter().all(|event| matches!(event, Event::Hello(_))),
                            "{events:?}"
                        );
                    }
                }
                assert_eq!((line.model.handled, line.model.acts.len()), (handled, acts));
            });
            reference.assert_same(
                &answers,
                &line,
                &format!("a frame {way:?} replayed before step {point}"),
            );
        }
    }
}

#[test]
fn every_frame_replayed_right_before_and_behind_every_other_one_does_nothing() {
    let reference = reference();
    for (of, (way, old)) in reference.sent.iter().enumerate() {
        for at in of..reference.sent.len() {
            for behind in [false, true] {
                let mut line = Line::new();
                let mut count = 0;
                let meddler = |sent_way: Way, sent: &[u8]| {
                    let here = count == at && sent_way == *way;
                    count += 1;
                    match (here, behind) {
                        (false, _) => vec![sent.to_vec()],
                        (true, false) => vec![old.clone(), sent.to_vec()],
                        (true, true) => vec![sent.to_vec(), old.clone()],
                    }
                };
                let answers = converse(&mut line, meddler, |_, _| {});
                reference.assert_same(&answers, &line, &format!("frame {of} beside frame {at}"));
            }
        }
    }
}

#[test]
fn every_frame_reflected_at_every_point_does_nothing() {
    let reference = reference();
    for (of, (way, old)) in reference.sent.iter().enumerate() {
        let mut line = Line::new();
        let answers = converse(&mut line, nobody, |line, _| {
            let handled = line.model.handled;
            match way {
                Way::ToKiosk => {
                    let mut exchange = Exchange::again(keyfence_firmware::link::Call::new(None, Request::Info));
                    assert!(line.give_host(old, Some(&mut exchange)).is_empty(), "frame {of}");
                }
                Way::ToHost => assert!(line.give_kiosk(old).is_empty(), "frame {of}: a kiosk answers no kiosk"),
            }
            assert_eq!(line.model.handled, handled);
        });
        reference.assert_same(&answers, &line, &format!("frame {of} reflected"));
    }
}

#[test]
fn a_lost_or_doubled_frame_costs_a_repetition_at_most() {
    let reference = reference();
    for at in 0..reference.sent.len() {
        for copies in [0, 2, 3] {
            let mut line = Line::new();
            let mut count = 0;
            let meddler = |_: Way, sent: &[u8]| {
                let copies = if count == at { copies } else { 1 };
                count += 1;
                vec![sent.to_vec(); copies]
            };
            let answers = converse(&mut line, meddler, |_, _| {});
            reference.assert_same(&answers, &line, &format!("frame {at} {copies} times"));
        }
    }
}

#[test]
fn a_line_that_doubles_every_frame_works() {
    let reference = reference();
    let mut line = Line::new();
    let answers = converse(&mut line, |_, sent| vec![sent.to_vec(); 2], |_, _| {});
    reference.assert_same(&answers, &line, "every frame doubled");
    assert!(line.kiosk.tally().replayed > 0);
}

#[test]
fn frames_that_arrive_late_and_out_of_order_do_nothing() {
    let reference = reference();
    for at in 0..reference.sent.len() {
        for late in 1..5 {
            let mut line = Line::new();
            let (mut count, mut held) = (0, None);
            let meddler = |way: Way, sent: &[u8]| {
                let number = count;
                count += 1;
                if number == at {
                    held = Some((way, sent.to_vec()));
                    return Vec::new();
                }
                let due = number >= at + late && held.as_ref().is_some_and(|(held, _)| *held == way);
                let held = if due { held.take() } else { None };
                core::iter::once(sent.to_vec())
                    .chain(held.map(|(_, frame)| frame))
                    .collect()
            };
            let answers = converse(&mut line, meddler, |_, _| {});
            reference.assert_same(&answers, &line, &format!("frame {at} late by {late}"));
        }
    }
}

#[test]
fn every_frame_cut_at_each_byte_does_nothing_and_the_next_one_is_read() {
    let reference = reference();
    for (of, (way, whole)) in reference.sent.iter().enumerate() {
        for len in 0..whole.len() {
            let mut line = Line::new();
            let mut count = 0;
            let meddler = |_: Way, sent: &[u8]| {
                let cut = count == of;
                count += 1;
                vec![if cut { sent[..len].to_vec() } else { sent.to_vec() }]
            };
            let answers = converse(&mut line, meddler, |_, _| {});
            reference.assert_same(&answers, &line, &format!("frame {of} {way:?} cut at {len}"));
        }
    }
}

#[test]
fn every_flipped_bit_on_the_line_does_nothing() {
    let reference = reference();
    for (of, (way, whole)) in reference.sent.iter().enumerate() {
        for bit in 0..8 * whole.len() {
            let mut line = Line::new();
            let mut count = 0;
            let meddler = |_: Way, sent: &[u8]| {
                let mut sent = sent.to_vec();
                if count == of {
                    sent[bit / 8] ^= 1 << (bit % 8);
                }
                count += 1;
                vec![sent]
            };
            let answers = converse(&mut line, meddler, |_, _| {});
            reference.assert_same(&answers, &line, &format!("bit {bit} of frame {of} {way:?} flipped"));
        }
    }
}

/// Under the frame, so that the flip reaches the packet whatever it does to the framing.
#[test]
fn every_flipped_bit_and_every_cut_of_a_packet_is_not_authentic() {
    let reference = reference();
    for (of, (way, whole)) in reference.sent.iter().enumerate() {
        let whole = packet(whole);
        let flipped = (0..8 * whole.len()).map(|bit| {
            let mut packet = whole.clone();
            packet[bit / 8] ^= 1 << (bit % 8);
            packet
        });
        let cut = (1..whole.len()).map(|len| whole[..len].to_vec());
        let longer = core::iter::once([&whole[..], &[0]].concat());
        for packet in flipped.chain(cut).chain(longer) {
            let mut line = Line::new();
            let mut count = 0;
            // Instead of the frame, so that its counter and its session are the expected ones.
            let mut events = 0;
            let meddler = |_: Way, sent: &[u8]| {
                let here = count == of;
                count += 1;
                events += usize::from(here);
                vec![if here { frame(&packet) } else { sent.to_vec() }]
            };
            let answers = converse(&mut line, meddler, |_, _| {});
            assert_eq!(events, 1);
            reference.assert_same(&answers, &line, &format!("packet {of} {way:?} changed"));
        }
    }
}

#[test]
fn a_host_with_another_key_or_for_another_device_gets_nowhere() {
    for other in [identity(1, 2), identity(2, 1)] {
        let mut line = Line::new();
        line.host = keyfence_firmware::link::HostEnd::new(Some(other));
        let nonce = line.random.nonce();
        let open = line.host.open(nonce).unwrap();
        let events = line.pass(&open, None, &mut nobody);
        assert!(events.is_empty(), "the challenge is not that of its kiosk: {events:?}");
        assert_eq!(line.host.boot(), None);
        assert_eq!(line.model.handled, 0);
    }
}

#[test]
fn the_frames_of_another_kiosk_do_nothing_here() {
    let reference = reference();
    for (device, key) in [(1, 2), (2, 1)] {
        let mut other = Line::new();
        other.identity = identity(device, key);
        other.kiosk = KioskEnd::new(Some(other.identity.clone()), ProcessId::from_bytes([1; 16]));
        other.host = keyfence_firmware::link::HostEnd::new(Some(other.identity.clone()));
        converse(&mut other, nobody, |_, _| {});
        let mut line = Line::new();
        let answers = converse(&mut line, nobody, |line, _| {
            let handled = line.model.handled;
            for (way, foreign) in &other.sent {
                match way {
                    Way::ToKiosk => drop(line.give_kiosk(foreign)),
                    Way::ToHost => {
                        let events = line.give_host(foreign, None);
                        assert!(events.iter().all(|event| matches!(event, Event::Hello(_))));
                    }
                }
            }
            assert_eq!(line.model.handled, handled);
        });
        reference.assert_same(&answers, &line, "another kiosk's frames");
    }
}
