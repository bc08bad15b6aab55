//! The rows of the table that claim, renew, finish and show: success, refusal and bad input of each.

mod cli_common;

use cli_common::{A, B, Shop};

#[test]
fn an_actor_has_one_process_at_a_time() {
    let shop = Shop::new();
    let granted = shop
        .ask(&format!("--now 1000 actor acquire crew --process {A} --ttl 5m"))
        .granted();
    assert_eq!(granted["token"], 1);
    assert_eq!(granted["expires_at_ms"], 301_000);
    assert_eq!(
        (granted["actor"].as_str(), granted["process"].as_str()),
        (Some("crew"), Some(A))
    );
    assert_eq!(granted["renewed"], false);

    let refused = shop
        .ask(&format!("--now 2000 actor acquire crew --process {B}"))
        .refused("actor_lease_held");
    assert_eq!(
        (refused["holder"].as_str(), refused["holder_process"].as_str()),
        (Some("crew"), Some(A))
    );
    assert_eq!(
        (&refused["held_token"], &refused["expires_at_ms"]),
        (&1.into(), &301_000.into())
    );
    // Strict for the holder too, unless it asks for the idempotent form.
    shop.ask(&format!("--now 2000 actor acquire crew --process {A}"))
        .refused("actor_lease_held");
    let renewed = shop
        .ask(&format!("--now 2000 actor acquire crew --process {A} --or-renew"))
        .granted();
    assert_eq!((&renewed["token"], &renewed["renewed"]), (&1.into(), &true.into()));
    assert_eq!(renewed["expires_at_ms"], 302_000);

    let renewed = shop
        .ask(&format!(
            "--now 3000 actor renew crew --process {A} --token 1 --ttl 10m"
        ))
        .granted();
    assert_eq!(
        (&renewed["expires_at_ms"], &renewed["renewed"]),
        (&603_000.into(), &true.into())
    );
    shop.ask(&format!("--now 3000 actor renew crew --process {B} --token 1"))
        .refused("actor_lease_lost");
    let never = shop
        .ask(&format!("--now 3000 actor renew crew --process {A} --token 99"))
        .refused("actor_lease_lost");
    assert_eq!(never["never_issued"], true);

    let stale = shop
        .ask(&format!("--now 3000 actor release crew --process {B} --token 1"))
        .done();
    assert_eq!(stale["released"], false);
    let own = shop
        .ask(&format!("--now 3000 actor release crew --process {A} --token 1"))
        .done();
    assert_eq!(own["released"], true);
    shop.ask(&format!("--now 3000 actor release crew --process {A} --token 1"))
        .already_done();

    let granted = shop
        .ask(&format!("--now 3000 actor acquire crew --process {B}"))
        .granted();
    assert_eq!(granted["token"], 2);
}

#[test]
fn an_actor_is_shown_as_it_stands_at_now_and_nothing_is_written() {
    let shop = Shop::new();
    shop.ask(&format!("--now 1000 actor acquire crew --process {A} --ttl 5m"))
        .granted();
    let events = shop.events();
    let held = shop.ask("--now 2000 actor show crew").json;
    assert_eq!(
        (held["state"].as_str(), &held["live"], &held["token"]),
        (Some("HELD"), &true.into(), &1.into())
    );
    assert_eq!(
        (&held["since_ms"], &held["expires_at_ms"]),
        (&1000.into(), &301_000.into())
    );
    let lapsed = shop.ask("--now 301000 actor show crew").json;
    assert_eq!(
        (lapsed["state"].as_str(), &lapsed["live"]),
        (Some("LAPSED"), &false.into())
    );
    let all = shop.ask("--now 2000 actor show").json;
    assert_eq!(all.as_array().unwrap().len(), 1);
    assert_eq!(all[0], held);
    assert_eq!(shop.ask("actor show nobody").json["state"], "FREE");
    assert_eq!(shop.events(), events);
    // Still live at the moment it was shown as lapsed: nothing was written.
    shop.ask(&format!("--now 300999 actor renew crew --process {A} --token 1"))
        .granted();
}

#[test]
fn an_assignment_is_created_once() {
    let shop = Shop::new();
    let done = shop.ask("assignment create close --actor crew").done();
    assert_eq!(
        (done["assignment"].as_str(), done["actor"].as_str()),
        (Some("close"), Some("crew"))
    );
    shop.ask("assignment create close --actor crew").already_done();
    shop.ask("assignment create close --actor other")
        .refused("assignment_exists");
    shop.ask("assignment create again --actor crew --retry-of close").done();
    shop.ask("assignment create third --actor crew --retry-of nothing")
        .refused("assignment_missing");
    let shown = shop.ask("assignment show again").json;
    assert_eq!(
        (shown["state"].as_str(), shown["retry_of"].as_str()),
        (Some("CREATED"), Some("close"))
    );
    shop.ask("assignment show nothing").refused("assignment_missing");
    assert_eq!(shop.ask("assignment show").json.as_array().unwrap().len(), 2);
}

#[test]
fn an_attempt_descends_from_the_lease_that_is_current() {
    let shop = Shop::new();
    shop.ask("assignment create close --actor crew").done();
    let acquire = |now: u64, lease_token: u64| {
        shop.ask(&format!(
            "--now {now} attempt acquire close --actor crew --process {A} --lease-token {lease_token}"
        ))
    };
    acquire(1000, 1).refused("actor_lease_lost");
    shop.ask(&format!("--now 1000 actor acquire crew --process {A}"))
        .granted();
    let missing = format!("--now 1000 attempt acquire nothing --actor crew --process {A} --lease-token 1");
    shop.ask(&missing).refused("assignment_missing");
    shop.ask(&format!("--now 1000 actor acquire other --process {B}"))
        .granted();
    let wrong = format!("--now 1000 attempt acquire close --actor other --process {B} --lease-token 2");
    shop.ask(&wrong).refused("wrong_actor");

    let granted = acquire(1000, 1).granted();
    let (attempt, token) = (granted["attempt"].as_str().unwrap(), &granted["token"]);
    assert!(attempt.starts_with("att_"));
    assert_eq!((token, &granted["expires_at_ms"]), (&3.into(), &901_000.into()));
    let held = acquire(1000, 1).refused("execution_attempt_held");
    assert_eq!(held["held_token"], 3);
    let shown = shop.ask("--now 1000 assignment show close").json;
    assert_eq!(
        (shown["state"].as_str(), &shown["live"]),
        (Some("RUNNING"), &true.into())
    );

    let grant = format!("close --attempt {attempt} --token {token}");
    shop.ask(&format!("--now 2000 attempt renew {grant}")).granted();
    shop.ask(&format!("--now 2000 attempt renew close --attempt {attempt} --token 1"))
        .refused("execution_attempt_lost");
    let stale = shop
        .ask(&format!(
            "--now 2000 attempt release close --attempt {attempt} --token 1"
        ))
        .done();
    assert_eq!(stale["released"], false);
    let done = shop.ask(&format!("--now 2000 attempt release {grant}")).done();
    assert_eq!(done["released"], true);
    shop.ask(&format!("--now 2000 attempt release {grant}")).already_done();
    assert_eq!(shop.state("close"), "CREATED");
}

#[test]
fn an_attempt_finishes_once_with_what_it_said() {
    for (state, shown) in [("completed", "COMPLETED"), ("blocked", "BLOCKED"), ("failed", "FAILED")] {
        let shop = Shop::new();
        shop.ask("assignment create close --actor crew").done();
        shop.ask(&format!("actor acquire crew --process {A}")).granted();
        let granted = shop
            .ask(&format!(
                "attempt acquire close --actor crew --process {A} --lease-token 1"
            ))
            .granted();
        let grant = format!(
            "close --attempt {} --token {}",
            granted["attempt"].as_str().unwrap(),
            granted["token"]
        );
        let finish = format!("attempt finish {grant} --state {state} --result till:312.40");
        assert_eq!(shop.ask(&finish).done()["state"], shown);
        shop.ask(&finish).already_done();
        shop.ask(&format!("{finish}0")).refused("execution_attempt_lost");
        let row = shop.ask("assignment show close").json;
        assert_eq!(
            (row["state"].as_str(), row["result"].as_str()),
            (Some(shown), Some("till:312.40"))
        );
        let again = format!("attempt acquire close --actor crew --process {A} --lease-token 1");
        shop.ask(&again).refused("assignment_finished");
    }
}

#[test]
fn a_finish_is_refused_once_the_lease_was_released() {
    let shop = Shop::new();
    shop.ask("assignment create close --actor crew").done();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    let granted = shop
        .ask(&format!(
            "attempt acquire close --actor crew --process {A} --lease-token 1"
        ))
        .granted();
    let grant = format!(
        "close --attempt {} --token {}",
        granted["attempt"].as_str().unwrap(),
        granted["token"]
    );
    shop.ask(&format!("actor release crew --process {A} --token 1")).done();
    shop.ask(&format!("attempt finish {grant} --state completed"))
        .refused("actor_lease_lost");
    assert_eq!(shop.ask("assignment show close").json["live"], false);
}

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
    let reply = cli_common::reply(&cli_common::finish(waiting));
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
        (dead["cause"].as_str(), dead["why"].as_str()),
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
    shop.ask("mailbox show nothing").refused("message_missing");
}

#[test]
fn a_message_claim_can_descend_from_an_actor_lease() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 x").done();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    shop.ask(&format!("mailbox claim m1 --as crew --process {A} --lease-token 1"))
        .granted();
    shop.ask("revoke actor crew --reason stolen").done();
    shop.ask(&format!("mailbox complete m1 --as crew --process {A} --token 2"))
        .refused("actor_lease_lost");
}

#[test]
fn a_host_speaks_through_one_process() {
    let shop = Shop::new();
    let register =
        |now: u64, process: &str| shop.ask(&format!("--now {now} host register kiosk-a --process {process}"));
    let granted = register(1000, A).granted();
    assert_eq!(
        (&granted["token"], &granted["expires_at_ms"]),
        (&1.into(), &61_000.into())
    );
    assert_eq!(register(2000, A).granted()["renewed"], true);
    register(2000, B).refused("host_lease_held");
    shop.ask(&format!("--now 2000 host renew kiosk-a --process {A} --token 1"))
        .granted();
    shop.ask(&format!("--now 2000 host renew kiosk-a --process {B} --token 1"))
        .refused("host_lease_lost");
    let stale = shop
        .ask(&format!("--now 2000 host release kiosk-a --process {A} --token 7"))
        .done();
    assert_eq!(stale["released"], false);
    shop.ask(&format!("--now 2000 host release kiosk-a --process {A} --token 1"))
        .done();
    shop.ask(&format!("--now 2000 host release kiosk-a --process {A} --token 1"))
        .already_done();
    assert_eq!(register(2000, B).granted()["token"], 2);
    assert_eq!(shop.ask("--now 2000 host show kiosk-a").json["state"], "HELD");
    assert_eq!(shop.ask("--now 2000 host show").json.as_array().unwrap().len(), 1);
}

#[test]
fn a_session_moves_between_hosts_and_an_old_run_cannot_finish_it() {
    let shop = Shop::new();
    let register = |now: u64, host: &str, process: &str| {
        shop.ask(&format!("--now {now} host register {host} --process {process}"))
            .granted()["token"]
            .clone()
    };
    let claim = |now: u64, host: &str, process: &str, host_token: &serde_json::Value| {
        shop.ask(&format!(
            "--now {now} session claim chat --host {host} --process {process} --host-token {host_token}"
        ))
    };
    let host_a = register(1000, "kiosk-a", A);
    let first = claim(1000, "kiosk-a", A, &host_a).granted();
    assert_eq!(
        (&first["incarnation"], &first["token"], &first["host_token"]),
        (&1.into(), &2.into(), &host_a)
    );
    let again = claim(2000, "kiosk-a", A, &host_a).granted();
    assert_eq!(
        (&again["incarnation"], &again["token"], &again["renewed"]),
        (&1.into(), &2.into(), &true.into())
    );
    claim(2000, "kiosk-a", A, &9.into()).refused("host_lease_lost");
    let host_b = register(2000, "kiosk-b", B);
    let held = claim(2000, "kiosk-b", B, &host_b).refused("session_held");
    assert_eq!(held["holder"], "kiosk-a");

    // A(1), B(2), A(3).
    let host_b = register(100_000, "kiosk-b", B);
    let second = claim(100_000, "kiosk-b", B, &host_b).granted();
    let host_a_again = register(200_000, "kiosk-a", A);
    let third = claim(200_000, "kiosk-a", A, &host_a_again).granted();
    assert_eq!((&second["incarnation"], &third["incarnation"]), (&2.into(), &3.into()));
    let finish = |incarnation: &serde_json::Value, token: &serde_json::Value, host_token: &serde_json::Value| {
        shop.ask(&format!(
            "--now 201000 session finish chat --host kiosk-a --incarnation {incarnation} --token {token} --host-token {host_token} --result agreed"
        ))
    };
    finish(&first["incarnation"], &first["token"], &host_a).refused("session_claim_stale");
    // Right in everything but the incarnation.
    finish(&first["incarnation"], &third["token"], &host_a_again).refused("session_claim_stale");
    let shown = shop.ask("--now 201000 session show chat").json;
    assert_eq!(
        (shown["state"].as_str(), &shown["live"]),
        (Some("CLAIMED"), &true.into())
    );
    finish(&third["incarnation"], &third["token"], &host_a_again).done();
    finish(&third["incarnation"], &third["token"], &host_a_again).already_done();
    let shown = shop.ask("session show chat").json;
    assert_eq!(
        (shown["state"].as_str(), shown["result"].as_str()),
        (Some("FINISHED"), Some("agreed"))
    );
    claim(201_000, "kiosk-a", A, &host_a_again).refused("session_finished");
}

#[test]
fn a_released_session_is_claimed_as_the_next_incarnation() {
    let shop = Shop::new();
    shop.ask(&format!("--now 1000 host register kiosk-a --process {A}"))
        .granted();
    let claim = format!("--now 1000 session claim chat --host kiosk-a --process {A} --host-token 1");
    shop.ask(&claim).granted();
    let release = |incarnation: u64| {
        shop.ask(&format!(
            "--now 1000 session release chat --host kiosk-a --incarnation {incarnation} --token 2 --host-token 1"
        ))
    };
    assert_eq!(release(2).done()["released"], false);
    assert_eq!(release(1).done()["released"], true);
    release(1).already_done();
    assert_eq!(shop.ask("session show chat").json["state"], "FREE");
    assert_eq!(shop.ask(&claim).granted()["incarnation"], 2);
    assert_eq!(shop.ask("session show unheard-of").json["known"], false);
    assert_eq!(shop.ask("session show").json.as_array().unwrap().len(), 1);
}

#[test]
fn an_operator_can_always_revoke() {
    let shop = Shop::new();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    shop.ask("assignment create close --actor crew").done();
    shop.ask(&format!(
        "attempt acquire close --actor crew --process {A} --lease-token 1"
    ))
    .granted();
    shop.ask("mailbox send --to crew --id m1 x").done();
    shop.ask(&format!("mailbox claim m1 --as crew --process {A}")).granted();
    shop.ask(&format!("host register kiosk-a --process {A}")).granted();
    shop.ask(&format!(
        "session claim chat --host kiosk-a --process {A} --host-token 4"
    ))
    .granted();
    for (kind, name, token) in [
        ("session", "chat", 5),
        ("host", "kiosk-a", 4),
        ("message", "m1", 3),
        ("attempt", "close", 2),
        ("actor", "crew", 1),
    ] {
        let done = shop.ask(&format!("revoke {kind} {name} --reason stolen")).done();
        assert_eq!(
            (&done["revoked"], &done["revoked_token"]),
            (&true.into(), &token.into()),
            "{kind}"
        );
        let nothing = shop.ask(&format!("revoke {kind} {name} --reason stolen")).done();
        assert_eq!(nothing["revoked"], false, "{kind}");
    }
    shop.ask(&format!("actor renew crew --process {A} --token 1"))
        .refused("actor_lease_lost");
    shop.ask(&format!("mailbox complete m1 --as crew --process {A} --token 3"))
        .refused("fencing_token_stale");
    let events = shop.ask("events").json;
    let revoked = events
        .as_array()
        .unwrap()
        .iter()
        .find(|event| event["event"] == "actor.revoked")
        .unwrap();
    assert_eq!(revoked["note"], "stolen");
    for wrong in [
        "revoke door crew --reason x",
        "revoke actor crew",
        "revoke actor crew --reason=",
    ] {
        shop.ask(wrong).wrong_usage();
    }
}

#[test]
fn a_call_under_a_request_id_is_answered_the_same_again() {
    let shop = Shop::new();
    let acquire = format!("--request r1 actor acquire crew --process {A}");
    let first = shop.ask(&acquire).granted();
    let again = shop.ask(&acquire).granted();
    assert_eq!((&again["token"], &again["replayed"]), (&first["token"], &true.into()));
    assert_eq!(first.get("replayed"), None);
    shop.ask(&format!("--request r1 actor acquire other --process {A}"))
        .error("request_misused");
    // Another caller's id is another id.
    shop.ask(&format!("--request r1 actor acquire crew --process {B}"))
        .refused("actor_lease_held");
    shop.ask(&format!("actor release crew --process {A} --token 1")).done();
    assert_eq!(
        shop.ask(&acquire).json["outcome"],
        "refused",
        "its grant is no longer current"
    );
}

#[test]
fn what_is_drawn_for_a_request_is_the_same_again() {
    let shop = Shop::new();
    let send = "--request r1 mailbox send --to crew vanilla";
    let (first, again) = (shop.ask(send).done(), shop.ask(send));
    assert_eq!(again.json["message"], first["message"]);
    assert_eq!(shop.ask("mailbox inbox crew").json.as_array().unwrap().len(), 1);
    assert_ne!(
        shop.ask("--request r2 mailbox send --to crew vanilla").done()["message"],
        first["message"]
    );

    shop.ask("assignment create close --actor crew").done();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    let acquire = format!("--request r3 attempt acquire close --actor crew --process {A} --lease-token 1");
    let (first, again) = (shop.ask(&acquire).granted(), shop.ask(&acquire).granted());
    assert_eq!(
        (&again["attempt"], &again["token"], &again["replayed"]),
        (&first["attempt"], &first["token"], &true.into())
    );
}
