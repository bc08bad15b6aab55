//! A failing disk: what is told, what is committed, and how the handle goes on. One test at a time: the faults are the
//! process's.

mod support;

#[path = "support/faults.rs"]
mod faults;

use std::sync::{Mutex, MutexGuard, PoisonError};

use faults::{FULL, Fault, SYNC, WRITE};
use keyfence::core::attempt::Done;
use keyfence::core::lease::Granted;
use keyfence::core::mailbox::MessageGrant;
use keyfence::{Delivery, Error, Ledger, Reason, RequestId, Severity, doctor};
use support::{Bench, claim_next, grant_of, message, minutes, name, next_of};

/// The bench, alone on the failing file system.
fn alone() -> (MutexGuard<'static, ()>, Bench) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    faults::register();
    for fault in [&FULL, &SYNC, &WRITE] {
        fault.never();
    }
    (turn, Bench::new())
}

fn with_message(bench: &Bench) -> Ledger {
    let ledger = bench.open();
    assert_eq!(
        ledger.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    ledger
}

fn claim(ledger: &Ledger, request: &str) -> (Result<Vec<Delivery>, Error>, bool) {
    let mut call = ledger.call().request(RequestId::new(request).unwrap(), name("worker"));
    let answer = call.mailbox_claim_next(&next_of("worker", 1), 1);
    let replayed = call.replayed();
    (answer.map(|decision| decision.unwrap()), replayed)
}

fn assert_sound(bench: &Bench) {
    let report = doctor(&bench.path(), &bench.options(), &mut |_| ());
    assert!(report.worst() < Severity::Damage, "{report:#?}");
}

/// What a power cut would leave now: the files as they are, opened elsewhere.
fn after_a_power_cut(bench: &Bench) -> (Bench, Ledger) {
    let image = Bench::new();
    for suffix in ["", "-wal"] {
        let file = format!("keyfence.db{suffix}");
        std::fs::copy(bench.folder.path().join(&file), image.folder.path().join(&file)).unwrap();
    }
    let ledger = image.open();
    (image, ledger)
}

#[test]
fn a_failed_sync_leaves_the_outcome_unknown_and_the_request_id_resolves_it() {
    let (_turn, bench) = alone();
    let ledger = with_message(&bench);
    // A reader keeps the log in place.
    assert_eq!(ledger.counter().unwrap(), None);
    SYNC.after(0);
    let (answer, _) = claim(&ledger, "r-1");
    assert!(SYNC.has_happened());
    let error = answer.unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    assert_eq!(error.name(), "unknown");

    // After a power cut the claim is there: the first answer is replayed.
    let (image, recovered) = after_a_power_cut(&bench);
    let (answer, replayed) = claim(&recovered, "r-1");
    assert!(replayed);
    let deliveries = answer.unwrap();
    assert_eq!(
        recovered
            .call()
            .mailbox_complete(grant_of(&deliveries[0]), b"")
            .unwrap(),
        Ok(Done::Now)
    );
    assert_sound(&image);

    // Without one it is not: the call is decided again.
    let (answer, replayed) = claim(&ledger, "r-1");
    assert!(!replayed);
    let deliveries = answer.unwrap();
    assert_eq!(
        ledger.call().mailbox_complete(grant_of(&deliveries[0]), b"").unwrap(),
        Ok(Done::Now)
    );
    assert_sound(&bench);
}

#[test]
fn a_full_disk_commits_nothing_and_is_over_when_there_is_room() {
    let (_turn, bench) = alone();
    let ledger = with_message(&bench);
    assert_eq!(ledger.counter().unwrap(), None);
    let mut failures = 0;
    for calls in 0.. {
        FULL.after(calls);
        let (answer, _) = claim(&ledger, "r-1");
        if !FULL.has_happened() {
            FULL.never();
            assert_eq!(answer.unwrap().len(), 1);
            break;
        }
        failures += 1;
        assert_eq!(answer.unwrap_err().name(), "disk_full");
        let (_image, recovered) = after_a_power_cut(&bench);
        for ledger in [&ledger, &recovered] {
            assert_eq!(ledger.counter().unwrap(), None, "after {calls} writes");
            assert_eq!(ledger.message(&name("m-1")).unwrap().unwrap().row.state_name(), "NEW");
        }
    }
    assert!(failures > 3, "{failures}");
    assert_sound(&bench);
}

#[test]
fn after_any_failed_write_a_claim_is_made_once_or_not_at_all() {
    let (_turn, bench) = alone();
    for fault in [&WRITE, &SYNC] {
        for calls in 0..12 {
            let bench = Bench::new();
            let ledger = with_message(&bench);
            fault.after(calls);
            let (first, _) = claim(&ledger, "r-1");
            fault.never();
            let (second, _) = claim(&ledger, "r-1");
            let deliveries = second.unwrap();
            assert_eq!(deliveries.len(), 1);
            if let Ok(first) = first {
                assert_eq!(first, deliveries);
            }
            assert_eq!(ledger.counter().unwrap(), Some(grant_of(&deliveries[0]).token()));
            assert_eq!(ledger.events(0, 9).unwrap().len(), 2, "sent, claimed");
            assert_sound(&bench);
        }
    }
    drop(bench);
}

#[test]
fn a_refusal_stands_on_a_failing_disk() {
    let (_turn, bench) = alone();
    let strike = |fault: &Fault| {
        let bench = Bench::new();
        let ledger = with_message(&bench);
        let stale = claim_next(&ledger, "worker", 1);
        bench.clock.advance_ms(minutes(15).as_ms());
        let current: Granted<MessageGrant> = claim_next(&ledger, "worker", 2).granted;
        fault.after(0);
        let refusal = ledger
            .call()
            .mailbox_complete(grant_of(&stale), b"")
            .unwrap()
            .unwrap_err();
        assert!(fault.has_happened());
        assert_eq!(refusal.reason, Reason::FencingTokenStale);
        assert_eq!(
            ledger.call().mailbox_complete(&current.grant, b"").unwrap(),
            Ok(Done::Now)
        );
        assert_sound(&bench);
    };
    for fault in [&FULL, &WRITE, &SYNC] {
        strike(fault);
    }
    drop(bench);
}
