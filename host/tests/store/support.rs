//! What the tests of the SQLite store share: a ledger in a folder of its own, on a clock that stands.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keyfence::core::mailbox::{ClaimNext, MessageGrant, Priority};
use keyfence::{Delivery, FixedClock, Ledger, Name, NewMessage, Options, ProcessId, TimeMs, Ttl};
use tempfile::TempDir;

pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) clock: Arc<FixedClock>,
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn process(number: u8) -> ProcessId {
    ProcessId::from_bytes([number; 16])
}

pub(crate) fn minutes(minutes: u64) -> Ttl {
    Ttl::from_ms(minutes * 60_000).unwrap()
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock: Arc::new(FixedClock::new(TimeMs::new(1_000_000).unwrap())),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("keyfence.db")
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            clock: self.clock.clone(),
            timeout: Duration::from_millis(500),
            ..Options::default()
        }
    }

    pub(crate) fn open(&self) -> Ledger {
        Ledger::open(&self.path(), self.options()).unwrap()
    }

    /// A connection past keyfence, for making damage.
    pub(crate) fn raw(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection
            .execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF;")
            .unwrap();
        connection
    }
}

pub(crate) fn message(id: &str, recipient: &str) -> NewMessage {
    NewMessage {
        id: name(id),
        sender: Some(name("lucy")),
        recipient: name(recipient),
        subject: "stock".into(),
        body: b"count the shelf".to_vec(),
        priority: Priority::default(),
        not_before: None,
        retries_max: 3,
    }
}

pub(crate) fn next_of(owner: &str, number: u8) -> ClaimNext {
    ClaimNext {
        owner: name(owner),
        process: Some(process(number)),
        lease_token: None,
        ttl: minutes(15),
    }
}

/// Claims the next message as process `number` of `owner`.
pub(crate) fn claim_next(ledger: &Ledger, owner: &str, number: u8) -> Delivery {
    let mut deliveries = ledger
        .call()
        .mailbox_claim_next(&next_of(owner, number), 1)
        .unwrap()
        .unwrap();
    deliveries.pop().unwrap()
}

pub(crate) fn grant_of(delivery: &Delivery) -> &MessageGrant {
    &delivery.granted.grant
}
