//! A kiosk without hardware: made, run, reset, its power cut.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use keyfence::core::{LedgerId, Name};
use keyfence::emulator::{Existing, Files, Image, Order, provision, serve};
use keyfence::kiosk::key_file;

use super::super::exit::{Answered, Failure, Status};
use super::super::output::{Answer, Unanswered};
use super::super::{Context, args};
use super::key_beside;

/// Where the build leaves the image of the micro:bit.
const IMAGES: [&str; 2] = [
    "target/boards/product/thumbv6m-none-eabi/kiosk/keyfence-microbit",
    "target/boards/product/debian/thumbv6m-none-eabi/kiosk/keyfence-microbit",
];

/// The image of the micro:bit, which the emulator runs.
#[derive(Debug, clap::Args)]
struct WithImage {
    /// The image, as it was linked [default: $KEYFENCE_KIOSK_IMAGE, else where tests/run builds it]
    #[arg(long, value_name = "FILE", env = "KEYFENCE_KIOSK_IMAGE", hide_env = true)]
    image: Option<PathBuf>,
}

impl WithImage {
    fn read(&self) -> Result<Image, Failure> {
        let built = || IMAGES.map(PathBuf::from).into_iter().find(|path| path.is_file());
        let path = self.image.clone().or_else(built);
        let path = path.unwrap_or_else(|| IMAGES.map(PathBuf::from)[0].clone());
        Ok(Image::read(&path).map_err(keyfence::emulator::EmulatorError::from)?)
    }
}

/// Make an emulated kiosk: a new ledger, a device id and a key, in the file of its flash; the key is also written to a file
/// beside it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk provision kiosk-a.flash --name kiosk-a
  keyfence kiosk provision kiosk-b.flash --name kiosk-b --floor 100000")]
pub(crate) struct Provision {
    /// The file of its flash; made if it is not there, and never emptied
    #[arg(value_name = "FLASH")]
    flash: PathBuf,
    /// The name that it goes by as a host, at most 32 bytes
    #[arg(long, value_parser = args::name)]
    name: Name,
    /// Mint tokens above this one: the highest that may have been handed out for the same resources
    #[arg(long, value_name = "TOKEN", default_value_t = 0)]
    floor: u64,
    /// Where the key goes [default: beside FLASH, ending in .key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    image: WithImage,
}

impl Provision {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let image = self.image.read()?;
        let key = self.key.unwrap_or_else(|| key_beside(&self.flash));
        let identity = key_file::fresh(self.name)?;
        let ledger = LedgerId::from_bytes(*uuid::Uuid::new_v4().as_bytes());
        Files::of(&self.flash).change(|flash| {
            provision(&image, flash, &identity, ledger, self.floor, Existing::Refuse)?;
            // First the key: a kiosk whose key nobody has is of no use to anybody.
            key_file::write(&key, &identity).map_err(|error| keyfence::emulator::EmulatorError::File {
                path: key.clone(),
                source: std::io::Error::other(error),
            })
        })?;
        let answer = Answer::new("done")
            .with("kiosk", identity.host.as_str())
            .with("device", identity.device.to_string())
            .with("kiosk_ledger", ledger.to_string())
            .with("floor", self.floor)
            .with("flash", self.flash.display().to_string())
            .with("key", key.display().to_string())
            .headline(format!("kiosk {}", identity.host), &["kiosk"]);
        context.output().answer(&answer)?;
        Ok(Status::Done)
    }
}

/// Run a kiosk in the emulator until interrupted; its flash stays in the file
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk emulate kiosk-a.flash &
  keyfence kiosk info --emulator kiosk-a.flash")]
pub(crate) struct Emulate {
    /// The file of its flash; blank if it is not there
    #[arg(value_name = "FLASH")]
    flash: PathBuf,
    #[command(flatten)]
    image: WithImage,
}

impl Emulate {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let image = self.image.read()?;
        let files = Files::of(&self.flash);
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let answer = Answer::new("running")
            .with("flash", self.flash.display().to_string())
            .with("port", files.port().display().to_string())
            .headline(format!("kiosk at {}", files.port().display()), &["port"]);
        serve(&image, &files, &stop, || {
            context.output().answer(&answer).map_err(|Unanswered(error)| error)
        })?;
        Ok(Status::Done)
    }
}

/// Reset an emulated kiosk: its RAM and its flash stay
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk reset kiosk-a.flash")]
pub(crate) struct Reset {
    /// The file of its flash
    #[arg(value_name = "FLASH")]
    flash: PathBuf,
}

impl Reset {
    pub(crate) fn run(self, context: &Context) -> Answered {
        ask(context, &self.flash, Order::Reset)
    }
}

/// Cut an emulated kiosk's power and bring it back: its flash stays as it is at this instant, its RAM is garbage
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk cut-power kiosk-a.flash")]
pub(crate) struct CutPower {
    /// The file of its flash
    #[arg(value_name = "FLASH")]
    flash: PathBuf,
    /// What the garbage is made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl CutPower {
    pub(crate) fn run(self, context: &Context) -> Answered {
        ask(context, &self.flash, Order::CutPower(self.seed))
    }
}

fn ask(context: &Context, flash: &Path, order: Order) -> Answered {
    Files::of(flash).ask(order)?;
    let answer = Answer::new("done").with("flash", flash.display().to_string());
    context.output().answer(&answer)?;
    Ok(Status::Done)
}
