//! What an operator meets when something is not as it should be: damage, files that must not be written over, gates,
//! restores, and texts that say which file is meant.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{
    A, B, Running, Shop, change, files, ordinary, permissions_bind, reason, reply, signal, wait_until,
};
use serde_json::Value;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_body_that_is_gone_or_was_changed_is_damage_for_who_shows_or_completes() {
    for change_of_body in [
        "DELETE FROM keyfence_body",
        "UPDATE keyfence_body SET body = x'00'",
        "UPDATE keyfence_body SET subject = 'other'",
    ] {
        let shop = Shop::new();
        shop.ask("--now 1000 mailbox send --to crew --id m1 vanilla").done();
        shop.ask("--now 1000 mailbox claim m1 --as crew").granted();
        change(&shop, change_of_body);
        for call in ["mailbox show m1", "mailbox complete m1 --as crew --token 1"] {
            let error = shop.ask(&format!("--now 2000 {call}")).error("damaged");
            assert!(reason(&error).contains("message `m1`"), "{change_of_body}: {error}");
        }
        let doctor = shop.ask("doctor").error("damaged");
        assert!(reason(&doctor).contains("message `m1`"), "{change_of_body}: {doctor}");
    }
}

#[test]
fn a_result_that_was_changed_is_damage_for_who_shows_it() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 vanilla").done();
    shop.ask("mailbox claim m1 --as crew").granted();
    shop.ask("mailbox complete m1 --as crew --token 1 --result 12").done();
    shop.ask("run --actor crew --assignment a1 -- true").done();
    change(
        &shop,
        "UPDATE keyfence_message SET result = x'00'; UPDATE keyfence_assignment SET result = x'00';",
    );
    shop.ask("mailbox show m1").error("damaged");
    shop.ask("assignment show a1").error("damaged");
}

#[test]
fn the_supervisor_reports_damage_and_tidies_the_rest() {
    let shop = Shop::new();
    for (actor, assignment) in [("crew", "one"), ("desk", "two"), ("yard", "three")] {
        let lease = shop
            .ask(&format!("--now 1000 actor acquire {actor} --process {A}"))
            .granted();
        shop.ask(&format!("--now 1000 assignment create {assignment} --actor {actor}"))
            .done();
        shop.ask(&format!(
            "--now 1000 attempt acquire {assignment} --actor {actor} --process {A} --lease-token {}",
            lease["token"]
        ))
        .granted();
    }
    change(
        &shop,
        "UPDATE keyfence_assignment SET row_check = row_check + 1 WHERE id = 'two';
         UPDATE keyfence_actor SET row_check = row_check + 1 WHERE name = 'yard';",
    );
    let tick = shop.ask("--now 2000000 supervise --once").error("damaged");
    let damaged = |tick: &Value| -> Vec<String> {
        let damaged = tick["damaged"].as_array().unwrap();
        damaged
            .iter()
            .map(|damage| damage["place"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(damaged(&tick), ["assignment `two`", "actor `yard`"]);
    assert_eq!(tick["closed"], serde_json::json!(["one", "three"]));
    let lapsed: Vec<&str> = tick["lapsed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lapsed| lapsed["name"].as_str().unwrap())
        .collect();
    assert_eq!(lapsed, ["crew", "desk"]);
    let (status, _, stderr) = shop.say("--now 2000000 supervise --once");
    assert_eq!(status, 1);
    assert!(stderr.contains("assignment `two` is damaged"), "{stderr}");

    // The loop says it once, as an object with an outcome, and goes on.
    let out = fs::File::create(shop.path("reported")).unwrap();
    let supervisor = Running::of(
        shop.command()
            .args(["--json", "--now", "2000000", "supervise", "--interval", "10ms"])
            .stdout(out),
    );
    wait_until("it was reported", || {
        fs::read_to_string(shop.path("reported")).unwrap().ends_with('\n')
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
    signal(supervisor.id(), "INT");
    assert_eq!(supervisor.end().status.code(), Some(0));
    let text = fs::read_to_string(shop.path("reported")).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let object: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (object["outcome"].as_str(), object["error"].as_str()),
        (Some("error"), Some("damaged"))
    );
    assert_eq!(damaged(&object).len(), 2);
}

#[test]
fn every_object_of_the_supervisor_has_an_outcome() {
    let shop = Shop::open();
    let lock = rusqlite::Connection::open(shop.ledger()).unwrap();
    shop.ask("--now 1000 mailbox send --to crew --id m1 x").done();
    shop.ask("--now 1000 mailbox claim m1 --as crew").granted();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let out = fs::File::create(shop.path("reported")).unwrap();
    let supervisor = Running::of(
        shop.command()
            .args(["--json", "--now", "2000000", "--timeout", "20ms"])
            .args(["supervise", "--interval", "10ms"])
            .stdout(out),
    );
    let reported = |what: &str| fs::read_to_string(shop.path("reported")).unwrap().contains(what);
    wait_until("it was busy", || reported("busy"));
    lock.execute_batch("ROLLBACK").unwrap();
    wait_until("it went on", || reported("\"swept\":1"));
    signal(supervisor.id(), "INT");
    assert_eq!(supervisor.end().status.code(), Some(0));
    for line in fs::read_to_string(shop.path("reported")).unwrap().lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        let outcome = object["outcome"].as_str();
        assert!(outcome == Some("done") || outcome == Some("error"), "{line}");
    }
}

/// Both commands that write one, with a report of their own that is there already.
const REPORTING: [(&str, &str); 2] = [
    ("run --actor crew --report report.json -- true", "run"),
    (
        "gate admit door.gate --for actor:crew --token 1 --report report.json -- true",
        "gate",
    ),
];

#[test]
fn a_report_is_written_over_nothing_but_a_report_of_its_command() {
    for (call, kind) in REPORTING {
        let shop = Shop::new();
        shop.ask(&format!("actor acquire keeper --process {A}")).granted();
        let file = shop.path("report.json");
        let run = |words: &str| shop.command().args(words.split_whitespace()).output().unwrap();
        for wrong in [
            "notes\n",
            "{\"keyfence_report\":\"other\"}\n",
            "{\"outcome\":\"done\"}\n",
        ] {
            fs::write(&file, wrong).unwrap();
            let output = run(&format!("--json {call}"));
            reply(&output).wrong_usage();
            assert_eq!(fs::read_to_string(&file).unwrap(), wrong, "{call}");
        }
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(shop.path("elsewhere"), &file).unwrap();
        reply(&run(&format!("--json {call}"))).wrong_usage();
        fs::remove_file(&file).unwrap();
        fs::hard_link(shop.ledger(), &file).unwrap();
        reply(&run(&format!("--json {call}"))).wrong_usage();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        reply(&run(&format!("--json {call}"))).wrong_usage();
        fs::remove_dir(&file).unwrap();
        assert_eq!(files(&shop.path(".")), ["keyfence.db", "keyfence.db-lock"], "{call}");

        // An empty file, such as `mktemp` makes, then the report of before: both are replaced, for their owner only.
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        for _ in 0..2 {
            assert_eq!(run(call).status.code(), Some(0), "{call}");
            let report: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            assert_eq!(
                (report["outcome"].as_str(), report["keyfence_report"].as_str()),
                (Some("done"), Some(kind))
            );
            assert_eq!(mode(&file), 0o600);
        }
    }
}

#[test]
fn a_report_is_none_of_keyfences_own_files() {
    for own in [
        "keyfence.db",
        "./keyfence.db-wal",
        "keyfence.db-lock",
        "keyfence.db-shm",
    ] {
        let shop = Shop::new();
        shop.ask(&format!("run --actor crew --report {own} -- true"))
            .wrong_usage();
        assert_eq!(files(&shop.path(".")), [""; 0], "{own}");
    }
    let shop = Shop::open();
    for own in ["door.gate", "door.gate-lock", "keyfence.db"] {
        let call = format!("gate admit door.gate --for actor:crew --token 1 --report {own}");
        shop.ask(&call).wrong_usage();
    }
    assert_eq!(files(&shop.path(".")), ["keyfence.db", "keyfence.db-lock"]);
}

#[test]
fn what_is_at_the_place_of_a_report_at_the_end_is_not_written_over_either() {
    let shop = Shop::new();
    let output = shop
        .command()
        .args(["run", "--actor", "crew", "--report", "report.json", "--"])
        .args(["sh", "-c", "echo notes > report.json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(fs::read_to_string(shop.path("report.json")).unwrap(), "notes\n");
    assert_eq!(shop.ask("actor show crew").json["state"], "FREE");
}

#[test]
fn a_gate_of_another_claim_says_whose_it_is_and_what_was_presented() {
    let shop = Shop::new();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    shop.ask("gate admit door.gate --for actor:crew --token 1").done();
    let refused = shop
        .ask("gate admit door.gate --for session:chat --token 1")
        .refused("gate_mismatch");
    assert_eq!(
        (
            refused["bound_to"]["kind"].as_str(),
            refused["bound_to"]["name"].as_str()
        ),
        (Some("actor"), Some("crew"))
    );
    assert_eq!(
        (
            refused["presented"]["kind"].as_str(),
            refused["presented"]["name"].as_str()
        ),
        (Some("session"), Some("chat"))
    );
    assert_eq!(refused["bound_to"]["ledger"], refused["presented"]["ledger"]);
    let said = reason(&refused);
    assert!(
        said.contains("session `chat`") && said.contains("actor `crew`"),
        "{said}"
    );
    assert_eq!(
        files(&shop.path(".")),
        ["door.gate", "keyfence.db", "keyfence.db-lock"],
        "no lock is left"
    );
}

#[test]
fn a_damaged_gate_says_so_and_how_to_get_out_of_it() {
    let shop = Shop::new();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    shop.ask("gate admit door.gate --for actor:crew --token 1").done();
    let text = fs::read_to_string(shop.path("door.gate")).unwrap();
    fs::write(
        shop.path("door.gate"),
        text.replace("\"high_water\":1", "\"high_water\":2"),
    )
    .unwrap();
    for call in ["gate show door.gate", "gate admit door.gate --for actor:crew --token 1"] {
        let error = shop.ask(call).error("damaged");
        assert!(reason(&error).starts_with("the gate door.gate"), "{error}");
        let next = error["next"].as_str().unwrap();
        assert!(
            next.contains("fresh claim") && next.contains("gate rebind door.gate"),
            "{error}"
        );
        assert!(!next.contains("doctor"), "{error}");
    }
    shop.ask("gate rebind door.gate --for actor:crew").done();
    shop.ask("gate admit door.gate --for actor:crew --token 1").done();
    // Wherever it is cut off, it is what is left of a gate, and there is a way out.
    for bytes in 0..text.len() - 1 {
        fs::write(shop.path("door.gate"), &text[..bytes]).unwrap();
        shop.ask("gate admit door.gate --for actor:crew --token 1")
            .error("damaged");
        if bytes % 16 == 10 {
            shop.ask("gate rebind door.gate --for actor:crew").done();
        }
    }
}

#[test]
fn what_is_no_gate_is_not_made_one() {
    let shop = Shop::open();
    fs::write(shop.path("notes.txt"), "Restock vanilla\n").unwrap();
    let before = fs::read(shop.ledger()).unwrap();
    for file in ["notes.txt", "keyfence.db"] {
        for call in [
            format!("gate rebind {file} --for actor:crew"),
            format!("gate admit {file} --for actor:crew --token 1"),
            format!("gate show {file}"),
        ] {
            shop.ask(&call).error("not_a_gate");
        }
    }
    assert_eq!(fs::read_to_string(shop.path("notes.txt")).unwrap(), "Restock vanilla\n");
    assert!(fs::read(shop.ledger()).unwrap() == before);
    assert_eq!(files(&shop.path(".")), ["keyfence.db", "keyfence.db-lock", "notes.txt"]);
}

#[test]
fn a_gate_with_too_long_a_name_is_wrong_usage_before_anything_is_touched() {
    let shop = Shop::new();
    let long = "x".repeat(65);
    for call in [
        format!("gate admit {long} --for actor:crew --token 1"),
        format!("gate rebind {long} --for actor:crew"),
        format!("gate show {long}"),
    ] {
        let usage = shop.ask(&call).wrong_usage();
        assert!(reason(&usage).contains("64 bytes"), "{usage}");
    }
    assert_eq!(files(&shop.path(".")), [""; 0]);
}

#[test]
fn a_busy_gate_is_not_called_a_ledger() {
    let shop = Shop::open();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    let admit = "gate admit door.gate --for actor:crew --token 1";
    let inside =
        Running::of(
            shop.command()
                .args(admit.split_whitespace())
                .args(["--", "sh", "-c", "echo > inside; sleep 30"]),
        );
    crate::support::wait_for(&shop.path("inside"));
    let error = shop.ask(&format!("--timeout 20ms {admit}")).error("busy");
    assert!(reason(&error).starts_with("the gate door.gate was busy"), "{error}");
    signal(inside.id(), "TERM");
    let _ = inside.end();
    shop.ask(admit).done();
}

#[test]
fn permission_denied_is_told_with_the_user_the_file_and_what_to_do() {
    if !permissions_bind("what is said of denied permissions") {
        return;
    }
    let shop = Shop::open();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    shop.ask("gate admit door.gate --for actor:crew --token 1").done();
    let ask = |words: &str| {
        let mut call = shop.command();
        call.arg("--json").args(words.split_whitespace());
        reply(&ordinary(call).output().unwrap())
    };
    let chmod = |file: &str, mode| {
        fs::set_permissions(shop.path(file), fs::Permissions::from_mode(mode)).unwrap();
    };
    for (file, closed, open, call, error, word) in [
        (
            "keyfence.db",
            0o000,
            0o600,
            "status",
            "permission_denied",
            "may not read it",
        ),
        (
            "keyfence.db",
            0o400,
            0o600,
            "mailbox send --to crew x",
            "read_only",
            "may not write it",
        ),
        (
            "door.gate",
            0o000,
            0o600,
            "gate show door.gate",
            "permission_denied",
            "may not read it",
        ),
        (
            ".",
            0o500,
            0o700,
            "gate admit door.gate --for actor:crew --token 1",
            "read_only",
            "may not write it",
        ),
        (".", 0o500, 0o700, "backup copy.db", "read_only", "may not write it"),
    ] {
        chmod(file, closed);
        let json = ask(call);
        chmod(file, open);
        let json = json.error(error);
        let said = reason(&json);
        assert!(said.contains(word) && said.contains("user "), "{call}: {said}");
        assert!(said.contains(&format!("{closed:04o}")), "{call}: {said}");
        assert!(json["next"].as_str().unwrap().contains("user"), "{call}: {json}");
    }
}

#[test]
fn the_status_lists_a_hundred_claims_of_a_kind_and_counts_all() {
    let shop = Shop::open();
    for number in 0..103 {
        shop.ask(&format!("--now 1000 actor acquire a{number} --process {B}"))
            .granted();
    }
    let status = shop.ask("--now 2000 status").json;
    assert_eq!(status["claims"].as_array().unwrap().len(), 100);
    assert_eq!(
        (&status["actors_live"], &status["claims_not_listed"]),
        (&103.into(), &3.into())
    );
    let (_, _, stderr) = shop.say("--now 2000 status");
    assert!(stderr.contains("3 more claims"), "{stderr}");
}

#[test]
fn a_read_leaves_no_file_behind_whatever_it_may_write() {
    if !permissions_bind("reads of a read-only ledger") {
        return;
    }
    let shop = Shop::new();
    shop.ask(&format!("--now 1000 actor acquire crew --process {A}"))
        .granted();
    let before = fs::read(shop.ledger()).unwrap();
    for mode in [0o600, 0o400] {
        fs::set_permissions(shop.ledger(), fs::Permissions::from_mode(mode)).unwrap();
        for call in ["status", "actor show crew", "events", "doctor"] {
            let mut command = shop.command();
            command.arg("--json").args(call.split_whitespace());
            let output = ordinary(command).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{call} {output:?}");
            assert_eq!(files(&shop.path(".")), ["keyfence.db", "keyfence.db-lock"], "{call}");
        }
    }
    assert!(fs::read(shop.ledger()).unwrap() == before);
    fs::set_permissions(shop.ledger(), fs::Permissions::from_mode(0o600)).unwrap();
    shop.ask(&format!("--now 400000 actor acquire crew --process {B}"))
        .granted();
}

#[test]
fn no_lease_is_granted_that_has_lapsed_at_once() {
    let shop = Shop::new();
    for now in ["9007199254740991", "9007199254740990", "9006883894740992"] {
        shop.ask(&format!("--now {now} actor acquire crew --process {A}"))
            .wrong_usage();
    }
    let last = shop
        .ask(&format!(
            "--now 9006883894740991 actor acquire crew --process {A} --ttl 3650d"
        ))
        .granted();
    assert_eq!(last["expires_at_ms"], 9_007_199_254_740_991_u64);
    assert_eq!(shop.ask("--now 9006883894740991 actor show crew").json["live"], true);
}

#[test]
fn a_list_that_fails_midway_is_one_array_all_the_same() {
    let shop = Shop::new();
    let ledger = keyfence::Ledger::open(&shop.ledger(), keyfence::Options::default()).unwrap();
    let messages: Vec<keyfence::NewMessage> = (0..700)
        .map(|number| keyfence::NewMessage {
            id: keyfence::Name::new(&format!("m{number}")).unwrap(),
            sender: None,
            recipient: keyfence::Name::new("crew").unwrap(),
            subject: String::new(),
            body: b"vanilla".to_vec(),
            priority: keyfence::core::mailbox::Priority::default(),
            not_before: None,
            retries_max: 3,
        })
        .collect();
    ledger.call().mailbox_send_batch(&messages).unwrap().unwrap();
    drop(ledger);
    change(&shop, "UPDATE keyfence_body SET sent_at_ms = -5 WHERE number = 650");
    let output = shop
        .command()
        .args(["--json", "mailbox", "inbox", "crew"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let last = list.as_array().unwrap().last().unwrap();
    assert_eq!(
        (last["outcome"].as_str(), last["error"].as_str()),
        (Some("error"), Some("damaged"))
    );
    assert!(list.as_array().unwrap().len() > 500);
    shop.ask("doctor").error("damaged");
}

#[test]
fn a_kept_answer_and_a_refusal_that_were_changed_are_damage() {
    for change_of_row in [
        "UPDATE keyfence_request SET answer = x'00'",
        "UPDATE keyfence_request SET answer = CAST(answer || x'00' AS BLOB)",
        "UPDATE keyfence_request SET id = 'other'",
        "UPDATE keyfence_refusal SET at_ms = -1",
        "UPDATE keyfence_refusal SET reason = 'because'",
    ] {
        let shop = Shop::new();
        shop.ask("mailbox send --to crew --id m1 vanilla").done();
        shop.ask("--request first mailbox claim m1 --as crew").granted();
        shop.ask("mailbox complete m1 --as crew --token 7")
            .refused("fencing_token_stale");
        assert_eq!(shop.ask("doctor").status, 0);
        change(&shop, change_of_row);
        shop.ask("doctor").error("damaged");
    }
}

#[test]
fn an_answer_that_nobody_gets_is_no_success() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 vanilla").done();
    for call in [
        "mailbox claim-next --as crew --json",
        "mailbox claim m1 --as crew --json",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = shop
            .command()
            .args(call.split(' '))
            .stdout(writer)
            .stderr(std::process::Stdio::piped())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{call}: {said}");
        assert!(said.contains("the call was made"), "{call}: {said}");
    }
}

#[test]
fn a_file_that_may_not_grow_is_an_error_and_no_signal() {
    let shop = Shop::new();
    shop.ask("init").done();
    let script = format!(
        "ulimit -f 64; exec {} --json mailbox send --to crew --id big -",
        env!("CARGO_BIN_EXE_keyfence")
    );
    let body = vec![b'x'; 1_000_000];
    fs::write(shop.path("body"), body).unwrap();
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(shop.path("."))
        .stdin(fs::File::open(shop.path("body")).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_ne!(answer["outcome"], "done");
    assert_eq!(shop.ask("doctor").status, 0);
}
