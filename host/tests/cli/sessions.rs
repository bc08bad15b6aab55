//! The rows of hosts and sessions: success, refusal and bad input of each.

use crate::support::{A, B, Shop};

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
fn a_finish_that_is_refused_for_its_hosts_lease_says_when_that_lapsed() {
    let shop = Shop::new();
    shop.ask(&format!("--now 1000 host register kiosk-a --process {A} --ttl 10s"))
        .granted();
    shop.ask(&format!(
        "--now 2000 session claim chat --host kiosk-a --process {A} --host-token 1 --ttl 60s"
    ))
    .granted();
    let finish = "session finish chat --host kiosk-a --incarnation 1 --token 2 --host-token 1";
    let refused = shop
        .ask(&format!("--now 31000 {finish}"))
        .refused("session_claim_stale");
    assert_eq!(refused["expires_at_ms"], 11_000);
    let reason = refused["reason"].as_str().unwrap();
    assert!(
        reason.contains("last held by kiosk-a") && reason.contains("(20s ago)"),
        "{reason}"
    );
    let at_once = shop
        .ask(&format!("--now 11000 {finish}"))
        .refused("session_claim_stale");
    assert!(!at_once["reason"].as_str().unwrap().contains("0s"), "{at_once}");
    let shown = shop.ask("--now 31000 session show chat").json;
    assert_eq!(
        (shown["state"].as_str(), &shown["host_lost"]),
        (Some("LAPSED"), &true.into())
    );
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
