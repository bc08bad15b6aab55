//! The peers: what an experienced user of rusqlite would write by hand, as short as it gets and as fast as it gets.
//!
//! Settings are those of the library: WAL, FULL, the same page size and checkpoints. Statements are prepared once.
//! Integer keys, partial indexes that hold only what a claim looks for, and no column that the work does not need:
//! nothing in here is slow on purpose.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::queue::{BODY, CLAIM_MS, Queue, RESULT};

/// Which of the two bare forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One claim statement, one complete statement.
    Least,
    /// The same with a minted token, a lease index and an event row.
    Correct,
}

/// Pages in the log from which on a commit copies them into the file.
pub const CHECKPOINT_PAGES: i64 = 2_000;
const WAL_BYTES_KEPT: i64 = 16 * 1024 * 1024;
const CACHE_KIB: i64 = -8_000;

const LEAST: &str = "
    CREATE TABLE message(
        id INTEGER PRIMARY KEY, body BLOB NOT NULL, state INTEGER NOT NULL DEFAULT 0, owner TEXT, result BLOB) STRICT;
    CREATE INDEX ready ON message(id) WHERE state = 0;
    CREATE TABLE actor(name TEXT PRIMARY KEY, process BLOB NOT NULL, expires_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
";

const CORRECT: &str = "
    CREATE TABLE message(
        id INTEGER PRIMARY KEY, body BLOB NOT NULL, state INTEGER NOT NULL DEFAULT 0, owner TEXT, result BLOB,
        token INTEGER, expires_at INTEGER) STRICT;
    CREATE INDEX ready ON message(id) WHERE state = 0;
    CREATE INDEX lease ON message(expires_at) WHERE state = 1;
    CREATE TABLE counter(only INTEGER PRIMARY KEY CHECK(only = 1), last INTEGER NOT NULL) STRICT;
    INSERT INTO counter VALUES(1, 0);
    CREATE TABLE event(
        seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind INTEGER NOT NULL, message INTEGER NOT NULL,
        owner TEXT NOT NULL, token INTEGER NOT NULL, expires_at INTEGER) STRICT;
    CREATE TABLE actor(name TEXT PRIMARY KEY, process BLOB NOT NULL, expires_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
";

const LEAST_CLAIM: &str = "
    UPDATE message SET state = 1, owner = ?1
    WHERE id = (SELECT id FROM message WHERE state = 0 ORDER BY id LIMIT 1)
    RETURNING id, body";
const LEAST_COMPLETE: &str = "UPDATE message SET state = 2, result = ?2 WHERE id = ?1 AND state = 1";

const MINT: &str = "UPDATE counter SET last = last + 1 RETURNING last";
const CORRECT_CLAIM: &str = "
    UPDATE message SET state = 1, owner = ?1, token = ?2, expires_at = ?3
    WHERE id = coalesce(
        (SELECT id FROM message WHERE state = 1 AND expires_at <= ?4 ORDER BY expires_at LIMIT 1),
        (SELECT id FROM message WHERE state = 0 ORDER BY id LIMIT 1))
    RETURNING id, body";
const CORRECT_COMPLETE: &str =
    "UPDATE message SET state = 2, result = ?2 WHERE id = ?1 AND state = 1 AND owner = ?3 AND token = ?4";
const EVENT: &str = "INSERT INTO event(at, kind, message, owner, token, expires_at) VALUES(?1, ?2, ?3, ?4, ?5, ?6)";
const EVENT_CLAIMED: i64 = 1;
const EVENT_COMPLETED: i64 = 2;

const UPSERT: &str = "
    INSERT INTO actor(name, process, expires_at) VALUES(?1, ?2, ?3)
    ON CONFLICT(name) DO UPDATE SET process = excluded.process, expires_at = excluded.expires_at WHERE expires_at <= ?4";
const DELETE: &str = "DELETE FROM actor WHERE name = ?1 AND process = ?2";

const OWNER: &str = "operator-course";
const PROCESS: [u8; 16] = [7; 16];

/// A bare queue.
#[derive(Debug)]
pub struct Bare {
    connection: Connection,
    form: Form,
    held: Vec<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: i64,
    token: i64,
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl Bare {
    /// Opens the file, creating it when it is not there.
    ///
    /// # Errors
    /// When SQLite cannot.
    pub fn open(path: &Path, form: Form) -> Result<Self> {
        let create = !path.exists();
        let connection = Connection::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        connection.set_prepared_statement_cache_capacity(32);
        // The stock way to wait, which is what a user gets.
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // The library's figures: fewer checkpoints and a larger cache than SQLite's defaults, which is good for both.
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
        connection.pragma_update(None, "cache_size", CACHE_KIB)?;
        if create {
            connection.execute_batch(match form {
                Form::Least => LEAST,
                Form::Correct => CORRECT,
            })?;
        }
        Ok(Self {
            connection,
            form,
            held: Vec::new(),
        })
    }

    fn statement(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>> {
        Ok(self.connection.prepare_cached(sql)?)
    }

    /// Runs `body` in BEGIN IMMEDIATE ... COMMIT, whose error is seen.
    fn immediately<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.statement("BEGIN IMMEDIATE")?.execute([])?;
        match body(self) {
            Ok(value) => {
                self.statement("COMMIT")?.execute([])?;
                Ok(value)
            }
            Err(error) => {
                self.statement("ROLLBACK")?.execute([])?;
                Err(error)
            }
        }
    }

    fn claim_one(&mut self) -> Result<bool> {
        let row = |row: &rusqlite::Row<'_>| {
            // A worker wants the body; so it is read here as in the library.
            let body: Vec<u8> = row.get(1)?;
            Ok((row.get(0)?, std::hint::black_box(body).len()))
        };
        let claimed = match self.form {
            Form::Least => self
                .statement(LEAST_CLAIM)?
                .query_row([OWNER], row)
                .optional()?
                .map(|(id, _)| Held { id, token: 0 }),
            Form::Correct => {
                let now = now_ms();
                let expires_at = now + CLAIM_MS as i64;
                let token: i64 = self.statement(MINT)?.query_row([], |row| row.get(0))?;
                let claimed = self
                    .statement(CORRECT_CLAIM)?
                    .query_row(params![OWNER, token, expires_at, now], row)
                    .optional()?
                    .map(|(id, _)| Held { id, token });
                if let Some(held) = claimed {
                    self.statement(EVENT)?
                        .execute(params![now, EVENT_CLAIMED, held.id, OWNER, token, expires_at])?;
                }
                claimed
            }
        };
        self.held.extend(claimed);
        Ok(claimed.is_some())
    }

    fn claim_up_to(&mut self, count: usize) -> Result<usize> {
        let mut claimed = 0;
        while claimed < count && self.claim_one()? {
            claimed += 1;
        }
        Ok(claimed)
    }

    fn complete_one(&mut self, held: Held) -> Result<()> {
        let changed = match self.form {
            Form::Least => self.statement(LEAST_COMPLETE)?.execute(params![held.id, RESULT])?,
            Form::Correct => {
                let changed = self
                    .statement(CORRECT_COMPLETE)?
                    .execute(params![held.id, RESULT, OWNER, held.token])?;
                self.statement(EVENT)?.execute(params![
                    now_ms(),
                    EVENT_COMPLETED,
                    held.id,
                    OWNER,
                    held.token,
                    None::<i64>
                ])?;
                changed
            }
        };
        ensure!(
            changed == 1,
            "message {} is not claimed by token {}",
            held.id,
            held.token
        );
        Ok(())
    }

    fn complete_held(&mut self) -> Result<()> {
        while let Some(held) = self.held.pop() {
            self.complete_one(held)?;
        }
        Ok(())
    }
}

impl Queue for Bare {
    fn send(&mut self, count: usize) -> Result<()> {
        self.immediately(|this| {
            let mut insert = this.statement("INSERT INTO message(body) VALUES(?1)")?;
            for _ in 0..count {
                insert.execute([BODY])?;
            }
            Ok(())
        })
    }

    fn claim(&mut self, count: usize) -> Result<usize> {
        self.immediately(|this| this.claim_up_to(count))
    }

    fn complete(&mut self) -> Result<()> {
        self.immediately(Self::complete_held)
    }

    fn complete_and_claim(&mut self, count: usize) -> Result<usize> {
        self.immediately(|this| {
            this.complete_held()?;
            this.claim_up_to(count)
        })
    }

    fn acquire_and_release(&mut self) -> Result<()> {
        self.immediately(|this| {
            let now = now_ms();
            let changed = this
                .statement(UPSERT)?
                .execute(params![OWNER, PROCESS, now + CLAIM_MS as i64, now])?;
            ensure!(changed == 1, "somebody else has it");
            Ok(())
        })?;
        self.immediately(|this| {
            let changed = this.statement(DELETE)?.execute(params![OWNER, PROCESS])?;
            ensure!(changed == 1, "somebody else took it");
            Ok(())
        })
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(form: Form, sql: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let bare = Bare::open(&folder.path().join("bare.db"), form).unwrap();
        let mut statement = bare.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        // Parameters that are not bound are NULL, which a plan does not mind.
        let lines = statement.raw_query().mapped(|row| row.get::<_, String>(3));
        lines.map(Result::unwrap).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn no_statement_of_a_peer_walks_a_table_or_sorts() {
        for (form, sql) in [
            (Form::Least, LEAST_CLAIM),
            (Form::Least, LEAST_COMPLETE),
            (Form::Correct, CORRECT_CLAIM),
            (Form::Correct, CORRECT_COMPLETE),
        ] {
            let plan = plan(form, sql);
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
            for line in plan.lines().filter(|line| line.starts_with("SCAN")) {
                assert!(line.contains("INDEX ready"), "{line}");
            }
        }
    }

    #[test]
    fn a_peer_hands_every_message_out_once_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for form in [Form::Least, Form::Correct] {
            let mut bare = Bare::open(&folder.path().join(format!("{form:?}")), form).unwrap();
            bare.send(4).unwrap();
            assert_eq!(bare.claim(1).unwrap(), 1);
            assert_eq!(bare.held[0].id, 1);
            assert_eq!(bare.complete_and_claim(1).unwrap(), 1);
            assert_eq!(bare.held[0].id, 2);
            bare.complete().unwrap();
            assert_eq!(bare.claim(10).unwrap(), 2);
            bare.complete().unwrap();
            assert_eq!(bare.claim(1).unwrap(), 0);
            bare.acquire_and_release().unwrap();
            let done: i64 = bare
                .connection
                .query_row(
                    "SELECT count(*) FROM message WHERE state = 2 AND result = ?1",
                    [RESULT],
                    |row| row.get(0),
                )
                .unwrap();
            assert_eq!(done, 4);
        }
    }

    #[test]
    fn the_correct_form_takes_a_lapsed_claim_over_and_refuses_the_stale_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut bare = Bare::open(&folder.path().join("bare.db"), Form::Correct).unwrap();
        bare.send(1).unwrap();
        bare.claim(1).unwrap();
        let stale = bare.held.pop().unwrap();
        bare.connection
            .execute("UPDATE message SET expires_at = 1", [])
            .unwrap();
        assert_eq!(bare.claim(1).unwrap(), 1);
        assert!(bare.held[0].token > stale.token);
        assert!(bare.immediately(|this| this.complete_one(stale)).is_err());
        bare.complete().unwrap();
    }
}
