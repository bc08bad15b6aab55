//! The kit on the SQLite ledger.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keyfence::{Clock as _, FixedClock, Ledger, Options, prune};
use keyfence_core::event::Event;
use keyfence_core::name::NAME_BYTES_MAX;
use keyfence_core::refusal::RefusedCall;
use keyfence_core::store::Place;
use keyfence_core::{Incarnation, Name, TimeMs, Token};
use rusqlite::{Connection, Error, params};

use super::bench::Bench;
use super::subject::{BadExpiry, Bounds, Can};

/// More events and refusals than any scenario leaves.
const ALL: usize = 10_000;

/// A ledger in a file of its own, as the kit drives it through the core's [`Store`](keyfence_core::store::Store).
pub struct OnSqlite {
    ledger: Ledger,
    clock: Arc<FixedClock>,
    path: PathBuf,
    reopens: bool,
    // Removed last.
    _folder: tempfile::TempDir,
}

impl OnSqlite {
    /// A new ledger, open from the first call to the last.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("ledger.db");
        let clock = Arc::new(FixedClock::new(epoch()));
        Self {
            ledger: open(&path, &clock),
            clock,
            path,
            reopens: false,
            _folder: folder,
        }
    }

    /// A new ledger that is closed and opened again before every call: each is made by what might be another process.
    #[must_use]
    pub fn reopened() -> Self {
        Self {
            reopens: true,
            ..Self::new()
        }
    }

    /// The ledger, before the next call.
    pub(super) fn ledger(&mut self) -> &Ledger {
        Bench::between(self);
        &self.ledger
    }

    /// The clock, as the scenario has set it.
    pub(super) fn now(&self) -> TimeMs {
        self.clock.now()
    }

    /// A second connection to the file, which knows nothing of keyfence.
    fn stranger(&self) -> Connection {
        let connection = Connection::open(&self.path).expect("the file opens");
        connection
            .pragma_update(None, "ignore_check_constraints", true)
            .expect("a pragma of SQLite");
        connection
    }

    /// Raises a number in the ledger's row, and makes its check value right again.
    fn raise(&self, column: &str, floor: u64) {
        let connection = self.stranger();
        let floor = i64::try_from(floor).expect("at most 2^53 - 1");
        connection
            .execute(
                &format!("UPDATE keyfence_ledger SET {column} = max(coalesce({column}, 0), ?1)"),
                [floor],
            )
            .expect("the ledger's row is written");
        let check = head_check(&connection);
        connection
            .execute("UPDATE keyfence_ledger SET row_check = ?1", [check])
            .expect("the ledger's row is written");
    }
}

impl Default for OnSqlite {
    fn default() -> Self {
        Self::new()
    }
}

fn epoch() -> TimeMs {
    TimeMs::new(1_000_000_000_000).expect("a moment of the year 2001")
}

fn open(path: &std::path::Path, clock: &Arc<FixedClock>) -> Ledger {
    let options = Options {
        clock: clock.clone(),
        // The folder for temporary files may be anybody's.
        allow_unsafe_location: true,
        timeout: Duration::from_secs(60),
        ..Options::default()
    };
    Ledger::open(path, options).expect("the ledger opens")
}

/// The check value of the ledger's row, from the description of the format and not from the library's code.
fn head_check(connection: &Connection) -> i64 {
    fn bytes(bytes: &[u8]) -> Vec<u64> {
        let words = bytes.chunks(8).map(|chunk| {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(padded)
        });
        std::iter::once(bytes.len() as u64).chain(words).collect()
    }
    fn optional(number: Option<i64>) -> Vec<u64> {
        number.map_or_else(|| vec![0], |number| vec![1, number.cast_unsigned()])
    }
    let words = connection
        .query_row("SELECT * FROM keyfence_ledger", [], |row| {
            let number = |column: &str| Ok::<_, Error>(vec![row.get::<_, i64>(column)?.cast_unsigned()]);
            let blob = |column: &str| Ok::<_, Error>(bytes(&row.get::<_, Vec<u8>>(column)?));
            Ok([
                bytes(b"keyfence_ledger"),
                number("schema")?,
                blob("ledger_id")?,
                optional(row.get("last_token")?),
                optional(row.get("incarnation_floor")?),
                number("event_seq")?,
                blob("chain_head")?,
                number("anchor_seq")?,
                blob("anchor_head")?,
                number("longest_ttl_ms")?,
            ]
            .concat())
        })
        .expect("the ledger's row is read");
    let state = words.into_iter().fold(0x6b65_7966_656e_6365, |state: u64, word| {
        (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
    });
    (state ^ (state >> 29)).cast_signed()
}

impl Bench for OnSqlite {
    type Store = Ledger;

    fn store(&mut self) -> &mut Self::Store {
        &mut self.ledger
    }

    fn between(&mut self) {
        if self.reopens {
            self.ledger = open(&self.path, &self.clock);
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            epoch: epoch(),
            name_bytes_max: NAME_BYTES_MAX,
            rows_max: None,
            can: &[Can::SeeHistory, Can::SeeRefusals, Can::Damage, Can::Prune, Can::Lift],
        }
    }

    fn set_now(&mut self, now: TimeMs) {
        self.clock.set(now);
    }

    fn history(&mut self) -> Vec<Event> {
        let records = self.ledger.events(0, ALL).expect("the history is read");
        records.into_iter().map(|record| record.event).collect()
    }

    fn refusals(&mut self) -> Vec<RefusedCall> {
        let mut records = self.ledger.refusals(ALL).expect("the refusals are read");
        records.sort_by_key(|record| record.number);
        records.into_iter().map(|record| record.call).collect()
    }

    fn damage(&mut self, place: Place, key: &Name, how: BadExpiry) {
        let (table, id) = match place {
            Place::Actor => ("keyfence_actor", "name"),
            Place::Host => ("keyfence_host", "name"),
            Place::Session => ("keyfence_session", "name"),
            Place::Assignment => ("keyfence_assignment", "id"),
            Place::Message => ("keyfence_message", "id"),
            Place::Gate | Place::Counter | Place::History => panic!("no expiry in a {}", place.name()),
        };
        let expiry: Option<i64> = match how {
            BadExpiry::Missing => None,
            BadExpiry::Negative => Some(-1),
            BadExpiry::TooLarge => Some(i64::MAX),
        };
        let changed = self
            .stranger()
            .execute(
                &format!("UPDATE {table} SET expires_at_ms = ?1 WHERE {id} = ?2"),
                params![expiry, key.as_str()],
            )
            .expect("the row is written");
        assert_eq!(changed, 1, "no row of this name");
    }

    fn prune(&mut self) {
        prune(&self.ledger, Duration::ZERO, &mut |_| {}).expect("pruned");
    }

    fn lift_counter(&mut self, floor: Token) {
        self.raise("last_token", floor.get());
    }

    fn raise_incarnations(&mut self, floor: Incarnation) {
        self.raise("incarnation_floor", floor.get());
    }

    fn reboot(&mut self) {
        panic!("a PC knows how long it was dark");
    }
}
