//! Peak memory of the real command on a large ledger.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::Bench;
use super::lane::{self, Load};
use super::ledger::RECIPIENT;
use super::queue::Kind;
use super::report::{Report, Table, Target};

/// What any command may use at most with a million messages.
pub const LIMIT_MIB: f64 = 64.0;

/// What one run of a command took.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The most memory that was resident at a time.
    pub peak_mib: f64,
    /// How long it ran.
    pub elapsed: Duration,
    /// Its exit status; `None` when a signal ended it.
    pub status: Option<i32>,
}

/// Runs a program to its end, its output thrown away, and watches its peak memory.
///
/// The kernel's own high-water mark of the process is read once a millisecond: it never falls, so only what is
/// allocated in the very last millisecond can be missed. (What the parent is told at the end would not do: it includes
/// the parent's own memory from before the program was loaded.)
///
/// # Errors
/// When it cannot be started or watched.
pub fn run(program: &Path, arguments: &[&str]) -> Result<Run> {
    let begin = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let file = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0_u64;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        // A process that has just ended has no memory any more.
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mark = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = mark.and_then(|mark| mark.trim().strip_suffix(" kB")?.parse().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    };
    Ok(Run {
        peak_mib: peak_kib as f64 / 1024.0,
        elapsed: begin.elapsed(),
        status: status.code(),
    })
}

/// Builds the command from the same sources, beside this program, so that what is measured is never an older one.
///
/// # Errors
/// When cargo cannot build it.
pub fn command() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let path = here.with_file_name("keyfence");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "keyfence", "--manifest-path"]);
    cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let status = cargo
        .status()
        .context("cannot run cargo, which builds the command to measure")?;
    ensure!(status.success(), "cargo could not build the command to measure");
    ensure!(path.exists(), "cargo did not build {}", path.display());
    Ok(path)
}

/// Runs the commands that read or copy a whole ledger.
///
/// # Errors
/// When the ledger cannot be made or a command cannot be run.
pub fn peak(bench: &mut Bench) -> Result<Report> {
    let mut report = Report::default();
    let command = command()?;
    let load = Load {
        finished: 1_000,
        ready: bench.sizes.large,
    };
    bench.say(format_args!("filling keyfence, {}", load.name()));
    let template = bench.workshop.template(Kind::Keyfence, load)?;
    let folder = bench.fastest();
    let (ledger, backup) = (folder.join("peak.db"), folder.join("peak.backup"));
    lane::copy(&template, &ledger)?;
    let backup = backup.to_str().context("a folder whose name is text")?;
    let file = ledger.to_str().context("a folder whose name is text")?;
    let mut table = Table::new(format!("peak memory of the command, {}", load.name()));
    for arguments in [
        &["status"][..],
        &["events"],
        &["mailbox", "inbox", RECIPIENT],
        &["doctor"],
        &["backup", backup],
        &["restore", backup],
        &["mailbox", "inbox", RECIPIENT, "--json"],
        &["events", "--json"],
        &["supervise", "--once"],
        &["prune", "--older-than", "1ms"],
    ] {
        let what = arguments
            .iter()
            .map(|argument| if *argument == backup { "FILE" } else { argument })
            .collect::<Vec<_>>()
            .join(" ");
        bench.say(format_args!("keyfence {what}"));
        let run = run(&command, &[&["--ledger", file], arguments].concat())?;
        table.row(json!({
            "command": what,
            "peak MiB": run.peak_mib,
            "seconds": run.elapsed.as_secs_f64(),
            "status": run.status,
        }));
        report.aim_exact(format!("peak MiB of {what}"), Target::AtMost(LIMIT_MIB), run.peak_mib);
    }
    report.table(table);
    Ok(report)
}
