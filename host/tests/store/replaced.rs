//! A ledger's file that goes away, or is replaced, under a living handle.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Bench, claim_next, grant_of, message, name};
use keyfence::core::attempt::Done;
use keyfence::{Error, FencedError, Ledger, Terminal};

/// A ledger with a claimed message, and its handle.
fn at_work(bench: &Bench) -> (Ledger, keyfence::Delivery) {
    let ledger = bench.open();
    assert_eq!(
        ledger.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    let delivery = claim_next(&ledger, "worker", 1);
    (ledger, delivery)
}

/// Moves the ledger's files away, under the names that they will be found by.
fn move_away(bench: &Bench, to: &Path) {
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let from = bench.folder.path().join(format!("keyfence.db{suffix}"));
        if from.exists() {
            fs::rename(&from, to.join(format!("keyfence.db{suffix}"))).unwrap();
        }
    }
}

/// Everything in the files that SQLite writes.
fn bytes(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    ["keyfence.db", "keyfence.db-wal"]
        .into_iter()
        .map(|file| folder.join(file))
        .map(|path| (path.clone(), fs::read(&path).unwrap_or_default()))
        .collect()
}

/// Every kind of call fails with this name.
fn assert_all_fail(ledger: &Ledger, delivery: &keyfence::Delivery, error_name: &str) {
    let grant = grant_of(delivery);
    let failed = |error: Error| {
        assert_eq!(error.name(), error_name, "{error}");
        assert!(!error.next().is_empty());
    };
    for _ in 0..2 {
        failed(ledger.call().mailbox_complete(grant, b"").unwrap_err());
        failed(ledger.call().mint(&name("purpose")).unwrap_err());
        failed(ledger.counter().unwrap_err());
        failed(ledger.status().unwrap_err());
        let fenced = ledger.fenced(Terminal::Complete { grant, result: b"" }, |_| -> Result<(), String> {
            panic!("the work must not run")
        });
        match fenced.unwrap_err() {
            FencedError::Ledger(error) => failed(error),
            FencedError::Work(what) => panic!("{what}"),
        }
    }
}

#[test]
fn a_ledger_that_was_deleted_is_missing_and_nothing_is_written_to_what_is_left_of_it() {
    let bench = Bench::new();
    let (ledger, delivery) = at_work(&bench);
    let own = bench.raw();
    own.pragma_update(None, "synchronous", "FULL").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    move_away(&bench, elsewhere.path());
    let before = bytes(elsewhere.path());
    assert_all_fail(&ledger, &delivery, "ledger_missing");
    // Nor in a transaction of the caller's own.
    own.execute_batch("BEGIN IMMEDIATE").unwrap();
    let terminal = Terminal::Complete {
        grant: grant_of(&delivery),
        result: b"",
    };
    assert_eq!(ledger.terminal_in(&own, terminal).unwrap_err().name(), "ledger_missing");
    own.execute_batch("COMMIT").unwrap();
    assert_eq!(bytes(elsewhere.path()), before);
    assert_eq!(fs::read_dir(bench.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_ledger_in_whose_place_another_one_stands_is_replaced_and_neither_is_written() {
    let bench = Bench::new();
    let (ledger, delivery) = at_work(&bench);
    let elsewhere = tempfile::tempdir().unwrap();
    move_away(&bench, elsewhere.path());
    let other = bench.open();
    assert_eq!(
        other.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    let (old, new) = (bytes(elsewhere.path()), bytes(bench.folder.path()));
    assert_all_fail(&ledger, &delivery, "ledger_replaced");
    drop(ledger);
    assert_eq!(bytes(bench.folder.path()), new, "its log is its own");
    assert_eq!(bytes(elsewhere.path()), old);
    assert_eq!(other.counter().unwrap(), None);
}

#[test]
fn an_older_copy_in_the_place_of_a_ledger_is_not_taken_for_it() {
    let bench = Bench::new();
    let ledger = bench.open();
    let copy = bench.folder.path().join("copy");
    keyfence::backup(&ledger, &copy, &mut |_| ()).unwrap();
    assert_eq!(
        ledger.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    let delivery = claim_next(&ledger, "worker", 1);
    fs::rename(&copy, bench.path()).unwrap();
    assert_all_fail(&ledger, &delivery, "ledger_replaced");
}

#[test]
fn a_ledger_that_comes_back_is_itself_again() {
    let bench = Bench::new();
    let (ledger, delivery) = at_work(&bench);
    let aside = bench.folder.path().join("aside");
    fs::rename(bench.path(), &aside).unwrap();
    assert_all_fail(&ledger, &delivery, "ledger_missing");
    fs::rename(&aside, bench.path()).unwrap();
    assert_eq!(
        ledger.call().mailbox_complete(grant_of(&delivery), b"").unwrap(),
        Ok(Done::Now)
    );
}
