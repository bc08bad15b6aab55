//! The work that actors do on a kiosk's own ledger: assignments, and the attempts at them.

use clap::{Args, Subcommand};
use keyfence::core::attempt::{Acquire, AssignmentState, AttemptGrant, CloseLost, Create, FinishedBy};
use keyfence::core::store::Place;
use keyfence::core::{AttemptId, Name, Token, Ttl};
use keyfence::fresh;
use keyfence::kiosk::{ContentKind, KioskError, Leased, Row};

use super::super::attempt::EndState;
use super::super::exit::{Answered, Failure};
use super::super::output::Answer;
use super::super::{ByProcess, Context, args};
use super::at::{At, Called};
use super::claims::{answer, carries, granted, released};

/// Assignments on the kiosk
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk assignment create close-tonight --actor closing \\
      --emulator kiosk-a.flash")]
pub(crate) struct Assignment {
    #[command(subcommand)]
    verb: AssignmentVerb,
}

#[derive(Debug, Subcommand)]
enum AssignmentVerb {
    /// Create an assignment; the same one again is recognised
    #[command(after_help = "\
Examples:
  keyfence kiosk assignment create close-tonight --actor closing \\
      --emulator kiosk-a.flash")]
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
        at: At,
    },
    /// Show one assignment as it stands; a token shown here is not authority
    #[command(after_help = "\
Examples:
  keyfence kiosk assignment show close-tonight \\
      --emulator kiosk-a.flash")]
    Show {
        /// The assignment
        #[arg(value_parser = args::name)]
        id: Name,
        #[command(flatten)]
        at: At,
    },
}

/// Execution attempts on the kiosk
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk attempt acquire close-tonight --actor closing \\
      --lease-token 1 --emulator kiosk-a.flash")]
pub(crate) struct Attempt {
    #[command(subcommand)]
    verb: AttemptVerb,
}

#[derive(Debug, Subcommand)]
enum AttemptVerb {
    /// Acquire an attempt under the actor's live lease; a live attempt refuses, your own too
    #[command(after_help = "\
Examples:
  keyfence kiosk attempt acquire close-tonight --actor closing \\
      --lease-token 1 --emulator kiosk-a.flash")]
    Acquire {
        /// The assignment
        #[arg(value_parser = args::name)]
        assignment: Name,
        /// The actor that it belongs to
        #[arg(long, value_parser = args::name)]
        actor: Name,
        #[command(flatten)]
        by: ByProcess,
        /// The token of the actor's lease, as it was granted to this process
        #[arg(long, value_name = "TOKEN", value_parser = args::token)]
        lease_token: Token,
        /// How long the attempt lasts
        #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = args::ttl)]
        ttl: Ttl,
        #[command(flatten)]
        at: At,
    },
    /// Move the expiry of your live attempt; the token stays
    #[command(after_help = "\
Examples:
  keyfence kiosk attempt renew close-tonight --attempt att_... \\
      --token 2 --emulator kiosk-a.flash")]
    Renew {
        #[command(flatten)]
        grant: AttemptArgs,
        /// How long the attempt lasts from now on; never shorter than it did
        #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = args::ttl)]
        ttl: Ttl,
        #[command(flatten)]
        at: At,
    },
    /// Give the assignment back, unfinished: CREATED; a stale grant changes nothing and says so
    #[command(after_help = "\
Examples:
  keyfence kiosk attempt release close-tonight --attempt att_... \\
      --token 2 --emulator kiosk-a.flash")]
    Release {
        #[command(flatten)]
        grant: AttemptArgs,
        #[command(flatten)]
        at: At,
    },
    /// Write the assignment's end: the terminal write, refused when this attempt was superseded
    #[command(after_help = "\
Examples:
  keyfence kiosk attempt finish close-tonight --attempt att_... \\
      --token 2 --state completed --result 'till: 312.40' \\
      --emulator kiosk-a.flash")]
    Finish {
        #[command(flatten)]
        grant: AttemptArgs,
        /// How it ended
        #[arg(long, value_enum)]
        state: EndState,
        /// A result or a reason, kept with it, at most 64 bytes
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        result: std::ffi::OsString,
        #[command(flatten)]
        at: At,
    },
    /// Close an assignment whose attempt is not live any more: FAILED `worker_lost`
    #[command(after_help = "\
Examples:
  keyfence kiosk attempt close-lost close-tonight \\
      --emulator kiosk-a.flash")]
    CloseLost {
        /// The assignment
        #[arg(value_parser = args::name)]
        assignment: Name,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Args)]
struct AttemptArgs {
    /// The assignment
    #[arg(value_parser = args::name)]
    assignment: Name,
    /// The attempt that your acquisition was granted
    #[arg(long, value_name = "ATTEMPT", value_parser = args::attempt)]
    attempt: AttemptId,
    /// The token that your acquisition was granted
    #[arg(long, value_parser = args::token)]
    token: Token,
}

impl AttemptArgs {
    fn grant(self) -> AttemptGrant {
        AttemptGrant::presented(self.assignment, self.attempt, self.token)
    }
}

fn named(answer: Answer, grant: &AttemptGrant) -> Answer {
    answer
        .with("assignment", grant.assignment().as_str())
        .with("attempt", grant.attempt().to_string())
}

fn attempted(called: &Called, leased: &Leased<AttemptGrant>) -> Result<Answer, KioskError> {
    let grant = &leased.granted.grant;
    Ok(named(granted(called, leased, grant.token())?, grant))
}

impl Assignment {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            AssignmentVerb::Create {
                id,
                actor,
                retry_of,
                at,
            } => {
                let mut called = at.open(context)?;
                let ask = Create { id, actor, retry_of };
                let decision = called.link.assignment_create(&ask)?;
                let done = called.decided(decision, || format!("create assignment `{}`", ask.id))?;
                let told = Answer::done(done)
                    .with("assignment", ask.id.as_str())
                    .with("actor", ask.actor.as_str())
                    .with_some("retry_of", ask.retry_of.as_ref().map(Name::as_str));
                answer(context, &called, told)
            }
            AssignmentVerb::Show { id, at } => {
                let mut called = at.open(context)?;
                let shown = show(&mut called, &id)?;
                answer(context, &called, shown)
            }
        }
    }
}

impl Attempt {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            AttemptVerb::Acquire {
                assignment,
                actor,
                by,
                lease_token,
                ttl,
                at,
            } => {
                let mut called = at.open(context)?;
                let ask = Acquire {
                    assignment,
                    actor,
                    process: by.process,
                    lease_token,
                    attempt: fresh::attempt(),
                    ttl,
                };
                let decision = called.link.attempt_acquire(&ask)?;
                let leased = called.decided(decision, || format!("acquire assignment `{}`", ask.assignment))?;
                let told = attempted(&called, &leased)?
                    .with("actor", ask.actor.as_str())
                    .with("process", ask.process.to_string())
                    .with("lease_token", ask.lease_token.get());
                answer(context, &called, told)
            }
            AttemptVerb::Renew { grant, ttl, at } => {
                let mut called = at.open(context)?;
                let grant = grant.grant();
                let decision = called.link.attempt_renew(&grant, ttl)?;
                let leased = called.decided(decision, || format!("renew the attempt at `{}`", grant.assignment()))?;
                answer(context, &called, attempted(&called, &leased)?)
            }
            AttemptVerb::Release { grant, at } => {
                let mut called = at.open(context)?;
                let grant = grant.grant();
                let decision = called.link.attempt_release(&grant)?;
                let outcome =
                    called.decided(decision, || format!("release the attempt at `{}`", grant.assignment()))?;
                answer(context, &called, named(released(outcome), &grant))
            }
            AttemptVerb::Finish {
                grant,
                state,
                result,
                at,
            } => {
                let mut called = at.open(context)?;
                let (grant, outcome) = (grant.grant(), state.into());
                let decision = called.link.attempt_finish(&grant, outcome, &args::bytes(result))?;
                let done = called.decided(decision, || format!("finish `{}`", grant.assignment()))?;
                let told = named(Answer::done(done), &grant).with("state", outcome.name());
                answer(context, &called, told)
            }
            AttemptVerb::CloseLost { assignment, at } => {
                let mut called = at.open(context)?;
                let decision = called.link.attempt_close_lost(&assignment)?;
                let found = called.decided(decision, || format!("close assignment `{assignment}`"))?;
                let (closed, why) = match found {
                    CloseLost::Closed => (true, "its attempt was not live: FAILED `worker_lost`"),
                    CloseLost::Live => (false, "its attempt is live"),
                    CloseLost::NotRunning => (false, "it is not RUNNING"),
                };
                let told = Answer::new("done")
                    .with("assignment", assignment.as_str())
                    .with("closed", closed)
                    .with("reason", why);
                answer(context, &called, told)
            }
        }
    }
}

/// An assignment as the kiosk has it. Its attempt is live while it is unexpired, of this boot, and the actor's row carries the
/// lease token that it descends from.
fn show(called: &mut Called, id: &Name) -> Result<Answer, Failure> {
    let Some(Row::Assignment(row)) = called.link.row(Place::Assignment, id)? else {
        return Ok(Answer::unknown_name("assignment", id));
    };
    let told = Answer::plain()
        .with("assignment", row.id.as_str())
        .with("actor", row.actor.as_str())
        .with_some("retry_of", row.retry_of.as_ref().map(Name::as_str));
    let told = match &row.state {
        AssignmentState::Created { released } => told
            .with("state", "CREATED")
            .with_some("last_token", released.map(|(_, token)| token.get())),
        AssignmentState::Running(attempt) => {
            let descends = carries(called, &row.actor, attempt.lease_token)?;
            let there = called.link.info()?.now;
            let told = told
                .with("state", "RUNNING")
                .with("attempt", attempt.id.to_string())
                .with("token", attempt.token.get())
                .with("process", attempt.process.to_string())
                .with("lease_token", attempt.lease_token.get())
                .with("live", descends && attempt.expiry.is_live(there))
                .with_some("lease_lost", (!descends).then_some(true));
            called.with_times(told, attempt.since, attempt.expiry, there)
        }
        AssignmentState::Finished(finished) => {
            let told = told
                .with("state", finished.outcome.name())
                .with("attempt", finished.attempt.to_string())
                .with("last_token", finished.token.get());
            match finished.by {
                FinishedBy::WorkerLost => told.with("result", "worker_lost"),
                FinishedBy::Attempt(_) => {
                    match called.link.content(Place::Assignment, &row.id, ContentKind::Result)? {
                        Some(result) => told.with_bytes("result", &result),
                        None => told,
                    }
                }
            }
        }
        AssignmentState::Pruned => told.with("state", "PRUNED"),
    };
    Ok(told.headline(format!("assignment {id}"), &["assignment"]))
}
