//! The real image keeps what it told through power cuts; and an emulator that forgets is found out.

use keyfence_tests::emulator::cuts::{self, Settings};
use keyfence_tests::emulator::{Build, image, is_available};

#[test]
fn nothing_that_was_told_is_lost_or_told_twice_in_300_power_cuts() {
    if !is_available() {
        return;
    }
    let settings = Settings {
        cuts: 300,
        seed: 1,
        forgets: false,
    };
    let report = cuts::run(&image(Build::Product).unwrap(), settings, |_| {}).unwrap();
    println!("{report:#?}");
    assert_eq!(report.violations, [""; 0], "powercut emulator --cuts 300 --seed 1");
    let tally = report.tally;
    assert!(tally.all() >= 300 && tally.in_boots >= 20, "{tally:?}");
    assert!(
        tally.clean > 50 && tally.torn_programs > 30 && tally.after_answers > 10 && tally.idle > 0,
        "{tally:?}"
    );
    assert!(report.settled > 0, "calls that took effect untold: {report:?}");
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
