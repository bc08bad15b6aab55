//! The machines in golden traces, `tests/golden/*.txt`: they read as documentation, and a difference in review shows changed
//! behaviour. `KEYFENCE_GOLDEN=write` writes them anew.
//!
//! Times are minutes. Under each act stands what it left in the history.

use std::path::Path;

use keyfence_tests::model::{Act, Cast, Weakness, explore, story};

/// Compares the trace with the golden one.
#[track_caller]
fn golden(name: &str, title: &str, trace: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    let told = format!("{title}\n\n{trace}");
    match std::env::var("KEYFENCE_GOLDEN").as_deref() {
        Ok("write") => std::fs::write(&path, &told).unwrap(),
        Ok(other) => panic!("KEYFENCE_GOLDEN={other}: only `write` is known"),
        Err(_) => {}
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(stands, told, "{name}: KEYFENCE_GOLDEN=write writes it anew");
}

/// Durations as they are by default: an actor lease of 5 minutes, everything that descends from it 15.
const DAY: Cast = Cast {
    lease_ticks: 5,
    claim_ticks: 15,
    retries_max: 3,
    leases: 9,
    attempts: 9,
    claims: 9,
    hosts: 9,
    sessions: 9,
    ..Cast::NONE
};

/// So many minutes go by.
fn pass(minutes: usize) -> Vec<Act> {
    vec![Act::Tick; minutes]
}

/// What happens, with the minutes that go by between.
fn scene(parts: &[&[Act]]) -> Vec<Act> {
    parts.concat()
}

/// The trace without the lines of the clock going on, save the last of each row.
fn told(cast: &Cast, acts: &[Act]) -> String {
    let trace = story(cast, None, acts);
    let ticks = |line: &str| line.contains("the clock goes on");
    let lines: Vec<_> = trace.lines().collect();
    let mut shown = String::new();
    for (at, line) in lines.iter().enumerate() {
        let next = lines.get(at + 1).copied().unwrap_or_default();
        if !(ticks(line) && ticks(next)) {
            shown += line;
            shown.push('\n');
        }
    }
    shown
}

#[test]
fn actor_lease() {
    let acts = scene(&[
        &[Act::Acquire(0), Act::Acquire(0), Act::Acquire(1)],
        &pass(3),
        &[Act::AcquireOrRenew(0), Act::RenewLease(0)],
        &pass(5),
        &[Act::RenewLease(0), Act::Acquire(1)],
        &[Act::RenewLease(0), Act::ReleaseLease(0)],
        &[Act::ReleaseLease(1), Act::ReleaseLease(1)],
        &[Act::Acquire(0), Act::ReleaseLease(1), Act::RevokeLease],
        &[Act::RenewLease(2), Act::ReleaseLease(2)],
    ]);
    golden(
        "actor.txt",
        "An actor lease: A and B are two processes of one actor.",
        &told(&DAY, &acts),
    );
}

#[test]
fn execution_attempt() {
    let acts = scene(&[
        &[Act::Acquire(0), Act::Attempt(0), Act::Attempt(0)],
        &pass(4),
        &[Act::RenewLease(0), Act::RenewAttempt(0)],
        &pass(5),
        &[Act::Acquire(1), Act::Finish(0), Act::Attempt(0)],
        &[Act::Attempt(1), Act::Finish(0), Act::CloseLost],
        &[Act::ReleaseAttempt(1), Act::ReleaseAttempt(1), Act::Attempt(1)],
        &pass(15),
        &[Act::Finish(2), Act::Finish(2), Act::Finish(0), Act::CloseLost],
    ]);
    golden(
        "attempt.txt",
        "An execution attempt: its generation ends with its own lapse, or with the actor lease it descends from.",
        &told(&DAY, &acts),
    );
    let acts = scene(&[
        &[Act::Acquire(0), Act::Attempt(0)],
        &pass(15),
        &[Act::CloseLost, Act::Finish(0), Act::CloseLost],
    ]);
    golden(
        "worker-lost.txt",
        "A worker that is gone: the supervisor closes its job, and a late finish changes nothing.",
        &told(&DAY, &acts),
    );
}

#[test]
fn mailbox() {
    let acts = scene(&[
        &[Act::Claim(0)],
        &pass(5),
        &[Act::Claim(0)],
        &pass(5),
        &[Act::Claim(1)],
        &pass(10),
        &[Act::Claim(1)],
        &pass(5),
        &[Act::Claim(0), Act::Complete(0), Act::Complete(1), Act::Complete(1)],
    ]);
    golden(
        "mailbox-timeline.txt",
        "The lease timeline of one message, at 0, 5, 10, 20 and 25 minutes: fresh, same, refused, fresh, refused.",
        &told(&DAY, &acts),
    );
    let acts = scene(&[
        &[Act::Claim(0)],
        &pass(15),
        &[Act::Claim(1), Act::Complete(0), Act::GiveBack(1), Act::Complete(0)],
        &[Act::Claim(0), Act::Complete(0), Act::Complete(2)],
    ]);
    golden(
        "stale-writer.txt",
        "The stale writer: A claims, lapses, B takes over and gives back, A itself claims again.",
        &told(&DAY, &acts),
    );
    let acts = scene(&[
        &[Act::Claim(0), Act::Retry(0), Act::Retry(0)],
        &[Act::Claim(0)],
        &pass(15),
        &[Act::Sweep, Act::ClaimNext(1), Act::GiveBack(2)],
        &[Act::ClaimNext(1)],
        &pass(15),
        &[Act::Claim(0), Act::Retry(4), Act::Claim(0), Act::Retry(4)],
    ]);
    golden(
        "mailbox-budget.txt",
        "The budget of a message with 3 retries: a failure costs one, a crash costs one, a give-back costs none.",
        &told(&DAY, &acts),
    );
}

#[test]
fn mailbox_under_a_lease() {
    let acts = scene(&[
        &[Act::Acquire(0), Act::ClaimUnder(0)],
        &pass(5),
        &[Act::Extend(0), Act::Acquire(1), Act::Complete(0)],
        &[Act::ClaimUnder(1), Act::ClaimUnder(0)],
        &pass(16),
        &[
            Act::ClaimUnder(1),
            Act::Acquire(0),
            Act::ClaimUnder(2),
            Act::Complete(1),
        ],
    ]);
    golden(
        "mailbox-under-lease.txt",
        "A message claimed under an actor lease: the claim is worth nothing once the lease is superseded.",
        &told(&DAY, &acts),
    );
}

#[test]
fn session() {
    let minutes = Cast {
        lease_ticks: 1,
        claim_ticks: 1,
        ..DAY
    };
    let acts = scene(&[
        &[Act::Register(0), Act::Hold(0), Act::Hold(0)],
        &pass(1),
        &[Act::Register(1), Act::Hold(1), Act::FinishSession(0)],
        &pass(1),
        &[Act::FinishSession(1), Act::Register(0), Act::Hold(2)],
        &[Act::FinishSession(0), Act::ReleaseSession(0)],
        &[Act::FinishSession(2), Act::FinishSession(2), Act::Hold(2)],
    ]);
    golden(
        "session.txt",
        "A session in three acts: A(1), B(2), A(3). Host and session are the same in the first and in the third.",
        &told(&minutes, &acts),
    );
}

/// The shortest way to what goes wrong without one predicate.
#[test]
fn what_goes_wrong_without_a_predicate() {
    let message = Cast {
        claims: 3,
        ticks: 2,
        claim_ticks: 1,
        ..Cast::NONE
    };
    let attempt = Cast {
        leases: 2,
        attempts: 2,
        ticks: 2,
        claim_ticks: 1,
        ..Cast::NONE
    };
    for (name, title, cast, weakness) in [
        (
            "without-the-token.txt",
            "The token is re-derived from the row instead of compared: it always agrees with itself.",
            &message,
            Weakness::TokenFromTheRow,
        ),
        (
            "without-the-descent.txt",
            "Whether the actor lease that an attempt descends from is still the current one is not compared.",
            &attempt,
            Weakness::AnyLeaseWillDo,
        ),
        (
            "without-the-mint.txt",
            "A takeover hands out the newest token again instead of minting.",
            &message,
            Weakness::TakeoverKeepsTheToken,
        ),
    ] {
        let found = explore(cast, Some(weakness), 1_000_000);
        let (_, trace) = found.broken.expect("an invariant breaks");
        golden(name, title, &trace);
    }
}
