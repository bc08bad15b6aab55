//! Texts against their digests: what was sent, and what came of it.

use keyfence_core::attempt::{Assignment, AssignmentState, FinishedBy};
use keyfence_core::mailbox::{Act, Last, MessageState};
use keyfence_core::session::{Session, SessionState};
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Digest, Name, TimeMs};
use rusqlite::Row;

use crate::error::Error;
use crate::store::check::digest;
use crate::store::step::cells::{Cells, corrupt};
use crate::store::step::message::{self, message_columns};
use crate::store::step::texts::{Content, content};

macro_rules! whole_messages {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            message_columns!(),
            ", sender, sent_not_before_ms, subject, body, result, reason, sent_at_ms FROM keyfence_message \
             LEFT JOIN keyfence_body USING (number) LEFT JOIN keyfence_reason USING (number) ",
            $rest
        )
    };
}

/// All messages, for [`check_message`].
pub(crate) const MESSAGES: &str = whole_messages!("ORDER BY number");
/// One of them, by its id.
pub(super) const MESSAGE: &str = whole_messages!("WHERE id = ?1");

/// The long texts of a message.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) body: Option<Vec<u8>>,
    pub(super) result: Option<Vec<u8>>,
    pub(super) reason: Option<String>,
}

/// Verifies the texts of a message, and returns them.
pub(super) fn check_message(row: &Row<'_>) -> Result<Texts, Failure<Error>> {
    let (body, result, reason) = verified(row)?;
    Ok(Texts {
        body: body.map(<[u8]>::to_vec),
        result: result.map(<[u8]>::to_vec),
        reason: reason.map(str::to_owned),
    })
}

/// Verifies the texts of a message.
pub(crate) fn look_at_message(row: &Row<'_>) -> Result<(), Failure<Error>> {
    verified(row).map(drop)
}

/// Body, result and reason, as they lie in the row.
type Lying<'r> = (Option<&'r [u8]>, Option<&'r [u8]>, Option<&'r str>);

fn verified<'r>(row: &'r Row<'_>) -> Result<Lying<'r>, Failure<Error>> {
    let message = message::decode(row)?.row;
    let cells = Cells::new(row, Place::Message, 1);
    let last = match &message.state {
        MessageState::Pruned => return Ok((None, None, None)),
        MessageState::New(open) => open.last.as_ref(),
        MessageState::Claimed(_) => None,
        MessageState::Done(last) => Some(last),
        MessageState::Dead(dead) => dead.last.as_ref(),
    };
    let (sender, not_before): (Option<Name>, Option<TimeMs>) = (cells.opt_name(24)?, cells.opt_time(25)?);
    let (Some(subject), Some(body)) = (cells.opt_text(26)?, cells.opt_blob(27)?) else {
        return Err(cells.damaged("its body is missing"));
    };
    // No digest covers it; that it is a moment is all that can be told.
    cells.time(30)?;
    let sent = content(&Content {
        sender: sender.as_ref(),
        recipient: &message.recipient,
        subject,
        body,
        priority: message.priority,
        not_before,
        retries_max: message.retries_max,
    });
    if sent != message.content {
        return Err(cells.damaged("what was sent is not what its digest says"));
    }
    let (result, reason) = (cells.opt_blob(28)?, cells.opt_text(29)?);
    if last.is_some_and(|last| told(last, result, reason) != last.digest) {
        return Err(cells.damaged("its result or reason is not what its digest says"));
    }
    Ok((Some(body), result, reason))
}

/// The digest of what the last act told.
fn told(last: &Last, result: Option<&[u8]>, reason: Option<&str>) -> Digest {
    match last.act {
        Act::Completed => digest(result.unwrap_or_default()),
        Act::Retried | Act::DeadLettered => digest(reason.unwrap_or_default().as_bytes()),
        Act::GivenBack => Digest::NONE,
    }
}

/// Verifies the result of an assignment.
pub(crate) fn check_assignment(assignment: &Assignment, result: Option<&[u8]>) -> Result<(), Failure<Error>> {
    match &assignment.state {
        AssignmentState::Finished(finished) => match &finished.by {
            FinishedBy::Attempt(told) => same(*told, result, Place::Assignment, &assignment.id),
            FinishedBy::WorkerLost => Ok(()),
        },
        AssignmentState::Created { .. } | AssignmentState::Running(_) | AssignmentState::Pruned => Ok(()),
    }
}

/// Verifies the result of a session.
pub(crate) fn check_session(session: &Session, result: Option<&[u8]>) -> Result<(), Failure<Error>> {
    match &session.state {
        SessionState::Finished(_, told) => same(*told, result, Place::Session, &session.name),
        SessionState::Claimed(_) | SessionState::Free { .. } | SessionState::Pruned => Ok(()),
    }
}

fn same(told: Digest, result: Option<&[u8]>, place: Place, key: &Name) -> Result<(), Failure<Error>> {
    if digest(result.unwrap_or_default()) == told {
        Ok(())
    } else {
        Err(corrupt(
            place,
            Some(key.as_str()),
            "its result is not what its digest says",
        ))
    }
}
