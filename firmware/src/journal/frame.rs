//! The bytes of a frame: header, records, state, check sum, mask. `FORMAT.md` has the tables.

use super::crc::Crc;

/// The frame header.
pub(super) const HEADER_BYTES: usize = 4;
/// Header and check sum.
pub(super) const OVERHEAD_BYTES: usize = 8;
/// No frame body is longer (see the module `crc`).
pub(super) const BODY_BYTES_MAX: usize = 1012;
/// The state in an absolute frame is never longer, its length byte included.
pub(super) const STATE_BYTES_MAX: usize = 54;
/// What fills the last unit of a body.
const PADDING: u8 = 0x5a;

/// The key under which a header says: several records.
pub(super) const KEY_BATCH: u8 = 0xff;
/// The key under which a header says: a state, then records.
pub(super) const KEY_STATE: u8 = 0xfe;
/// The record that raises the limit of the counter.
pub(super) const KEY_LIMIT: u8 = 0xfd;
/// The record that holds the checkpoint.
pub(super) const KEY_CHECKPOINT: u8 = 0xfc;
/// Keys below this one are the store's.
pub(super) const KEYS_MAX: usize = 0xf0;

/// Little-endian base-128.
pub(super) fn put_varint(mut value: u64, out: &mut Writer<'_>) {
    while value >= 0x80 {
        out.byte(value as u8 | 0x80);
        value >>= 7;
    }
    out.byte(value as u8);
}

pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Bytes that [`put_varint`] writes.
pub(super) const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Fills a buffer; what does not fit is dropped and remembered.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
    overflow: bool,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(buffer: &'a mut [u8], start: usize) -> Self {
        Self {
            buffer,
            len: start,
            overflow: false,
        }
    }

    pub(super) fn byte(&mut self, byte: u8) {
        match self.buffer.get_mut(self.len) {
            Some(slot) => {
                *slot = byte;
                self.len += 1;
            }
            None => self.overflow = true,
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.byte(*byte));
    }

    pub(super) fn record(&mut self, key: u8, bytes: &[u8]) {
        self.byte(key);
        put_varint(bytes.len() as u64, self);
        self.bytes(bytes);
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The bytes written, or `None` when some did not fit.
    pub(super) const fn finish(self) -> Option<usize> {
        if self.overflow { None } else { Some(self.len) }
    }
}

/// Bytes of one record in a batch.
pub(super) const fn record_len(bytes: usize) -> usize {
    1 + varint_len(bytes as u64) + bytes
}

/// A frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the body: header, payload and check sum, without padding.
    pub(super) len: usize,
    /// The low six bits of the sequence number.
    pub(super) sequence: u8,
    /// Every byte behind the header is stored with these bits turned over.
    pub(super) mask: u8,
    /// The key of the only record, or what else the payload is.
    pub(super) key: u8,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER_BYTES] {
        let word = (self.len as u32 & 0x3ff)
            | u32::from(self.sequence & 0x3f) << 10
            | u32::from(self.mask) << 16
            | u32::from(self.key) << 24;
        word.to_le_bytes()
    }

    /// `None` when these bytes begin no frame.
    pub(super) fn decode(bytes: [u8; HEADER_BYTES]) -> Option<Self> {
        let word = u32::from_le_bytes(bytes);
        let header = Self {
            len: (word & 0x3ff) as usize,
            sequence: (word >> 10 & 0x3f) as u8,
            mask: (word >> 16) as u8,
            key: (word >> 24) as u8,
        };
        let valid = header.len > OVERHEAD_BYTES && header.len <= BODY_BYTES_MAX;
        let known = usize::from(header.key) < KEYS_MAX || header.key >= KEY_CHECKPOINT;
        (valid && known).then_some(header)
    }

    /// Bytes of the payload.
    pub(super) const fn payload(self) -> usize {
        self.len.saturating_sub(OVERHEAD_BYTES)
    }
}

/// Seals the body in `frame`, whose payload of `payload` bytes lies behind the place of the header:
/// header, check sum, padding to whole units of `unit` bytes, mask. Returns the bytes to program, or
/// `None` when the frame does not fit or cannot be encoded.
///
/// The mask is chosen such that no unit is nearly all ones or nearly all zeros (J1): then no torn or
/// damaged body has a unit that looks like a mark, and none that looks blank.
pub(super) fn seal(
    frame: &mut [u8],
    payload: usize,
    key: u8,
    sequence: u64,
    seed: Crc,
    unit: usize,
) -> Option<(usize, u32)> {
    let len = payload.checked_add(OVERHEAD_BYTES)?;
    let whole = len.checked_next_multiple_of(unit)?;
    if len > BODY_BYTES_MAX {
        return None;
    }
    let body = frame.get_mut(..whole)?;
    for margin in [5, 3, 1] {
        for mask in 0..=255 {
            let header = Header {
                len,
                sequence: sequence as u8 & 0x3f,
                mask,
                key,
            };
            let encoded = header.encode();
            let sum = {
                let plain = body.get(HEADER_BYTES..HEADER_BYTES + payload)?;
                seed.update(&encoded).update(plain).finish()
            };
            let (head, rest) = body.split_at_mut_checked(HEADER_BYTES)?;
            head.copy_from_slice(&encoded);
            let (_, tail) = rest.split_at_mut_checked(payload)?;
            let (stored, padding) = tail.split_at_mut_checked(4)?;
            stored.copy_from_slice(&sum.to_le_bytes());
            padding.fill(PADDING);
            rest.iter_mut().for_each(|byte| *byte ^= mask);
            if body.chunks(unit).all(|unit| is_mixed(unit, margin)) {
                return Some((whole, sum));
            }
            let rest = body.get_mut(HEADER_BYTES..)?;
            rest.iter_mut().for_each(|byte| *byte ^= mask);
        }
    }
    None
}

fn is_mixed(unit: &[u8], margin: u32) -> bool {
    let ones: u32 = unit.iter().map(|byte| byte.count_ones()).sum();
    let zeros: u32 = unit.iter().map(|byte| byte.count_zeros()).sum();
    ones >= margin && zeros >= margin
}

/// Takes the mask off the body in `frame`.
pub(super) fn unmask(frame: &mut [u8], header: Header) {
    if let Some(rest) = frame.get_mut(HEADER_BYTES..header.len) {
        rest.iter_mut().for_each(|byte| *byte ^= header.mask);
    }
}

/// The check sum of an unmasked body, as computed and as stored.
pub(super) fn sums(frame: &[u8], header: Header, seed: Crc) -> Option<(u32, u32)> {
    let message = frame.get(HEADER_BYTES..header.len.checked_sub(4)?)?;
    let stored = frame.get(header.len - 4..header.len)?;
    let computed = seed.update(&header.encode()).update(message).finish();
    Some((computed, u32::from_le_bytes(stored.try_into().ok()?)))
}

/// What an absolute frame says about the journal. Such a frame can be understood without any frame
/// before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct State {
    /// Whether the frame is a boot frame.
    pub(super) is_boot: bool,
    /// The sequence number of the frame.
    pub(super) sequence: u64,
    /// Frames up to this one must be there; those between it and this frame may have been lost,
    /// since this frame repeats what they said.
    pub(super) base: u64,
    /// The number of the boot.
    pub(super) boot: u32,
    /// The generation of the oldest page that still counts.
    pub(super) low: u32,
    /// The generation of the page before the one that holds this frame; 0 for the first.
    pub(super) previous: u32,
    /// The generation of a page that is erased again before it is used; 0 for none.
    pub(super) distrusted: u32,
    /// No token above this one was handed out.
    pub(super) limit: u64,
    /// The chain value before this frame.
    pub(super) chain: u32,
}

impl State {
    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        let length_at = out.len();
        out.byte(0);
        out.byte(u8::from(self.is_boot));
        out.bytes(&self.chain.to_le_bytes());
        put_varint(self.sequence, out);
        put_varint(self.sequence.saturating_sub(self.base), out);
        put_varint(self.boot.into(), out);
        put_varint(self.low.into(), out);
        put_varint(self.previous.into(), out);
        put_varint(self.distrusted.into(), out);
        put_varint(self.limit, out);
        let len = (out.len() - length_at).saturating_sub(1);
        if let Some(byte) = out.buffer.get_mut(length_at) {
            *byte = len as u8;
        }
    }

    /// The state at the start of `payload`, and the records behind it.
    pub(super) fn decode(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (len, rest) = payload.split_first()?;
        let (mut state, records) = rest.split_at_checked((*len).into())?;
        let (kind, rest) = state.split_first()?;
        let (chain, rest) = rest.split_at_checked(4)?;
        state = rest;
        let narrow = |value: u64| u32::try_from(value).ok();
        let sequence = take_varint(&mut state)?;
        let decoded = Self {
            is_boot: match kind {
                0 => false,
                1 => true,
                _ => return None,
            },
            sequence,
            base: sequence.checked_sub(take_varint(&mut state)?)?,
            boot: narrow(take_varint(&mut state)?)?,
            low: narrow(take_varint(&mut state)?)?,
            previous: narrow(take_varint(&mut state)?)?,
            distrusted: narrow(take_varint(&mut state)?)?,
            limit: take_varint(&mut state)?,
            chain: u32::from_le_bytes(chain.try_into().ok()?),
        };
        state.is_empty().then_some((decoded, records))
    }
}

/// The records of a payload, in order.
#[derive(Debug, Clone)]
pub(super) struct Records<'a> {
    rest: &'a [u8],
    only: Option<u8>,
    pub(super) broken: bool,
}

impl<'a> Records<'a> {
    /// The records in the payload of a frame whose header has `key`.
    pub(super) fn new(key: u8, payload: &'a [u8]) -> Self {
        let none = Self {
            rest: &[],
            only: None,
            broken: false,
        };
        match key {
            KEY_BATCH => Self { rest: payload, ..none },
            KEY_STATE => match State::decode(payload) {
                Some((_, rest)) => Self { rest, ..none },
                None => Self { broken: true, ..none },
            },
            key => Self {
                rest: payload,
                only: Some(key),
                ..none
            },
        }
    }

    /// Bytes behind the last record that was given.
    pub(super) const fn rest_len(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self) -> Option<(u8, &'a [u8])> {
        let (key, mut rest) = self.rest.split_first()?;
        let len = usize::try_from(take_varint(&mut rest)?).ok()?;
        let (bytes, rest) = rest.split_at_checked(len)?;
        self.rest = rest;
        let known = usize::from(*key) < KEYS_MAX || matches!(*key, KEY_LIMIT | KEY_CHECKPOINT);
        known.then_some((*key, bytes))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(key) = self.only.take() {
            return Some((key, core::mem::take(&mut self.rest)));
        }
        if self.rest.is_empty() {
            return None;
        }
        let record = self.take();
        if record.is_none() {
            self.broken = true;
            self.rest = &[];
        }
        record
    }
}
