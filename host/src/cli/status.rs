//! `keyfence status`: who holds what, since when, until when.

use clap::Args;
use keyfence::Ledger;
use keyfence::core::session::SessionState;
use keyfence::core::{Name, Token};
use serde_json::Value;

use super::exit::{Answered, Failure, Status as Exit};
use super::format::span;
use super::output::Answer;
use super::{Access, Context, assignment, host, session};

/// How many claims of each kind are listed.
const LISTED_MAX: usize = 100;

/// Show who holds what, since when and until when, and how often stale and foreign
/// tokens were refused
#[derive(Debug, Args)]
#[command(after_help = "\
A token shown here is not authority. A hundred claims of each kind are listed,
and all are counted.

Examples:
  keyfence status
  keyfence status --json")]
pub(crate) struct Status {}

const COLUMNS: &[(&str, &str)] = &[
    ("KIND", "kind"),
    ("NAME", "name"),
    ("HOLDER", "holder"),
    ("PROCESS", "process"),
    ("TOKEN", "token"),
    ("LIVE", "live"),
    ("SINCE", "since_ms"),
    ("UNTIL", "expires_at_ms"),
];

impl Status {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let ledger = context.open(Access::Read)?;
        let status = ledger.status()?;
        let claims = claims(context, &ledger)?;
        let output = context.output();
        if !output.is_json() {
            let mut list = output.list(COLUMNS);
            for claim in &claims {
                list.row(claim.clone())?;
            }
            list.end("nobody holds anything")?;
        }
        let count = claims.len();
        let answer = Answer::plain()
            .with("ledger", ledger.path().display().to_string())
            .with("id", ledger.id().to_string())
            .with("now_ms", status.now.as_ms());
        let answer = if output.is_json() {
            let claims: Vec<Value> = claims.into_iter().map(Answer::into_value).collect();
            answer.with("claims", claims)
        } else {
            answer
        };
        let held = status.actors_live
            + status.actors_lapsed
            + status.hosts_live
            + status.hosts_lapsed
            + status.assignments_running
            + status.messages_claimed
            + status.messages_lapsed
            + status.sessions_claimed;
        let not_listed = held.saturating_sub(u64::try_from(count).unwrap_or(u64::MAX));
        let answer = answer
            .with_some("claims_not_listed", (not_listed > 0).then_some(not_listed))
            .with_some("last_minted", status.counter.map(Token::get))
            .with("actors_live", status.actors_live)
            .with("actors_lapsed", status.actors_lapsed)
            .with("hosts_live", status.hosts_live)
            .with("hosts_lapsed", status.hosts_lapsed)
            .with("assignments_created", status.assignments_created)
            .with("assignments_running", status.assignments_running)
            .with("assignments_finished", status.assignments_finished)
            .with("messages_new", status.messages_new)
            .with("messages_claimed", status.messages_claimed)
            .with("messages_lapsed", status.messages_lapsed)
            .with("messages_done", status.messages_done)
            .with("messages_dead", status.messages_dead)
            .with("sessions_claimed", status.sessions_claimed)
            .with("sessions_free", status.sessions_free)
            .with("sessions_finished", status.sessions_finished)
            .with("events", status.last_event)
            .with("refusals", status.refusals)
            .with("expiries_too_far", status.expiries_too_far)
            .counts()
            .headline(format!("ledger {}", ledger.path().display()), &["ledger"]);
        output.answer(&answer)?;
        if !output.is_json() && not_listed > 0 {
            output.note(&format!(
                "keyfence: {not_listed} more claims; `actor show`, `assignment show`, `host show`, `session show` and \
                 `mailbox inbox ACTOR` list them all"
            ));
        }
        if !output.is_json() && status.expiries_too_far > 0 {
            output.note(&format!(
                "keyfence: {} claims expire more than {} from now, the longest lease that was ever asked for: was a clock \
                 wrong? `keyfence revoke` clears a claim",
                status.expiries_too_far,
                span(std::time::Duration::from_millis(status.longest_ttl_ms)),
            ));
        }
        Ok(Exit::Done)
    }
}

/// What is claimed, live or lapsed; [`LISTED_MAX`] of each kind.
fn claims(context: &Context, ledger: &Ledger) -> Result<Vec<Answer>, Failure> {
    let found = ledger.claims(LISTED_MAX)?;
    let mut claims = Vec::new();
    for view in &found.actors {
        let shown = host::lease(context, "actor", &view.row.name, Some(&view.row));
        claims.push(claim("actor", &view.row.name, &view.row.name, shown));
    }
    for view in &found.assignments {
        let shown = assignment::standing(context, ledger, view)?;
        claims.push(claim("attempt", &view.row.id, &view.row.actor, shown));
    }
    for view in found.messages {
        let (id, recipient) = (view.row.id.clone(), view.row.recipient.clone());
        let shown = super::mailbox::standing(context, ledger, view)?;
        claims.push(claim("message", &id, &recipient, shown));
    }
    for view in &found.hosts {
        let shown = host::lease(context, "host", &view.row.name, Some(&view.row));
        claims.push(claim("host", &view.row.name, &view.row.name, shown));
    }
    for view in &found.sessions {
        if let SessionState::Claimed(claimed) = &view.row.state {
            let shown = session::standing(context, ledger, view)?;
            claims.push(claim("session", &view.row.name, &claimed.generation.host, shown));
        }
    }
    Ok(claims)
}

/// What all claims have in common, from what `show` says of this one.
fn claim(kind: &str, name: &Name, holder: &Name, shown: Answer) -> Answer {
    let shown = shown.into_value();
    let mut claim = Answer::plain()
        .with("kind", kind)
        .with("name", name.as_str())
        .with("holder", holder.as_str());
    for field in ["process", "token", "incarnation", "live", "since_ms", "expires_at_ms"] {
        claim = claim.with_some(field, shown.get(field).cloned());
    }
    claim
}
