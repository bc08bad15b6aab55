//! `keyfence gate`: resources that only check.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};
use keyfence::core::gate::{Admitted, Binding, ClaimKind, Gate as Row, LedgerCounter};
use keyfence::core::{Name, Reason, Refusal, Token};
use keyfence::run::{Ended, Interrupt, guarded};
use keyfence::{FileGate, GateRefusal, Ledger};

use super::exit::{Answered, Failure, Mismatch, Status, status_of_no_start};
use super::output::Answer;
use super::report::ReportFile;
use super::{Access, Context, args, run};

/// Gates: a resource without a ledger admits no older token
#[derive(Debug, Args)]
#[command(after_help = "\
A gate is a file. It is bound at first use to one ledger, one kind of claim
and one name.

Examples:
  keyfence gate admit freezer.gate --for session:night-watch --token 41 \\
      -- ./lock-freezer
  keyfence gate show freezer.gate")]
pub(crate) struct Gate {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Admit a token that is not older than the gate's mark, and run a program under the gate's lock
    #[command(after_help = "\
Without a program this is a bare check: what it says may be outdated when you
act on it. With one, the exit status is the program's own, and 3 when it was
not admitted.

Examples:
  keyfence gate admit freezer.gate --for session:night-watch --token 41 \\
      -- ./lock-freezer
  keyfence gate admit freezer.gate --for session:night-watch --token 41")]
    Admit {
        /// The gate's file; made at first use
        #[arg(value_name = "GATE")]
        gate: PathBuf,
        /// Which claim the gate belongs to: actor, attempt, message, host or session, and its name
        #[arg(long = "for", id = "claim", value_name = "KIND:NAME", value_parser = args::binding)]
        claim: (ClaimKind, Name),
        /// The token of that claim
        #[arg(long, value_parser = args::token)]
        token: Token,
        /// Write the answer as JSON to this file, so that standard output is the program's own
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// The program to run, and its arguments
        #[arg(last = true, value_name = "CMD")]
        program: Vec<OsString>,
    },
    /// Show what the gate is bound to, and its mark
    #[command(after_help = "\
Examples:
  keyfence gate show freezer.gate")]
    Show {
        /// The gate's file
        #[arg(value_name = "GATE")]
        gate: PathBuf,
    },
    /// Bind the gate anew, to another claim or to a new ledger: an operator's act, its mark starts anew
    #[command(after_help = "\
Examples:
  keyfence gate rebind freezer.gate
  keyfence gate rebind freezer.gate --for session:day-watch")]
    Rebind {
        /// The gate's file
        #[arg(value_name = "GATE")]
        gate: PathBuf,
        /// The claim it shall belong to [default: the one it has]
        #[arg(long = "for", id = "claim", value_name = "KIND:NAME", value_parser = args::binding)]
        claim: Option<(ClaimKind, Name)>,
    },
}

impl Gate {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            Verb::Admit {
                gate,
                claim,
                token,
                report,
                program,
            } => {
                let report = ReportFile::open(report.as_deref(), "gate", &[&context.ledger_path(), &gate])?;
                let admission = admit(context, &gate, claim, token, &program);
                return report.conclude(context, admission);
            }
            Verb::Show { gate } => {
                let row = file_gate(context, &gate).show()?;
                context.output().answer(&shown(&gate, row.as_ref()))?;
            }
            Verb::Rebind { gate, claim } => {
                let file = file_gate(context, &gate);
                file.name()?;
                let ledger = context.open(Access::Read)?;
                let (kind, name) = match claim {
                    Some(claim) => claim,
                    None => match file.show()? {
                        Some(row) => (row.binding.kind, row.binding.name),
                        None => {
                            let reason = "there is no such gate yet; say with --for what it shall belong to";
                            return Err(Failure::Usage(reason.to_owned()));
                        }
                    },
                };
                let binding = Binding {
                    ledger: ledger.id(),
                    kind,
                    name,
                };
                file.rebind(&binding)?;
                let answer = bound(Answer::new("done").with("gate", gate.display().to_string()), &binding);
                context.output().answer(&answer)?;
            }
        }
        Ok(Status::Done)
    }
}

/// The gate's file, with this call's deadline.
fn file_gate(context: &Context, gate: &Path) -> FileGate {
    let options = context.options(Access::Read);
    FileGate::at(gate)
        .timeout(options.timeout)
        .allow_unsafe_location(options.allow_unsafe_location)
}

pub(super) fn bound(answer: Answer, binding: &Binding) -> Answer {
    answer
        .with("kind", binding.kind.name())
        .with("name", binding.name.as_str())
        .with("ledger", binding.ledger.to_string())
}

fn shown(gate: &Path, row: Option<&Row>) -> Answer {
    let answer = Answer::plain().with("gate", gate.display().to_string());
    let answer = match row {
        Some(row) => {
            bound(answer.with("bound", true), &row.binding).with_some("high_water", row.high_water.map(Token::get))
        }
        None => answer.with("bound", false),
    };
    answer.headline(format!("gate {}", gate.display()), &["gate"])
}

/// Why a token did not pass, with both claims where the gate is another one's.
fn not_passed(refused: GateRefusal, presented: &Binding, asked: String) -> Failure {
    match refused.bound {
        Some(bound) if refused.refusal.reason == Reason::GateMismatch => Failure::Mismatch(Box::new(Mismatch {
            refusal: *refused.refusal,
            asked,
            bound,
            presented: presented.clone(),
        })),
        Some(_) | None => Failure::Refused(refused.refusal, asked),
    }
}

/// Admits and runs the program; the answer and the status, without printing.
fn admit(
    context: &Context,
    gate: &Path,
    (kind, name): (ClaimKind, Name),
    token: Token,
    program: &[OsString],
) -> Result<(Answer, Status), Failure> {
    let file = file_gate(context, gate);
    file.name()?;
    // A ledger that cannot be read still admits the token that is the mark already, and no other.
    let opened = context.open(Access::Read);
    let blind = match &opened {
        Err(Failure::Ledger(error)) => format!(" ({error})"),
        Ok(_) | Err(_) => String::new(),
    };
    let asked = || format!("pass gate `{}` with token {token}{blind}", gate.display());
    let ledger = opened.ok();
    let ledger_id = match &ledger {
        Some(ledger) => ledger.id(),
        None => match file.show()? {
            Some(row) => row.binding.ledger,
            None => {
                return Err(Failure::Refused(
                    Box::new(Refusal::new(Reason::LedgerUnreadable)),
                    asked(),
                ));
            }
        },
    };
    let binding = Binding {
        ledger: ledger_id,
        kind,
        name,
    };
    let counter = || match ledger.as_ref().map(Ledger::counter) {
        Some(Ok(counter)) => LedgerCounter::Read(counter),
        Some(Err(_)) | None => LedgerCounter::Unreadable,
    };
    let interrupt = (!program.is_empty()).then(Interrupt::on_signals).transpose()?;
    let act = |_: Admitted| -> Option<std::io::Result<Ended>> {
        let (program, arguments) = program.split_first()?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("KEYFENCE_GATE", gate)
            .env("KEYFENCE_TOKEN", token.to_string());
        Some(guarded(&mut command, interrupt.as_ref()?))
    };
    let (admitted, ran) = file
        .admit(&binding, token, counter, act)?
        .map_err(|refused| not_passed(refused, &binding, asked()))?;
    let passed = |answer: Answer| {
        let answer = answer
            .with("admitted", true)
            .with("raised", admitted == Admitted::Raised)
            .with("gate", gate.display().to_string())
            .with("high_water", token.get());
        bound(answer, &binding)
    };
    match ran {
        None => Ok((passed(Answer::new("done")), Status::Done)),
        Some(Ok(ended)) => Ok((
            run::ended(passed(Answer::new("done")), ended),
            Status::Program(ended.status()),
        )),
        // The mark was raised before the start, durably, and is never lowered.
        Some(Err(source)) => {
            let program = program
                .first()
                .map_or_else(String::new, |program| program.display().to_string());
            let reason = format!("cannot start {program}: {source}");
            let next = "check the program, then ask again: the token has passed and stays the gate's mark";
            let answer = passed(Answer::error("not_started", &reason, next));
            Ok((answer, Status::Program(status_of_no_start(&source))))
        }
    }
}
