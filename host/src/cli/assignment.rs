//! `keyfence assignment`: pieces of work that an actor has to do.

use clap::{Args, Subcommand};
use keyfence::core::attempt::{AssignmentState, Create, FinishedBy};
use keyfence::core::{Name, TimeMs};
use keyfence::{AssignmentView, Ledger};

use super::exit::{Answered, Failure, Status, decided};
use super::output::Answer;
use super::{Access, Context, FIRST_PAGE, MaybeProcess, args, standing};

/// Assignments: pieces of work that an actor has to do
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence assignment create close-tonight --actor operator-course
  keyfence assignment show")]
pub(crate) struct Assignment {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Create an assignment; the same one again is recognised
    #[command(after_help = "\
Examples:
  keyfence assignment create close-tonight --actor operator-course
  keyfence assignment create close-tonight-2 --actor operator-course \\
      --retry-of close-tonight")]
    Create {
        /// The assignment's id
        #[arg(value_parser = args::name)]
        id: Name,
        /// The actor that has to do it
        #[arg(long, value_parser = args::name)]
        actor: Name,
        /// The assignment that it retries
        #[arg(long, value_name = "ID", value_parser = args::name)]
        retry_of: Option<Name>,
        #[command(flatten)]
        by: MaybeProcess,
    },
    /// Show one assignment or all as they stand now; a token shown here is not authority
    #[command(after_help = "\
Examples:
  keyfence assignment show
  keyfence assignment show close-tonight --json")]
    Show {
        /// The assignment; all when left out
        #[arg(value_parser = args::name)]
        id: Option<Name>,
    },
}

impl Assignment {
    /// Whether it is one call that can be asked for again under its name.
    pub(crate) const fn takes_request(&self) -> bool {
        !matches!(self.verb, Verb::Show { .. })
    }

    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            Verb::Create {
                id,
                actor,
                retry_of,
                by,
            } => {
                let ask = Create { id, actor, retry_of };
                let ledger = context.open(Access::Create)?;
                let mut call = context.call(&ledger, &by.caller(None));
                let decision = call.assignment_create(&ask)?;
                let done = decided(decision, || match &ask.retry_of {
                    Some(retried) => format!("create assignment `{}` as a retry of `{retried}`", ask.id),
                    None => format!("create assignment `{}`", ask.id),
                })?;
                let answer = Answer::done(done)
                    .with("assignment", ask.id.as_str())
                    .with("actor", ask.actor.as_str())
                    .with_some("retry_of", ask.retry_of.as_ref().map(Name::as_str))
                    .with_some("replayed", call.replayed().then_some(true));
                context.output().answer(&answer)?;
            }
            Verb::Show { id } => show(context, id.as_ref())?,
        }
        Ok(Status::Done)
    }
}

const COLUMNS: &[(&str, &str)] = &[
    ("ASSIGNMENT", "assignment"),
    ("ACTOR", "actor"),
    ("STATE", "state"),
    ("LIVE", "live"),
    ("TOKEN", "token"),
    ("PROCESS", "process"),
    ("UNTIL", "expires_at_ms"),
];

fn show(context: &Context, id: Option<&Name>) -> Result<(), Failure> {
    let ledger = context.open(Access::Read)?;
    let output = context.output();
    if let Some(id) = id {
        let answer = match ledger.assignment(id)? {
            Some(view) => standing(context, &ledger, &view)?,
            None => Answer::unknown_name("assignment", id),
        };
        return Ok(output.answer(&answer)?);
    }
    let mut list = output.list(COLUMNS);
    let mut page = FIRST_PAGE;
    loop {
        let views = ledger.assignments(page)?;
        let Some(last) = views.last() else {
            return Ok(list.end("there are no assignments")?);
        };
        page = page.after(last.number);
        for view in &views {
            list.row(standing(context, &ledger, view)?)?;
        }
    }
}

/// An assignment as it stands now. Its attempt is live while it is unexpired and the actor's row carries the lease token.
pub(crate) fn standing(context: &Context, ledger: &Ledger, view: &AssignmentView) -> Result<Answer, Failure> {
    let row = &view.row;
    let answer = Answer::plain()
        .with("assignment", row.id.as_str())
        .with("actor", row.actor.as_str());
    let state = match &row.state {
        AssignmentState::Created { .. } => "CREATED",
        AssignmentState::Running(_) => "RUNNING",
        AssignmentState::Finished(finished) => finished.outcome.name(),
        AssignmentState::Pruned => "PRUNED",
    };
    let answer = answer
        .with("state", state)
        .with_some("retry_of", row.retry_of.as_ref().map(Name::as_str));
    let answer = match &row.state {
        AssignmentState::Created { released } => answer.with_some("last_token", released.map(|(_, token)| token.get())),
        AssignmentState::Running(attempt) => {
            let standing = standing::of_attempt(context, ledger, &row.actor, attempt)?;
            answer
                .with("attempt", attempt.id.to_string())
                .with("token", attempt.token.get())
                .with("process", attempt.process.to_string())
                .with("lease_token", attempt.lease_token.get())
                .with("since_ms", attempt.since.as_ms())
                .with_some("expires_at_ms", attempt.expiry.time().map(TimeMs::as_ms))
                .with("live", standing.live)
                .with_some("lease_lost", (!standing.descends).then_some(true))
        }
        AssignmentState::Finished(finished) => {
            let answer = answer
                .with("attempt", finished.attempt.to_string())
                .with("last_token", finished.token.get());
            match finished.by {
                FinishedBy::WorkerLost => answer.with("result", "worker_lost"),
                FinishedBy::Attempt(_) => match &view.result {
                    Some(result) => answer.with_bytes("result", result),
                    None => answer,
                },
            }
        }
        AssignmentState::Pruned => answer,
    };
    Ok(answer.headline(format!("assignment {}", row.id), &["assignment"]))
}
