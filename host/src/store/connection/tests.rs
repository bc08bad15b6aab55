//! Schemas that move forward, and connections that are what they must be.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::hooks::{AuthAction, Authorization};

use super::*;
use crate::ledger::{Ledger, Options};
use crate::store::schema::SCHEMA;

/// The schemas of a later keyfence: the second one fails where it was applied before.
const NEWER: &[&str] = &[MIGRATIONS[0], "CREATE TABLE keyfence_later (one INTEGER) STRICT"];
const BROKEN: &[&str] = &[
    MIGRATIONS[0],
    "CREATE TABLE keyfence_later (one INTEGER) STRICT; INSERT INTO nowhere VALUES (1)",
];

fn options() -> Options {
    Options {
        timeout: Duration::from_secs(20),
        ..Options::default()
    }
}

fn source(path: &Path, migrations: &'static [&'static str]) -> Source {
    Source {
        migrations,
        ..Source::new(path, Owner::Keyfence, false)
    }
}

#[test]
fn of_many_that_open_an_old_ledger_at_once_one_migrates() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyfence.db");
    let id = Ledger::open(&path, options()).unwrap().id();
    let opened = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let ledger = Ledger::open_source(source(&path, NEWER), options()).unwrap();
                assert_eq!(ledger.id(), id);
                opened.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(opened.into_inner(), 6);
    let older = Ledger::open(&path, options());
    assert!(matches!(
        older,
        Err(Error::SchemaNewer {
            found: 2,
            known: SCHEMA
        })
    ));
}

#[test]
fn a_file_that_becomes_a_ledger_while_it_is_looked_at_is_no_other_applications() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyfence.db");
    location::create_file(&path).unwrap();
    let mut looking = Connection::open(&path).unwrap();
    // As the file is between the first two steps of a ledger's making.
    switch_to_wal(&looking).unwrap();
    let (maker, made) = (path.clone(), Arc::new(AtomicU32::new(0)));
    let makers = made.clone();
    // Between two of its statements, somebody else makes the ledger.
    let interfere = move |context: AuthContext<'_>| {
        if context.action == AuthAction::Select && makers.fetch_add(1, Ordering::Relaxed) == 0 {
            let soon = Options {
                timeout: Duration::from_millis(100),
                ..Options::default()
            };
            drop(Ledger::open(&maker, soon).unwrap());
        }
        Authorization::Allow
    };
    looking.authorizer(Some(interfere)).unwrap();
    let source = source(&path, MIGRATIONS);
    assert_eq!(source.identify(&looking).unwrap(), Identity::Empty);
    assert_ne!(made.load(Ordering::Relaxed), 0, "it was made meanwhile");
    assert_eq!(source.identify(&looking).unwrap(), Identity::Ledger { schema: SCHEMA });
}

#[test]
fn a_migration_that_fails_leaves_the_ledger_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyfence.db");
    drop(Ledger::open(&path, options()).unwrap());
    assert!(Ledger::open_source(source(&path, BROKEN), options()).is_err());
    assert!(
        Ledger::open(&path, options()).is_ok(),
        "it is of the first schema still"
    );
}

#[test]
fn an_old_ledger_is_not_migrated_by_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyfence.db");
    drop(Ledger::open(&path, options()).unwrap());
    let reader = Source {
        read_only: true,
        ..source(&path, NEWER)
    };
    assert!(matches!(
        Ledger::open_source(reader, options()),
        Err(Error::ReadOnly { .. })
    ));
}

#[test]
fn an_sqlite_that_damages_shared_logs_is_refused() {
    assert!(matches!(
        check_sqlite_version(3_051_002),
        Err(Error::SqliteTooOld { .. })
    ));
    assert!(check_sqlite_version(3_051_003).is_ok());
    assert!(check_sqlite_version(rusqlite::version_number()).is_ok());
}

#[test]
fn every_connection_is_durable_and_defensive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyfence.db");
    let source = Source::new(&path, Owner::Keyfence, false);
    location::create_file(&path).unwrap();
    let mut connection = source.connect(&Hooks::default()).unwrap();
    source.prepare(&mut connection).unwrap();
    let text = |name: &str| -> String { connection.pragma_query_value(None, name, |row| row.get(0)).unwrap() };
    let number = |name: &str| -> i64 { connection.pragma_query_value(None, name, |row| row.get(0)).unwrap() };
    assert_eq!(text("journal_mode"), "wal");
    assert_eq!(number("synchronous"), 2);
    assert_eq!(number("foreign_keys"), 1);
    assert_eq!(number("trusted_schema"), 0);
    assert_eq!(number("application_id"), i64::from(APPLICATION_ID));
    assert_eq!(number("user_version"), SCHEMA);
    assert!(connection.db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE).unwrap());
    let defended = connection.execute_batch("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = ''");
    assert!(defended.is_err());
}

#[test]
fn a_weaker_setting_is_found_out() {
    let connection = Connection::open_in_memory().unwrap();
    assert!(
        matches!(switch_to_wal(&connection), Err(Error::Transaction { .. })),
        "memory has no WAL"
    );
}
