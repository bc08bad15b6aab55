//! The process storm as a command: see the module `storm` of the library.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use keyfence_tests::storm::weak::Weakness;
use keyfence_tests::storm::{self, Options, contend, worker};

/// Lets worker processes loose on one ledger, kills and stops them, and checks the history they leave.
///
/// Exit status: 0 when no rule was broken, 1 otherwise.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Part>,
    #[command(flatten)]
    storm: Storm,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// One worker: the storm starts its own.
    #[command(hide = true)]
    Worker(Worker),
    /// Begins a transaction, says so, and never ends it.
    #[command(hide = true)]
    Hold {
        /// The ledger.
        ledger: PathBuf,
    },
    /// Takes the lock that writers queue on, says so, and does not write.
    #[command(hide = true)]
    Queue {
        /// The ledger.
        ledger: PathBuf,
    },
    /// Mints tokens, one by one, and prints them.
    #[command(hide = true)]
    Mint {
        /// The ledger; a missing one is created.
        ledger: PathBuf,
        /// How many.
        times: u32,
    },
}

#[derive(Debug, Args)]
struct Storm {
    /// How many worker processes share the ledger.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// How many messages a round.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    messages: u64,
    /// Begins rounds, each on a fresh ledger, until so many seconds have passed.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// Chooses what is asked and which worker is hit when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long leases last, in milliseconds.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(4..))]
    ttl_ms: u64,
    /// Makes the ledgers in this folder instead of in memory.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Lets every second worker leave out this predicate: the storm has to find it.
    #[arg(long, value_parser = weakness)]
    weakness: Option<Weakness>,
    /// Prints the report as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Worker {
    #[arg(long)]
    ledger: PathBuf,
    #[arg(long)]
    journal: PathBuf,
    #[arg(long)]
    slot: usize,
    #[arg(long)]
    worker_seed: u64,
    #[arg(long)]
    messages: u64,
    #[arg(long)]
    ttl_ms: u64,
    #[arg(long, value_parser = weakness)]
    weakness: Option<Weakness>,
}

fn weakness(name: &str) -> Result<Weakness, String> {
    let known = || {
        Weakness::ALL
            .iter()
            .map(|weakness| weakness.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let found = Weakness::ALL.iter().copied().find(|weakness| weakness.name() == name);
    found.ok_or_else(|| format!("known are {}", known()))
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    match cli.command {
        Some(Part::Worker(orders)) => {
            worker::work(worker::Orders {
                ledger: orders.ledger,
                journal: orders.journal,
                slot: orders.slot,
                seed: orders.worker_seed,
                messages: orders.messages,
                ttl_ms: orders.ttl_ms,
                weakness: orders.weakness,
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Part::Hold { ledger }) => {
            contend::hold(&ledger)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Part::Queue { ledger }) => {
            contend::queue(&ledger)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Part::Mint { ledger, times }) => {
            contend::mint(&ledger, times)?;
            Ok(ExitCode::SUCCESS)
        }
        None => run(&cli.storm),
    }
}

fn run(storm: &Storm) -> anyhow::Result<ExitCode> {
    let options = Options {
        workers: usize::from(storm.workers),
        messages: storm.messages,
        duration: Duration::from_secs(storm.seconds),
        seed: storm.seed,
        ttl_ms: storm.ttl_ms,
        folder: storm.folder.clone(),
        weakness: storm.weakness,
        ..Options::default()
    };
    let program = std::env::current_exe()?;
    let report = storm::run(&options, &program, &mut |line| eprintln!("{line}"))?;
    if storm.json {
        println!("{}", report.to_json(&options));
    } else {
        let counts = report.counts;
        println!(
            "{}: {} messages, {} done, {} dead, {} assignments, {} sessions; {} events, {} tokens, {} takeovers; {} \
             kills, {} stops in {:.1} s",
            if report.is_sound() { "sound" } else { "broken" },
            counts.sent,
            counts.done,
            counts.dead,
            counts.assignments,
            counts.sessions,
            counts.events,
            counts.tokens,
            counts.takeovers,
            report.kills,
            report.stops,
            report.elapsed.as_secs_f64()
        );
        for (what, count) in &report.met {
            println!("  {count:>8} {what}");
        }
        for violation in &report.violations {
            println!("  {violation}");
        }
        for failure in &report.failures {
            println!("  {failure}");
        }
        println!("run again: {}", storm::replay(&options));
    }
    Ok(if report.is_sound() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
