//! The process storm, short; and the same storm with one predicate left out, which must be found each time.

use std::path::Path;
use std::time::Duration;

use keyfence_tests::storm::weak::Weakness;
use keyfence_tests::storm::{self, Options, Report};

fn run(options: &Options) -> Report {
    let program = Path::new(env!("CARGO_BIN_EXE_storm"));
    let report = storm::run(options, program, &mut |line| eprintln!("{line}")).unwrap();
    println!("{:#}", report.to_json(options));
    report
}

#[test]
fn ten_thousand_messages_come_through_the_storm() {
    let options = Options {
        patience: Duration::from_secs(300),
        ..Options::default()
    };
    let report = run(&options);
    assert!(report.is_sound());
    assert_eq!(report.counts.sent, options.messages);
    assert_eq!(report.counts.done + report.counts.dead, options.messages);
    // It was a storm.
    assert!(
        report.kills > 10 && report.stops > 10,
        "{} kills, {} stops",
        report.kills,
        report.stops
    );
    assert!(report.counts.takeovers > 100 && report.counts.done > options.messages / 2);
    assert!(report.counts.assignments > 0 && report.counts.sessions > 0);
    for met in [
        "refused.fencing_token_stale",
        "refused.message_finished",
        "refused.session_claim_stale",
        "replayed",
    ] {
        assert!(report.met.contains_key(met), "nobody met `{met}`");
    }
}

fn found(weakness: Weakness) {
    let options = Options {
        messages: 3_000,
        ttl_ms: 150,
        patience: Duration::from_secs(60),
        weakness: Some(weakness),
        ..Options::default()
    };
    let report = run(&options);
    assert!(
        weakness.found_by().iter().any(|rule| report.broke(*rule)),
        "`{}` was not found: {:?} {:?}",
        weakness.name(),
        report.violations,
        report.failures
    );
}

macro_rules! each_weakness_is_found {
    ($($test:ident: $weakness:ident;)*) => {
        $(
            #[test]
            fn $test() {
                found(Weakness::$weakness);
            }
        )*

        #[test]
        fn every_weakness_has_a_storm_that_finds_it() {
            let tested = [$(Weakness::$weakness),*];
            assert!(Weakness::ALL.iter().all(|weakness| tested.contains(weakness)));
        }
    };
}

each_weakness_is_found! {
    a_completion_that_does_not_compare_the_token_is_found: CompletesUnderAnyToken;
    a_completion_of_a_finished_message_is_found: CompletesTwice;
    a_claim_that_does_not_look_at_the_expiry_is_found: ClaimsTheLive;
    a_claim_that_is_no_compare_and_set_is_found: ClaimsWithoutCompareAndSet;
    a_claim_that_mints_nothing_is_found: ClaimsWithoutMint;
    a_takeover_that_costs_no_budget_is_found: TakesOverForFree;
    a_lease_acquired_while_it_is_live_is_found: AcquiresTheLive;
    an_attempt_finished_without_its_lease_is_found: FinishesAnOrphan;
    a_session_that_keeps_its_incarnation_is_found: KeepsTheIncarnation;
    a_session_finished_by_another_generation_is_found: FinishesAnotherGeneration;
    a_session_finished_after_its_expiry_is_found: FinishesTheLapsed;
}
