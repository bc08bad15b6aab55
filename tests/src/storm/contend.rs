//! Processes that contend for a ledger's lock: one that holds it for ever, and one that mints.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use keyfence::{FencedError, Ledger, Options};
use keyfence_core::Name;

/// What [`hold`] prints when it holds the lock.
pub const HOLDING: &str = "holding";

/// Begins a write transaction, mints in it, prints [`HOLDING`] and never ends it.
///
/// # Errors
/// When the ledger cannot be opened or the transaction not begun.
pub fn hold(path: &Path) -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let ledger = Ledger::open(path, Options::default())?;
    let held = ledger.transaction(|tx| -> Result<(), String> {
        let created = tx.sql(|connection| connection.execute_batch("CREATE TABLE never (committed INTEGER) STRICT"));
        created.map_err(|error| error.to_string())?;
        let mut out = std::io::stdout();
        let told = writeln!(out, "{HOLDING}").and_then(|()| out.flush());
        told.map_err(|error| error.to_string())?;
        loop {
            std::thread::sleep(Duration::from_secs(60));
        }
    });
    match held {
        Ok(_) => Ok(()),
        Err(FencedError::Ledger(error)) => Err(error.into()),
        Err(FencedError::Work(what)) => Err(anyhow::anyhow!(what)),
    }
}

/// Mints so many tokens, one by one, and prints each as soon as it was told.
///
/// # Errors
/// When the ledger fails or refuses.
pub fn mint(path: &Path, times: u32) -> anyhow::Result<()> {
    let ledger = Ledger::open(path, Options::default())?;
    let purpose = Name::new("contention")?;
    for _ in 0..times {
        let minted = ledger.call().mint(&purpose)?;
        println!("{}", minted.ok().context("a mint is never refused here")?);
    }
    Ok(())
}
