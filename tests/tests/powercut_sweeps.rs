//! The flash store with its machines under power cuts, on every geometry: every cut of a life in every way, drivers that lie,
//! reads that fail, and a seeded sample of second cuts in the recoveries. The journal alone is swept to a greater depth by
//! `journal_cuts`.

use keyfence_tests::flash::Geometry;
use keyfence_tests::powercut::report::Verdict;
use keyfence_tests::powercut::search::{Progress, Settings, exhaustive};
use keyfence_tests::powercut::stores;

/// Sweeps a life of `commits`, and one in `sample` of the cuts in recoveries.
fn sweep(name: &str, commits: usize, sample: u64) {
    let store = stores::named("keyfence").expect("a store of the list");
    let geometry = Geometry::named(name).expect("a geometry of the list");
    let settings = Settings {
        commits,
        depth: 2,
        sample,
        ..Settings::new(store, geometry)
    };
    let report = exhaustive(&settings, &Progress::default());
    let report = report.unwrap_or_else(|violation| panic!("{name}: the life itself: {violation:?}"));
    assert!(
        report.first_turn.is_some_and(|commit| commit <= 10),
        "{:?}",
        report.first_turn
    );
    assert!(report.wear.iter().all(|erases| *erases > 0), "{:?}", report.wear);
    let second = report.by_depth.get(1).map_or(0, |count| count.cases);
    assert!(second > 50, "{name}: {second} second cuts");
    println!("{name}: {} cases", report.cases);
    assert_eq!(report.verdict(), Verdict::Held, "{}", report.table());
}

macro_rules! no_cut_shows {
    ($($test:ident, $name:literal, $commits:literal, $sample:literal;)*) => {$(
        #[test]
        fn $test() {
            sweep($name, $commits, $sample);
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
    no_cut_shows_on_stm32h7, "stm32h7", 2, 800;
}
