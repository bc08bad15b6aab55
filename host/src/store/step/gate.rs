//! The rows of gates.

use keyfence_core::gate::{Binding, ClaimKind, Gate};
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Expiry, Name, TimeMs};
use rusqlite::{Row, params};

use super::cells::Cells;
use super::rows::{Cache, Rows, Stored, number_of, one_changed, query_one};
use super::{SqliteStep, failed};
use crate::error::Error;
use crate::store::check::Check;

pub(crate) const SELECT: &str =
    "SELECT number, name, ledger, kind, claim, high_water, row_check FROM keyfence_gate WHERE name = ?1";
/// All rows.
pub(crate) const ALL: &str =
    "SELECT number, name, ledger, kind, claim, high_water, row_check FROM keyfence_gate ORDER BY number";
const INSERT: &str = "INSERT INTO keyfence_gate (name, ledger, kind, claim, high_water, row_check) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const UPDATE: &str = "UPDATE keyfence_gate SET ledger = ?2, kind = ?3, claim = ?4, high_water = ?5, row_check = ?6 \
    WHERE number = ?1 AND high_water IS ?7 AND row_check = ?8";

fn high_water(gate: &Gate) -> Option<i64> {
    gate.high_water.map(|token| number_of(token.get()))
}

pub(crate) fn decode(row: &Row<'_>) -> Result<Stored<Gate>, Failure<Error>> {
    let cells = Cells::new(row, Place::Gate, 1);
    let kind =
        ClaimKind::from_name(cells.text(3)?).ok_or_else(|| cells.damaged("it is bound to an unknown kind of claim"))?;
    let gate = Gate {
        name: cells.name(1)?,
        binding: Binding {
            ledger: cells.ledger_id(2)?,
            kind,
            name: cells.name(4)?,
        },
        high_water: cells.opt_token(5)?,
    };
    let check = cells.integer(6)?;
    cells.verify(check, gate.check(None))?;
    Ok(Stored {
        number: cells.integer(0)?,
        check,
        ended_at: None,
        row: gate,
    })
}

impl Rows for Gate {
    fn cache<'s>(step: &'s mut SqliteStep<'_>) -> &'s mut Cache<Self> {
        &mut step.caches.gates
    }

    fn expiry(&self) -> Option<Expiry> {
        None
    }

    fn ends(&self) -> bool {
        false
    }

    fn check(&self, _ended_at: Option<TimeMs>) -> i64 {
        let mut check = Check::new("keyfence_gate");
        check.text(self.name.as_str());
        check.bytes(self.binding.ledger.as_bytes());
        check.text(self.binding.kind.name());
        check.text(self.binding.name.as_str());
        check.opt(self.high_water, |check, token| check.word(token.get()));
        check.finish()
    }

    fn load(step: &mut SqliteStep<'_>, key: &Name) -> Result<Option<Stored<Self>>, Failure<Error>> {
        query_one(step.connection, SELECT, params![key.as_str()], decode)
    }

    fn insert(&self, step: &mut SqliteStep<'_>, check: i64, _ended_at: Option<TimeMs>) -> Result<i64, Failure<Error>> {
        let mut statement = step.connection.prepare_cached(INSERT).map_err(failed)?;
        statement
            .insert(params![
                self.name.as_str(),
                self.binding.ledger.as_bytes(),
                self.binding.kind.name(),
                self.binding.name.as_str(),
                high_water(self),
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
        let mut statement = step.connection.prepare_cached(UPDATE).map_err(failed)?;
        let changed = statement
            .execute(params![
                before.number,
                self.binding.ledger.as_bytes(),
                self.binding.kind.name(),
                self.binding.name.as_str(),
                high_water(self),
                check,
                high_water(&before.row),
                before.check
            ])
            .map_err(failed)?;
        one_changed(changed, Place::Gate, &self.name)
    }
}
