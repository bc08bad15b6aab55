//! `keyfence backup`: a consistent copy while others write.

use std::path::PathBuf;

use clap::Args;
use keyfence::backup;

use super::exit::{Answered, Status};
use super::output::Answer;
use super::progress::Bar;
use super::{Access, Context};

/// Write a consistent copy into a new file, while others write
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence backup /mnt/usb/keyfence-monday.db")]
pub(crate) struct Backup {
    /// The new file
    file: PathBuf,
}

impl Backup {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let ledger = context.open(Access::Read)?;
        let bar = Bar::new();
        backup(&ledger, &self.file, &mut |progress| bar.show(progress))?;
        drop(bar);
        let answer = Answer::new("done")
            .with("backup", self.file.display().to_string())
            .with("ledger", ledger.path().display().to_string())
            .with("id", ledger.id().to_string());
        context.output().answer(&answer)?;
        Ok(Status::Done)
    }
}
