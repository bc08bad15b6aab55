//! `cargo run --release -p keyfence-tests --bin bench`: see [`keyfence_tests::bench`].

use clap::Parser as _;
use keyfence_tests::bench::{Arguments, run};

fn main() -> anyhow::Result<()> {
    run(&Arguments::parse())
}
