//! The flash store with its machines under power cuts, on every geometry: every cut of a life in every way, drivers that lie,
//! reads that fail, and a seeded sample of second cuts in the recoveries. The journal alone is swept to a greater depth by
//! `journal_cuts`.

use keyfence_tests::flash::Geometry;
use keyfence_tests::powercut::report::{Report, Verdict};
use keyfence_tests::powercut::search::{Progress, Settings, exhaustive};
use keyfence_tests::powercut::stores;

fn sweep(name: &str, settings: impl FnOnce(Settings) -> Settings) -> Report {
    let store = stores::named("keyfence").expect("a store of the list");
    let geometry = Geometry::named(name).expect("a geometry of the list");
    let settings = settings(Settings::new(store, geometry));
    let report = exhaustive(&settings, &Progress::default());
    let report = report.unwrap_or_else(|violation| panic!("{name}: the life itself: {violation:?}"));
    assert_eq!(report.verdict(), Verdict::Held, "{name}: {}", report.table());
    println!("{name}: {} cases", report.cases);
    report
}

macro_rules! no_cut_shows {
    ($($test:ident, $name:literal, $commits:literal, $sample:literal;)*) => {$(
        #[test]
        fn $test() {
            let report = sweep($name, |settings| Settings { commits: $commits, depth: 2, sample: $sample, ..settings });
            assert!(report.first_turn.is_some_and(|commit| commit <= 10), "{:?}", report.first_turn);
            assert!(report.wear.iter().all(|erases| *erases > 0), "{:?}", report.wear);
            assert!(report.by_depth[1].cases > 100, "{:?}", report.by_depth);
        }
    )*};
}

no_cut_shows! {
    no_cut_shows_on_tiny_1, "tiny-1", 10, 1600;
    no_cut_shows_on_tiny_4, "tiny-4", 10, 1600;
    no_cut_shows_on_tiny_8, "tiny-8", 10, 1600;
    no_cut_shows_on_tiny_32, "tiny-32", 10, 1600;
    no_cut_shows_on_nrf51, "nrf51", 10, 3200;
    no_cut_shows_on_nrf52, "nrf52", 6, 3200;
    no_cut_shows_on_rp2040, "rp2040", 10, 1600;
    no_cut_shows_on_stm32l4, "stm32l4", 6, 6400;
    no_cut_shows_on_stm32h7, "stm32h7", 2, 6400;
}
