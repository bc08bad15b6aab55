//! What becomes of a `keyfence run` that loses its authority: stalled, superseded, revoked, killed.

use std::time::{Duration, Instant};

use crate::support::shell_run::{ended, nothing_is_held, start};
use crate::support::{B, Shop, runs, signal, wait_for, wait_until};

/// Holds the ledger's write lock from outside, so that no renewal gets through.
fn lock_the_ledger(shop: &Shop) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(shop.ledger()).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

#[test]
fn a_program_that_ignores_term_is_killed_before_the_expiry() {
    let shop = Shop::open();
    let script =
        "trap 'date +%s%3N > termed' TERM; echo $$ > started; while :; do date +%s%3N >> alive; sleep 0.01; done";
    // TERM is due a third of the length before the expiry, KILL a second before it. The lease is long, so that a machine
    // that is late with everything by a second or two does not blur which is which.
    let ttl = 9_000;
    let run = start(&shop, &format!("--ttl {ttl}ms --assignment close"), script);
    let pid = wait_for(&shop.path("started"));
    let lock = lock_the_ledger(&shop);
    wait_until("the program is killed", || !runs(&pid));
    let expiry = shop.ask("actor show crew").json["expires_at_ms"].as_u64().unwrap();
    let last_of = |file: &str| -> u64 {
        let text = std::fs::read_to_string(shop.path(file)).unwrap();
        // What follows the last line's end was cut off by the kill.
        let (lines, _) = text.rsplit_once('\n').unwrap();
        lines.lines().last().unwrap().parse().unwrap()
    };
    let last = last_of("alive");
    assert!(last < expiry, "it wrote at {last}, the lease was {expiry}");
    let termed = last_of("termed");
    assert!(termed < last, "it was told, and went on");
    assert!(
        (1_000..=ttl / 2).contains(&(expiry - termed)),
        "TERM came {} ms before the expiry",
        expiry - termed
    );
    drop(lock);
    let (status, report, _) = ended(&shop, run);
    // Nobody superseded it, so its end is on the ledger: stopped, never completed.
    assert_eq!(
        (status, report["state"].as_str(), report["result"].as_str()),
        (3, Some("FAILED"), Some("lease_lapsed"))
    );
    assert_eq!(report["authority_lost"], true);
    assert_eq!(shop.state("close"), "FAILED");
    nothing_is_held(&shop);
}

#[test]
fn a_run_that_wakes_past_its_deadline_stops_the_program_and_says_so() {
    let shop = Shop::open();
    let run = start(
        &shop,
        "--ttl 600ms --assignment close",
        "echo $$ > started; while ! test -e go; do sleep 0.02; done",
    );
    let pid = wait_for(&shop.path("started"));
    signal(run.id(), "STOP");
    wait_until("the lease has lapsed", || {
        shop.ask("actor show crew").json["state"] == "LAPSED"
    });
    // The program goes on meanwhile, and even succeeds.
    std::fs::write(shop.path("go"), "").unwrap();
    wait_until("the program has ended", || !runs(&pid));
    signal(run.id(), "CONT");
    let (status, report, _) = ended(&shop, run);
    assert_eq!(
        (status, report["state"].as_str(), report["result"].as_str()),
        (3, Some("FAILED"), Some("lease_lapsed"))
    );
    assert_eq!(
        shop.state("close"),
        "FAILED",
        "what it returned while nobody looked is never committed"
    );
    nothing_is_held(&shop);
}

#[test]
fn a_run_that_was_superseded_while_it_was_stopped_is_refused() {
    let shop = Shop::open();
    let run = start(
        &shop,
        "--ttl 600ms --assignment close",
        "echo $$ > started; while :; do sleep 0.02; done",
    );
    let pid = wait_for(&shop.path("started"));
    signal(run.id(), "STOP");
    wait_until("another one has taken over", || {
        shop.ask(&format!("actor acquire crew --process {B}")).status == 0
    });
    let held = shop.ask("actor show crew").json;
    assert!(runs(&pid), "the stale program goes on: the fence is no sandbox");
    signal(run.id(), "CONT");
    let (status, report, _) = ended(&shop, run);
    assert_eq!((status, report["refusal"].as_str()), (3, Some("actor_lease_lost")));
    assert_eq!(report.get("token"), None);
    // What the ledger does not have is no result of the assignment.
    assert_eq!(
        (report.get("result"), report["dropped_result"].as_str()),
        (None, Some("lease_lapsed"))
    );
    assert!(!runs(&pid));
    assert_eq!(shop.state("close"), "RUNNING");
    let still = shop.ask("actor show crew").json;
    assert_eq!(
        (&still["token"], &still["process"]),
        (&held["token"], &held["process"]),
        "the new holder is left alone"
    );
    assert_eq!(
        shop.ask("supervise --once").done()["closed"],
        serde_json::json!(["close"])
    );
    assert_eq!(shop.state("close"), "FAILED");
}

#[test]
fn a_revoked_run_is_stopped_at_its_next_renewal() {
    let shop = Shop::open();
    let since = Instant::now();
    let run = start(
        &shop,
        "--ttl 6s --assignment close",
        "trap '' TERM; echo $$ > started; while :; do sleep 0.02; done",
    );
    let pid = wait_for(&shop.path("started"));
    shop.ask("revoke actor crew --reason stolen").done();
    let (status, report, _) = ended(&shop, run);
    assert_eq!((status, report["refusal"].as_str()), (3, Some("actor_lease_lost")));
    assert!(!runs(&pid));
    let took = since.elapsed();
    assert!(
        took < Duration::from_secs(4),
        "killed at the refusal, after {took:?}, not at the deadline"
    );
}

#[test]
fn a_killed_run_takes_its_program_with_it_and_the_supervisor_closes_its_work() {
    let shop = Shop::open();
    let mut run = start(
        &shop,
        "--ttl 700ms --attempt-ttl 700ms --assignment close",
        "echo $$ > started; exec sleep 60",
    );
    let pid = wait_for(&shop.path("started"));
    run.kill();
    wait_until("the program died with its parent", || !runs(&pid));
    let left: Vec<_> = std::fs::read_dir(shop.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().contains("report"))
        .collect();
    assert!(left.is_empty(), "a killed run leaves no report behind: {left:?}");
    assert_eq!(shop.state("close"), "RUNNING");
    let tick = shop.ask("supervise --once").done();
    if tick["closed_count"] == 0 {
        assert_eq!(shop.state("close"), "RUNNING", "never while the attempt is live");
    }
    wait_until("the attempt has lapsed and is closed", || {
        shop.ask("supervise --once").done();
        shop.state("close") == "FAILED"
    });
    assert_eq!(shop.ask("assignment show close").json["result"], "worker_lost");
}
