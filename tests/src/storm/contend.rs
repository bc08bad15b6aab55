//! Processes that contend for a ledger's lock: one that holds it for ever, one that does so and does not write, and one
//! that mints.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use keyfence::{FencedError, Ledger, Options};
use keyfence_core::Name;

/// What [`hold`] and [`queue`] print when they hold the lock.
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
        say_holding().map_err(|error| error.to_string())?;
        sleep_on()
    });
    match held {
        Ok(_) => Ok(()),
        Err(FencedError::Ledger(error)) => Err(error.into()),
        Err(FencedError::Work(what)) => Err(anyhow::anyhow!(what)),
    }
}

/// Takes the lock that writers queue on and not SQLite's, prints [`HOLDING`] and keeps it: a process whose turn has come, and
/// that is stopped before it writes.
///
/// # Errors
/// When the lock's file cannot be opened or locked.
pub fn queue(path: &Path) -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let mut side = path.as_os_str().to_owned();
    side.push("-lock");
    let side = File::options().read(true).write(true).open(side)?;
    rustix::fs::flock(&side, rustix::fs::FlockOperation::LockExclusive)?;
    say_holding()?;
    sleep_on()
}

fn say_holding() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{HOLDING}")?;
    out.flush()
}

fn sleep_on() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(60));
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
