//! Texts against their digests: what was sent, and what came of it.

use keyfence_core::attempt::{AssignmentState, FinishedBy};
use keyfence_core::mailbox::{Act, Last, MessageState};
use keyfence_core::session::SessionState;
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Digest, Name, TimeMs};
use rusqlite::{Connection, Row};

use super::super::{Progress, Stage};
use crate::error::Error;
use crate::store::check::digest;
use crate::store::step::cells::{Cells, corrupt};
use crate::store::step::message::{self, message_columns};
use crate::store::step::texts::{Content, content};
use crate::store::step::{assignment, session};

const MESSAGES: &str = concat!(
    "SELECT ",
    message_columns!(),
    ", sender, sent_not_before_ms, subject, body, result, reason FROM keyfence_message \
     LEFT JOIN keyfence_body USING (number) LEFT JOIN keyfence_result USING (number) ORDER BY number"
);

pub(super) fn examine(connection: &Connection, progress: &mut dyn FnMut(Progress)) -> Result<String, Error> {
    let mut stage = Stage::begin(progress, "texts", 0);
    let mut texts = 0;
    for (sql, look) in [
        (MESSAGES, message_texts as fn(&Row<'_>) -> _),
        (assignment::WITH_RESULTS, assignment_result),
        (session::WITH_RESULTS, session_result),
    ] {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            look(row)?;
            texts += 1;
            stage.advance(1);
        }
    }
    stage.end();
    Ok(format!("the texts of {texts} rows are those that were given"))
}

fn message_texts(row: &Row<'_>) -> Result<(), Failure<Error>> {
    let message = message::decode(row)?.row;
    let cells = Cells::new(row, Place::Message, 1);
    let last = match &message.state {
        MessageState::Pruned => return Ok(()),
        MessageState::New(open) => open.last.as_ref(),
        MessageState::Claimed(_) => None,
        MessageState::Done(last) => Some(last),
        MessageState::Dead(dead) => dead.last.as_ref(),
    };
    let (sender, not_before): (Option<Name>, Option<TimeMs>) = (cells.opt_name(24)?, cells.opt_time(25)?);
    let (Some(subject), Some(body)) = (cells.opt_text(26)?, cells.opt_blob(27)?) else {
        return Err(cells.damaged("its body is missing"));
    };
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
    Ok(())
}

/// The digest of what the last act told.
fn told(last: &Last, result: Option<&[u8]>, reason: Option<&str>) -> Digest {
    match last.act {
        Act::Completed => digest(result.unwrap_or_default()),
        Act::Retried | Act::DeadLettered => digest(reason.unwrap_or_default().as_bytes()),
        Act::GivenBack => Digest::NONE,
    }
}

fn assignment_result(row: &Row<'_>) -> Result<(), Failure<Error>> {
    let assignment = assignment::decode(row)?.row;
    let cells = Cells::new(row, Place::Assignment, 1);
    match &assignment.state {
        AssignmentState::Finished(finished) => match &finished.by {
            FinishedBy::Attempt(told) => same(*told, cells.opt_blob(16)?, Place::Assignment, &assignment.id),
            FinishedBy::WorkerLost => Ok(()),
        },
        AssignmentState::Created { .. } | AssignmentState::Running(_) | AssignmentState::Pruned => Ok(()),
    }
}

fn session_result(row: &Row<'_>) -> Result<(), Failure<Error>> {
    let session = session::decode(row)?.row;
    let cells = Cells::new(row, Place::Session, 1);
    match &session.state {
        SessionState::Finished(_, told) => same(*told, cells.opt_blob(17)?, Place::Session, &session.name),
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
