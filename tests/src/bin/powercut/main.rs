//! `powercut`: what a flash store says after the power went, and what it costs.

mod cost;
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
    Cost(cost::Cost),
}

fn main() -> ExitCode {
    let run = match Arguments::parse().command {
        Command::Sim(sim) => sim.run(),
        Command::Cost(cost) => cost.run(),
    };
    run.unwrap_or_else(|error| {
        eprintln!("powercut: {error:#}");
        ExitCode::from(2)
    })
}
