//! The `keyfence` command.

fn main() {}
