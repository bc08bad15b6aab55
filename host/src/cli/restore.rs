//! `keyfence restore`: a backup back into the ledger, with every claim voided.

use std::path::PathBuf;

use clap::Args;
use keyfence::core::Token;
use keyfence::{Lost, restore};

use super::exit::{Answered, Status};
use super::output::Answer;
use super::progress::Bar;
use super::{Access, Context, args};

/// Restore a backup: voids every claim, lifts the counter
#[derive(Debug, Args)]
#[command(after_help = "\
Every token from then on lies above all that can have been handed out; the new floor is printed.
Work that was finished after the backup is kept where the replaced ledger can be read; otherwise it is lost, and this
command says so. Name with --above the greatest token that any worker or gate has seen.

Examples:
  keyfence restore /mnt/usb/keyfence-monday.db
  keyfence restore /mnt/usb/keyfence-monday.db --above 90210")]
pub(crate) struct Restore {
    /// The backup
    file: PathBuf,
    /// Lift the counter above this token too
    #[arg(long, value_name = "N", value_parser = args::token)]
    above: Option<Token>,
}

impl Restore {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let path = context.ledger_path();
        let bar = Bar::new();
        let restored = restore(
            &path,
            &self.file,
            self.above,
            &context.options(Access::Create),
            &mut |progress| bar.show(progress),
        )?;
        drop(bar);
        let answer = Answer::new("done")
            .with("ledger", path.display().to_string())
            .with("id", restored.ledger.to_string())
            .with("floor", restored.floor.get())
            .with("voided", restored.voided);
        let answer = match restored.lost {
            Lost::Kept { terminal_rows } => answer.with("replaced", "readable").with("kept_rows", terminal_rows),
            Lost::Unreadable { why } => {
                context.output().note(&format!(
                    "keyfence: the replaced ledger could not be read ({why}): what was done since the backup is lost"
                ));
                answer.with("replaced", "unreadable").with("lost", why)
            }
            Lost::NothingReplaced => answer.with("replaced", "nothing"),
        };
        context
            .output()
            .answer(&answer.headline(format!("floor {}", restored.floor), &["floor"]))?;
        Ok(Status::Done)
    }
}
