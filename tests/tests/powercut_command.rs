//! The `powercut` command, as a person or a script meets it.

use std::process::{Command, Output};

use serde_json::Value;

fn powercut(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_powercut"))
        .args(arguments)
        .output()
        .expect("powercut runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object on stdout")
}

#[test]
fn sim_prints_one_json_object_and_says_by_its_status_that_something_failed() {
    let output = powercut(&[
        "sim",
        "--store",
        "sequential-storage",
        "--geometry",
        "tiny-4",
        "--commits",
        "8",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert_eq!(report["store"], "sequential-storage");
    assert_eq!(report["geometry"], "tiny-4");
    assert!(report["cases"].as_u64() > Some(0));
    assert_eq!(report["by_cut"]["clean"]["failures"], 0);
    assert_eq!(report["by_cut"]["torn_write"]["failures"], 0);
    assert!(report["by_cut"]["torn_erase"]["cases"].as_u64() > Some(0));
    assert!(report["by_cut"]["torn_erase"]["failures"].as_u64() > Some(0));
}

#[test]
fn the_replay_command_of_a_failure_fails_again_and_tells_the_story() {
    let output = powercut(&[
        "sim",
        "--store",
        "in-place",
        "--geometry",
        "tiny-8",
        "--commits",
        "4",
        "--json",
    ]);
    let report = json(&output);
    let replay = report["first_failures"][0]["replay"].as_str().expect("a command");
    let arguments: Vec<_> = replay
        .split(' ')
        .skip(1)
        .map(|argument| argument.trim_matches('\''))
        .collect();
    let output = powercut(&arguments);
    assert_eq!(output.status.code(), Some(1), "{replay}");
    let story = String::from_utf8(output.stdout).expect("text");
    assert!(story.starts_with("cut 1: during"), "{story}");
    assert!(story.contains("violation: "), "{story}");
}

#[test]
fn sim_writes_a_report_that_needs_no_other_file() {
    let (scratch, mut page) = (Scratch::new(), String::new());
    for store in ["in-place", "keyfence"] {
        let name = scratch.path("report.html");
        powercut(&[
            "sim",
            "--store",
            store,
            "--geometry",
            "tiny-4",
            "--commits",
            "2",
            "--html",
            &name,
        ]);
        page = std::fs::read_to_string(&name).expect("the report");
        assert!(page.contains(store));
    }
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg"));
}

/// A file that is removed in the end.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("a path of text").to_owned()
    }
}

fn finding_kinds(story: &Value) -> Vec<&str> {
    let findings = story["findings"].as_array().expect("findings");
    findings.iter().filter_map(|finding| finding["kind"].as_str()).collect()
}

#[test]
fn a_cut_that_is_replayed_can_be_dumped_and_its_dump_says_which_cut_it_was() {
    let (scratch, life) = (Scratch::new(), ["sim", "--geometry", "tiny-4", "--commits", "4"]);
    // The first unit of some frame, half written: the first operation that leaves a torn body.
    for operation in 0..40 {
        let (case, file) = (format!("{operation}~w:first2>first2~left"), scratch.path("torn.bin"));
        let output = powercut(&[&life[..], &["--replay", &case, "--dump", &file]].concat());
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let output = powercut(&["inspect", &file, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{case}");
        let story = json(&output);
        assert_eq!(
            (&story["geometry"], &story["verdict"]["mount"]),
            (&"tiny-4".into(), &"sound".into())
        );
        if finding_kinds(&story).contains(&"torn_body") {
            let text = powercut(&["inspect", &file]);
            let text = String::from_utf8(text.stdout).expect("text");
            assert!(
                text.contains("sound: ledger") && text.contains("whose body was cut"),
                "{text}"
            );
            return;
        }
    }
    panic!("no cut tore a body");
}

#[test]
fn inspect_tells_an_image_that_was_put_back() {
    let scratch = Scratch::new();
    let dump = |name: &str, case: &str| {
        let file = scratch.path(name);
        let life = [
            "sim",
            "--geometry",
            "tiny-8",
            "--commits",
            "6",
            "--replay",
            case,
            "--dump",
            &file,
        ];
        assert_eq!(powercut(&life).status.code(), Some(0));
        file
    };
    let (old, new) = (dump("old.bin", "0~clean~left"), dump("new.bin", "40~clean~left"));
    let goes_on = powercut(&["inspect", &new, "--earlier", &old]);
    assert_eq!(goes_on.status.code(), Some(0));
    let put_back = powercut(&["inspect", &old, "--earlier", &new, "--json"]);
    assert_eq!(put_back.status.code(), Some(1));
    assert_eq!(json(&put_back)["since_earlier"][0]["kind"], "rolled_back");
}

#[test]
fn inspect_has_an_answer_to_any_file() {
    let scratch = Scratch::new();
    let (noise, file) = (vec![0x3c; 4096], scratch.path("noise.bin"));
    std::fs::write(&file, &noise).expect("a file");
    assert_eq!(powercut(&["inspect", &file]).status.code(), Some(2));
    assert_eq!(
        powercut(&["inspect", &file, "--geometry", "nrf52"]).status.code(),
        Some(1)
    );
    assert_eq!(
        powercut(&["inspect", &file, "--geometry", "stm32h7"]).status.code(),
        Some(2)
    );
    assert_eq!(powercut(&["inspect", &scratch.path("none.bin")]).status.code(), Some(2));
    let said = powercut(&["inspect", &file, "--geometry", "tiny-4", "--json"]);
    assert_eq!(said.status.code(), Some(1));
    assert_eq!(json(&said)["verdict"]["mount"], "refused");
}

#[test]
fn a_campaign_goes_over_all_geometries_and_repeats_itself() {
    let run = || json(&powercut(&["campaign", "--cases", "600", "--seed", "9", "--json"]));
    let reports = run();
    let names: Vec<_> = reports.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(names.len(), 9, "{names:?}");
    for (name, report) in reports.as_object().expect("an object") {
        assert_eq!(report["store"], "keyfence");
        assert_eq!(report["failures"], 0, "{name}: {}", report["first_failures"]);
        assert!(report["cases"].as_u64() > Some(10), "{name}");
    }
    assert_eq!(run()["tiny-4"]["by_cut"], reports["tiny-4"]["by_cut"]);
}

#[test]
fn cost_is_keyed_by_store() {
    let output = powercut(&["cost", "--geometry", "nrf52", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let peer = &json(&output)["sequential-storage"];
    for key in ["words_per_claim", "erases_per_million", "mount_words", "years"] {
        assert!(peer[key].as_f64() > Some(0.0), "{key}");
    }
}

#[test]
fn misuse_is_told_apart_from_failure() {
    for arguments in [
        &["sim", "--geometry", "eprom"][..],
        &["sim", "--store", "paper"],
        &["sim", "--depth", "0"],
        &["sim", "--replay", "nonsense"],
        &["sim", "--commits", "0"],
        &["sim", "--dump", "somewhere"],
        &["sim", "--html", "/no/such/folder/report.html"],
        &[
            "sim",
            "--geometry",
            "tiny-4",
            "--commits",
            "2",
            "--replay",
            "99999~clean~left",
        ],
    ] {
        assert_eq!(powercut(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
