//! The mailbox of a kiosk's own ledger.

use std::ffi::OsString;
use std::io::Read as _;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use keyfence::core::mailbox::{
    Claim, ClaimNext, Message, MessageGrant, MessageState, Priority, RETRIES_MAX_DEFAULT, Redrive, Settled,
};
use keyfence::core::store::Place;
use keyfence::core::{Name, TimeMs, Token, Ttl};
use keyfence::kiosk::{BODY_BYTES_MAX, ContentKind, KioskError, Leased, Letter, Row, SUBJECT_BYTES_MAX};

use super::super::exit::{Answered, Failure};
use super::super::mailbox::print_all;
use super::super::output::Answer;
use super::super::{Context, MaybeProcess, args};
use super::at::{At, Called};
use super::claims::{answer, carries, granted};
use crate::cli::exit::Status;

/// Mailboxes on the kiosk
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk mailbox send --to restock 'Restock vanilla' \\
      --emulator kiosk-a.flash
  keyfence kiosk mailbox claim-next --as restock --emulator kiosk-a.flash")]
pub(crate) struct Mailbox {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Send a message; the same id with the same content is one message
    #[command(after_help = "\
Examples:
  keyfence kiosk mailbox send --to restock --id 01-cones 'Order cones' \\
      --emulator kiosk-a.flash")]
    Send(Send),
    /// Claim a message by its id; again inside your live claim gets the same token and expiry
    #[command(after_help = "\
Examples:
  keyfence kiosk mailbox claim 01-cones --as restock \\
      --emulator kiosk-a.flash")]
    Claim {
        /// The message
        #[arg(value_parser = args::name)]
        id: Name,
        #[command(flatten)]
        by: Claimant,
        #[command(flatten)]
        at: At,
    },
    /// Claim the next message that is NEW and due, or lapsed; prints an array of one, empty when there is none
    #[command(after_help = "\
Examples:
  keyfence kiosk mailbox claim-next --as restock \\
      --emulator kiosk-a.flash")]
    ClaimNext {
        #[command(flatten)]
        by: Claimant,
        #[command(flatten)]
        at: At,
    },
    /// Move the expiry of your live claim; the token stays
    #[command(after_help = "\
Examples:
  keyfence kiosk mailbox extend 01-cones --as restock --token 4 \\
      --emulator kiosk-a.flash")]
    Extend {
        #[command(flatten)]
        grant: GrantArgs,
        /// How long the claim lasts from now on; never shorter than it did
        #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = args::ttl)]
        ttl: Ttl,
        #[command(flatten)]
        at: At,
    },
    /// Give the message back, unfinished: NEW; costs no retry while the claim is live
    #[command(after_help = "\
Examples:
  keyfence kiosk mailbox give-back 01-cones --as restock --token 4 \\
      --emulator kiosk-a.flash")]
    GiveBack {
        #[command(flatten)]
        grant: GrantArgs,
        #[command(flatten)]
        at: At,
    },
    /// Complete the message: the terminal write, refused under a stale token
    #[command(after_help = "\
Examples:
  keyfence kiosk mailbox complete 01-cones --as restock --token 4 \\
      --result '40 boxes' --emulator kiosk-a.flash")]
    Complete {
        #[command(flatten)]
        grant: GrantArgs,
        /// A result, kept with it, at most 64 bytes
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        result: OsString,
        #[command(flatten)]
        at: At,
    },
    /// Ask for another try after a failure: NEW with one retry less, or DEAD when none is left
    #[command(after_help = "\
Examples:
  keyfence kiosk mailbox retry 01-cones --as restock --token 4 \\
      --delay 30s --reason 'supplier is closed' --emulator kiosk-a.flash")]
    Retry {
        #[command(flatten)]
        grant: GrantArgs,
        /// Why it failed, kept with it when it is the last time, at most 64 bytes
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        reason: String,
        /// Not before this time has passed on the kiosk's clock, which begins anew with every power-up
        #[arg(long, value_name = "DURATION", value_parser = args::duration)]
        delay: Option<Duration>,
        #[command(flatten)]
        at: At,
    },
    /// Park the message as DEAD: your claimed one with its token, or as the operator one that nobody works on
    #[command(
        group(ArgGroup::new("whose").required(true).args(["owner", "operator"])),
        after_help = "\
Examples:
  keyfence kiosk mailbox dead-letter 01-cones --as restock --token 4 \\
      --reason 'no such item' --emulator kiosk-a.flash
  keyfence kiosk mailbox dead-letter 02-cups --operator \\
      --emulator kiosk-a.flash"
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
        /// Why, kept with it, at most 64 bytes
        #[arg(
            long,
            value_name = "TEXT",
            conflicts_with = "operator",
            default_value = "",
            hide_default_value = true
        )]
        reason: String,
        #[command(flatten)]
        at: At,
    },
    /// Send a DEAD message once more, under a new id, with a fresh budget: an operator's act
    #[command(after_help = "\
Examples:
  keyfence kiosk mailbox redrive 01-cones --emulator kiosk-a.flash")]
    Redrive {
        /// The DEAD message
        #[arg(value_parser = args::name)]
        id: Name,
        #[command(flatten)]
        at: At,
    },
    /// Put lapsed claims back to NEW, or to DEAD where no budget is left
    #[command(after_help = "\
Examples:
  keyfence kiosk mailbox sweep --to restock --emulator kiosk-a.flash")]
    Sweep {
        /// Those of this recipient; all when left out
        #[arg(long, value_name = "ACTOR", value_parser = args::name)]
        to: Option<Name>,
        #[command(flatten)]
        at: At,
    },
    /// Show a message as it stands; a token shown here is not authority
    #[command(after_help = "\
Examples:
  keyfence kiosk mailbox show 01-cones --emulator kiosk-a.flash")]
    Show {
        /// The message
        #[arg(value_parser = args::name)]
        id: Name,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Args)]
struct Send {
    /// The recipient
    #[arg(long, value_name = "ACTOR", value_parser = args::name)]
    to: Name,
    /// The sender
    #[arg(long, value_name = "ACTOR", value_parser = args::name)]
    from: Option<Name>,
    /// What it is about, at most 32 bytes
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    subject: String,
    /// The message's id [default: a fresh one]
    #[arg(long, value_parser = args::name)]
    id: Option<Name>,
    /// -100 to 100, the greater the sooner
    #[arg(long, value_name = "N", default_value = "0", value_parser = args::priority)]
    priority: Priority,
    /// How often it is tried again after a failure, 0 to 65535
    #[arg(long, value_name = "N", default_value_t = RETRIES_MAX_DEFAULT, value_parser = args::retries)]
    retries_max: u16,
    /// The body, at most 64 bytes; `-` reads it from standard input
    body: OsString,
    #[command(flatten)]
    at: At,
}

/// Who claims, and for how long.
#[derive(Debug, Args)]
struct Claimant {
    /// The actor, who has to be the recipient
    #[arg(long = "as", id = "owner", value_name = "ACTOR", value_parser = args::name)]
    owner: Name,
    #[command(flatten)]
    process: MaybeProcess,
    /// The token of the actor's lease that the claim shall descend from
    #[arg(long, value_name = "TOKEN", value_parser = args::token)]
    lease_token: Option<Token>,
    /// How long the claim lasts
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = args::ttl)]
    ttl: Ttl,
}

#[derive(Debug, Args)]
struct GrantArgs {
    /// The message
    #[arg(value_parser = args::name)]
    id: Name,
    /// The actor that claimed it
    #[arg(long = "as", id = "owner", value_name = "ACTOR", value_parser = args::name)]
    owner: Name,
    #[command(flatten)]
    process: MaybeProcess,
    /// The token that your claim was granted
    #[arg(long, value_parser = args::token)]
    token: Token,
}

impl GrantArgs {
    fn grant(self) -> MessageGrant {
        MessageGrant::presented(self.id, self.owner, self.process.process, self.token)
    }
}

impl Send {
    fn run(self, context: &Context) -> Answered {
        let body = if self.body == "-" {
            let mut body = Vec::new();
            // One byte more than is kept, so that a longer one is refused and not cut off.
            let mut input = std::io::stdin().lock().take(BODY_BYTES_MAX as u64 + 1);
            input.read_to_end(&mut body)?;
            body
        } else {
            args::bytes(self.body)
        };
        let too_long = |what, max| KioskError::TooLong { what, max };
        let letter = Letter {
            id: self.id.map_or_else(fresh_message, Ok)?,
            sender: self.from,
            recipient: self.to,
            subject: (self.subject.as_str().try_into()).map_err(|_| too_long("a subject", SUBJECT_BYTES_MAX))?,
            body: (body.as_slice().try_into()).map_err(|_| too_long("a body", BODY_BYTES_MAX))?,
            priority: self.priority,
            not_before: None,
            retries_max: self.retries_max,
        };
        let mut called = self.at.open(context)?;
        let decision = called.link.mailbox_send(&letter)?;
        let done = called.decided(decision, || format!("send message `{}`", letter.id))?;
        let told = Answer::done(done)
            .with("message", letter.id.as_str())
            .with("recipient", letter.recipient.as_str());
        answer(context, &called, told)
    }
}

/// A fresh message's id, as long as a kiosk's names may be.
fn fresh_message() -> Result<Name, Failure> {
    let id = uuid::Uuid::new_v4().simple().to_string();
    Name::new(&id).map_err(|error| Failure::Usage(error.to_string()))
}

fn named(answer: Answer, grant: &MessageGrant) -> Answer {
    answer
        .with("message", grant.message().as_str())
        .with("owner", grant.owner().as_str())
        .with_some("process", grant.process().map(|process| process.to_string()))
}

fn settled_as(settled: Settled, grant: &MessageGrant) -> Answer {
    named(Answer::done(settled.done), grant).with("state", if settled.dead { "DEAD" } else { "NEW" })
}

/// The subject and the body of a message, where they are kept still.
fn letter(called: &mut Called, id: &Name) -> Result<Option<(String, Vec<u8>)>, KioskError> {
    let content = called.link.content(Place::Message, id, ContentKind::Letter)?;
    Ok(content.and_then(|content| {
        let (length, rest) = content.split_first()?;
        let (subject, body) = rest.split_at_checked(usize::from(*length))?;
        Some((String::from_utf8_lossy(subject).into_owned(), body.to_vec()))
    }))
}

/// The grant of a message, with the message.
fn delivered(
    called: &mut Called,
    leased: &Leased<MessageGrant>,
    lease_token: Option<Token>,
) -> Result<Answer, Failure> {
    let grant = &leased.granted.grant;
    let told = named(granted(called, leased, grant.token())?, grant);
    let told = told.with_some("lease_token", lease_token.map(Token::get));
    let told = match called.link.row(Place::Message, grant.message())? {
        Some(Row::Message(row)) => told
            .with("priority", row.priority.get())
            .with("retries", row.retries)
            .with("deliveries", row.deliveries),
        Some(_) | None => told,
    };
    Ok(match letter(called, grant.message())? {
        Some((subject, body)) => told.with("subject", subject).with_body(body),
        None => told,
    })
}

impl Mailbox {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            Verb::Send(send) => send.run(context),
            Verb::Claim { id, by, at } => {
                let mut called = at.open(context)?;
                let ask = Claim {
                    message: id,
                    owner: by.owner,
                    process: by.process.process,
                    lease_token: by.lease_token,
                    ttl: by.ttl,
                };
                let decision = called.link.mailbox_claim(&ask)?;
                let leased = called.decided(decision, || format!("claim message `{}`", ask.message))?;
                let told = delivered(&mut called, &leased, ask.lease_token)?;
                answer(context, &called, told)
            }
            Verb::ClaimNext { by, at } => {
                let mut called = at.open(context)?;
                let ask = ClaimNext {
                    owner: by.owner,
                    process: by.process.process,
                    lease_token: by.lease_token,
                    ttl: by.ttl,
                };
                let decision = called.link.mailbox_claim_next(&ask)?;
                let next = called.decided(decision, || format!("claim the next message of `{}`", ask.owner))?;
                let mut deliveries = Vec::new();
                if let Some(leased) = next {
                    let told = delivered(&mut called, &leased, ask.lease_token)?;
                    deliveries.push(told.with("kiosk", called.name.as_str()));
                }
                print_all(context.output(), deliveries)?;
                Ok(Status::Done)
            }
            Verb::Extend { grant, ttl, at } => {
                let mut called = at.open(context)?;
                let grant = grant.grant();
                let decision = called.link.mailbox_extend(&grant, ttl)?;
                let leased = called.decided(decision, || {
                    format!("extend the claim on message `{}`", grant.message())
                })?;
                let told = named(granted(&called, &leased, grant.token())?, &grant);
                answer(context, &called, told)
            }
            Verb::GiveBack { grant, at } => {
                let mut called = at.open(context)?;
                let grant = grant.grant();
                let decision = called.link.mailbox_give_back(&grant)?;
                let settled = called.decided(decision, || format!("give back message `{}`", grant.message()))?;
                answer(context, &called, settled_as(settled, &grant))
            }
            Verb::Complete { grant, result, at } => {
                let mut called = at.open(context)?;
                let grant = grant.grant();
                let decision = called.link.mailbox_complete(&grant, &args::bytes(result))?;
                let done = called.decided(decision, || format!("complete message `{}`", grant.message()))?;
                let told = named(Answer::done(done), &grant).with("state", "DONE");
                answer(context, &called, told)
            }
            Verb::Retry {
                grant,
                reason,
                delay,
                at,
            } => {
                let mut called = at.open(context)?;
                let grant = grant.grant();
                let not_before = match delay {
                    Some(delay) => Some(later(called.link.info()?.now, delay)),
                    None => None,
                };
                let decision = called.link.mailbox_retry(&grant, not_before, reason.as_bytes())?;
                let settled = called.decided(decision, || format!("retry message `{}`", grant.message()))?;
                answer(context, &called, settled_as(settled, &grant))
            }
            Verb::DeadLetter {
                id,
                owner,
                process,
                token,
                operator: _,
                reason,
                at,
            } => {
                let mut called = at.open(context)?;
                let decision = match (owner, token) {
                    (Some(owner), Some(token)) => {
                        let grant = MessageGrant::presented(id.clone(), owner, process.process, token);
                        called.link.mailbox_dead_letter(&grant, reason.as_bytes())?
                    }
                    (_, _) => called.link.mailbox_dead_letter_new(&id)?,
                };
                let done = called.decided(decision, || format!("dead-letter message `{id}`"))?;
                let told = Answer::done(done).with("message", id.as_str()).with("state", "DEAD");
                answer(context, &called, told)
            }
            Verb::Redrive { id, at } => {
                let mut called = at.open(context)?;
                let ask = Redrive {
                    dead: id,
                    id: fresh_message()?,
                };
                let decision = called.link.mailbox_redrive(&ask)?;
                let (new, done) = called.decided(decision, || format!("redrive message `{}`", ask.dead))?;
                let told = Answer::done(done)
                    .with("message", new.as_str())
                    .with("redrive_of", ask.dead.as_str())
                    .with("state", "NEW");
                answer(context, &called, told)
            }
            Verb::Sweep { to, at } => {
                let mut called = at.open(context)?;
                let mut swept = 0;
                // A few at a time: what one call writes has to fit into one frame.
                loop {
                    let decision = called.link.mailbox_sweep(to.as_ref(), u16::MAX)?;
                    let count = called.decided(decision, || "sweep the mailboxes".to_owned())?;
                    swept += count;
                    if count == 0 {
                        break;
                    }
                }
                answer(context, &called, Answer::new("done").with("swept", swept))
            }
            Verb::Show { id, at } => {
                let mut called = at.open(context)?;
                let shown = match called.link.row(Place::Message, &id)? {
                    Some(Row::Message(row)) => show(&mut called, &row)?,
                    Some(_) | None => Answer::unknown_name("message", &id),
                };
                answer(context, &called, shown)
            }
        }
    }
}

/// A moment of the kiosk's clock.
fn later(now: TimeMs, delay: Duration) -> TimeMs {
    let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    TimeMs::new(now.as_ms().saturating_add(delay)).unwrap_or(TimeMs::MAX)
}

/// A message as the kiosk has it. A claim of an earlier boot has lapsed.
fn show(called: &mut Called, row: &Message) -> Result<Answer, Failure> {
    let told = Answer::plain()
        .with("message", row.id.as_str())
        .with("state", row.state_name())
        .with("recipient", row.recipient.as_str())
        .with("priority", row.priority.get())
        .with("retries", row.retries)
        .with("retries_max", row.retries_max)
        .with("deliveries", row.deliveries)
        .with_some("redrive_of", row.redrive_of.as_ref().map(Name::as_str));
    let told = match &row.state {
        MessageState::New(open) => told.with_some("last_token", open.last.as_ref().map(|last| last.token.get())),
        MessageState::Claimed(claimed) => {
            let descends = match claimed.lease_token {
                Some(token) => carries(called, &row.recipient, token)?,
                None => true,
            };
            let there = called.link.info()?.now;
            let told = told
                .with("owner", row.recipient.as_str())
                .with_some("process", claimed.process.map(|process| process.to_string()))
                .with("token", claimed.token.get())
                .with_some("lease_token", claimed.lease_token.map(Token::get))
                .with("live", descends && claimed.expiry.is_live(there))
                .with_some("lease_lost", (!descends).then_some(true));
            called.with_times(told, claimed.since, claimed.expiry, there)
        }
        MessageState::Done(last) => told.with("last_token", last.token.get()),
        MessageState::Dead(dead) => told
            .with("cause", dead.cause.name())
            .with_some("last_token", dead.last.as_ref().map(|last| last.token.get()))
            .with_some("redriven_as", dead.redriven_as.as_ref().map(Name::as_str)),
        MessageState::Pruned => told,
    };
    let told = match called.link.content(Place::Message, &row.id, ContentKind::Result)? {
        Some(result) => told.with_bytes("result", &result),
        None => told,
    };
    let told = match letter(called, &row.id)? {
        Some((subject, body)) => told.with("subject", subject).with_body(body),
        None => told,
    };
    Ok(told.headline(format!("message {}", row.id), &["message"]))
}
