//! Rows of the caller's own: fenced, in a transaction of keyfence's, in a transaction of his own.

use crate::support::{Bench, claim_next, grant_of, message, minutes, name, next_of};
use keyfence::core::attempt::Done;
use keyfence::{Fenced, FencedError, Ledger, Reason, Terminal};
use rusqlite::Connection;

fn shop(bench: &Bench) -> Ledger {
    let ledger = Ledger::embedded(&bench.path(), bench.options()).unwrap();
    bench
        .raw()
        .execute_batch("CREATE TABLE stock (item TEXT PRIMARY KEY)")
        .unwrap();
    for id in ["m-1", "m-2"] {
        assert_eq!(
            ledger.call().mailbox_send(&message(id, "worker")).unwrap(),
            Ok(Done::Now)
        );
    }
    ledger
}

fn stock(bench: &Bench) -> i64 {
    bench
        .raw()
        .query_row("SELECT count(*) FROM stock", [], |row| row.get(0))
        .unwrap()
}

fn sell(connection: &Connection) -> rusqlite::Result<usize> {
    connection.execute("INSERT INTO stock VALUES ('lamp')", [])
}

#[test]
fn the_callers_rows_commit_with_the_fence_and_once() {
    let bench = Bench::new();
    let ledger = shop(&bench);
    let delivery = claim_next(&ledger, "worker", 1);
    let terminal = Terminal::Complete {
        grant: grant_of(&delivery),
        result: b"sold",
    };
    assert_eq!(ledger.fenced(terminal, sell).unwrap(), Ok(Fenced::Now(1)));
    assert_eq!(ledger.fenced(terminal, sell).unwrap(), Ok(Fenced::Already));
    assert_eq!(stock(&bench), 1);
}

#[test]
fn a_stale_grant_writes_nothing_of_the_callers() {
    let bench = Bench::new();
    let ledger = shop(&bench);
    let stale = claim_next(&ledger, "worker", 1);
    bench.clock.advance_ms(minutes(15).as_ms());
    let current = claim_next(&ledger, "worker", 2);
    assert_eq!(grant_of(&stale).message(), grant_of(&current).message());
    let terminal = Terminal::Complete {
        grant: grant_of(&stale),
        result: b"",
    };
    let refusal = ledger.fenced(terminal, sell).unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::FencingTokenStale);
    assert_eq!(stock(&bench), 0);
    assert_eq!(ledger.refusals(9).unwrap().len(), 1);
}

#[test]
fn work_that_fails_undoes_the_fence() {
    let bench = Bench::new();
    let ledger = shop(&bench);
    let delivery = claim_next(&ledger, "worker", 1);
    let terminal = Terminal::Complete {
        grant: grant_of(&delivery),
        result: b"",
    };
    let failed = ledger.fenced(terminal, |connection| {
        sell(connection).unwrap();
        Err::<(), &str>("out of lamps")
    });
    assert!(matches!(failed, Err(FencedError::Work("out of lamps"))));
    assert_eq!(stock(&bench), 0);
    assert_eq!(
        ledger.message(&name("m-1")).unwrap().unwrap().row.state_name(),
        "CLAIMED"
    );
    assert_eq!(ledger.fenced(terminal, sell).unwrap(), Ok(Fenced::Now(1)));
}

#[test]
fn a_guest_can_touch_neither_keyfences_tables_nor_the_transaction_nor_other_files() {
    let bench = Bench::new();
    let ledger = shop(&bench);
    let delivery = claim_next(&ledger, "worker", 1);
    let terminal = Terminal::Complete {
        grant: grant_of(&delivery),
        result: b"",
    };
    for forbidden in [
        "UPDATE keyfence_ledger SET last_token = 1",
        "DELETE FROM Keyfence_event",
        "CREATE TRIGGER t AFTER INSERT ON keyfence_event BEGIN SELECT 1; END",
        "DROP TABLE keyfence_request",
        "COMMIT",
        "ROLLBACK",
        "ATTACH ':memory:' AS other",
        "PRAGMA synchronous = OFF",
    ] {
        let failed = ledger.fenced(terminal, |connection| connection.execute_batch(forbidden));
        assert!(matches!(failed, Err(FencedError::Work(_))), "{forbidden}");
    }
    // Reading is no harm, and neither is DDL of one's own.
    let fenced = ledger.fenced(terminal, |connection| {
        connection.execute_batch("CREATE TABLE sold (item TEXT)")?;
        connection.query_row("SELECT count(*) FROM keyfence_message", [], |row| row.get::<_, i64>(0))
    });
    assert_eq!(fenced.unwrap(), Ok(Fenced::Now(2)));
}

#[test]
fn a_guest_whose_sql_ends_the_transaction_commits_nothing() {
    let bench = Bench::new();
    let ledger = shop(&bench);
    let delivery = claim_next(&ledger, "worker", 1);
    let terminal = Terminal::Complete {
        grant: grant_of(&delivery),
        result: b"",
    };
    let ended = ledger.fenced(terminal, |connection| {
        sell(connection)?;
        // The second one violates the key, and takes the transaction with it.
        let _ended = connection.execute("INSERT OR ROLLBACK INTO stock VALUES ('lamp')", []);
        let _alone = connection.execute("INSERT INTO stock VALUES ('chair')", []);
        Ok::<(), rusqlite::Error>(())
    });
    let Err(FencedError::Ledger(error)) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(error.name(), "transaction");
    assert_eq!(stock(&bench), 0);
    assert_eq!(
        ledger.message(&name("m-1")).unwrap().unwrap().row.state_name(),
        "CLAIMED"
    );
    assert_eq!(ledger.fenced(terminal, sell).unwrap(), Ok(Fenced::Now(1)));
}

#[test]
fn what_a_transaction_grants_is_told_after_its_commit() {
    let bench = Bench::new();
    let ledger = shop(&bench);
    let (pending, receipt) = ledger
        .transaction(|tx| {
            tx.sql(sell)?;
            let claimed = tx.mailbox_claim_next(&next_of("worker", 1), 1).unwrap().unwrap();
            Ok::<_, rusqlite::Error>(claimed)
        })
        .unwrap();
    let deliveries = pending.redeem(&receipt).unwrap();
    assert_eq!(
        ledger.call().mailbox_complete(grant_of(&deliveries[0]), b"").unwrap(),
        Ok(Done::Now)
    );
    assert_eq!(stock(&bench), 1);

    let (other, _receipt) = ledger
        .transaction(|tx| Ok::<_, ()>(tx.mint(&name("lamp")).unwrap().unwrap()))
        .unwrap();
    assert!(other.redeem(&receipt).is_none(), "another transaction's receipt");
}

#[test]
fn a_transaction_that_fails_mints_nothing() {
    let bench = Bench::new();
    let ledger = shop(&bench);
    let failed = ledger.transaction(|tx| {
        assert!(tx.mint(&name("lamp")).unwrap().is_ok());
        Err::<(), &str>("changed my mind")
    });
    assert!(matches!(failed, Err(FencedError::Work("changed my mind"))));
    assert_eq!(ledger.counter().unwrap(), None);
}

fn own(bench: &Bench) -> Connection {
    let connection = Connection::open(bench.path()).unwrap();
    connection.pragma_update(None, "synchronous", "FULL").unwrap();
    connection
}

#[test]
fn a_terminal_write_in_the_callers_transaction_holds_once_that_commits() {
    let bench = Bench::new();
    let ledger = shop(&bench);
    let (first, second) = (claim_next(&ledger, "worker", 1), claim_next(&ledger, "worker", 1));
    let complete = |connection: &Connection, delivery| {
        let terminal = Terminal::Complete {
            grant: grant_of(delivery),
            result: b"",
        };
        ledger.terminal_in(connection, terminal).unwrap().unwrap()
    };
    let connection = own(&bench);
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let pending = complete(&connection, &first);
    sell(&connection).unwrap();
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(ledger.confirm(pending).unwrap(), Some(Done::Now));

    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let pending = complete(&connection, &second);
    connection.execute_batch("ROLLBACK").unwrap();
    assert_eq!(ledger.confirm(pending).unwrap(), None);
    assert_eq!(
        ledger.message(&name("m-2")).unwrap().unwrap().row.state_name(),
        "CLAIMED"
    );
}

#[test]
fn a_transaction_of_the_callers_that_is_not_durable_or_not_a_write_is_refused() {
    let bench = Bench::new();
    let ledger = shop(&bench);
    let delivery = claim_next(&ledger, "worker", 1);
    let terminal = Terminal::Complete {
        grant: grant_of(&delivery),
        result: b"",
    };
    let refused = |connection: &Connection, why: &str| {
        let error = ledger.terminal_in(connection, terminal).unwrap_err();
        assert_eq!(error.name(), "transaction");
        assert!(error.to_string().contains(why), "{error}");
    };
    let connection = own(&bench);
    refused(&connection, "none is open");
    connection.execute_batch("BEGIN; SELECT count(*) FROM stock").unwrap();
    refused(&connection, "not a write transaction");
    connection
        .execute_batch("ROLLBACK; PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE")
        .unwrap();
    refused(&connection, "not be durable");
    connection
        .execute_batch("ROLLBACK; PRAGMA synchronous = FULL; ATTACH ':memory:' AS other; BEGIN IMMEDIATE")
        .unwrap();
    refused(&connection, "another file is attached");
    connection.execute_batch("ROLLBACK").unwrap();

    let stranger = Bench::new();
    let other = shop(&stranger);
    let connection = own(&stranger);
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    refused(&connection, "another ledger");
    drop(other);
}
