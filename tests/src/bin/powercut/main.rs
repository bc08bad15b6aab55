//! `powercut`: what a flash store says after the power went, and what it costs.

mod campaign;
mod cost;
mod inspect;
mod progress;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Cuts the power of flash stores, on simulated chips, at every operation.
#[derive(Debug, Parser)]
#[command(version)]
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
}

fn main() -> ExitCode {
    let run = match Arguments::parse().command {
        Command::Sim(sim) => sim.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Cost(cost) => cost.run(),
        Command::Campaign(campaign) => campaign.run(),
    };
    run.unwrap_or_else(|error| {
        eprintln!("powercut: {error:#}");
        ExitCode::from(2)
    })
}
