//! `keyfence supervise`: tidies and reports; creates no work, never guesses success, never retries.

use std::time::Duration;

use clap::Args;
use keyfence::run::Interrupt;
use keyfence::{Error, Ledger, Tick};
use serde_json::{Value, json};

use super::exit::{Answered, Failure, Status, decided};
use super::output::Answer;
use super::{Access, Context, args};

/// Sweep lapsed claims, close runs whose worker is gone, report lapsed leases
#[derive(Debug, Args)]
#[command(after_help = "\
A run whose worker is gone ends as FAILED worker_lost. It creates no work, never guesses success and never retries. Correctness needs none of it: claims take over by
themselves. Without --once it goes on until it is interrupted, which ends it with 0; with --json each look that found
something is one object on a line.

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
            let (tick, _) = look(context, &ledger)?;
            let answer = Answer::new("done")
                .with("swept", tick.swept)
                .with("closed", names(&tick))
                .with("closed_count", tick.closed_count);
            let answer = if context.output().is_json() {
                answer.with("lapsed", lapsed(&tick))
            } else {
                for lapsed in &tick.lapsed {
                    context.output().note(&sentence(context, lapsed));
                }
                answer
            };
            context
                .output()
                .answer(&answer.with("lapsed_count", tick.lapsed_count))?;
            return Ok(Status::Done);
        }
        let interrupt = Interrupt::on_signals()?;
        let mut reported: Vec<keyfence::Lapsed> = Vec::new();
        loop {
            match look(context, &ledger) {
                Ok((tick, text)) => {
                    let news: Vec<_> = tick
                        .lapsed
                        .iter()
                        .filter(|lapsed| !reported.contains(lapsed))
                        .cloned()
                        .collect();
                    if tick.swept > 0 || tick.closed_count > 0 || !news.is_empty() {
                        let tick = Tick {
                            lapsed: news,
                            ..tick.clone()
                        };
                        report(context, &tick, &text)?;
                    }
                    reported = tick.lapsed;
                }
                // A busy ledger is looked at again at the next interval.
                Err(Failure::Ledger(error @ Error::Busy { .. })) => {
                    context.output().note(&format!("keyfence: {error}"))
                }
                Err(failure) => return Err(failure),
            }
            if interrupt.wait(self.interval)?.is_some() {
                return Ok(Status::Done);
            }
        }
    }
}

fn look(context: &Context, ledger: &Ledger) -> Result<(Tick, String), Failure> {
    let decision = context.call(ledger, &"supervisor").supervise_tick()?;
    let tick = decided(decision, || "supervise".to_owned())?;
    let mut parts = Vec::new();
    if tick.swept > 0 {
        parts.push(format!("swept {} lapsed claims", tick.swept));
    }
    if tick.closed_count > 0 {
        let names: Vec<&str> = tick.closed.iter().map(keyfence::Name::as_str).collect();
        parts.push(format!("closed as FAILED worker_lost: {}", names.join(", ")));
    }
    Ok((tick, parts.join("; ")))
}

fn report(context: &Context, tick: &Tick, text: &str) -> Result<(), Failure> {
    let object = json!({
        "swept": tick.swept,
        "closed": names(tick),
        "closed_count": tick.closed_count,
        "lapsed": lapsed(tick),
        "lapsed_count": tick.lapsed_count,
    });
    if context.output().is_json() {
        return Ok(context.output().line(&object, "")?);
    }
    if !text.is_empty() {
        context.output().line(&Value::Null, text)?;
    }
    for lapsed in &tick.lapsed {
        context.output().line(&Value::Null, &sentence(context, lapsed))?;
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
