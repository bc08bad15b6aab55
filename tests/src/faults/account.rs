//! Whether a ledger's history agrees with what the caller of a life was told.

use keyfence::{EventRecord, Ledger, Severity};
use keyfence_core::event::EventKind;

use super::life::{Effect, Told, Verb};
use crate::storm::history::Checker;

/// Which acts of unknown outcome turn out to have happened; in the order of the acts.
pub type Happened = Vec<bool>;

/// Compares the history with what was told: every committed act is there, in order and under its tokens (L1); nothing of
/// an act that was not done is (L2); an act of unknown outcome is there as a whole or not at all (L3).
///
/// # Errors
/// What does not agree.
pub fn compare(history: &[EventRecord], told: &[(Verb, Told)]) -> Result<Happened, String> {
    let mut happened = Vec::new();
    agree(history, told, 0, &mut happened)?;
    Ok(happened)
}

/// Compares from act `number` on. An act of unknown outcome may have left an event that a later, committed one left as
/// well; so both readings of it are tried.
fn agree(history: &[EventRecord], told: &[(Verb, Told)], number: usize, happened: &mut Happened) -> Result<(), String> {
    match told.get(number) {
        None => match first(history) {
            None => Ok(()),
            Some(event) => Err(format!("nobody was told of {event:?}")),
        },
        Some((_, Told::NotDone(_))) => agree(history, told, number + 1, happened),
        Some((verb, Told::Committed(effects))) => {
            if !starts_with(history, effects) {
                let next = first(history);
                return Err(format!(
                    "act {number}, {verb:?}, told {effects:?}; the history goes on {next:?}"
                ));
            }
            agree(&history[effects.len()..], told, number + 1, happened)
        }
        Some((_, Told::Unknown(possible, _))) => {
            let before = happened.len();
            happened.push(true);
            if starts_with(history, possible) && agree(&history[possible.len()..], told, number + 1, happened).is_ok() {
                return Ok(());
            }
            happened.truncate(before);
            happened.push(false);
            agree(history, told, number + 1, happened)
        }
    }
}

fn first(rest: &[EventRecord]) -> Option<&EventRecord> {
    rest.first()
}

fn starts_with(rest: &[EventRecord], effects: &[Effect]) -> bool {
    rest.len() >= effects.len()
        && effects.iter().zip(rest).all(|(effect, record)| {
            // Which message a claim of unknown outcome got is not known either.
            let any_subject = effect.token.is_none() && effect.kind == EventKind::MessageClaimed;
            effect.kind == record.event.kind
                && (any_subject || effect.subject == record.event.subject)
                && (effect.token.is_none() || effect.token == record.event.token)
        })
}

/// Reads the whole history of a ledger and lets the checker look at it.
///
/// # Errors
/// What is wrong.
pub fn examine(ledger: &Ledger, retries_max: u16) -> Result<Vec<EventRecord>, String> {
    let history = ledger.events(0, 10_000).map_err(|error| error.to_string())?;
    let mut checker = Checker::new(move |_| retries_max);
    for record in &history {
        checker.feed(record.seq, &record.event);
    }
    checker.check_counter(ledger.counter().map_err(|error| error.to_string())?);
    match checker.violations().first() {
        Some(violation) => Err(violation.to_string()),
        None => Ok(history),
    }
}

/// Lets the doctor look at the file, the rows and the chain.
///
/// # Errors
/// The damage that was found.
pub fn diagnose(ledger: &Ledger) -> Result<(), String> {
    let report = keyfence::doctor(ledger.path(), &keyfence::Options::default(), &mut |_| {});
    let damage = report
        .findings
        .iter()
        .find(|finding| finding.severity >= Severity::Error);
    match damage {
        Some(finding) => Err(format!("doctor: {}: {}", finding.topic, finding.what)),
        None => Ok(()),
    }
}
