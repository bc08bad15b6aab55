//! The benchmark: what the fence costs, next to what one would write without it.
//!
//! Read [`queue`] first: the contenders behind one face. [`bare`] is what they are measured against and [`ledger`] the
//! library; [`lane`] keeps files comparable; [`rates`], [`four`], [`counts`] and [`peak`] are the sections; [`report`]
//! prints. How it stays honest on a shared machine: contenders take turns within a round, ratios are taken within a
//! round, their median is what is compared, and an fsync probe runs in the same round.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use serde_json::json;
use tempfile::TempDir;

pub mod bare;
pub mod count;
pub mod counts;
pub mod four;
pub mod lane;
pub mod ledger;
pub mod peak;
pub mod probe;
pub mod queue;
pub mod rates;
pub mod report;
pub mod stats;

use lane::{Lane, Load, Place, Workshop};
use queue::{Kind, Manner};
use report::Report;

/// Measures claim + complete, fused calls, batches, actor leases, four processes, syncs, bytes and memory of keyfence
/// next to bare SQLite. Prints figures beside aims; its exit status says only whether it could measure.
#[derive(Debug, Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Smaller files and fewer rounds: under a minute instead of a quarter of an hour.
    #[arg(long)]
    quick: bool,
    /// One JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Only these sections.
    #[arg(long, value_name = "SECTION", value_delimiter = ',')]
    only: Vec<Section>,
    /// A folder on the disk to measure; files go into a temporary folder inside.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    disk: PathBuf,
    /// A folder on a memory disk.
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    memory: PathBuf,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// One process of the section `four`.
    #[command(hide = true)]
    Worker(four::Worker),
    /// Fills a file and leaves it, to be looked at or profiled.
    Fill(Fill),
}

/// What to fill.
#[derive(Clone, Debug, clap::Args)]
struct Fill {
    /// Whose file.
    #[arg(long, default_value = "keyfence")]
    kind: Kind,
    /// Which file; it must not be there.
    file: PathBuf,
    /// Finished messages.
    #[arg(long, default_value_t = 1_000)]
    finished: usize,
    /// Messages ready to be claimed.
    #[arg(long, default_value_t = 1_000)]
    ready: usize,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Syncs and KiB a message, counted.
    Counts,
    /// Claim + complete one by one, one process, every load.
    One,
    /// Fused calls and batches of ten.
    Fused,
    /// Actor acquire + release.
    Actor,
    /// Four saturated processes.
    Four,
    /// Peak memory of the command on a large ledger.
    Peak,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Rounds of every section at every place, if there is time.
    pub rounds: usize,
    /// Rounds even if there is none.
    pub rounds_least: usize,
    /// How long a section may go on at one place before it makes do with fewer rounds.
    pub time: Duration,
    /// Turns of every contender in a round.
    pub turns: usize,
    /// Messages a turn on a disk: some milliseconds' worth.
    pub turn_on_disk: usize,
    /// Messages a turn on a memory disk: as long.
    pub turn_in_memory: usize,
    /// Messages of a large ledger.
    pub large: usize,
    /// How long processes contend.
    pub window: Duration,
    /// How long the disk is probed in each round.
    pub probe: Duration,
}

impl Sizes {
    const FULL: Self = Self {
        rounds: 21,
        rounds_least: 5,
        time: Duration::from_secs(60),
        turns: 40,
        turn_on_disk: 20,
        turn_in_memory: 100,
        large: 1_000_000,
        window: Duration::from_millis(1_000),
        probe: Duration::from_millis(200),
    };
    const QUICK: Self = Self {
        rounds: 7,
        rounds_least: 2,
        time: Duration::from_secs(4),
        turns: 10,
        large: 100_000,
        window: Duration::from_millis(300),
        probe: Duration::from_millis(50),
        ..Self::FULL
    };
}

/// What every section works with.
pub struct Bench {
    /// How much is measured.
    pub sizes: Sizes,
    /// Where filled files come from.
    pub workshop: Workshop,
    disk: TempDir,
    memory: Option<TempDir>,
}

impl Bench {
    fn new(arguments: &Arguments) -> Result<Self> {
        let inside = |folder: &PathBuf| {
            tempfile::Builder::new()
                .prefix("keyfence-bench-")
                .tempdir_in(folder)
                .with_context(|| format!("cannot write in {}", folder.display()))
        };
        let disk = inside(&arguments.disk)?;
        // Not every system has one; then only the disk is measured.
        let memory = arguments
            .memory
            .is_dir()
            .then(|| inside(&arguments.memory))
            .transpose()?;
        let templates = memory.as_ref().unwrap_or(&disk).path().join("templates");
        std::fs::create_dir(&templates)?;
        Ok(Self {
            sizes: if arguments.quick { Sizes::QUICK } else { Sizes::FULL },
            workshop: Workshop::new(templates),
            disk,
            memory,
        })
    }

    /// The disk, and the memory disk where there is one.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let place = |name, folder: &TempDir| Place {
            name,
            folder: folder.path().into(),
        };
        std::iter::once(place("disk", &self.disk))
            .chain(self.memory.as_ref().map(|folder| place("memory disk", folder)))
            .collect()
    }

    /// Whether a place is the memory disk.
    #[must_use]
    pub fn is_memory(&self, place: &Place) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.path() == place.folder)
    }

    /// Turns a round, and messages a turn, at this place.
    #[must_use]
    pub fn turns(&self, place: &Place) -> (usize, usize) {
        let messages = if self.is_memory(place) {
            self.sizes.turn_in_memory
        } else {
            self.sizes.turn_on_disk
        };
        (self.sizes.turns, messages)
    }

    /// Whether a section that began then and has made so many rounds at one place makes another.
    #[must_use]
    pub fn wants_round(&self, made: usize, begin: Instant) -> bool {
        made < self.sizes.rounds_least || made < self.sizes.rounds && begin.elapsed() < self.sizes.time
    }

    /// A lane, its template filled.
    ///
    /// # Errors
    /// When it cannot be filled.
    pub fn lane(&mut self, place: &Place, kind: Kind, load: Load, manner: Manner) -> Result<Lane> {
        self.say(format_args!("{}: {kind}, {}", place.name, load.name()));
        Lane::new(&mut self.workshop, place, kind, load, manner)
    }

    /// A folder for what does not depend on the disk.
    #[must_use]
    pub fn fastest(&self) -> PathBuf {
        self.memory.as_ref().unwrap_or(&self.disk).path().into()
    }

    /// Says what is going on, on standard error.
    pub fn say(&self, what: fmt::Arguments<'_>) {
        eprintln!("bench: {what}");
    }
}

/// Runs what the arguments ask for.
///
/// # Errors
/// When it cannot measure. A missed aim is no error.
pub fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.part {
        Some(Part::Worker(worker)) => return four::worker(worker),
        Some(Part::Fill(fill)) => {
            ensure!(!fill.file.exists(), "{} is there already", fill.file.display());
            return lane::fill(
                fill.kind,
                &fill.file,
                Load {
                    finished: fill.finished,
                    ready: fill.ready,
                },
            );
        }
        None => {}
    }
    if cfg!(debug_assertions) {
        eprintln!("bench: built without optimisation; its figures say nothing: cargo run --release");
    }
    let mut bench = Bench::new(arguments)?;
    let is_wanted = |section: &Section| arguments.only.is_empty() || arguments.only.contains(section);
    if is_wanted(&Section::Peak) {
        // What cannot be built should not cost a quarter of an hour first.
        peak::command()?;
    }
    let mut report = Report::default();
    for section in Section::value_variants() {
        if is_wanted(section) {
            report.append(match section {
                Section::Counts => counts::counts(&mut bench)?,
                Section::One => rates::one(&mut bench)?,
                Section::Fused => rates::fused(&mut bench)?,
                Section::Actor => rates::actor(&mut bench)?,
                Section::Four => four::four(&mut bench)?,
                Section::Peak => peak::peak(&mut bench)?,
            });
        }
    }
    if arguments.json {
        let mut object = json!({
            "sqlite": rusqlite::version(),
            "large": bench.sizes.large,
        });
        if let (Some(object), serde_json::Value::Object(figures)) = (object.as_object_mut(), report.json()) {
            object.extend(figures);
        }
        println!("{object:#}");
    } else {
        println!("SQLite {}, WAL, synchronous=FULL", rusqlite::version());
        print!("{}", report.text());
    }
    Ok(())
}
