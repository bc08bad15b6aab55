//! Ledgers that are broken, out of reach or in use: a named error, what to do, and nothing written.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{A, B, Shop, skip};

/// A ledger that has been used, checkpointed into its file.
fn used() -> Shop {
    let shop = Shop::new();
    shop.ask(&format!("--now 1000 actor acquire crew --process {A}"))
        .granted();
    shop.ask("--now 1000 mailbox send --to crew --id m1 vanilla").done();
    shop.ask("--now 1000 mailbox claim m1 --as crew").granted();
    plain(&shop).execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    shop
}

/// The file as plain SQLite, past everything that keyfence checks.
fn plain(shop: &Shop) -> rusqlite::Connection {
    rusqlite::Connection::open(shop.ledger()).unwrap()
}

/// Every kind of call is answered with the same named error, and the file stays as it is.
#[track_caller]
fn answered_with(shop: &Shop, error: &str) {
    let before = std::fs::read(shop.ledger()).unwrap();
    for call in [
        format!("--now 2000 actor acquire other --process {A}"),
        "--now 2000 mailbox complete m1 --as crew --token 2".to_owned(),
        "--now 2000 mailbox show m1".to_owned(),
        "--now 2000 status".to_owned(),
    ] {
        shop.ask(&call).error(error);
    }
    assert_eq!(std::fs::read(shop.ledger()).unwrap(), before, "nothing was written");
}

#[test]
fn a_file_that_is_no_database_is_not_a_ledger() {
    let shop = Shop::new();
    std::fs::write(shop.ledger(), "Restock vanilla\n".repeat(1000)).unwrap();
    answered_with(&shop, "not_a_ledger");
    shop.ask("init").error("not_a_ledger");
    assert_eq!(shop.ask("doctor").status, 1);
}

#[test]
fn a_database_of_another_program_is_not_a_ledger() {
    let shop = Shop::new();
    plain(&shop)
        .execute_batch("CREATE TABLE notes (text); PRAGMA application_id = 1;")
        .unwrap();
    answered_with(&shop, "not_a_ledger");
    let shop = used();
    plain(&shop).execute_batch("PRAGMA application_id = 7;").unwrap();
    answered_with(&shop, "not_a_ledger");
}

#[test]
fn a_ledger_of_a_newer_keyfence_is_left_alone() {
    let shop = used();
    plain(&shop).execute_batch("PRAGMA user_version = 9999;").unwrap();
    answered_with(&shop, "schema_newer");
    let error = shop.ask("init").error("schema_newer");
    assert!(error["reason"].as_str().unwrap().contains("newer"));
}

#[test]
fn a_truncated_ledger_is_damaged() {
    let shop = used();
    let length = std::fs::metadata(shop.ledger()).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(shop.ledger()).unwrap();
    file.set_len(length / 2).unwrap();
    drop(file);
    let reply = shop.ask(&format!("--now 2000 actor acquire other --process {A}"));
    reply.error("damaged");
    let doctor = shop.ask("doctor");
    assert_eq!((doctor.status, doctor.json["error"].as_str()), (1, Some("damaged")));
}

#[test]
fn a_malformed_expiry_is_damage_and_never_a_lapse() {
    let shop = used();
    let connection = plain(&shop);
    connection
        .execute_batch("PRAGMA ignore_check_constraints = on; PRAGMA writable_schema = off;")
        .unwrap();
    let tables: Vec<String> = connection
        .prepare("SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = 'expires_at_ms'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(!tables.is_empty());
    for table in tables.iter().filter(|table| !table.contains("event")) {
        connection
            .execute_batch(&format!(
                "UPDATE {table} SET expires_at_ms = -1 WHERE expires_at_ms IS NOT NULL"
            ))
            .unwrap();
    }
    drop(connection);
    shop.ask(&format!("--now 900000000 actor acquire crew --process {B}"))
        .error("damaged");
    shop.ask(&format!("--now 900000000 mailbox claim m1 --as crew --process {B}"))
        .error("damaged");
    shop.ask("actor show crew").error("damaged");
    assert_eq!(shop.ask("doctor").status, 1);
}

#[test]
fn a_ledger_on_a_full_disk_says_so_and_keeps_what_it_has() {
    let shop = used();
    // The file-size limit of the process stands in for the disk: the write fails in the same place, with EFBIG.
    let limit = std::fs::metadata(shop.ledger()).unwrap().len() / 1024;
    let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$@\"");
    let body = "x".repeat(1 << 20);
    let output = Command::new("sh")
        .args([
            "-c",
            &script,
            "sh",
            env!("CARGO_BIN_EXE_keyfence"),
            "--json",
            "--ledger",
        ])
        .arg(shop.ledger())
        .args(["mailbox", "send", "--to", "crew", "--id", "m2", &body[..100_000]])
        .output()
        .unwrap();
    let reply = crate::support::reply(&output);
    assert_eq!(reply.status, 1, "{}", reply.json);
    assert_eq!(shop.ask("mailbox show m1").json["state"], "CLAIMED");
    assert_eq!(shop.ask("mailbox show m2").json["known"], false);
}

/// The size of the disk that is filled.
const SMALL_BYTES: u64 = 2 << 20;

/// Fills a small disk to its last page. What a removed file held comes back only when nobody maps it any more, and a test
/// beside this one that starts a program has for a moment a copy of this process, mappings included.
fn fill(mount: &Path) {
    let held = || -> u64 {
        let files = std::fs::read_dir(mount).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
    };
    let mut filler = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(mount.join("filler"))
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while held() < SMALL_BYTES {
        assert!(Instant::now() < deadline, "{} of {SMALL_BYTES} bytes are held", held());
        if filler.write_all(&[0; 4096]).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_small_tmpfs_is_a_full_disk() {
    let shop = Shop::new();
    let mount = shop.path("disk");
    std::fs::create_dir(&mount).unwrap();
    std::fs::set_permissions(&mount, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={SMALL_BYTES},mode=0700"), "none"])
        .arg(&mount)
        .output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        // The test above covers the path without privileges.
        return skip(
            "a small tmpfs as a full disk",
            &format!("tmpfs cannot be mounted: {mounted:?}"),
        );
    }
    let ask = |words: &str| shop.ask(&format!("--ledger {} {words}", mount.join("keyfence.db").display()));
    ask("mailbox send --to crew --id m1 x").done();
    // Another reader keeps the shared-memory index in place: what does not fit any more is the log.
    let reader = rusqlite::Connection::open(mount.join("keyfence.db")).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;")
        .unwrap();
    fill(&mount);
    let mut refused = None;
    for id in 0..200 {
        let reply = ask(&format!("mailbox send --to crew --id f{id} {}", "y".repeat(20_000)));
        if reply.status != 0 {
            refused = Some(reply);
            break;
        }
    }
    let kept = ask("mailbox show m1").json["state"].clone();
    // The last one to close copies the log into the file, for which there has to be room.
    std::fs::remove_file(mount.join("filler")).unwrap();
    drop(reader);
    // Nobody has it open, and there is no room at all: not even SQLite's shared index can be made.
    fill(&mount);
    let opened = [ask("status"), ask("mailbox send --to crew late"), ask("doctor")];
    let unmounted = Command::new("umount").arg(&mount).status().unwrap();
    assert!(unmounted.success());
    assert_eq!(opened[2].json["worst"], "error", "no damage was seen");
    for reply in opened {
        reply.error("disk_full");
    }
    // An error, or unknown where the commit itself failed: never done, and the cause is named.
    let reply = refused.expect("the disk never filled up");
    assert_eq!(
        (reply.status, reply.json["error"].as_str()),
        (1, Some("disk_full")),
        "{}",
        reply.json
    );
    assert!(["error", "unknown"].contains(&reply.json["outcome"].as_str().unwrap()));
    assert_eq!(kept, "NEW");
}

#[test]
fn a_place_that_others_may_write_is_refused_unless_it_is_allowed() {
    let shop = used();
    std::fs::set_permissions(shop.ledger(), std::fs::Permissions::from_mode(0o666)).unwrap();
    answered_with(&shop, "unsafe_location");
    assert_eq!(shop.ask("--allow-unsafe-location actor show crew").status, 0);
    std::fs::set_permissions(shop.ledger(), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(shop.ledger(), shop.path("link.db")).unwrap();
    shop.ask("--ledger link.db status").error("unsafe_location");
}

#[test]
fn an_immutable_ledger_is_read_only() {
    let shop = used();
    let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(shop.ledger()).output();
    let marked = chattr("+i");
    if !marked.as_ref().is_ok_and(|output| output.status.success()) {
        return skip("an immutable ledger", &format!("chattr +i does not work: {marked:?}"));
    }
    let reply = shop.ask(&format!("--now 2000 actor acquire other --process {A}"));
    let read = shop.ask("--now 2000 actor show crew");
    assert!(chattr("-i").unwrap().status.success());
    let error = reply.error("read_only");
    assert!(error["reason"].as_str().unwrap().contains("immutable"), "{error}");
    assert_eq!(read.json["state"], "HELD");
}

#[test]
fn a_busy_ledger_is_busy_at_the_deadline_and_names_the_lock_holder() {
    let shop = used();
    let lock = plain(&shop);
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let since = Instant::now();
    let reply = shop.ask(&format!("--timeout 300ms --now 2000 actor acquire other --process {A}"));
    let waited = since.elapsed();
    let error = reply.error("busy");
    assert!(
        waited >= Duration::from_millis(250) && waited < Duration::from_secs(5),
        "{waited:?}"
    );
    assert!(error["next"].as_str().unwrap().contains("ask again"));
    // Readers go on meanwhile.
    assert_eq!(shop.ask("--now 2000 actor show crew").json["state"], "HELD");
    lock.execute_batch("ROLLBACK").unwrap();
    shop.ask(&format!("--now 2000 actor acquire other --process {A}"))
        .granted();
}
