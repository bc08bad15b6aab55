//! Messages on SQLite: their texts, their order, and what is fused.

use crate::support::{Bench, claim_next, grant_of, message, minutes, name, next_of, process};
use keyfence::core::attempt::Done;
use keyfence::core::mailbox::{Claim, Priority};
use keyfence::{Completion, NewMessage, Reason, RequestId, TimeMs};

#[test]
fn a_message_is_delivered_with_its_texts_and_completed_once() {
    let bench = Bench::new();
    let ledger = bench.open();
    let sent = message("m-1", "worker");
    assert_eq!(ledger.call().mailbox_send(&sent).unwrap(), Ok(Done::Now));
    assert_eq!(ledger.call().mailbox_send(&sent).unwrap(), Ok(Done::Already));
    let other = NewMessage {
        body: b"other".to_vec(),
        ..sent.clone()
    };
    let refusal = ledger.call().mailbox_send(&other).unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::MessageExists);

    let delivery = claim_next(&ledger, "worker", 1);
    assert_eq!(delivery.body, sent.body);
    assert_eq!(delivery.subject, "stock");
    assert_eq!(delivery.sender, sent.sender);
    assert_eq!(delivery.deliveries, 1);
    let grant = grant_of(&delivery);
    assert_eq!(ledger.call().mailbox_complete(grant, b"12").unwrap(), Ok(Done::Now));
    assert_eq!(ledger.call().mailbox_complete(grant, b"12").unwrap(), Ok(Done::Already));
    let refusal = ledger.call().mailbox_complete(grant, b"13").unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::MessageFinished);
}

#[test]
fn a_late_completion_is_refused_after_a_takeover_and_the_holders_is_not() {
    let bench = Bench::new();
    let ledger = bench.open();
    assert_eq!(
        ledger.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    let a = claim_next(&ledger, "worker", 1);
    bench.clock.advance_ms(15 * 60_000);
    let b = claim_next(&ledger, "worker", 2);
    assert!(grant_of(&b).token() > grant_of(&a).token());
    assert_eq!(b.retries, 1);
    let refusal = ledger
        .call()
        .mailbox_complete(grant_of(&a), b"late")
        .unwrap()
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::FencingTokenStale);
    assert_eq!(refusal.held_token, None);
    assert_eq!(
        ledger.call().mailbox_complete(grant_of(&b), b"").unwrap(),
        Ok(Done::Now)
    );
}

#[test]
fn the_next_messages_come_by_priority_then_age_whether_new_due_or_lapsed() {
    let bench = Bench::new();
    let ledger = bench.open();
    let due = TimeMs::new(1_000_500).unwrap();
    let with = |id: &str, priority: i64, not_before: Option<TimeMs>| NewMessage {
        priority: Priority::new(priority).unwrap(),
        not_before,
        ..message(id, "worker")
    };
    let sent = [
        with("low", -5, None),
        with("lapses", 0, None),
        with("delayed", 0, Some(due)),
        with("plain", 0, None),
        with("later", 0, Some(TimeMs::new(900_000_000).unwrap())),
        with("high", 7, None),
    ];
    for decision in ledger.call().mailbox_send_batch(&sent).unwrap().unwrap() {
        assert_eq!(decision, Ok(Done::Now));
    }
    let claim = Claim {
        message: name("lapses"),
        owner: name("worker"),
        process: Some(process(1)),
        lease_token: None,
        ttl: keyfence::Ttl::from_ms(100).unwrap(),
    };
    assert!(ledger.call().mailbox_claim(&claim).unwrap().is_ok());
    let ids = |limit: usize| {
        let ask = next_of("worker", 2);
        let deliveries = ledger.call().mailbox_claim_next(&ask, limit).unwrap().unwrap();
        let ids: Vec<String> = deliveries
            .iter()
            .map(|d| d.granted.grant.message().to_string())
            .collect();
        ids
    };
    assert_eq!(ids(2), ["high", "plain"]);
    bench.clock.advance_ms(1_000);
    assert_eq!(ids(10), ["lapses", "delayed", "low"]);
    assert!(ids(10).is_empty());
}

#[test]
fn more_than_a_batch_of_candidates_is_claimed_at_once() {
    let bench = Bench::new();
    let ledger = bench.open();
    let sent: Vec<NewMessage> = (0..50).map(|i| message(&format!("m-{i}"), "worker")).collect();
    assert!(
        ledger
            .call()
            .mailbox_send_batch(&sent)
            .unwrap()
            .unwrap()
            .iter()
            .all(Result::is_ok)
    );
    let claimed = ledger
        .call()
        .mailbox_claim_next(&next_of("worker", 1), 40)
        .unwrap()
        .unwrap();
    assert_eq!(claimed.len(), 40);
    let completions: Vec<Completion<'_>> = claimed
        .iter()
        .map(|delivery| Completion {
            grant: grant_of(delivery),
            result: b"done",
        })
        .collect();
    let fused = ledger
        .call()
        .mailbox_complete_batch_and_next(&completions, &next_of("worker", 1), 40)
        .unwrap()
        .unwrap();
    assert!(fused.done.iter().all(|done| *done == Ok(Done::Now)));
    assert_eq!(fused.next.unwrap().len(), 10);
}

#[test]
fn a_refused_completion_claims_nothing_next() {
    let bench = Bench::new();
    let ledger = bench.open();
    for id in ["m-1", "m-2"] {
        assert_eq!(
            ledger.call().mailbox_send(&message(id, "worker")).unwrap(),
            Ok(Done::Now)
        );
    }
    let a = claim_next(&ledger, "worker", 1);
    bench.clock.advance_ms(minutes(15).as_ms());
    let b = claim_next(&ledger, "worker", 2);
    assert_eq!(grant_of(&a).message(), grant_of(&b).message());
    let mut call = ledger.call();
    let refusal = call
        .mailbox_complete_and_next(grant_of(&a), b"", &next_of("worker", 1), 1)
        .unwrap()
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::FencingTokenStale);
    let fused = call
        .mailbox_complete_and_next(grant_of(&b), b"", &next_of("worker", 2), 1)
        .unwrap()
        .unwrap();
    assert_eq!(fused.done, Done::Now);
    assert_eq!(fused.next.unwrap().len(), 1);
}

#[test]
fn a_lost_answer_is_recovered_by_its_request_id_while_it_is_current() {
    let bench = Bench::new();
    let ledger = bench.open();
    assert_eq!(
        ledger.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    let ask = next_of("worker", 1);
    let id = RequestId::new("r-1").unwrap();
    let request = || ledger.call().request(id.clone(), name("worker"));

    let mut first = request();
    let granted = first.mailbox_claim_next(&ask, 1).unwrap().unwrap();
    assert!(!first.replayed());
    let mut again = request();
    assert_eq!(again.mailbox_claim_next(&ask, 1).unwrap().unwrap(), granted);
    assert!(again.replayed());

    let misuse = request().mailbox_claim_next(&ask, 2).unwrap_err();
    assert_eq!(misuse.name(), "request_misused");
    // Another caller's id of the same name is another id.
    let other = ledger
        .call()
        .request(id.clone(), name("other"))
        .mailbox_claim_next(&ask, 1);
    assert_eq!(other.unwrap().unwrap(), []);

    bench.clock.advance_ms(minutes(15).as_ms());
    let taken = claim_next(&ledger, "worker", 2);
    assert!(grant_of(&taken).token() > granted[0].granted.grant.token());
    let mut late = request();
    let refusal = late.mailbox_claim_next(&ask, 1).unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::FencingTokenStale);
    assert!(late.replayed());
}

#[test]
fn a_body_that_is_not_what_was_sent_is_reported_and_not_handed_out() {
    let bench = Bench::new();
    let ledger = bench.open();
    assert_eq!(
        ledger.call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    let other = rusqlite::Connection::open(bench.path()).unwrap();
    other.execute("UPDATE keyfence_body SET body = x'00'", []).unwrap();
    let error = ledger.call().mailbox_claim_next(&next_of("worker", 1), 1).unwrap_err();
    assert_eq!(error.name(), "damaged");
    assert!(error.to_string().contains("m-1"), "{error}");
    assert_eq!(ledger.counter().unwrap(), None, "nothing was claimed");
}

#[test]
fn damage_that_is_next_in_line_is_named_and_nothing_is_claimed_past_it() {
    let bench = Bench::new();
    let ledger = bench.open();
    for id in ["m-1", "m-2"] {
        assert_eq!(
            ledger.call().mailbox_send(&message(id, "worker")).unwrap(),
            Ok(Done::Now)
        );
    }
    bench
        .raw()
        .execute("UPDATE keyfence_message SET retries = 1 WHERE id = 'm-1'", [])
        .unwrap();
    for number in [1, 2] {
        let error = ledger
            .call()
            .mailbox_claim_next(&next_of("worker", number), 1)
            .unwrap_err();
        assert_eq!(error.name(), "damaged");
        assert!(error.to_string().contains("message `m-1`"), "{error}");
    }
    assert_eq!(ledger.counter().unwrap(), None);
    // Who knows a message by its id gets it all the same.
    let ask = Claim {
        message: name("m-2"),
        owner: name("worker"),
        process: None,
        lease_token: None,
        ttl: minutes(15),
    };
    let delivery = ledger.call().mailbox_claim(&ask).unwrap().unwrap();
    assert_eq!(
        ledger.call().mailbox_complete(grant_of(&delivery), b"").unwrap(),
        Ok(Done::Now)
    );
}

/// A worker that asks again and again for nothing takes no lock: one that is stopped in its transaction is not noticed.
#[test]
fn asking_an_empty_mailbox_again_writes_nothing_and_waits_for_nobody() {
    let bench = Bench::new();
    let ledger = bench.open();
    let ask = |number| ledger.call().mailbox_claim_next(&next_of("worker", number), 1);
    assert_eq!(ask(1).unwrap().unwrap(), []);
    let writer = bench.raw();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 0..3 {
        assert_eq!(ask(1).unwrap().unwrap(), []);
    }
    // Under a request id the first answer may have been another one: that has to be looked up.
    let mut call = ledger
        .call()
        .timeout(std::time::Duration::ZERO)
        .request(RequestId::new("r-1").unwrap(), name("worker"));
    assert_eq!(
        call.mailbox_claim_next(&next_of("worker", 1), 1).unwrap_err().name(),
        "busy"
    );
    writer.execute_batch("COMMIT").unwrap();
    assert_eq!(
        bench.open().call().mailbox_send(&message("m-1", "worker")).unwrap(),
        Ok(Done::Now)
    );
    let claimed = ask(1).unwrap().unwrap();
    assert_eq!(claimed.len(), 1);
    // What lapses becomes claimable without anybody writing.
    assert_eq!(ask(2).unwrap().unwrap(), []);
    bench.clock.advance_ms(minutes(15).as_ms());
    assert_eq!(ask(2).unwrap().unwrap().len(), 1);
}
