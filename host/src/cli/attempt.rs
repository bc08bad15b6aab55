//! `keyfence attempt`: which process works on an assignment.

use clap::{Args, Subcommand, ValueEnum};
use keyfence::Ledger;
use keyfence::core::attempt::{Acquire, AttemptGrant, Outcome};
use keyfence::core::lease::Granted;
use keyfence::core::{AttemptId, Name, Token, Ttl};

use super::exit::{Answered, Failure, Status, decided};
use super::output::Answer;
use super::{Access, ByProcess, Context, actor, args, standing};

/// Execution attempts: which process works on an assignment now
#[derive(Debug, Args)]
#[command(after_help = "\
`keyfence run` does all of this for a program.

Examples:
  keyfence attempt acquire close-tonight --actor operator-course \\
      --lease-token 41
  keyfence attempt finish close-tonight --attempt att_... --token 42 \\
      --state completed")]
pub(crate) struct Attempt {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Acquire an attempt under the actor's live lease; a live attempt refuses, your own too
    #[command(after_help = "\
Examples:
  keyfence attempt acquire close-tonight --actor operator-course \\
      --lease-token 41 --ttl 15m")]
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
    },
    /// Move the expiry of your live attempt; the token stays
    #[command(after_help = "\
Examples:
  keyfence attempt renew close-tonight --attempt att_... --token 42")]
    Renew {
        #[command(flatten)]
        grant: GrantArgs,
        /// How long the attempt lasts from now on; never shorter than it did
        #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = args::ttl)]
        ttl: Ttl,
    },
    /// Give the assignment back, unfinished: CREATED; a stale grant changes nothing and says so
    #[command(after_help = "\
Examples:
  keyfence attempt release close-tonight --attempt att_... --token 42")]
    Release {
        #[command(flatten)]
        grant: GrantArgs,
    },
    /// Write the assignment's end: the terminal write, refused when this attempt was superseded
    #[command(after_help = "\
Examples:
  keyfence attempt finish close-tonight --attempt att_... --token 42 \\
      --state completed --result 'till: 312.40'")]
    Finish {
        #[command(flatten)]
        grant: GrantArgs,
        /// How it ended
        #[arg(long, value_enum)]
        state: EndState,
        /// A result or a reason, kept with it
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        result: std::ffi::OsString,
    },
}

#[derive(Debug, Args)]
struct GrantArgs {
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

impl GrantArgs {
    fn grant(self) -> AttemptGrant {
        AttemptGrant::presented(self.assignment, self.attempt, self.token)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum EndState {
    Completed,
    Blocked,
    Failed,
}

impl From<EndState> for Outcome {
    fn from(state: EndState) -> Self {
        match state {
            EndState::Completed => Self::Completed,
            EndState::Blocked => Self::Blocked,
            EndState::Failed => Self::Failed,
        }
    }
}

fn granted(
    context: &Context,
    ledger: &Ledger,
    granted: &Granted<AttemptGrant>,
    replayed: bool,
) -> Result<Answer, Failure> {
    let grant = &granted.grant;
    let answer = Answer::granted(grant.token(), granted.expires_at)
        .with("assignment", grant.assignment().as_str())
        .with("attempt", grant.attempt().to_string())
        .with("renewed", granted.renewed);
    if !replayed {
        return Ok(answer);
    }
    let named = (grant.attempt(), grant.token());
    let standing = standing::of_attempt_grant(context, ledger, grant.assignment(), named)?;
    Ok(standing::replayed(context, answer, standing))
}

impl Attempt {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            Verb::Acquire {
                assignment,
                actor,
                by,
                lease_token,
                ttl,
            } => {
                let ask = Acquire {
                    assignment,
                    actor,
                    process: by.process,
                    lease_token,
                    attempt: context.new_attempt(&by.process),
                    ttl,
                };
                let ledger = context.open(Access::Create)?;
                let mut call = context.call(&ledger, &by.process);
                let decision = call.attempt_acquire(&ask)?;
                let attempt = decided(decision, || format!("acquire assignment `{}`", ask.assignment))?;
                let answer = granted(context, &ledger, &attempt, call.replayed())?
                    .with("actor", ask.actor.as_str())
                    .with("process", ask.process.to_string())
                    .with("lease_token", ask.lease_token.get());
                context.output().answer(&answer)?;
            }
            Verb::Renew { grant, ttl } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                let mut call = context.call(&ledger, &grant.attempt());
                let decision = call.attempt_renew(&grant, ttl)?;
                let renewed = decided(decision, || format!("renew the attempt at `{}`", grant.assignment()))?;
                let answer = granted(context, &ledger, &renewed, call.replayed())?;
                context.output().answer(&answer)?;
            }
            Verb::Release { grant } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                let mut call = context.call(&ledger, &grant.attempt());
                let decision = call.attempt_release(&grant)?;
                let released = decided(decision, || format!("release the attempt at `{}`", grant.assignment()))?;
                let answer = actor::released(&ledger, released, grant.token())?
                    .with("assignment", grant.assignment().as_str())
                    .with("attempt", grant.attempt().to_string())
                    .with_some("replayed", call.replayed().then_some(true));
                context.output().answer(&answer)?;
            }
            Verb::Finish { grant, state, result } => {
                let (grant, outcome) = (grant.grant(), Outcome::from(state));
                let ledger = context.open(Access::Write)?;
                let mut call = context.call(&ledger, &grant.attempt());
                let decision = call.attempt_finish(&grant, outcome, &args::bytes(result))?;
                let done = decided(decision, || format!("finish `{}`", grant.assignment()))?;
                let answer = Answer::done(done)
                    .with("assignment", grant.assignment().as_str())
                    .with("attempt", grant.attempt().to_string())
                    .with("state", outcome.name())
                    .with_some("replayed", call.replayed().then_some(true));
                context.output().answer(&answer)?;
            }
        }
        Ok(Status::Done)
    }
}
