//! The doctor: looks at everything a ledger consists of, writes nothing, and says what to do.
//!
//! [`soundness`] is the part that looks for damage; a restore looks at its backup with it. [`rows`] compares the rows with
//! their check values and the history.

mod content;
mod rows;

use std::path::Path;

use keyfence_core::store::{Failure, Place};
use rusqlite::{Connection, params};

use super::history::Walk;
use super::{Progress, Stage};
use crate::error::Error;
use crate::ledger::Options;
use crate::store::connection::{Hooks, Owner, Source, check_sqlite_version};
use crate::store::location::{self, Standing};
use crate::store::lock::Deadline;
use crate::store::schema::{MIGRATIONS, SCHEMA};
use crate::store::step::cells::corrupt;
use crate::store::step::head::Head;
use crate::store::step::rows::number_of;
use crate::view::expiries_too_far;

/// How many events are verified at a time.
const EVENTS_AT_ONCE: u64 = 10_000;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Sound,
    /// To be known or changed.
    Warning,
    /// It could not be looked at, or the ledger cannot be used as it lies; this says nothing about damage.
    Error,
    /// The ledger is damaged.
    Damage,
}

/// One thing that the doctor looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for what was looked at.
    pub topic: &'static str,
    /// The stable name of the error that it is, where it is one: what every other call on this ledger answers with.
    pub error: Option<&'static str>,
    /// What was found.
    pub what: String,
    /// What to do; empty where nothing has to be done.
    pub next: String,
}

/// What the doctor found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of looking.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The worst finding.
    #[must_use]
    pub fn worst(&self) -> Severity {
        self.findings
            .iter()
            .map(|finding| finding.severity)
            .max()
            .unwrap_or(Severity::Sound)
    }

    fn sound(&mut self, topic: &'static str, what: impl Into<String>) {
        self.findings.push(Finding {
            severity: Severity::Sound,
            topic,
            error: None,
            what: what.into(),
            next: String::new(),
        });
    }

    fn warn(&mut self, topic: &'static str, what: impl Into<String>, next: impl Into<String>) {
        self.findings.push(Finding {
            severity: Severity::Warning,
            topic,
            error: None,
            what: what.into(),
            next: next.into(),
        });
    }

    fn fail(&mut self, topic: &'static str, error: &Error) {
        // It is the doctor who is asked.
        let (severity, next) = if matches!(error, Error::Damaged { .. }) {
            (Severity::Damage, "restore a backup: `keyfence restore`".into())
        } else if matches!(error, Error::Sqlite(_)) {
            (Severity::Error, "look at what SQLite says, then ask again".into())
        } else {
            (Severity::Error, error.next())
        };
        self.findings.push(Finding {
            severity,
            topic,
            error: Some(error.name()),
            what: error.to_string(),
            next,
        });
    }
}

/// Looks for damage: where the file lies, SQLite and its settings, schema, integrity, counter, history and its hash chain,
/// rows against both, texts against their digests. It writes nothing, looks at one snapshot while others write, and
/// works in places that [`Ledger::open`](crate::Ledger::open) refuses as unsafe. A file that cannot be opened as a ledger
/// is a finding with the same error that every call answers with.
///
/// A ledger of a million messages and two million events takes tens of seconds, and some 20 MiB of memory.
#[must_use]
pub fn doctor(ledger: &Path, options: &Options, progress: &mut dyn FnMut(Progress)) -> Report {
    examined(&Source::new(ledger, Owner::Keyfence, true), options, progress)
}

/// The same for a ledger that is embedded in a file of the caller's own ([`Ledger::embedded`](crate::Ledger::embedded)).
#[must_use]
pub fn doctor_embedded(file: &Path, options: &Options, progress: &mut dyn FnMut(Progress)) -> Report {
    examined(&Source::new(file, Owner::Embedding, true), options, progress)
}

fn examined(source: &Source, options: &Options, progress: &mut dyn FnMut(Progress)) -> Report {
    let mut report = Report::default();
    look_at_location(&source.path, &mut report);
    match check_sqlite_version(rusqlite::version_number()) {
        Ok(()) => report.sound("sqlite", format!("SQLite {}", rusqlite::version())),
        Err(error) => report.fail("sqlite", &error),
    }
    if let Err(error) = look_inside(source, options, progress, &mut report) {
        report.fail("ledger", &error);
    }
    report
}

fn look_at_location(ledger: &Path, report: &mut Report) {
    match location::concerns(ledger) {
        Ok(concerns) if concerns.is_empty() => report.sound("location", ledger.display().to_string()),
        Ok(concerns) => {
            for (path, why) in concerns {
                let error = Error::UnsafeLocation { path, why };
                report.warn("location", error.to_string(), error.next());
            }
        }
        Err(error) => report.fail("location", &error),
    }
}

/// An error ends the look; damage that is found is reported.
fn look_inside(
    source: &Source,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
    report: &mut Report,
) -> Result<(), Error> {
    if location::standing(&source.path)? == Standing::Nothing {
        return Err(Error::LedgerMissing {
            path: source.path.clone(),
        });
    }
    let hooks = Hooks::default();
    hooks.patience.set(Some(Deadline::after(options.timeout)));
    let reader = source.connect_to_read(&hooks)?;
    source.check_is_ledger(&reader.connection)?;
    reader.read(|connection| {
        match location::bar_to_writing(&source.path) {
            // It may be read as it lies, and is then not in the mode that it is written in.
            Some(bar) => report.warn("settings", bar.to_string(), bar.next()),
            None => look_at_settings(connection, report)?,
        }
        look_at_schema(connection, report)?;
        hooks.patience.set(None);
        for (topic, found) in examine(connection, source.owner, progress) {
            match found {
                Ok(what) => report.sound(topic, what),
                Err(error) => report.fail(topic, &error),
            }
        }
        if let Ok(head) = Head::read(connection) {
            let far = expiries_too_far(connection, &head, options.clock.now())?;
            if far > 0 {
                report.warn(
                    "clock",
                    format!("{far} claims expire later than any lease that was asked for allows: a clock was set back"),
                    "check the clocks; revoke these claims if their holders are gone",
                );
            }
        }
        Ok(())
    })
}

fn look_at_settings(connection: &Connection, report: &mut Report) -> Result<(), Error> {
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode.eq_ignore_ascii_case("wal") {
        report.sound(
            "settings",
            "journal mode WAL; every writer of keyfence sets synchronous=FULL and verifies it",
        );
    } else {
        report.warn(
            "settings",
            format!("journal mode {mode} instead of WAL"),
            "the next call that writes sets it; if it does not stay, look for a program that changes it",
        );
    }
    Ok(())
}

fn look_at_schema(connection: &Connection, report: &mut Report) -> Result<(), Error> {
    let schema: i64 = connection.query_row("SELECT schema FROM keyfence_ledger", [], |row| row.get(0))?;
    if schema < SCHEMA {
        report.warn(
            "schema",
            format!("schema {schema} is older than {SCHEMA}"),
            "the next call that writes migrates it",
        );
    }
    Ok(())
}

/// Looks for damage and stops at the first.
pub(super) fn soundness(connection: &Connection, progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
    examine(connection, Owner::Keyfence, progress)
        .into_iter()
        .try_for_each(|(_, found)| found.map(drop))
}

/// What each examination found.
type Examined = Vec<(&'static str, Result<String, Error>)>;

/// All examinations that look for damage, in one snapshot.
fn examine(connection: &Connection, owner: Owner, progress: &mut dyn FnMut(Progress)) -> Examined {
    vec![
        ("schema", schema(connection, owner)),
        ("integrity", integrity(connection, progress)),
        ("counter", counter(connection)),
        ("history", history(connection, progress)),
        ("rows", rows::examine(connection, progress)),
        ("texts", content::examine(connection, progress)),
    ]
}

/// Whether the schema's number is the same wherever it stands, and tables, indexes and triggers are those of keyfence.
fn schema(connection: &Connection, owner: Owner) -> Result<String, Error> {
    let schema: i64 = connection.query_row("SELECT schema FROM keyfence_ledger", [], |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if owner == Owner::Keyfence && version != schema {
        return Err(Error::Damaged {
            place: "the schema's number".into(),
            why: format!("user_version says {version}, the ledger's row {schema}"),
        });
    }
    let model = Connection::open_in_memory()?;
    let applied = usize::try_from(schema).unwrap_or_default();
    for migration in MIGRATIONS.iter().take(applied) {
        model.execute_batch(migration)?;
    }
    let (wanted, found) = (objects(&model)?, objects(connection)?);
    for object in &wanted {
        if !found.contains(object) {
            return Err(Error::Damaged {
                place: format!("the schema: {} `{}`", object.0, object.1),
                why: "it is missing or was changed".into(),
            });
        }
    }
    // Tables of the caller's own do not begin with the prefix; triggers on ours would.
    for object in &found {
        if !wanted.contains(object) {
            return Err(Error::Damaged {
                place: format!("the schema: {} `{}`", object.0, object.1),
                why: "it is not keyfence's".into(),
            });
        }
    }
    Ok(format!("schema {schema}, {} objects as they should be", wanted.len()))
}

/// Type, name and SQL of everything that belongs to keyfence's tables.
fn objects(connection: &Connection) -> Result<Vec<(String, String, Option<String>)>, Error> {
    let mut statement = connection.prepare(
        "SELECT type, name, sql FROM sqlite_schema WHERE tbl_name LIKE 'keyfence\\_%' ESCAPE '\\' ORDER BY name",
    )?;
    let objects = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(objects.collect::<Result<_, _>>()?)
}

/// SQLite's own examination: pages, indexes, constraints, references.
fn integrity(connection: &Connection, progress: &mut dyn FnMut(Progress)) -> Result<String, Error> {
    let stage = Stage::begin(progress, "integrity", 0);
    let first: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    stage.end();
    if first != "ok" {
        return Err(Error::Damaged {
            place: "the database file".into(),
            why: first,
        });
    }
    let orphan: Option<String> = {
        let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
        let mut rows = statement.query([])?;
        match rows.next()? {
            Some(row) => Some(row.get(0)?),
            None => None,
        }
    };
    match orphan {
        Some(table) if table.starts_with("keyfence_") => Err(Error::Damaged {
            place: table,
            why: "a row refers to a message that is not there".into(),
        }),
        Some(_) | None => Ok("SQLite finds nothing wrong".into()),
    }
}

/// Whether the counter lies above every token that is anywhere in the ledger.
fn counter(connection: &Connection) -> Result<String, Error> {
    const TOKENS: &str = "SELECT max(token) FROM (
        SELECT max(max(coalesce(token, 0), coalesce(last_token, 0))) AS token FROM keyfence_actor
        UNION ALL SELECT max(max(coalesce(token, 0), coalesce(last_token, 0))) FROM keyfence_host
        UNION ALL SELECT max(max(coalesce(token, 0), coalesce(last_token, 0))) FROM keyfence_assignment
        UNION ALL SELECT max(max(coalesce(token, 0), coalesce(last_token, 0))) FROM keyfence_message
        UNION ALL SELECT max(max(coalesce(token, 0), coalesce(last_token, 0))) FROM keyfence_session
        UNION ALL SELECT max(max(coalesce(token, 0), coalesce(parent_token, 0))) FROM keyfence_event)";
    let head = Head::read(connection)?;
    let greatest: Option<i64> = connection.query_row(TOKENS, params![], |row| row.get(0))?;
    let last = head.last_token.map_or(0, |token| number_of(token.get()));
    if greatest.unwrap_or_default() > last {
        let failure: Failure<Error> = corrupt(Place::Counter, None, "it lies below a token that was handed out");
        return Err(failure.into());
    }
    Ok(format!("the counter stands at {last}, above every token"))
}

fn history(connection: &Connection, progress: &mut dyn FnMut(Progress)) -> Result<String, Error> {
    let head = Head::read(connection)?;
    let kept = head.event_seq.saturating_sub(head.anchor_seq);
    let mut stage = Stage::begin(progress, "history", kept);
    let mut walk = Walk::from_anchor(&head);
    loop {
        let walked = walk.verify(connection, EVENTS_AT_ONCE, |_| true)?;
        stage.advance(walked);
        if walked < EVENTS_AT_ONCE {
            break;
        }
    }
    stage.end();
    walk.check_end(&head)?;
    let events = counted(kept, "event");
    Ok(match head.anchor_seq {
        0 => format!("{events}, and the hash chain is whole"),
        pruned => format!("{events} after {pruned} that were pruned, and the hash chain is whole"),
    })
}

/// A number and what it counts, one of them or several.
pub(super) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
