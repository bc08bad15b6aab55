//! `powercut sim`: cut a store's life everywhere and judge what it says afterwards.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
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
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    commits: u32,
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
    random: Option<u32>,
    /// Leave out drivers that lie and reads that fail
    #[arg(long)]
    no_faults: bool,
    /// Threads; as many as there are processors when it is not given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a report with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Do one case again and tell its story
    #[arg(long, value_name = "CASE", conflicts_with_all = ["random", "html", "json"])]
    replay: Option<String>,
    /// Write what the last cut of the replayed case left on the flash to this file, for `powercut inspect`
    #[arg(long, value_name = "FILE", requires = "replay")]
    dump: Option<PathBuf>,
}

/// The number of threads: as asked for, or one for each processor.
pub(crate) fn threads(asked: Option<u16>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    asked.map_or_else(processors, usize::from)
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

pub(crate) fn error(violation: Violation) -> anyhow::Error {
    anyhow!("without any cut: {}: {}", violation.kind, violation.detail)
}

impl Sim {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        // A store's panic is a violation that the report tells.
        std::panic::set_hook(Box::new(|_| {}));
        let settings = Settings {
            commits: self.commits as usize,
            depth: self.depth.into(),
            seed: self.seed,
            sample: self.sample,
            faults: !self.no_faults,
            threads: threads(self.threads),
            ..Settings::new(self.store, self.geometry)
        };
        if let Some(case) = &self.replay {
            return replay(&settings, case, self.dump.as_deref());
        }
        // A file that cannot be written is told before the search, not after it.
        let html_file = self.html.as_deref().map(create).transpose()?;
        let (progress, start) = (Progress::default(), Instant::now());
        let report = with_bar(&progress, || match self.random {
            Some(cases) => search::random(&settings, cases as usize, &progress),
            None => search::exhaustive(&settings, &progress),
        });
        let mut report = report.map_err(error)?;
        report.seconds = start.elapsed().as_secs_f64();
        if let (Some(mut file), Some(path)) = (html_file, &self.html) {
            let daily = Daily::busy_kiosk(self.geometry);
            let costs: Vec<_> = stores::STORES
                .iter()
                .filter_map(|store| Some((store.name, cost::measure(store, self.geometry, &daily).ok()?)))
                .collect();
            file.write_all(html::page(&report, &costs).as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            print(&serde_json::to_string_pretty(&report)?)?;
        } else {
            print(&report.table())?;
        }
        Ok(ExitCode::from(report.verdict().exit_status()))
    }
}

/// Creates a file, or says which one cannot be.
pub(crate) fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints lines. A reader that has seen enough and closed the pipe is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    match writeln!(std::io::stdout().lock(), "{}", text.trim_end()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn replay(settings: &Settings, name: &str, dump: Option<&Path>) -> Result<ExitCode> {
    let Some(case) = Case::parse(name) else {
        bail!("`{name}` is no case: it is OPERATION~TEAR~READING for each cut, joined by `/`, as a report prints it")
    };
    let mut file = dump.map(create).transpose()?;
    let replayed = search::replay(settings, &case).map_err(error)?;
    if let (Some(file), Some(path)) = (&mut file, dump) {
        let image = replayed
            .image
            .context("a fault with the power on is no cut, and leaves no image")?;
        file.write_all(&image.bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(&replayed.story.join("\n"))?;
    Ok(ExitCode::from(u8::from(replayed.violation.is_some())))
}
