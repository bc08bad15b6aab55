//! The operator's rows: supervise, status, events, doctor, backup, restore, prune, gate.

use std::process::Stdio;

use crate::support::{A, B, Running, Shop, finish, reply, signal, wait_for, wait_until};
use serde_json::{Value, json};

/// A shop with one of everything in use.
fn busy_shop() -> Shop {
    let shop = Shop::new();
    shop.ask(&format!("--now 1000 actor acquire crew --process {A} --ttl 5m"))
        .granted();
    shop.ask("--now 1000 assignment create close --actor crew").done();
    shop.ask(&format!(
        "--now 1000 attempt acquire close --actor crew --process {A} --lease-token 1"
    ))
    .granted();
    shop.ask("--now 1000 mailbox send --to crew --id m1 vanilla").done();
    shop.ask(&format!("--now 1000 mailbox claim m1 --as crew --process {A}"))
        .granted();
    shop.ask(&format!("--now 1000 host register kiosk-a --process {A}"))
        .granted();
    shop.ask(&format!(
        "--now 1000 session claim chat --host kiosk-a --process {A} --host-token 4"
    ))
    .granted();
    shop
}

#[test]
fn the_status_says_who_holds_what_since_and_until_when() {
    let shop = busy_shop();
    shop.ask(&format!("--now 2000 actor renew crew --process {B} --token 1"))
        .refused("actor_lease_lost");
    let status = shop.ask("--now 2000 status");
    assert_eq!(status.status, 0);
    let status = status.json;
    let claims: Vec<(&str, &str, u64, bool)> = status["claims"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| {
            let text = |key: &str| claim[key].as_str().unwrap();
            (
                text("kind"),
                text("name"),
                claim["token"].as_u64().unwrap(),
                claim["live"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        claims,
        [
            ("actor", "crew", 1, true),
            ("attempt", "close", 2, true),
            ("message", "m1", 3, true),
            ("host", "kiosk-a", 4, true),
            ("session", "chat", 5, true),
        ]
    );
    assert_eq!(
        (&status["claims"][0]["since_ms"], &status["claims"][0]["expires_at_ms"]),
        (&1000.into(), &301_000.into())
    );
    assert_eq!((&status["refusals"], &status["last_minted"]), (&1.into(), &5.into()));
    let later = shop.ask("--now 400000 status").json;
    assert_eq!((&later["actors_live"], &later["actors_lapsed"]), (&0.into(), &1.into()));
    assert_eq!(later["claims"][0]["live"], false);
    let (code, text, _) = shop.say("--now 2000 status");
    assert_eq!(code, 0);
    assert!(
        text.contains("kiosk-a") && text.contains("until") || text.contains("UNTIL"),
        "{text}"
    );
}

#[test]
fn an_expiry_that_nobody_asked_for_is_reported() {
    let shop = Shop::new();
    // The clock was an hour ahead when the lease was acquired.
    shop.ask(&format!("--now 3601000 actor acquire crew --process {A} --ttl 5m"))
        .granted();
    assert_eq!(shop.ask("--now 3601000 status").json["expiries_too_far"], 0);
    assert_eq!(shop.ask("--now 1000 status").json["expiries_too_far"], 1);
    let (_, _, stderr) = shop.say("--now 1000 status");
    assert!(stderr.contains("was a clock wrong?"), "{stderr}");
}

#[test]
fn the_history_names_each_transition_once() {
    let shop = busy_shop();
    let events = shop.ask("events").json;
    let kinds: Vec<&str> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "actor.acquired",
            "assignment.created",
            "attempt.acquired",
            "message.sent",
            "message.claimed",
            "host.registered",
            "session.claimed",
        ]
    );
    assert_eq!(
        (&events[0]["seq"], &events[0]["token"], &events[0]["at_ms"]),
        (&1.into(), &1.into(), &1000.into())
    );
    assert_eq!(
        (&events[2]["parent_token"], &events[6]["incarnation"]),
        (&1.into(), &1.into())
    );
    let since = shop.ask("events --since 5").json;
    assert_eq!(since.as_array().unwrap().len(), 2);
    // A takeover names what it replaced.
    shop.ask(&format!("--now 400000 actor acquire crew --process {B}"))
        .granted();
    let takeover = &shop.ask("events --since 7").json[0];
    assert_eq!(
        takeover["replaced"],
        json!({"holder": "crew", "process": A, "token": 1, "expires_at_ms": 301_000})
    );
}

#[test]
fn a_followed_history_goes_on_until_it_is_interrupted() {
    let shop = Shop::open();
    let out = std::fs::File::create(shop.path("followed")).unwrap();
    let follow = Running::of(
        shop.command()
            .args(["--json", "events", "--follow", "--since", "0"])
            .stdout(out),
    );
    shop.ask("assignment create one --actor crew").done();
    let seen = |count: usize| {
        let text = std::fs::read_to_string(shop.path("followed")).unwrap();
        text.lines().filter(|line| line.ends_with('}')).count() == count
    };
    wait_until("the first event is seen", || seen(1));
    shop.ask("assignment create two --actor crew").done();
    wait_until("the second event is seen", || seen(2));
    signal(follow.id(), "INT");
    assert_eq!(follow.end().status.code(), Some(0));
    let text = std::fs::read_to_string(shop.path("followed")).unwrap();
    let subjects: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["subject"].clone())
        .collect();
    assert_eq!(subjects, [json!("one"), json!("two")]);
}

#[test]
fn the_supervisor_tidies_what_has_lapsed_and_nothing_else() {
    let shop = busy_shop();
    let idle = shop.ask("--now 2000 supervise --once").done();
    assert_eq!(
        (&idle["swept"], &idle["closed"], &idle["lapsed"]),
        (&0.into(), &json!([]), &json!([]))
    );
    let tick = shop.ask("--now 2000000 supervise --once").done();
    assert_eq!((&tick["swept"], &tick["closed"]), (&1.into(), &json!(["close"])));
    let lapsed: Vec<&str> = tick["lapsed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lapsed| lapsed["name"].as_str().unwrap())
        .collect();
    assert_eq!(lapsed, ["crew", "kiosk-a", "chat"]);
    assert_eq!(shop.state("close"), "FAILED");
    assert_eq!(shop.ask("mailbox show m1").json["state"], "NEW");
    let again = shop.ask("--now 2000000 supervise --once").done();
    assert_eq!((&again["swept"], &again["closed"]), (&0.into(), &json!([])));
}

#[test]
fn the_supervisor_goes_on_until_it_is_interrupted() {
    let shop = Shop::open();
    let out = std::fs::File::create(shop.path("reported")).unwrap();
    let supervisor = Running::of(
        shop.command()
            .args(["--json", "supervise", "--interval", "20ms"])
            .stdout(out),
    );
    shop.ask("mailbox send --to crew --id m1 x").done();
    shop.ask("mailbox claim m1 --as crew --ttl 50ms").granted();
    wait_until("the lapsed claim is swept", || {
        shop.ask("mailbox show m1").json["state"] == "NEW"
    });
    wait_until("it was reported", || {
        std::fs::read_to_string(shop.path("reported")).unwrap().ends_with('\n')
    });
    signal(supervisor.id(), "TERM");
    assert_eq!(supervisor.end().status.code(), Some(0));
    let text = std::fs::read_to_string(shop.path("reported")).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["swept"], 1);
}

#[test]
fn the_doctor_finds_a_used_ledger_sound() {
    let shop = busy_shop();
    let doctor = shop.ask("doctor").done();
    assert_ne!(doctor["worst"], "damage", "{doctor}");
    assert!(doctor["findings"].as_array().unwrap().len() > 3);
    let (status, text, _) = shop.say("doctor");
    assert_eq!(status, 0);
    assert!(text.contains("ok"), "{text}");
}

#[test]
fn a_backup_is_a_ledger_and_its_restore_voids_every_claim() {
    let shop = busy_shop();
    shop.ask("backup monday.db").done();
    assert_eq!(shop.ask("--ledger monday.db mailbox show m1").json["state"], "CLAIMED");
    assert_eq!(
        shop.ask("backup monday.db").json["outcome"],
        "error",
        "a backup never overwrites"
    );
    shop.ask("--now 3000 mailbox send --to crew --id m2 cones").done();

    let restored = shop.ask("restore monday.db --above 90210").done();
    let floor = restored["floor"].as_u64().unwrap();
    assert!(floor > 90_210);
    assert!(floor > 1_700_000_000 << 20, "the real clock's floor");
    assert_eq!(shop.ask("mailbox show m1").json["state"], "NEW");
    assert_eq!(shop.ask("actor show crew").json["state"], "FREE");
    shop.ask(&format!("mailbox complete m1 --as crew --process {A} --token 3"))
        .refused("fencing_token_stale");
    let granted = shop.ask(&format!("actor acquire crew --process {B}")).granted();
    assert!(granted["token"].as_u64().unwrap() > floor);
    let session = format!("host register kiosk-b --process {B}");
    let host = shop.ask(&session).granted()["token"].clone();
    let claim = format!("session claim chat --host kiosk-b --process {B} --host-token {host}");
    assert_eq!(shop.ask(&claim).granted()["incarnation"], 1_000_002);
    assert_eq!(shop.ask("restore nothing.db").json["outcome"], "error");
    std::fs::write(shop.path("text.db"), "no ledger").unwrap();
    shop.ask("restore text.db").error("not_a_ledger");
}

#[test]
fn pruning_drops_what_is_finished_and_keeps_its_name_finished() {
    let shop = Shop::new();
    shop.ask("--now 1000 mailbox send --to crew --id m1 x").done();
    shop.ask("--now 1000 mailbox claim m1 --as crew").granted();
    shop.ask("--now 1000 mailbox complete m1 --as crew --token 1").done();
    shop.ask("--now 1000 mailbox send --to crew --id m2 x").done();
    assert_eq!(shop.ask("--now 2000 prune --older-than 1d").done()["messages"], 0);
    let pruned = shop.ask("--now 100000000 prune --older-than 1d").done();
    assert_eq!(pruned["messages"], 1);
    shop.ask("mailbox claim m1 --as crew").refused("message_finished");
    shop.ask("mailbox send --to crew --id m1 x").refused("message_finished");
    assert_eq!(shop.ask("mailbox show m2").json["state"], "NEW");
    assert_eq!(shop.ask("doctor").status, 0);
}

#[test]
fn a_gate_admits_no_token_below_its_mark() {
    let shop = busy_shop();
    let admit = |token: u64| shop.ask(&format!("gate admit freezer.gate --for session:chat --token {token}"));
    assert_eq!(shop.ask("gate show freezer.gate").json["bound"], false);
    let first = admit(3).done();
    assert_eq!((&first["raised"], &first["high_water"]), (&true.into(), &3.into()));
    assert_eq!(admit(3).done()["raised"], false);
    assert_eq!(admit(5).done()["raised"], true);
    let fenced = admit(4).refused("fenced");
    assert_eq!((&fenced["high_water"], fenced.get("never_issued")), (&5.into(), None));
    let never = admit(6).refused("fenced");
    assert_eq!(never["never_issued"], true);
    shop.ask("gate admit freezer.gate --for actor:crew --token 5")
        .refused("gate_mismatch");
    let shown = shop.ask("gate show freezer.gate").json;
    assert_eq!(
        (shown["kind"].as_str(), shown["name"].as_str(), &shown["high_water"]),
        (Some("session"), Some("chat"), &5.into())
    );

    let (status, text, _) = shop.say("gate admit freezer.gate --for session:chat --token 5");
    assert_eq!((status, text.lines().next()), (0, Some("done")));
    shop.ask("gate rebind freezer.gate --for actor:crew").done();
    assert_eq!(shop.ask("gate show freezer.gate").json.get("high_water"), None);
    assert_eq!(
        shop.ask("gate admit freezer.gate --for actor:crew --token 1").done()["raised"],
        true
    );
    shop.ask("gate rebind nowhere.gate").wrong_usage();
}

#[test]
fn without_its_ledger_a_gate_admits_only_its_mark() {
    let shop = busy_shop();
    let admit = |token: u64| {
        shop.ask(&format!(
            "--ledger keyfence.db gate admit freezer.gate --for session:chat --token {token}"
        ))
    };
    admit(4).done();
    std::fs::rename(shop.ledger(), shop.path("away.db")).unwrap();
    admit(4).done();
    let refused = admit(5).refused("ledger_unreadable");
    let reason = refused["reason"].as_str().unwrap();
    assert!(reason.contains("(there is no ledger at keyfence.db)"), "{reason}");
    admit(3).refused("fenced");
    shop.ask("gate admit new.gate --for session:chat --token 4")
        .refused("ledger_unreadable");
    assert!(!shop.path("new.gate").exists());
}

#[test]
fn a_gate_runs_its_program_under_its_lock() {
    let shop = busy_shop();
    let admit = |token: u64, script: &str| {
        let token = token.to_string();
        let mut command = shop.command();
        command
            .args([
                "gate",
                "admit",
                "freezer.gate",
                "--for",
                "session:chat",
                "--token",
                &token,
                "--report",
                "report.json",
            ])
            .args(["--", "sh", "-c", script])
            .stdout(Stdio::piped());
        command
    };
    let output = admit(5, "echo \"$KEYFENCE_TOKEN\"; exit 9").output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(9), b"5\n".as_slice())
    );
    let report =
        || -> Value { serde_json::from_str(&std::fs::read_to_string(shop.path("report.json")).unwrap()).unwrap() };
    assert_eq!(
        (report()["outcome"].as_str(), &report()["exit"]),
        (Some("done"), &9.into())
    );
    let output = admit(4, "touch worked").output().unwrap();
    assert_eq!(
        (output.status.code(), report()["refusal"].as_str()),
        (Some(3), Some("fenced"))
    );
    assert!(!shop.path("worked").exists());

    // The second program waits for the first one's end.
    let first = admit(
        5,
        "echo > started; while ! test -e go; do sleep 0.02; done; echo first >> order",
    )
    .spawn()
    .unwrap();
    wait_for(&shop.path("started"));
    let second = admit(5, "echo second >> order").spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(!shop.path("order").exists());
    std::fs::write(shop.path("go"), "").unwrap();
    assert_eq!(finish(first).status.code(), Some(0));
    assert_eq!(finish(second).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(shop.path("order")).unwrap(), "first\nsecond\n");
    let output = shop
        .command()
        .args([
            "--json",
            "gate",
            "admit",
            "freezer.gate",
            "--for",
            "session:chat",
            "--token",
            "5",
            "--",
            "./not-there",
        ])
        .output()
        .unwrap();
    let reply = reply(&output);
    assert_eq!((reply.status, reply.json["error"].as_str()), (127, Some("not_started")));
    // The token has passed all the same, and nothing is said to be given back.
    assert_eq!(
        (
            &reply.json["admitted"],
            &reply.json["raised"],
            &reply.json["high_water"]
        ),
        (&true.into(), &false.into(), &5.into())
    );
    assert!(!reply.json["next"].as_str().unwrap().contains("given back"));
}

#[test]
fn a_mark_is_raised_before_the_start_and_stays_when_there_is_none() {
    let shop = busy_shop();
    let output = shop
        .command()
        .args(["--json", "gate", "admit", "freezer.gate", "--for", "session:chat"])
        .args(["--token", "5", "--", "./not-there"])
        .output()
        .unwrap();
    let reply = reply(&output);
    assert_eq!((reply.status, &reply.json["raised"]), (127, &true.into()));
    assert!(reply.json["next"].as_str().unwrap().contains("stays the gate's mark"));
    assert_eq!(shop.ask("gate show freezer.gate").json["high_water"], 5);
}

#[test]
fn a_token_that_was_never_issued_is_told_as_such_at_an_unused_gate() {
    let shop = busy_shop();
    let refused = shop
        .ask("gate admit freezer.gate --for session:chat --token 99")
        .refused("fenced");
    assert_eq!(
        (&refused["never_issued"], refused.get("high_water")),
        (&true.into(), None)
    );
    let next = refused["next"].as_str().unwrap();
    assert!(!next.contains("newer claim") && next.contains("granted"), "{next}");
    assert_eq!(shop.ask("gate show freezer.gate").json["bound"], false);
}
