//! Random frames: none is ever taken. `KEYFENCE_LINK_FRAMES` and `KEYFENCE_LINK_SEED` make it a campaign of another length.

use keyfence_core::Name;
use keyfence_firmware::link::{Call, Event, Exchange, FRAME_BYTES_MAX, Request};

use crate::line::{Line, Random, frame, nobody, packet};

fn parameter(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name} is a number")),
        Err(_) => default,
    }
}

/// Bytes for the line: pure noise, noise in a frame, noise under the head of a genuine packet, or a genuine frame with a
/// few bits changed.
fn noise(random: &mut Random, genuine: &[Vec<u8>]) -> Vec<u8> {
    let of = &genuine[random.below(genuine.len())];
    let len = random.below(FRAME_BYTES_MAX + 8);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    match random.below(4) {
        0 => bytes,
        1 => frame(&bytes),
        2 => {
            let mut changed = packet(of);
            // The version, the kind, the session and a counter that lies ahead.
            let kept = [1, 2, 10, 18][random.below(4)].min(changed.len());
            random.fill(&mut changed[kept..]);
            if kept == 18 {
                changed[17] = 0;
            }
            frame(&changed)
        }
        _ => {
            let mut changed = packet(of);
            let bits = 8 * changed.len();
            let counter = changed.get(14).copied();
            for _ in 0..random.below(4) {
                let bit = random.below(bits);
                changed[bit / 8] ^= 1 << (bit % 8);
            }
            // The counter lies ahead in any case: what is refused is refused for its tag.
            if let Some(counter) = counter {
                changed[14] = counter ^ 1;
            }
            frame(&changed)
        }
    }
}

#[test]
fn random_frames_are_never_taken() {
    let frames = parameter("KEYFENCE_LINK_FRAMES", 100_000);
    let seed = parameter("KEYFENCE_LINK_SEED", 1);
    let mut line = Line::new();
    let call = || Request::Mint(Name::new("till").expect("a name"));
    line.call(call(), &mut nobody);
    line.call(Request::Info, &mut nobody);
    let genuine: Vec<Vec<u8>> = line.sent.iter().map(|(_, frame)| frame.clone()).collect();
    let before = (line.kiosk.tally().accepted, line.model.handled, line.model.acts.clone());

    // Calls that are never answered: nothing may pass for their answer.
    let mut exchange = Exchange::new(Call::new(None, Request::Info));
    for _ in 0..1000 {
        line.host.send(&mut exchange, line.now).expect("a session is open");
    }
    let mut random = Random(seed);
    for number in 0..frames {
        let bytes = noise(&mut random, &genuine);
        drop(line.give_kiosk(&bytes));
        let events = line.give_host(&bytes, Some(&mut exchange));
        assert!(
            events.iter().all(|event| matches!(event, Event::Hello(_))),
            "frame {number} of KEYFENCE_LINK_SEED={seed}: {events:?}"
        );
        let now = (line.kiosk.tally().accepted, line.model.handled, line.model.acts.clone());
        assert_eq!(now, before, "frame {number} of KEYFENCE_LINK_SEED={seed}");
    }
    assert_eq!(
        line.kiosk.tally().replayed,
        0,
        "counters lie ahead, so that only tags refuse"
    );
    assert!(u64::from(line.kiosk.tally().rejected) > frames / 4);

    // And then the line is as it was.
    line.call(call(), &mut nobody);
    assert_eq!(line.model.acts.len(), 2);
}
