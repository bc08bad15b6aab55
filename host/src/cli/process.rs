//! `keyfence process`: identities of running instances.

use clap::{Args, Subcommand};
use keyfence::fresh;

use super::Context;
use super::exit::{Answered, Status};
use super::output::Answer;

/// Identities of running instances
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  export KEYFENCE_PROCESS=$(keyfence process new)")]
pub(crate) struct Process {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print a fresh identity: draw one for every process, a forked child included
    #[command(after_help = "\
Examples:
  export KEYFENCE_PROCESS=$(keyfence process new)")]
    New,
}

impl Process {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            Verb::New => {
                let process = fresh::process().to_string();
                let output = context.output();
                if output.is_json() {
                    output.answer(&Answer::new("done").with("process", process))?;
                } else {
                    output.text(&format!("{process}\n"))?;
                }
                Ok(Status::Done)
            }
        }
    }
}
