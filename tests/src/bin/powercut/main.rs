//! `powercut`: what a flash store says after the power went, and what it costs.

mod campaign;
mod cost;
mod emulator;
mod inspect;
mod progress;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  powercut sim --geometry nrf52 --html report.html               every cut of a life, with plots
  powercut sim --geometry tiny-4 --commits 3 --depth 2           and every cut in the recoveries
  powercut sim --geometry nrf52 --store sequential-storage       a peer, for comparison
  powercut sim --geometry tiny-4 --commits 4 --replay '3~w:first2>first2~left' --dump torn.bin
  powercut inspect torn.bin                                      what that cut has left
  powercut cost --geometry rp2040                                price list and years of life
  powercut emulator --cuts 1000                                  the real image, in the emulator";

/// Cuts the power of flash stores, on simulated chips, at every operation.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Sim(sim::Sim),
    Inspect(inspect::Inspect),
    Cost(cost::Cost),
    Campaign(campaign::Campaign),
    Emulator(emulator::Emulator),
}

fn main() -> ExitCode {
    let run = match Arguments::parse().command {
        Command::Sim(sim) => sim.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Cost(cost) => cost.run(),
        Command::Campaign(campaign) => campaign.run(),
        Command::Emulator(emulator) => emulator.run(),
    };
    run.unwrap_or_else(|error| {
        eprintln!("powercut: {error:#}");
        ExitCode::from(2)
    })
}
