//! `keyfence demo`: three exercises that show what a fence is for.
//!
//! Each is played on a fresh ledger by real calls of the library; what is printed is what they answered. The wrong way
//! comes first, on plain rows without a fence.

mod authority;
mod kiosks;
mod mailbox;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use keyfence::core::{Decision, Name, TimeMs, Ttl};
use keyfence::{Clock, FixedClock, Ledger, Options};
use serde_json::Value;

use super::Context;
use super::exit::{Answered, Failure, Status};
use super::format::Paint;
use super::output::pretty;

/// Watch a stale worker being refused: two of Lucy's staff, one shop, one numbered key
#[derive(Debug, Args)]
#[command(after_help = "\
Plays on a fresh ledger in a temporary folder. Name an empty or missing file
with --ledger to look at it afterwards.

Examples:
  keyfence demo mailbox
  keyfence demo authority --json
  keyfence --ledger shop.db demo kiosks && keyfence --ledger shop.db events")]
pub(crate) struct Demo {
    /// Which exercise
    #[arg(value_enum)]
    exercise: Exercise,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Exercise {
    /// One message, two workers: who may complete it?
    Mailbox,
    /// One actor, two processes: who may act as it?
    Authority,
    /// One conversation, two kiosks: who may finish it?
    Kiosks,
}

impl Demo {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let stage = Stage::set(context)?;
        let mut story = Story::new();
        let observed = match self.exercise {
            Exercise::Mailbox => mailbox::play(&stage, &mut story),
            Exercise::Authority => authority::play(&stage, &mut story),
            Exercise::Kiosks => kiosks::play(&stage, &mut story),
        }?;
        let output = context.output();
        output.text(&if output.is_json() {
            pretty(&observed)
        } else {
            story.text
        })?;
        Ok(Status::Done)
    }
}

/// Where an exercise is played.
struct Stage {
    /// Goes when the exercise is over.
    folder: tempfile::TempDir,
    path: PathBuf,
    clock: Arc<FixedClock>,
    start: TimeMs,
}

impl Stage {
    fn set(context: &Context) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("keyfence-demo-").tempdir()?;
        let path = match context.named_ledger() {
            None => folder.path().join("keyfence.db"),
            Some(path) if std::fs::metadata(path).is_ok_and(|file| file.len() > 0) => {
                return Err(Failure::Usage(format!(
                    "{} is not empty: a demo wants a ledger of its own",
                    path.display()
                )));
            }
            Some(path) => path.clone(),
        };
        let start = context.now();
        let clock = Arc::new(FixedClock::new(start));
        Ok(Self {
            folder,
            path,
            clock,
            start,
        })
    }

    /// A handle of its own, as another process would have one.
    fn open(&self) -> Result<Ledger, Failure> {
        let options = Options {
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            ..Options::default()
        };
        Ok(Ledger::open(&self.path, options)?)
    }

    /// A folder for what is no ledger.
    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Puts the clock to this minute of the story.
    fn minute(&self, minute: u64) {
        self.clock.set(self.start);
        self.clock.advance_ms(minute * 60_000);
    }

    /// Which minute of the story a moment is.
    fn minute_of(&self, moment: TimeMs) -> u64 {
        moment.as_ms().saturating_sub(self.start.as_ms()) / 60_000
    }
}

/// How wide the column is that says who does what; with it every line fits into 80 columns.
const WHO_COLUMNS: usize = 36;

/// What is told to people while it happens.
struct Story {
    text: String,
    paint: Paint,
}

impl Story {
    fn new() -> Self {
        Self {
            text: String::new(),
            paint: Paint::of(std::io::stdout().is_terminal()),
        }
    }

    fn title(&mut self, title: &str, opening: &str) {
        self.text.push_str(&format!("{}\n{opening}\n", self.paint.bold(title)));
    }

    fn act(&mut self, heading: &str) {
        self.text.push_str(&format!("\n{}\n", self.paint.bold(heading)));
    }

    /// Something that somebody does, and what comes of it.
    fn line(&mut self, who: &str, result: &str) {
        let result = if result.starts_with("refused") {
            self.paint.warn(result)
        } else {
            self.paint.good(result)
        };
        self.text.push_str(&format!("  {who:<WHO_COLUMNS$}  {result}\n"));
    }

    /// The same where there is no fence.
    fn wrong(&mut self, who: &str, result: &str) {
        self.text
            .push_str(&format!("  {who:<WHO_COLUMNS$}  {}\n", self.paint.bad(result)));
    }

    fn moral(&mut self, moral: &str) {
        self.text.push_str(&format!("  {}\n", self.paint.dim(moral)));
    }
}

/// A name that is known to be one.
fn name(text: &str) -> Result<Name, Failure> {
    Name::new(text).map_err(|error| Failure::System(anyhow::Error::new(error)))
}

/// What was granted, where the story needs it to be.
fn granted<T>(decision: Decision<T>) -> Result<T, Failure> {
    decision.map_err(|refusal| Failure::Refused(Box::new(refusal), "play the demo".to_owned()))
}

/// "what was done", or "refused: why".
fn told<T>(decision: &Decision<T>, done: &str) -> String {
    match decision {
        Ok(_) => done.to_owned(),
        Err(refusal) => format!("refused: {}", refusal.reason),
    }
}

/// Fifteen minutes.
const QUARTER: Ttl = Ttl::MAILBOX_CLAIM;

/// A plain SQLite file without any fence, for the wrong way.
fn plain_rows(stage: &Stage, schema: &str) -> Result<[rusqlite::Connection; 2], Failure> {
    let path = stage.folder().join("plain-rows.db");
    let open = || rusqlite::Connection::open(&path);
    let connections = open().and_then(|first| Ok([first, open()?])).map_err(plain)?;
    connections[0].execute_batch(schema).map_err(plain)?;
    Ok(connections)
}

fn plain(error: rusqlite::Error) -> Failure {
    Failure::System(anyhow::Error::new(error))
}

/// What an exercise has observed.
type Observed = Result<Value, Failure>;
