//! A handle on a disk that fails for one call: what is told, what is committed, and how the handle goes on.

use std::path::PathBuf;
use std::sync::Arc;

use keyfence::{Delivery, Error, FixedClock, Ledger, NewMessage, Options, Reason, RequestId, Severity, doctor};
use keyfence_core::attempt::Done;
use keyfence_core::mailbox::{Claim, ClaimNext, MessageGrant, Priority};
use keyfence_core::{Name, ProcessId, TimeMs, Ttl};
use keyfence_tests::faults::disk::{Disk, Fault, Kind};
use keyfence_tests::faults::{scratch, vfs};

/// A ledger with one message, on a disk of its own.
struct Bench {
    folder: tempfile::TempDir,
    clock: Arc<FixedClock>,
    disk: Arc<Disk>,
    ledger: Ledger,
    _watch: vfs::Watch,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn options(clock: &Arc<FixedClock>) -> Options {
    Options {
        clock: clock.clone(),
        ..Options::default()
    }
}

impl Bench {
    fn new() -> Self {
        let folder = scratch().unwrap();
        let clock = Arc::new(FixedClock::new(TimeMs::new(1_000_000).unwrap()));
        let disk = Arc::new(Disk::sound());
        let watch = vfs::watch(folder.path(), Arc::clone(&disk)).unwrap();
        let ledger = Ledger::open(&folder.path().join("keyfence.db"), options(&clock)).unwrap();
        let message = NewMessage {
            id: name("m-1"),
            sender: None,
            recipient: name("worker"),
            subject: "stock".into(),
            body: b"count the shelf".to_vec(),
            priority: Priority::default(),
            not_before: None,
            retries_max: 3,
        };
        assert_eq!(ledger.call().mailbox_send(&message).unwrap(), Ok(Done::Now));
        // A reader keeps the log in place.
        assert_eq!(ledger.counter().unwrap(), None);
        Self {
            folder,
            clock,
            disk,
            ledger,
            _watch: watch,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("keyfence.db")
    }

    /// Lets this go wrong in the next call, counted from its first access to the disk on.
    fn strike(&self, fault: Fault) {
        // A connection that failed is opened again by the call that comes next: not by the one that is struck.
        let missing = Claim {
            message: name("missing"),
            owner: name("worker"),
            process: None,
            lease_token: None,
            ttl: Ttl::MAILBOX_CLAIM,
        };
        let refused = self.ledger.call().mailbox_claim(&missing).unwrap();
        assert_eq!(refused.unwrap_err().reason, Reason::MessageMissing);
        self.disk.strike(fault);
    }

    fn assert_sound(&self) {
        let report = doctor(&self.path(), &options(&self.clock), &mut |_| ());
        assert!(report.worst() < Severity::Damage, "{report:#?}");
    }

    /// What a power cut would leave now: the files as they are, opened elsewhere.
    fn after_a_power_cut(&self) -> (tempfile::TempDir, Ledger) {
        let image = scratch().unwrap();
        for file in ["keyfence.db", "keyfence.db-wal"] {
            std::fs::copy(self.folder.path().join(file), image.path().join(file)).unwrap();
        }
        let ledger = Ledger::open(&image.path().join("keyfence.db"), options(&self.clock)).unwrap();
        (image, ledger)
    }
}

/// Claims what is next, under a request id; whether the answer is a replay.
fn claim(ledger: &Ledger) -> (Result<Vec<Delivery>, Error>, bool) {
    let mut call = ledger.call().request(RequestId::new("r-1").unwrap(), name("worker"));
    let ask = ClaimNext {
        owner: name("worker"),
        process: Some(ProcessId::from_bytes([1; 16])),
        lease_token: None,
        ttl: Ttl::MAILBOX_CLAIM,
    };
    let answer = call.mailbox_claim_next(&ask, 1);
    let replayed = call.replayed();
    (answer.map(|decision| decision.unwrap()), replayed)
}

fn grant_of(deliveries: &[Delivery]) -> &MessageGrant {
    &deliveries[0].granted.grant
}

fn complete(ledger: &Ledger, deliveries: &[Delivery]) {
    let completed = ledger.call().mailbox_complete(grant_of(deliveries), b"").unwrap();
    assert_eq!(completed, Ok(Done::Now));
}

#[test]
fn a_failed_sync_leaves_the_outcome_unknown_and_the_request_id_resolves_it() {
    let bench = Bench::new();
    bench.strike(Fault::SyncedButFailed(1));
    let (answer, _) = claim(&bench.ledger);
    assert_eq!(bench.disk.hits(), 1);
    let error = answer.unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    assert_eq!(error.name(), "unknown");

    // After a power cut the claim is there: the first answer is replayed.
    let (_image, recovered) = bench.after_a_power_cut();
    let (answer, replayed) = claim(&recovered);
    assert!(replayed);
    complete(&recovered, &answer.unwrap());

    // Without one it is not: the call is decided again.
    let (answer, replayed) = claim(&bench.ledger);
    assert!(!replayed);
    complete(&bench.ledger, &answer.unwrap());
    bench.assert_sound();
}

#[test]
fn a_full_disk_commits_nothing_and_is_over_when_there_is_room() {
    let bench = Bench::new();
    let mut failures = 0;
    for nth in 1.. {
        bench.strike(Fault::Full(nth));
        let (answer, _) = claim(&bench.ledger);
        let hits = bench.disk.hits();
        bench.disk.heal();
        if hits == 0 {
            assert_eq!(answer.unwrap().len(), 1);
            break;
        }
        failures += 1;
        assert_eq!(answer.unwrap_err().name(), "disk_full");
        let (_image, recovered) = bench.after_a_power_cut();
        for ledger in [&bench.ledger, &recovered] {
            assert_eq!(ledger.counter().unwrap(), None, "full from write {nth} on");
            assert_eq!(ledger.message(&name("m-1")).unwrap().unwrap().row.state_name(), "NEW");
        }
    }
    assert!(failures > 3, "{failures}");
    bench.assert_sound();
}

#[test]
fn after_any_failed_call_of_the_disk_a_claim_is_made_once_or_not_at_all() {
    let write = |nth| Fault::Once(Kind::Write, nth);
    for fault in [write, Fault::SyncedButFailed, Fault::HalfWritten] {
        for nth in 1..=12 {
            let bench = Bench::new();
            bench.strike(fault(nth));
            let (first, _) = claim(&bench.ledger);
            bench.disk.heal();
            let deliveries = claim(&bench.ledger).0.unwrap();
            assert_eq!(deliveries.len(), 1);
            if let Ok(first) = first {
                assert_eq!(first, deliveries);
            }
            let token = grant_of(&deliveries).token();
            assert_eq!(bench.ledger.counter().unwrap(), Some(token));
            assert_eq!(bench.ledger.events(0, 9).unwrap().len(), 2, "sent, claimed");
            bench.assert_sound();
        }
    }
}

#[test]
fn a_refusal_stands_on_a_failing_disk() {
    for fault in [Fault::Full(1), Fault::Once(Kind::Write, 1), Fault::SyncedButFailed(1)] {
        let bench = Bench::new();
        let stale = claim(&bench.ledger).0.unwrap();
        bench.clock.advance_ms(Ttl::MAILBOX_CLAIM.as_ms());
        let ask = ClaimNext {
            owner: name("worker"),
            process: Some(ProcessId::from_bytes([2; 16])),
            lease_token: None,
            ttl: Ttl::MAILBOX_CLAIM,
        };
        let current = bench.ledger.call().mailbox_claim_next(&ask, 1).unwrap().unwrap();
        bench.strike(fault);
        let refused = bench.ledger.call().mailbox_complete(grant_of(&stale), b"").unwrap();
        assert_eq!(refused.unwrap_err().reason, Reason::FencingTokenStale);
        assert!(bench.disk.hits() > 0);
        bench.disk.heal();
        complete(&bench.ledger, &current);
        bench.assert_sound();
    }
}
