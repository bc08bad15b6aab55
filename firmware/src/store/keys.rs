//! Which record of the journal is under which key.

use keyfence_core::store::Place;

/// The kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Actor,
    Assignment,
    Message,
    Host,
    Session,
    Gate,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Actor,
        Self::Assignment,
        Self::Message,
        Self::Host,
        Self::Session,
        Self::Gate,
    ];

    pub(super) const fn place(self) -> Place {
        match self {
            Self::Actor => Place::Actor,
            Self::Assignment => Place::Assignment,
            Self::Message => Place::Message,
            Self::Host => Place::Host,
            Self::Session => Place::Session,
            Self::Gate => Place::Gate,
        }
    }

    /// The bytes that a row of this kind can take in all its records, each with 3 for its key and length.
    pub(super) const fn row_bytes_max(self) -> usize {
        match self {
            Self::Actor | Self::Host => 36 + 40,
            Self::Assignment => 104 + 70 + 67,
            Self::Message => 132 + 120 + 102 + 67,
            // A claimed session's host is a row, and is referred to by number.
            Self::Session => 36 + 72 + 67,
            Self::Gate => 88 + 12,
        }
    }
}

/// The ledger's id and what else there is once.
pub(super) const META: u8 = 0;
/// The answers kept for request ids, one key a client.
pub(super) const ANSWERS: u8 = 1;
/// Processes that rows refer to by number.
pub(super) const PROCESSES: u8 = ANSWERS + super::CLIENTS as u8;
/// How many of them.
pub(super) const PROCESSES_MAX: usize = 12;
/// Names that were pruned, as hashes.
pub(super) const TOMBSTONES: u8 = PROCESSES + PROCESSES_MAX as u8;
/// How many records of them, and how many hashes in a record.
pub(super) const TOMBSTONE_RECORDS: usize = 4;
pub(super) const TOMBSTONES_PER_RECORD: usize = 8;
/// The first key of a row.
pub(super) const ROWS: u8 = TOMBSTONES + TOMBSTONE_RECORDS as u8;

/// What is set aside for the records that are no rows, with 3 bytes for the key and length of each.
pub(super) const OTHER_BYTES_MAX: usize = 40
    + super::CLIENTS * (super::ANSWER_BYTES_MAX + 8)
    + PROCESSES_MAX * 19
    + TOMBSTONE_RECORDS * (TOMBSTONES_PER_RECORD * 8 + 3)
    + 28;

/// The keys of a ledger with these bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    /// Rows of each kind, in the order of [`Kind::ALL`].
    pub(super) counts: [usize; 6],
}

impl Keys {
    /// How many keys there are.
    pub(super) const fn needed(self) -> usize {
        let [actors, assignments, messages, hosts, sessions, gates] = self.counts;
        let rows = actors + assignments + messages + hosts + sessions + gates;
        ROWS as usize + 2 * rows + messages + assignments + messages + sessions
    }

    pub(super) const fn count(self, kind: Kind) -> usize {
        let [actors, assignments, messages, hosts, sessions, gates] = self.counts;
        match kind {
            Kind::Actor => actors,
            Kind::Assignment => assignments,
            Kind::Message => messages,
            Kind::Host => hosts,
            Kind::Session => sessions,
            Kind::Gate => gates,
        }
    }

    /// Rows of the kinds before this one.
    const fn before(self, kind: Kind) -> usize {
        let [actors, assignments, messages, hosts, sessions, gates] = self.counts;
        match kind {
            Kind::Actor => 0,
            Kind::Assignment => actors,
            Kind::Message => actors + assignments,
            Kind::Host => actors + assignments + messages,
            Kind::Session => actors + assignments + messages + hosts,
            Kind::Gate => actors + assignments + messages + hosts + sessions,
        }
        .saturating_add(gates.saturating_mul(0))
    }

    /// The record with a row's name and what does not change.
    pub(super) const fn name(self, kind: Kind, row: usize) -> u8 {
        ROWS + (2 * (self.before(kind) + row)) as u8
    }

    /// The record with a row's state.
    pub(super) const fn state(self, kind: Kind, row: usize) -> u8 {
        self.name(kind, row) + 1
    }

    const fn behind_rows(self) -> usize {
        ROWS as usize + 2 * (self.before(Kind::Gate) + self.count(Kind::Gate))
    }

    /// The record with a message's subject and body.
    pub(super) const fn body(self, row: usize) -> u8 {
        (self.behind_rows() + row) as u8
    }

    /// The record with a row's result, for kinds that have one.
    pub(super) const fn result(self, kind: Kind, row: usize) -> Option<u8> {
        let [actors, assignments, messages, hosts, sessions, gates] = self.counts;
        let first = self.behind_rows() + messages;
        let _ = (actors, hosts, sessions, gates);
        let offset = match kind {
            Kind::Message => 0,
            Kind::Assignment => messages,
            Kind::Session => messages + assignments,
            Kind::Actor | Kind::Host | Kind::Gate => return None,
        };
        Some((first + offset + row) as u8)
    }
}
