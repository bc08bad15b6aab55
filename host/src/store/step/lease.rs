//! The rows of actor and host leases.

use core::marker::PhantomData;

use keyfence_core::actor::Actor;
use keyfence_core::host::Host;
use keyfence_core::lease::{Held, Kind, Lease, LeaseState};
use keyfence_core::store::Failure;
use keyfence_core::{Expiry, Name, TimeMs};
use rusqlite::{Row, params};

use super::cells::Cells;
use super::rows::{Cache, Rows, Stored, number_of, one_changed, query_one, stored_expiry};
use super::{SqliteStep, failed};
use crate::error::Error;
use crate::store::check::Check;

/// The statements of one of the two tables.
pub(crate) struct Sql {
    table: &'static str,
    pub(crate) select: &'static str,
    insert: &'static str,
    update: &'static str,
    /// A page of the table.
    pub(crate) page: &'static str,
    /// All rows.
    pub(crate) all: &'static str,
}

macro_rules! sql {
    ($table:literal) => {
        Sql {
            table: $table,
            select: concat!(
                "SELECT number, name, process, token, since_ms, expires_at_ms, last_process, last_token, row_check FROM ",
                $table,
                " WHERE name = ?1"
            ),
            insert: concat!(
                "INSERT INTO ",
                $table,
                " (name, process, token, since_ms, expires_at_ms, last_process, last_token, row_check)",
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
            ),
            update: concat!(
                "UPDATE ",
                $table,
                " SET process = ?2, token = ?3, since_ms = ?4, expires_at_ms = ?5, last_process = ?6, last_token = ?7,",
                " row_check = ?8 WHERE number = ?1 AND token IS ?9 AND expires_at_ms IS ?10 AND row_check = ?11"
            ),
            page: concat!(
                "SELECT number, name, process, token, since_ms, expires_at_ms, last_process, last_token, row_check FROM ",
                $table,
                " WHERE number > ?1 ORDER BY number LIMIT ?2"
            ),
            all: concat!(
                "SELECT number, name, process, token, since_ms, expires_at_ms, last_process, last_token, row_check FROM ",
                $table,
                " ORDER BY number"
            ),
        }
    };
}

/// A kind of lease that has a table.
pub(crate) trait Tabled: Kind {
    const SQL: Sql;
    fn cache<'s>(step: &'s mut SqliteStep<'_>) -> &'s mut Cache<Lease<Self>>;
}

impl Tabled for Actor {
    const SQL: Sql = sql!("keyfence_actor");
    fn cache<'s>(step: &'s mut SqliteStep<'_>) -> &'s mut Cache<Lease<Self>> {
        &mut step.caches.actors
    }
}

impl Tabled for Host {
    const SQL: Sql = sql!("keyfence_host");
    fn cache<'s>(step: &'s mut SqliteStep<'_>) -> &'s mut Cache<Lease<Self>> {
        &mut step.caches.hosts
    }
}

/// The row as its columns have it.
struct Columns<'r> {
    process: Option<&'r [u8; 16]>,
    token: Option<i64>,
    since: Option<i64>,
    expiry: Option<i64>,
    last_process: Option<&'r [u8; 16]>,
    last_token: Option<i64>,
}

fn columns<K: Kind>(lease: &Lease<K>) -> Result<Columns<'_>, Failure<Error>> {
    Ok(match &lease.state {
        LeaseState::Held(held) => Columns {
            process: Some(held.process.as_bytes()),
            token: Some(number_of(held.token.get())),
            since: Some(number_of(held.since.as_ms())),
            expiry: Some(stored_expiry(held.expiry)?),
            last_process: None,
            last_token: None,
        },
        LeaseState::Free { released } => Columns {
            process: None,
            token: None,
            since: None,
            expiry: None,
            last_process: released.as_ref().map(|(process, _)| process.as_bytes()),
            last_token: released.map(|(_, token)| number_of(token.get())),
        },
    })
}

/// Reads a row of either table.
pub(crate) fn decode<K: Tabled>(row: &Row<'_>) -> Result<Stored<Lease<K>>, Failure<Error>> {
    let cells = Cells::new(row, K::PLACE, 1);
    let state = match cells.opt_token(3)? {
        Some(token) => LeaseState::Held(Held {
            process: cells.with(cells.opt_process(2))?,
            token,
            since: cells.time(4)?,
            expiry: cells.expiry(5)?,
        }),
        None => LeaseState::Free {
            released: match cells.opt_token(7)? {
                Some(token) => Some((cells.with(cells.opt_process(6))?, token)),
                None => None,
            },
        },
    };
    let lease = Lease {
        name: cells.name(1)?,
        state,
        kind: PhantomData,
    };
    let check = cells.integer(8)?;
    cells.verify(check, lease.check(None))?;
    Ok(Stored {
        number: cells.integer(0)?,
        check,
        ended_at: None,
        row: lease,
    })
}

impl<K: Tabled> Rows for Lease<K> {
    fn cache<'s>(step: &'s mut SqliteStep<'_>) -> &'s mut Cache<Self> {
        K::cache(step)
    }

    fn expiry(&self) -> Option<Expiry> {
        self.claim().map(|held| held.expiry)
    }

    fn ends(&self) -> bool {
        false
    }

    fn check(&self, _ended_at: Option<TimeMs>) -> i64 {
        let mut check = Check::new(K::SQL.table);
        check.text(self.name.as_str());
        match &self.state {
            LeaseState::Held(held) => {
                check.word(1);
                check.bytes(held.process.as_bytes());
                check.word(held.token.get());
                check.word(held.since.as_ms());
                check.opt(held.expiry.time(), |check, time| check.word(time.as_ms()));
            }
            LeaseState::Free { released } => {
                check.word(0);
                check.opt(released.as_ref(), |check, (process, token)| {
                    check.bytes(process.as_bytes());
                    check.word(token.get());
                });
            }
        }
        check.finish()
    }

    fn load(step: &mut SqliteStep<'_>, key: &Name) -> Result<Option<Stored<Self>>, Failure<Error>> {
        query_one(step.connection, K::SQL.select, params![key.as_str()], decode::<K>)
    }

    fn insert(&self, step: &mut SqliteStep<'_>, check: i64, _ended_at: Option<TimeMs>) -> Result<i64, Failure<Error>> {
        let c = columns(self)?;
        let mut statement = step.connection.prepare_cached(K::SQL.insert).map_err(failed)?;
        statement
            .insert(params![
                self.name.as_str(),
                c.process,
                c.token,
                c.since,
                c.expiry,
                c.last_process,
                c.last_token,
                check
            ])
            .map_err(failed)
    }

    fn update(
        &self,
        step: &mut SqliteStep<'_>,
        before: &Stored<Self>,
        check: i64,
        _ended_at: Option<TimeMs>,
    ) -> Result<(), Failure<Error>> {
        let c = columns(self)?;
        let b = columns(&before.row)?;
        let mut statement = step.connection.prepare_cached(K::SQL.update).map_err(failed)?;
        let changed = statement
            .execute(params![
                before.number,
                c.process,
                c.token,
                c.since,
                c.expiry,
                c.last_process,
                c.last_token,
                check,
                b.token,
                b.expiry,
                before.check
            ])
            .map_err(failed)?;
        one_changed(changed, K::PLACE, &self.name)
    }
}
