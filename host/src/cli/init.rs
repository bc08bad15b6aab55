//! `keyfence init`: creates a ledger.

use clap::Args;

use super::exit::{Answered, Status};
use super::output::Answer;
use super::{Access, Context};

/// Create a ledger; harmless on an existing one
#[derive(Debug, Args)]
#[command(after_help = "\
Commands that claim or send create a missing ledger by themselves.

Examples:
  keyfence init
  keyfence --ledger /var/lib/shop/keyfence.db init")]
pub(crate) struct Init {}

impl Init {
    pub(crate) fn run(self, context: &Context) -> Answered {
        // An empty file is one that a ledger may be made of.
        let existed = std::fs::metadata(context.ledger_path()).is_ok_and(|metadata| metadata.len() > 0);
        let ledger = context.open(Access::Create)?;
        let answer = Answer::new(if existed { "already_done" } else { "done" })
            .with("ledger", ledger.path().display().to_string())
            .with("id", ledger.id().to_string());
        context.output().answer(&answer)?;
        Ok(Status::Done)
    }
}
