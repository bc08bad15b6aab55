//! `keyfence restore`: a backup back into the ledger, with every claim voided.

use std::path::PathBuf;

use clap::Args;
use keyfence::core::Token;
use keyfence::core::token::MAX_NUMBER;
use keyfence::{Lost, restore};

use super::exit::{Answered, Status, decided};
use super::output::Answer;
use super::progress::Bar;
use super::{Access, Context, args};

/// Restore a backup: voids every claim, lifts the counter
#[derive(Debug, Args)]
#[command(after_help = "\
Every token from then on lies above all that can have been handed out; the new
floor is printed. Work that was finished after the backup is kept where the
replaced ledger can be read; otherwise it is lost, and this command says so.
What was begun since the backup and not finished is dropped, and counted. Name
with --above the greatest token that any worker or gate has seen.

The ledger keeps its identity, at another path too, so that its gates go on:
it is the same ledger, and the one that it was copied from must be given up. A
file that is no ledger is never replaced.

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
        let mut bar = Bar::new();
        let options = context.options(Access::Create);
        let decision = restore(&path, &self.file, self.above, &options, &mut |progress| {
            bar.show(progress)
        })?;
        drop(bar);
        let restored = decided(decision, || match self.above {
            Some(above) => format!("restore above {above}, where tokens end at {MAX_NUMBER}"),
            None => format!("restore above all that was handed out, where tokens end at {MAX_NUMBER}"),
        })?;
        let answer = Answer::new("done")
            .with("ledger", path.display().to_string())
            .with("id", restored.ledger.to_string())
            .with("floor", restored.floor.get())
            .with("voided", restored.voided);
        let answer = match restored.lost {
            Lost::Readable {
                kept_rows,
                damaged,
                dropped,
            } => {
                let answer = answer
                    .with("replaced", "readable")
                    .with("kept_rows", kept_rows)
                    .with("dropped_rows", dropped.rows)
                    .with("dropped_events", dropped.events);
                match damaged {
                    Some(damaged) => {
                        let kept_as = damaged.kept_as.display().to_string();
                        context.output().note(&format!(
                            "keyfence: {} rows of the replaced ledger were damaged and are as in the backup; the file is kept as {kept_as}",
                            damaged.rows
                        ));
                        answer.with("damaged_rows", damaged.rows).with("kept_as", kept_as)
                    }
                    None => answer,
                }
            }
            Lost::Unreadable { why } => {
                context.output().note(&format!(
                    "keyfence: the replaced ledger could not be read ({why}): what was done since the backup is lost"
                ));
                answer.with("replaced", "unreadable").with("lost", why)
            }
            Lost::NothingReplaced => {
                context.output().note(&format!(
                    "keyfence: this is ledger {} still, and its gates take it for that: do not go on with another copy of it",
                    restored.ledger
                ));
                answer.with("replaced", "nothing")
            }
        };
        context
            .output()
            .answer(&answer.headline(format!("floor {}", restored.floor), &["floor"]))?;
        Ok(Status::Done)
    }
}
