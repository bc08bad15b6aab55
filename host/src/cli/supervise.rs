//! `keyfence supervise`: tidies and reports; creates no work, never guesses success, never retries.

use std::time::Duration;

use clap::Args;
use keyfence::run::Interrupt;
use keyfence::{Error, Ledger, Tick};
use serde_json::Value;

use super::exit::{Answered, Failure, Status, decided};
use super::output::Answer;
use super::{Access, Context, args};

/// Sweep lapsed claims, close runs whose worker is gone, report lapsed leases
#[derive(Debug, Args)]
#[command(after_help = "\
A run whose worker is gone ends as FAILED worker_lost. It creates no work,
never guesses success and never retries. Correctness needs none of it: claims
take over by themselves. Without --once it goes on until it is interrupted,
which ends it with 0; with --json each look that found something new is one
object on a line. A damaged row is left alone and reported; the rest is tidied
all the same.

Examples:
  keyfence supervise
  keyfence supervise --once --json")]
pub(crate) struct Supervise {
    /// Look once
    #[arg(long)]
    once: bool,
    /// How long to wait between two looks
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = args::interval)]
    interval: Duration,
}

impl Supervise {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let ledger = context.open(Access::Write)?;
        if self.once {
            let tick = look(context, &ledger)?;
            return once(context, &tick);
        }
        let interrupt = Interrupt::on_signals()?;
        let mut before = Tick::default();
        loop {
            match look(context, &ledger) {
                Ok(tick) => {
                    let news = news(&tick, &before);
                    if news.swept > 0 || news.closed_count > 0 || !news.lapsed.is_empty() || !news.damaged.is_empty() {
                        report(context, &news)?;
                    }
                    before = tick;
                }
                // A busy ledger is looked at again at the next interval.
                Err(failure @ Failure::Ledger(Error::Busy { .. })) => {
                    let (answer, _) = context.describe(failure);
                    if context.output().is_json() {
                        context.output().line(&answer.into_value(), "")?;
                    } else {
                        context.output().no_answer(&answer)?;
                    }
                }
                Err(failure) => return Err(failure),
            }
            context.output().check_reader()?;
            if interrupt.wait(self.interval)?.is_some() {
                return Ok(Status::Done);
            }
        }
    }
}

fn look(context: &Context, ledger: &Ledger) -> Result<Tick, Failure> {
    let decision = context.call(ledger, &"supervisor").supervise_tick()?;
    decided(decision, || "supervise".to_owned())
}

/// What a look found that the one before had not.
fn news(tick: &Tick, before: &Tick) -> Tick {
    Tick {
        lapsed: new_of(&tick.lapsed, &before.lapsed),
        damaged: new_of(&tick.damaged, &before.damaged),
        ..tick.clone()
    }
}

fn new_of<T: Clone + PartialEq>(now: &[T], before: &[T]) -> Vec<T> {
    now.iter().filter(|item| !before.contains(item)).cloned().collect()
}

fn once(context: &Context, tick: &Tick) -> Answered {
    let output = context.output();
    let (answer, status) = answer(tick);
    if !output.is_json() {
        for lapsed in &tick.lapsed {
            output.note(&sentence(context, lapsed));
        }
    }
    let answer = if output.is_json() {
        with_lists(answer, tick)
    } else {
        answer
            .with("swept", tick.swept)
            .with("closed", names(tick))
            .with("closed_count", tick.closed_count)
            .with("lapsed_count", tick.lapsed_count)
    };
    if status == Status::Done {
        output.answer(&answer)?;
    } else {
        output.no_answer(&answer)?;
    }
    Ok(status)
}

/// What a look comes to: damage that it met is an error, whatever it tidied besides.
fn answer(tick: &Tick) -> (Answer, Status) {
    match tick.damaged.first() {
        None => (Answer::new("done"), Status::Done),
        Some(first) => {
            let error = Error::from(first.clone());
            let reason = match tick.damaged.len() {
                1 => error.to_string(),
                count => format!("{error}, and {} more are damaged", count - 1),
            };
            (Answer::error(error.name(), &reason, &error.next()), Status::Failed)
        }
    }
}

fn with_lists(answer: Answer, tick: &Tick) -> Answer {
    let damaged: Vec<Value> = tick
        .damaged
        .iter()
        .map(|damage| {
            Answer::plain()
                .with("place", damage.place.as_str())
                .with("why", damage.why.as_str())
                .into_value()
        })
        .collect();
    answer
        .with("swept", tick.swept)
        .with("closed", names(tick))
        .with("closed_count", tick.closed_count)
        .with("lapsed", lapsed(tick))
        .with("lapsed_count", tick.lapsed_count)
        .with_some("damaged", (!damaged.is_empty()).then_some(damaged))
}

fn report(context: &Context, tick: &Tick) -> Result<(), Failure> {
    let output = context.output();
    if output.is_json() {
        let (answer, _) = answer(tick);
        return Ok(output.line(&with_lists(answer, tick).into_value(), "")?);
    }
    let mut lines = Vec::new();
    if tick.swept > 0 {
        lines.push(format!("swept {} lapsed claims", tick.swept));
    }
    if tick.closed_count > 0 {
        lines.push(format!("closed as FAILED worker_lost: {}", names(tick).join(", ")));
    }
    lines.extend(tick.lapsed.iter().map(|lapsed| sentence(context, lapsed)));
    for line in lines {
        output.line(&Value::Null, &line)?;
    }
    for damage in &tick.damaged {
        output.note(&format!("keyfence: {}", Error::from(damage.clone())));
    }
    Ok(())
}

fn names(tick: &Tick) -> Vec<&str> {
    tick.closed.iter().map(keyfence::Name::as_str).collect()
}

fn lapsed(tick: &Tick) -> Vec<Value> {
    tick.lapsed
        .iter()
        .map(|lapsed| {
            Answer::plain()
                .with("kind", lapsed.kind)
                .with("name", lapsed.name.as_str())
                .with("holder", lapsed.holder.name.as_str())
                .with_some(
                    "holder_process",
                    lapsed.holder.process.map(|process| process.to_string()),
                )
                .with("expires_at_ms", lapsed.expired_at.as_ms())
                .into_value()
        })
        .collect()
}

fn sentence(context: &Context, lapsed: &keyfence::Lapsed) -> String {
    format!(
        "{} `{}` lapsed {}, held by {}",
        lapsed.kind,
        lapsed.name,
        context.output().moment(lapsed.expired_at),
        lapsed
            .holder
            .process
            .map_or_else(|| lapsed.holder.name.to_string(), |process| process.to_string()),
    )
}
