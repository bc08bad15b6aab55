//! Which kiosk a command is about, and what its clock says in ours.

use std::path::PathBuf;

use keyfence::core::{Decision, Expiry, Name, Refusal, TimeMs};
use keyfence::emulator::{EmulatorError, Files};
use keyfence::kiosk::{KioskError, KioskLink, Options, Place, key_file};

use super::super::Context;
use super::super::exit::{Failure, decided};
use super::super::output::Answer;
use super::key_beside;

/// Where the kiosk is, and its key.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Which kiosk")]
pub(crate) struct At {
    /// The emulated kiosk whose flash is in this file; `keyfence kiosk emulate` runs it
    #[arg(
        long,
        value_name = "FLASH",
        conflicts_with = "port",
        required_unless_present = "port"
    )]
    emulator: Option<PathBuf>,
    /// The kiosk at this serial port
    #[arg(long, value_name = "PORT")]
    port: Option<PathBuf>,
    /// Its key file [default: $KEYFENCE_KIOSK_KEY, else the one beside an emulator's flash]
    #[arg(long, value_name = "FILE", env = "KEYFENCE_KIOSK_KEY", hide_env = true)]
    key: Option<PathBuf>,
    /// Which of the kiosk's 8 clients this is: request numbers are kept for each
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..8))]
    client: u8,
}

/// A kiosk that is about to be called.
pub(super) struct Called {
    pub(super) link: KioskLink,
    /// The name it was provisioned under.
    pub(super) name: Name,
    /// This call's own clock when the first call was made.
    pub(super) now: TimeMs,
}

impl At {
    pub(super) fn open(&self, context: &Context) -> Result<Called, Failure> {
        let (place, key) = match (&self.emulator, &self.port) {
            (Some(flash), _) => {
                let port = Files::of(flash).port();
                if !port.exists() {
                    return Err(EmulatorError::NotRunning(flash.clone()).into());
                }
                (Place::Socket(port), Some(key_beside(flash)))
            }
            (None, Some(port)) => (Place::Serial(port.clone()), None),
            (None, None) => return Err(Failure::Usage("name a kiosk: --emulator or --port".to_owned())),
        };
        let Some(key) = self.key.clone().or(key) else {
            return Err(Failure::Usage("name the kiosk's key file: --key".to_owned()));
        };
        let (name, identity) = key_file::read(&key)?;
        let options = Options {
            client: self.client,
            timeout: context.global.timeout,
        };
        Ok(Called {
            link: KioskLink::at(place, identity, options),
            name,
            now: context.now(),
        })
    }
}

impl Called {
    /// Takes the value out of a kiosk's decision. The moments of a refusal are put into this call's clock.
    pub(super) fn decided<T>(&mut self, decision: Decision<T>, asked: impl FnOnce() -> String) -> Result<T, Failure> {
        decided(
            match decision {
                Ok(value) => Ok(value),
                Err(refusal) => Err(self.here(refusal)?),
            },
            asked,
        )
    }

    /// Adds since when and until when to a claim's answer, on this call's clock, `there` being the kiosk's now. A moment of an
    /// earlier boot is on a clock that says nothing now.
    pub(super) fn with_times(&self, answer: Answer, since: TimeMs, expiry: Expiry, there: TimeMs) -> Answer {
        match expiry.time() {
            Some(until) => answer
                .with("since_ms", here(since, there, self.now).as_ms())
                .with("expires_at_ms", here(until, there, self.now).as_ms()),
            None => answer,
        }
    }

    fn here(&mut self, refusal: Refusal) -> Result<Refusal, KioskError> {
        if refusal.since.is_none() && refusal.expires_at.is_none() && refusal.due_at.is_none() {
            return Ok(refusal);
        }
        let there = self.link.info()?.now;
        Ok(Refusal {
            since: refusal.since.map(|at| here(at, there, self.now)),
            expires_at: refusal.expires_at.map(|at| here(at, there, self.now)),
            due_at: refusal.due_at.map(|at| here(at, there, self.now)),
            ..refusal
        })
    }
}

/// A moment of a clock that says `there` now, on one that says `here` now.
pub(super) fn here(at: TimeMs, there: TimeMs, here: TimeMs) -> TimeMs {
    let ms = (here.as_ms() + at.as_ms()).saturating_sub(there.as_ms());
    TimeMs::new(ms).unwrap_or(TimeMs::MAX)
}
