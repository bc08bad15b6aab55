//! The model of the failing disk finds what is known of SQLite's settings: which of them keep what was acknowledged, and
//! which lose it. Without the losing ones, a ledger that passes would prove nothing.

use std::path::Path;
use std::sync::Arc;

use keyfence_tests::faults::disk::{Disk, Entry, Fault, Kind};
use keyfence_tests::faults::{images, vfs};
use rusqlite::Connection;

const TOKENS: u32 = 24;
const SEED: u64 = 0x6b66;
const SEEDED: u64 = 6;

fn settings(journal: &str, synchronous: &str) -> String {
    format!("PRAGMA journal_mode={journal}; PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint=8;")
}

/// Hands out tokens one by one, each in a transaction of its own, and marks each commit in the log.
fn hand_out(file: &Path, settings: &str, disk: &Disk) -> rusqlite::Result<()> {
    let connection = Connection::open(file)?;
    connection.execute_batch(settings)?;
    let mode = || connection.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0));
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
    if !settings.contains(&mode()?.to_uppercase()) {
        return Err(rusqlite::Error::InvalidQuery);
    }
    connection.execute_batch("CREATE TABLE IF NOT EXISTS token (token INTEGER PRIMARY KEY, filler BLOB)")?;
    for token in 1..=TOKENS {
        connection.execute("INSERT INTO token VALUES (?1, zeroblob(900))", [token])?;
        disk.mark(u64::from(token));
    }
    Ok(())
}

fn greatest(file: &Path) -> rusqlite::Result<u32> {
    let connection = Connection::open(file)?;
    let greatest = connection.query_row("SELECT coalesce(max(token), 0) FROM token", [], |row| row.get(0))?;
    Ok(greatest)
}

/// How many images lost an acknowledged token, and how many there were. `forget` drops entries from the log first.
fn lost(settings: &str, forget: impl Fn(&Entry) -> bool) -> (u64, u64) {
    let home = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::recording());
    let watch = vfs::watch(home.path(), Arc::clone(&disk)).unwrap();
    hand_out(&home.path().join("tokens.db"), settings, &disk).unwrap();
    drop(watch);
    let mut log = disk.take_log();
    log.retain(|entry| !forget(entry));
    let mut lost = 0;
    let count = images::for_each(&log, SEED, SEEDED, |image| -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        image.write_to(folder.path())?;
        // A file that cannot be read has lost everything.
        if greatest(&folder.path().join("tokens.db")).unwrap_or(0) < u32::try_from(image.mark).unwrap() {
            lost += 1;
        }
        Ok(())
    })
    .unwrap();
    (lost, count)
}

#[test]
fn wal_with_full_loses_nothing() {
    let (lost, images) = lost(&settings("WAL", "FULL"), |_| false);
    assert_eq!(lost, 0, "of {images}");
    assert!(images > 200, "{images}");
}

#[test]
fn wal_with_normal_loses_acknowledged_tokens() {
    let (lost, images) = lost(&settings("WAL", "NORMAL"), |_| false);
    assert!(lost > 0, "of {images}");
}

#[test]
fn a_rollback_journal_with_full_loses_acknowledged_tokens_and_with_extra_none() {
    let (lost_by_full, images) = lost(&settings("DELETE", "FULL"), |_| false);
    assert!(lost_by_full > 0, "of {images}");
    let (lost_by_extra, images) = lost(&settings("DELETE", "EXTRA"), |_| false);
    assert_eq!(lost_by_extra, 0, "of {images}");
}

#[test]
fn a_new_file_whose_folder_is_never_synced_loses_everything() {
    let (lost, images) = lost(&settings("WAL", "FULL"), |entry| *entry == Entry::SyncFolder);
    assert!(lost > 0, "of {images}");
}

#[test]
fn each_fault_fails_the_call_it_names() {
    let faults = [
        Fault::Once(Kind::Open, 2),
        Fault::Once(Kind::Read, 1),
        Fault::Once(Kind::Write, 8),
        Fault::Once(Kind::Sync, 1),
        Fault::Once(Kind::Map, 1),
        Fault::From(Kind::Write, 9),
        Fault::HalfWritten(8),
        Fault::SyncedButFailed(2),
        Fault::Full(9),
    ];
    for fault in faults {
        let home = tempfile::tempdir().unwrap();
        let disk = Arc::new(Disk::failing(fault));
        let watch = vfs::watch(home.path(), Arc::clone(&disk)).unwrap();
        let result = hand_out(&home.path().join("tokens.db"), &settings("WAL", "FULL"), &disk);
        drop(watch);
        assert!(result.is_err(), "{fault:?}: {} of the calls failed", disk.hits());
        assert!(disk.hits() > 0, "{fault:?}");
    }
}

#[test]
fn sqlite_says_wal_after_a_switch_that_failed_until_it_reads_the_file_again() {
    let home = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::failing(Fault::Once(Kind::Sync, 1)));
    let _watch = vfs::watch(home.path(), Arc::clone(&disk)).unwrap();
    let connection = Connection::open(home.path().join("tokens.db")).unwrap();
    let ask = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(ask("PRAGMA journal_mode=WAL"), "wal");
    assert_eq!(disk.hits(), 1);
    assert_eq!(ask("PRAGMA journal_mode"), "wal");
    assert_eq!(ask("SELECT count(*) || '' FROM sqlite_schema"), "0");
    assert_eq!(ask("PRAGMA journal_mode"), "delete");
}

#[test]
fn files_outside_the_watched_folder_are_left_alone() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = Arc::new(Disk::failing(Fault::From(Kind::Write, 1)));
    let _watch = vfs::watch(home.path(), Arc::clone(&disk)).unwrap();
    let file = elsewhere.path().join("tokens.db");
    hand_out(&file, &settings("WAL", "FULL"), &Disk::sound()).unwrap();
    assert_eq!(greatest(&file).unwrap(), TOKENS);
    assert_eq!(disk.hits(), 0);
    assert!(hand_out(&home.path().join("tokens.db"), &settings("WAL", "FULL"), &disk).is_err());
}
