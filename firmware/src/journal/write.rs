//! One frame onto the flash (J1, J2, J5), and the commits made of it.

use embedded_storage::nor_flash::NorFlash;

use super::frame::{self, HEADER_BYTES, Header, KEY_BATCH, KEY_CHECKPOINT, KEY_LIMIT, OVERHEAD_BYTES, Writer};
use super::policy::Policy;
use super::{Checkpoint, CommitError, Committed, Journal, NONCE_BYTES, Phase, Record, Refused, TOKEN_MAX, chained};

/// Slots that are tried for one frame.
const ATTEMPTS: usize = 2;
/// Units up to this size hold no whole frame, so that a body has a second unit to be burned.
const SMALL_UNIT_BYTES: usize = 8;

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrote {
    /// It is committed.
    Done {
        /// Where it is.
        place: u16,
        /// Its header; the body in the buffer has the mask on.
        header: Header,
    },
    /// Nothing of it counts.
    Failed,
    /// Nothing of it counts, and the page has no room for another attempt.
    NoRoom,
    /// It may count or not.
    Unknown,
}

impl<F, const PAGES: usize, const KEYS: usize, const FRAME: usize, P> Journal<F, PAGES, KEYS, FRAME, P>
where
    F: NorFlash,
    P: Policy,
{
    /// Commits `records`, all or none (J1), and draws `tokens` tokens with them. An empty batch with
    /// tokens is a pure mint and costs one frame for each block of tokens (J8).
    ///
    /// # Errors
    ///
    /// When it is refused, or when its outcome is not known.
    pub fn commit(&mut self, records: &[Record<'_>], tokens: u32) -> Result<Committed, CommitError> {
        for (i, record) in records.iter().enumerate() {
            let twice = records.iter().take(i).any(|earlier| earlier.key == record.key);
            if usize::from(record.key) >= KEYS || twice {
                return Err(Refused::BadKey.into());
            }
        }
        self.commit_any(records, tokens)
    }

    /// Draws one token.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn mint(&mut self) -> Result<u64, CommitError> {
        self.commit(&[], 1).map(|committed| committed.first_token)
    }

    /// Stores a checkpoint, which [`stored_checkpoint`](Self::stored_checkpoint) gives back.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn checkpoint(&mut self, checkpoint: Checkpoint) -> Result<Committed, CommitError> {
        let mut bytes = [0; 8 + NONCE_BYTES];
        let fields = checkpoint.number.to_le_bytes().into_iter().chain(checkpoint.nonce);
        bytes.iter_mut().zip(fields).for_each(|(slot, byte)| *slot = byte);
        self.commit_any(
            &[Record {
                key: KEY_CHECKPOINT,
                value: &bytes,
            }],
            0,
        )
    }

    /// Lifts the counter: the next token lies above `floor`. Never lowers it.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn lift(&mut self, floor: u64) -> Result<(), CommitError> {
        if self.phase != Phase::Open {
            return Err(Refused::Closed.into());
        }
        if floor > TOKEN_MAX {
            return Err(Refused::TokenExhausted.into());
        }
        if floor > self.head.limit {
            self.write_batch(&[], Some(floor))?;
        }
        self.head.token = self.head.token.max(floor);
        Ok(())
    }

    fn commit_any(&mut self, records: &[Record<'_>], tokens: u32) -> Result<Committed, CommitError> {
        if self.phase != Phase::Open {
            return Err(Refused::Closed.into());
        }
        let last_token = self.head.token.saturating_add(tokens.into());
        if last_token > TOKEN_MAX {
            return Err(Refused::TokenExhausted.into());
        }
        let first_token = self.head.token.saturating_add(1);
        let limit = (last_token > self.head.limit).then(|| {
            let ahead = u64::from(self.block.saturating_sub(1));
            last_token.saturating_add(ahead).min(TOKEN_MAX)
        });
        if !records.is_empty() || limit.is_some() {
            // A single record, too, must fit into a frame with a state, where it has its key and length.
            if Self::batch_len(records, limit) > self.batch_bytes_max() {
                return Err(Refused::TooLarge.into());
            }
            self.write_batch(records, limit)?;
            records.iter().for_each(|record| self.note(record));
        }
        self.head.token = last_token;
        Ok(Committed {
            sequence: self.head.sequence,
            first_token,
        })
    }

    /// Records the newest place of a record that was just written.
    fn note(&mut self, record: &Record<'_>) {
        let place = self.last_place;
        if record.key == KEY_CHECKPOINT {
            self.checkpoint_at = place;
        } else if let Some(slot) = self.index.get_mut(usize::from(record.key)) {
            *slot = if record.value.is_empty() { 0 } else { place };
        }
    }

    fn write_batch(&mut self, records: &[Record<'_>], limit: Option<u64>) -> Result<(), CommitError> {
        let payload = Self::payload_len(records, limit);
        let units = (payload + OVERHEAD_BYTES).div_ceil(Self::UNIT) + 1;
        // Used slots can make a page shorter than it looked.
        for _ in 0..self.region.pages() {
            self.make_room(units)?;
            let key = self.encode_batch(records, limit);
            match self.write_sealed(payload, key) {
                Wrote::Done { place, .. } => {
                    self.last_place = place;
                    self.head.limit = limit.unwrap_or(self.head.limit);
                    return Ok(());
                }
                Wrote::NoRoom => {}
                Wrote::Failed => return Err(Refused::Worn.into()),
                Wrote::Unknown => return Err(CommitError::Unknown),
            }
        }
        Err(Refused::Full.into())
    }

    /// Bytes of the payload: a single record needs no key and length of its own.
    fn payload_len(records: &[Record<'_>], limit: Option<u64>) -> usize {
        match (records, limit) {
            ([only], None) if !only.value.is_empty() => only.value.len(),
            ([], Some(limit)) => frame::varint_len(limit),
            (_, limit) => Self::batch_len(records, limit),
        }
    }

    /// Bytes of the payload when each record has its key and length.
    fn batch_len(records: &[Record<'_>], limit: Option<u64>) -> usize {
        let lens = records.iter().map(|record| record.value.len());
        lens.chain(limit.map(frame::varint_len))
            .fold(0usize, |sum, len| sum.saturating_add(frame::record_len(len)))
    }

    /// Puts the payload into the buffer `frame` and gives the key for its header.
    fn encode_batch(&mut self, records: &[Record<'_>], limit: Option<u64>) -> u8 {
        let mut out = Writer::new(&mut self.frame, HEADER_BYTES);
        match (records, limit) {
            ([only], None) if !only.value.is_empty() => {
                out.bytes(only.value);
                only.key
            }
            ([], Some(limit)) => {
                frame::put_varint(limit, &mut out);
                KEY_LIMIT
            }
            (_, limit) => {
                if let Some(limit) = limit {
                    out.byte(KEY_LIMIT);
                    out.byte(frame::varint_len(limit) as u8);
                    frame::put_varint(limit, &mut out);
                }
                records.iter().for_each(|record| out.record(record.key, record.value));
                KEY_BATCH
            }
        }
    }

    /// Seals the payload in the buffer `frame` and writes it at the head, which moves on.
    pub(super) fn write_sealed(&mut self, payload: usize, key: u8) -> Wrote {
        let sequence = self.head.sequence.saturating_add(1);
        let seed = self.seed(self.head.page);
        let sealed = frame::seal(&mut self.frame, payload, key, sequence, seed, Self::UNIT);
        let Some((whole, sum)) = sealed else {
            return Wrote::Failed;
        };
        let header = self.frame.first_chunk::<HEADER_BYTES>();
        let Some(header) = header.and_then(|bytes| Header::decode(*bytes)) else {
            return Wrote::Failed;
        };
        let wrote = self.write_slots(whole, header);
        match wrote {
            Wrote::Done { .. } => {
                self.last_units = whole / Self::UNIT + 1;
                self.head.sequence = sequence;
                self.head.chain = chained(self.head.chain, sum);
            }
            Wrote::Unknown => self.phase = Phase::Closed,
            Wrote::Failed | Wrote::NoRoom => {}
        }
        wrote
    }

    /// Tries up to two slots (J5).
    fn write_slots(&mut self, whole: usize, header: Header) -> Wrote {
        let page = self.head.page;
        let units = whole / Self::UNIT;
        let mut failed = [None; ATTEMPTS];
        for attempt in &mut failed {
            let Some(unit) = self.blank_slot(units + 1) else {
                break;
            };
            let Some(body) = self.frame.get(..whole) else {
                break;
            };
            self.head.unit = unit + units + 1;
            if self.region.program(page, unit, body) && self.region.holds(page, unit, body) {
                if P::MARK && !self.region.zero(page, unit + units) {
                    return Wrote::Unknown;
                }
                return Wrote::Done {
                    place: Self::place(page, unit),
                    header,
                };
            }
            *attempt = Some(unit);
        }
        // A body that the driver calls failed may be good all the same, now or later. It is burned.
        let burn = |unit: usize| Self::UNIT <= SMALL_UNIT_BYTES && self.region.zero(page, unit + 1);
        if !failed.into_iter().flatten().all(burn) {
            Wrote::Unknown
        } else if failed.iter().all(Option::is_some) {
            Wrote::Failed
        } else {
            Wrote::NoRoom
        }
    }

    /// The next slot of `units` blank units (J5).
    fn blank_slot(&mut self, units: usize) -> Option<usize> {
        let page = self.head.page;
        while self.head.unit + units <= Self::PAGE_UNITS {
            let from = self.head.unit;
            match self.region.first_used(page, from, from + units) {
                None => return Some(from),
                Some(used) => self.head.unit = used + 1,
            }
        }
        None
    }
}
