//! Backups and restores: what they keep, what they refuse, and what is told to who follows the history.

use std::fs;

use crate::support::{Running, Shop, change, files, reason, reply};
use serde_json::Value;

#[test]
fn a_backup_is_named_as_the_backup_and_never_written_over() {
    let shop = Shop::open();
    shop.ask("backup monday.db").done();
    let before = fs::read(shop.path("monday.db")).unwrap();
    let error = shop.ask("backup monday.db").error("exists");
    assert!(reason(&error).contains("monday.db exists already"), "{error}");
    assert!(fs::read(shop.path("monday.db")).unwrap() == before);
    let usage = shop.ask("backup keyfence.db-wal").wrong_usage();
    assert!(reason(&usage).contains("own files"), "{usage}");
    let error = shop.ask("backup nowhere/monday.db").error("io");
    assert!(reason(&error).starts_with("the backup nowhere/monday.db"), "{error}");
    let error = shop.ask("restore nothing.db").error("ledger_missing");
    assert!(reason(&error).starts_with("the backup nothing.db"), "{error}");
}

#[test]
fn a_restore_says_what_it_drops_and_refuses_what_it_must_not_do() {
    let shop = Shop::new();
    shop.ask("--now 1000 mailbox send --to crew --id m1 x").done();
    shop.ask("backup monday.db").done();
    shop.ask("--now 1000 mailbox send --to crew --id m2 x").done();
    shop.ask("--now 1000 mailbox claim m1 --as crew").granted();
    let before = fs::read(shop.ledger()).unwrap();

    let usage = shop.ask("restore keyfence.db").wrong_usage();
    assert!(reason(&usage).contains("the ledger itself"), "{usage}");
    let refused = shop
        .ask("restore monday.db --above 9007199254740991")
        .refused("token_exhausted");
    assert!(reason(&refused).contains("tokens end at 9007199254740991"), "{refused}");
    assert!(fs::read(shop.ledger()).unwrap() == before, "nothing was written");

    let restored = shop.ask("restore monday.db").done();
    assert_eq!(
        (&restored["dropped_rows"], &restored["dropped_events"]),
        (&1.into(), &2.into()),
        "{restored}"
    );
    assert!(restored["floor"].as_u64().unwrap() > 1_700_000_000 << 20);

    // Elsewhere it is the same ledger, and that is said.
    let elsewhere = shop.ask("--ledger elsewhere.db restore monday.db");
    assert!(
        elsewhere.stderr.contains("do not go on with another copy"),
        "{}",
        elsewhere.stderr
    );
    assert_eq!(elsewhere.done()["id"], restored["id"]);
}

#[test]
fn a_copy_of_another_ledger_is_not_restored_over_this_one() {
    let shop = Shop::open();
    shop.ask("--ledger other.db init").done();
    shop.ask("--ledger other.db backup other.bak").done();
    let before = fs::read(shop.ledger()).unwrap();
    let error = shop.ask("restore other.bak").error("other_ledger");
    assert!(
        reason(&error).starts_with("other.bak is a copy of another ledger, led_"),
        "{error}"
    );
    assert!(fs::read(shop.ledger()).unwrap() == before, "nothing was written");
}

#[test]
fn a_restore_that_the_system_fails_loses_nothing_that_was_finished() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 vanilla").done();
    shop.ask("mailbox claim m1 --as crew").granted();
    shop.ask("backup copy.db").done();
    shop.ask("mailbox complete m1 --as crew --token 1 --result sold").done();
    let binary = env!("CARGO_BIN_EXE_keyfence");
    let (mut succeeded, mut failed) = (0, 0);
    // With few file descriptors it fails at every place where it opens a file.
    for descriptors in 4..24 {
        let mut command = std::process::Command::new("sh");
        let script = format!("ulimit -n {descriptors}; exec {binary} --json restore copy.db");
        let status = command
            .args(["-c", &script])
            .current_dir(shop.path("."))
            .output()
            .unwrap()
            .status;
        if status.success() {
            succeeded += 1;
        } else {
            failed += 1;
        }
        let shown = shop.ask("mailbox show m1").json;
        assert_eq!(shown["state"], "DONE", "with {descriptors} descriptors: {shown}");
    }
    assert!(succeeded > 0 && failed > 0, "{succeeded} succeeded, {failed} failed");
}

#[test]
fn a_backup_replaces_what_an_interrupted_one_left() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 vanilla").done();
    fs::write(shop.path("copy.db-partial"), "half a page").unwrap();
    shop.ask("backup copy.db").done();
    assert_eq!(
        files(&shop.path("."))
            .iter()
            .filter(|name| name.starts_with("copy"))
            .count(),
        1
    );
    assert_eq!(shop.ask("--ledger copy.db doctor").status, 0);
    shop.ask("backup copy.db").error("exists");
    assert_eq!(
        files(&shop.path("."))
            .iter()
            .filter(|name| name.starts_with("copy"))
            .count(),
        1
    );
}

#[test]
fn who_follows_the_history_is_told_when_a_restore_rewinds_it() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 vanilla").done();
    shop.ask("backup copy.db").done();
    for id in 2..8 {
        shop.ask(&format!("mailbox send --to crew --id m{id} vanilla")).done();
    }
    let mut command = shop.command();
    command.args(["--json", "events", "--follow"]);
    let follower = Running::of(
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped()),
    );
    // A followed history that was read up to here.
    std::thread::sleep(std::time::Duration::from_millis(700));
    shop.ask("restore copy.db").done();
    for id in 2..12 {
        shop.ask(&format!("mailbox send --to crew --id n{id} vanilla")).done();
    }
    let output = follower.end();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["error"], "history_rewound", "{text}");
    let end = shop.events();
    assert_eq!(shop.ask(&format!("events --since {end}")).status, 0);
    shop.ask(&format!("events --since {}", end + 1))
        .error("history_rewound");
}

#[test]
fn a_backup_of_damaged_rows_is_refused_and_leaves_nothing() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 vanilla").done();
    change(&shop, "UPDATE keyfence_message SET row_check = 5");
    let error = shop.ask("backup copy.db").error("damaged");
    assert!(reason(&error).contains("1 row"), "{error}");
    assert!(error["next"].as_str().unwrap().contains("doctor"), "{error}");
    assert!(files(&shop.path(".")).iter().all(|name| !name.starts_with("copy")));
}

#[test]
fn a_restore_waits_for_whoever_has_the_database_locked() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 vanilla").done();
    shop.ask("backup copy.db").done();
    let raw = rusqlite::Connection::open(shop.ledger()).unwrap();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let since = std::time::Instant::now();
    shop.ask("--timeout 700ms restore copy.db").error("busy");
    assert!(
        since.elapsed() >= std::time::Duration::from_millis(700),
        "{:?}",
        since.elapsed()
    );
    let mut command = shop.command();
    command.args(["--json", "--timeout", "60s", "restore", "copy.db"]);
    let restore = Running::of(
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped()),
    );
    std::thread::sleep(std::time::Duration::from_millis(300));
    raw.execute_batch("ROLLBACK").unwrap();
    reply(&restore.end()).done();
}
