//! The path of `keyfence run` for users of the library: a closure, or a program, under the fence.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use keyfence::core::actor::Acquire;
use keyfence::core::attempt::{AssignmentState, FinishedBy, Outcome};
use keyfence::core::gate::ClaimKind;
use keyfence::core::{Name, Reason, TimeMs, Ttl};
use keyfence::run::{Ending, Interrupt, Plan, RunError, Written, program, work};
use keyfence::{Clock, FixedClock, Ledger, Options, fresh};

struct Shop {
    _folder: tempfile::TempDir,
    ledger: Ledger,
    clock: Arc<FixedClock>,
}

impl Shop {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(FixedClock::new(TimeMs::new(1_000).unwrap()));
        let options = Options {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            ..Options::default()
        };
        let ledger = Ledger::open(&folder.path().join("keyfence.db"), options).unwrap();
        Self {
            _folder: folder,
            ledger,
            clock,
        }
    }

    fn state(&self, assignment: &str) -> AssignmentState {
        self.ledger.assignment(&name(assignment)).unwrap().unwrap().row.state
    }

    #[track_caller]
    fn is_finished(&self, assignment: &str, outcome: Outcome, result: &str) {
        let view = self.ledger.assignment(&name(assignment)).unwrap().unwrap();
        let AssignmentState::Finished(finished) = view.row.state else {
            panic!("{view:?}");
        };
        assert_eq!(finished.outcome, outcome);
        assert!(matches!(finished.by, FinishedBy::Attempt(_)));
        assert_eq!(view.result.as_deref(), Some(result.as_bytes()));
    }

    #[track_caller]
    fn nobody_is_the_actor(&self) {
        let lease = self.ledger.actor(&name("crew")).unwrap();
        assert!(lease.is_none_or(|view| view.row.claim().is_none()));
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn plan(assignment: &str) -> Plan {
    Plan::new(name("crew"), name(assignment))
}

#[test]
fn the_result_of_the_work_is_written_and_everything_given_back() {
    let shop = Shop::new();
    let report = work(&shop.ledger, &plan("close"), |watch| {
        assert!(watch.remaining() > Duration::from_secs(290));
        assert_eq!(watch.authority().lease.token().get(), 1);
        (Outcome::Blocked, b"the safe is jammed".to_vec())
    });
    let report = report.unwrap().unwrap();
    assert!(report.is_canonical());
    assert_eq!(report.ending, Ending::Ended);
    shop.is_finished("close", Outcome::Blocked, "the safe is jammed");
    shop.nobody_is_the_actor();
}

#[test]
fn a_panic_is_written_as_a_failure_and_goes_on() {
    let shop = Shop::new();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = work(&shop.ledger, &plan("close"), |_| panic!("out of vanilla"));
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"out of vanilla"));
    shop.is_finished("close", Outcome::Failed, "panicked");
    shop.nobody_is_the_actor();
}

#[test]
fn work_whose_actor_was_taken_over_is_refused() {
    let shop = Shop::new();
    let ask = Acquire {
        actor: name("crew"),
        process: fresh::process(),
        ttl: Ttl::ACTOR_LEASE,
    };
    let report = work(&shop.ledger, &plan("close"), |_| {
        // Five minutes pass on the ledger's clock while this process thinks it is still at the beginning.
        shop.clock.advance_ms(300_000);
        shop.ledger.call().actor_acquire(&ask).unwrap().unwrap();
        (Outcome::Completed, b"done".to_vec())
    });
    let report = report.unwrap().unwrap();
    let Written::Refused(refusal) = &report.written else {
        panic!("{report:?}");
    };
    assert_eq!(refusal.reason, Reason::ActorLeaseLost);
    assert!(!report.is_canonical());
    assert!(matches!(shop.state("close"), AssignmentState::Running(_)));
    let holder = shop.ledger.actor(&name("crew")).unwrap().unwrap();
    assert_eq!(
        holder.row.claim().map(|held| held.process),
        Some(ask.process),
        "the new holder is left alone"
    );
}

#[test]
fn a_refused_renewal_is_seen_by_the_work() {
    let shop = Shop::new();
    let plan = Plan {
        ttl: Ttl::from_ms(60).unwrap(),
        ..plan("close")
    };
    let report = work(&shop.ledger, &plan, |watch| {
        let _ = shop
            .ledger
            .call()
            .revoke(ClaimKind::Actor, &name("crew"), "stolen")
            .unwrap()
            .unwrap();
        while watch.refused().is_none() && !watch.remaining().is_zero() {
            std::thread::yield_now();
        }
        (Outcome::Completed, Vec::new())
    });
    let report = report.unwrap().unwrap();
    assert_ne!(report.ending, Ending::Ended);
    assert!(matches!(report.written, Written::Refused(_)), "{report:?}");
}

#[test]
fn work_that_outlives_its_local_deadline_never_completes() {
    let shop = Shop::new();
    let plan = Plan {
        ttl: Ttl::from_ms(40).unwrap(),
        ..plan("close")
    };
    let report = work(&shop.ledger, &plan, |watch| {
        // A writer that is stuck in its transaction keeps every renewal out.
        let stuck = rusqlite::Connection::open(shop.ledger.path()).unwrap();
        stuck.busy_timeout(Duration::from_secs(5)).unwrap();
        stuck.execute_batch("BEGIN IMMEDIATE").unwrap();
        while !watch.remaining().is_zero() {
            std::thread::yield_now();
        }
        (Outcome::Completed, b"done".to_vec())
    });
    let report = report.unwrap().unwrap();
    assert_eq!(report.ending, Ending::Lapsed);
    shop.is_finished("close", Outcome::Failed, "lease_lapsed");
    shop.nobody_is_the_actor();
}

#[test]
fn an_interrupt_before_the_start_takes_nothing() {
    let shop = Shop::new();
    let interrupt = Interrupt::new().unwrap();
    interrupt.raise();
    let refused = program(&shop.ledger, &plan("close"), &interrupt, |_| Command::new("true"));
    assert!(matches!(refused, Err(RunError::Interrupted(15))));
    assert_eq!(shop.ledger.counter().unwrap(), None);
}

#[test]
fn a_program_is_told_its_authority_by_whoever_builds_its_command() {
    let shop = Shop::new();
    let interrupt = Interrupt::new().unwrap();
    let report = program(&shop.ledger, &plan("close"), &interrupt, |authority| {
        let mut command = Command::new("sh");
        command
            .args(["-c", "exit $TOKEN"])
            .env("TOKEN", authority.attempt.token().to_string());
        command
    });
    let report = report.unwrap().unwrap();
    assert_eq!(report.program.map(keyfence::run::Ended::status), Some(2));
    shop.is_finished("close", Outcome::Failed, "exit 2");
    shop.nobody_is_the_actor();
}
