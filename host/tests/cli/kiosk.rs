//! `keyfence kiosk`: what it says without hardware, and a whole kiosk in the emulator.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Shop, skip};
use rustix::process::Signal;
use serde_json::Value;

const PROCESS: &str = "proc_0123456789abcdef0123456789abcdef";
const OTHER: &str = "proc_fedcba9876543210fedcba9876543210";
/// How long the README's guide may take; far more than it takes.
const GUIDE_TIME: Duration = Duration::from_secs(90);

/// The image that the emulator runs, where one was built. Where `KEYFENCE_EMULATOR` is `required` there must be one, and an
/// emulator to run it.
fn image(test: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/boards/product");
    let image = ["thumbv6m-none-eabi", "debian/thumbv6m-none-eabi"]
        .map(|folder| root.join(folder).join("kiosk/keyfence-microbit"))
        .into_iter()
        .find(|path| path.is_file());
    let is_required = std::env::var_os("KEYFENCE_EMULATOR").is_some_and(|value| value == "required");
    let why = match (&image, keyfence::emulator::is_installed()) {
        (Some(_), true) => return image,
        (None, _) => "the image of the micro:bit was not built (tests/run builds it)",
        (Some(_), false) => "qemu-system-arm is not installed",
    };
    assert!(!is_required, "{test}: {why}");
    skip(test, why);
    None
}

/// An emulated kiosk, run by the command itself; it ends with the test.
struct Kiosk {
    running: Child,
}

impl Kiosk {
    fn start(shop: &Shop, image: &Path, flash: &str) -> Self {
        let mut running = shop
            .command()
            .args(["--json", "kiosk", "emulate", flash, "--image"])
            .arg(image)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(running.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        assert_eq!(told["outcome"], "running", "{told}");
        Self { running }
    }

    fn signal(&mut self, signal: Signal) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.running);
        rustix::process::kill_process(pid, signal).unwrap();
        self.running.wait().unwrap().code()
    }
}

impl Drop for Kiosk {
    fn drop(&mut self) {
        // Nothing is lost by it, and one that was ended by its test is not there.
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

fn provision(shop: &Shop, image: &Path, name: &str) {
    let flash = format!("{name}.flash");
    let image = image.to_str().unwrap();
    let made = shop.ask_with(&["kiosk", "provision", &flash, "--name", name, "--image", image]);
    let made = made.is("done", 0);
    assert_eq!(made["kiosk"], name);
    let shown = made.to_string();
    let key = std::fs::read_to_string(shop.path(&format!("{name}.key"))).unwrap();
    let key: Value = serde_json::from_str(&key).unwrap();
    assert!(
        !shown.contains(key["key"].as_str().unwrap()),
        "the key is in its file only"
    );
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    let shop = Shop::new();
    shop.ask("kiosk info --port /dev/no-such-port").wrong_usage();
    shop.ask("kiosk info").wrong_usage();
    shop.ask("kiosk info --emulator a.flash --port /dev/x").wrong_usage();
    shop.ask("kiosk info --emulator a.flash").error("emulator_not_running");
    shop.ask("kiosk reset a.flash").error("emulator_not_running");
    shop.ask("kiosk info --port /dev/no-such-port --key no.key")
        .error("key_file");
    shop.ask("kiosk provision a.flash --name a --image no-such-image")
        .error("image");
    shop.ask("kiosk emulate a.flash --image no-such-image").error("image");
    assert!(!shop.path("a.flash").exists(), "nothing is made by what fails");
    let key = format!(
        r#"{{"device":"dev_{:032x}","name":"a","key":"{}"}}"#,
        1,
        "a5".repeat(32)
    );
    std::fs::write(shop.path("a.key"), key).unwrap();
    shop.ask("kiosk info --port /dev/no-such-port --key a.key")
        .error("key_exposed");
    std::fs::set_permissions(shop.path("a.key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    shop.ask("kiosk info --port /dev/no-such-port --key a.key")
        .error("port_missing");
}

#[test]
fn a_session_on_an_emulated_kiosk_is_claimed_taken_over_and_finished() {
    let Some(image) = image("a_session_on_an_emulated_kiosk_is_claimed_taken_over_and_finished") else {
        return;
    };
    let shop = Shop::new();
    provision(&shop, &image, "kiosk-a");
    let _kiosk = Kiosk::start(&shop, &image, "kiosk-a.flash");
    let ask = |words: &str| shop.ask(&format!("kiosk {words} --emulator kiosk-a.flash"));

    let first = ask(&format!("host register one --process {PROCESS}")).is("granted", 0);
    let second = ask(&format!("host register two --process {OTHER}")).is("granted", 0);
    let claim = |host: &str, process: &str, token: &Value, ttl: &str| {
        ask(&format!(
            "session claim till --host {host} --process {process} --host-token {token} --ttl {ttl}"
        ))
    };
    let finish = |grant: &Value| {
        let (host, incarnation) = (grant["host"].as_str().unwrap(), &grant["incarnation"]);
        let (token, host_token) = (&grant["token"], &grant["host_token"]);
        ask(&format!(
            "session finish till --host {host} --incarnation {incarnation} --token {token} --host-token {host_token} \
             --result sold"
        ))
    };
    let stale = claim("one", PROCESS, &first["token"], "1ms").is("granted", 0);
    let grant = claim("two", OTHER, &second["token"], "60s").is("granted", 0);
    assert_eq!((&stale["incarnation"], &grant["incarnation"]), (&1.into(), &2.into()));
    let held = claim("one", PROCESS, &first["token"], "60s").refused("session_held");
    assert_eq!(held["holder"], "two");
    let (until, granted_until) = (held["expires_at_ms"].as_u64(), grant["expires_at_ms"].as_u64());
    let apart = until.unwrap().abs_diff(granted_until.unwrap());
    assert!(apart < 5_000, "both are on this machine's clock: {apart} ms apart");
    let is_on = || ask("info").json["outputs"][0]["on"].clone();
    assert_eq!(is_on(), true, "the output follows the live claim");
    finish(&stale).refused("session_claim_stale");
    assert_eq!(finish(&grant).is("done", 0)["state"], "FINISHED");
    finish(&grant).is("already_done", 0);
    assert_eq!(is_on(), false);
    assert_eq!(ask("session show till").json["state"], "FINISHED");
    assert_eq!(ask("session show other").json["known"], false);
    let long = "x".repeat(33);
    for call in [
        format!("actor acquire {long} --process {PROCESS}"),
        format!("session show {long}"),
    ] {
        let reason = ask(&call).wrong_usage()["reason"].to_string();
        assert!(reason.contains("a name has at most 32 bytes"), "{call}: {reason}");
    }
}

#[test]
fn an_emulated_kiosk_keeps_what_it_answered_through_power_cuts_and_kills() {
    let Some(image) = image("an_emulated_kiosk_keeps_what_it_answered_through_power_cuts_and_kills") else {
        return;
    };
    let shop = Shop::new();
    provision(&shop, &image, "kiosk-a");
    let mut kiosk = Kiosk::start(&shop, &image, "kiosk-a.flash");
    let ask = |words: &str| shop.ask(&format!("kiosk {words} --emulator kiosk-a.flash"));
    let acquire = || ask(&format!("actor acquire alarm --process {PROCESS}"));
    let token = |grant: &Value| grant["token"].as_u64().unwrap();

    shop.ask("kiosk emulate kiosk-a.flash --image x").error("image");
    let image_text = image.to_str().unwrap();
    let busy = ["kiosk", "emulate", "kiosk-a.flash", "--image", image_text];
    shop.ask_with(&busy).error("emulator_runs");
    let first = acquire().is("granted", 0);
    acquire().refused("actor_lease_held");
    let boot = ask("info").json["boot"].as_u64().unwrap();

    shop.ask("kiosk cut-power kiosk-a.flash --seed 7").is("done", 0);
    let renew = format!("actor renew alarm --process {PROCESS} --token {}", first["token"]);
    ask(&renew).refused("actor_lease_lost");
    let second = acquire().is("granted", 0);
    assert!(token(&second) > token(&first));
    assert_eq!(ask("info").json["boot"], boot + 1);

    shop.ask("kiosk reset kiosk-a.flash").is("done", 0);
    let third = acquire().is("granted", 0);
    assert!(token(&third) > token(&second));

    // Killed without a word: the file has what was answered.
    kiosk.signal(Signal::KILL);
    let mut kiosk = Kiosk::start(&shop, &image, "kiosk-a.flash");
    let fourth = acquire().is("granted", 0);
    assert!(token(&fourth) > token(&third));

    assert_eq!(kiosk.signal(Signal::TERM), Some(0));
    assert!(!shop.path("kiosk-a.flash.port").exists());
    let _kiosk = Kiosk::start(&shop, &image, "kiosk-a.flash");
    let fifth = acquire().is("granted", 0);
    assert!(token(&fifth) > token(&fourth));
    ask("revoke actor alarm").is("done", 0);
    ask("dump journal.bin").is("done", 0);
    assert_eq!(std::fs::metadata(shop.path("journal.bin")).unwrap().len(), 24 * 1024);

    // Another kiosk's key opens nothing.
    provision(&shop, &image, "kiosk-b");
    let other = shop.ask("kiosk info --emulator kiosk-a.flash --key kiosk-b.key");
    other.error("other_device");
    let again = [
        "kiosk",
        "provision",
        "kiosk-b.flash",
        "--name",
        "b",
        "--image",
        image_text,
    ];
    shop.ask_with(&again).error("not_provisioned");
}

#[test]
fn an_attempt_on_an_emulated_kiosk_finishes_only_under_the_lease_it_descends_from() {
    let test = "an_attempt_on_an_emulated_kiosk_finishes_only_under_the_lease_it_descends_from";
    let Some(image) = image(test) else {
        return;
    };
    let shop = Shop::new();
    provision(&shop, &image, "kiosk-a");
    let _kiosk = Kiosk::start(&shop, &image, "kiosk-a.flash");
    let ask = |words: &str| shop.ask(&format!("kiosk {words} --emulator kiosk-a.flash"));
    let lease = |process: &str| {
        let lease = ask(&format!("actor acquire closing --process {process}")).is("granted", 0);
        lease["token"].clone()
    };
    let attempt = |work: &str, process: &str, lease: &Value| {
        ask(&format!(
            "attempt acquire {work} --actor closing --process {process} --lease-token {lease}"
        ))
    };
    let with = |verb: &str, work: &str, grant: &Value, more: &str| {
        let (id, token) = (grant["attempt"].as_str().unwrap(), &grant["token"]);
        ask(&format!("attempt {verb} {work} --attempt {id} --token {token} {more}"))
    };

    attempt("count", PROCESS, &1.into()).refused("actor_lease_lost");
    let first_lease = lease(PROCESS);
    attempt("count", PROCESS, &first_lease).refused("assignment_missing");
    ask("assignment create count --actor closing").is("done", 0);
    ask("assignment create count --actor closing").is("already_done", 0);
    let first = attempt("count", PROCESS, &first_lease).is("granted", 0);
    attempt("count", PROCESS, &first_lease).refused("execution_attempt_held");
    let renewed = with("renew", "count", &first, "--ttl 1h").is("granted", 0);
    assert_eq!(
        (&renewed["token"], &renewed["renewed"]),
        (&first["token"], &true.into())
    );
    assert!(renewed["expires_at_ms"].as_u64() > first["expires_at_ms"].as_u64());
    let shown = ask("assignment show count").json;
    assert_eq!((&shown["state"], &shown["live"]), (&"RUNNING".into(), &true.into()));
    assert_eq!(ask("attempt close-lost count").is("done", 0)["closed"], false);
    with("release", "count", &first, "").is("done", 0);
    with("finish", "count", &first, "--state completed").refused("execution_attempt_lost");

    let second = attempt("count", PROCESS, &first_lease).is("granted", 0);
    with("finish", "count", &second, "--state completed --result 142.50").is("done", 0);
    with("finish", "count", &second, "--state completed --result 142.50").is("already_done", 0);
    with("finish", "count", &second, "--state failed").refused("execution_attempt_lost");
    let shown = ask("assignment show count").json;
    assert_eq!(
        (&shown["state"], &shown["result"]),
        (&"COMPLETED".into(), &"142.50".into())
    );

    // Another process takes the actor over: what descends from the first lease is dead.
    ask("assignment create clean --actor closing").is("done", 0);
    let stale = attempt("clean", PROCESS, &first_lease).is("granted", 0);
    ask("revoke actor closing").is("done", 0);
    let second_lease = lease(OTHER);
    assert_eq!(ask("assignment show clean").json["lease_lost"], true);
    with("finish", "clean", &stale, "--state completed").refused("actor_lease_lost");
    let current = attempt("clean", OTHER, &second_lease).is("granted", 0);
    with("finish", "clean", &stale, "--state completed").refused("execution_attempt_lost");

    // After a power cut the attempt is not live, and still the current one: nobody superseded it.
    shop.ask("kiosk cut-power kiosk-a.flash").is("done", 0);
    assert_eq!(ask("assignment show clean").json["live"], false);
    with("finish", "clean", &current, "--state blocked").is("done", 0);
    ask("assignment create sweep --actor closing --retry-of clean").is("done", 0);
    let third_lease = lease(PROCESS);
    attempt("sweep", PROCESS, &third_lease).is("granted", 0);
    shop.ask("kiosk cut-power kiosk-a.flash").is("done", 0);
    assert_eq!(ask("attempt close-lost sweep").is("done", 0)["closed"], true);
    assert_eq!(ask("assignment show sweep").json["result"], "worker_lost");
}

#[test]
fn a_message_on_an_emulated_kiosk_is_claimed_retried_and_completed() {
    let Some(image) = image("a_message_on_an_emulated_kiosk_is_claimed_retried_and_completed") else {
        return;
    };
    let shop = Shop::new();
    provision(&shop, &image, "kiosk-a");
    let _kiosk = Kiosk::start(&shop, &image, "kiosk-a.flash");
    let ask = |words: &str| shop.ask(&format!("kiosk mailbox {words} --emulator kiosk-a.flash"));
    let send = |id: &str, more: &str| ask(&format!("send --to restock --id {id} {more}"));
    let claim =
        |id: &str, process: &str, ttl: &str| ask(&format!("claim {id} --as restock --process {process} --ttl {ttl}"));
    let with = |verb: &str, grant: &Value, more: &str| {
        let (id, token) = (grant["message"].as_str().unwrap(), &grant["token"]);
        let process = grant["process"].as_str().unwrap();
        ask(&format!(
            "{verb} {id} --as restock --process {process} --token {token} {more}"
        ))
    };
    let next = || ask(&format!("claim-next --as restock --process {PROCESS}")).json;

    assert_eq!(next(), serde_json::json!([]));
    send("cones", "--subject stock Order").is("done", 0);
    send("cones", "--subject stock Order").is("already_done", 0);
    send("cones", "--subject stock Other").refused("message_exists");
    ask(&format!("send --to restock {}", "x".repeat(65))).wrong_usage();
    let stale = claim("cones", PROCESS, "1ms").is("granted", 0);
    assert_eq!((&stale["subject"], &stale["body"]), (&"stock".into(), &"Order".into()));
    let grant = claim("cones", OTHER, "1h").is("granted", 0);
    claim("cones", PROCESS, "1h").refused("message_held");
    ask(&format!("claim cones --as kitchen --process {PROCESS}")).refused("wrong_recipient");
    with("complete", &stale, "").refused("fencing_token_stale");
    assert_eq!(with("extend", &grant, "--ttl 2h").is("granted", 0)["renewed"], true);
    with("give-back", &grant, "").is("done", 0);
    let grant = claim("cones", PROCESS, "1h").is("granted", 0);
    with("complete", &grant, "--result 40").is("done", 0);
    with("complete", &grant, "--result 40").is("already_done", 0);
    let shown = ask("show cones").json;
    assert_eq!((&shown["state"], &shown["result"]), (&"DONE".into(), &"40".into()));

    // One retry, then dead, then once more under another id.
    send("call", "--retries-max 1 Call").is("done", 0);
    let first = next()[0].clone();
    assert_eq!(first["message"], "call");
    assert_eq!(with("retry", &first, "--reason busy").is("done", 0)["state"], "NEW");
    let second = next()[0].clone();
    assert_eq!(with("retry", &second, "--reason busy").is("done", 0)["state"], "DEAD");
    assert_eq!(ask("show call").json["cause"], "retries_exhausted");
    let redriven = ask("redrive call").is("done", 0)["message"].clone();
    assert_eq!(
        ask(&format!("show {}", redriven.as_str().unwrap())).json["redrive_of"],
        "call"
    );
    ask(&format!("dead-letter {} --operator", redriven.as_str().unwrap())).is("done", 0);

    // A claim that lapsed is swept; one that a power cut voided costs no retry.
    send("cups", "Cups").is("done", 0);
    claim("cups", PROCESS, "1ms").is("granted", 0);
    assert_eq!(ask("sweep --to restock").is("done", 0)["swept"], 1);
    assert_eq!(ask("show cups").json["retries"], 1);
    let voided = claim("cups", PROCESS, "1h").is("granted", 0);
    shop.ask("kiosk cut-power kiosk-a.flash").is("done", 0);
    let again = claim("cups", OTHER, "1h").is("granted", 0);
    assert_eq!(again["retries"], 1);
    assert!(again["token"].as_u64() > voided["token"].as_u64());
    with("dead-letter", &voided, "").refused("fencing_token_stale");
    with("dead-letter", &again, "--reason gone").is("done", 0);
    assert_eq!(ask("show cups").json["result"], "gone");
}

#[test]
fn a_gate_on_an_emulated_kiosk_drives_its_output_and_fences_the_old_token() {
    let Some(image) = image("a_gate_on_an_emulated_kiosk_drives_its_output_and_fences_the_old_token") else {
        return;
    };
    let shop = Shop::new();
    provision(&shop, &image, "kiosk-a");
    let _kiosk = Kiosk::start(&shop, &image, "kiosk-a.flash");
    let ask = |words: &str| shop.ask(&format!("kiosk {words} --emulator kiosk-a.flash"));
    let acquire = |process: &str| {
        let lease = ask(&format!("actor acquire night --process {process}")).is("granted", 0);
        lease["token"].as_u64().unwrap()
    };
    let admit = |token: u64| ask(&format!("gate admit freezer --for actor:night --token {token}"));
    let is_on = || ask("info").json["outputs"][1]["on"].clone();

    assert_eq!(ask("gate show freezer").json["bound"], false);
    let first = acquire(PROCESS);
    assert_eq!(admit(first + 1).refused("fenced")["never_issued"], true);
    assert_eq!(is_on(), false);
    assert_eq!(admit(first).is("done", 0)["raised"], true);
    assert_eq!(admit(first).is("done", 0)["raised"], false);
    assert_eq!(is_on(), true);
    ask("revoke actor night").is("done", 0);
    assert_eq!(is_on(), false);
    let second = acquire(OTHER);
    assert_eq!(is_on(), false, "the new holder has not shown its token");
    admit(second).is("done", 0);
    assert_eq!(admit(first).refused("fenced")["high_water"], second);
    assert_eq!(is_on(), true);
    ask(&format!("gate admit freezer --for session:till --token {second}")).refused("gate_mismatch");
    let rebound = ask("gate rebind freezer --for session:till").is("done", 0);
    assert_eq!(rebound["name"], "till");
    assert_eq!(is_on(), false);
    assert_eq!(ask("gate show freezer").json["kind"], "session");
}

/// The commands of the README's guide to a kiosk.
fn guide() -> &'static str {
    let readme = include_str!("../../../README.md");
    let section = readme.split("\n## A kiosk, without hardware\n").nth(1).unwrap();
    let block = section.split("```bash\n").nth(1).unwrap();
    block.split("```").next().unwrap()
}

#[test]
fn the_kiosk_of_the_readme_works_as_it_is_written() {
    let Some(image) = image("the_kiosk_of_the_readme_works_as_it_is_written") else {
        return;
    };
    let shop = Shop::new();
    let bin = Path::new(env!("CARGO_BIN_EXE_keyfence")).parent().unwrap();
    let paths = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(std::iter::once(bin.to_owned()).chain(std::env::split_paths(&paths))).unwrap();
    let text = |name: &str| std::fs::read_to_string(shop.path(name)).unwrap();
    // Where a command fails, the script ends before it stops the emulator, which is in its group and would hold a pipe open.
    let mut run = std::process::Command::new("bash")
        .args(["-e", "-c", guide()])
        .current_dir(shop.path(""))
        .env("PATH", path)
        .env("KEYFENCE_KIOSK_IMAGE", image)
        .env_remove("KEYFENCE_PROCESS")
        .stdin(Stdio::null())
        .stdout(File::create(shop.path("out")).unwrap())
        .stderr(File::create(shop.path("err")).unwrap())
        .process_group(0)
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = run.try_wait().unwrap() {
            break Some(status);
        }
        if begin.elapsed() > GUIDE_TIME {
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    // Whatever is left of the script's group.
    let _ = rustix::process::kill_process_group(rustix::process::Pid::from_child(&run), Signal::KILL);
    let _ = run.wait();
    let (out, err) = (text("out"), text("err"));
    assert!(
        status.is_some_and(|status| status.success()),
        "{status:?}\n{out}\n{err}"
    );
    assert!(
        out.contains("LAPSED") && err.contains("session_claim_stale"),
        "{out}\n{err}"
    );
}
