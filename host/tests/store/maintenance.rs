//! Doctor, backup, restore, prune, supervise.

use std::path::PathBuf;
use std::time::Duration;

use crate::support::{Bench, claim_next, grant_of, message, minutes, name, next_of, process};
use keyfence::core::attempt::{self, Done};
use keyfence::core::event::EventKind;
use keyfence::core::gate::ClaimKind;
use keyfence::core::host::{Proof, Register};
use keyfence::core::mailbox::MessageState;
use keyfence::core::session::ClaimSession;
use keyfence::core::token::MAX_NUMBER;
use keyfence::core::{actor, lease::Released};
use keyfence::{
    AttemptId, Dropped, Error, Ledger, Lost, Page, Reason, Report, Severity, backup, doctor, prune, restore,
};

fn examined(bench: &Bench) -> Report {
    doctor(&bench.path(), &bench.options(), &mut |_| ())
}

fn assert_sound(bench: &Bench) {
    let report = examined(bench);
    assert_eq!(report.worst(), Severity::Sound, "{report:#?}");
}

fn damage(bench: &Bench) -> String {
    let report = examined(bench);
    let found: Vec<String> = report
        .findings
        .iter()
        .filter(|finding| finding.severity >= Severity::Error)
        .map(|finding| format!("{}: {}", finding.topic, finding.what))
        .collect();
    assert!(!found.is_empty(), "{report:#?}");
    found.join("\n")
}

fn ttl(ms: u64) -> keyfence::Ttl {
    keyfence::Ttl::from_ms(ms).unwrap()
}

/// Something of everything: leases, a running and a finished assignment, messages in every state, sessions.
fn fill(bench: &Bench, ledger: &Ledger) {
    let lease = ledger
        .call()
        .actor_acquire(&actor::Acquire {
            actor: name("course"),
            process: process(1),
            ttl: minutes(5),
        })
        .unwrap()
        .unwrap();
    for id in ["a-1", "a-2"] {
        let create = attempt::Create {
            id: name(id),
            actor: name("course"),
            retry_of: None,
        };
        assert_eq!(ledger.call().assignment_create(&create).unwrap(), Ok(Done::Now));
        let acquire = attempt::Acquire {
            assignment: name(id),
            actor: name("course"),
            process: process(1),
            lease_token: lease.grant.token(),
            attempt: AttemptId::from_bytes([9; 16]),
            ttl: minutes(15),
        };
        let granted = ledger.call().attempt_acquire(&acquire).unwrap().unwrap();
        if id == "a-1" {
            let outcome = attempt::Outcome::Completed;
            let finished = ledger.call().attempt_finish(&granted.grant, outcome, b"a result");
            assert_eq!(finished.unwrap(), Ok(Done::Now));
        }
    }
    for id in ["m-1", "m-2", "m-3", "m-4", "m-5"] {
        assert_eq!(
            ledger.call().mailbox_send(&message(id, "worker")).unwrap(),
            Ok(Done::Now)
        );
    }
    let first = claim_next(ledger, "worker", 1);
    assert_eq!(
        ledger.call().mailbox_complete(grant_of(&first), b"12").unwrap(),
        Ok(Done::Now)
    );
    let second = claim_next(ledger, "worker", 1);
    assert_eq!(
        ledger.call().mailbox_dead_letter(grant_of(&second), "torn").unwrap(),
        Ok(Done::Now)
    );
    let third = claim_next(ledger, "worker", 1);
    assert!(
        ledger
            .call()
            .mailbox_retry(grant_of(&third), Some(Duration::from_secs(9)), "wet")
            .unwrap()
            .is_ok()
    );
    let fourth = claim_next(ledger, "worker", 1);
    assert!(
        ledger
            .call()
            .mailbox_extend(grant_of(&fourth), minutes(20))
            .unwrap()
            .is_ok()
    );
    let host = ledger
        .call()
        .host_register(&Register {
            host: name("kiosk-a"),
            process: process(4),
            proof: Proof::Process,
            ttl: minutes(1),
        })
        .unwrap()
        .unwrap();
    for session in ["s-1", "s-2", "s-3"] {
        let claim = ClaimSession {
            session: name(session),
            host: host.grant.clone(),
            ttl: minutes(1),
        };
        let granted = ledger.call().session_claim(&claim).unwrap().unwrap();
        if session == "s-1" {
            assert_eq!(
                ledger.call().session_finish(&granted.grant, b"bye").unwrap(),
                Ok(Done::Now)
            );
        }
        if session == "s-2" {
            assert_eq!(
                ledger.call().session_release(&granted.grant).unwrap(),
                Ok(Released::Now)
            );
        }
    }
    bench.clock.advance_ms(1);
}

#[test]
fn a_ledger_in_use_is_sound() {
    let bench = Bench::new();
    let ledger = bench.open();
    assert_sound(&bench);
    fill(&bench, &ledger);
    assert_sound(&bench);
    let status = ledger.status().unwrap();
    assert_eq!((status.messages_new, status.messages_claimed), (2, 1));
    assert_eq!((status.messages_done, status.messages_dead), (1, 1));
    assert_eq!((status.assignments_running, status.assignments_finished), (1, 1));
    assert_eq!(
        (status.sessions_claimed, status.sessions_free, status.sessions_finished),
        (1, 1, 1)
    );
    assert_eq!(status.longest_ttl_ms, 20 * 60_000);
}

#[test]
fn the_doctor_notices_what_was_changed_past_keyfence() {
    let changes = [
        (
            "UPDATE keyfence_message SET retries = 2 WHERE id = 'm-4'",
            "message `m-4`",
        ),
        (
            "UPDATE keyfence_message SET expires_at_ms = NULL WHERE id = 'm-4'",
            "expiry is missing",
        ),
        (
            "UPDATE keyfence_body SET body = x'00' WHERE number = 3",
            "message `m-3`",
        ),
        (
            "UPDATE keyfence_message SET result = x'00' WHERE number = 1",
            "message `m-1`",
        ),
        (
            "UPDATE keyfence_assignment SET result = x'00' WHERE id = 'a-1'",
            "assignment `a-1`",
        ),
        (
            "UPDATE keyfence_session SET result = x'00' WHERE name = 's-1'",
            "session `s-1`",
        ),
        ("UPDATE keyfence_actor SET token = 1000", "actor `course`"),
        ("UPDATE keyfence_ledger SET last_token = 3", "counter"),
        ("DELETE FROM keyfence_body WHERE number = 3", "its body is missing"),
        ("DELETE FROM keyfence_actor", "history knows it"),
        ("DROP TRIGGER keyfence_event_stays", "keyfence_event_stays"),
        ("DROP INDEX keyfence_message_open", "keyfence_message_open"),
        (
            "DROP TRIGGER keyfence_event_stays; UPDATE keyfence_event SET token = token + 1 WHERE seq = 1",
            "event 1 of `course`",
        ),
        (
            "DROP TRIGGER keyfence_event_is_kept; DELETE FROM keyfence_event WHERE seq = 4",
            "the event before it is missing",
        ),
        (
            "DROP TRIGGER keyfence_event_is_kept; DELETE FROM keyfence_event WHERE seq = (SELECT max(seq) FROM keyfence_event)",
            "its last events are missing",
        ),
    ];
    for (change, found) in changes {
        let bench = Bench::new();
        fill(&bench, &bench.open());
        bench.raw().execute_batch(change).unwrap();
        let damage = damage(&bench);
        assert!(damage.contains(found), "{change}: {damage}");
    }
}

#[test]
fn a_row_that_was_rolled_back_whole_is_noticed_by_the_history() {
    let bench = Bench::new();
    let ledger = bench.open();
    assert_eq!(
        ledger.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    let raw = bench.raw();
    raw.execute_batch("CREATE TEMP TABLE before AS SELECT * FROM keyfence_message")
        .unwrap();
    let _claimed = claim_next(&ledger, "worker", 1);
    raw.execute_batch("DELETE FROM keyfence_message; INSERT INTO keyfence_message SELECT * FROM before")
        .unwrap();
    assert!(damage(&bench).contains("it is not where its last event left it"));
}

#[test]
fn a_backup_restores_with_every_claim_voided_and_greater_tokens() {
    let bench = Bench::new();
    let ledger = bench.open();
    fill(&bench, &ledger);
    let copy = bench.folder.path().join("copy.db");
    backup(&ledger, &copy, &mut |_| ()).unwrap();
    assert!(
        backup(&ledger, &copy, &mut |_| ()).is_err(),
        "a backup is never written over"
    );

    // Since the backup: a message is completed, a session is new, a claim is made.
    bench.clock.advance_ms(10_000);
    let third = claim_next(&ledger, "worker", 2);
    assert_eq!(grant_of(&third).message(), &name("m-3"));
    assert_eq!(
        ledger.call().mailbox_complete(grant_of(&third), b"dry").unwrap(),
        Ok(Done::Now)
    );
    let fifth = claim_next(&ledger, "worker", 2);
    let before = ledger.counter().unwrap().unwrap();

    // New since the backup, and unfinished.
    let new = ledger.call().mailbox_send(&message("m-6", "worker"));
    assert_eq!(new.unwrap(), Ok(Done::Now));

    let restored = restore(&bench.path(), &copy, None, &bench.options(), &mut |_| ())
        .unwrap()
        .unwrap();
    assert_eq!(restored.ledger, ledger.id());
    assert!(restored.floor > before);
    // The actor's lease, the attempt, the claim on m-4, the host, the session s-3.
    assert_eq!(restored.voided, 5);
    // m-3 was completed; m-6 was sent and is gone. Since the backup: claimed, completed, claimed, sent.
    let dropped = Dropped { rows: 1, events: 4 };
    assert_eq!(
        restored.lost,
        Lost::Readable {
            kept_rows: 1,
            damaged: None,
            dropped
        }
    );
    assert!(ledger.message(&name("m-6")).unwrap().is_none());
    assert_sound(&bench);

    // The handle that was open before goes on with what is there now.
    let done = ledger.message(&name("m-3")).unwrap().unwrap();
    assert!(matches!(done.row.state, MessageState::Done(_)));
    assert_eq!(done.result.as_deref(), Some(&b"dry"[..]));
    let late = ledger
        .call()
        .mailbox_complete(grant_of(&fifth), b"")
        .unwrap()
        .unwrap_err();
    assert_eq!(late.reason, Reason::FencingTokenStale);
    let next = claim_next(&ledger, "worker", 3);
    assert!(grant_of(&next).token() > restored.floor);
    assert_eq!(next.retries, 0, "a voided claim costs nothing");
    let assignment = ledger.assignment(&name("a-2")).unwrap().unwrap();
    assert!(matches!(assignment.row.state, attempt::AssignmentState::Finished(_)));

    let host = Register {
        host: name("kiosk-a"),
        process: process(5),
        proof: Proof::Process,
        ttl: minutes(1),
    };
    let host = ledger.call().host_register(&host).unwrap().unwrap().grant;
    for (session, least) in [("s-3", 1_000_002), ("s-2", 1_000_002), ("s-9", 1_000_002)] {
        let claim = ClaimSession {
            session: name(session),
            host: host.clone(),
            ttl: minutes(1),
        };
        let granted = ledger.call().session_claim(&claim).unwrap().unwrap();
        assert_eq!(granted.grant.generation().incarnation.get(), least, "{session}");
    }
    assert_sound(&bench);
}

#[test]
fn a_restore_into_nothing_makes_the_ledger_and_lifts_above_the_floor_that_is_given() {
    let bench = Bench::new();
    let ledger = bench.open();
    fill(&bench, &ledger);
    let copy = bench.folder.path().join("copy.db");
    backup(&ledger, &copy, &mut |_| ()).unwrap();
    let id = ledger.id();
    drop(ledger);
    let other = Bench::new();
    let above = keyfence::Token::presented(1 << 52).unwrap();
    let restored = restore(&other.path(), &copy, Some(above), &other.options(), &mut |_| ())
        .unwrap()
        .unwrap();
    assert_eq!((restored.ledger, restored.lost), (id, Lost::NothingReplaced));
    assert_eq!(restored.floor.get(), (1 << 52) + 1);
    assert_sound(&other);
    assert!(grant_of(&claim_next(&other.open(), "worker", 1)).token() > above);
}

#[test]
fn a_damaged_row_costs_nobody_what_was_finished_since_the_backup() {
    let bench = Bench::new();
    let ledger = bench.open();
    fill(&bench, &ledger);
    let copy = bench.folder.path().join("copy.db");
    backup(&ledger, &copy, &mut |_| ()).unwrap();
    bench.clock.advance_ms(10_000);
    let third = claim_next(&ledger, "worker", 2);
    let done = ledger.call().mailbox_complete(grant_of(&third), b"dry").unwrap();
    assert_eq!(done, Ok(Done::Now));
    drop(ledger);
    let raw = rusqlite::Connection::open(bench.path()).unwrap();
    raw.execute_batch("UPDATE keyfence_message SET row_check = 5 WHERE id = 'm-5'; UPDATE keyfence_session SET row_check = 5, incarnation = 9007199254740991 WHERE name = 's-3'")
        .unwrap();
    drop(raw);

    let restored = restore(&bench.path(), &copy, None, &bench.options(), &mut |_| ());
    let Lost::Readable {
        kept_rows,
        damaged: Some(damaged),
        ..
    } = restored.unwrap().unwrap().lost
    else {
        panic!("what can be read is kept");
    };
    assert_eq!((kept_rows, damaged.rows), (1, 2));
    let aside = rusqlite::Connection::open(&damaged.kept_as).unwrap();
    let check: i64 = aside
        .query_row("SELECT row_check FROM keyfence_message WHERE id = 'm-5'", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(check, 5, "the damaged rows are kept for who wants to look");
    let ledger = bench.open();
    let third = ledger.message(&name("m-3")).unwrap().unwrap();
    assert!(matches!(third.row.state, MessageState::Done(_)));
    assert!(ledger.message(&name("m-5")).unwrap().is_some(), "as in the backup");
    assert_sound(&bench);
}

#[test]
fn an_unreadable_ledger_is_replaced_and_kept_aside() {
    let (bench, copy) = with_backup();
    let bytes = std::fs::read(bench.path()).unwrap();
    std::fs::write(bench.path(), &bytes[..bytes.len() / 2]).unwrap();
    let restored = restore(&bench.path(), &copy, None, &bench.options(), &mut |_| ())
        .unwrap()
        .unwrap();
    let Lost::Unreadable { why } = restored.lost else {
        panic!("{:?}", restored.lost);
    };
    assert!(why.contains("unreadable-"), "{why}");
    assert_sound(&bench);
    assert!(grant_of(&claim_next(&bench.open(), "worker", 1)).token() > restored.floor);
}

/// A ledger with something of everything, closed, and its backup.
fn with_backup() -> (Bench, PathBuf) {
    let bench = Bench::new();
    let ledger = bench.open();
    fill(&bench, &ledger);
    let copy = bench.folder.path().join("copy.db");
    backup(&ledger, &copy, &mut |_| ()).unwrap();
    (bench, copy)
}

#[test]
fn what_is_no_ledger_is_never_replaced_until_it_is_moved_away() {
    let (bench, copy) = with_backup();
    let mut no_header = std::fs::read(bench.path()).unwrap();
    no_header[..64].fill(0xa5);
    let foreign = {
        let other = Bench::new();
        other
            .raw()
            .execute_batch("PRAGMA application_id = 77; CREATE TABLE stock (item TEXT)")
            .unwrap();
        std::fs::read(other.path()).unwrap()
    };
    let broken_foreign = foreign[..foreign.len() / 2].to_vec();
    let notes = b"Restock vanilla\n".repeat(100);
    for other in [no_header, foreign, broken_foreign, notes] {
        std::fs::write(bench.path(), &other).unwrap();
        let error = restore(&bench.path(), &copy, None, &bench.options(), &mut |_| ()).unwrap_err();
        assert_eq!(error.name(), "not_a_ledger", "{error}");
        assert_eq!(std::fs::read(bench.path()).unwrap(), other);
        std::fs::remove_file(bench.path()).unwrap();
        let restored = restore(&bench.path(), &copy, None, &bench.options(), &mut |_| ()).unwrap();
        assert_eq!(restored.unwrap().lost, Lost::NothingReplaced);
        assert_sound(&bench);
    }
}

#[test]
fn a_ledger_is_no_backup_of_itself() {
    let (bench, _) = with_backup();
    let before = std::fs::read(bench.path()).unwrap();
    let link = bench.folder.path().join("link.db");
    std::os::unix::fs::symlink(bench.path(), &link).unwrap();
    for itself in [bench.path(), link] {
        let error = restore(&bench.path(), &itself, None, &bench.options(), &mut |_| ()).unwrap_err();
        assert!(matches!(error, Error::Misuse { .. }), "{error}");
    }
    assert_eq!(std::fs::read(bench.path()).unwrap(), before);
}

#[test]
fn a_restore_that_would_leave_no_token_is_refused() {
    let (bench, copy) = with_backup();
    let before = std::fs::read(bench.path()).unwrap();
    let restore = |above: u64| {
        let above = keyfence::Token::presented(above).unwrap();
        let restored = restore(&bench.path(), &copy, Some(above), &bench.options(), &mut |_| ()).unwrap();
        restored.map_err(|refusal| refusal.reason)
    };
    for above in [MAX_NUMBER, MAX_NUMBER - 1] {
        assert_eq!(restore(above).unwrap_err(), Reason::TokenExhausted);
    }
    assert_eq!(std::fs::read(bench.path()).unwrap(), before);
    assert_eq!(restore(MAX_NUMBER - 2).unwrap().floor.get(), MAX_NUMBER - 1);
    let last = claim_next(&bench.open(), "worker", 1);
    assert_eq!(grant_of(&last).token().get(), MAX_NUMBER);
}

#[test]
fn a_backup_is_never_written_over_anything() {
    let bench = Bench::new();
    let ledger = bench.open();
    fill(&bench, &ledger);
    let notes = bench.folder.path().join("notes.txt");
    std::fs::write(&notes, "Restock vanilla").unwrap();
    let error = backup(&ledger, &notes, &mut |_| ()).unwrap_err();
    assert!(matches!(&error, Error::Exists { path } if *path == notes), "{error}");
    assert_eq!(std::fs::read(&notes).unwrap(), b"Restock vanilla");
    for suffix in ["", "-wal", "-journal", "-restoring"] {
        let own = bench.folder.path().join(format!("keyfence.db{suffix}"));
        let error = backup(&ledger, &own, &mut |_| ()).unwrap_err();
        assert!(matches!(error, Error::Misuse { .. }), "{suffix}: {error}");
    }
    let nowhere = bench.folder.path().join("nowhere/copy.db");
    let error = backup(&ledger, &nowhere, &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("the backup "), "{error}");
    assert_sound(&bench);
}

#[test]
fn a_backup_of_another_ledger_or_a_damaged_one_changes_nothing() {
    let (bench, other) = (Bench::new(), Bench::new());
    let (ledger, stranger) = (bench.open(), other.open());
    fill(&bench, &ledger);
    fill(&other, &stranger);
    let copy = other.folder.path().join("copy.db");
    backup(&stranger, &copy, &mut |_| ()).unwrap();
    let before = ledger.counter().unwrap();
    let error = restore(&bench.path(), &copy, None, &bench.options(), &mut |_| ()).unwrap_err();
    assert_eq!(error.name(), "other_ledger");

    let damaged = bench.folder.path().join("damaged.db");
    backup(&ledger, &damaged, &mut |_| ()).unwrap();
    rusqlite::Connection::open(&damaged)
        .unwrap()
        .execute_batch("UPDATE keyfence_message SET retries = 2 WHERE id = 'm-4'")
        .unwrap();
    let error = restore(&bench.path(), &damaged, None, &bench.options(), &mut |_| ()).unwrap_err();
    assert_eq!(error.name(), "damaged");
    assert_eq!(ledger.counter().unwrap(), before);
    assert_sound(&bench);
    assert!(!bench.folder.path().join("keyfence.db-restoring").exists());
}

#[test]
fn a_pruned_name_answers_as_finished_and_the_chain_goes_on_from_its_anchor() {
    let bench = Bench::new();
    let ledger = bench.open();
    fill(&bench, &ledger);
    assert_eq!(
        prune(&ledger, Duration::from_secs(60), &mut |_| ()).unwrap(),
        keyfence::Pruned::default()
    );
    bench.clock.advance_ms(3_600_000);
    let pruned = prune(&ledger, Duration::from_secs(60), &mut |_| ()).unwrap();
    assert_eq!((pruned.messages, pruned.assignments, pruned.sessions), (2, 1, 1));
    assert!(pruned.events > 10);
    assert_sound(&bench);
    let again = ledger
        .call()
        .mailbox_send(&message("m-1", "worker"))
        .unwrap()
        .unwrap_err();
    assert_eq!(again.reason, Reason::MessageFinished);
    assert_eq!(ledger.message(&name("m-1")).unwrap().unwrap().body, None);
    let kinds: Vec<EventKind> = ledger
        .events(0, 100)
        .unwrap()
        .iter()
        .map(|record| record.event.kind)
        .collect();
    assert_eq!(kinds, [EventKind::LedgerPruned]);
    let _claimed = claim_next(&ledger, "worker", 1);
    assert_sound(&bench);
}

#[test]
fn a_tick_sweeps_closes_and_reports() {
    let bench = Bench::new();
    let ledger = bench.open();
    fill(&bench, &ledger);
    bench.clock.advance_ms(3_600_000);
    let tick = ledger.call().supervise_tick().unwrap().unwrap();
    assert_eq!(tick.swept, 1);
    assert_eq!(tick.closed, [name("a-2")]);
    let lapsed: Vec<(&str, &str)> = tick
        .lapsed
        .iter()
        .map(|lease| (lease.kind, lease.name.as_str()))
        .collect();
    assert_eq!(lapsed, [("actor", "course"), ("host", "kiosk-a"), ("session", "s-3")]);
    assert_eq!(tick.lapsed_count, 3);
    let again = ledger.call().supervise_tick().unwrap().unwrap();
    assert_eq!((again.swept, again.closed_count), (0, 0));
    assert_sound(&bench);
}

#[test]
fn an_inbox_sweeps_and_lists_what_is_open() {
    let bench = Bench::new();
    let ledger = bench.open();
    fill(&bench, &ledger);
    bench.clock.advance_ms(3_600_000);
    let inbox = ledger
        .call()
        .mailbox_inbox(&name("worker"), Page::FIRST)
        .unwrap()
        .unwrap();
    let states: Vec<(&str, &str)> = inbox
        .iter()
        .map(|view| (view.row.id.as_str(), view.row.state_name()))
        .collect();
    assert_eq!(states, [("m-3", "NEW"), ("m-4", "NEW"), ("m-5", "NEW")]);
    let page = Page::FIRST.after(inbox[1].number);
    let rest = ledger.call().mailbox_inbox(&name("worker"), page).unwrap().unwrap();
    assert_eq!(rest.len(), 1);
}

#[test]
fn an_operators_acts_are_in_the_history_with_their_reason() {
    let bench = Bench::new();
    let ledger = bench.open();
    fill(&bench, &ledger);
    assert!(
        ledger
            .call()
            .revoke(ClaimKind::Actor, &name("course"), "gone home")
            .unwrap()
            .is_ok()
    );
    assert!(
        ledger
            .call()
            .mailbox_dead_letter_new(&name("m-5"), "no shelf")
            .unwrap()
            .is_ok()
    );
    let (id, done) = ledger
        .call()
        .mailbox_redrive(&name("m-5"), name("m-6"))
        .unwrap()
        .unwrap();
    assert_eq!((id.as_str(), done), ("m-6", Done::Now));
    assert_eq!(
        ledger.message(&id).unwrap().unwrap().body.as_deref(),
        Some(&b"count the shelf"[..])
    );
    let notes: Vec<String> = ledger
        .events(0, 100)
        .unwrap()
        .into_iter()
        .filter_map(|record| record.note)
        .collect();
    assert_eq!(notes, ["torn", "wet", "gone home", "no shelf"]);
    assert_sound(&bench);
    let later = ledger
        .call()
        .mailbox_claim_next(&next_of("worker", 1), 9)
        .unwrap()
        .unwrap();
    assert_eq!(later.len(), 1, "m-3 is delayed, m-4 claimed");
    assert!(
        ledger
            .call()
            .mailbox_extend(grant_of(&later[0]), ttl(1))
            .unwrap()
            .is_ok()
    );
}
