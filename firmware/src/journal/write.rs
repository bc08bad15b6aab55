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
    /// The page has no room; nothing was written.
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
            self.write_batch(&[], Some(floor), frame::varint_len(floor))?;
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
            let payload = self.payload_len(records, limit);
            if payload > self.batch_bytes_max() {
                return Err(Refused::TooLarge.into());
            }
            self.write_batch(records, limit, payload)?;
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

    fn write_batch(&mut self, records: &[Record<'_>], limit: Option<u64>, payload: usize) -> Result<(), CommitError> {
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

    /// Whether a batch is one record that needs no key and length of its own.
    fn is_single(records: &[Record<'_>], limit: Option<u64>) -> bool {
        match records {
            [only] => limit.is_none() && !only.value.is_empty(),
            [] => limit.is_some(),
            [_, _, ..] => false,
        }
    }

    fn payload_len(&self, records: &[Record<'_>], limit: Option<u64>) -> usize {
        let values = records.iter().map(|record| record.value.len());
        let limit_len = limit.map_or(0, frame::varint_len);
        if Self::is_single(records, limit) {
            values.sum::<usize>().saturating_add(limit_len)
        } else {
            let records = values.fold(0usize, |sum, len| sum.saturating_add(frame::record_len(len)));
            records.saturating_add(if limit.is_some() {
                frame::record_len(limit_len)
            } else {
                0
            })
        }
    }

    fn encode_batch(&mut self, records: &[Record<'_>], limit: Option<u64>) -> u8 {
        let mut out = Writer::new(&mut self.frame, HEADER_BYTES);
        if Self::is_single(records, limit) {
            if let Some(limit) = limit {
                frame::put_varint(limit, &mut out);
                return KEY_LIMIT;
            }
            let Some(record) = records.first() else {
                return KEY_BATCH;
            };
            out.bytes(record.value);
            return record.key;
        }
        if let Some(limit) = limit {
            out.byte(KEY_LIMIT);
            out.byte(frame::varint_len(limit) as u8);
            frame::put_varint(limit, &mut out);
        }
        records.iter().for_each(|record| out.record(record.key, record.value));
        KEY_BATCH
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
        let mut attempts = failed.iter().flatten().peekable();
        if attempts.peek().is_none() {
            return Wrote::NoRoom;
        }
        let burned = attempts.all(|unit| Self::UNIT <= SMALL_UNIT_BYTES && self.region.zero(page, unit + 1));
        if burned { Wrote::Failed } else { Wrote::Unknown }
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
