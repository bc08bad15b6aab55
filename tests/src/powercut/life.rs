//! The life that a store leads on the bench: what it is asked to do and what that leaves.
//!
//! Verbs are chosen from the state and a seed, so that the same life goes on after a cut from
//! whatever state the cut has left.

use std::collections::{BTreeMap, BTreeSet};

use crate::random::{self, Random};

/// The name of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A session, by number.
    Session(u8),
    /// A message, by number.
    Message(u8),
}

impl Key {
    /// The key as a number, unique over both kinds.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Session(n) => 0x100 + n as u32,
            Self::Message(n) => 0x200 + n as u32,
        }
    }
}

/// The state of a session or a message, as far as the bench can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowState {
    /// A session with a holder, or a message that is claimed.
    Held,
    /// A session that was given up, or a message that nobody has claimed.
    Free,
    /// Terminal.
    Finished,
}

/// What the store holds under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    /// Its name.
    pub key: Key,
    /// Its state.
    pub state: RowState,
    /// The host or process that has it or had it last.
    pub holder: u8,
    /// The generation of it.
    pub incarnation: u32,
    /// The token of its last claim; 0 before the first.
    pub token: u64,
}

/// The size of a row as record stores keep it.
pub const ROW_SIZE_BYTES: usize = 64;

impl Row {
    /// The row as 64 bytes, every one of them a function of the fields, so that a damaged byte shows.
    #[must_use]
    pub fn encode(&self) -> [u8; ROW_SIZE_BYTES] {
        let mut bytes = [0; ROW_SIZE_BYTES];
        let state = match self.state {
            RowState::Held => 1,
            RowState::Free => 2,
            RowState::Finished => 3,
        };
        bytes[..4].copy_from_slice(&self.key.number().to_le_bytes());
        bytes[4..8].copy_from_slice(&[state, self.holder, 0x4b, 0x46]);
        bytes[8..12].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.token.to_le_bytes());
        let mut filler = Random::new(random::digest(&bytes[..20]));
        bytes[20..].iter_mut().for_each(|byte| *byte = filler.byte());
        bytes
    }

    /// Reads the 64 bytes back; `None` when a byte of them is wrong.
    #[must_use]
    pub fn decode(key: Key, bytes: &[u8]) -> Option<Self> {
        let field = |range: std::ops::Range<usize>| bytes.get(range);
        let row = Self {
            key,
            state: match bytes.get(4)? {
                1 => RowState::Held,
                2 => RowState::Free,
                3 => RowState::Finished,
                _ => return None,
            },
            holder: *bytes.get(5)?,
            incarnation: u32::from_le_bytes(field(8..12)?.try_into().ok()?),
            token: u64::from_le_bytes(field(12..20)?.try_into().ok()?),
        };
        (row.encode()[..] == *bytes).then_some(row)
    }
}

/// Rows by key.
pub type Rows = BTreeMap<Key, Row>;

/// One thing that a store is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// The host claims the session: a new generation with a fresh token.
    TakeOver {
        /// The session.
        session: u8,
        /// The new holder.
        host: u8,
    },
    /// The holder gives the session up.
    Release {
        /// The session.
        session: u8,
    },
    /// The holder finishes the session.
    Finish {
        /// The session.
        session: u8,
    },
    /// A message arrives.
    Send {
        /// The message.
        message: u8,
    },
    /// A process claims the message: a fresh token.
    Claim {
        /// The message.
        message: u8,
        /// The claimant.
        process: u8,
    },
    /// The claimant completes the message.
    Complete {
        /// The message.
        message: u8,
    },
    /// A finished row is dropped.
    Prune {
        /// The row.
        key: Key,
    },
    /// A token is drawn from the counter, for nothing else.
    Mint,
    /// The power is switched off and on in order.
    Reboot,
}

/// What a verb changes, seen from outside the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Whether it draws a token.
    pub mints: bool,
    /// The row that it changes.
    pub key: Option<Key>,
    /// That row afterwards; `None` when it is gone. When the verb mints, the token is still the
    /// old one and is to be replaced by the fresh one.
    pub after: Option<Row>,
}

/// How many rows of each kind the life keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Sessions.
    pub sessions: u8,
    /// Messages.
    pub messages: u8,
}

impl Bounds {
    /// What fits into the region: 8 live sessions on real chips, fewer on the tiny ones.
    #[must_use]
    pub const fn for_page_size(erase_size_bytes: usize) -> Self {
        if erase_size_bytes < 1024 {
            Self {
                sessions: 3,
                messages: 1,
            }
        } else if erase_size_bytes == 1024 {
            Self {
                sessions: 4,
                messages: 2,
            }
        } else {
            Self {
                sessions: 8,
                messages: 4,
            }
        }
    }

    /// Every key that the life can use.
    pub fn keys(self) -> impl Iterator<Item = Key> {
        let sessions = (0..self.sessions).map(Key::Session);
        sessions.chain((0..self.messages).map(Key::Message))
    }
}

/// What the bench knows: the rows that are there, and what decides which verbs make sense.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// The rows that are there.
    pub rows: Rows,
    /// New sessions start above this incarnation: the highest one of a session that was pruned.
    floor: u32,
    /// How many messages of each number were pruned: names of messages are never used again.
    pruned: BTreeMap<Key, u32>,
    /// Sessions that were claimed since the last boot: only their holders can give them up.
    claimed: BTreeSet<Key>,
    /// The session that was claimed last in this boot. The leases of the others have lapsed since.
    newest: Option<Key>,
}

impl Model {
    /// How many messages of this number there were before the one that is there, or that would be sent next.
    #[must_use]
    pub fn generation(&self, key: Key) -> u32 {
        self.pruned.get(&key).copied().unwrap_or(0)
    }

    /// Notes a power-up: every lease has lapsed.
    pub fn reboot(&mut self) {
        self.claimed.clear();
        self.newest = None;
    }

    /// What `verb` changes in this state.
    #[must_use]
    pub fn change(&self, verb: Verb) -> Change {
        let nothing = Change {
            mints: false,
            key: None,
            after: None,
        };
        let update = |key: Key, state: RowState| Change {
            mints: false,
            key: Some(key),
            after: self.rows.get(&key).map(|row| Row { state, ..*row }),
        };
        match verb {
            Verb::TakeOver { session, host } => self.claim(Key::Session(session), host),
            Verb::Claim { message, process } => self.claim(Key::Message(message), process),
            Verb::Release { session } => update(Key::Session(session), RowState::Free),
            Verb::Finish { session } => update(Key::Session(session), RowState::Finished),
            Verb::Complete { message } => update(Key::Message(message), RowState::Finished),
            Verb::Send { message } => {
                let key = Key::Message(message);
                let row = Row {
                    key,
                    state: RowState::Free,
                    holder: 0,
                    incarnation: self.generation(key),
                    token: 0,
                };
                Change {
                    key: Some(key),
                    after: Some(row),
                    ..nothing
                }
            }
            Verb::Prune { key } => Change {
                key: Some(key),
                ..nothing
            },
            Verb::Mint => Change { mints: true, ..nothing },
            Verb::Reboot => nothing,
        }
    }

    fn claim(&self, key: Key, holder: u8) -> Change {
        let row = self.rows.get(&key);
        let row = Row {
            key,
            state: RowState::Held,
            holder,
            incarnation: row.map_or(self.floor, |row| row.incarnation) + 1,
            token: row.map_or(0, |row| row.token),
        };
        Change {
            mints: true,
            key: Some(key),
            after: Some(row),
        }
    }

    /// Notes that the row under `key` is now `row`.
    pub fn set(&mut self, key: Key, row: Option<Row>) {
        let before = match row {
            Some(row) => self.rows.insert(key, row),
            None => self.rows.remove(&key),
        };
        match (key, row) {
            (Key::Session(_), Some(row)) => {
                let is_claim = row.state == RowState::Held && before.is_none_or(|before| before.token != row.token);
                if is_claim {
                    self.claimed.insert(key);
                    self.newest = Some(key);
                } else if self.newest == Some(key) {
                    self.newest = None;
                }
            }
            (Key::Session(_), None) => {
                self.floor = self.floor.max(before.map_or(0, |row| row.incarnation));
                self.claimed.remove(&key);
            }
            (Key::Message(_), None) if before.is_some() => *self.pruned.entry(key).or_insert(0) += 1,
            (Key::Message(_), _) => {}
        }
    }

    /// The next verb of the life: one that makes sense in this state. At most one row is finished at a time, since a store
    /// may prune all that are.
    pub fn next_verb(&self, bounds: Bounds, random: &mut Random) -> Verb {
        let finished = self.rows.values().find(|row| row.state == RowState::Finished);
        let finished = finished.map(|row| row.key);
        if let (Some(key), 0) = (finished, random.below(6)) {
            return Verb::Prune { key };
        }
        match random.below(20) {
            0 | 1 => Verb::Mint,
            2 => Verb::Reboot,
            3..=7 if bounds.messages > 0 => {
                let message = random.below(bounds.messages.into()) as u8;
                self.next_of_message(message, finished, random)
            }
            _ => {
                let session = random.below(bounds.sessions.into()) as u8;
                self.next_of_session(session, finished, random)
            }
        }
    }

    fn next_of_message(&self, message: u8, finished: Option<Key>, random: &mut Random) -> Verb {
        match (self.rows.get(&Key::Message(message)).map(|row| row.state), finished) {
            (None, _) => Verb::Send { message },
            (Some(RowState::Free), _) => Verb::Claim {
                message,
                process: random.below(2) as u8,
            },
            (Some(RowState::Held), None) => Verb::Complete { message },
            (Some(RowState::Held | RowState::Finished), Some(key)) => Verb::Prune { key },
            (Some(RowState::Finished), None) => Verb::Mint,
        }
    }

    fn next_of_session(&self, session: u8, finished: Option<Key>, random: &mut Random) -> Verb {
        let key = Key::Session(session);
        let row = self.rows.get(&key);
        let host = row.map_or(0, |row| row.holder ^ 1);
        let take_over = Verb::TakeOver { session, host };
        let is_held = |key: &Key| self.rows.get(key).is_some_and(|row| row.state == RowState::Held);
        match (row.map(|row| row.state), random.below(8)) {
            (Some(RowState::Finished), _) => Verb::Prune { key },
            (Some(RowState::Held), 0) => match (self.newest.filter(is_held), finished) {
                (Some(Key::Session(session)), None) => Verb::Finish { session },
                (Some(_) | None, _) => take_over,
            },
            (Some(RowState::Held), 1) if self.claimed.contains(&key) => Verb::Release { session },
            (None | Some(RowState::Held | RowState::Free), _) => take_over,
        }
    }

    /// A digest of everything that the bench knows.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let rows = self
            .rows
            .values()
            .fold(0, |sum, row| random::fold(sum, random::digest(&row.encode())));
        let pruned = self.pruned.iter().fold(rows, |sum, (key, n)| {
            random::fold(sum, u64::from(key.number()) << 32 | u64::from(*n))
        });
        let claimed = self.claimed.iter().chain(&self.newest);
        claimed.fold(random::fold(pruned, self.floor.into()), |sum, key| {
            random::fold(sum, key.number().into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_reads_back_and_a_damaged_one_does_not() {
        let key = Key::Session(3);
        let row = Row {
            key,
            state: RowState::Held,
            holder: 1,
            incarnation: 7,
            token: 1 << 40,
        };
        let bytes = row.encode();
        assert_eq!(Row::decode(key, &bytes), Some(row));
        for bit in 0..ROW_SIZE_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Row::decode(key, &damaged), None, "bit {bit}");
        }
        assert_eq!(Row::decode(Key::Session(2), &bytes), None, "under another key");
        assert_eq!(Row::decode(key, &bytes[..63]), None);
    }

    #[test]
    fn a_pruned_name_does_not_start_again_at_one() {
        let mut model = Model::default();
        let key = Key::Session(0);
        let claimed = model.change(Verb::TakeOver { session: 0, host: 0 });
        assert_eq!(claimed.after.map(|row| row.incarnation), Some(1));
        model.set(key, claimed.after);
        model.set(key, None);
        let again = model.change(Verb::TakeOver { session: 0, host: 1 });
        assert_eq!(again.after.map(|row| row.incarnation), Some(2));
    }

    #[test]
    fn a_life_uses_every_verb_and_every_verb_changes_something_that_is_there() {
        let (mut model, mut random) = (Model::default(), Random::new(1));
        let bounds = Bounds {
            sessions: 3,
            messages: 2,
        };
        let mut seen = BTreeSet::new();
        for token in 1..500 {
            let verb = model.next_verb(bounds, &mut random);
            seen.insert(format!("{verb:?}").split([' ', '{']).next().unwrap_or("").to_owned());
            let change = model.change(verb);
            if let Some(key) = change.key {
                assert!(change.after.is_some() || model.rows.contains_key(&key), "{verb:?}");
                let after = change.after.map(|row| Row {
                    token: if change.mints { token } else { row.token },
                    ..row
                });
                model.set(key, after);
            }
        }
        assert_eq!(seen.len(), 9, "{seen:?}");
    }
}
