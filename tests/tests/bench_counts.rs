//! What goes to disk, counted: exact on any machine. In a program of its own, and one test at a time, because the counting
//! file system counts for the whole process.

use std::sync::{Mutex, PoisonError};

use keyfence_tests::bench::count::{Counting, Written};
use keyfence_tests::bench::counts::syncs;
use keyfence_tests::bench::queue::{Kind, Manner};

static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_bare_commit_is_one_sync_and_its_pages() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let counting = Counting::install().unwrap();
    assert!(Counting::install().is_err(), "one at a time");
    let connection = rusqlite::Connection::open(folder.path().join("counted.db")).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", "FULL").unwrap();
    connection
        .execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES(1);")
        .unwrap();
    let before = counting.written();
    for _ in 0..10 {
        connection.execute("INSERT INTO t VALUES(1)", []).unwrap();
    }
    let page_and_header = 4096 + 24;
    let ten_commits = Written {
        log_syncs: 10,
        file_syncs: 0,
        log_bytes: 10 * page_and_header,
        file_bytes: 0,
    };
    assert_eq!(counting.written() - before, ten_commits);
    let before = counting.written();
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let checkpoint = counting.written() - before;
    assert_eq!((checkpoint.file_syncs, checkpoint.file_bytes), (1, 2 * 4096));
}

#[test]
fn a_message_costs_two_syncs_one_by_one_and_one_fused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    for kind in Kind::ALL {
        for (manner, exact) in [
            (Manner::OneByOne, 2.0),
            (Manner::Fused(1), 1.0),
            (Manner::Batches(10), 0.2),
            (Manner::Fused(10), 0.1),
        ] {
            assert_eq!(syncs(folder.path(), kind, manner).unwrap(), exact, "{kind} {manner:?}");
        }
    }
}
