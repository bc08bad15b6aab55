//! Walking the history: its order and its hash chain.

use keyfence_core::store::{Corrupt, Failure, Place};
use rusqlite::Connection;

use crate::error::Error;
use crate::store::check::{ChainHead, Encoder, chained, link};
use crate::store::step::failed;
use crate::store::step::head::Head;
use crate::store::step::history::{self, StoredEvent};
use crate::store::step::rows::number_of;

/// A place in the history, and the chain's head there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Walk {
    pub(super) seq: u64,
    pub(super) head: ChainHead,
}

impl Walk {
    /// From what was pruned last.
    pub(super) const fn from_anchor(head: &Head) -> Self {
        Self {
            seq: head.anchor_seq,
            head: head.anchor_head,
        }
    }

    /// Goes on for up to `limit` events while `go_on` says so; returns how many there were. Each is verified: that none is
    /// missing, and that its link is that of the chain.
    pub(super) fn verify(
        &mut self,
        connection: &Connection,
        limit: u64,
        mut go_on: impl FnMut(&StoredEvent) -> bool,
    ) -> Result<u64, Failure<Error>> {
        let mut statement = connection.prepare_cached(history::SINCE).map_err(failed)?;
        let mut rows = statement
            .query([number_of(self.seq), i64::try_from(limit).unwrap_or(i64::MAX)])
            .map_err(failed)?;
        let mut encoder = Encoder::new();
        let mut walked = 0;
        while let Some(row) = rows.next().map_err(failed)? {
            let stored = history::decode(row)?;
            if !go_on(&stored) {
                break;
            }
            if stored.seq != self.seq + 1 {
                return Err(damaged(&stored, "the event before it is missing"));
            }
            encoder.clear();
            history::encode(&mut encoder, stored.seq, &stored.event, stored.note.as_deref());
            let head = chained(&self.head, encoder.as_slice());
            if link(&head) != stored.link {
                return Err(damaged(
                    &stored,
                    "an event is not as it was written: the hash chain breaks at it",
                ));
            }
            self.seq = stored.seq;
            self.head = head;
            walked += 1;
        }
        Ok(walked)
    }

    /// Whether the walk ended where the ledger's row says.
    pub(super) fn check_end(&self, head: &Head) -> Result<(), Failure<Error>> {
        let why = if self.seq < head.event_seq {
            "its last events are missing"
        } else if self.seq > head.event_seq {
            "it has events that the ledger's row does not know"
        } else if self.head != head.chain_head {
            "its hash chain does not end at the head in the ledger's row"
        } else {
            return Ok(());
        };
        Err(Failure::Corrupt(Corrupt {
            place: Place::History,
            key: None,
            why,
        }))
    }
}

fn damaged(stored: &StoredEvent, why: &'static str) -> Failure<Error> {
    Failure::Store(Error::Damaged {
        place: format!("event {} of `{}`", stored.seq, stored.event.subject),
        why: why.into(),
    })
}
