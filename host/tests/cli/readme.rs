//! What the README shows is what the command does.

use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../../README.md");

/// The fenced blocks of one language, without their fences.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let after_each = README.split(&*fence).skip(1);
    after_each.map(|rest| rest.split("```").next().unwrap()).collect()
}

fn keyfence() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyfence"));
    command.env_remove("KEYFENCE_PROCESS").env_remove("KEYFENCE_LEDGER");
    command
}

#[test]
fn the_guide_works_as_it_is_written_on_a_fresh_ledger() {
    let guide = blocks("sh");
    assert!(guide.len() >= 5, "a block for each machine: {guide:?}");
    let folder = tempfile::tempdir().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_keyfence")).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(bin.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    )
    .unwrap();
    let run = Command::new("sh")
        .args(["-e", "-c", &guide.concat()])
        .current_dir(folder.path())
        .env("PATH", path)
        .env_remove("KEYFENCE_PROCESS")
        .env_remove("KEYFENCE_LEDGER")
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let copied = std::fs::read_to_string(folder.path().join("sent/answer.txt")).unwrap();
    assert_eq!(copied, "60 tubs\n", "the gate's program ran");
}

#[test]
fn the_first_command_prints_what_the_readme_says() {
    let shown = blocks("text")
        .into_iter()
        .find_map(|block| block.strip_prefix("$ cargo run --release -p keyfence -- demo mailbox\n"))
        .expect("the README shows the first command and its output");
    let demo = keyfence().args(["demo", "mailbox"]).output().unwrap();
    assert!(demo.status.success());
    assert_eq!(String::from_utf8(demo.stdout).unwrap(), shown);
}
