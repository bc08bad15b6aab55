//! The driver itself: it finds what is there to be found, and the same thing every time.
use super::report::{Report, Verdict};
use super::search::{Progress, Settings, exhaustive, random, replay};
use super::stores;
use super::{Case, CutKind};
use crate::flash::Geometry;

fn settings(store: &str, geometry: &str) -> Settings {
    let store = stores::named(store).expect("a store of the list");
    Settings::new(store, Geometry::named(geometry).expect("a geometry of the list"))
}

fn search(settings: &Settings) -> Report {
    exhaustive(settings, &Progress::default()).expect("the life itself holds")
}

#[test]
fn the_map_of_sequential_storage_fails_only_where_an_erase_is_torn() {
    let settings = Settings {
        commits: 16,
        ..settings("sequential-storage", "nrf52")
    };
    let report = search(&settings);
    assert!(report.cut(CutKind::TornErase).failures > 0, "{}", report.table());
    assert_eq!(report.cut(CutKind::Clean).failures, 0, "{}", report.table());
    assert_eq!(report.cut(CutKind::TornWrite).failures, 0, "{}", report.table());
    assert_eq!(report.verdict(), Verdict::Failed);
    assert!(
        report.first_turn.is_some_and(|commit| commit <= 10),
        "{:?}",
        report.first_turn
    );
    assert!(report.wear.iter().all(|erases| *erases > 0), "{:?}", report.wear);
}

#[test]
fn a_store_that_rewrites_in_place_is_found_bad_by_every_kind_of_cut() {
    let report = search(&Settings {
        commits: 8,
        ..settings("in-place", "tiny-4")
    });
    for kind in CutKind::ALL.into_iter().filter(|kind| kind.always_occurs()) {
        assert!(report.cut(kind).failures > 0, "{}", report.table());
    }
}

#[test]
fn a_failure_is_replayed_by_its_path() {
    let settings = Settings {
        commits: 8,
        depth: 2,
        sample: 50,
        ..settings("in-place", "tiny-8")
    };
    let report = search(&settings);
    assert!(!report.first_failures.is_empty());
    for failure in &report.first_failures {
        let case = failure.replay.split('\'').nth(1).and_then(Case::parse).expect("a case");
        let replayed = replay(&settings, &case).expect("the life itself holds");
        assert_eq!(
            replayed.violation.map(|violation| violation.kind),
            Some(failure.violation),
            "{:?}",
            replayed.story
        );
        assert!(replayed.image.is_some() || matches!(case, Case::Fault(_)));
    }
}

#[test]
fn the_counts_do_not_depend_on_the_number_of_threads() {
    let one = Settings {
        commits: 4,
        threads: 1,
        ..settings("sequential-storage", "tiny-4")
    };
    let (a, b) = (search(&one), search(&Settings { threads: 3, ..one }));
    assert_eq!(a.by_cut, b.by_cut);
    let replays = |report: &Report| -> Vec<String> {
        report
            .first_failures
            .iter()
            .map(|failure| failure.replay.clone())
            .collect()
    };
    assert_eq!(replays(&a), replays(&b));
}

#[test]
fn random_cases_are_as_many_as_asked_for_and_repeatable() {
    let settings = Settings {
        commits: 8,
        depth: 3,
        ..settings("sequential-storage", "tiny-4")
    };
    let run = || random(&settings, 300, &Progress::default()).expect("the life itself holds");
    let (a, b) = (run(), run());
    assert!(a.cases >= 300 && a.cases < 310, "{}", a.cases);
    assert_eq!(a.by_cut, b.by_cut);
}
