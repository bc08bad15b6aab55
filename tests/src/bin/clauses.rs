//! Deletes the clauses of the core's predicates one by one, in a copy, and shows which tests of the kit notice.
//!
//! `cargo run -p keyfence-tests --bin clauses [WORD]`: only those whose file or name contains the word.
//! Ends with 0 only when for each of them the test that its entry names failed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use keyfence_tests::clauses::{Clause, parse};

fn main() -> Result<()> {
    let word = std::env::args().nth(1).unwrap_or_default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let list = std::fs::read_to_string(root.join("tests/clauses.txt")).context("tests/clauses.txt")?;
    let clauses = parse(&list).map_err(|why| anyhow!(why))?;
    let copy = root.join("target/clauses");
    let made = Command::new(root.join("tests/small-workspace")).arg(&copy).status()?;
    if !made.success() {
        bail!("tests/small-workspace ended with {made}");
    }
    if let Some(failed) = failing(&copy)?.first() {
        bail!("{failed} fails before anything was deleted");
    }
    let mut unnoticed = 0;
    for clause in clauses
        .iter()
        .filter(|clause| clause.file.contains(&word) || clause.name.contains(&word))
    {
        let failed = without(clause, &root, &copy)?;
        let noticed = failed.contains(&clause.test);
        println!(
            "{} {}: {}\n         {}",
            if noticed { "noticed " } else { "UNNOTICED" },
            clause.file,
            clause.name,
            failed.join("\n         ")
        );
        unnoticed += usize::from(!noticed);
    }
    if unnoticed > 0 {
        bail!("{unnoticed} clauses can be deleted without the test that their entry names");
    }
    Ok(())
}

/// The tests that fail without this clause.
fn without(clause: &Clause, root: &Path, copy: &Path) -> Result<Vec<String>> {
    let file: PathBuf = copy.join(&clause.file);
    let text = std::fs::read_to_string(root.join(&clause.file)).with_context(|| clause.file.clone())?;
    let deleted = clause.deleted_from(&text).map_err(|why| anyhow!(why))?;
    std::fs::write(&file, deleted)?;
    let failed = failing(copy).with_context(|| format!("{}: {}", clause.file, clause.name));
    std::fs::write(&file, text)?;
    failed
}

/// The tests of the copy that fail. Without its clause a machine may go round for ever, which is a failure too: the tests
/// that failed until then are told.
fn failing(copy: &Path) -> Result<Vec<String>> {
    let output = Command::new("timeout")
        .args([
            "120",
            "cargo",
            "test",
            "--offline",
            "--no-fail-fast",
            "-p",
            "keyfence-core",
            "--lib",
        ])
        .args(["-p", "keyfence-tests", "--test", "kit_on_memory"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .env("RUSTFLAGS", "--cap-lints allow")
        .env("RUST_BACKTRACE", "0")
        .output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    if told.matches("\nrunning ").count() < 2 {
        bail!("the copy does not build:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(told
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .map(str::to_owned)
        .collect())
}
