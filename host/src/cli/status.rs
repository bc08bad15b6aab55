//! `keyfence status`: who holds what, since when, until when.

use clap::Args;
use keyfence::core::Token;
use keyfence::core::attempt::AssignmentState;
use keyfence::core::session::SessionState;
use keyfence::{Ledger, Page};
use serde_json::Value;

use super::exit::{Answered, Failure, Status as Exit};
use super::format::span;
use super::output::Answer;
use super::{Access, Context, FIRST_PAGE, assignment, host, session};

/// How many claims of each kind are listed.
const LISTED_MAX: usize = 100;

/// Show who holds what, since when and until when, and what was refused
#[derive(Debug, Args)]
#[command(after_help = "\
A token shown here is not authority.

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
        let claims = claims(context, &ledger, &status)?;
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
fn claims(context: &Context, ledger: &Ledger, status: &keyfence::Status) -> Result<Vec<Answer>, Failure> {
    let mut claims = Vec::new();
    gather(&mut claims, status.actors_live + status.actors_lapsed, |page| {
        let views = ledger.actors(page)?;
        let claims = views.iter().map(|view| {
            let claimed = view.row.claim().is_some();
            let shown = host::lease(context, "actor", &view.row.name, Some(&view.row));
            Ok(claimed.then(|| claim("actor", view.row.name.as_str(), view.row.name.as_str(), shown)))
        });
        Ok((
            views.last().map(|view| view.number),
            claims.collect::<Result<_, Failure>>()?,
        ))
    })?;
    gather(&mut claims, status.assignments_running, |page| {
        let views = ledger.assignments(page)?;
        let claims = views.iter().map(|view| {
            let AssignmentState::Running(_) = view.row.state else {
                return Ok(None);
            };
            let shown = assignment::standing(context, ledger, view)?;
            Ok(Some(claim(
                "attempt",
                view.row.id.as_str(),
                view.row.actor.as_str(),
                shown,
            )))
        });
        Ok((
            views.last().map(|view| view.number),
            claims.collect::<Result<_, Failure>>()?,
        ))
    })?;
    gather(&mut claims, status.messages_claimed + status.messages_lapsed, |page| {
        let views = ledger.messages(page)?;
        let last = views.last().map(|view| view.number);
        let claims = views.into_iter().map(|view| {
            let claimed = view.row.state_name() == "CLAIMED";
            let (id, recipient) = (view.row.id.clone(), view.row.recipient.clone());
            Ok(if claimed {
                let shown = super::mailbox::standing(context, ledger, view)?;
                Some(claim("message", id.as_str(), recipient.as_str(), shown))
            } else {
                None
            })
        });
        Ok((last, claims.collect::<Result<_, Failure>>()?))
    })?;
    gather(&mut claims, status.hosts_live + status.hosts_lapsed, |page| {
        let views = ledger.hosts(page)?;
        let claims = views.iter().map(|view| {
            let claimed = view.row.claim().is_some();
            let shown = host::lease(context, "host", &view.row.name, Some(&view.row));
            claimed.then(|| claim("host", view.row.name.as_str(), view.row.name.as_str(), shown))
        });
        Ok((views.last().map(|view| view.number), claims.collect()))
    })?;
    gather(&mut claims, status.sessions_claimed, |page| {
        let views = ledger.sessions(page)?;
        let claims = views.iter().map(|view| {
            let SessionState::Claimed(claimed) = &view.row.state else {
                return Ok(None);
            };
            let shown = session::standing(context, ledger, view)?;
            Ok(Some(claim(
                "session",
                view.row.name.as_str(),
                claimed.generation.host.as_str(),
                shown,
            )))
        });
        Ok((
            views.last().map(|view| view.number),
            claims.collect::<Result<_, Failure>>()?,
        ))
    })?;
    Ok(claims)
}

/// The last row's number of a page, and for each of its rows the claim, if it is claimed.
type Looked = (Option<u64>, Vec<Option<Answer>>);

/// Looks through a list until it has found `there_are` claims or as many as are listed.
fn gather(
    claims: &mut Vec<Answer>,
    there_are: u64,
    mut look: impl FnMut(Page) -> Result<Looked, Failure>,
) -> Result<(), Failure> {
    let mut wanted = usize::try_from(there_are).unwrap_or(usize::MAX).min(LISTED_MAX);
    let mut page = FIRST_PAGE;
    while wanted > 0 {
        let (last, found) = look(page)?;
        let Some(last) = last else {
            break;
        };
        page = page.after(last);
        for claim in found.into_iter().flatten().take(wanted) {
            claims.push(claim);
            wanted -= 1;
        }
    }
    Ok(())
}

/// What all claims have in common, from what `show` says of this one.
fn claim(kind: &str, name: &str, holder: &str, shown: Answer) -> Answer {
    let shown = shown.into_value();
    let mut claim = Answer::plain()
        .with("kind", kind)
        .with("name", name)
        .with("holder", holder);
    for field in ["process", "token", "incarnation", "live", "since_ms", "expires_at_ms"] {
        claim = claim.with_some(field, shown.get(field).cloned());
    }
    claim
}
