//! `powercut sim`: cut a store's life everywhere and judge what it says afterwards.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use keyfence_tests::flash::{GEOMETRIES, Geometry};
use keyfence_tests::powercut::cost::{self, Daily};
use keyfence_tests::powercut::search::{self, Progress, Settings};
use keyfence_tests::powercut::{Case, Store, Violation, html, stores};

use crate::progress::with_bar;

/// Cut a store's life at every flash operation, mount, and judge what it says.
///
/// The store is provisioned and aged first, until every page has been erased and the next page turn
/// is near. Exit status: 0 nothing failed, 1 something failed, 2 misuse, 3 nothing failed but some
/// kind of cut was never tried.
#[derive(Debug, Args)]
pub(crate) struct Sim {
    /// The chip
    #[arg(long, default_value = "nrf52", value_parser = parse_geometry)]
    pub(crate) geometry: &'static Geometry,
    /// The store
    #[arg(long, default_value = stores::STORES[0].name, value_parser = parse_store)]
    store: &'static Store,
    /// Commits of the life that is cut
    #[arg(long, default_value_t = 24)]
    commits: usize,
    /// Cuts in one case: the life, the recovery from that, the recovery from that, ...
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    depth: u8,
    /// Seed of the life and of every random shape
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Try one in this many of the cuts in recoveries
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    sample: u64,
    /// Instead of every cut, try this many random cases over many lives
    #[arg(long, value_name = "CASES")]
    random: Option<usize>,
    /// Leave out drivers that lie and reads that fail
    #[arg(long)]
    no_faults: bool,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a report with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Do one case again and tell its story
    #[arg(long, value_name = "CASE", conflicts_with_all = ["random", "html", "json"])]
    replay: Option<String>,
}

pub(crate) fn parse_geometry(name: &str) -> Result<&'static Geometry> {
    Geometry::named(name).ok_or_else(|| {
        let names: Vec<_> = GEOMETRIES.iter().map(|geometry| geometry.name).collect();
        anyhow!("one of {}", names.join(", "))
    })
}

fn parse_store(name: &str) -> Result<&'static Store> {
    stores::named(name).ok_or_else(|| {
        let names: Vec<_> = stores::STORES.iter().map(|store| store.name).collect();
        anyhow!("one of {}", names.join(", "))
    })
}

fn error(violation: Violation) -> anyhow::Error {
    anyhow!("without any cut: {}: {}", violation.kind, violation.detail)
}

impl Sim {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        // A store's panic is a violation that the report tells.
        std::panic::set_hook(Box::new(|_| {}));
        let settings = Settings {
            commits: self.commits,
            depth: self.depth.into(),
            seed: self.seed,
            sample: self.sample,
            faults: !self.no_faults,
            threads: self.threads,
            ..Settings::new(self.store, self.geometry)
        };
        if let Some(case) = &self.replay {
            return replay(&settings, case);
        }
        let (progress, start) = (Progress::default(), Instant::now());
        let report = with_bar(&progress, || match self.random {
            Some(cases) => search::random(&settings, cases, &progress),
            None => search::exhaustive(&settings, &progress),
        });
        let mut report = report.map_err(error)?;
        report.seconds = start.elapsed().as_secs_f64();
        if let Some(file) = &self.html {
            let daily = Daily::busy_kiosk(self.geometry);
            let costs: Vec<_> = stores::STORES
                .iter()
                .filter_map(|store| Some((store.name, cost::measure(store, self.geometry, &daily).ok()?)))
                .collect();
            std::fs::write(file, html::page(&report, &costs))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{}", report.table());
        }
        Ok(ExitCode::from(report.verdict().exit_status()))
    }
}

fn replay(settings: &Settings, name: &str) -> Result<ExitCode> {
    let Some(case) = Case::parse(name) else {
        bail!("`{name}` is no case")
    };
    let (story, violation) = search::replay(settings, &case).map_err(error)?;
    story.iter().for_each(|line| println!("{line}"));
    Ok(ExitCode::from(u8::from(violation.is_some())))
}
