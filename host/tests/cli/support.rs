//! A shop with a ledger of its own, for tests of the real command.

pub(crate) mod shell_run;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Process identities.
pub(crate) const A: &str = "proc_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
pub(crate) const B: &str = "proc_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// How long anything may take that a test waits for; far more than it takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with a ledger in it.
pub(crate) struct Shop {
    folder: TempDir,
}

/// What the command answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: i32,
    pub(crate) json: Value,
    pub(crate) stderr: String,
}

impl Reply {
    /// Checks the outcome and the status that belongs to it.
    #[track_caller]
    pub(crate) fn is(self, outcome: &str, status: i32) -> Value {
        assert_eq!(
            (self.json["outcome"].as_str(), self.status),
            (Some(outcome), status),
            "{} {}",
            self.json,
            self.stderr
        );
        self.json
    }

    #[track_caller]
    pub(crate) fn granted(self) -> Value {
        self.is("granted", 0)
    }

    #[track_caller]
    pub(crate) fn done(self) -> Value {
        self.is("done", 0)
    }

    #[track_caller]
    pub(crate) fn already_done(self) -> Value {
        self.is("already_done", 0)
    }

    /// Checks a refusal: its name, its status, and that it carries no token as authority.
    #[track_caller]
    pub(crate) fn refused(self, refusal: &str) -> Value {
        let json = self.is("refused", 3);
        assert_eq!(json["refusal"], refusal, "{json}");
        assert_eq!(json.get("token"), None, "{json}");
        assert!(json["reason"].is_string() && json["next"].is_string(), "{json}");
        json
    }

    #[track_caller]
    pub(crate) fn error(self, error: &str) -> Value {
        let json = self.is("error", 1);
        assert_eq!(json["error"], error, "{json}");
        assert!(json["reason"].is_string() && json["next"].is_string(), "{json}");
        json
    }

    /// A request id that another call had: the caller's mistake.
    #[track_caller]
    pub(crate) fn request_misused(self) -> Value {
        let json = self.is("error", 2);
        assert_eq!(json["error"], "request_misused");
        json
    }

    #[track_caller]
    pub(crate) fn wrong_usage(self) -> Value {
        let json = self.is("error", 2);
        assert_eq!(json["error"], "usage", "{json}");
        json
    }
}

impl Shop {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::Builder::new().prefix("keyfence-test-").tempdir().unwrap(),
        }
    }

    /// One whose ledger is there.
    pub(crate) fn open() -> Self {
        let shop = Self::new();
        shop.ask("init").done();
        shop
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.path("keyfence.db")
    }

    /// The command in the shop's folder, with nothing of the surroundings' environment that it would heed.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyfence"));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        for variable in ["KEYFENCE_LEDGER", "KEYFENCE_PROCESS", "NO_COLOR", "COLUMNS", "TERM"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs words, separated by blanks, with `--json`.
    #[track_caller]
    pub(crate) fn ask(&self, words: &str) -> Reply {
        self.ask_with(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs arguments with `--json`.
    #[track_caller]
    pub(crate) fn ask_with(&self, arguments: &[&str]) -> Reply {
        reply(&self.command().arg("--json").args(arguments).output().unwrap())
    }

    /// Runs words and returns status and texts.
    pub(crate) fn say(&self, words: &str) -> (i32, String, String) {
        let output = self.command().args(words.split_whitespace()).output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    /// The state of an assignment.
    #[track_caller]
    pub(crate) fn state(&self, assignment: &str) -> String {
        let shown = self.ask(&format!("assignment show {assignment}"));
        shown.json["state"].as_str().unwrap_or("").to_owned()
    }

    /// How many events there are.
    pub(crate) fn events(&self) -> usize {
        self.ask("events").json.as_array().unwrap().len()
    }
}

/// Says that a test, or a part of it, cannot run here, and why. The test command of the README prints it at its end. Where
/// CI is set everything must run.
#[track_caller]
pub(crate) fn skip(test: &str, why: &str) {
    let in_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(!in_ci, "{test} must run where CI is set: {why}");
    eprintln!("skipped: {test}: {why}");
    if let Some(file) = std::env::var_os("KEYFENCE_SKIPPED") {
        let mut file = std::fs::File::options().append(true).create(true).open(file).unwrap();
        // One write, so that lines of tests that run at once do not mix.
        file.write_all(format!("{test}: {why}\n").as_bytes()).unwrap();
    }
}

/// Whether a command that permissions bind can be run; skips the test otherwise.
#[track_caller]
pub(crate) fn permissions_bind(test: &str) -> bool {
    let mut nothing = ordinary(Command::new("true"));
    let bound = nothing.output();
    let binds = bound.as_ref().is_ok_and(|output| output.status.success());
    if !binds {
        skip(
            test,
            &format!("permissions do not bind root, and setpriv does not work: {bound:?}"),
        );
    }
    binds
}

/// The command as an ordinary user's: permissions do not bind a superuser who has all his capabilities.
pub(crate) fn ordinary(command: Command) -> Command {
    if !rustix::process::geteuid().is_root() {
        return command;
    }
    let mut bound = Command::new("setpriv");
    bound
        .args(["--bounding-set=-all", "--inh-caps=-all"])
        .arg(command.get_program())
        .args(command.get_args());
    for (variable, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(variable, value),
            None => bound.env_remove(variable),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound.stdin(Stdio::null());
    bound
}

/// A child that does not outlive a test that fails.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn of(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Kills it, as a power cut would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits for its end, but not for ever.
    #[track_caller]
    pub(crate) fn end(mut self) -> Output {
        finish(self.0.take().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads what the command printed: exactly one JSON value.
#[track_caller]
pub(crate) fn reply(output: &Output) -> Reply {
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout:?} {stderr}"));
    Reply {
        status: output.status.code().unwrap_or(-1),
        json,
        stderr,
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for a file's content.
#[track_caller]
pub(crate) fn wait_for(file: &Path) -> String {
    wait_until(&format!("{} is there", file.display()), || {
        std::fs::read_to_string(file).is_ok_and(|text| text.ends_with('\n'))
    });
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// Whether a process is there and no zombie.
pub(crate) fn runs(pid: &str) -> bool {
    std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .starts_with(['Z', 'X'])
    })
}

/// Sends a signal by name.
#[track_caller]
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// Waits for a child, but not for ever.
#[track_caller]
pub(crate) fn finish(mut child: Child) -> Output {
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the command did not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// The file as plain SQLite, past everything that keyfence checks.
#[track_caller]
pub(crate) fn change(shop: &Shop, sql: &str) {
    let raw = rusqlite::Connection::open(shop.ledger()).unwrap();
    raw.execute_batch("PRAGMA ignore_check_constraints = on; PRAGMA foreign_keys = off;")
        .unwrap();
    raw.execute_batch(sql).unwrap();
}

/// The names of all files in a folder, in order.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The sentence of a refusal or an error.
#[track_caller]
pub(crate) fn reason(json: &Value) -> &str {
    json["reason"].as_str().unwrap()
}
