//! The `keyfence` command: everything the library does, for shells and other languages.
//!
//! Each subcommand is a file in `cli/` with its arguments and its `run`; `cli/mod.rs` has the options that all share.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
