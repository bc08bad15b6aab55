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
    let file = std::env::temp_dir().join(format!("powercut-{}.html", std::process::id()));
    let name = file.to_str().expect("a path of text");
    powercut(&[
        "sim",
        "--store",
        "in-place",
        "--geometry",
        "tiny-4",
        "--commits",
        "2",
        "--html",
        name,
    ]);
    let page = std::fs::read_to_string(&file).expect("the report");
    std::fs::remove_file(&file).expect("the report can be removed");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg"));
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
    ] {
        assert_eq!(powercut(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
