//! A step against rows that are not as it read them, and against rows that are not as they were written.

use keyfence_core::actor::{self, Acquire, ActorLease};
use keyfence_core::attempt::Done;
use keyfence_core::event::{Event, EventKind};
use keyfence_core::mailbox::{self, ClaimNext, Message, MessageState, Open, Priority, Send};
use keyfence_core::refusal::RefusedCall;
use keyfence_core::store::{Failure, Table as _, Transaction as _};
use keyfence_core::{Decision, Digest, LedgerId, Name, ProcessId, Reason, Refusal, TimeMs, Token, Ttl};
use rusqlite::Connection;

use super::SqliteStep;
use super::head::Head;
use crate::error::Error;
use crate::ledger::decided;
use crate::store::schema::MIGRATIONS;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn at(ms: u64) -> TimeMs {
    TimeMs::new(ms).unwrap()
}

fn ledger() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    for migration in MIGRATIONS {
        connection.execute_batch(migration).unwrap();
    }
    Head::new(LedgerId::from_bytes([1; 16])).insert(&connection).unwrap();
    connection
        .execute_batch("PRAGMA ignore_check_constraints = ON")
        .unwrap();
    connection
}

/// One committed step at `now`.
fn step<T>(
    connection: &Connection,
    now: u64,
    decide: impl FnOnce(&mut SqliteStep<'_>, TimeMs) -> Result<Decision<T>, Failure<Error>>,
) -> Result<Decision<T>, Failure<Error>> {
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    decided(connection, at(now), decide).answer
}

fn send(connection: &Connection, id: &str) {
    let ask = Send {
        id: name(id),
        sender: None,
        recipient: name("worker"),
        content: Digest::NONE,
        priority: Priority::default(),
        not_before: None,
        retries_max: 3,
    };
    let sent = step(connection, 0, |step, now| mailbox::send(step, &ask, now)).unwrap();
    assert_eq!(sent, Ok(Done::Now));
}

fn claim(connection: &Connection, now: u64) -> Result<Decision<usize>, Failure<Error>> {
    let ask = ClaimNext {
        owner: name("worker"),
        process: Some(ProcessId::from_bytes([1; 16])),
        lease_token: None,
        ttl: Ttl::from_ms(100).unwrap(),
    };
    step(connection, now, |step, now| {
        mailbox::claim_next(step, &ask, 1, now, |_| ())
    })
}

fn message(connection: &Connection, id: &str) -> Message {
    let row: Decision<Option<Message>> = step(connection, 0, |step, _| Ok(Ok(step.get(&name(id))?))).unwrap();
    row.unwrap().unwrap()
}

fn is_bug<T: std::fmt::Debug>(answer: Result<Decision<T>, Failure<Error>>) {
    assert!(matches!(answer, Err(Failure::Store(Error::Bug { .. }))), "{answer:?}");
}

/// Every way in which a row can have moved on since it was read.
#[test]
fn a_write_over_a_stale_read_aborts_the_step() {
    let connection = ledger();
    send(&connection, "m-1");
    let new = message(&connection, "m-1");
    assert_eq!(claim(&connection, 10).unwrap(), Ok(1));
    let claimed = message(&connection, "m-1");
    assert_eq!(claim(&connection, 200).unwrap(), Ok(1));
    let taken_over = message(&connection, "m-1");
    let freed = Message {
        state: MessageState::New(Open { last: None }),
        ..taken_over.clone()
    };
    let MessageState::Claimed(current) = &taken_over.state else {
        panic!("{taken_over:?}");
    };
    let other = |claim: mailbox::Claimed| Message {
        state: MessageState::Claimed(claim),
        ..taken_over.clone()
    };
    let stale = [
        new,
        claimed,
        other(mailbox::Claimed {
            token: Token::FIRST,
            ..current.clone()
        }),
        other(mailbox::Claimed {
            expiry: keyfence_core::Expiry::At(at(301)),
            ..current.clone()
        }),
        other(mailbox::Claimed {
            process: None,
            ..current.clone()
        }),
        Message {
            retries: 0,
            ..taken_over.clone()
        },
    ];
    for before in &stale {
        is_bug(step(&connection, 0, |step, _| Ok(Ok(step.put(Some(before), &freed)?))));
        assert_eq!(message(&connection, "m-1"), taken_over, "nothing of it was written");
    }
    is_bug(step(&connection, 0, |step, _| {
        let ghost = Message {
            id: name("m-9"),
            ..freed.clone()
        };
        Ok(Ok(step.put(Some(&ghost), &ghost)?))
    }));
    let fresh = step(&connection, 0, |step, _| Ok(Ok(step.put(Some(&taken_over), &freed)?)));
    assert_eq!(fresh.unwrap(), Ok(()));
}

#[test]
fn a_new_row_over_an_old_one_aborts_the_step() {
    let connection = ledger();
    send(&connection, "m-1");
    let row = message(&connection, "m-1");
    assert!(step(&connection, 0, |step, _| Ok(Ok(step.put(None, &row)?))).is_err());
}

#[test]
fn a_ledgers_row_that_moved_on_aborts_the_step() {
    let connection = ledger();
    let answer = step(&connection, 0, |step, now| {
        step.append(&Event::new(now, EventKind::TokenMinted, &name("x")))?;
        // Another writer, past SQLite's lock: what H2 is for.
        step.connection()
            .execute("UPDATE keyfence_ledger SET event_seq = 7", [])
            .unwrap();
        Ok(Ok(()))
    });
    is_bug(answer);
}

#[test]
fn a_refused_call_that_minted_is_a_bug() {
    let connection = ledger();
    is_bug(step(&connection, 0, |step, _| {
        assert!(step.mint()?.is_some());
        Ok::<Decision<()>, _>(Err(Refusal::new(Reason::MessageHeld)))
    }));
    let last = step(&connection, 0, |step, _| Ok(Ok(step.last_minted()?))).unwrap();
    assert_eq!(last, Ok(None));
}

#[test]
fn a_missing_or_malformed_part_of_a_claim_is_damage_and_never_a_lapse() {
    let changes = [
        ("expires_at_ms = NULL", "expiry"),
        ("expires_at_ms = -1", "expiry"),
        ("expires_at_ms = 9007199254740992", "expiry"),
        ("expires_at_ms = 5", "check value"),
        ("token = NULL", "token is missing"),
        ("token = 0", "token is out of range"),
        ("state = 9", "state is unknown"),
        ("state = 0", "check value"),
        ("retries = 70000", "out of range"),
        ("process = x'00'", "length"),
        ("since_ms = NULL", "moment is missing"),
        ("row_check = 0", "check value"),
    ];
    for (change, why) in changes {
        let connection = ledger();
        send(&connection, "m-1");
        assert_eq!(claim(&connection, 10).unwrap(), Ok(1));
        connection
            .execute_batch(&format!("UPDATE keyfence_message SET {change}"))
            .unwrap();
        let ask = mailbox::Claim {
            message: name("m-1"),
            owner: name("worker"),
            process: None,
            lease_token: None,
            ttl: Ttl::from_ms(100).unwrap(),
        };
        let answer = step(&connection, 1_000_000, |step, now| mailbox::claim(step, &ask, now));
        let Err(Failure::Corrupt(corrupt)) = answer else {
            panic!("{change}: {answer:?}");
        };
        assert_eq!(corrupt.key, Some(name("m-1")));
        assert!(corrupt.why.contains(why), "{change}: {}", corrupt.why);
    }
}

#[test]
fn a_lease_without_an_expiry_is_damage() {
    let connection = ledger();
    let ask = Acquire {
        actor: name("course"),
        process: ProcessId::from_bytes([1; 16]),
        ttl: Ttl::from_ms(100).unwrap(),
    };
    let acquire = |now| step(&connection, now, |step, now| actor::acquire(step, &ask, now));
    assert!(acquire(0).unwrap().is_ok());
    connection
        .execute_batch("UPDATE keyfence_actor SET expires_at_ms = NULL")
        .unwrap();
    assert!(matches!(acquire(1_000), Err(Failure::Corrupt(_))));
    let row: Result<Decision<Option<ActorLease>>, _> =
        step(&connection, 0, |step, _| Ok(Ok(step.get(&name("course"))?)));
    assert!(matches!(row, Err(Failure::Corrupt(_))));
}

fn refuse(step: &mut SqliteStep<'_>, now: TimeMs) -> Result<Decision<()>, Failure<Error>> {
    step.record_refusal(&RefusedCall {
        at: now,
        reason: Reason::FencingTokenStale,
        subject: name("m-1"),
        presented: Token::FIRST,
        never_issued: false,
    })?;
    Ok(Err(Refusal::new(Reason::FencingTokenStale)))
}

#[test]
fn a_refusal_stands_when_it_cannot_be_recorded() {
    let connection = ledger();
    connection.execute_batch("DROP TABLE keyfence_refusal").unwrap();
    let answer = step(&connection, 0, refuse).unwrap();
    assert_eq!(answer.unwrap_err().reason, Reason::FencingTokenStale);
    assert!(connection.is_autocommit(), "it was rolled back");
}

#[test]
fn nothing_is_written_after_a_refusal_that_could_not_be_recorded() {
    let connection = ledger();
    connection.execute_batch("DROP TABLE keyfence_refusal").unwrap();
    let answer = step(&connection, 0, |step, now| {
        let _refused = refuse(step, now)?;
        step.append(&Event::new(now, EventKind::TokenMinted, &name("x")))?;
        Ok(Ok(()))
    });
    assert!(answer.is_err());
    let events: i64 = connection
        .query_row("SELECT count(*) FROM keyfence_event", [], |row| row.get(0))
        .unwrap();
    assert_eq!(events, 0);
}

#[test]
fn the_table_of_refusals_is_bounded_and_their_number_is_not_lost() {
    let connection = ledger();
    connection
        .execute_batch(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) \
             INSERT INTO keyfence_refusal SELECT i, 0, 'fenced', 'x', 1, 0 FROM n",
        )
        .unwrap();
    for _ in 0..3 {
        assert!(step(&connection, 0, refuse).unwrap().is_err());
    }
    let range: (i64, i64, i64) = connection
        .query_row(
            "SELECT count(*), min(number), max(number) FROM keyfence_refusal",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!(range, (10_000, 4, 10_003));
}

#[test]
fn the_history_is_append_only() {
    let connection = ledger();
    send(&connection, "m-1");
    for change in ["UPDATE keyfence_event SET note = 'x'", "DELETE FROM keyfence_event"] {
        let error = connection.execute_batch(change).unwrap_err();
        assert!(error.to_string().contains("append-only"), "{change}");
    }
}

#[test]
fn a_renewal_leaves_no_event_and_the_longest_lease_is_known() {
    let connection = ledger();
    let ask = |ms| Acquire {
        actor: name("course"),
        process: ProcessId::from_bytes([1; 16]),
        ttl: Ttl::from_ms(ms).unwrap(),
    };
    for ms in [100, 5_000, 70] {
        let granted = step(&connection, 10, |step, now| {
            actor::acquire_or_renew(step, &ask(ms), now)
        });
        assert!(granted.unwrap().is_ok());
    }
    let head = Head::read(&connection).unwrap();
    assert_eq!((head.event_seq, head.longest_ttl_ms), (1, 5_000));
}

#[test]
fn every_predicate_of_a_claim_is_indexed() {
    let connection = ledger();
    for (sql, columns) in super::candidates::STATEMENTS {
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = plan.raw_query();
        let mut searches = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            let detail: String = row.get(3).unwrap();
            assert!(!detail.contains("TEMP B-TREE"), "{detail}");
            if detail.contains("keyfence_message_open") {
                let columns = detail.split_once('(').unwrap().1.trim_end_matches(')').to_owned();
                searches.push(columns);
            }
        }
        assert_eq!(searches, *columns, "{sql}");
    }
}
