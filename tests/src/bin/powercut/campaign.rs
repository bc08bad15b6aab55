//! `powercut campaign`: very many random cases over all geometries.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use keyfence_tests::flash::GEOMETRIES;
use keyfence_tests::powercut::report::{Report, Verdict};
use keyfence_tests::powercut::search::{Progress, Settings, random};
use keyfence_tests::powercut::stores;

use crate::progress::with_bar;
use crate::sim::{error, print, threads};

/// Try very many random cases, spread over all geometries: random lives, cuts, tears, readings, and cuts in recoveries.
///
/// Every case follows from the seed, and is replayed alone by the command that a failure prints. To go on with a campaign
/// that ended early, run it again from another seed: seeds that are at least as far apart as the lives of a geometry (one for
/// 5,000 cases) share no life. Exit status as `sim`.
#[derive(Debug, Args)]
pub(crate) struct Campaign {
    /// Cases in all
    #[arg(long, default_value_t = 10_000_000)]
    cases: u64,
    /// Cuts in one case, at most
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=8))]
    depth: u8,
    /// Seed of everything
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads; as many as there are processors when it is not given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Option<u16>,
    /// Print one JSON object, keyed by geometry
    #[arg(long)]
    json: bool,
}

impl Campaign {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        // A store's panic is a violation that the report tells.
        std::panic::set_hook(Box::new(|_| {}));
        let mut reports = BTreeMap::new();
        let shares: u64 = GEOMETRIES.iter().map(|geometry| share(geometry.name)).sum();
        for geometry in &GEOMETRIES {
            let cases = self.cases.saturating_mul(share(geometry.name)).div_ceil(shares);
            let settings = Settings {
                depth: self.depth.into(),
                seed: self.seed,
                threads: threads(self.threads),
                ..Settings::new(&stores::STORES[0], geometry)
            };
            let (progress, start) = (Progress::default(), Instant::now());
            let report = with_bar(&progress, || {
                random(&settings, usize::try_from(cases).unwrap_or(usize::MAX), &progress)
            });
            let mut report = report.map_err(error)?;
            report.seconds = start.elapsed().as_secs_f64();
            if !self.json {
                print(&line(&report))?;
            }
            reports.insert(geometry.name, report);
        }
        if self.json {
            print(&serde_json::to_string_pretty(&reports)?)?;
        } else {
            let sum = |count: fn(&Report) -> u64| reports.values().map(count).sum::<u64>();
            let (cases, failures) = (sum(|report| report.cases), sum(|report| report.failures));
            print(&format!(
                "all      {cases:>10} cases  {failures:>6} failures, seed {}, depth {}",
                self.seed, self.depth
            ))?;
        }
        let worst = reports.values().map(|report| rank(report.verdict())).max().unwrap_or(0);
        Ok(ExitCode::from(match worst {
            0 => Verdict::Held.exit_status(),
            1 => Verdict::Incomplete.exit_status(),
            _ => Verdict::Failed.exit_status(),
        }))
    }
}

const fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Held => 0,
        Verdict::Incomplete => 1,
        Verdict::Failed => 2,
    }
}

/// Small pages turn more often, so they get more of the cases; 128 KiB take longest to read.
fn share(geometry: &str) -> u64 {
    match geometry {
        "stm32h7" => 1,
        name if name.starts_with("tiny") => 8,
        _ => 4,
    }
}

fn line(report: &Report) -> String {
    let mut line = format!(
        "{:<8} {:>10} cases  {:>6} failures  {:>7.0} s  ",
        report.geometry, report.cases, report.failures, report.seconds
    );
    for (kind, count) in report.by_cut.iter().filter(|(_, count)| count.cases > 0) {
        line.push_str(&format!(" {} {}", kind.name(), count.cases));
    }
    for failure in &report.first_failures {
        line.push_str(&format!(
            "\n  {} during {}: {}: {}\n  {}",
            failure.cut.name(),
            failure.during,
            failure.violation,
            failure.detail,
            failure.replay
        ));
    }
    line
}
