//! One process: rates, latencies, what a large ledger costs, fused calls, batches, actor leases.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use super::Bench;
use super::lane::{Lane, Load, Place, rotated};
use super::probe::Probe;
use super::queue::{Kind, Manner, Stopwatch, Stretch};
use super::report::{Report, Table, Target};
use super::stats::{Latencies, Spread};

/// Few finished, few ready.
const SMALL: Load = Load {
    finished: 1_000,
    ready: 1_000,
};

/// What one contender did, round by round.
struct Series {
    lane: Lane,
    label: String,
    per_second: Vec<f64>,
    processor_us: Vec<f64>,
    claim_p50_us: Vec<f64>,
    all: Stretch,
}

impl Series {
    fn new(lane: Lane, label: impl Into<String>) -> Self {
        Self {
            lane,
            label: label.into(),
            per_second: Vec::new(),
            processor_us: Vec::new(),
            claim_p50_us: Vec::new(),
            all: Stretch::default(),
        }
    }

    fn record(&mut self, round: &Stretch) {
        self.per_second.push(round.per_second());
        self.processor_us.push(round.processor_us());
        self.claim_p50_us.push(round.claims.quantile_us(0.5));
        self.all.extend(round);
    }
}

/// Runs rounds until there are enough, or until time is up and there are a few. In each, the disk is probed, every
/// series gets ready, and then they take short turns, so that what else happens on the machine hits all of them alike.
/// `turn` does so many messages. Returns the probe's rates.
fn rounds(
    bench: &Bench,
    place: &Place,
    series: &mut [Series],
    mut turn: impl FnMut(&mut Lane, usize) -> Result<Stretch>,
) -> Result<Vec<f64>> {
    let mut probe = Probe::new(&place.folder)?;
    let mut fsyncs = Vec::new();
    let begin = Instant::now();
    let (turns, messages) = bench.turns(place);
    while bench.wants_round(fsyncs.len(), begin) {
        bench.say(format_args!("{}: round {}", place.name, fsyncs.len() + 1));
        fsyncs.push(probe.run(bench.sizes.probe)?.per_second);
        for one in &mut *series {
            one.lane.begin(turns * messages)?;
        }
        let mut done = vec![Stretch::default(); series.len()];
        for number in 0..turns {
            for index in rotated(series.len(), number) {
                done[index].extend(&turn(&mut series[index].lane, messages)?);
            }
        }
        for (one, done) in series.iter_mut().zip(&done) {
            one.lane.end()?;
            one.record(done);
        }
    }
    Ok(fsyncs)
}

fn middle(values: &[f64]) -> Option<f64> {
    Spread::of(values.iter().copied()).map(|spread| spread.middle)
}

fn ratio(value: &Series, base: &Series) -> Option<Spread> {
    Spread::of_ratios(&value.per_second, &base.per_second)
}

/// The ratio of rates that there would be if only the processor counted.
fn processor_ratio(value: &Series, base: &Series) -> Option<Spread> {
    Spread::of_ratios(&base.processor_us, &value.processor_us)
}

fn title(what: &str, place: &Place, fsyncs: &[f64]) -> String {
    let rate = middle(fsyncs).unwrap_or_default();
    let rounds = fsyncs.len();
    format!(
        "{what}, one process, {} ({rounds} rounds, fsync probe {rate:.0}/s)",
        place.name
    )
}

/// Claim + complete one by one, at every load and place.
///
/// # Errors
/// When a store fails.
pub fn one(bench: &mut Bench) -> Result<Report> {
    let large = bench.sizes.large;
    let loads = [
        SMALL,
        Load {
            finished: large,
            ..SMALL
        },
        Load {
            ready: large / 10,
            ..SMALL
        },
        Load { ready: large, ..SMALL },
    ];
    let mut report = Report::default();
    for place in bench.places() {
        let mut series = Vec::new();
        for load in loads {
            for kind in Kind::ALL {
                let lane = bench.lane(&place, kind, load, Manner::OneByOne)?;
                series.push(Series::new(lane, load.name()));
            }
        }
        let fsyncs = rounds(bench, &place, &mut series, Lane::turn)?;
        let mut table = Table::new(title("claim + complete one by one", &place, &fsyncs));
        for group in series.chunks(Kind::ALL.len()) {
            for one in group {
                table.row(json!({
                    "load": one.label,
                    "who": one.lane.kind.name(),
                    "messages/s": middle(&one.per_second),
                    "commits/fsync": Spread::of_ratios(&one.per_second, &fsyncs).map(|spread| 2.0 * spread.middle),
                    "to least": ratio(one, &group[0]).map(|spread| spread.middle),
                    "to correct": ratio(one, &group[1]).map(|spread| spread.middle),
                    "cpu us": middle(&one.processor_us),
                    "claim p50 us": one.all.claims.quantile_us(0.5),
                    "claim p99 us": one.all.claims.quantile_us(0.99),
                    "complete p50 us": one.all.completes.quantile_us(0.5),
                    "complete p99 us": one.all.completes.quantile_us(0.99),
                }));
            }
            let what = format!("one by one to correct, {}, {}", group[2].label, place.name);
            if bench.is_memory(&place) {
                let by_processor = processor_ratio(&group[2], &group[1]);
                report.aim(format!("{what}, by processor time"), Target::AtLeast(0.6), by_processor);
                report.aim(what, Target::AtLeast(0.6), ratio(&group[2], &group[1]));
            } else {
                report.aim(what, Target::AtLeast(0.9), ratio(&group[2], &group[1]));
            }
        }
        report.table(table);
        let keyfence: Vec<&Series> = series.iter().filter(|one| one.lane.kind == Kind::Keyfence).collect();
        for grown in &keyfence[1..] {
            report.aim(
                format!("claim p50, {} to {}, {}", grown.label, SMALL.name(), place.name),
                Target::AtMost(1.3),
                Spread::of_ratios(&grown.claim_p50_us, &keyfence[0].claim_p50_us),
            );
        }
    }
    Ok(report)
}

/// Fused calls and batches of ten against the least form one by one.
///
/// # Errors
/// When a store fails.
pub fn fused(bench: &mut Bench) -> Result<Report> {
    let manners = [
        (Manner::OneByOne, "one by one"),
        (Manner::Fused(1), "fused"),
        (Manner::Batches(10), "batches of ten"),
        (Manner::Fused(10), "batches of ten, fused"),
    ];
    let mut report = Report::default();
    for place in bench.places() {
        let mut series = Vec::new();
        for kind in Kind::ALL {
            for (manner, label) in manners {
                series.push(Series::new(bench.lane(&place, kind, SMALL, manner)?, label));
            }
        }
        let fsyncs = rounds(bench, &place, &mut series, Lane::turn)?;
        let mut table = Table::new(title("fused and batched", &place, &fsyncs));
        for one in &series {
            table.row(json!({
                "who": one.lane.kind.name(),
                "manner": one.label,
                "messages/s": middle(&one.per_second),
                "to least one by one": ratio(one, &series[0]).map(|spread| spread.middle),
                "cpu us": middle(&one.processor_us),
                "complete p50 us": one.all.completes.quantile_us(0.5),
                "complete p99 us": one.all.completes.quantile_us(0.99),
            }));
            let target = match (one.lane.kind, one.lane.manner) {
                (Kind::Least | Kind::Correct, _) | (Kind::Keyfence, Manner::OneByOne) => continue,
                (Kind::Keyfence, Manner::Fused(1)) => 1.5,
                (Kind::Keyfence, Manner::Fused(_) | Manner::Batches(_)) => 6.0,
            };
            // What is saved are syncs, so the aim says nothing about a memory disk.
            if !bench.is_memory(&place) {
                let what = format!("{} to least one by one, {}", one.label, place.name);
                report.aim(what, Target::AtLeast(target), ratio(one, &series[0]));
            }
        }
        report.table(table);
    }
    Ok(report)
}

/// One acquire + release after another, as if each were a message.
fn cycles(lane: &mut Lane, count: usize) -> Result<Stretch> {
    let queue = lane.queue()?;
    let mut completes = Latencies::with_capacity(count);
    let begin = Stopwatch::start();
    for _ in 0..count {
        let start = Instant::now();
        queue.acquire_and_release()?;
        completes.push(start.elapsed());
    }
    Ok(begin.stop(count, Latencies::default(), completes))
}

/// Actor acquire + release against a bare upsert + delete.
///
/// # Errors
/// When a store fails.
pub fn actor(bench: &mut Bench) -> Result<Report> {
    let mut report = Report::default();
    for place in bench.places() {
        let mut series = Vec::new();
        for (kind, label) in [(Kind::Least, "upsert + delete"), (Kind::Keyfence, "keyfence")] {
            series.push(Series::new(bench.lane(&place, kind, SMALL, Manner::OneByOne)?, label));
        }
        let fsyncs = rounds(bench, &place, &mut series, cycles)?;
        let mut table = Table::new(title("actor acquire + release", &place, &fsyncs));
        for one in &series {
            table.row(json!({
                "who": one.label,
                "cycles/s": middle(&one.per_second),
                "to bare": ratio(one, &series[0]).map(|spread| spread.middle),
                "cpu us": middle(&one.processor_us),
                "cycle p50 us": one.all.completes.quantile_us(0.5),
                "cycle p99 us": one.all.completes.quantile_us(0.99),
            }));
        }
        report.table(table);
        // A bare upsert mints nothing and keeps no history; on a memory disk the figure is there to be read.
        if !bench.is_memory(&place) {
            let what = format!("actor acquire + release to bare, {}", place.name);
            report.aim(what, Target::AtLeast(0.9), ratio(&series[1], &series[0]));
        }
    }
    Ok(report)
}
