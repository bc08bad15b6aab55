//! What a kiosk says of itself.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use keyfence::core::Token;
use keyfence::kiosk::State;

use super::super::Context;
use super::super::exit::{Answered, Failure, Status};
use super::super::output::Answer;
use super::at::{At, here};

/// How the kiosk stands: state, boot, tokens, room, wear, outputs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk info --emulator kiosk-a.flash
  keyfence kiosk info --port /dev/ttyACM0 --key kiosk-a.key --json")]
pub(crate) struct Info {
    #[command(flatten)]
    at: At,
}

impl Info {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let mut called = self.at.open(context)?;
        let info = called.link.info()?;
        let why = match info.state {
            State::Closed(why) => Some(why.name()),
            State::Unprovisioned | State::Starting | State::Ready | State::Full | State::Worn => None,
        };
        let outputs: Vec<_> = info
            .outputs
            .iter()
            .map(|output| {
                let until = output.until.filter(|_| output.is_on);
                Answer::plain()
                    .with("output", output.name.as_str())
                    .with("on", output.is_on)
                    .with_some("expires_at_ms", until.map(|at| here(at, info.now, called.now).as_ms()))
                    .into_value()
            })
            .collect();
        let answer = Answer::plain()
            .with("kiosk", called.name.as_str())
            .with("device", called.link.device().to_string())
            .with("state", info.state.name())
            .with_some("why", why)
            .with("boot", info.boot)
            .with("process", info.boot_id.to_string())
            .with_some("kiosk_ledger", info.ledger.map(|ledger| ledger.to_string()))
            .with("up_ms", info.now.as_ms())
            .with_some("last_token", info.last_token.map(Token::get))
            .with("limit", info.limit)
            .with("sequence", info.sequence)
            .with("room_used_bytes", info.room_used)
            .with("room_total_bytes", info.room_total)
            .with("pages", info.wear.pages)
            .with("pages_retired", info.wear.retired)
            .with("erases_max", info.wear.erases_max)
            .with("erases_rated", info.wear.erases_rated)
            .with("repaired", info.repaired)
            .with("frames_rejected", info.rejected)
            .with("outputs", outputs)
            .headline(format!("kiosk {}", called.name), &["kiosk"]);
        context.output().answer(&answer)?;
        Ok(Status::Done)
    }
}

/// Save the bytes of the kiosk's journal, in whatever state it is
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk dump kiosk-a.journal --emulator kiosk-a.flash")]
pub(crate) struct Dump {
    /// Where to; never over a file that is there
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    at: At,
}

impl Dump {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let mut called = self.at.open(context)?;
        let mut bytes = Vec::new();
        loop {
            let at = u32::try_from(bytes.len()).map_err(|_| Failure::Usage("the journal has no end".to_owned()))?;
            let dump = called.link.dump(at)?;
            bytes.extend_from_slice(&dump.bytes);
            if dump.bytes.is_empty() || bytes.len() >= dump.total as usize {
                break;
            }
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.file);
        file.and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))?;
        let answer = Answer::new("done")
            .with("kiosk", called.name.as_str())
            .with("file", self.file.display().to_string())
            .with("bytes", bytes.len());
        context.output().answer(&answer)?;
        Ok(Status::Done)
    }
}
