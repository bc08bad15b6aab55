//! What `keyfence run` promises, with real programs, real signals and real time: leases of a second or two.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::shell_run::{ended, nothing_is_held, ran, report, run, start};
use crate::support::{A, Shop, finish, reply, runs, signal, skip, wait_for, wait_until};
use serde_json::Value;

#[test]
fn the_exit_status_of_the_program_becomes_the_state() {
    let shop = Shop::new();
    for (script, exit, state) in [
        ("exit 0", 0, "COMPLETED"),
        ("exit 7", 7, "FAILED"),
        ("exit 3", 3, "FAILED"),
        ("exit 75", 75, "BLOCKED"),
        ("kill -KILL $$", 137, "FAILED"),
    ] {
        let (status, report) = ran(&shop, "--blocked-exit 75", script);
        assert_eq!(
            (status, report["state"].as_str()),
            (exit, Some(state)),
            "{script}: {report}"
        );
        let assignment = report["assignment"].as_str().unwrap();
        assert_eq!(shop.state(assignment), state);
        assert_eq!(
            (report["outcome"].as_str(), &report["released"]),
            (Some("done"), &true.into())
        );
        nothing_is_held(&shop);
    }
    assert_eq!(report(&shop)["signal"], 9);
    let (_, report) = ran(&shop, "", "exit 75");
    assert_eq!(report["state"], "FAILED", "75 means BLOCKED only when it was said");
}

#[test]
fn the_program_gets_its_authority_and_its_own_input_and_output() {
    let shop = Shop::new();
    let script = "cat; echo to-stderr >&2; env | grep ^KEYFENCE_ | sort > env.txt; exit 4";
    let mut command = run(&shop, "--assignment close", script);
    command.env("KEYFENCE_PROCESS", A).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"its own\n").unwrap();
    let output = finish(child);
    let (status, report) = (output.status.code().unwrap(), report(&shop));
    assert_eq!(status, 4);
    assert_eq!(
        (output.stdout.as_slice(), output.stderr.as_slice()),
        (b"its own\n".as_slice(), b"to-stderr\n".as_slice())
    );
    let environment = std::fs::read_to_string(shop.path("env.txt")).unwrap();
    let value = |name: &str| {
        let line = environment
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {name} in {environment}")).to_owned()
    };
    assert_eq!(
        value("KEYFENCE_LEDGER"),
        shop.ledger().canonicalize().unwrap().display().to_string()
    );
    assert_eq!(
        (value("KEYFENCE_ACTOR").as_str(), value("KEYFENCE_LEASE_TOKEN").as_str()),
        ("crew", "1")
    );
    assert_eq!(value("KEYFENCE_TOKEN"), "2");
    assert_eq!(value("KEYFENCE_ATTEMPT"), report["attempt"].as_str().unwrap());
    assert_eq!(value("KEYFENCE_PROCESS"), report["process"].as_str().unwrap());
    assert_ne!(value("KEYFENCE_PROCESS"), A, "a fresh identity");
}

#[test]
fn the_answer_is_the_last_line_where_no_report_was_asked_for() {
    let shop = Shop::new();
    let run = |script: &str| {
        let output = shop
            .command()
            .args(["--json", "run", "--actor", "crew", "--", "sh", "-c", script])
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    // A program need not end its last line.
    for said in ["echo work", "printf work"] {
        let (status, stdout) = run(said);
        assert_eq!(status, 0);
        let lines: Vec<&str> = stdout.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!((lines.len(), lines[0]), (2, "work"), "{said}");
        assert_eq!(serde_json::from_str::<Value>(lines[1]).unwrap()["state"], "COMPLETED");
    }
    let (_, stdout) = run("true");
    let whole: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        whole["state"], "COMPLETED",
        "a silent program leaves exactly one object"
    );
}

#[test]
fn a_second_run_of_the_actor_is_refused_before_its_work_starts() {
    let shop = Shop::open();
    let first = start(
        &shop,
        "--assignment one",
        "echo $$ > started; while ! test -e go; do sleep 0.02; done",
    );
    wait_for(&shop.path("started"));
    let output = shop
        .command()
        .args([
            "--json",
            "run",
            "--actor",
            "crew",
            "--assignment",
            "two",
            "--",
            "touch",
            "worked",
        ])
        .output()
        .unwrap();
    let refused = reply(&output).refused("actor_lease_held");
    assert_eq!(refused["holder"], "crew");
    assert!(!shop.path("worked").exists());
    assert_eq!(shop.state("two"), "CREATED");
    std::fs::write(shop.path("go"), "").unwrap();
    assert_eq!(ended(&shop, first).0, 0);
    let (status, _) = ran(&shop, "--assignment two", "true");
    assert_eq!(
        (status, shop.state("two").as_str()),
        (0, "COMPLETED"),
        "the fence locks nobody out for good"
    );
}

#[test]
fn every_refusal_gives_back_what_the_run_took() {
    let shop = Shop::open();
    shop.ask("assignment create theirs --actor other").done();
    let (status, report) = ran(&shop, "--assignment theirs", "touch worked");
    assert_eq!((status, report["refusal"].as_str()), (3, Some("wrong_actor")));
    nothing_is_held(&shop);
    assert_eq!(ran(&shop, "--assignment mine", "true").0, 0);
    let (status, report) = ran(&shop, "--assignment mine", "touch worked");
    assert_eq!((status, report["refusal"].as_str()), (3, Some("assignment_finished")));
    nothing_is_held(&shop);
    assert!(!shop.path("worked").exists());
    // An assignment that retries another is taken as it is.
    shop.ask("assignment create again --actor crew --retry-of mine").done();
    assert_eq!(ran(&shop, "--assignment again", "true").0, 0);
}

#[test]
fn a_program_that_cannot_be_started_gives_everything_back() {
    let shop = Shop::open();
    for (program, status) in [("./not-there", 127), ("./keyfence.db", 126)] {
        let output = shop
            .command()
            .args([
                "--json",
                "run",
                "--actor",
                "crew",
                "--assignment",
                "close",
                "--",
                program,
            ])
            .output()
            .unwrap();
        let reply = reply(&output);
        assert_eq!(
            (reply.status, reply.json["error"].as_str()),
            (status, Some("not_started"))
        );
        assert_eq!(
            (reply.json["actor"].as_str(), reply.json["assignment"].as_str()),
            (Some("crew"), Some("close"))
        );
        assert_eq!(shop.state("close"), "CREATED");
        nothing_is_held(&shop);
    }
    // An id that was drawn for it is told too: the assignment stays.
    let output = shop
        .command()
        .args(["--json", "run", "--actor", "crew", "--", "./not-there"])
        .output()
        .unwrap();
    let drawn = reply(&output).json["assignment"].as_str().unwrap().to_owned();
    assert_eq!(shop.state(&drawn), "CREATED");
    let output = run(&shop, "--report no/such/folder", "touch worked").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "an option that is given twice");
    let output = shop
        .command()
        .args([
            "--json",
            "run",
            "--actor",
            "crew",
            "--report",
            "no/such/folder",
            "--",
            "touch",
            "worked",
        ])
        .output()
        .unwrap();
    let answer = reply(&output).error("system");
    let reason = answer["reason"].as_str().unwrap();
    assert!(
        reason.contains("no/such/folder") && !reason.contains(".keyfence-report"),
        "{reason}"
    );
    assert!(!shop.path("worked").exists());
}

#[test]
fn leases_are_renewed_while_the_program_works() {
    let shop = Shop::open();
    let run = start(
        &shop,
        "--ttl 900ms --attempt-ttl 1200ms --assignment close",
        "echo > started; sleep 3",
    );
    wait_for(&shop.path("started"));
    let since = Instant::now();
    let mut expiries = Vec::new();
    while since.elapsed() < Duration::from_millis(2500) {
        let shown = shop.ask("actor show crew").json;
        assert_eq!(shown["state"], "HELD", "{shown}");
        assert_eq!(shown["token"], 1, "a renewal keeps the token");
        expiries.push(shown["expires_at_ms"].as_u64().unwrap());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(expiries.is_sorted(), "{expiries:?}");
    expiries.dedup();
    assert!(expiries.len() >= 5, "{expiries:?}");
    assert_eq!(ended(&shop, run).0, 0);
    assert_eq!(shop.state("close"), "COMPLETED");
}

#[test]
fn an_interrupt_stops_the_program_and_gives_the_authority_back() {
    for (name, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let shop = Shop::open();
        let run = start(
            &shop,
            "--assignment close",
            "trap 'echo told > told; exit 0' TERM; echo $$ > started; while :; do sleep 0.02; done",
        );
        let pid = wait_for(&shop.path("started"));
        signal(run.id(), name);
        let (code, report, _) = ended(&shop, run);
        assert_eq!(
            (code, report["state"].as_str(), report["result"].as_str()),
            (status, Some("FAILED"), Some("interrupted"))
        );
        assert_eq!(wait_for(&shop.path("told")), "told");
        assert!(!runs(&pid));
        assert_eq!(shop.state("close"), "FAILED");
        nothing_is_held(&shop);
    }
}

#[test]
fn a_second_interrupt_or_the_end_of_the_grace_kills_a_deaf_program() {
    for twice in [true, false] {
        let shop = Shop::open();
        let grace = if twice { "20s" } else { "300ms" };
        let run = start(
            &shop,
            &format!("--grace {grace}"),
            "trap '' TERM INT; echo $$ > started; while :; do sleep 0.02; done",
        );
        let pid = wait_for(&shop.path("started"));
        signal(run.id(), "INT");
        if twice {
            std::thread::sleep(Duration::from_millis(100));
            signal(run.id(), "INT");
        }
        let since = Instant::now();
        let (status, report, _) = ended(&shop, run);
        assert!(since.elapsed() < Duration::from_secs(10));
        assert_eq!(
            (status, report["result"].as_str(), &report["signal"]),
            (137, Some("interrupted"), &9.into())
        );
        assert!(!runs(&pid));
    }
}

#[test]
fn a_signal_that_would_end_the_process_gives_the_authority_back_first() {
    for (name, number) in [("USR1", 10), ("USR2", 12), ("ALRM", 14), ("XCPU", 24)] {
        let shop = Shop::open();
        let run = start(&shop, "--assignment close", "echo $$ > started; sleep 60 & wait");
        let pid = wait_for(&shop.path("started"));
        signal(run.id(), name);
        let (_, report, _) = ended(&shop, run);
        assert_eq!(report["interrupted_by"], number, "{name}: {report}");
        assert!(!runs(&pid));
        assert_eq!(shop.state("close"), "FAILED");
        nothing_is_held(&shop);
    }
}

#[test]
fn status_row_and_report_of_an_interrupted_run_agree() {
    for (on_term, status, how, number) in [
        ("trap - TERM", 143, "signal", 15),
        ("trap 'exit 5' TERM", 5, "exit", 5),
        // An exit status of 0 would say that the work is done.
        ("trap 'exit 0' TERM", 130, "exit", 0),
        ("trap '' TERM", 137, "signal", 9),
    ] {
        let shop = Shop::open();
        let run = start(
            &shop,
            "--grace 300ms --assignment close",
            &format!("{on_term}; echo $$ > started; while :; do sleep 0.02; done"),
        );
        wait_for(&shop.path("started"));
        signal(run.id(), "INT");
        let (code, report, _) = ended(&shop, run);
        assert_eq!((code, &report[how]), (status, &number.into()), "{on_term}: {report}");
        let row = shop.ask("assignment show close").json;
        for told in [&report, &row] {
            assert_eq!(
                (told["state"].as_str(), told["result"].as_str()),
                (Some("FAILED"), Some("interrupted")),
                "{on_term}: {told}"
            );
        }
        assert_eq!(report["interrupted_by"], 2, "{on_term}");
        nothing_is_held(&shop);
    }
}

#[test]
fn a_pipeline_is_one_program() {
    let shop = Shop::open();
    let script = "printf '%s\n' cones vanilla | sort -r | head -n 1 > first; test $(cat first) = vanilla";
    let (status, report) = ran(&shop, "", script);
    assert_eq!((status, report["state"].as_str()), (0, Some("COMPLETED")), "{report}");
    let run = start(
        &shop,
        "--assignment flow",
        "echo $$ > started; yes | cat | cat > /dev/null",
    );
    let group = wait_for(&shop.path("started"));
    wait_until("all of it runs", || members(&group) >= 3);
    signal(run.id(), "TERM");
    let (_, report, _) = ended(&shop, run);
    assert_eq!(report["result"], "interrupted");
    wait_until("nothing of it is left", || members(&group) == 0);
}

/// How many processes of a group are there, zombies not counted.
fn members(group: &str) -> usize {
    let listed = Command::new("ps").args(["-eo", "pgid=,stat="]).output().unwrap();
    String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.trim().split_once(char::is_whitespace))
        .filter(|(pgid, stat)| *pgid == group && !stat.trim().starts_with('Z'))
        .count()
}

#[test]
fn a_daemon_that_left_the_group_is_neither_waited_for_nor_stopped() {
    let shop = Shop::open();
    let daemon = "echo $$ > daemon; exec sleep 60";
    let script =
        format!("setsid sh -c '{daemon}' < /dev/null > /dev/null 2>&1 & while ! test -s daemon; do sleep 0.02; done");
    let since = Instant::now();
    let (status, report) = ran(&shop, "", &script);
    let daemon = wait_for(&shop.path("daemon"));
    let outlived = runs(&daemon);
    signal(daemon.parse().unwrap(), "KILL");
    assert_eq!((status, report["state"].as_str()), (0, Some("COMPLETED")), "{report}");
    assert!(since.elapsed() < Duration::from_secs(20), "it was not waited for");
    assert!(outlived, "the help says so: it left the group");
    nothing_is_held(&shop);
}

#[test]
fn what_is_left_of_the_group_ends_with_the_program() {
    let shop = Shop::open();
    let left_behind = "trap \"\" TERM HUP; while :; do sleep 0.02; done";
    let script = format!("sh -c '{left_behind}' > left.log 2>&1 & echo $! > left; exit 0");
    let (status, _) = ran(&shop, "", &script);
    assert_eq!(status, 0);
    let left = wait_for(&shop.path("left"));
    let since = Instant::now();
    while runs(&left) && since.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let outlived = runs(&left);
    if outlived {
        signal(left.parse().unwrap(), "KILL");
    }
    assert!(!outlived, "it would work on without authority");
}

#[test]
fn the_ledger_that_a_run_needs_decides_before_anything_runs() {
    let shop = Shop::new();
    std::fs::write(shop.ledger(), "no ledger").unwrap();
    let (status, report) = ran(&shop, "", "touch worked");
    assert_eq!((status, report["error"].as_str()), (1, Some("not_a_ledger")));
    assert!(!shop.path("worked").exists());
}

/// A shell at a terminal of its own, as `script` makes one: it runs `script` under the fence, then `then`. The keys that are
/// typed come from `keys`.
fn at_a_terminal(shop: &Shop, script: &str, then: &str, keys: &str) -> Option<Output> {
    let found = Command::new("script").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        skip("a run at a terminal", "`script` of util-linux is not installed");
        return None;
    }
    let binary = env!("CARGO_BIN_EXE_keyfence");
    let mut terminal = Command::new("script");
    terminal
        .args([
            "-qec",
            &format!("{binary} run --actor crew --report report.json -- sh -c '{script}'; {then}"),
            "/dev/null",
        ])
        .current_dir(shop.path("."))
        .env_remove("KEYFENCE_LEDGER")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
    wait_for(&shop.path("started"));
    std::io::Write::write_all(terminal.stdin.as_mut().unwrap(), keys.as_bytes()).unwrap();
    Some(finish(terminal))
}

#[test]
fn the_program_has_the_terminal_while_it_runs() {
    let shop = Shop::open();
    let script = "ps -o tpgid= -p $$ > foreground; echo $$ > started; read line && echo \"$line\" > heard";
    if at_a_terminal(&shop, script, "read after; echo $after > after", "vanilla\ncones\n").is_some() {
        assert_eq!(wait_for(&shop.path("heard")), "vanilla");
        assert_eq!(
            wait_for(&shop.path("foreground")),
            wait_for(&shop.path("started")),
            "from the start"
        );
        assert_eq!(wait_for(&shop.path("after")), "cones", "the shell has it again");
        assert_eq!(report(&shop)["state"], "COMPLETED");
    }
}

#[test]
fn control_c_at_the_terminal_interrupts_the_run() {
    let shop = Shop::open();
    let script = "echo > started; while :; do sleep 0.02; done";
    if at_a_terminal(&shop, script, "true", "\u{3}").is_some() {
        let report = report(&shop);
        assert_eq!(
            (report["state"].as_str(), report["result"].as_str()),
            (Some("FAILED"), Some("interrupted"))
        );
        nothing_is_held(&shop);
    }
}
