//! `keyfence kiosk`: kiosks, emulated or at a serial port, and the claims on them.

mod at;
mod claims;
mod emulate;
mod gate;
mod info;
mod mailbox;
mod work;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Context;
use super::exit::Answered;

/// Kiosks: a ledger of their own on a microcontroller, over a serial link
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk provision kiosk-a.flash --name kiosk-a
  keyfence kiosk emulate kiosk-a.flash &
  keyfence kiosk info --emulator kiosk-a.flash
  keyfence kiosk actor acquire alarm --emulator kiosk-a.flash \\
      --process $(keyfence process new)")]
pub(crate) struct Kiosk {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Provision(emulate::Provision),
    Emulate(emulate::Emulate),
    Reset(emulate::Reset),
    CutPower(emulate::CutPower),
    Info(info::Info),
    Dump(info::Dump),
    Actor(claims::Actor),
    Assignment(work::Assignment),
    Attempt(work::Attempt),
    Mailbox(mailbox::Mailbox),
    Host(claims::Host),
    Session(claims::Session),
    Gate(gate::Gate),
    Revoke(claims::Revoke),
}

impl Kiosk {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            Verb::Provision(command) => command.run(context),
            Verb::Emulate(command) => command.run(context),
            Verb::Reset(command) => command.run(context),
            Verb::CutPower(command) => command.run(context),
            Verb::Info(command) => command.run(context),
            Verb::Dump(command) => command.run(context),
            Verb::Actor(command) => command.run(context),
            Verb::Assignment(command) => command.run(context),
            Verb::Attempt(command) => command.run(context),
            Verb::Mailbox(command) => command.run(context),
            Verb::Host(command) => command.run(context),
            Verb::Session(command) => command.run(context),
            Verb::Gate(command) => command.run(context),
            Verb::Revoke(command) => command.run(context),
        }
    }
}

/// The key file beside an emulated kiosk's flash.
fn key_beside(flash: &std::path::Path) -> PathBuf {
    flash.with_extension("key")
}
