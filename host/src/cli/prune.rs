//! `keyfence prune`: drops what was finished long ago.

use std::time::Duration;

use clap::Args;
use keyfence::prune;

use super::exit::{Answered, Status};
use super::output::Answer;
use super::progress::Bar;
use super::{Access, Context, args};

/// Drop finished rows and a prefix of the history; finished names stay finished
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence prune --older-than 90d")]
pub(crate) struct Prune {
    /// What was finished longer ago than this
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    older_than: Duration,
}

impl Prune {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let ledger = context.open(Access::Write)?;
        let bar = Bar::new();
        let pruned = prune(&ledger, self.older_than, &mut |progress| bar.show(progress))?;
        drop(bar);
        let answer = Answer::new("done")
            .with("messages", pruned.messages)
            .with("assignments", pruned.assignments)
            .with("sessions", pruned.sessions)
            .with("events", pruned.events);
        context.output().answer(&answer)?;
        Ok(Status::Done)
    }
}
