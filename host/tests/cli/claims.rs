//! The rows of actors, assignments and attempts, revocation and request ids: success, refusal and bad input of each.

use crate::support::{A, B, Shop};

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
    let refused = shop
        .ask("assignment create third --actor crew --retry-of nothing")
        .refused("assignment_missing");
    assert_eq!(
        refused["reason"],
        "create assignment `third` as a retry of `nothing`: assignment missing"
    );
    let shown = shop.ask("assignment show again").json;
    assert_eq!(
        (shown["state"].as_str(), shown["retry_of"].as_str()),
        (Some("CREATED"), Some("close"))
    );
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
    let done = shop.ask("revoke message m1 --reason hangs").done();
    assert_eq!((done["reason"].as_str(), done.get("why")), (Some("hangs"), None));
    shop.ask(&format!("mailbox claim m1 --as crew --process {A}")).granted();
    for (kind, name, token) in [
        ("session", "chat", 5),
        ("host", "kiosk-a", 4),
        ("message", "m1", 6),
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
        .request_misused();
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
fn a_name_that_is_not_on_the_ledger_is_shown_as_unknown_and_holds_nothing() {
    let shop = Shop::open();
    for kind in ["actor", "assignment", "host", "mailbox", "session"] {
        let shown = shop.ask(&format!("{kind} show unheard-of"));
        assert_eq!((shown.status, &shown.json["known"]), (0, &false.into()), "{kind}");
        assert_eq!(shown.json.get("outcome"), None, "{kind}");
    }
    for kind in ["actor", "attempt", "host", "message", "session"] {
        let done = shop.ask(&format!("revoke {kind} unheard-of --reason x")).done();
        assert_eq!(done["revoked"], false, "{kind}");
    }
    assert_eq!(shop.events(), 0);
}

#[test]
fn a_stale_release_is_no_event_but_a_recorded_refusal() {
    let shop = Shop::new();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    let release = |token: u64| {
        shop.ask(&format!("actor release crew --process {B} --token {token}"))
            .done()
    };
    let stale = release(1);
    assert_eq!((&stale["released"], stale.get("never_issued")), (&false.into(), None));
    let made_up = release(99);
    assert_eq!(
        (&made_up["released"], &made_up["never_issued"]),
        (&false.into(), &true.into())
    );
    assert_eq!(shop.events(), 1, "only the acquisition");
    assert_eq!(shop.ask("status").json["refusals"], 2);
    for other in [
        format!("host release kiosk-a --process {A} --token 99"),
        format!("attempt release close --attempt att_{} --token 99", "a".repeat(32)),
        "session release chat --host kiosk-a --incarnation 1 --token 99 --host-token 98".to_owned(),
    ] {
        let made_up = shop.ask(&other).done();
        assert_eq!(
            (&made_up["released"], &made_up["never_issued"]),
            (&false.into(), &true.into()),
            "{other}"
        );
    }
    assert_eq!(shop.ask("status").json["refusals"], 5);
}

#[test]
fn a_replayed_grant_says_whether_it_is_still_live() {
    let shop = Shop::new();
    let live = |reply: &serde_json::Value| {
        (
            reply["replayed"].as_bool(),
            reply["live"].as_bool(),
            reply["lapsed_ms"].as_u64(),
        )
    };
    let actor = |now: u64| {
        shop.ask(&format!(
            "--now {now} --request r1 actor acquire crew --process {A} --ttl 10s"
        ))
        .granted()
    };
    assert_eq!(live(&actor(1000)), (None, None, None));
    assert_eq!(live(&actor(10_999)), (Some(true), Some(true), None));
    let lapsed = actor(15_000);
    assert_eq!(live(&lapsed), (Some(true), Some(false), Some(4000)));
    assert_eq!(lapsed["expires_at_ms"], 11_000, "the first answer");
    assert!(lapsed["next"].as_str().unwrap().contains("begin nothing"), "{lapsed}");
    let (status, text, _) = shop.say(&format!(
        "--now 15000 --request r1 actor acquire crew --process {A} --ttl 10s"
    ));
    assert_eq!(status, 0);
    assert!(
        text.contains("live") && text.contains("lapsed") && text.contains("4s"),
        "{text}"
    );

    // Renewed by the same process meanwhile: what is told is how the lease stands.
    let host = |now: u64, request: &str| {
        shop.ask(&format!(
            "--now {now} {request} host register kiosk-a --process {A} --ttl 10s"
        ))
        .granted()
    };
    let token = host(1000, "--request r2")["token"].clone();
    host(8000, "");
    assert_eq!(live(&host(12_000, "--request r2")), (Some(true), Some(true), None));
    let session = |now: u64| {
        shop.ask(&format!(
            "--now {now} --request r3 session claim chat --host kiosk-a --process {A} --host-token {token}"
        ))
        .granted()
    };
    session(12_000);
    // The session's own lease lasts; its host's does not.
    assert_eq!(live(&session(19_000)), (Some(true), Some(false), None));

    shop.ask("assignment create close --actor team").done();
    let lease = shop
        .ask(&format!("--now 1000 actor acquire team --process {A}"))
        .granted()["token"]
        .clone();
    let attempt = || {
        shop.ask(&format!(
            "--now 2000 --request r4 attempt acquire close --actor team --process {A} --lease-token {lease}"
        ))
        .granted()
    };
    attempt();
    assert_eq!(live(&attempt()), (Some(true), Some(true), None));
    shop.ask("revoke actor team --reason stolen").done();
    assert_eq!(live(&attempt()), (Some(true), Some(false), None), "its lease is gone");
}

#[test]
fn a_request_id_belongs_to_who_asks_and_not_to_whom_it_is_about() {
    let shop = Shop::new();
    // Nobody in particular asks: the same id for another recipient is another call of the same caller.
    shop.ask("--request r1 mailbox send --to crew x").done();
    shop.ask("--request r1 mailbox send --to others x").request_misused();
    shop.ask("--request r1 mailbox send --to crew --from lucy x").done();
    shop.ask(&format!("--request r1 mailbox send --to crew --process {A} x"))
        .done();
    shop.ask("--request r2 assignment create one --actor crew").done();
    shop.ask("--request r2 assignment create two --actor others")
        .request_misused();
    // The operator is one caller.
    for id in ["m1", "m2"] {
        shop.ask(&format!("mailbox send --to crew --id {id} x")).done();
    }
    shop.ask("--request r3 mailbox dead-letter m1 --operator --reason x")
        .done();
    shop.ask("--request r3 mailbox dead-letter m2 --operator --reason x")
        .request_misused();
    let redrive = "--request r4 mailbox redrive m1";
    let (first, again) = (shop.ask(redrive).done(), shop.ask(redrive).done());
    assert_eq!(
        (&again["message"], &again["replayed"]),
        (&first["message"], &true.into())
    );
    shop.ask("--request r4 mailbox redrive m2").request_misused();
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
