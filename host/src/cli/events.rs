//! `keyfence events`: the history.

use std::time::Duration;

use clap::Args;
use keyfence::core::refusal::Holder;
use keyfence::core::{Name, TimeMs, Token};
use keyfence::run::Interrupt;
use keyfence::{EventRecord, Ledger};

use super::exit::{Answered, Failure, Status};
use super::format::utc;
use super::output::Answer;
use super::{Access, Context};

/// How many events are read at a time.
const AT_A_TIME: usize = 500;
/// How often a followed history is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Print the history: one event for every transition, oldest first
#[derive(Debug, Args)]
#[command(after_help = "\
With --follow it goes on until it is interrupted, which ends it with 0; with
--json each event is then one object on a line instead of an element of an
array. Where a restore puts an earlier history in place of the one that was
read, it ends with 1 and `history_rewound`: read it again from the beginning.

Examples:
  keyfence events
  keyfence events --since 1200 --json
  keyfence events --follow")]
pub(crate) struct Events {
    /// Go on with what happens from now on
    #[arg(long)]
    follow: bool,
    /// Only what came after the event of this number
    #[arg(long, value_name = "SEQ", default_value = "0")]
    since: u64,
}

const COLUMNS: &[(&str, &str)] = &[
    ("SEQ", "seq"),
    ("AT", "at_ms"),
    ("EVENT", "event"),
    ("SUBJECT", "subject"),
    ("HOLDER", "holder"),
    ("TOKEN", "token"),
    ("UNTIL", "expires_at_ms"),
];

impl Events {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let ledger = context.open(Access::Read)?;
        if self.follow {
            return follow(context, &ledger, self.since);
        }
        let mut list = context.output().list(COLUMNS);
        let mut events = ledger.events(self.since, AT_A_TIME)?;
        while let Some(last) = events.last() {
            for event in &events {
                list.row(fields(event))?;
            }
            events = ledger.events_after(last, AT_A_TIME)?;
        }
        list.end("no events")?;
        Ok(Status::Done)
    }
}

fn follow(context: &Context, ledger: &Ledger, since: u64) -> Answered {
    let interrupt = Interrupt::on_signals()?;
    let mut last: Option<EventRecord> = None;
    loop {
        let mut events = match &last {
            Some(last) => ledger.events_after(last, AT_A_TIME)?,
            None => ledger.events(since, AT_A_TIME)?,
        };
        for event in &events {
            context.output().line(&fields(event).into_value(), &line(event))?;
        }
        let nap = if events.len() < AT_A_TIME {
            LOOK_EVERY
        } else {
            Duration::ZERO
        };
        last = events.pop().or(last);
        context.output().check_reader()?;
        if interrupt.wait(nap)?.is_some() {
            return Ok::<_, Failure>(Status::Done);
        }
    }
}

/// An event as fields.
fn fields(record: &EventRecord) -> Answer {
    let event = &record.event;
    let process = |holder: &Holder| holder.process.map(|process| process.to_string());
    let answer = Answer::plain()
        .with("seq", record.seq)
        .with("at_ms", event.at.as_ms())
        .with("event", event.kind.name())
        .with("subject", event.subject.as_str())
        .with_some("holder", event.holder.as_ref().map(|holder| holder.name.as_str()))
        .with_some("process", event.holder.as_ref().and_then(process))
        .with_some("token", event.token.map(Token::get))
        .with_some("parent_token", event.parent_token.map(Token::get))
        .with_some("expires_at_ms", event.expires_at.map(TimeMs::as_ms))
        .with_some("attempt", event.attempt.map(|attempt| attempt.to_string()))
        .with_some("incarnation", event.incarnation.map(keyfence::Incarnation::get))
        .with_some("retries", event.retries)
        .with_some("refers_to", event.refers_to.as_ref().map(Name::as_str))
        .with_some("note", record.note.as_deref());
    match &event.replaced {
        Some(replaced) => answer.with(
            "replaced",
            Answer::plain()
                .with("holder", replaced.holder.name.as_str())
                .with_some("process", process(&replaced.holder))
                .with("token", replaced.token.get())
                .with_some("expires_at_ms", replaced.expiry.time().map(TimeMs::as_ms))
                .into_value(),
        ),
        None => answer,
    }
}

/// An event as a line.
fn line(record: &EventRecord) -> String {
    let event = &record.event;
    let mut line = format!(
        "{:>6}  {}  {:<20}  {}",
        record.seq,
        utc(event.at),
        event.kind.name(),
        event.subject
    );
    if let Some(holder) = &event.holder {
        line.push_str(&format!("  by {}", holder.name));
    }
    if let Some(token) = event.token {
        line.push_str(&format!("  token {token}"));
    }
    if let Some(incarnation) = event.incarnation {
        line.push_str(&format!("  incarnation {incarnation}"));
    }
    if let Some(replaced) = &event.replaced {
        line.push_str(&format!(
            "  replacing {} (token {})",
            replaced.holder.name, replaced.token
        ));
    }
    line
}
