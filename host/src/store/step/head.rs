//! The ledger's one row: counter, event sequence, chain head.

use keyfence_core::store::{Failure, Place};
use keyfence_core::{Incarnation, LedgerId, Token};
use rusqlite::{Connection, params};

use super::cells::{Cells, corrupt};
use super::rows::{number_of, query_one};
use super::{bug, failed};
use crate::error::Error;
use crate::store::check::{ChainHead, Check};

const SELECT: &str = "SELECT schema, ledger_id, last_token, incarnation_floor, event_seq, chain_head, anchor_seq, \
    anchor_head, longest_ttl_ms, row_check FROM keyfence_ledger WHERE one = 1";
const UPDATE: &str = "UPDATE keyfence_ledger SET last_token = ?1, incarnation_floor = ?2, event_seq = ?3, \
    chain_head = ?4, anchor_seq = ?5, anchor_head = ?6, longest_ttl_ms = ?7, schema = ?8, row_check = ?9 \
    WHERE one = 1 AND event_seq = ?10 AND last_token IS ?11 AND row_check = ?12";
const INSERT: &str = "INSERT INTO keyfence_ledger (one, schema, ledger_id, last_token, incarnation_floor, event_seq, \
    chain_head, anchor_seq, anchor_head, longest_ttl_ms, row_check) \
    VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

/// The ledger's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) schema: i64,
    pub(crate) ledger: LedgerId,
    /// The greatest token that was minted or that the counter was lifted to.
    pub(crate) last_token: Option<Token>,
    pub(crate) incarnation_floor: Option<Incarnation>,
    /// The last event.
    pub(crate) event_seq: u64,
    /// The chain's head after it.
    pub(crate) chain_head: ChainHead,
    /// The last event that was pruned; 0: none was.
    pub(crate) anchor_seq: u64,
    /// The chain's head after that one.
    pub(crate) anchor_head: ChainHead,
    pub(crate) longest_ttl_ms: u64,
}

impl Head {
    /// A new ledger's, of the first schema.
    pub(crate) fn new(ledger: LedgerId) -> Self {
        // Chains of different ledgers differ from their first event on.
        let mut chain_head = [0; 32];
        chain_head[..16].copy_from_slice(ledger.as_bytes());
        Self {
            schema: 1,
            ledger,
            last_token: None,
            incarnation_floor: None,
            event_seq: 0,
            chain_head,
            anchor_seq: 0,
            anchor_head: chain_head,
            longest_ttl_ms: 0,
        }
    }

    fn check(&self) -> i64 {
        let mut check = Check::new("keyfence_ledger");
        check.word(self.schema.cast_unsigned());
        check.bytes(self.ledger.as_bytes());
        check.opt(self.last_token, |check, token| check.word(token.get()));
        check.opt(self.incarnation_floor, |check, floor| check.word(floor.get()));
        check.word(self.event_seq);
        check.bytes(&self.chain_head);
        check.word(self.anchor_seq);
        check.bytes(&self.anchor_head);
        check.word(self.longest_ttl_ms);
        check.finish()
    }

    /// Reads and verifies the row.
    pub(crate) fn read(connection: &Connection) -> Result<Self, Failure<Error>> {
        let head = query_one(connection, SELECT, [], |row| {
            let cells = Cells::new(row, Place::Counter, 0);
            let head = Self {
                schema: cells.integer(0)?,
                ledger: cells.ledger_id(1)?,
                last_token: cells.opt_token(2)?,
                incarnation_floor: cells.opt_incarnation(3)?,
                event_seq: cells.number(4)?,
                chain_head: cells.array(5)?,
                anchor_seq: cells.number(6)?,
                anchor_head: cells.array(7)?,
                longest_ttl_ms: cells.number(8)?,
            };
            cells.verify(cells.integer(9)?, head.check())?;
            Ok(head)
        })?;
        head.ok_or_else(|| corrupt(Place::Counter, None, "the ledger's row is missing"))
    }

    /// Writes over the row that is as `before` says.
    pub(crate) fn write(&self, connection: &Connection, before: &Self) -> Result<(), Failure<Error>> {
        let mut statement = connection.prepare_cached(UPDATE).map_err(failed)?;
        let changed = statement
            .execute(params![
                self.last_token.map(|token| number_of(token.get())),
                self.incarnation_floor.map(|floor| number_of(floor.get())),
                number_of(self.event_seq),
                self.chain_head,
                number_of(self.anchor_seq),
                self.anchor_head,
                number_of(self.longest_ttl_ms),
                self.schema,
                self.check(),
                number_of(before.event_seq),
                before.last_token.map(|token| number_of(token.get())),
                before.check()
            ])
            .map_err(failed)?;
        if changed == 1 {
            Ok(())
        } else {
            Err(bug("the ledger's row was not as this step had read it".into()))
        }
    }

    /// Writes a new ledger's row.
    pub(crate) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.execute(
            INSERT,
            params![
                self.schema,
                self.ledger.as_bytes(),
                self.last_token.map(|token| number_of(token.get())),
                self.incarnation_floor.map(|floor| number_of(floor.get())),
                number_of(self.event_seq),
                self.chain_head,
                number_of(self.anchor_seq),
                self.anchor_head,
                number_of(self.longest_ttl_ms),
                self.check()
            ],
        )?;
        Ok(())
    }
}
