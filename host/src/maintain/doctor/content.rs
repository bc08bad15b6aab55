//! Texts against their digests: what was sent, and what came of it.

use keyfence_core::store::{Failure, Place};
use rusqlite::{Connection, Row};

use super::super::{Progress, Stage};
use super::counted;
use crate::call::request;
use crate::error::Error;
use crate::store::step::cells::Cells;
use crate::store::step::{assignment, session};
use crate::view::{self, texts};

pub(super) fn examine(connection: &Connection, progress: &mut dyn FnMut(Progress)) -> Result<String, Error> {
    let mut stage = Stage::begin(progress, "texts", 0);
    let mut count = 0;
    for (sql, look) in [
        (texts::MESSAGES, texts::look_at_message as fn(&Row<'_>) -> _),
        (assignment::WITH_RESULTS, assignment_result),
        (session::WITH_RESULTS, session_result),
    ] {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            look(row)?;
            count += 1;
            stage.advance(1);
        }
    }
    let mut statement = connection.prepare(request::ALL)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if !request::is_kept(row)? {
            return Err(Error::Damaged {
                place: format!("the kept answer of request `{}`", row.get::<_, String>(1)?),
                why: "it is not as it was written".into(),
            });
        }
    }
    view::check_refusals(connection)?;
    stage.end();
    Ok(format!("those of {} are as they were given", counted(count, "row")))
}

fn assignment_result(row: &Row<'_>) -> Result<(), Failure<Error>> {
    let assignment = assignment::decode(row)?.row;
    let result = Cells::new(row, Place::Assignment, 1).opt_blob(16)?;
    texts::check_assignment(&assignment, result)
}

fn session_result(row: &Row<'_>) -> Result<(), Failure<Error>> {
    let session = session::decode(row)?.row;
    let result = Cells::new(row, Place::Session, 1).opt_blob(17)?;
    texts::check_session(&session, result)
}
