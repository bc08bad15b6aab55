//! The contenders behind one face, and one timed stretch of work.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::bare::{Bare, Form};
use super::ledger::Keyfence;
use super::stats::Latencies;

/// What a message carries.
pub const BODY: &[u8] = &[b'x'; 200];
/// What is written when it is done.
pub const RESULT: &[u8] = b"sent 3 reminders, 1 bounced";
/// For how long a message is claimed: longer than any run of the benchmark.
pub const CLAIM_MS: u64 = 15 * 60 * 1000;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum Kind {
    /// Bare rusqlite, one claim statement and one complete statement. It loses a message whose worker dies, and two
    /// workers of which one stalled may both complete.
    Least,
    /// Bare rusqlite with what correctness needs: a token from a one-row counter, lapse by an index, an event row.
    Correct,
    /// The library.
    Keyfence,
}

impl Kind {
    /// All of them, in the order in which a round measures them.
    pub const ALL: [Self; 3] = [Self::Least, Self::Correct, Self::Keyfence];

    /// Opens its file, creating it when it is not there.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(self, path: &Path) -> Result<Box<dyn Queue>> {
        Ok(match self {
            Self::Least => Box::new(Bare::open(path, Form::Least)?),
            Self::Correct => Box::new(Bare::open(path, Form::Correct)?),
            Self::Keyfence => Box::new(Keyfence::open(path)?),
        })
    }

    /// Its name in tables, files and arguments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Least => "least",
            Self::Correct => "correct",
            Self::Keyfence => "keyfence",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A queue of one recipient, as one of its processes sees it. It remembers what it claimed, so that the calls need no
/// type of their own for a claim.
pub trait Queue {
    /// Sends `count` messages in one transaction.
    ///
    /// # Errors
    /// When the store fails.
    fn send(&mut self, count: usize) -> Result<()>;

    /// Claims up to `count` messages in one transaction and holds them; returns how many.
    ///
    /// # Errors
    /// When the store fails.
    fn claim(&mut self, count: usize) -> Result<usize>;

    /// Completes all that is held in one transaction.
    ///
    /// # Errors
    /// When the store fails, and when the fence refuses: nobody else is about.
    fn complete(&mut self) -> Result<()>;

    /// Completes all that is held and claims up to `count` next ones, in one transaction; returns how many are held then.
    ///
    /// # Errors
    /// As [`Queue::complete`].
    fn complete_and_claim(&mut self, count: usize) -> Result<usize>;

    /// Takes one name for this process alone and gives it up again, each in its own transaction.
    ///
    /// # Errors
    /// When the store fails, and when somebody else has it.
    fn acquire_and_release(&mut self) -> Result<()>;

    /// Moves the write-ahead log into the file and empties it.
    ///
    /// # Errors
    /// When the store fails.
    fn checkpoint(&mut self) -> Result<()>;
}

/// How the work of a stretch is cut into transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Claim, complete, claim, complete: two commits a message.
    OneByOne,
    /// Claim so many, complete so many: two commits for all of them.
    Batches(usize),
    /// Complete so many and claim the next ones: one commit for all of them. So many are held before and after a stretch.
    Fused(usize),
}

/// One timed stretch, or several added up.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    /// How many messages were completed.
    pub messages: usize,
    /// In which time.
    pub elapsed: Duration,
    /// In which time on a processor, which is blind to what else the machine does.
    pub processor: Duration,
    /// How long each claim call took; empty when fused.
    pub claims: Latencies,
    /// How long each call took that completed.
    pub completes: Latencies,
}

/// Both clocks of a stretch.
#[derive(Debug)]
pub struct Stopwatch {
    begin: Instant,
    processor: Duration,
}

impl Stopwatch {
    fn processor() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        // Neither is negative.
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// Starts both.
    #[must_use]
    pub fn start() -> Self {
        Self {
            begin: Instant::now(),
            processor: Self::processor(),
        }
    }

    /// Stops both.
    #[must_use]
    pub fn stop(self, messages: usize, claims: Latencies, completes: Latencies) -> Stretch {
        Stretch {
            messages,
            elapsed: self.begin.elapsed(),
            processor: Self::processor().saturating_sub(self.processor),
            claims,
            completes,
        }
    }
}

impl Stretch {
    /// Messages a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds on a processor a message.
    #[must_use]
    pub fn processor_us(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / self.messages as f64
    }

    /// Adds another one.
    pub fn extend(&mut self, other: &Self) {
        self.messages += other.messages;
        self.elapsed += other.elapsed;
        self.processor += other.processor;
        self.claims.extend(&other.claims);
        self.completes.extend(&other.completes);
    }
}

impl Manner {
    /// What has to be done before the first stretch.
    ///
    /// # Errors
    /// When the store fails, and when the queue is dry.
    pub fn begin(self, queue: &mut dyn Queue) -> Result<()> {
        match self {
            Self::OneByOne | Self::Batches(_) => {}
            Self::Fused(size) => ensure!(queue.claim(size)? == size, "the queue ran dry"),
        }
        Ok(())
    }

    /// What has to be done after the last one.
    ///
    /// # Errors
    /// When the store fails.
    pub fn end(self, queue: &mut dyn Queue) -> Result<()> {
        match self {
            Self::OneByOne | Self::Batches(_) => Ok(()),
            Self::Fused(_) => queue.complete(),
        }
    }
}

/// Works off `messages`, which must be there, between [`Manner::begin`] and [`Manner::end`].
///
/// # Errors
/// When the store fails, and when the queue runs dry.
pub fn work(queue: &mut dyn Queue, manner: Manner, messages: usize) -> Result<Stretch> {
    let mut claims = Latencies::with_capacity(messages);
    let mut completes = Latencies::with_capacity(messages);
    let begin = Stopwatch::start();
    match manner {
        Manner::OneByOne => {
            for _ in 0..messages {
                timed_pair(queue, 1, &mut claims, &mut completes)?;
            }
        }
        Manner::Fused(size) => {
            for _ in 0..batches(messages, size)? {
                let start = Instant::now();
                ensure!(queue.complete_and_claim(size)? == size, "the queue ran dry");
                completes.push(start.elapsed());
            }
        }
        Manner::Batches(size) => {
            for _ in 0..batches(messages, size)? {
                timed_pair(queue, size, &mut claims, &mut completes)?;
            }
        }
    }
    Ok(begin.stop(messages, claims, completes))
}

fn batches(messages: usize, size: usize) -> Result<usize> {
    if size == 0 || !messages.is_multiple_of(size) {
        bail!("{messages} messages do not make batches of {size}");
    }
    Ok(messages / size)
}

fn timed_pair(queue: &mut dyn Queue, size: usize, claims: &mut Latencies, completes: &mut Latencies) -> Result<()> {
    let start = Instant::now();
    ensure!(queue.claim(size)? == size, "the queue ran dry");
    let claimed = Instant::now();
    queue.complete()?;
    completes.push(claimed.elapsed());
    claims.push(claimed - start);
    Ok(())
}
