//! `keyfence kiosk`: what it says without hardware, and a whole kiosk in the emulator.

mod cli_common;

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use cli_common::{Shop, skip};
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

/// The commands of the README's guide to a kiosk.
fn guide() -> &'static str {
    let readme = include_str!("../../README.md");
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
