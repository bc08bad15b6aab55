//! Opening: what is refused, what is created, and who waits.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{Bench, claim_next, grant_of, message, name};
use keyfence::core::attempt::Done;
use keyfence::{Error, Ledger, Options};

fn refused(bench: &Bench, options: Options) -> Error {
    Ledger::open(&bench.path(), options).err().expect("it was opened")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_ledger_is_created_for_its_owner_only() {
    let bench = Bench::new();
    let path = bench.folder.path().join("new/keyfence.db");
    let ledger = Ledger::open(&path, bench.options()).unwrap();
    assert_eq!(ledger.counter().unwrap(), None);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(&path.with_file_name("keyfence.db-lock")), 0o600);
}

#[test]
fn a_missing_ledger_is_not_created_unasked() {
    let bench = Bench::new();
    for (create, read_only) in [(false, false), (true, true)] {
        let options = Options {
            create,
            read_only,
            ..bench.options()
        };
        assert_eq!(refused(&bench, options).name(), "ledger_missing");
        assert_eq!(fs::read_dir(bench.folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn what_is_no_ledger_is_refused_and_left_alone() {
    let bench = Bench::new();
    let database = {
        let other = Bench::new();
        rusqlite::Connection::open(other.path())
            .unwrap()
            .execute_batch("PRAGMA application_id = 77; CREATE TABLE t (a)")
            .unwrap();
        fs::read(other.path()).unwrap()
    };
    for content in [
        b"dear diary, not a database, and longer than a header".repeat(40),
        database,
    ] {
        fs::write(bench.path(), &content).unwrap();
        fs::set_permissions(bench.path(), fs::Permissions::from_mode(0o600)).unwrap();
        let error = refused(&bench, bench.options());
        assert_eq!(error.name(), "not_a_ledger");
        assert!(error.to_string().contains("keyfence.db"), "{error}");
        assert_eq!(fs::read(bench.path()).unwrap(), content);
    }
}

#[test]
fn a_truncated_ledger_is_damaged() {
    let bench = Bench::new();
    let ledger = bench.open();
    assert_eq!(
        ledger.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    drop(ledger);
    let bytes = fs::read(bench.path()).unwrap();
    fs::write(bench.path(), &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(refused(&bench, bench.options()).name(), "damaged");
    assert_eq!(fs::read(bench.path()).unwrap().len(), bytes.len() / 2);
}

#[test]
fn a_newer_schema_is_refused() {
    let bench = Bench::new();
    drop(bench.open());
    bench.raw().pragma_update(None, "user_version", 9).unwrap();
    let error = refused(&bench, bench.options());
    assert_eq!(error.name(), "schema_newer");
    assert!(error.to_string().contains("newer"));
}

#[test]
fn a_newer_schema_that_came_while_the_ledger_was_open_is_refused_by_the_next_call() {
    let bench = Bench::new();
    let ledger = bench.open();
    bench
        .raw()
        .execute_batch("UPDATE keyfence_ledger SET schema = 2")
        .unwrap();
    // The row was changed past keyfence, and its check value says so first.
    assert_eq!(
        ledger
            .call()
            .mailbox_send(&message("m-1", "worker"))
            .unwrap_err()
            .name(),
        "damaged"
    );
}

#[test]
fn a_read_only_handle_reads_and_never_writes() {
    let bench = Bench::new();
    let writer = bench.open();
    assert_eq!(
        writer.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    let options = Options {
        read_only: true,
        ..bench.options()
    };
    let reader = Ledger::open(&bench.path(), options).unwrap();
    assert_eq!(reader.status().unwrap().messages_new, 1);
    assert_eq!(
        reader
            .call()
            .mailbox_send(&message("m-2", "worker"))
            .unwrap_err()
            .name(),
        "read_only"
    );
    assert!(writer.message(&name("m-2")).unwrap().is_none());
}

#[test]
fn an_unsafe_place_is_refused_unless_it_is_allowed() {
    let bench = Bench::new();
    fs::set_permissions(bench.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(refused(&bench, bench.options()).name(), "unsafe_location");
    assert!(!bench.path().exists());
    let options = Options {
        allow_unsafe_location: true,
        ..bench.options()
    };
    assert!(Ledger::open(&bench.path(), options).is_ok());
}

#[test]
fn an_embedded_ledger_leaves_the_callers_file_his_own() {
    let bench = Bench::new();
    bench
        .raw()
        .execute_batch("PRAGMA application_id = 77; PRAGMA user_version = 5; CREATE TABLE stock (item TEXT)")
        .unwrap();
    fs::set_permissions(bench.path(), fs::Permissions::from_mode(0o600)).unwrap();
    let ledger = Ledger::embedded(&bench.path(), bench.options()).unwrap();
    assert_eq!(
        ledger.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    let id = ledger.id();
    drop(ledger);
    let own = |pragma: &str| -> i64 { bench.raw().pragma_query_value(None, pragma, |row| row.get(0)).unwrap() };
    assert_eq!((own("application_id"), own("user_version")), (77, 5));
    assert_eq!(refused(&bench, bench.options()).name(), "not_a_ledger");
    assert_eq!(Ledger::embedded(&bench.path(), bench.options()).unwrap().id(), id);
}

#[test]
fn of_many_that_open_a_new_ledger_at_once_one_creates_it_and_all_share_it() {
    for _ in 0..8 {
        let bench = Bench::new();
        let mut tokens: Vec<u64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..6)
                .map(|_| {
                    scope.spawn(|| {
                        let options = Options {
                            timeout: std::time::Duration::from_secs(20),
                            ..bench.options()
                        };
                        let ledger = Ledger::open(&bench.path(), options).unwrap();
                        ledger.call().mint(&name("purpose")).unwrap().unwrap().get()
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        tokens.sort_unstable();
        assert_eq!(tokens, [1, 2, 3, 4, 5, 6]);
    }
}

#[test]
fn opening_waits_for_no_writer_when_there_is_nothing_to_write() {
    let bench = Bench::new();
    drop(bench.open());
    let writer = bench.raw();
    writer.execute_batch("BEGIN IMMEDIATE; CREATE TABLE never (a)").unwrap();
    let side = fs::File::options()
        .write(true)
        .open(bench.folder.path().join("keyfence.db-lock"))
        .unwrap();
    rustix::fs::flock(&side, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let begun = std::time::Instant::now();
    let ledger = bench.open();
    assert_eq!(ledger.counter().unwrap(), None);
    assert!(begun.elapsed() < bench.options().timeout, "{:?}", begun.elapsed());
    drop(writer);
    assert!(ledger.call().mint(&name("purpose")).unwrap().is_ok());
}

#[test]
fn a_ledger_that_is_not_in_wal_is_put_there_when_it_is_opened() {
    let bench = Bench::new();
    let id = bench.open().id();
    let mode = |wanted: &str| -> String {
        bench
            .raw()
            .pragma_update_and_check(None, "journal_mode", wanted, |row| row.get(0))
            .unwrap()
    };
    assert_eq!(mode("DELETE"), "delete");
    let ledger = bench.open();
    assert_eq!(ledger.id(), id);
    assert!(ledger.call().mint(&name("purpose")).unwrap().is_ok());
    drop(ledger);
    let found: String = bench
        .raw()
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .unwrap();
    assert_eq!(found, "wal");
}

#[test]
fn a_reopened_ledger_goes_on_with_greater_tokens() {
    let bench = Bench::new();
    let first = {
        let ledger = bench.open();
        assert_eq!(
            ledger.call().mailbox_send(&message("m-1", "worker")).unwrap(),
            Ok(Done::Now)
        );
        claim_next(&ledger, "worker", 1)
    };
    bench.clock.advance_ms(15 * 60_000);
    let second = claim_next(&bench.open(), "worker", 1);
    assert!(grant_of(&second).token() > grant_of(&first).token());
}
