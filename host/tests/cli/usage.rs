//! What every call has in common: options, arguments, environment, output, and what it does to a ledger that is not there.

use std::io::Write as _;
use std::process::Stdio;

use crate::support::{A, Shop, finish, reply};

#[test]
fn wrong_arguments_are_wrong_usage_before_the_ledger_is_touched() {
    let shop = Shop::new();
    let long = "x".repeat(65);
    for wrong in [
        format!("actor acquire {long} --process {A}"),
        format!("actor acquire crew --process proc_{}", "A".repeat(32)),
        "actor acquire crew --process 4711".to_owned(),
        "actor acquire crew".to_owned(),
        format!("actor acquire crew --process {A} --ttl 0s"),
        format!("actor acquire crew --process {A} --ttl 3651d"),
        format!("actor acquire crew --process {A} --ttl 5"),
        format!("actor renew crew --process {A}"),
        format!("actor renew crew --process {A} --token 0"),
        format!("actor renew crew --process {A} --token -1"),
        format!("actor renew crew --process {A} --token 9007199254740992"),
        format!("actor release crew --process {A} --token x"),
        "assignment create close".to_owned(),
        format!("attempt acquire close --actor crew --process {A}"),
        "attempt finish close --attempt att_x --token 1 --state completed".to_owned(),
        format!(
            "attempt finish close --attempt att_{} --token 1 --state done",
            "a".repeat(32)
        ),
        "mailbox send vanilla".to_owned(),
        "mailbox send --to crew".to_owned(),
        "mailbox send --to crew --priority 101 x".to_owned(),
        "mailbox send --to crew --not-before -1 x".to_owned(),
        "mailbox claim m1".to_owned(),
        "mailbox claim-next --as crew -n 0".to_owned(),
        "mailbox complete m1 --as crew".to_owned(),
        "mailbox retry m1 --as crew --token 1 --delay soon".to_owned(),
        "host register kiosk-a --process proc_".to_owned(),
        "session claim chat --host kiosk-a".to_owned(),
        "session finish chat --host kiosk-a --incarnation 0 --token 1 --host-token 1".to_owned(),
        "gate admit g --token 1".to_owned(),
        "gate admit g --for door:x --token 1".to_owned(),
        "gate admit g --for actor:crew --token 0".to_owned(),
        "revoke actor crew".to_owned(),
        "run --actor crew".to_owned(),
        "run --actor crew --blocked-exit 0 -- true".to_owned(),
        "run --actor crew --blocked-exit 256 -- true".to_owned(),
        "supervise --interval 0s".to_owned(),
        "events --since x".to_owned(),
        "prune".to_owned(),
        "prune --older-than yesterday".to_owned(),
        "restore".to_owned(),
        "restore x --above 0".to_owned(),
        "backup".to_owned(),
        "completions".to_owned(),
        "demo".to_owned(),
        "process".to_owned(),
        "nonsense".to_owned(),
        "--now x status".to_owned(),
        "--now 9007199254740992 status".to_owned(),
        "--timeout x status".to_owned(),
        format!("--request {long} init"),
    ] {
        shop.ask(&wrong).wrong_usage();
        let (status, stdout, stderr) = shop.say(&wrong);
        assert_eq!((status, stdout.as_str()), (2, ""), "{wrong}");
        assert!(!stderr.is_empty(), "{wrong}");
    }
    shop.ask_with(&["mailbox", "claim", "", "--as", "crew"]).wrong_usage();
    shop.ask_with(&["mailbox", "claim", "bell\u{7}", "--as", "crew"])
        .wrong_usage();
    assert_eq!(
        std::fs::read_dir(shop.path(".")).unwrap().count(),
        0,
        "nothing was created"
    );
}

#[test]
fn a_wrong_number_is_answered_by_what_it_should_be() {
    let shop = Shop::new();
    let a = format!("--process {A}");
    for (wrong, what) in [
        (
            format!("actor renew crew {a} --token -1"),
            "a token is a whole number from 1 to 9007199254740991",
        ),
        (
            format!("actor renew crew {a} --token 9007199254740992"),
            "a token is a whole number",
        ),
        (
            format!("actor renew crew {a} --token 99999999999999999999"),
            "a token is a whole number",
        ),
        (format!("actor renew crew {a} --token 1.5"), "a token is a whole number"),
        (
            format!("actor acquire crew {a} --ttl -5"),
            "a duration cannot be negative",
        ),
        (
            format!("actor acquire crew {a} --ttl -5s"),
            "a duration cannot be negative",
        ),
        (
            format!("actor acquire crew {a} --ttl=-5s"),
            "a duration cannot be negative",
        ),
        (format!("actor acquire crew {a} --ttl 5"), "the unit is missing"),
        (
            format!("actor acquire crew {a} --ttl 99999999999999999999s"),
            "at most ten years",
        ),
        (format!("actor acquire crew {a} --ttl 0s"), "at least 1ms"),
        ("--timeout -1s status".to_owned(), "a duration cannot be negative"),
        ("--now -1 status".to_owned(), "milliseconds since the Unix epoch"),
        ("mailbox claim-next --as crew -n -1".to_owned(), "from 1 to 1000"),
        (
            "mailbox claim-next --as crew -n 99999999999".to_owned(),
            "from 1 to 1000",
        ),
        ("mailbox claim-next --as crew -n 1001".to_owned(), "from 1 to 1000"),
        ("mailbox claim-next --as crew -n +1".to_owned(), "from 1 to 1000"),
        ("mailbox claim-next --as crew -n 01".to_owned(), "from 1 to 1000"),
        (
            "run --actor crew --blocked-exit 075 -- true".to_owned(),
            "from 1 to 255",
        ),
        ("mailbox send --to crew --priority +5 x".to_owned(), "from -100 to 100"),
        ("mailbox send --to crew --priority -05 x".to_owned(), "from -100 to 100"),
        (
            "mailbox send --to crew --retries-max -1 x".to_owned(),
            "from 0 to 65535",
        ),
        (
            "mailbox send --to crew --retries-max 65536 x".to_owned(),
            "from 0 to 65535",
        ),
        (
            "mailbox send --to crew --priority -101 x".to_owned(),
            "from -100 to 100",
        ),
        (
            "session finish chat --host k --incarnation -1 --token 1 --host-token 1".to_owned(),
            "an incarnation is a whole number",
        ),
    ] {
        let reason = shop.ask(&wrong).wrong_usage()["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(what), "{wrong}: {reason}");
    }
    assert_eq!(std::fs::read_dir(shop.path(".")).unwrap().count(), 0);
}

#[test]
fn a_missing_command_is_wrong_usage_and_said_so() {
    let shop = Shop::new();
    for nothing in ["", "actor", "mailbox", "gate", "process"] {
        let json = shop.ask(nothing).wrong_usage();
        assert!(
            json["reason"].as_str().unwrap().contains("missing"),
            "{nothing}: {json}"
        );
        assert_eq!(shop.say(nothing).0, 2, "{nothing}");
    }
}

#[test]
fn reading_a_missing_ledger_says_so_and_creates_none() {
    let shop = Shop::new();
    for reads in [
        "actor show".to_owned(),
        "assignment show x".to_owned(),
        "mailbox show m1".to_owned(),
        "mailbox inbox crew".to_owned(),
        "host show".to_owned(),
        "session show".to_owned(),
        "status".to_owned(),
        "events".to_owned(),
        "backup copy.db".to_owned(),
        "prune --older-than 90d".to_owned(),
        "supervise --once".to_owned(),
        "revoke actor crew --reason x".to_owned(),
        format!("actor release crew --process {A} --token 1"),
        "mailbox complete m1 --as crew --token 1".to_owned(),
    ] {
        shop.ask(&reads).error("ledger_missing");
    }
    shop.ask("doctor").error("ledger_missing");
    let (status, stdout, _) = shop.say("doctor");
    assert_eq!(status, 1);
    assert!(stdout.contains("ERROR") && !stdout.contains("DAMAGE"), "{stdout}");
    assert_eq!(
        std::fs::read_dir(shop.path(".")).unwrap().count(),
        0,
        "nothing was created"
    );
}

#[test]
fn claiming_and_sending_create_a_missing_ledger_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    for creates in [
        "init".to_owned(),
        format!("actor acquire crew --process {A}"),
        "assignment create close --actor crew".to_owned(),
        "mailbox send --to crew x".to_owned(),
        "mailbox claim-next --as crew".to_owned(),
        format!("host register kiosk-a --process {A}"),
        "run --actor crew -- true".to_owned(),
    ] {
        let shop = Shop::new();
        assert_eq!(shop.ask(&creates).status, 0, "{creates}");
        let mode = std::fs::metadata(shop.ledger()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{creates}");
    }
}

#[test]
fn init_is_harmless_on_an_existing_ledger() {
    let shop = Shop::new();
    let first = shop.ask("init").done();
    shop.ask(&format!("actor acquire crew --process {A}")).granted();
    let second = shop.ask("init").already_done();
    assert_eq!(first["id"], second["id"]);
    assert_eq!(shop.ask("actor show crew").json["token"], 1);
}

#[test]
fn the_ledger_is_that_of_the_option_then_of_the_environment_then_of_the_folder() {
    let shop = Shop::new();
    let ledger_of = |arguments: &[&str], environment: Option<&str>| {
        let mut command = shop.command();
        if let Some(path) = environment {
            command.env("KEYFENCE_LEDGER", shop.path(path));
        }
        let output = command.args(["--json", "init"]).args(arguments).output().unwrap();
        reply(&output).json["ledger"].as_str().unwrap().to_owned()
    };
    assert!(ledger_of(&[], None).ends_with("keyfence.db"));
    assert!(ledger_of(&[], Some("environment.db")).ends_with("environment.db"));
    assert!(ledger_of(&["--ledger", "option.db"], Some("environment.db")).ends_with("option.db"));
    for file in ["keyfence.db", "environment.db", "option.db"] {
        assert!(shop.path(file).exists(), "{file}");
    }
}

#[test]
fn the_process_may_come_from_the_environment() {
    let shop = Shop::new();
    let acquire = |process: &str| {
        let mut command = shop.command();
        command.env("KEYFENCE_PROCESS", process);
        reply(&command.args(["--json", "actor", "acquire", "crew"]).output().unwrap())
    };
    acquire("4711").wrong_usage();
    assert_eq!(acquire(A).granted()["process"], A);
}

#[test]
fn a_fresh_process_identity_is_another_every_time() {
    let shop = Shop::new();
    let (status, first, _) = shop.say("process new");
    let (_, second, _) = shop.say("process new");
    assert_eq!(status, 0);
    assert_ne!(first, second);
    let json = shop.ask("process new").done();
    let process = json["process"].as_str().unwrap();
    assert_eq!((process.len(), process.starts_with("proc_")), (37, true));
    shop.ask(&format!("actor acquire crew --process {}", first.trim()))
        .granted();
}

#[test]
fn bodies_are_text_where_they_are_utf_8_and_base64_otherwise() {
    let shop = Shop::new();
    let send = |id: &str, body: &[u8]| {
        let mut child = shop
            .command()
            .args(["--json", "mailbox", "send", "--to", "crew", "--id", id, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(body).unwrap();
        reply(&finish(child)).done();
    };
    send("text", "zwölf Kugeln\n".as_bytes());
    send("bytes", b"\xff\x00\xfe");
    let large = vec![b'x'; 3 << 20];
    send("large", &large);
    let claim = |id: &str| shop.ask(&format!("mailbox claim {id} --as crew")).granted();
    assert_eq!(claim("text")["body"], "zwölf Kugeln\n");
    let bytes = claim("bytes");
    assert_eq!((bytes.get("body"), bytes["body_base64"].as_str()), (None, Some("/wD+")));
    assert_eq!(claim("large")["body"].as_str().unwrap().len(), large.len());
    // As text the body comes byte for byte, after the other fields.
    let output = shop
        .command()
        .args(["mailbox", "claim", "bytes", "--as", "crew"])
        .output()
        .unwrap();
    assert!(output.stdout.ends_with(b"\xff\x00\xfe\n"));
}

#[test]
fn text_for_people_has_no_colour_in_a_pipe_and_refusals_go_to_standard_error() {
    let shop = Shop::new();
    let (status, stdout, stderr) = shop.say(&format!("actor acquire crew --process {A}"));
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("granted  token 1\n"), "{stdout}");
    assert!(!stdout.contains('\x1b'));
    let (status, stdout, stderr) = shop.say(&format!("actor acquire crew --process {A}"));
    assert_eq!((status, stdout.as_str()), (3, ""));
    assert!(stderr.starts_with("refused  actor_lease_held\n"), "{stderr}");
    let (status, stdout, _) = shop.say("actor show");
    assert_eq!(status, 0);
    assert_eq!(stdout.lines().count(), 2, "a heading and a row: {stdout}");
    let (status, stdout, stderr) = shop.say("mailbox inbox crew");
    assert_eq!(
        (status, stdout.as_str(), stderr.as_str()),
        (0, "", "the inbox is empty\n")
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let shop = Shop::open();
    for id in 0..5 {
        shop.ask(&format!("assignment create a{id} --actor crew")).done();
    }
    for arguments in [
        ["--json", "events"].as_slice(),
        &["events"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let mut child = shop
            .command()
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = finish(child);
        assert_eq!(output.status.code(), Some(0), "{arguments:?} {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?} {output:?}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_what_waits_for_news() {
    for waiting in ["events --follow", "supervise --interval 20ms"] {
        let shop = Shop::open();
        let mut command = shop.command();
        command.args(waiting.split(' ')).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(finish(child).status.code(), Some(0), "{waiting}");
    }
}

#[test]
fn a_name_too_long_for_the_files_beside_it_leaves_nothing() {
    let shop = Shop::new();
    let (fits, long) = ("l".repeat(237), "l".repeat(238));
    let usage = shop.ask_with(&["--ledger", &long, "init"]).wrong_usage();
    assert!(
        usage["reason"]
            .as_str()
            .unwrap()
            .ends_with("has 238 bytes, and 237 is the limit"),
        "{usage}"
    );
    let deep = format!("{}x.db", format!("{}/", "d".repeat(100)).repeat(5));
    std::fs::create_dir_all(shop.path(&deep).parent().unwrap()).unwrap();
    let usage = shop.ask_with(&["--ledger", &deep, "init"]).wrong_usage();
    assert!(
        usage["reason"].as_str().unwrap().contains("the path of the file"),
        "{usage}"
    );
    assert!(!shop.path(&deep).exists());
    shop.ask_with(&["--ledger", &fits, "init"]).done();
    shop.ask_with(&["--ledger", &fits, "backup", "copy.db"]).done();
    shop.ask_with(&["--ledger", &fits, "backup", &long]).wrong_usage();
    shop.ask_with(&["--ledger", &fits, "restore", "copy.db"]).done();
    let folders = std::fs::read_dir(shop.path("")).unwrap();
    let named = folders.filter(|entry| entry.as_ref().unwrap().file_name().len() > 237 + "-lock".len());
    assert_eq!(named.count(), 0);
}

#[test]
fn completions_are_there_for_every_shell() {
    let shop = Shop::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (status, stdout, _) = shop.say(&format!("completions {shell}"));
        assert_eq!(status, 0);
        assert!(stdout.contains("give-back"), "{shell}");
    }
    let json = shop.ask("completions bash").done();
    assert!(json["script"].as_str().unwrap().contains("claim-next"));
    shop.ask("completions tcsh").wrong_usage();
}

#[test]
fn the_version_and_the_help_are_answers() {
    let shop = Shop::new();
    let (status, stdout, _) = shop.say("--version");
    assert_eq!(
        (status, stdout.trim()),
        (0, concat!("keyfence ", env!("CARGO_PKG_VERSION")))
    );
    assert_eq!(shop.say("--help").0, 0);
    assert_eq!(shop.say("help mailbox retry").0, 0);
}
