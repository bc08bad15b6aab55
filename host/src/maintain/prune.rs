//! Pruning: what was finished long ago is dropped, its name stays, and the history keeps an anchor.

use std::time::Duration;

use keyfence_core::attempt::{Assignment, AssignmentState};
use keyfence_core::event::{Event, EventKind};
use keyfence_core::mailbox::{Message, MessageState};
use keyfence_core::session::{Session, SessionState};
use keyfence_core::store::{Failure, Table as _, Transaction as _};
use keyfence_core::{Decision, Name, TimeMs};
use rusqlite::params;

use super::history::Walk;
use super::{Progress, Stage};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::store::step::cells::corrupt;
use crate::store::step::rows::{Rows, number_of};
use crate::store::step::{SqliteStep, Texts, failed};

/// How many rows or events one transaction drops, so that workers need not wait for it.
const AT_ONCE: u64 = 200;

/// What a prune dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Messages of which only the id is left.
    pub messages: u64,
    /// Assignments of which only the id is left.
    pub assignments: u64,
    /// Sessions of which only the name is left.
    pub sessions: u64,
    /// Events that were dropped.
    pub events: u64,
}

/// Drops what was finished `older_than` ago or earlier, on the ledger's clock: texts and results, and of each row all but
/// its name, which answers as finished for ever. Then drops the events up to that moment, from the oldest on; the hash
/// chain is verified before, and goes on from an anchor.
///
/// It works in many small transactions. Interrupted, it has dropped less; another prune goes on.
///
/// # Errors
/// [`Error::Damaged`]: the history is not as it was written; it is kept. Other [`Error`]s: what was dropped before stays
/// dropped.
pub fn prune(ledger: &Ledger, older_than: Duration, progress: &mut dyn FnMut(Progress)) -> Result<Pruned, Error> {
    let age = u64::try_from(older_than.as_millis()).unwrap_or(u64::MAX);
    let Some(until) = ledger.now().as_ms().checked_sub(age).and_then(TimeMs::new) else {
        return Ok(Pruned::default());
    };
    let pruned = Pruned {
        messages: bury_all::<Message>(ledger, until, progress)?,
        assignments: bury_all::<Assignment>(ledger, until, progress)?,
        sessions: bury_all::<Session>(ledger, until, progress)?,
        events: forget(ledger, until, progress)?,
    };
    if pruned != Pruned::default() {
        record(ledger, &pruned)?;
    }
    Ok(pruned)
}

/// A row that leaves a tombstone.
trait Buried: Rows {
    const STAGE: &'static str;
    /// The next finished rows: by number after ?1, ended at ?2 or before, ?3 at most.
    const FINISHED: &'static str;
    /// What is left of it.
    fn tombstone(&self) -> Self;
    /// Drops what lies in other tables.
    fn drop_texts(step: &SqliteStep<'_>, number: i64) -> rusqlite::Result<()>;
}

impl Buried for Message {
    const STAGE: &'static str = "messages";
    const FINISHED: &'static str = "SELECT number, id FROM keyfence_message \
        WHERE number > ?1 AND state IN (2, 3) AND ended_at_ms <= ?2 ORDER BY number LIMIT ?3";

    fn tombstone(&self) -> Self {
        Self {
            not_before: None,
            state: MessageState::Pruned,
            ..self.clone()
        }
    }

    fn drop_texts(step: &SqliteStep<'_>, number: i64) -> rusqlite::Result<()> {
        for sql in [
            "DELETE FROM keyfence_body WHERE number = ?1",
            "DELETE FROM keyfence_result WHERE number = ?1",
        ] {
            step.connection().prepare_cached(sql)?.execute([number])?;
        }
        Ok(())
    }
}

impl Buried for Assignment {
    const STAGE: &'static str = "assignments";
    const FINISHED: &'static str = "SELECT number, id FROM keyfence_assignment \
        WHERE number > ?1 AND state IN (2, 3, 4) AND ended_at_ms <= ?2 ORDER BY number LIMIT ?3";

    fn tombstone(&self) -> Self {
        Self {
            state: AssignmentState::Pruned,
            ..self.clone()
        }
    }

    /// The row's own result goes with its update.
    fn drop_texts(_step: &SqliteStep<'_>, _number: i64) -> rusqlite::Result<()> {
        Ok(())
    }
}

impl Buried for Session {
    const STAGE: &'static str = "sessions";
    const FINISHED: &'static str = "SELECT number, name FROM keyfence_session \
        WHERE number > ?1 AND state = 2 AND ended_at_ms <= ?2 ORDER BY number LIMIT ?3";

    fn tombstone(&self) -> Self {
        Self {
            name: self.name.clone(),
            state: SessionState::Pruned,
        }
    }

    /// The row's own result goes with its update.
    fn drop_texts(_step: &SqliteStep<'_>, _number: i64) -> rusqlite::Result<()> {
        Ok(())
    }
}

fn bury_all<R: Buried>(ledger: &Ledger, until: TimeMs, progress: &mut dyn FnMut(Progress)) -> Result<u64, Error> {
    let mut stage = Stage::begin(progress, R::STAGE, 0);
    let (mut after, mut buried) = (0, 0);
    loop {
        let batch = granted(ledger.write(ledger.timeout(), |step, _now| {
            let batch = bury::<R>(step, after, until)?;
            Ok(Ok(batch))
        }))?;
        let Some((last, count)) = batch else {
            stage.end();
            return Ok(buried);
        };
        after = last;
        buried += count;
        stage.advance(count);
    }
}

/// Buries the next few rows; returns the number of the last one and how many there were.
fn bury<R: Buried>(step: &mut SqliteStep<'_>, after: i64, until: TimeMs) -> Result<Option<(i64, u64)>, Failure<Error>> {
    let finished: Vec<(i64, String)> = {
        let mut statement = step.connection().prepare_cached(R::FINISHED).map_err(failed)?;
        let rows = statement
            .query_map(params![after, number_of(until.as_ms()), number_of(AT_ONCE)], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)?
    };
    for (number, key) in &finished {
        let name = Name::new(key).map_err(|_| corrupt(R::PLACE, None, "a name breaks the rules of names"))?;
        let row: Option<R> = step.get(&name)?;
        let row = row.ok_or_else(|| corrupt(R::PLACE, Some(key), "its index does not lead to it"))?;
        step.put(Some(&row), &row.tombstone())?;
        R::drop_texts(step, *number).map_err(failed)?;
    }
    Ok(finished.last().map(|(number, _)| (*number, finished.len() as u64)))
}

/// Drops the events up to `until`, from the oldest on.
fn forget(ledger: &Ledger, until: TimeMs, progress: &mut dyn FnMut(Progress)) -> Result<u64, Error> {
    let mut stage = Stage::begin(progress, "history", 0);
    let mut forgotten = 0;
    loop {
        let count = granted(ledger.write(ledger.timeout(), |step, _now| {
            let mut walk = Walk::from_anchor(step.head());
            let count = walk.verify(step.connection(), AT_ONCE, |stored| stored.event.at <= until)?;
            if count > 0 {
                step.move_anchor(walk.seq, walk.head)?;
            }
            Ok(Ok(count))
        }))?;
        forgotten += count;
        stage.advance(count);
        if count < AT_ONCE {
            stage.end();
            return Ok(forgotten);
        }
    }
}

fn record(ledger: &Ledger, pruned: &Pruned) -> Result<(), Error> {
    let note = format!(
        "{} messages, {} assignments, {} sessions, {} events",
        pruned.messages, pruned.assignments, pruned.sessions, pruned.events
    );
    let subject = subject_of(ledger.id())?;
    granted(ledger.write(ledger.timeout(), |step, now| {
        step.with_texts(Texts::noted(&note), |step| {
            step.append(&Event::new(now, EventKind::LedgerPruned, &subject))
        })?;
        Ok(Ok(()))
    }))
}

/// The ledger's own name in its history.
pub(super) fn subject_of(ledger: keyfence_core::LedgerId) -> Result<Name, Error> {
    Name::new(&ledger.to_string()).map_err(|error| Error::Bug {
        what: format!("a ledger's id is no name: {error}"),
    })
}

/// The answer of a step that has nothing to refuse.
pub(super) fn granted<T>(decision: Result<Decision<T>, Failure<Error>>) -> Result<T, Error> {
    decision?.map_err(|refusal| Error::Bug {
        what: format!("maintenance was refused: {refusal}"),
    })
}
