//! The three exercises: what they have to show, key by key.

use crate::support::{Shop, reply};
use serde_json::{Value, json};

#[test]
fn the_authority_exercise_prints_exactly_the_expected_observations() {
    let observed = Shop::new().ask("demo authority").json;
    let expected = json!({
        "actor_lease_cas": {
            "process_a_acquired": "token=1",
            "process_b_while_a_holds_it": "refused: actor_lease_held",
            "process_a_released": "True",
            "process_b_now_acquires_cleanly": "token=2"
        },
        "execution_attempt_fencing": {
            "acquired": "attempt_id=att_...",
            "second_attempt_same_assignment": "refused: execution_attempt_held",
            "stale_lease_token": "refused: actor_lease_lost"
        },
        "second_process_same_actor_different_assignment": {
            "outcome": "refused",
            "category": "actor_lease_held"
        },
        "assignment_never_reached_running": "CREATED",
        "same_actor_next_assignment_after_release": "COMPLETED"
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(observed[key], *value, "{key}");
    }
    let order: Vec<&String> = observed.as_object().unwrap().keys().take(5).collect();
    assert_eq!(order, expected.as_object().unwrap().keys().collect::<Vec<_>>());
    assert_eq!(observed["second_process_did_any_work"], false);
    assert!(observed["attempt_id"].as_str().unwrap().starts_with("att_"));
}

#[test]
fn an_actor_that_returns_has_a_new_number_and_its_old_one_stays_refused() {
    let observed = Shop::new().ask("demo authority").json;
    let third = &observed["third_act"];
    assert_eq!(third["processes"], json!(["process-a", "process-b", "process-a"]));
    let tokens: Vec<u64> = third["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(Value::as_u64)
        .collect();
    assert!(tokens.is_sorted_by(|a, b| a < b) && tokens.len() == 3, "{tokens:?}");
    assert_eq!(third["first_run_renews_its_token"], "refused: actor_lease_lost");
    assert_eq!(third["first_run_finishes"], "refused: actor_lease_lost");
    assert_eq!(third["last_run_finishes"], "COMPLETED");
}

#[test]
fn the_mailbox_exercise_shows_the_disease_and_the_cure() {
    let observed = Shop::new().ask("demo mailbox").json;
    assert_eq!(
        observed["read_then_write"],
        json!({
            "worker_a_saw": "NEW",
            "worker_a_decides_to_claim": true,
            "worker_b_saw": "NEW",
            "worker_b_decides_to_claim": true,
            "owner_on_disk": "worker-b",
        })
    );
    assert_eq!(observed["compare_and_set"]["worker_a"], "claimed: token=1");
    assert_eq!(observed["compare_and_set"]["worker_b"], "refused: message_held");
    assert_eq!(
        observed["complete_under_the_token"]["with_a_never_issued_token"],
        "refused: fencing_token_stale"
    );
    assert_eq!(observed["complete_under_the_token"]["never_issued"], true);
    assert_eq!(observed["complete_under_the_token"]["with_its_own_token"], "completed");
    let timeline: Vec<(u64, &str, &str)> = observed["lease_timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            let text = |key: &str| step[key].as_str().unwrap();
            (step["minute"].as_u64().unwrap(), text("worker"), text("answer"))
        })
        .collect();
    assert_eq!(
        timeline,
        [
            (0, "worker-a", "fresh"),
            (5, "worker-a", "same"),
            (10, "worker-b", "refused"),
            (20, "worker-b", "fresh"),
            (25, "worker-a", "refused"),
        ]
    );
    let token = |step: usize| observed["lease_timeline"][step]["token"].as_u64();
    assert_eq!(token(0), token(1));
    assert!(token(3) > token(0));
    assert_eq!((token(2), token(4)), (None, None));
    assert_eq!(
        observed["late_completion"]["worker_a_with_its_lapsed_token"],
        "refused: fencing_token_stale"
    );
    assert_eq!(
        observed["late_completion"]["worker_b_with_the_current_token"],
        "completed"
    );
    assert_eq!(
        observed["retry_budget"]["attempts"],
        json!(["retried", "retried", "retried", "dead-lettered"])
    );
    assert_eq!(observed["retry_budget"]["final"], json!(["DEAD", 3]));
    let third = &observed["third_act"];
    let tokens: Vec<u64> = third["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t.as_u64().unwrap())
        .collect();
    assert!(tokens.is_sorted_by(|a, b| a < b) && tokens.len() == 3, "{tokens:?}");
    assert_eq!(third["worker_a_with_its_first_token"], "refused: fencing_token_stale");
    assert_eq!(third["worker_a_with_its_last_token"], "completed");
}

#[test]
fn the_kiosks_exercise_commits_only_the_current_generation() {
    let observed = Shop::new().ask("demo kiosks").json;
    assert_eq!(observed["incarnations"], json!([1, 2]));
    assert_eq!(observed["stale_finish"], "REFUSED");
    assert_eq!(observed["committed"]["host"], "kiosk-b");
    assert_eq!(observed["committed"]["incarnation"], 2);
    assert_eq!(observed["refusal"], "refused: session_claim_stale");
    let third = &observed["third_act"];
    assert_eq!(third["hosts"], json!(["kiosk-a", "kiosk-b", "kiosk-a"]));
    assert_eq!(third["incarnations"], json!([1, 2, 3]));
    assert_eq!(third["stale_finish"], "REFUSED");
    assert_eq!(third["committed"]["incarnation"], 3);
    assert_eq!(observed["host_name_alone"]["late_answer_of_the_first_run"], "accepted");
}

#[test]
fn a_demo_is_short_enough_to_read_in_a_minute() {
    let shop = Shop::new();
    for exercise in ["mailbox", "authority", "kiosks"] {
        let (status, text, stderr) = shop.say(&format!("demo {exercise}"));
        assert_eq!((status, stderr.as_str()), (0, ""), "{exercise}");
        assert!(text.lines().count() <= 50, "{exercise}: {} lines", text.lines().count());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{exercise}: {text}"
        );
        assert!(text.contains("refused: "), "{exercise}");
        assert!(text.contains("1. The wrong way"), "{exercise}");
    }
}

#[test]
fn a_demo_heeds_no_environment_and_wants_a_ledger_of_its_own() {
    let shop = Shop::open();
    let before = std::fs::read(shop.ledger()).unwrap();
    let output = shop
        .command()
        .env("KEYFENCE_LEDGER", shop.ledger())
        .args(["--json", "demo", "kiosks"])
        .output()
        .unwrap();
    assert_eq!(reply(&output).status, 0);
    assert_eq!(std::fs::read(shop.ledger()).unwrap(), before);
    shop.ask("--ledger keyfence.db demo kiosks").wrong_usage();
    // A named one that is not there yet is kept, to look at.
    assert_eq!(shop.ask("--ledger new.db demo kiosks").status, 0);
    let session = shop.ask("--ledger new.db session show supplier-chat").json;
    assert_eq!(session["state"], "FINISHED");
    let Value::Array(events) = shop.ask("--ledger new.db events").json else {
        panic!("no array");
    };
    assert!(events.len() > 5);
    shop.ask("demo something").wrong_usage();
}
