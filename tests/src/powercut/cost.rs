//! What a store costs: words, bytes, erases and reads for each claim, mint and mount.
//!
//! The workload is takeovers between two hosts over the live sessions, then pure mints, then
//! power-ups. Each part is measured from one erase to another, so that copies of the live set and
//! page overhead are counted in full and not by chance.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::bench::Bench;
use super::life::{Bounds, Key, Verb};
use super::oracle::{Oracle, Violation};
use super::subject::Store;
use crate::flash::{Counters, Geometry, Image, Reading};

/// The most erases that our claim may cost, in erases of a claim of `sequential-storage`'s map.
pub const CLAIM_ERASES_TARGET: f64 = 0.6;

/// The most erases that our mint may cost, in erases of a claim of `sequential-storage`'s map.
pub const MINT_ERASES_TARGET: f64 = 0.02;

/// What the field does to the store in a day; predictions of life follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Daily {
    /// Claims and other commits.
    pub claims: f64,
    /// Renewals: free where they live in RAM, else as dear as a claim.
    pub renewals: f64,
    /// Power-ups.
    pub boots: f64,
    /// Refusals that are recorded. They go to an audit ring in a region of its own.
    pub refusals: f64,
    /// Erases that a page survives.
    pub erase_rating: f64,
}

impl Daily {
    /// A busy kiosk: a claim every five minutes of a working day, renewals every 20 seconds.
    #[must_use]
    pub const fn busy_kiosk(geometry: &Geometry) -> Self {
        Self {
            claims: 150.0,
            renewals: 2160.0,
            boots: 3.0,
            refusals: 50.0,
            erase_rating: geometry.erase_rating as f64,
        }
    }
}

/// The dearest single claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Worst {
    /// Write units programmed; program pages on the RP2040.
    pub words: u64,
    /// Bytes programmed.
    pub bytes: u64,
    /// Pages erased, during which a kiosk stands still.
    pub erases: u64,
    /// 32-bit words read.
    pub read_words: u64,
}

/// The price list of a store on a geometry.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// The geometry.
    pub geometry: &'static str,
    /// Pages of the region.
    pub pages: usize,
    /// Sessions that are alive meanwhile.
    pub live_sessions: u8,
    /// Claims measured.
    pub claims: u64,
    /// Write units programmed for one claim; program pages on the RP2040.
    pub words_per_claim: f64,
    /// Bytes programmed for one claim.
    pub bytes_per_claim: f64,
    /// Erases for a million claims.
    pub erases_per_million: f64,
    /// Read calls for one claim.
    pub reads_per_claim: f64,
    /// 32-bit words read for one claim.
    pub read_words_per_claim: f64,
    /// The dearest claim.
    pub worst_claim: Worst,
    /// Write units programmed for one pure mint.
    pub words_per_mint: f64,
    /// Bytes programmed for one pure mint.
    pub bytes_per_mint: f64,
    /// Erases for a million pure mints.
    pub erases_per_million_mints: f64,
    /// 32-bit words read for one pure mint.
    pub read_words_per_mint: f64,
    /// 32-bit words read to mount, on average.
    pub mount_words: f64,
    /// 32-bit words read to mount, at most.
    pub mount_words_max: u64,
    /// Write units programmed by one mount.
    pub words_per_mount: f64,
    /// Erases for a million mounts.
    pub erases_per_million_mounts: f64,
    /// Erases of the most worn page over those of an average page.
    pub wear_imbalance: f64,
    /// Years until the most worn page has had the erases of its rating.
    pub years: f64,
}

/// Each part is measured over at least this many erases, or until [`VERBS_MAX`].
const ERASES_MIN: u64 = 12;
/// Each part ends here even when no page turns.
const VERBS_MAX: u64 = 200_000;
/// Each part has at least this many verbs.
const VERBS_MIN: u64 = 2_000;

/// Measures `store` on `geometry` and predicts its life under `daily`.
///
/// # Errors
///
/// When the store does not run there, or does not live.
pub fn measure(store: &'static Store, geometry: &'static Geometry, daily: &Daily) -> Result<Cost, Violation> {
    let pages = (store.pages)(geometry)
        .ok_or_else(|| Violation::new("not_supported", format!("{} on {}", store.name, geometry.name)))?;
    let bounds = Bounds::for_page_size(geometry.erase_size_bytes);
    let keys: Vec<Key> = bounds.keys().collect();
    let mut bench = Bench::new(store, &keys, Image::blank(geometry, pages));
    let mut oracle = Oracle::default();
    bench.provision()?;
    bench.boot(Reading::AsLeft, &mut oracle)?;

    let mut claims = Claims { bounds, next: 0 };
    // Every page has been through its first use before anything is measured.
    run_part(&mut bench, &mut oracle, &mut || claims.next(), pages as u64 + 1, 0)?;
    let claim = run_part(&mut bench, &mut oracle, &mut || claims.next(), ERASES_MIN, VERBS_MIN)?;
    let mint = run_part(&mut bench, &mut oracle, &mut || Verb::Mint, ERASES_MIN, VERBS_MIN)?;
    let mount = run_mounts(&mut bench, &mut claims, &mut oracle)?;
    bench.check_abuse()?;

    let wear = bench.chip.borrow().counters().wear.clone();
    let mean = wear.iter().sum::<u64>() as f64 / pages as f64;
    let wear_imbalance = wear.iter().max().copied().unwrap_or(0) as f64 / mean.max(1.0);
    let renewals = if store.renews_in_ram { 0.0 } else { daily.renewals };
    let erases_a_day = (daily.claims + renewals) * claim.per_verb(claim.sum.erases)
        + daily.boots * mount.part.per_verb(mount.part.sum.erases);
    let most_worn_a_day = erases_a_day / pages as f64 * wear_imbalance;
    Ok(Cost {
        geometry: geometry.name,
        pages,
        live_sessions: bounds.sessions,
        claims: claim.verbs,
        words_per_claim: claim.per_verb(claim.sum.programs),
        bytes_per_claim: claim.per_verb(claim.sum.programmed_bytes),
        erases_per_million: 1e6 * claim.per_verb(claim.sum.erases),
        reads_per_claim: claim.per_verb(claim.sum.reads),
        read_words_per_claim: claim.per_verb(claim.sum.read_bytes) / 4.0,
        worst_claim: claim.worst,
        words_per_mint: mint.per_verb(mint.sum.programs),
        bytes_per_mint: mint.per_verb(mint.sum.programmed_bytes),
        erases_per_million_mints: 1e6 * mint.per_verb(mint.sum.erases),
        read_words_per_mint: mint.per_verb(mint.sum.read_bytes) / 4.0,
        mount_words: mount.read_words as f64 / mount.part.verbs as f64,
        mount_words_max: mount.read_words_max,
        words_per_mount: mount.part.per_verb(mount.part.sum.programs),
        erases_per_million_mounts: 1e6 * mount.part.per_verb(mount.part.sum.erases),
        wear_imbalance,
        years: daily.erase_rating / most_worn_a_day / 365.25,
    })
}

/// The costs as a table for a terminal, one column for each store.
#[must_use]
pub fn table(costs: &BTreeMap<&str, Cost>, daily: &Daily) -> String {
    type Value = fn(&Cost) -> String;
    let lines: [(&str, Value); 19] = [
        ("pages", |cost| cost.pages.to_string()),
        ("words per claim", |cost| format!("{:.2}", cost.words_per_claim)),
        ("bytes per claim", |cost| format!("{:.1}", cost.bytes_per_claim)),
        ("erases per million claims", |cost| {
            format!("{:.0}", cost.erases_per_million)
        }),
        ("reads per claim", |cost| format!("{:.1}", cost.reads_per_claim)),
        ("words read per claim", |cost| {
            format!("{:.1}", cost.read_words_per_claim)
        }),
        ("worst claim: words", |cost| cost.worst_claim.words.to_string()),
        ("worst claim: erases", |cost| cost.worst_claim.erases.to_string()),
        ("worst claim: words read", |cost| {
            cost.worst_claim.read_words.to_string()
        }),
        ("words per mint", |cost| format!("{:.2}", cost.words_per_mint)),
        ("bytes per mint", |cost| format!("{:.1}", cost.bytes_per_mint)),
        ("erases per million mints", |cost| {
            format!("{:.0}", cost.erases_per_million_mints)
        }),
        ("words read per mint", |cost| format!("{:.1}", cost.read_words_per_mint)),
        ("words read to mount", |cost| format!("{:.0}", cost.mount_words)),
        ("words read to mount, worst", |cost| cost.mount_words_max.to_string()),
        ("words programmed per mount", |cost| {
            format!("{:.2}", cost.words_per_mount)
        }),
        ("erases per million mounts", |cost| {
            format!("{:.0}", cost.erases_per_million_mounts)
        }),
        ("wear, worst page to average", |cost| {
            format!("{:.2}", cost.wear_imbalance)
        }),
        ("years of life", |cost| format!("{:.1}", cost.years)),
    ];
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write!(out, "{:<28}", "");
    for name in costs.keys() {
        let _ = write!(out, " {name:>20}");
    }
    for (label, value) in lines {
        let _ = write!(out, "\n{label:<28}");
        for cost in costs.values() {
            let _ = write!(out, " {:>20}", value(cost));
        }
    }
    if let (Some(ours), Some(peer)) = (costs.get("keyfence"), costs.get("sequential-storage")) {
        let _ = write!(
            out,
            "\nerases, keyfence to sequential-storage: {:.2} a claim (target {CLAIM_ERASES_TARGET}), \
             {:.4} a mint to one claim there (target {MINT_ERASES_TARGET})",
            ours.erases_per_million / peer.erases_per_million,
            ours.erases_per_million_mints / peer.erases_per_million,
        );
    }
    let _ = writeln!(
        out,
        "\na day: {} claims, {} renewals, {} boots; {} erases a page. \
         Refusals ({} a day) wear the audit region only: {:.1} years.",
        daily.claims,
        daily.renewals,
        daily.boots,
        daily.erase_rating,
        daily.refusals,
        audit_years(costs, daily).unwrap_or(f64::INFINITY),
    );
    out
}

/// The life of the audit ring, which is `sequential-storage` with one record for each refusal.
fn audit_years(costs: &BTreeMap<&str, Cost>, daily: &Daily) -> Option<f64> {
    let peer = costs.get("sequential-storage")?;
    let erases_a_day = daily.refusals * peer.erases_per_million / 1e6 / peer.pages as f64;
    Some(daily.erase_rating / erases_a_day / 365.25)
}

/// Takeovers of every live session in turn, from one host to the other.
struct Claims {
    bounds: Bounds,
    next: u64,
}

impl Claims {
    fn next(&mut self) -> Verb {
        let sessions = u64::from(self.bounds.sessions);
        let (round, session) = (self.next / sessions, (self.next % sessions) as u8);
        self.next += 1;
        Verb::TakeOver {
            session,
            host: (round % 2) as u8,
        }
    }
}

/// What a number of verbs has cost.
struct Part {
    verbs: u64,
    sum: Counters,
    worst: Worst,
}

impl Part {
    fn per_verb(&self, count: u64) -> f64 {
        count as f64 / self.verbs.max(1) as f64
    }
}

/// Runs verbs from the end of one erase to the end of another, at least `erases` and `verbs_min`
/// later.
fn run_part(
    bench: &mut Bench<'_>,
    oracle: &mut Oracle,
    next: &mut dyn FnMut() -> Verb,
    erases: u64,
    verbs_min: u64,
) -> Result<Part, Violation> {
    let erased = |bench: &Bench<'_>| bench.chip.borrow().counters().erases;
    let before = erased(bench);
    for _ in 0..VERBS_MAX {
        if erased(bench) != before {
            break;
        }
        bench.perform(next(), oracle)?;
    }
    let start = bench.chip.borrow().counters().clone();
    let (mut verbs, mut worst, mut last) = (0, Worst::default(), start.clone());
    while verbs < VERBS_MAX {
        bench.perform(next(), oracle)?;
        verbs += 1;
        let now = bench.chip.borrow().counters().clone();
        let one = difference(&now, &last);
        worst = Worst {
            words: worst.words.max(one.programs),
            bytes: worst.bytes.max(one.programmed_bytes),
            erases: worst.erases.max(one.erases),
            read_words: worst.read_words.max(one.read_words()),
        };
        let enough = verbs >= verbs_min && now.erases - start.erases >= erases;
        last = now;
        if enough && one.erases > 0 {
            break;
        }
    }
    Ok(Part {
        verbs,
        sum: difference(&last, &start),
        worst,
    })
}

/// What many mounts have cost.
struct Mounts {
    part: Part,
    read_words: u64,
    read_words_max: u64,
}

/// Mounts measured; a few claims lie between them so that the region is in every state of filling.
const MOUNTS: u64 = 200;

fn run_mounts(bench: &mut Bench<'_>, claims: &mut Claims, oracle: &mut Oracle) -> Result<Mounts, Violation> {
    let mut part = Part {
        verbs: MOUNTS,
        sum: Counters::default(),
        worst: Worst::default(),
    };
    let (mut read_words, mut read_words_max) = (0, 0);
    for i in 0..MOUNTS {
        for _ in 0..i % 7 {
            bench.perform(claims.next(), oracle)?;
        }
        bench.chip.borrow_mut().power_up(Reading::AsLeft);
        let cost = bench.mount_cost(oracle)?;
        bench.prepare(oracle)?;
        part.sum.programs += cost.programs;
        part.sum.erases += cost.erases;
        read_words += cost.read_words();
        read_words_max = read_words_max.max(cost.read_words());
    }
    Ok(Mounts {
        part,
        read_words,
        read_words_max,
    })
}

/// What was counted from `before` to `after`, wear apart.
pub(super) fn difference(after: &Counters, before: &Counters) -> Counters {
    Counters {
        operations: after.operations - before.operations,
        programs: after.programs - before.programs,
        programmed_bytes: after.programmed_bytes - before.programmed_bytes,
        erases: after.erases - before.erases,
        reads: after.reads - before.reads,
        read_bytes: after.read_bytes - before.read_bytes,
        faults: after.faults - before.faults,
        wear: Vec::new(),
        abuses: after.abuses - before.abuses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powercut::stores;

    #[test]
    fn the_peer_costs_what_was_measured_of_it() {
        let store = stores::named("sequential-storage").expect("a store of the list");
        for (name, words, erases) in [
            ("nrf52", 19.04, 18_855.0),
            ("stm32l4", 10.08, 39_985.0),
            ("rp2040", 2.32, 18_855.0),
        ] {
            let geometry = Geometry::named(name).expect("a geometry of the list");
            let cost = measure(store, geometry, &Daily::busy_kiosk(geometry)).unwrap();
            let off = (cost.words_per_claim / words - 1.0).abs();
            assert!(off < 0.03, "{name}: {} words", cost.words_per_claim);
            let off = (cost.erases_per_million / erases - 1.0).abs();
            assert!(off < 0.05, "{name}: {} erases", cost.erases_per_million);
        }
    }

    #[test]
    fn a_store_that_rewrites_in_place_erases_once_a_claim_and_dies_young() {
        let store = stores::named("in-place").expect("a store of the list");
        let geometry = Geometry::named("nrf52").expect("a geometry of the list");
        let cost = measure(store, geometry, &Daily::busy_kiosk(geometry)).unwrap();
        assert_eq!(cost.erases_per_million, 1e6);
        assert_eq!(cost.worst_claim.erases, 1);
        assert!(cost.years < 1.0, "{}", cost.years);
    }
}
