//! The command: options that all subcommands share, and how a call begins and ends.

mod actor;
mod args;
mod assignment;
mod attempt;
mod backup;
mod completions;
mod demo;
mod doctor;
mod events;
mod exit;
mod format;
mod gate;
mod host;
mod init;
mod kiosk;
mod mailbox;
mod output;
mod process;
mod progress;
mod prune;
mod report;
mod restore;
mod revoke;
mod run;
mod session;
mod standing;
mod status;
mod supervise;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use keyfence::core::{AttemptId, Digest, Name, ProcessId, TimeMs};
use keyfence::{Call, Clock, FixedClock, Ledger, Options, Page, RequestId, SystemClock, fresh};
use sha2::{Digest as _, Sha256};

use exit::{Answered, Failure, Status};
use output::{Answer, Output};

/// How lists are read: a page at a time, so that one of any length needs little memory.
pub(crate) const FIRST_PAGE: Page = Page { after: 0, limit: 500 };

/// By whom the request ids of an operator's acts are kept: they present no process and act as no actor.
pub(crate) const OPERATOR: &str = "operator";
/// By whom those of a caller are kept who names neither a process nor an actor.
const ANONYMOUS: &str = "anonymous";

/// The ledger of a call that names none.
const LEDGER_DEFAULT: &str = "keyfence.db";

/// Fencing tokens, leases and session incarnations on a shared SQLite ledger: a worker that lost its claim may run on,
/// but its result no longer counts.
#[derive(Debug, Parser)]
#[command(
    name = "keyfence",
    version,
    max_term_width = 80,
    subcommand_required = true,
    after_help = "\
Exit status: 0 done or granted, 1 the store or the system failed or the
outcome is unknown, 2 wrong usage, 3 refused.

A token that `show` prints is not authority: present only the token that your
own claim was granted.

Examples:
  keyfence demo mailbox
  keyfence run --actor operator-course --assignment close-tonight \\
      -- ./closing.sh
  keyfence mailbox send --to operator-course 'Restock vanilla'
  keyfence status"
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
struct Global {
    /// The ledger's file [default: $KEYFENCE_LEDGER, else keyfence.db in the working folder]
    #[arg(long, global = true, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Print exactly one JSON object, or one array for a list, also for refusals and errors
    #[arg(long, global = true)]
    json: bool,
    /// Decide leases at this moment, in milliseconds since the Unix epoch: for drills and tests
    #[arg(long, global = true, value_name = "MS", value_parser = args::now)]
    now: Option<TimeMs>,
    /// How long to wait for the ledger's lock
    #[arg(long, global = true, value_name = "DURATION", default_value = "5s", value_parser = args::duration)]
    timeout: Duration,
    /// Name this call on the ledger: the same call of the same process or actor under the same name gets the first answer
    /// again, marked `replayed`; of a grant it then says whether it is still `live`
    #[arg(long, global = true, value_name = "ID", value_parser = request)]
    request: Option<RequestId>,
    /// Use a ledger in a place that others may write, or on a network file system
    #[arg(long, global = true)]
    allow_unsafe_location: bool,
}

fn request(text: &str) -> Result<RequestId, String> {
    RequestId::new(text).map_err(|error| error.to_string())
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Init),
    Demo(demo::Demo),
    Run(run::Run),
    Actor(actor::Actor),
    Assignment(assignment::Assignment),
    Attempt(attempt::Attempt),
    Mailbox(mailbox::Mailbox),
    Host(host::Host),
    Session(session::Session),
    Kiosk(kiosk::Kiosk),
    Gate(gate::Gate),
    Revoke(revoke::Revoke),
    Supervise(supervise::Supervise),
    Status(status::Status),
    Events(events::Events),
    Doctor(doctor::Doctor),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Prune(prune::Prune),
    Process(process::Process),
    Completions(completions::Completions),
}

/// Reads the arguments, runs the subcommand, prints what has no answer of its own, and tells the exit status.
pub(crate) fn main() -> ExitCode {
    // A file that may grow no further (`ulimit -f`) is an error of the write, and not the end of this process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let json = asks_for_json(&arguments);
    let parsed = command()
        .try_get_matches_from(&arguments)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&error, json).into(),
    };
    let context = Context::new(cli.global);
    let answered = if context.global.request.is_some() && !cli.command.takes_request() {
        let reason = "--request names one call on a ledger; this command makes none, or several";
        Err(Failure::Usage(reason.to_owned()))
    } else {
        cli.command.run(&context)
    };
    match answered {
        Ok(status) => status,
        Err(failure) => context.explain(failure),
    }
    .into()
}

impl Command {
    /// Whether the command is one call that can be asked for again under its name.
    const fn takes_request(&self) -> bool {
        match self {
            Self::Actor(command) => command.takes_request(),
            Self::Assignment(command) => command.takes_request(),
            Self::Mailbox(command) => command.takes_request(),
            Self::Host(command) => command.takes_request(),
            Self::Session(command) => command.takes_request(),
            Self::Attempt(_) | Self::Revoke(_) => true,
            Self::Init(_)
            | Self::Demo(_)
            | Self::Run(_)
            | Self::Kiosk(_)
            | Self::Gate(_)
            | Self::Supervise(_)
            | Self::Status(_)
            | Self::Events(_)
            | Self::Doctor(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Prune(_)
            | Self::Process(_)
            | Self::Completions(_) => false,
        }
    }

    fn run(self, context: &Context) -> Answered {
        match self {
            Self::Init(command) => command.run(context),
            Self::Demo(command) => command.run(context),
            Self::Run(command) => command.run(context),
            Self::Actor(command) => command.run(context),
            Self::Assignment(command) => command.run(context),
            Self::Attempt(command) => command.run(context),
            Self::Mailbox(command) => command.run(context),
            Self::Host(command) => command.run(context),
            Self::Session(command) => command.run(context),
            Self::Kiosk(command) => command.run(context),
            Self::Gate(command) => command.run(context),
            Self::Revoke(command) => command.run(context),
            Self::Supervise(command) => command.run(context),
            Self::Status(command) => command.run(context),
            Self::Events(command) => command.run(context),
            Self::Doctor(command) => command.run(context),
            Self::Backup(command) => command.run(context),
            Self::Restore(command) => command.run(context),
            Self::Prune(command) => command.run(context),
            Self::Process(command) => command.run(context),
            Self::Completions(command) => command.run(context),
        }
    }
}

/// The command line. A value may begin with a minus, so that `--token -1` is answered by what a token is.
pub(crate) fn command() -> clap::Command {
    fn lenient(command: clap::Command) -> clap::Command {
        command
            .mut_args(|argument| {
                let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
                if !takes_value || argument.is_positional() {
                    return argument;
                }
                // `-5s` is no number; a duration has no other use for a minus either.
                let is_duration = argument
                    .get_value_names()
                    .is_some_and(|names| names.iter().any(|name| name.as_str() == "DURATION"));
                argument.allow_negative_numbers(true).allow_hyphen_values(is_duration)
            })
            .mut_subcommands(lenient)
    }
    lenient(Cli::command())
}

/// Whether `--json` is among the options, so that even arguments that cannot be read are answered with an object.
fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments
        .iter()
        .skip(1)
        .take_while(|argument| *argument != "--")
        .any(|argument| argument == "--json")
}

fn wrong_usage(error: &clap::Error, json: bool) -> Status {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Nobody reads it: that is quiet and no failure.
        let _ = error.print();
        return Status::Done;
    }
    if json {
        let text = error.render().to_string();
        // The first paragraph is what is wrong; what follows is the usage.
        let is_incomplete = matches!(
            error.kind(),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
        );
        let reason = if is_incomplete {
            "a command is missing"
        } else {
            let first = text.split("\n\n").next().unwrap_or_default();
            first.trim_start_matches("error: ").trim()
        };
        let _ = Output::new(true, TimeMs::ZERO).no_answer(&output::usage(reason));
    } else {
        let _ = error.print();
    }
    Status::Usage
}

/// What a ledger is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// To claim or to send: a missing ledger is created.
    Create,
    /// To write to one that exists.
    Write,
    /// To read; nothing is created or written.
    Read,
}

/// What every subcommand gets besides its own arguments.
pub(crate) struct Context {
    global: Global,
    clock: Arc<dyn Clock>,
    output: Output,
}

impl Context {
    fn new(global: Global) -> Self {
        let clock: Arc<dyn Clock> = match global.now {
            Some(now) => Arc::new(FixedClock::new(now)),
            None => Arc::new(SystemClock),
        };
        let output = Output::new(global.json, clock.now());
        Self { global, clock, output }
    }

    pub(crate) const fn output(&self) -> &Output {
        &self.output
    }

    /// The moment that this call decides at.
    pub(crate) fn now(&self) -> TimeMs {
        self.clock.now()
    }

    /// The ledger that was named by the option, without a look at the environment.
    pub(crate) const fn named_ledger(&self) -> Option<&PathBuf> {
        self.global.ledger.as_ref()
    }

    /// The ledger of this call.
    pub(crate) fn ledger_path(&self) -> PathBuf {
        let from_environment = || std::env::var_os("KEYFENCE_LEDGER").filter(|path| !path.is_empty());
        match &self.global.ledger {
            Some(path) => path.clone(),
            None => from_environment().map_or_else(|| LEDGER_DEFAULT.into(), PathBuf::from),
        }
    }

    pub(crate) fn options(&self, access: Access) -> Options {
        Options {
            create: access == Access::Create,
            read_only: access == Access::Read,
            allow_unsafe_location: self.global.allow_unsafe_location,
            clock: Arc::clone(&self.clock),
            timeout: self.global.timeout,
        }
    }

    pub(crate) fn open(&self, access: Access) -> Result<Ledger, Failure> {
        Ok(Ledger::open(&self.ledger_path(), self.options(access))?)
    }

    /// A call by this process or actor, under the request id that was given. `caller` is a name or an identity, which is
    /// short enough to be one.
    pub(crate) fn call<'l>(&self, ledger: &'l Ledger, caller: &impl ToString) -> Call<'l> {
        let call = ledger.call().timeout(self.global.timeout);
        match (&self.global.request, Name::new(&caller.to_string())) {
            (Some(request), Ok(caller)) => call.request(request.clone(), caller),
            (Some(_) | None, _) => call,
        }
    }

    /// The id of a new attempt: fresh, or that of this request, so that asking again asks for the same one.
    pub(crate) fn new_attempt(&self, caller: &impl ToString) -> AttemptId {
        self.of_request("attempt", caller)
            .map_or_else(fresh::attempt, AttemptId::from_bytes)
    }

    /// The id of a new message: fresh, or that of this request, so that asking again asks for the same one.
    pub(crate) fn new_message(&self, caller: &impl ToString) -> Name {
        // A digest is printed as `sha_` and 32 digits; the digits after `msg_` are what a fresh id looks like.
        self.of_request("message", caller)
            .map(|bytes| Digest::from_bytes(bytes).to_string().replacen("sha_", "msg_", 1))
            .and_then(|id| Name::new(&id).ok())
            .unwrap_or_else(fresh::message)
    }

    /// 16 bytes that are this request's own, where the call was named.
    fn of_request(&self, what: &str, caller: &impl ToString) -> Option<[u8; 16]> {
        let request = self.global.request.as_ref()?;
        let mut hash = Sha256::new();
        for part in [what, &caller.to_string(), request.as_str()] {
            hash.update(part);
            hash.update([0]);
        }
        hash.finalize().first_chunk().copied()
    }

    /// Prints what a subcommand has no answer for.
    fn explain(&self, failure: Failure) -> Status {
        match &failure {
            Failure::NobodyReads => return Status::Done,
            Failure::Unanswered(error) => {
                self.output.note(&format!(
                    "keyfence: the call was made, but its answer could not be written: {error}; look at the row before \
                     asking again, and name calls with --request"
                ));
                return Status::Failed;
            }
            Failure::Usage(_)
            | Failure::Refused(..)
            | Failure::Mismatch(_)
            | Failure::Ledger(_)
            | Failure::Gate(_)
            | Failure::Kiosk(_)
            | Failure::KeyFile(_)
            | Failure::Emulator(_)
            | Failure::NotStarted(..)
            | Failure::System(_) => {}
        }
        let (answer, status) = self.describe(failure);
        // When this cannot be printed the status still tells.
        let _ = self.output.no_answer(&answer);
        status
    }

    /// The object and the status of a failure.
    pub(crate) fn describe(&self, failure: Failure) -> (Answer, Status) {
        match failure {
            Failure::Usage(reason) => (output::usage(&reason), Status::Usage),
            Failure::Refused(refusal, asked) => (Answer::refused(&refusal, &asked, &self.output), Status::Refused),
            Failure::Mismatch(mismatch) => (Answer::mismatch(&mismatch, &self.output), Status::Refused),
            Failure::Gate(error) => (
                Answer::error(error.name(), &error.to_string(), &error.next()),
                Status::Failed,
            ),
            Failure::Ledger(error @ keyfence::Error::RequestMisused { .. }) => (
                Answer::error(error.name(), &error.to_string(), &error.next()),
                Status::Usage,
            ),
            Failure::Ledger(error @ keyfence::Error::Unknown(_)) => (output::unknown(&error), Status::Failed),
            Failure::Ledger(error) => (
                Answer::error(error.name(), &error.to_string(), &error.next()),
                Status::Failed,
            ),
            Failure::Kiosk(error) => {
                let outcome = if error.is_unknown() { "unknown" } else { "error" };
                let answer = Answer::new(outcome)
                    .with("error", error.name())
                    .with("reason", error.to_string())
                    .with("next", error.next())
                    .headline(error.name().to_owned(), &["error"]);
                (answer, Status::Failed)
            }
            Failure::KeyFile(error) => (
                Answer::error(error.name(), &chain(&error), error.next()),
                Status::Failed,
            ),
            Failure::Emulator(error) => (
                Answer::error(error.name(), &chain(&error), error.next()),
                Status::Failed,
            ),
            Failure::NotStarted(status, reason) => (
                Answer::error(
                    "not_started",
                    &reason,
                    "check the program; what was taken for it was given back",
                ),
                Status::Program(status),
            ),
            Failure::System(error) => (
                Answer::error(
                    "system",
                    &format!("{error:#}"),
                    "look at what the system says, then ask again",
                ),
                Status::Failed,
            ),
            // Explained before, and nobody would read it.
            Failure::NobodyReads => (Answer::new("done"), Status::Done),
            Failure::Unanswered(_) => (Answer::new("done"), Status::Failed),
        }
    }
}

/// An error with what it comes from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// A process identity that may be left out: such callers are one anonymous process.
#[derive(Debug, clap::Args)]
pub(crate) struct MaybeProcess {
    /// The identity of the running instance [default: $KEYFENCE_PROCESS, else the one anonymous process]
    #[arg(long, value_name = "PROCESS", env = "KEYFENCE_PROCESS", hide_env = true, value_parser = args::process)]
    pub(crate) process: Option<ProcessId>,
}

impl MaybeProcess {
    /// By whom a request id is kept: the process, else the actor that asks, else nobody in particular.
    pub(crate) fn caller(&self, actor: Option<&Name>) -> String {
        match (self.process, actor) {
            (Some(process), _) => process.to_string(),
            (None, Some(actor)) => actor.to_string(),
            (None, None) => ANONYMOUS.to_owned(),
        }
    }
}

/// The process identity of a call, where `$KEYFENCE_PROCESS` may stand in for the option.
#[derive(Debug, clap::Args)]
pub(crate) struct ByProcess {
    /// The identity of the running instance, from `keyfence process new` [default: $KEYFENCE_PROCESS]
    #[arg(long, value_name = "PROCESS", env = "KEYFENCE_PROCESS", hide_env = true, value_parser = args::process)]
    pub(crate) process: ProcessId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn json_is_an_option_only_before_the_program() {
        let asks = |arguments: &[&str]| asks_for_json(&arguments.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(asks(&["keyfence", "actor", "--json"]));
        assert!(!asks(&["keyfence", "run", "--", "tool", "--json"]));
    }
}
