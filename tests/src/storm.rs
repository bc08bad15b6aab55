//! The process storm: real processes, real signals, one real file; afterwards the history says whether the fence held.
//!
//! Eight workers and more share a ledger without a daemon. Each is killed (SIGKILL), stopped past its leases and resumed
//! (SIGSTOP, SIGCONT), at any instruction, inside a transaction too; their clocks are minutes apart; they walk away from
//! claims, finish late, ask again when an answer was lost. The driver sends messages, hits workers and follows the
//! history.
//!
//! 1. [`history`]: the checker and its rules, H1 to H19.
//! 2. [`run`]: the driver.
//! 3. [`worker`]: what a worker does. [`plan`]: what all of them agree on. `journal`: what each was told.
//! 4. [`weak`]: predicates left out one at a time; the checker has to find each.
//!
//! 5. [`contend`]: processes for the tests of the lock.
//!
//! What a seed replays is what is asked for and when signals are sent, not how the machine schedules the processes.

pub mod contend;
pub mod history;
mod journal;
pub mod plan;
mod round;
pub mod weak;
mod weakened;
pub mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use history::{Counts, Rule, Violation};
pub use plan::Options;

/// What a storm found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many rounds there were, each on a fresh ledger.
    pub rounds: u64,
    /// What the histories say, added up.
    pub counts: Counts,
    /// What the workers met: refusals by reason, busy answers, replays.
    pub met: BTreeMap<String, u64>,
    /// How many workers were killed.
    pub kills: u64,
    /// How many were stopped and resumed.
    pub stops: u64,
    /// How many answers the workers wrote down.
    pub told: u64,
    /// The broken rules, the first of each and some more.
    pub violations: Vec<Violation>,
    /// Damage that the doctor found, and workers that ended for another reason than a signal.
    pub failures: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Report {
    /// Whether no rule was broken and nothing failed.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.counts.violations == 0 && self.failures.is_empty()
    }

    /// Whether this rule was broken.
    #[must_use]
    pub fn broke(&self, rule: Rule) -> bool {
        self.violations.iter().any(|violation| violation.rule == rule)
    }

    /// The report as JSON, with the command that runs the same storm again.
    #[must_use]
    pub fn to_json(&self, options: &Options) -> Value {
        let violation = |violation: &Violation| json!({"rule": violation.rule.name(), "event": violation.seq, "what": violation.what});
        json!({
            "outcome": if self.is_sound() { "sound" } else { "broken" },
            "replay": replay(options),
            "workers": options.workers,
            "messages": self.counts.sent,
            "done": self.counts.done,
            "dead": self.counts.dead,
            "assignments_finished": self.counts.assignments,
            "sessions_finished": self.counts.sessions,
            "rounds": self.rounds,
            "events": self.counts.events,
            "tokens": self.counts.tokens,
            "takeovers": self.counts.takeovers,
            "kills": self.kills,
            "stops": self.stops,
            "told": self.told,
            "met": self.met,
            "violations_total": self.counts.violations,
            "violations": self.violations.iter().map(violation).collect::<Vec<_>>(),
            "failures": self.failures,
            "elapsed_ms": u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn add(&mut self, round: Self) {
        let (total, more) = (&mut self.counts, round.counts);
        total.events += more.events;
        total.tokens += more.tokens;
        total.takeovers += more.takeovers;
        total.sent += more.sent;
        total.done += more.done;
        total.dead += more.dead;
        total.assignments += more.assignments;
        total.sessions += more.sessions;
        total.violations += more.violations;
        for (what, count) in round.met {
            *self.met.entry(what).or_default() += count;
        }
        self.rounds += 1;
        self.kills += round.kills;
        self.stops += round.stops;
        self.told += round.told;
        self.violations.extend(round.violations);
        self.failures.extend(round.failures);
    }
}

/// The command that runs the same storm again.
#[must_use]
pub fn replay(options: &Options) -> String {
    let Options {
        workers,
        messages,
        duration,
        seed,
        ttl_ms,
        patience: _,
        folder,
        weakness,
    } = options;
    let seconds = duration.as_secs();
    let folder = folder
        .as_ref()
        .map_or(String::new(), |folder| format!(" --folder {}", folder.display()));
    let weakness = weakness.map_or(String::new(), |weakness| format!(" --weakness {}", weakness.name()));
    format!(
        "storm --workers {workers} --messages {messages} --seconds {seconds} --seed {seed} --ttl-ms {ttl_ms}{folder}{weakness}"
    )
}

/// Runs rounds in temporary folders until the time is up or a rule is broken. `program` is the storm binary, which the
/// workers are; `progress` is told how far it has come.
///
/// # Errors
/// When processes cannot be started, or files not be made. A broken rule is no error: it is in the report.
pub fn run(options: &Options, program: &Path, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let mut report = Report::default();
    loop {
        let seed = options.seed.wrapping_add(report.rounds);
        let round = round::run(options, seed, program, &mut |line| {
            progress(&format!("round {}, {} s: {line}", seed, begin.elapsed().as_secs()));
        })?;
        report.add(round);
        report.elapsed = begin.elapsed();
        if !report.is_sound() || report.elapsed >= options.duration {
            return Ok(report);
        }
    }
}
