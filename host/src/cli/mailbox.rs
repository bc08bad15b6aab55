//! `keyfence mailbox`: durable messages that the processes of their recipient claim, work on and complete.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use keyfence::core::attempt::Done;
use keyfence::core::mailbox::{Claim, ClaimNext, MessageGrant, Settled};
use keyfence::core::{Name, ProcessId, Token, Ttl};
use keyfence::run::Interrupt;
use keyfence::{Delivery, Ledger};
use serde_json::Value;

use super::exit::{Answered, Failure, Status, decided};
use super::output::{Answer, Output, Unanswered};
use super::{Access, Context, MaybeProcess, OPERATOR, args, standing as stands};

mod send;
mod show;

pub(crate) use show::standing;

/// How often an empty mailbox is looked into while `claim-next` waits.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Mailboxes: durable messages to claim, work on and complete
#[derive(Debug, Args)]
#[command(after_help = "\
Callers that give no --process are one anonymous process: they are not fenced
from each other.

Examples:
  keyfence mailbox send --to operator-course 'Restock vanilla'
  keyfence mailbox claim-next --as operator-course --wait 30s
  keyfence mailbox complete 01-restock --as operator-course --token 41")]
pub(crate) struct Mailbox {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Send a message; the same id with the same content is one message
    #[command(after_help = "\
Examples:
  keyfence mailbox send --to operator-course 'Restock vanilla'
  keyfence mailbox send --to operator-course --id 01-restock --priority 10 \\
      --subject stock - < list.txt")]
    Send(send::Send),
    /// Claim a message by its id; again inside your live claim gets the same token and expiry
    #[command(after_help = "\
Examples:
  keyfence mailbox claim 01-restock --as operator-course --ttl 15m")]
    Claim {
        /// The message
        #[arg(value_parser = args::name)]
        id: Name,
        #[command(flatten)]
        claimant: Claimant,
        #[command(flatten)]
        lease: LeaseArgs,
    },
    /// Claim the next messages that are NEW and due, or lapsed; prints an array, empty when there are none
    #[command(after_help = "\
Examples:
  keyfence mailbox claim-next --as operator-course --json
  keyfence mailbox claim-next --as operator-course -n 10 --wait 30s")]
    ClaimNext {
        #[command(flatten)]
        claimant: Claimant,
        #[command(flatten)]
        lease: LeaseArgs,
        /// How many at most
        #[arg(short = 'n', value_name = "N", default_value = "1", value_parser = args::batch)]
        count: u16,
        /// How long to wait for the first one
        #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = args::duration)]
        wait: Duration,
    },
    /// Move the expiry of your live claim; the token stays
    #[command(after_help = "\
Examples:
  keyfence mailbox extend 01-restock --as operator-course --token 41 --ttl 15m")]
    Extend {
        #[command(flatten)]
        grant: GrantArgs,
        /// How long the claim lasts from now on; never shorter than it did
        #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = args::ttl)]
        ttl: Ttl,
    },
    /// Give the message back, unfinished: NEW; costs no retry while the claim is live
    #[command(after_help = "\
Examples:
  keyfence mailbox give-back 01-restock --as operator-course --token 41")]
    GiveBack {
        #[command(flatten)]
        grant: GrantArgs,
    },
    /// Complete the message: the terminal write, refused under a stale token
    #[command(after_help = "\
Examples:
  keyfence mailbox complete 01-restock --as operator-course --token 41 \\
      --result '40 tubs'
  keyfence mailbox complete 01-restock --as operator-course --token 41 --next")]
    Complete {
        #[command(flatten)]
        grant: GrantArgs,
        /// A result, kept with it
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        result: OsString,
        /// Claim the next message in the same step
        #[arg(long)]
        next: bool,
        #[command(flatten)]
        lease: NextLeaseArgs,
    },
    /// Ask for another try after a failure: NEW with one retry less, or DEAD when none is left
    #[command(after_help = "\
Examples:
  keyfence mailbox retry 01-restock --as operator-course --token 41 \\
      --delay 30s --reason 'supplier is closed'")]
    Retry {
        #[command(flatten)]
        grant: GrantArgs,
        /// Why it failed, kept with it
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        reason: String,
        /// Not before this time has passed
        #[arg(long, value_name = "DURATION", value_parser = args::duration)]
        delay: Option<Duration>,
    },
    /// Park the message as DEAD: your claimed one with its token, or as the operator one that nobody works on
    #[command(
        group(ArgGroup::new("by").required(true).args(["owner", "operator"])),
        after_help = "\
Examples:
  keyfence mailbox dead-letter 01-restock --as operator-course --token 41 \\
      --reason 'no such item'
  keyfence mailbox dead-letter 02-cones --operator --reason 'sent by mistake'"
    )]
    DeadLetter {
        /// The message
        #[arg(value_parser = args::name)]
        id: Name,
        /// The actor that claimed it
        #[arg(long = "as", id = "owner", value_name = "ACTOR", requires = "token", value_parser = args::name)]
        owner: Option<Name>,
        #[command(flatten)]
        process: MaybeProcess,
        /// The token that your claim was granted
        #[arg(long, conflicts_with = "operator", value_parser = args::token)]
        token: Option<Token>,
        /// Act as the operator, on a message that is NEW or whose claim has lapsed
        #[arg(long)]
        operator: bool,
        /// Why, kept with it
        #[arg(
            long,
            value_name = "TEXT",
            required_if_eq("operator", "true"),
            default_value = "",
            hide_default_value = true
        )]
        reason: String,
    },
    /// Send a DEAD message once more, under a new id, with a fresh budget: an operator's act
    #[command(after_help = "\
Examples:
  keyfence mailbox redrive 01-restock")]
    Redrive {
        /// The DEAD message
        #[arg(value_parser = args::name)]
        id: Name,
    },
    /// Sweep lapsed claims of a recipient, then list what is NEW or CLAIMED
    #[command(after_help = "\
Examples:
  keyfence mailbox inbox operator-course")]
    Inbox {
        /// The recipient
        #[arg(value_parser = args::name)]
        actor: Name,
    },
    /// Show a message as it stands now; a token shown here is not authority
    #[command(after_help = "\
Examples:
  keyfence mailbox show 01-restock --json")]
    Show {
        /// The message
        #[arg(value_parser = args::name)]
        id: Name,
    },
}

/// Who claims.
#[derive(Debug, Args)]
struct Claimant {
    /// The actor, who has to be the recipient
    #[arg(long = "as", id = "owner", value_name = "ACTOR", value_parser = args::name)]
    owner: Name,
    #[command(flatten)]
    process: MaybeProcess,
}

#[derive(Debug, Args)]
struct LeaseArgs {
    /// The token of the actor's lease that the claim shall descend from
    #[arg(long, value_name = "TOKEN", value_parser = args::token)]
    lease_token: Option<Token>,
    /// How long the claim lasts
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = args::ttl)]
    ttl: Ttl,
}

/// The same for the claim that `--next` makes, and for nothing without it.
#[derive(Debug, Args)]
struct NextLeaseArgs {
    /// With --next: the token of the actor's lease that the next claim shall descend from
    #[arg(long, value_name = "TOKEN", requires = "next", value_parser = args::token)]
    lease_token: Option<Token>,
    /// With --next: how long the next claim lasts
    #[arg(long, value_name = "DURATION", requires = "next", default_value = "15m", value_parser = args::ttl)]
    ttl: Ttl,
}

impl From<NextLeaseArgs> for LeaseArgs {
    fn from(NextLeaseArgs { lease_token, ttl }: NextLeaseArgs) -> Self {
        Self { lease_token, ttl }
    }
}

#[derive(Debug, Args)]
struct GrantArgs {
    /// The message
    #[arg(value_parser = args::name)]
    id: Name,
    #[command(flatten)]
    claimant: Claimant,
    /// The token that your claim was granted
    #[arg(long, value_parser = args::token)]
    token: Token,
}

impl GrantArgs {
    fn grant(self) -> MessageGrant {
        MessageGrant::presented(self.id, self.claimant.owner, self.claimant.process.process, self.token)
    }
}

impl Mailbox {
    /// Whether it is one call that can be asked for again under its name.
    pub(crate) const fn takes_request(&self) -> bool {
        !matches!(self.verb, Verb::Show { .. } | Verb::Inbox { .. })
    }

    pub(crate) fn run(self, context: &Context) -> Answered {
        let output = context.output();
        match self.verb {
            Verb::Send(send) => return send.run(context),
            Verb::Claim { id, claimant, lease } => {
                let ask = Claim {
                    message: id,
                    owner: claimant.owner,
                    process: claimant.process.process,
                    lease_token: lease.lease_token,
                    ttl: lease.ttl,
                };
                let ledger = context.open(Access::Create)?;
                let mut call = context.call(&ledger, &caller(&ask.owner, ask.process));
                let decision = call.mailbox_claim(&ask)?;
                let delivery = decided(decision, || format!("claim message `{}`", ask.message))?;
                let replayed = call.replayed();
                let answer = delivered(context, &ledger, delivery, ask.lease_token, replayed)?;
                output.answer(&answer)?;
            }
            Verb::ClaimNext {
                claimant,
                lease,
                count,
                wait,
            } => {
                let ask = lease.next_for(claimant.owner, claimant.process.process);
                return claim_next(context, &ask, usize::from(count), wait);
            }
            Verb::Extend { grant, ttl } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                show::check_texts(&ledger, grant.message())?;
                let mut call = context.call(&ledger, &caller(grant.owner(), grant.process()));
                let decision = call.mailbox_extend(&grant, ttl)?;
                let extended = decided(decision, || {
                    format!("extend the claim on message `{}`", grant.message())
                })?;
                let answer = named(Answer::granted(extended.grant.token(), extended.expires_at), &grant)
                    .with("renewed", extended.renewed);
                let answer = if call.replayed() {
                    let view = ledger.message(grant.message())?;
                    let (standing, _) = stands::of_delivery(context, &ledger, view.as_ref(), grant.token())?;
                    stands::replayed(context, answer, standing)
                } else {
                    answer
                };
                output.answer(&answer)?;
            }
            Verb::GiveBack { grant } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                show::check_texts(&ledger, grant.message())?;
                let mut call = context.call(&ledger, &caller(grant.owner(), grant.process()));
                let decision = call.mailbox_give_back(&grant)?;
                let settled = decided(decision, || format!("give back message `{}`", grant.message()))?;
                output.answer(&settled_as(settled, &grant, call.replayed()))?;
            }
            Verb::Retry { grant, reason, delay } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                show::check_texts(&ledger, grant.message())?;
                let mut call = context.call(&ledger, &caller(grant.owner(), grant.process()));
                let decision = call.mailbox_retry(&grant, delay, &reason)?;
                let settled = decided(decision, || format!("retry message `{}`", grant.message()))?;
                output.answer(&settled_as(settled, &grant, call.replayed()))?;
            }
            Verb::Complete {
                grant,
                result,
                next,
                lease,
            } => {
                let (grant, result) = (grant.grant(), args::bytes(result));
                return complete(context, &grant, &result, next.then(|| lease.into()));
            }
            Verb::DeadLetter {
                id,
                owner,
                process,
                token,
                operator: _,
                reason,
            } => {
                let ledger = context.open(Access::Write)?;
                show::check_texts(&ledger, &id)?;
                let asked = format!("dead-letter message `{id}`");
                let (done, replayed) = match (owner, token) {
                    (Some(owner), Some(token)) => {
                        let grant = MessageGrant::presented(id.clone(), owner, process.process, token);
                        let mut call = context.call(&ledger, &caller(grant.owner(), grant.process()));
                        (call.mailbox_dead_letter(&grant, &reason)?, call.replayed())
                    }
                    (_, _) => {
                        let mut call = context.call(&ledger, &OPERATOR);
                        (call.mailbox_dead_letter_new(&id, &reason)?, call.replayed())
                    }
                };
                let answer = Answer::done(decided(done, || asked)?)
                    .with("message", id.as_str())
                    .with("state", "DEAD");
                output.answer(&answer.with_some("replayed", replayed.then_some(true)))?;
            }
            Verb::Redrive { id } => {
                let ledger = context.open(Access::Write)?;
                let mut call = context.call(&ledger, &OPERATOR);
                let decision = call.mailbox_redrive(&id, context.new_message(&OPERATOR))?;
                let (new, done) = decided(decision, || format!("redrive message `{id}`"))?;
                let answer = Answer::done(done)
                    .with("message", new.as_str())
                    .with("redrive_of", id.as_str())
                    .with("state", "NEW");
                output.answer(&answer.with_some("replayed", call.replayed().then_some(true)))?;
            }
            Verb::Inbox { actor } => show::inbox(context, &actor)?,
            Verb::Show { id } => show::one(context, &id)?,
        }
        Ok(Status::Done)
    }
}

impl LeaseArgs {
    fn next_for(self, owner: Name, process: Option<ProcessId>) -> ClaimNext {
        ClaimNext {
            owner,
            process,
            lease_token: self.lease_token,
            ttl: self.ttl,
        }
    }
}

/// By whom a request id is kept.
fn caller(owner: &Name, process: Option<ProcessId>) -> String {
    process.map_or_else(|| owner.to_string(), |process| process.to_string())
}

fn named(answer: Answer, grant: &MessageGrant) -> Answer {
    answer
        .with("message", grant.message().as_str())
        .with("owner", grant.owner().as_str())
        .with_some("process", grant.process().map(|process| process.to_string()))
}

/// The grant of a message, with the message. `asked` is the lease token that a claim made now was to descend from; one
/// that was made before is looked up.
fn delivered(
    context: &Context,
    ledger: &Ledger,
    delivery: Delivery,
    asked: Option<Token>,
    replayed: bool,
) -> Result<Answer, Failure> {
    let granted = &delivery.granted;
    let earlier = if granted.renewed || replayed {
        let view = ledger.message(granted.grant.message())?;
        Some(stands::of_delivery(
            context,
            ledger,
            view.as_ref(),
            granted.grant.token(),
        )?)
    } else {
        None
    };
    let lease_token = earlier.map_or(asked, |(_, lease_token)| lease_token);
    let answer = named(
        Answer::granted(granted.grant.token(), granted.expires_at),
        &granted.grant,
    )
    .with_some("lease_token", lease_token.map(Token::get))
    .with_some("sender", delivery.sender.as_ref().map(Name::as_str))
    .with("subject", delivery.subject)
    .with("priority", delivery.priority.get())
    .with("retries", delivery.retries)
    .with("deliveries", delivery.deliveries)
    .with("renewed", granted.renewed);
    let answer = match earlier {
        Some((standing, _)) if replayed => stands::replayed(context, answer, standing),
        Some(_) | None => answer,
    };
    Ok(answer.with_body(delivery.body))
}

fn settled_as(settled: Settled, grant: &MessageGrant, replayed: bool) -> Answer {
    named(Answer::done(settled.done), grant)
        .with("state", if settled.dead { "DEAD" } else { "NEW" })
        .with_some("replayed", replayed.then_some(true))
}

/// Prints deliveries: an array, or one after the other for people.
pub(super) fn print_all(output: &Output, deliveries: Vec<Answer>) -> Result<(), Unanswered> {
    if output.is_json() {
        let mut list = output.list(&[]);
        for delivery in deliveries {
            list.row(delivery).map_err(Unanswered)?;
        }
        return list.end("").map_err(Unanswered);
    }
    if deliveries.is_empty() {
        output.note("nothing to claim");
    }
    for delivery in &deliveries {
        output.answer(delivery)?;
    }
    Ok(())
}

/// Claims what is there; when that is nothing, looks again until the wait is over or interrupted.
fn claim_next(context: &Context, ask: &ClaimNext, count: usize, wait: Duration) -> Answered {
    let ledger = context.open(Access::Create)?;
    let claim = || -> Result<Vec<Answer>, Failure> {
        let mut call = context.call(&ledger, &caller(&ask.owner, ask.process));
        let decision = call.mailbox_claim_next(ask, count)?;
        let deliveries = decided(decision, || format!("claim the next messages of `{}`", ask.owner))?;
        let answers = deliveries
            .into_iter()
            .map(|delivery| delivered(context, &ledger, delivery, ask.lease_token, call.replayed()));
        answers.collect()
    };
    let mut deliveries = claim()?;
    if deliveries.is_empty() && !wait.is_zero() {
        // While waiting, an interrupt ends the wait and not the process between a claim and its answer.
        let interrupt = Interrupt::on_signals()?;
        let mut left = wait;
        while deliveries.is_empty() && !left.is_zero() {
            let nap = LOOK_EVERY.min(left);
            if let Some(signal) = interrupt.wait(nap)? {
                print_all(context.output(), deliveries)?;
                return Ok(Status::Program(u8::try_from(128 + signal).unwrap_or(u8::MAX)));
            }
            left = left.saturating_sub(nap);
            deliveries = claim()?;
        }
    }
    print_all(context.output(), deliveries)?;
    Ok(Status::Done)
}

/// Completes a message, and with `lease` claims the next one in the same step.
fn complete(context: &Context, grant: &MessageGrant, result: &[u8], lease: Option<LeaseArgs>) -> Answered {
    let output = context.output();
    let ledger = context.open(Access::Write)?;
    show::check_texts(&ledger, grant.message())?;
    let mut call = context.call(&ledger, &caller(grant.owner(), grant.process()));
    let asked = || format!("complete message `{}`", grant.message());
    let answer = |done: Done, replayed: bool| {
        named(Answer::done(done), grant)
            .with("state", "DONE")
            .with_some("replayed", replayed.then_some(true))
    };
    let Some(lease) = lease else {
        let done = decided(call.mailbox_complete(grant, result)?, asked)?;
        output.answer(&answer(done, call.replayed()))?;
        return Ok(Status::Done);
    };
    let next = lease.next_for(grant.owner().clone(), grant.process());
    let completed = decided(call.mailbox_complete_and_next(grant, result, &next, 1)?, asked)?;
    let replayed = call.replayed();
    let answer = answer(completed.done, replayed);
    // A refused claim leaves the completion standing, which is what the exit status tells.
    let asked_next = format!("claim the next message of `{}`", next.owner);
    let claimed = match completed.next {
        Ok(deliveries) => {
            let answers = deliveries
                .into_iter()
                .map(|delivery| delivered(context, &ledger, delivery, next.lease_token, replayed));
            Ok(answers.collect::<Result<Vec<Answer>, Failure>>()?)
        }
        Err(refusal) => Err(Answer::refused(&refusal, &asked_next, output)),
    };
    if output.is_json() {
        let next = match claimed {
            Ok(deliveries) => deliveries.into_iter().next().map_or(Value::Null, Answer::into_value),
            Err(refusal) => refusal.into_value(),
        };
        output.answer(&answer.with("next", next))?;
        return Ok(Status::Done);
    }
    output.answer(&answer)?;
    match claimed {
        Ok(deliveries) => print_all(output, deliveries)?,
        Err(refusal) => output.no_answer(&refusal)?,
    }
    Ok(Status::Done)
}
