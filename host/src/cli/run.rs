//! `keyfence run`: a program under the fence.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use keyfence::core::actor::Released;
use keyfence::core::attempt::Done;
use keyfence::core::{Name, Ttl};
use keyfence::fresh;
use keyfence::run::{Authority, Ended, Ending, Interrupt, Plan, Report, Written, program};

use super::exit::{Answered, Failure, Status, decided};
use super::output::{self, Answer};
use super::report::ReportFile;
use super::{Access, Context, args};

/// Run a program under the fence: its result counts only while the claim is held
#[derive(Debug, Args)]
#[command(after_help = "\
The program gets KEYFENCE_LEDGER, KEYFENCE_ACTOR, KEYFENCE_PROCESS,
KEYFENCE_LEASE_TOKEN, KEYFENCE_ASSIGNMENT, KEYFENCE_ATTEMPT and KEYFENCE_TOKEN
(the attempt's).
Both leases are renewed while it runs. Its exit status becomes COMPLETED (0),
BLOCKED (--blocked-exit) or FAILED.

The exit status is the program's own, 128 + signal when it was killed, and 3
when it was refused before the start or when the authority was lost. An
interrupt (INT, TERM, HUP, QUIT) asks the program to end with TERM and kills
it at the second one or after the grace; then the assignment is FAILED
`interrupted`, and 128 + that signal stands for an exit status of 0. Control-C at a
terminal goes to the program itself, which has the terminal: the run ends when
the program does. What the program started in a process group of its own (a
daemon) is not stopped; where this command itself is killed (KILL), the
program dies with it, and what the program started is left.

With --json the object is the last line of standard output.

Examples:
  keyfence run --actor operator-course -- ./closing.sh
  keyfence run --actor operator-course --assignment close-tonight \\
      --blocked-exit 75 -- ./closing.sh --till 2
  keyfence run --actor operator-course --ttl 30s --grace 5s --report run.json \\
      -- make stock")]
pub(crate) struct Run {
    /// The actor to work as
    #[arg(long, value_parser = args::name)]
    actor: Name,
    /// The assignment to work on, made when it does not exist [default: a fresh one]
    #[arg(long, value_name = "ID", value_parser = args::name)]
    assignment: Option<Name>,
    /// The length of the actor's lease
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = args::ttl)]
    ttl: Ttl,
    /// The length of the attempt
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = args::ttl)]
    attempt_ttl: Ttl,
    /// How long before the expiry the program gets TERM; a third of the lease at most
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = args::duration)]
    grace: Duration,
    /// The exit status of the program that means BLOCKED
    #[arg(long, value_name = "N", value_parser = args::blocked_exit)]
    blocked_exit: Option<u8>,
    /// Write the answer as JSON to this file, so that standard output is the program's own
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The program, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Run {
    pub(crate) fn run(mut self, context: &Context) -> Answered {
        let ledger = context.ledger_path();
        let report = ReportFile::open(self.report.take().as_deref(), "run", &[&ledger])?;
        let answered = self.under_the_fence(context);
        report.conclude(context, answered)
    }

    fn under_the_fence(self, context: &Context) -> Result<(Answer, Status), Failure> {
        let interrupt = Interrupt::on_signals()?;
        let plan = Plan {
            ttl: self.ttl,
            attempt_ttl: self.attempt_ttl,
            grace: self.grace,
            blocked_exit: self.blocked_exit,
            drawn: self.assignment.is_none(),
            ..Plan::new(self.actor, self.assignment.unwrap_or_else(fresh::assignment))
        };
        let ledger = context.open(Access::Create)?;
        let ledger_path = std::path::absolute(ledger.path())?;
        let ran = program(&ledger, &plan, &interrupt, |authority| {
            command(&self.program, authority, &ledger_path)
        });
        let decision = match ran {
            Ok(decision) => decision,
            Err(error) => {
                // The assignment may have been made for it, under an id that nobody else knows.
                let (answer, status) = context.describe(Failure::from(error));
                let answer = answer
                    .with("actor", plan.actor.as_str())
                    .with("assignment", plan.assignment.as_str());
                return Ok((answer, status));
            }
        };
        let report = decided(decision, || {
            format!("run as actor `{}` on assignment `{}`", plan.actor, plan.assignment)
        })?;
        Ok(reported(context, &plan, report))
    }
}

fn command(program: &[OsString], authority: &Authority, ledger: &Path) -> Command {
    // Clap requires at least one.
    let mut command = Command::new(program.first().cloned().unwrap_or_default());
    command
        .args(program.iter().skip(1))
        .env("KEYFENCE_LEDGER", ledger)
        .env("KEYFENCE_ACTOR", authority.lease.name().as_str())
        .env("KEYFENCE_ASSIGNMENT", authority.attempt.assignment().as_str())
        .env("KEYFENCE_PROCESS", authority.process.to_string())
        .env("KEYFENCE_LEASE_TOKEN", authority.lease.token().to_string())
        .env("KEYFENCE_ATTEMPT", authority.attempt.attempt().to_string())
        .env("KEYFENCE_TOKEN", authority.attempt.token().to_string());
    command
}

/// How a program ended, as fields.
pub(crate) fn ended(answer: Answer, ended: Ended) -> Answer {
    match ended {
        Ended::Exited(status) => answer.with("exit", status),
        Ended::Killed(signal) => answer.with("signal", signal),
    }
}

/// The answer and the status of a run whose program was started.
fn reported(context: &Context, plan: &Plan, report: Report) -> (Answer, Status) {
    let authority_lost = matches!(report.ending, Ending::Lapsed | Ending::Superseded);
    let own = match (report.ending, report.program) {
        (Ending::Lapsed | Ending::Superseded, _) => Status::Refused,
        // What it said at its end is no success: it was told to stop.
        (Ending::Interrupted(signal), Some(Ended::Exited(0)) | None) => Status::Program(Ended::Killed(signal).status()),
        (Ending::Interrupted(_) | Ending::Ended, Some(ended)) => Status::Program(ended.status()),
        (Ending::Ended, None) => Status::Done,
    };
    let asked = format!("write {} for assignment `{}`", report.outcome.name(), plan.assignment);
    // A result is what the ledger has or may have; one that was refused is told under a name of its own.
    let result = match report.written {
        Written::Committed(..) | Written::Failed(_) => "result",
        Written::Refused(_) => "dropped_result",
    };
    let (answer, status) = match report.written {
        Written::Committed(outcome, done) => {
            // The first of the two is what a reader looks for.
            let answer = Answer::done(done).with("state", outcome.name());
            let word = match done {
                Done::Now | Done::Already => outcome.name(),
            };
            (answer.headline(word.to_owned(), &["state"]), own)
        }
        Written::Refused(refusal) => (Answer::refused(&refusal, &asked, context.output()), Status::Refused),
        Written::Failed(error @ keyfence::Error::Unknown(_)) => (output::unknown(&error), Status::Failed),
        Written::Failed(error) => (
            Answer::error(error.name(), &error.to_string(), &error.next()),
            Status::Failed,
        ),
    };
    let authority = &report.authority;
    let interrupted_by = match report.ending {
        Ending::Interrupted(signal) => Some(signal),
        Ending::Ended | Ending::Lapsed | Ending::Superseded => None,
    };
    let answer = answer
        .with("actor", plan.actor.as_str())
        .with("assignment", plan.assignment.as_str())
        .with("process", authority.process.to_string())
        .with("attempt", authority.attempt.attempt().to_string())
        .with_bytes(result, &report.result)
        .with_some("interrupted_by", interrupted_by)
        .with("authority_lost", authority_lost || status == Status::Refused)
        .with(
            "released",
            matches!(report.released, Ok(Ok(Released::Now | Released::Already))),
        );
    let answer = match report.program {
        Some(program) => ended(answer, program),
        None => answer,
    };
    (answer, status)
}
