//! The atomic step: reads rows, gathers what is put, commits it as one frame (R1).

mod references;
mod table;

use keyfence_core::refusal::RefusedCall;
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Expiry, Incarnation, LedgerId, Name, TimeMs, Token};

use super::codec::{self, Bytes, Reader, Writer};
use super::keys::{self, Keys, Kind};
use super::rows::Row;
use super::{Error, NAME_BYTES_MAX, Slot, Trouble, for_all_bounds, not_committed, not_read};
use crate::journal::{Journal, Law, MountError, Record, Report};

/// Records that one step can write.
const RECORDS_MAX: usize = 24;
/// Rows whose expiries one step can move.
const EXPIRIES_MAX: usize = 16;
/// Rows that one step can make.
const NEW_ROWS_MAX: usize = 4;

type Outcomes<T> = Result<T, Trouble>;
/// Decodes the two records of a row; see [`FlashStep::load`].
type Decode<'a, S> = &'a mut dyn FnMut(&mut S, Name, Reader<'_>, Reader<'_>) -> Outcomes<Option<Option<Token>>>;
/// Encodes a record of a row, as it was or as it will be; see [`FlashStep::put_encoded`].
type Encode<'a, S> = &'a mut dyn FnMut(&mut S, bool, bool, &mut Writer) -> Outcomes<bool>;

/// An expiry that a step has granted.
#[derive(Clone, Copy, Debug)]
struct Granted {
    kind: Kind,
    row: u8,
    token: Token,
    expires_at: TimeMs,
}

/// What a step of the flash ledger works on. Between steps it is the ledger itself, without its clock.
pub struct FlashStep<
    F,
    const ACTORS: usize = 8,
    const ASSIGNMENTS: usize = 8,
    const MESSAGES: usize = 16,
    const HOSTS: usize = 4,
    const SESSIONS: usize = 8,
    const GATES: usize = 4,
    const PAGES: usize = 8,
    const KEYS: usize = 184,
    const FRAME: usize = 416,
    P = Law,
> {
    pub(super) journal: Journal<F, PAGES, KEYS, FRAME, P>,
    pub(super) id: LedgerId,
    pub(super) incarnation_floor: Option<Incarnation>,
    actors: [Slot; ACTORS],
    assignments: [Slot; ASSIGNMENTS],
    messages: [Slot; MESSAGES],
    hosts: [Slot; HOSTS],
    sessions: [Slot; SESSIONS],
    gates: [Slot; GATES],
    /// Tells this power-up from others; 0 before the first.
    epoch: u32,
    /// The records put so far, each with key and length.
    staged: [u8; FRAME],
    staged_len: usize,
    tokens: u32,
    /// No process is given a number now.
    is_frozen: bool,
    granted: heapless::Vec<Granted, EXPIRIES_MAX>,
    new_rows: heapless::Vec<(Kind, u8), NEW_ROWS_MAX>,
    refused: Option<RefusedCall>,
    refused_count: u32,
}

for_all_bounds! { FlashStep<> {
    const KEYS_OF: Keys = Keys { counts: [ACTORS, ASSIGNMENTS, MESSAGES, HOSTS, SESSIONS, GATES] };

    /// How many keys the journal of such a ledger needs.
    pub const KEYS_NEEDED: usize = Self::KEYS_OF.needed();

    pub(super) const fn new(journal: Journal<F, PAGES, KEYS, FRAME, P>) -> Self {
        const {
            assert!(Self::KEYS_NEEDED <= KEYS, "the journal of a ledger with these bounds needs more keys");
            assert!(KEYS <= 0xf0, "a journal has at most 240 keys");
        }
        const EMPTY: Slot = Slot { used: false, hash: 0, token: 0, expires_at_ms: 0 };
        Self {
            journal,
            id: LedgerId::from_bytes([0; 16]),
            incarnation_floor: None,
            actors: [EMPTY; ACTORS],
            assignments: [EMPTY; ASSIGNMENTS],
            messages: [EMPTY; MESSAGES],
            hosts: [EMPTY; HOSTS],
            sessions: [EMPTY; SESSIONS],
            gates: [EMPTY; GATES],
            epoch: 0,
            staged: [0; FRAME],
            staged_len: 0,
            tokens: 0,
            is_frozen: false,
            granted: heapless::Vec::new(),
            new_rows: heapless::Vec::new(),
            refused: None,
            refused_count: 0,
        }
    }

    // ---- starting

    /// Forgets every expiry: a power-up does not know how long it was dark (R3).
    pub(super) fn forget_expiries(&mut self) {
        for kind in Kind::ALL {
            self.slots_mut(kind).iter_mut().for_each(|slot| slot.expires_at_ms = 0);
        }
        self.epoch = 0;
        self.granted.clear();
    }

    /// Mounts and settles the journal and looks which rows there are.
    pub(super) fn open(&mut self, floor: u64) -> Outcomes<Report> {
        self.journal.mount().map_err(|error| Trouble::Store(Error::Mount(error)))?;
        let report = self.journal.settle(floor).map_err(|error| Trouble::Store(Error::Settle(error)))?;
        if self.epoch == 0 {
            self.epoch = report.boot;
        }
        self.clear();
        let meta = self.read(keys::META, Place::Counter)?;
        let meta = meta.ok_or(Trouble::Store(Error::Mount(MountError::Unprovisioned)))?;
        let mut reader = Reader::new(&meta);
        let (id, floor) = (reader.ledger(), reader.number());
        self.id = reader.end(id).ok_or(corrupt(Place::Counter))?;
        self.incarnation_floor = Incarnation::presented(floor);
        for kind in Kind::ALL {
            for row in 0..Self::KEYS_OF.count(kind) {
                let name = self.read(Self::KEYS_OF.name(kind, row), kind.place())?;
                let name = match name {
                    Some(name) => Some(Reader::new(&name).name().ok_or(corrupt(kind.place()))?),
                    None => None,
                };
                if let Some(slot) = self.slots_mut(kind).get_mut(row) {
                    slot.used = name.is_some();
                    slot.hash = name.as_ref().map_or(0, |name| short_hash(kind, name));
                }
            }
        }
        // What a step with an unknown outcome had granted counts if its token is there.
        self.expire_granted();
        Ok(report)
    }

    /// Writes the first records of a new ledger.
    pub(super) fn create(&mut self, id: LedgerId) -> Outcomes<()> {
        self.journal.mount().map_err(|error| Trouble::Store(Error::Mount(error)))?;
        self.journal.settle(0).map_err(|error| Trouble::Store(Error::Settle(error)))?;
        self.id = id;
        self.incarnation_floor = None;
        self.clear();
        self.put_meta()?;
        self.commit()
    }

    pub(super) fn put_meta(&mut self) -> Outcomes<()> {
        let mut out = Writer::default();
        out.bytes(self.id.as_bytes());
        out.number(self.incarnation_floor.map_or(0, Incarnation::get));
        self.stage(keys::META, &out.finish().map_err(Trouble::Store)?)
    }

    // ---- the step

    /// Begins a step; mounts the journal again if its last outcome is not known.
    pub(super) fn begin(&mut self) -> Outcomes<()> {
        if !self.journal.is_open() {
            self.open(0)?;
        }
        self.clear();
        self.granted.clear();
        Ok(())
    }

    /// Forgets what was staged. What was granted is kept.
    fn clear(&mut self) {
        self.staged_len = 0;
        self.tokens = 0;
        self.is_frozen = false;
        self.new_rows.clear();
    }

    /// Drops what the step has put.
    pub(super) fn abandon(&mut self) {
        while let Some((kind, row)) = self.new_rows.pop() {
            if let Some(slot) = self.slots_mut(kind).get_mut(usize::from(row)) {
                *slot = Slot::default();
            }
        }
        self.clear();
        self.granted.clear();
    }

    pub(super) const fn forget_tokens(&mut self) {
        self.tokens = 0;
    }

    /// Commits what the step has put, all or nothing.
    pub(super) fn commit(&mut self) -> Outcomes<()> {
        let written = self.write_staged();
        match written {
            Ok(()) => {
                self.clear();
                self.expire_granted();
            }
            // It may turn out to be a commit: then its rows are found, and its grants count.
            Err(Trouble::Unknown(_)) => self.clear(),
            Err(Trouble::Store(_) | Trouble::Corrupt(..)) => self.abandon(),
        }
        written
    }

    /// What was staged as one batch of the journal; of several records of a key the last.
    fn write_staged(&mut self) -> Outcomes<()> {
        let mut records: heapless::Vec<Record<'_>, RECORDS_MAX> = heapless::Vec::new();
        let mut rest = self.staged.get(..self.staged_len).unwrap_or(&[]);
        while let Some((key, value, behind)) = next_staged(rest) {
            rest = behind;
            let record = Record { key, value };
            match records.iter().position(|earlier| earlier.key == key) {
                Some(at) => {
                    if let Some(earlier) = records.get_mut(at) {
                        *earlier = record;
                    }
                }
                None => records.push(record).map_err(|_| Trouble::Store(Error::TooMuch))?,
            }
        }
        if !records.is_empty() || self.tokens > 0 {
            let _committed = self.journal.commit(&records, self.tokens).map_err(not_committed)?;
        }
        Ok(())
    }

    /// Notes until when the claims are live that the step has granted.
    fn expire_granted(&mut self) {
        while let Some(granted) = self.granted.pop() {
            if let Some(slot) = self.slots_mut(granted.kind).get_mut(usize::from(granted.row)) {
                slot.token = granted.token.get() as u32;
                slot.expires_at_ms = granted.expires_at.as_ms();
            }
        }
    }

    // ---- records

    /// Puts a record; nothing deletes it.
    pub(super) fn stage(&mut self, key: u8, value: &[u8]) -> Outcomes<()> {
        let too_much = Trouble::Store(Error::TooMuch);
        let Some(room) = self.staged.get_mut(self.staged_len..) else {
            return Err(too_much);
        };
        let len = value.len();
        let head: &[u8] = if len < 0x80 { &[key, len as u8] } else { &[key, len as u8 | 0x80, (len >> 7) as u8] };
        if room.len() < head.len() + len {
            return Err(too_much);
        }
        room.iter_mut().zip(head.iter().chain(value)).for_each(|(slot, byte)| *slot = *byte);
        self.staged_len += head.len() + len;
        Ok(())
    }

    /// The record of `key` as this step sees it.
    pub(super) fn read(&mut self, key: u8, place: Place) -> Outcomes<Option<Bytes>> {
        let mut rest = self.staged.get(..self.staged_len).unwrap_or(&[]);
        let mut staged = None;
        while let Some((at, value, behind)) = next_staged(rest) {
            if at == key {
                staged = Some(value);
            }
            rest = behind;
        }
        let value = match staged {
            Some(value) => Some(value).filter(|value| !value.is_empty()),
            None => self.journal.get(key).map_err(|error| not_read(place, error))?,
        };
        match value {
            Some(value) => Bytes::from_slice(value).map(Some).map_err(|_| corrupt(place)),
            None => Ok(None),
        }
    }

    // ---- rows

    pub(super) fn slots(&self, kind: Kind) -> &[Slot] {
        match kind {
            Kind::Actor => &self.actors,
            Kind::Assignment => &self.assignments,
            Kind::Message => &self.messages,
            Kind::Host => &self.hosts,
            Kind::Session => &self.sessions,
            Kind::Gate => &self.gates,
        }
    }

    pub(super) fn slots_mut(&mut self, kind: Kind) -> &mut [Slot] {
        match kind {
            Kind::Actor => &mut self.actors,
            Kind::Assignment => &mut self.assignments,
            Kind::Message => &mut self.messages,
            Kind::Host => &mut self.hosts,
            Kind::Session => &mut self.sessions,
            Kind::Gate => &mut self.gates,
        }
    }

    /// The row of this name.
    pub(super) fn find(&mut self, kind: Kind, name: &Name) -> Outcomes<Option<usize>> {
        let hash = short_hash(kind, name);
        for row in 0..self.slots(kind).len() {
            let slot = self.slots(kind).get(row).copied().unwrap_or_default();
            if !slot.used || slot.hash != hash {
                continue;
            }
            let fixed = self.read(Self::KEYS_OF.name(kind, row), kind.place())?;
            let found = fixed.as_ref().and_then(|fixed| Reader::new(fixed).name());
            if found.ok_or(corrupt(kind.place()))? == *name {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// The two records of a row.
    fn records(&mut self, kind: Kind, row: usize) -> Outcomes<Option<(Bytes, Bytes)>> {
        let fixed = self.read(Self::KEYS_OF.name(kind, row), kind.place())?;
        let state = self.read(Self::KEYS_OF.state(kind, row), kind.place())?;
        match (fixed, state) {
            (Some(fixed), Some(state)) => Ok(Some((fixed, state))),
            (None, None) => Ok(None),
            (Some(_), None) | (None, Some(_)) => Err(corrupt(kind.place())),
        }
    }

    /// Until when the claim under `token` on a row is live, if it was made since the power-up.
    fn expiry_of(&self, kind: Kind, row: usize, token: Token) -> Option<TimeMs> {
        let of_row = |granted: &&Granted| granted.kind == kind && usize::from(granted.row) == row;
        match self.granted.iter().find(of_row) {
            Some(granted) if granted.token == token => Some(granted.expires_at),
            Some(_) | None => {
                let slot = self.slots(kind).get(row).copied().unwrap_or_default();
                let is_known = slot.expires_at_ms != 0 && slot.token == token.get() as u32;
                if is_known { TimeMs::new(slot.expires_at_ms) } else { None }
            }
        }
    }

    /// Reads the records of a row, has them decoded, and says until when the claim in it is live. The decoder gives the
    /// token of that claim; `None` when the row is not as it was written.
    fn load(&mut self, kind: Kind, row: usize, decode: Decode<'_, Self>) -> Outcomes<Option<TimeMs>> {
        let Some((fixed, state)) = self.records(kind, row)? else {
            return Ok(None);
        };
        let mut fixed = Reader::new(&fixed);
        let name = fixed.name().ok_or(corrupt(kind.place()))?;
        let claim = decode(self, name, fixed, Reader::new(&state))?.ok_or(corrupt(kind.place()))?;
        Ok(claim.and_then(|token| self.expiry_of(kind, row, token)))
    }

    /// Reads a row by its number.
    pub(super) fn row<R: Row>(&mut self, row: usize) -> Outcomes<Option<R>> {
        let mut read = None;
        let expires_at = self.load(R::KIND, row, &mut |step, name, fixed, state| {
            read = R::read(name, fixed, state, step)?;
            Ok(read.as_ref().map(|read: &R| read.claim().map(|(token, _)| token)))
        })?;
        if let (Some(read), Some(expires_at)) = (&mut read, expires_at) {
            read.expire(Expiry::At(expires_at));
        }
        Ok(read)
    }

    fn put_row<R: Row>(&mut self, before: Option<&R>, after: &R) -> Result<(), Failure<Error>> {
        let put = self.put_encoded(R::KIND, after.key(), after.claim(), &mut |step, is_before, is_state, out| {
            match if is_before { before } else { Some(after) } {
                None => Ok(false),
                Some(row) if is_state => row.write_state(step, out).map(|()| true),
                Some(row) => {
                    out.name(row.key());
                    row.write_fixed(step, out).map(|()| true)
                }
            }
        });
        put.map_err(|trouble| trouble.about(R::KIND.place(), after.key()))
    }

    /// Puts those records of a row that differ from what they were before. The encoder says whether there was a row.
    fn put_encoded(
        &mut self,
        kind: Kind,
        name: &Name,
        claim: Option<(Token, Expiry)>,
        encode: Encode<'_, Self>,
    ) -> Outcomes<()> {
        let row = match self.find(kind, name)? {
            Some(row) => row,
            None => self.take_row(kind, name)?,
        };
        for is_state in [false, true] {
            // Compared as bytes, with no new numbers given to processes; then written with them.
            let mut encoded = |step: &mut Self, is_before: bool| {
                let mut out = Writer::default();
                let is_there = encode(step, is_before, is_state, &mut out)?;
                let bytes = out.finish().map_err(Trouble::Store)?;
                Ok(is_there.then_some(bytes))
            };
            self.is_frozen = true;
            let is_same = encoded(self, true)? == encoded(self, false)?;
            self.is_frozen = false;
            if !is_same && let Some(bytes) = encoded(self, false)? {
                self.stage(Self::KEYS_OF.name(kind, row) + u8::from(is_state), &bytes)?;
            }
        }
        match claim {
            Some((token, Expiry::At(expires_at))) => self.grant(Granted { kind, row: row as u8, token, expires_at }),
            Some((_, Expiry::EarlierBoot)) | None => Ok(()),
        }
    }

    fn grant(&mut self, granted: Granted) -> Outcomes<()> {
        let of_row = |earlier: &&mut Granted| earlier.kind == granted.kind && earlier.row == granted.row;
        match self.granted.iter_mut().find(of_row) {
            Some(earlier) => *earlier = granted,
            None => self.granted.push(granted).map_err(|_| Trouble::Store(Error::TooMuch))?,
        }
        Ok(())
    }

    fn take_row(&mut self, kind: Kind, name: &Name) -> Outcomes<usize> {
        let hash = short_hash(kind, name);
        let too_much = Trouble::Store(Error::TooMuch);
        let free = self.slots(kind).iter().position(|slot| !slot.used);
        let Some(row) = free else {
            return Err(too_much);
        };
        self.new_rows.push((kind, row as u8)).map_err(|_| too_much)?;
        if let Some(slot) = self.slots_mut(kind).get_mut(row) {
            *slot = Slot { used: true, hash, ..Slot::default() };
        }
        Ok(row)
    }

    /// Bytes set aside for what there is (R5).
    pub(super) fn reserved_bytes(&self) -> usize {
        let rows = Kind::ALL.iter().map(|kind| {
            let used = self.slots(*kind).iter().filter(|slot| slot.used).count();
            used * kind.row_bytes_max()
        });
        keys::OTHER_BYTES_MAX + rows.sum::<usize>()
    }

    fn has_room(&self, kind: Kind, name: &Name) -> bool {
        let is_free = self.slots(kind).iter().any(|slot| !slot.used);
        let bytes = self.reserved_bytes() + kind.row_bytes_max();
        is_free && name.as_str().len() <= NAME_BYTES_MAX && bytes <= self.journal.capacity_bytes()
    }

    /// The last refused call and how many there were, and forgets them.
    pub(super) fn take_refused(&mut self) -> Option<(RefusedCall, u32)> {
        let count = core::mem::take(&mut self.refused_count);
        self.refused.take().map(|call| (call, count))
    }
} }

/// What is left of a row of which only the name was kept.
pub(super) trait Tombstone: Sized {
    /// The pruned row of this name, for kinds that leave one.
    fn pruned(name: &Name) -> Option<Self>;
}

/// The first record of what was staged, and what is behind it.
fn next_staged(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (key, rest) = bytes.split_first()?;
    let (low, mut rest) = rest.split_first()?;
    let mut len = usize::from(low & 0x7f);
    if low & 0x80 != 0 {
        let (high, behind) = rest.split_first()?;
        len |= usize::from(*high) << 7;
        rest = behind;
    }
    let (value, behind) = rest.split_at_checked(len)?;
    Some((*key, value, behind))
}

fn short_hash(kind: Kind, name: &Name) -> u16 {
    let hash = codec::hash(kind as u8, name.as_str());
    (hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) as u16
}

pub(super) const fn corrupt(place: Place) -> Trouble {
    Trouble::Corrupt(place, "a row is not as it was written")
}
