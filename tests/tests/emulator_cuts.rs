//! The real image keeps what it told through power cuts; and an emulator that forgets is found out.

use keyfence_tests::emulator::cuts::{self, Settings};
use keyfence_tests::emulator::{Build, image, is_available};

#[test]
fn nothing_that_was_told_is_lost_or_told_twice_in_300_power_cuts() {
    if !is_available() {
        return;
    }
    let image = image(Build::Product).unwrap();
    // A call that took effect untold is met some times in 300 cuts; that it was never is no reason to fail, but to go on.
    let is_settled = (1..=3).any(|seed| {
        let settings = Settings {
            cuts: 300,
            seed,
            forgets: false,
        };
        let report = cuts::run(&image, settings, |_| {}).unwrap();
        println!("{report:#?}");
        assert_eq!(report.violations, [""; 0], "powercut emulator --cuts 300 --seed {seed}");
        let tally = report.tally;
        assert!(tally.all() >= 300 && tally.in_boots >= 20, "{tally:?}");
        assert!(
            tally.clean > 50 && tally.torn_programs > 30 && tally.after_answers > 10 && tally.idle > 0,
            "{tally:?}"
        );
        report.settled > 0
    });
    assert!(is_settled, "no call took effect untold in 900 cuts");
}

#[test]
fn a_kiosk_that_forgets_its_last_answer_is_found_out() {
    if !is_available() {
        return;
    }
    let settings = Settings {
        cuts: 60,
        seed: 1,
        forgets: true,
    };
    let report = cuts::run(&image(Build::Product).unwrap(), settings, |_| {}).unwrap();
    assert!(!report.violations.is_empty(), "{report:?}");
}
