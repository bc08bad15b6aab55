//! Answers that hold once their transaction has committed.

use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, OptionalExtension as _};

use crate::error::Error;
use crate::store::check::link;
use crate::store::step::head::Head;
use crate::store::step::rows::number_of;

/// What a call inside a transaction answers once the transaction has committed. Before that nobody should act on it, so it
/// cannot be looked into.
#[derive(Debug)]
#[must_use]
pub struct Pending<T> {
    value: T,
    until: Until,
}

/// What has to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// A transaction of keyfence's.
    Transaction(TransactionId),
    /// This event, on a connection of the caller's.
    Event { seq: u64, link: i64 },
}

/// Tells transactions of this process apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransactionId(u64);

impl TransactionId {
    pub(super) fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Shows that a transaction of keyfence's has committed.
#[derive(Debug)]
pub struct Receipt(pub(super) TransactionId);

impl<T> Pending<T> {
    pub(super) const fn until_transaction(value: T, transaction: TransactionId) -> Self {
        Self {
            value,
            until: Until::Transaction(transaction),
        }
    }

    pub(super) fn until_event(value: T, head: &Head) -> Self {
        Self {
            value,
            until: Until::Event {
                seq: head.event_seq,
                link: link(&head.chain_head),
            },
        }
    }

    /// The answer, now that its transaction has committed; `None` with the receipt of another transaction.
    #[must_use]
    pub fn redeem(self, receipt: &Receipt) -> Option<T> {
        (self.until == Until::Transaction(receipt.0)).then_some(self.value)
    }

    /// Whether the event that the answer waits for is in the ledger. A transaction of keyfence's shows itself by its
    /// receipt alone.
    pub(super) fn is_committed(&self, connection: &Connection) -> Result<bool, Error> {
        match self.until {
            Until::Transaction(_) => Ok(false),
            Until::Event { seq: 0, .. } => Ok(true),
            Until::Event { seq, link } => {
                let head = Head::read(connection)?;
                let found: Option<i64> = connection
                    .prepare_cached("SELECT link FROM keyfence_event WHERE seq = ?1")?
                    .query_row([number_of(seq)], |row| row.get(0))
                    .optional()?;
                // A pruned event was committed before.
                Ok(found == Some(link) || seq <= head.anchor_seq)
            }
        }
    }

    pub(super) fn into_value(self) -> T {
        self.value
    }
}
