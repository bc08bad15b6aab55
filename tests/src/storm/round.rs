//! One round: a fresh ledger, its workers, the signals that hit them, and the history that is followed to its end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use keyfence::{Ledger, Severity, SystemClock};
use rustix::process::{Pid, Signal, kill_process};

use super::Report;
use super::history::Checker;
use super::journal::Told;
use super::plan::{self, Options};
use super::weak::Weakness;
use crate::faults::scratch;

/// How many messages are sent in one transaction.
const BATCH: u64 = 100;
/// How many events are read at a time.
const EVENTS: usize = 2_000;
/// How often the driver looks around.
const LOOK: Duration = Duration::from_millis(10);
/// How often progress is told.
const TELL: Duration = Duration::from_secs(2);

/// A worker's place, and the process that fills it now.
struct Slot {
    number: usize,
    child: Child,
    /// When it is resumed, if it is stopped.
    stopped_until: Option<Instant>,
    spawned: u64,
}

struct Round<'o> {
    options: &'o Options,
    program: &'o Path,
    folder: PathBuf,
    seed: u64,
    random: fastrand::Rng,
    slots: Vec<Slot>,
    report: Report,
}

/// Runs one round and reports what it found.
pub(super) fn run(
    options: &Options,
    seed: u64,
    program: &Path,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Report> {
    let home = match &options.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => scratch()?,
    };
    let mut round = Round {
        options,
        program,
        folder: home.path().to_owned(),
        seed,
        random: fastrand::Rng::with_seed(seed),
        slots: Vec::new(),
        report: Report::default(),
    };
    // All of them open the new ledger at once.
    for number in 0..options.workers {
        let child = round.spawn(number, 0)?;
        round.slots.push(Slot {
            number,
            child,
            stopped_until: None,
            spawned: 0,
        });
    }
    let followed = round.follow(progress);
    let ended = round.end();
    let (ledger, mut checker) = followed?;
    ended?;
    round.check(&ledger, &mut checker)?;
    Ok(std::mem::take(&mut round.report))
}

impl Round<'_> {
    fn ledger_path(&self) -> PathBuf {
        self.folder.join("storm.db")
    }

    fn journal_path(&self, slot: usize) -> PathBuf {
        self.folder.join(format!("worker-{slot}.journal"))
    }

    fn spawn(&self, slot: usize, spawned: u64) -> anyhow::Result<Child> {
        let mut command = Command::new(self.program);
        // Every second worker leaves the predicate out; the others give it something to break.
        let weakness = self.options.weakness.filter(|_| slot % 2 == 1).map(Weakness::name);
        let seed = self
            .seed
            .wrapping_mul(1_000_003)
            .wrapping_add(slot as u64 * 10_007 + spawned);
        command
            .arg("worker")
            .args(["--ledger".as_ref(), self.ledger_path().as_os_str()])
            .args(["--journal".as_ref(), self.journal_path(slot).as_os_str()])
            .args(["--slot", &slot.to_string(), "--worker-seed", &seed.to_string()])
            .args(["--messages", &self.options.messages.to_string()])
            .args(["--ttl-ms", &self.options.ttl_ms.to_string()])
            .args(weakness.iter().flat_map(|name| ["--weakness", name]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))
    }

    /// Sends the messages, hits workers and follows the history until every message has ended, a rule is broken or the
    /// patience is at its end.
    fn follow(&mut self, progress: &mut dyn FnMut(&str)) -> anyhow::Result<(Ledger, Checker)> {
        let ledger = self.open()?;
        let mut checker = Checker::new(plan::retries_max);
        let (begin, mut told) = (Instant::now(), Instant::now());
        let mut sent = 0;
        loop {
            if sent < self.options.messages {
                let upto = self.options.messages.min(sent + BATCH);
                let batch: Vec<_> = (sent..upto).map(plan::message).collect();
                // A worker that is stopped inside its transaction makes this wait; then it is asked again.
                match ledger.call().mailbox_send_batch(&batch) {
                    Ok(Ok(_)) => sent = upto,
                    Ok(Err(refusal)) => anyhow::bail!("sending was refused: {refusal}"),
                    Err(keyfence::Error::Busy { .. }) => {}
                    Err(error) => return Err(error).context("the driver cannot send"),
                }
            } else {
                std::thread::sleep(LOOK);
            }
            self.hit()?;
            self.revive()?;
            read_on(&ledger, &mut checker, EVENTS * 20)?;
            let counts = checker.counts();
            if told.elapsed() >= TELL {
                told = Instant::now();
                progress(&format!(
                    "{} of {} messages ended, {} events, {} takeovers, {} kills, {} stops",
                    counts.done + counts.dead,
                    self.options.messages,
                    counts.events,
                    counts.takeovers,
                    self.report.kills,
                    self.report.stops
                ));
            }
            let settled = sent == self.options.messages && counts.sent >= sent && checker.is_settled();
            let broken = counts.violations > 0 || !self.report.failures.is_empty();
            if settled || broken || begin.elapsed() > self.options.patience {
                return Ok((ledger, checker));
            }
        }
    }

    fn open(&self) -> anyhow::Result<Ledger> {
        loop {
            let options = keyfence::Options {
                clock: Arc::new(SystemClock),
                timeout: Duration::from_millis(500),
                ..keyfence::Options::default()
            };
            match Ledger::open(&self.ledger_path(), options) {
                Err(keyfence::Error::Busy { .. }) => {}
                opened => return opened.context("the driver cannot open the ledger"),
            }
        }
    }

    /// Kills or stops a worker now and then, and resumes those whose time has come.
    fn hit(&mut self) -> anyhow::Result<()> {
        for slot in &mut self.slots {
            if slot.stopped_until.is_some_and(|until| until <= Instant::now()) {
                slot.stopped_until = None;
                signal(&slot.child, Signal::CONT)?;
            }
        }
        let ttl_ms = self.options.ttl_ms;
        match self.random.u32(0..100) {
            0..8 => {
                let index = self.random.usize(0..self.slots.len());
                signal(&self.slots[index].child, Signal::KILL)?;
                self.report.kills += 1;
            }
            8..14 => {
                let stopped = self.slots.iter().filter(|slot| slot.stopped_until.is_some()).count();
                let index = self.random.usize(0..self.slots.len());
                let slot = &mut self.slots[index];
                if stopped < 2 && slot.stopped_until.is_none() {
                    // Every sixth one sleeps past its leases. Not all do: a process that is stopped inside its transaction
                    // stops every writer.
                    let pause = match self.random.u8(0..6) {
                        0 => self.random.u64(ttl_ms..ttl_ms * 3 / 2),
                        _ => self.random.u64(1..ttl_ms / 8 + 2),
                    };
                    let pause = Duration::from_millis(pause);
                    signal(&slot.child, Signal::STOP)?;
                    slot.stopped_until = Some(Instant::now() + pause);
                    self.report.stops += 1;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Puts a new process into the place of each one that is gone.
    fn revive(&mut self) -> anyhow::Result<()> {
        for index in 0..self.slots.len() {
            let Some(status) = self.slots[index].child.try_wait()? else {
                continue;
            };
            let number = self.slots[index].number;
            if status.code().is_some() {
                self.report
                    .failures
                    .push(format!("worker {number} ended by itself: {status}"));
            }
            let spawned = self.slots[index].spawned + 1;
            let child = self.spawn(number, spawned)?;
            self.slots[index] = Slot {
                number,
                child,
                stopped_until: None,
                spawned,
            };
        }
        Ok(())
    }

    /// Kills all workers and waits for them.
    fn end(&mut self) -> anyhow::Result<()> {
        for slot in &mut self.slots {
            slot.child.kill()?;
        }
        for slot in &mut self.slots {
            slot.child.wait()?;
        }
        Ok(())
    }

    /// What only shows when the workers are gone.
    fn check(&mut self, ledger: &Ledger, checker: &mut Checker) -> anyhow::Result<()> {
        read_on(ledger, checker, usize::MAX)?;
        checker.check_counter(ledger.counter()?);
        let mut told = Told::default();
        for slot in 0..self.options.workers {
            told.read(&self.journal_path(slot))?;
        }
        for act in &told.acts {
            checker.check_acknowledged(act);
        }
        for question in &told.questions {
            checker.check_request(question.request.as_str(), question.process);
        }
        if checker.counts().violations == 0 {
            checker.check_finished();
        }
        self.doctor();
        self.report.told = told.acts.len() as u64;
        self.report.met = told.counts;
        self.report.counts = checker.counts();
        self.report.violations = checker.violations().to_vec();
        Ok(())
    }

    /// The doctor verifies the chain of the history, the rows against it, and the file.
    fn doctor(&mut self) {
        let options = keyfence::Options::default();
        let report = keyfence::doctor(&self.ledger_path(), &options, &mut |_| {});
        for finding in report.findings {
            match finding.severity {
                Severity::Sound | Severity::Warning => {}
                Severity::Error | Severity::Damage => {
                    self.report
                        .failures
                        .push(format!("doctor: {}: {}", finding.topic, finding.what));
                }
            }
        }
    }
}

impl Drop for Round<'_> {
    /// Leaves no worker behind, a stopped one neither.
    fn drop(&mut self) {
        for slot in &mut self.slots {
            // A worker that is gone already is what is wanted.
            let _ = slot.child.kill();
            let _ = slot.child.wait();
        }
    }
}

/// Feeds up to `limit` of the events that were not read yet.
fn read_on(ledger: &Ledger, checker: &mut Checker, limit: usize) -> anyhow::Result<()> {
    let mut read = 0;
    while read < limit {
        let events = match ledger.events(checker.last_seq().unwrap_or(0), EVENTS) {
            Err(keyfence::Error::Busy { .. }) => return Ok(()),
            events => events?,
        };
        if events.is_empty() {
            break;
        }
        read += events.len();
        for record in events {
            checker.feed(record.seq, &record.event);
        }
    }
    Ok(())
}

/// Sends a signal to a child that was not waited for, so that its number is still its own.
fn signal(child: &Child, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .context("a child has a process id")?;
    Ok(kill_process(pid, signal)?)
}
