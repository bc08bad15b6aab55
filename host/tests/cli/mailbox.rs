//! The mailbox rows of the table: success, refusal and bad input of each.

use crate::support::{A, B, Shop};

#[test]
fn a_message_has_one_worker_at_a_time() {
    let shop = Shop::new();
    let sent = shop.ask_with(&[
        "--now",
        "1000",
        "mailbox",
        "send",
        "--to",
        "crew",
        "--from",
        "lucy",
        "--id",
        "m1",
        "Restock vanilla",
    ]);
    assert_eq!(sent.done()["message"], "m1");
    let claim =
        |now: u64, process: &str| shop.ask(&format!("--now {now} mailbox claim m1 --as crew --process {process}"));
    let granted = claim(1000, A).granted();
    assert_eq!(
        (&granted["token"], &granted["expires_at_ms"]),
        (&1.into(), &901_000.into())
    );
    assert_eq!(
        (granted["body"].as_str(), granted["sender"].as_str()),
        (Some("Restock vanilla"), Some("lucy"))
    );
    assert_eq!((&granted["retries"], &granted["deliveries"]), (&0.into(), &1.into()));
    let same = claim(2000, A).granted();
    assert_eq!(
        (&same["token"], &same["expires_at_ms"], &same["renewed"]),
        (&1.into(), &901_000.into(), &true.into())
    );

    let held = claim(2000, B).refused("message_held");
    assert_eq!(held.get("held_token"), None, "never for messages");
    assert_eq!(held["holder_process"], A);
    shop.ask("--now 2000 mailbox claim m1 --as somebody")
        .refused("wrong_recipient");
    shop.ask("--now 2000 mailbox claim nothing --as crew")
        .refused("message_missing");

    let fresh = claim(901_000, B).granted();
    assert_eq!(
        (&fresh["token"], &fresh["retries"], &fresh["deliveries"]),
        (&2.into(), &1.into(), &2.into())
    );
    let complete = |process: &str, token: u64| {
        shop.ask(&format!(
            "--now 902000 mailbox complete m1 --as crew --process {process} --token {token} --result 40"
        ))
    };
    complete(A, 1).refused("fencing_token_stale");
    complete(A, 2).refused("not_claimant");
    assert_eq!(complete(B, 99).refused("fencing_token_stale")["never_issued"], true);
    assert_eq!(complete(B, 2).done()["state"], "DONE");
    complete(B, 2).already_done();
    claim(902_000, A).refused("message_finished");
    let shown = shop.ask("mailbox show m1").json;
    assert_eq!(
        (shown["state"].as_str(), shown["result"].as_str(), &shown["last_token"]),
        (Some("DONE"), Some("40"), &2.into())
    );
}

#[test]
fn a_message_that_is_sent_twice_is_one_message() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 vanilla").done();
    shop.ask("mailbox send --to crew --id m1 vanilla").already_done();
    shop.ask("mailbox send --to crew --id m1 chocolate")
        .refused("message_exists");
    let first = shop.ask("mailbox send --to crew vanilla").done();
    let second = shop.ask("mailbox send --to crew vanilla").done();
    assert_ne!(first["message"], second["message"]);
}

#[test]
fn a_message_waits_until_it_is_due() {
    let shop = Shop::new();
    shop.ask("--now 1000 mailbox send --to crew --id m1 --not-before 5000 x")
        .done();
    let refused = shop
        .ask("--now 4999 mailbox claim m1 --as crew")
        .refused("message_not_due");
    assert_eq!(refused["due_at_ms"], 5000);
    assert_eq!(
        shop.ask("--now 4999 mailbox claim-next --as crew").json,
        serde_json::json!([])
    );
    shop.ask("--now 5000 mailbox claim m1 --as crew").granted();
}

#[test]
fn claim_next_goes_by_priority_then_age() {
    let shop = Shop::new();
    for (id, priority) in [("late", "-5"), ("first", "0"), ("second", "0"), ("urgent", "10")] {
        shop.ask(&format!("mailbox send --to crew --id {id} --priority {priority} x"))
            .done();
    }
    let reply = shop.ask(&format!("mailbox claim-next --as crew --process {A} -n 3"));
    assert_eq!(reply.status, 0);
    let ids: Vec<&str> = reply
        .json
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["message"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["urgent", "first", "second"]);
    let tokens: Vec<u64> = reply
        .json
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["token"].as_u64().unwrap())
        .collect();
    assert_eq!(tokens, [1, 2, 3]);
    // Never a live one, the caller's own included.
    let rest = shop
        .ask(&format!("mailbox claim-next --as crew --process {A} -n 3"))
        .json;
    assert_eq!(
        (rest.as_array().unwrap().len(), rest[0]["message"].as_str()),
        (1, Some("late"))
    );
    let none = shop.ask("mailbox claim-next --as crew");
    assert_eq!((none.status, none.json), (0, serde_json::json!([])));
    let refused = shop.ask(&format!("mailbox claim-next --as crew --process {A} --lease-token 9"));
    refused.refused("actor_lease_lost");
}

#[test]
fn claim_next_waits_for_a_message() {
    let shop = Shop::open();
    let waiting = shop
        .command()
        .args(["--json", "mailbox", "claim-next", "--as", "crew", "--wait", "60s"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    shop.ask("mailbox send --to crew --id m1 vanilla").done();
    let reply = crate::support::reply(&crate::support::finish(waiting));
    assert_eq!((reply.status, reply.json[0]["message"].as_str()), (0, Some("m1")));
    let empty = shop.ask("mailbox claim-next --as crew --wait 20ms");
    assert_eq!((empty.status, empty.json), (0, serde_json::json!([])));
}

#[test]
fn completing_can_claim_the_next_one_in_the_same_step() {
    let shop = Shop::new();
    for id in ["m1", "m2"] {
        shop.ask(&format!("mailbox send --to crew --id {id} x")).done();
    }
    shop.ask(&format!("mailbox claim m1 --as crew --process {A}")).granted();
    let done = shop
        .ask(&format!("mailbox complete m1 --as crew --process {A} --token 1 --next"))
        .done();
    assert_eq!(
        (done["state"].as_str(), done["next"]["message"].as_str()),
        (Some("DONE"), Some("m2"))
    );
    assert_eq!(
        (done["next"]["outcome"].as_str(), &done["next"]["token"]),
        (Some("granted"), &2.into())
    );
    let done = shop
        .ask(&format!("mailbox complete m2 --as crew --process {A} --token 2 --next"))
        .done();
    assert_eq!(done["next"], serde_json::Value::Null);
    shop.ask("mailbox send --to crew --id m3 x").done();
    let stale = format!("mailbox complete m2 --as crew --process {A} --token 1 --next");
    shop.ask(&stale).refused("message_finished");
    assert_eq!(shop.ask("mailbox show m3").json["state"], "NEW");
}

#[test]
fn a_claim_is_extended_only_while_it_is_live() {
    let shop = Shop::new();
    shop.ask("--now 1000 mailbox send --to crew --id m1 x").done();
    shop.ask(&format!(
        "--now 1000 mailbox claim m1 --as crew --process {A} --ttl 10s"
    ))
    .granted();
    let extend = |now: u64, token: u64| {
        shop.ask(&format!(
            "--now {now} mailbox extend m1 --as crew --process {A} --token {token} --ttl 20s"
        ))
    };
    assert_eq!(extend(2000, 1).granted()["expires_at_ms"], 22_000);
    extend(2000, 2).refused("fencing_token_stale");
    extend(22_000, 1).refused("claim_lapsed");
    // Lapsed and not taken over: it may still complete.
    shop.ask(&format!(
        "--now 23000 mailbox complete m1 --as crew --process {A} --token 1"
    ))
    .done();
}

#[test]
fn giving_back_costs_nothing_and_retrying_ends_dead() {
    let shop = Shop::new();
    shop.ask("--now 1000 mailbox send --to crew --id m1 x").done();
    let claim = || {
        shop.ask(&format!("--now 1000 mailbox claim m1 --as crew --process {A}"))
            .granted()["token"]
            .clone()
    };
    let token = claim();
    let give_back = format!("--now 1000 mailbox give-back m1 --as crew --process {A} --token {token}");
    assert_eq!(shop.ask(&give_back).done()["state"], "NEW");
    shop.ask(&give_back).already_done();
    assert_eq!(shop.ask("mailbox show m1").json["retries"], 0);
    for state in ["NEW", "NEW", "NEW", "DEAD"] {
        let token = claim();
        let retry = format!("--now 1000 mailbox retry m1 --as crew --process {A} --token {token} --reason busy");
        assert_eq!(shop.ask(&retry).done()["state"], state);
        assert_eq!(shop.ask(&retry).already_done()["state"], state);
        shop.ask(&give_back).refused(if state == "NEW" {
            "fencing_token_stale"
        } else {
            "message_finished"
        });
    }
    let dead = shop.ask("mailbox show m1").json;
    assert_eq!(
        (dead["state"].as_str(), &dead["retries"], dead["body"].as_str()),
        (Some("DEAD"), &3.into(), Some("x"))
    );
    assert_eq!(
        (dead["cause"].as_str(), dead["reason"].as_str()),
        (Some("retries_exhausted"), Some("busy"))
    );

    let new = shop.ask("mailbox redrive m1").done();
    assert_eq!(new["redrive_of"], "m1");
    let again = shop.ask("mailbox redrive m1").already_done();
    assert_eq!(again["message"], new["message"]);
    shop.ask(&format!("mailbox redrive {}", new["message"].as_str().unwrap()))
        .refused("message_not_dead");
    shop.ask("mailbox redrive nothing").refused("message_missing");
}

#[test]
fn a_retry_can_be_delayed() {
    let shop = Shop::new();
    shop.ask("--now 1000 mailbox send --to crew --id m1 x").done();
    shop.ask(&format!("--now 1000 mailbox claim m1 --as crew --process {A}"))
        .granted();
    shop.ask(&format!(
        "--now 1000 mailbox retry m1 --as crew --process {A} --token 1 --delay 30s"
    ))
    .done();
    let refused = shop
        .ask("--now 30999 mailbox claim m1 --as crew")
        .refused("message_not_due");
    assert_eq!(refused["due_at_ms"], 31_000);
    shop.ask("--now 31000 mailbox claim m1 --as crew").granted();
}

#[test]
fn dead_letters_are_the_holders_or_the_operators() {
    let shop = Shop::new();
    for id in ["m1", "m2"] {
        shop.ask(&format!("mailbox send --to crew --id {id} x")).done();
    }
    shop.ask(&format!("mailbox claim m1 --as crew --process {A}")).granted();
    shop.ask("mailbox dead-letter m1 --operator --reason mistake")
        .refused("message_held");
    let holder = format!("mailbox dead-letter m1 --as crew --process {A}");
    shop.ask(&format!("{holder} --token 2 --reason bad"))
        .refused("fencing_token_stale");
    shop.ask(&format!("{holder} --token 1 --reason bad")).done();
    shop.ask(&format!("{holder} --token 1 --reason bad")).already_done();
    assert_eq!(shop.ask("mailbox show m1").json["cause"], "dead_lettered");
    shop.ask("mailbox dead-letter m2 --operator --reason mistake").done();
    shop.ask("mailbox dead-letter m2 --operator --reason mistake")
        .already_done();
    assert_eq!(shop.ask("mailbox show m2").json["cause"], "operator");
    shop.ask("mailbox dead-letter m3 --operator --reason mistake")
        .refused("message_missing");
    shop.ask("mailbox dead-letter m2 --operator --reason another")
        .refused("message_finished");
    for wrong in [
        "mailbox dead-letter m2 --operator",
        "mailbox dead-letter m2 --reason x",
        "mailbox dead-letter m2 --as crew --reason x",
        "mailbox dead-letter m2 --as crew --token 1 --operator --reason x",
    ] {
        shop.ask(wrong).wrong_usage();
    }
}

#[test]
fn an_operator_dead_letters_what_a_lost_worker_left_behind() {
    let shop = Shop::new();
    shop.ask("--now 1000 mailbox send --to crew --id m1 x").done();
    shop.ask("--now 1000 mailbox claim m1 --as crew --ttl 10s").granted();
    let dead_letter = |now: u64| {
        shop.ask(&format!(
            "--now {now} mailbox dead-letter m1 --operator --reason mistake"
        ))
    };
    dead_letter(10_999).refused("message_held");
    dead_letter(11_000).done();
    dead_letter(12_000).already_done();
    let dead = shop.ask("mailbox show m1").json;
    assert_eq!(
        (dead["state"].as_str(), dead["cause"].as_str(), dead["reason"].as_str()),
        (Some("DEAD"), Some("operator"), Some("mistake"))
    );
    assert_eq!(dead["retries"], 1, "the lapse was counted");
    let events = shop.ask("events").json;
    let kinds: Vec<&str> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["message.sent", "message.claimed", "message.lapsed", "message.dead"]
    );
}

#[test]
fn a_repetition_with_another_outcome_is_another_request() {
    let shop = Shop::new();
    shop.ask("--now 1000 mailbox send --to crew --id m1 x").done();
    shop.ask(&format!("--now 1000 mailbox claim m1 --as crew --process {A}"))
        .granted();
    let retry = |now: u64, with: &str| {
        shop.ask(&format!(
            "--now {now} mailbox retry m1 --as crew --process {A} --token 1 {with}"
        ))
    };
    retry(1000, "--reason busy --delay 30s").done();
    // At another moment it is still the same call.
    retry(2000, "--reason busy --delay 30s").already_done();
    for other in [
        "--reason busy --delay 60s",
        "--reason busy",
        "--reason closed --delay 30s",
    ] {
        retry(2000, other).refused("fencing_token_stale");
    }
    assert_eq!(shop.ask("mailbox show m1").json["not_before_ms"], 31_000);
}

#[test]
fn what_belongs_to_the_next_claim_is_refused_without_one() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 x").done();
    shop.ask("mailbox claim m1 --as crew").granted();
    for option in ["--ttl 5m", "--lease-token 1"] {
        let reason = shop
            .ask(&format!("mailbox complete m1 --as crew --token 1 {option}"))
            .wrong_usage()["reason"]
            .to_string();
        assert!(reason.contains("--next"), "{reason}");
    }
    shop.ask("mailbox complete m1 --as crew --token 1 --next --ttl 5m")
        .done();
}

#[test]
fn an_inbox_sweeps_and_a_show_does_not() {
    let shop = Shop::new();
    shop.ask("--now 1000 mailbox send --to crew --id m1 x").done();
    shop.ask("--now 1000 mailbox claim m1 --as crew --ttl 10s").granted();
    let shown = shop.ask("--now 11000 mailbox show m1").json;
    assert_eq!(
        (shown["state"].as_str(), &shown["live"]),
        (Some("CLAIMED"), &false.into())
    );
    assert_eq!(shown["lapses_to"], "NEW");
    let events = shop.events();
    let inbox = shop.ask("--now 11000 mailbox inbox crew").json;
    assert_eq!(
        (inbox[0]["state"].as_str(), &inbox[0]["retries"]),
        (Some("NEW"), &1.into())
    );
    assert_eq!(shop.events(), events + 1);
    shop.ask("--now 11000 mailbox complete m1 --as crew --token 1")
        .refused("fencing_token_stale");
    assert_eq!(shop.ask("mailbox inbox nobody").json, serde_json::json!([]));
}

#[test]
fn a_message_claim_can_descend_from_an_actor_lease() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 x").done();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    let claim = format!("mailbox claim m1 --as crew --process {A} --lease-token 1");
    assert_eq!(shop.ask(&claim).granted()["lease_token"], 1);
    // A claim that is kept says what it descends from, whether the ask did or not.
    let kept = shop.ask(&format!("mailbox claim m1 --as crew --process {A}")).granted();
    assert_eq!((&kept["renewed"], &kept["lease_token"]), (&true.into(), &1.into()));
    assert_eq!(shop.ask("mailbox show m1").json["live"], true);
    shop.ask("revoke actor crew --reason stolen").done();
    shop.ask(&format!("mailbox complete m1 --as crew --process {A} --token 2"))
        .refused("actor_lease_lost");
    // No call under it is accepted, and nobody else gets the message before it expires.
    let shown = shop.ask("mailbox show m1").json;
    assert_eq!(
        (&shown["live"], &shown["lease_lost"], shown.get("lapses_to")),
        (&false.into(), &true.into(), None)
    );
    assert_eq!(shop.ask("status").json["claims"][0]["live"], false);
    shop.ask(&format!("mailbox claim m1 --as crew --process {B}"))
        .refused("message_held");
}

#[test]
fn a_replayed_delivery_says_whether_it_is_still_live() {
    let shop = Shop::new();
    for id in ["m1", "m2"] {
        shop.ask(&format!("--now 1000 mailbox send --to crew --id {id} x"))
            .done();
    }
    let claim = |now: u64| {
        let replies = shop
            .ask(&format!(
                "--now {now} --request r1 mailbox claim-next --as crew --process {A} -n 2 --ttl 10s"
            ))
            .json;
        replies.as_array().unwrap().clone()
    };
    assert_eq!(claim(1000)[0].get("live"), None);
    shop.ask(&format!(
        "--now 2000 mailbox extend m2 --as crew --process {A} --token 2 --ttl 60s"
    ))
    .granted();
    let replayed = claim(13_000);
    assert_eq!(
        (
            &replayed[0]["replayed"],
            &replayed[0]["live"],
            &replayed[0]["lapsed_ms"]
        ),
        (&true.into(), &false.into(), &2000.into())
    );
    assert_eq!(
        (
            &replayed[1]["replayed"],
            &replayed[1]["live"],
            replayed[1].get("lapsed_ms")
        ),
        (&true.into(), &true.into(), None),
        "extended meanwhile"
    );
}
