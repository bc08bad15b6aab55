//! Real processes on one file: what four of them get done together, and whether the slowest gets its share.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Bench;
use super::lane::{self, Load, rotated};
use super::probe::Probe;
use super::queue::Kind;
use super::report::{Report, Table, Target};
use super::stats::{Latencies, Spread};

/// How many contend.
const PROCESSES: usize = 4;
/// The worst claim that is aimed for, on a disk that syncs in about [`QUICK_SYNC_US`].
const WORST_CLAIM_MS: f64 = 20.0;
/// The disk that [`WORST_CLAIM_MS`] is meant for.
const QUICK_SYNC_US: f64 = 100.0;
/// Messages that every worker works off before it says that it is ready: the log wraps, statements are prepared.
const WARM_UP: usize = 100;

/// Arguments of one worker process.
#[derive(Clone, Debug, clap::Args)]
pub struct Worker {
    /// Who works.
    #[arg(long)]
    kind: Kind,
    /// On which file.
    #[arg(long)]
    file: PathBuf,
    /// For how long, in milliseconds.
    #[arg(long)]
    length_ms: u64,
    /// How many messages a transaction takes.
    #[arg(long, default_value_t = 1)]
    batch: usize,
}

/// Works until its time is over, and prints what it did as a line of JSON. Waits for a line on standard
/// input before it starts the clock.
///
/// # Errors
/// When the store fails.
pub fn worker(worker: &Worker) -> Result<()> {
    let mut queue = worker.kind.open(&worker.file)?;
    for _ in 0..WARM_UP {
        ensure!(queue.claim(1)? == 1, "the queue ran dry");
        queue.complete()?;
    }
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let length = Duration::from_millis(worker.length_ms);
    let mut claims = Latencies::with_capacity(1 << 17);
    let mut done = 0;
    let begin = Instant::now();
    while begin.elapsed() < length {
        let start = Instant::now();
        ensure!(queue.claim(worker.batch)? == worker.batch, "the queue ran dry");
        claims.push(start.elapsed());
        queue.complete()?;
        done += worker.batch;
    }
    let elapsed = begin.elapsed();
    println!(
        "{}",
        json!({
            "done": done,
            "elapsed_us": elapsed.as_micros() as u64,
            "claim_p50_us": claims.quantile_us(0.5),
            "claim_p99_us": claims.quantile_us(0.99),
            "claim_worst_us": claims.worst_us(),
        })
    );
    Ok(())
}

struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(kind: Kind, file: &Path, length: Duration) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", "--kind", kind.name(), "--file"])
            .arg(file)
            .arg("--length-ms")
            .arg(length.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a worker")?;
        let output = BufReader::new(child.stdout.take().context("a worker has an output")?);
        Ok(Self { child, output })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "a worker ended without a word");
        Ok(line)
    }

    fn go(&mut self) -> Result<()> {
        self.child
            .stdin
            .take()
            .context("a worker has an input")?
            .write_all(b"\n")?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, unless the benchmark gives up early.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What several processes did at the same time.
#[derive(Clone, Debug)]
struct Together {
    per_second: f64,
    least_share: f64,
    claim_p50_us: f64,
    claim_p99_us: f64,
    claim_worst_us: f64,
}

fn together(kind: Kind, file: &Path, processes: usize, length: Duration) -> Result<Together> {
    let mut running = (0..processes)
        .map(|_| Running::start(kind, file, length))
        .collect::<Result<Vec<_>>>()?;
    for worker in &mut running {
        ensure!(worker.line()?.trim() == "ready", "a worker did not get ready");
    }
    for worker in &mut running {
        worker.go()?;
    }
    let mut done = Vec::new();
    let (mut per_second, mut p50, mut p99, mut worst) = (0.0, 0.0_f64, 0.0_f64, 0.0_f64);
    for worker in &mut running {
        let line: Value = serde_json::from_str(&worker.line()?)?;
        let figure = |name: &str| line[name].as_f64().with_context(|| format!("a worker tells no {name}"));
        let messages = figure("done")?;
        per_second += messages / (figure("elapsed_us")? / 1e6);
        done.push(messages);
        p50 += figure("claim_p50_us")? / processes as f64;
        p99 = p99.max(figure("claim_p99_us")?);
        worst = worst.max(figure("claim_worst_us")?);
    }
    let fair = done.iter().sum::<f64>() / processes as f64;
    Ok(Together {
        per_second,
        least_share: done.iter().copied().fold(f64::INFINITY, f64::min) / fair,
        claim_p50_us: p50,
        claim_p99_us: p99,
        claim_worst_us: worst,
    })
}

/// One process against four, for every contender.
///
/// # Errors
/// When a store or a worker fails.
pub fn four(bench: &mut Bench) -> Result<Report> {
    let mut report = Report::default();
    for place in bench.places() {
        let memory = bench.is_memory(&place);
        let length = bench.sizes.window;
        // More than can be worked off: nobody may wait for messages.
        let a_second = if memory { 120_000.0 } else { 12_000.0 };
        let ready = (a_second * length.as_secs_f64()) as usize + PROCESSES * WARM_UP;
        let load = Load { finished: 1_000, ready };
        let mut series = Vec::new();
        for kind in Kind::ALL {
            bench.say(format_args!("{}: filling {kind}, {}", place.name, load.name()));
            let template = bench.workshop.template(kind, load)?;
            for processes in [1, PROCESSES] {
                series.push((kind, processes, template.clone(), Vec::new()));
            }
        }
        let mut probe = Probe::new(&place.folder)?;
        let mut syncs_us = Vec::new();
        let file = place.folder.join("shared.db");
        let begin = Instant::now();
        while bench.wants_round(syncs_us.len(), begin) {
            bench.say(format_args!("{}: round {}", place.name, syncs_us.len() + 1));
            syncs_us.push(probe.run(bench.sizes.probe)?.p50_us);
            for index in rotated(series.len(), syncs_us.len()) {
                let (kind, processes, template, results) = &mut series[index];
                lane::copy(template, &file)?;
                results.push(together(*kind, &file, *processes, length)?);
            }
        }
        let rounds = syncs_us.len();
        let sync_us = Spread::of(syncs_us).map_or(0.0, |spread| spread.middle);
        let mut table = Table::new(format!(
            "saturated processes, {:.1} s each, {} ({rounds} rounds, an fsync takes {sync_us:.0} us)",
            length.as_secs_f64(),
            place.name
        ));
        let rates = |results: &[Together]| results.iter().map(|one| one.per_second).collect::<Vec<_>>();
        for pair in series.chunks(2) {
            let alone = rates(&pair[0].3);
            for (kind, processes, _, results) in pair {
                let of = |figure: fn(&Together) -> f64| Spread::of(results.iter().map(figure));
                let total = Spread::of_ratios(&rates(results), &alone);
                let share = of(|one| one.least_share);
                let worst_ms = of(|one| one.claim_worst_us / 1000.0);
                table.row(json!({
                    "who": kind.name(),
                    "processes": processes,
                    "messages/s": of(|one| one.per_second).map(|spread| spread.middle),
                    "to one process": total.map(|spread| spread.middle),
                    "least share": share.map(|spread| spread.middle),
                    "claim p50 us": of(|one| one.claim_p50_us).map(|spread| spread.middle),
                    "claim p99 us": of(|one| one.claim_p99_us).map(|spread| spread.middle),
                    "worst claim ms": worst_ms.map(|spread| spread.middle),
                    "worst of all ms": results.iter().map(|one| one.claim_worst_us / 1000.0).fold(0.0, f64::max),
                }));
                if *kind == Kind::Keyfence && *processes > 1 && !memory {
                    report.aim("four processes' total to one's", Target::AtLeast(0.9), total);
                    report.aim("least-served share of four", Target::AtLeast(0.8), share);
                    // Longer in proportion where the disk is slower than the one that the aim names.
                    let scale = (sync_us / QUICK_SYNC_US).max(1.0);
                    report.aim(
                        format!("worst claim of four, ms ({WORST_CLAIM_MS} at an fsync of {QUICK_SYNC_US} us)"),
                        Target::AtMost(WORST_CLAIM_MS * scale),
                        worst_ms,
                    );
                }
            }
        }
        report.table(table);
    }
    Ok(report)
}
