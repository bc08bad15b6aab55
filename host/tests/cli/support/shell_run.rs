//! `keyfence run` on a shell script.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{Running, Shop};

/// Starts `keyfence run` with these options on a shell script.
pub(crate) fn start(shop: &Shop, options: &str, script: &str) -> Running {
    let mut command = hearing_hup(&run(shop, options, script));
    Running::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// The same command, hearing HUP even where the tests themselves were started with it ignored (`nohup`).
fn hearing_hup(command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal=HUP").arg(command.get_program());
    env.args(command.get_args()).stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        env.current_dir(folder);
    }
    for (variable, value) in command.get_envs() {
        match value {
            Some(value) => env.env(variable, value),
            None => env.env_remove(variable),
        };
    }
    env
}

pub(crate) fn run(shop: &Shop, options: &str, script: &str) -> Command {
    let mut command = shop.command();
    command
        .args(["run", "--actor", "crew", "--report", "report.json"])
        .args(options.split_whitespace())
        .args(["--", "sh", "-c", script]);
    command
}

/// Runs to the end; the status and the report.
pub(crate) fn ran(shop: &Shop, options: &str, script: &str) -> (i32, Value) {
    let output = run(shop, options, script).output().unwrap();
    (output.status.code().unwrap(), report(shop))
}

pub(crate) fn ended(shop: &Shop, run: Running) -> (i32, Value, Output) {
    let output = run.end();
    (output.status.code().unwrap_or(-1), report(shop), output)
}

pub(crate) fn report(shop: &Shop) -> Value {
    serde_json::from_str(&std::fs::read_to_string(shop.path("report.json")).unwrap()).unwrap()
}

/// What nobody may hold any more after a run.
#[track_caller]
pub(crate) fn nothing_is_held(shop: &Shop) {
    let status = shop.ask("status").json;
    assert_eq!(status["claims"], serde_json::json!([]), "{status}");
}
