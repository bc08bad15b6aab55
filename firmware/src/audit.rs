//! The audit ring: the last refusals of stale and foreign tokens, in a region of their own by `sequential-storage`'s queue.
//!
//! A refusal that is not written weakens nothing: the fence has refused already. So the ring may be lost, formats itself when
//! it cannot be read, and says so; and a client that is refused a thousand times a second does not wear the flash out:
//!
//! - **A1. At most one record a minute for each client and reason.** The others are counted in RAM, and the next record of
//!   the same client and reason says how many it stands for.
//! - **A2. At most [`KINDS_MAX`] pairs of client and reason are told apart within a minute.** Refusals of further ones are
//!   counted together, and the next record of anybody says how many they were.
//! - **A3. Counts that are not written yet are lost with the power.**

use core::ops::Range;

use embedded_storage::nor_flash::NorFlash;
use keyfence_core::refusal::RefusedCall;
use keyfence_core::{Name, Reason, TimeMs, Token};
use sequential_storage::Error;
use sequential_storage::cache::{Cache, Uncached};
use sequential_storage::queue::{QueueConfig, QueueStorage};

pub use crate::blocking::{Answer, RegionError};
use crate::blocking::{Blocking, check, on_region, wait};
use crate::store::NAME_BYTES_MAX;

/// A client and reason that was written is not written again for this long.
pub const QUIET_MS: u64 = 60_000;
/// Pairs of client and reason that are told apart within a minute (A2).
pub const KINDS_MAX: usize = 16;
/// The queue erases a page to make room, so it has at least two.
const PAGES_MIN: usize = 2;
/// The version of a record; records of another one are skipped.
const VERSION: u8 = 1;
/// The longest name of a reason.
const REASON_BYTES_MAX: usize = 32;
/// The longest record.
const RECORD_BYTES_MAX: usize = 36 + REASON_BYTES_MAX + NAME_BYTES_MAX;
/// A record as it lies on the flash, and the padding of the largest unit.
const BUFFER_BYTES: usize = RECORD_BYTES_MAX + 64;

type Bytes = heapless::Vec<u8, RECORD_BYTES_MAX>;
type Queue<'a, F> = QueueStorage<Blocking<'a, F>, Cache<Uncached, Uncached, Uncached>>;

/// What became of a refusal.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It is on the flash.
    Written,
    /// It was counted in RAM; a later record tells.
    Counted,
}

/// One record of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The boot.
    pub boot: u32,
    /// When, since that boot.
    pub at: TimeMs,
    /// Which client.
    pub client: u8,
    /// Why it was refused.
    pub reason: Reason,
    /// How many refusals of this client for this reason it stands for, itself included.
    pub count: u32,
    /// How many refusals before it were of pairs that were not told apart (A2).
    pub others: u32,
    /// What the last of them was about. A name that is longer than a kiosk keeps is cut off.
    pub subject: Name,
    /// The token that the last of them presented.
    pub presented: Token,
    /// Whether that token lies above everything minted there.
    pub never_issued: bool,
}

/// What a reading of the ring has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Records shown.
    pub shown: u32,
    /// Records skipped: of another version, or with a reason that this firmware does not know.
    pub skipped: u32,
}

#[derive(Debug, Clone, Copy)]
struct Kind {
    client: u8,
    reason: Reason,
    /// When a record of it was last tried to be written.
    tried_at: TimeMs,
    /// Refusals since then.
    pending: u32,
}

/// The ring's region, and what is counted in RAM.
#[derive(Debug)]
pub struct Audit {
    range: Range<u32>,
    kinds: heapless::Vec<Kind, KINDS_MAX>,
    others: u32,
}

impl Audit {
    /// The ring in `range`: at least two whole pages that nothing else uses.
    #[must_use]
    pub const fn new(range: Range<u32>) -> Self {
        Self {
            range,
            kinds: heapless::Vec::new(),
            others: 0,
        }
    }

    /// Notes a refusal of `client` in this boot. When this returns [`Noted::Written`] it is on the flash; interrupted, it is
    /// or is not. The oldest records make room.
    ///
    /// # Errors
    ///
    /// When the range is no region, or the driver fails even on a formatted region. The refusal stays counted, and nothing of its
    /// kind is tried again for a minute.
    pub fn note<F: NorFlash>(
        &mut self,
        flash: &mut F,
        boot: u32,
        client: u8,
        call: &RefusedCall,
    ) -> Result<Answer<Noted>, RegionError<F::Error>> {
        if !check(flash, &self.range, PAGES_MIN) {
            return Err(RegionError::Range);
        }
        let Some(kind) = self.due(client, call) else {
            return Ok(Answer::Kept(Noted::Counted));
        };
        let entry = Entry {
            boot,
            at: call.at,
            client,
            reason: call.reason,
            count: kind.pending,
            others: self.others,
            subject: call.subject.clone(),
            presented: call.presented,
            never_issued: call.never_issued,
        };
        let bytes = entry.encode().ok_or(RegionError::TooLong)?;
        let pushed = on_region(flash, &self.range, |flash| {
            wait(Self::queue(flash, &self.range)?.push(&bytes, true))
        })?;
        self.others = 0;
        if let Some(kind) = self.kind_mut(client, call.reason) {
            kind.pending = 0;
        }
        Ok(pushed.map(|()| Noted::Written))
    }

    /// Shows every record, the oldest first. Reading twice first makes sure that the ring can be read to its end.
    ///
    /// # Errors
    ///
    /// As [`note`](Self::note).
    pub fn read<F: NorFlash>(
        &self,
        flash: &mut F,
        mut see: impl FnMut(&Entry),
    ) -> Result<Answer<Listed>, RegionError<F::Error>> {
        if !check(flash, &self.range, PAGES_MIN) {
            return Err(RegionError::Range);
        }
        let readable = on_region(flash, &self.range, |flash| Self::walk(flash, &self.range, &mut |_| ()))?;
        let shown = Self::walk(flash, &self.range, &mut see).map_err(|_| RegionError::Flash(None))?;
        Ok(readable.map(|_| shown))
    }

    /// Counts a refusal; gives its kind when it is to be written now (A1, A2).
    fn due(&mut self, client: u8, call: &RefusedCall) -> Option<Kind> {
        let now = call.at;
        if let Some(kind) = self.kind_mut(client, call.reason) {
            kind.pending = kind.pending.saturating_add(1);
            if is_quiet(kind, now) {
                return None;
            }
            kind.tried_at = now;
            return Some(*kind);
        }
        let fresh = Kind {
            client,
            reason: call.reason,
            tried_at: now,
            pending: 1,
        };
        if self.kinds.push(fresh).is_ok() {
            return Some(fresh);
        }
        // The place of one that may be written again is free; what it has counted goes to the others.
        let Some(old) = self.kinds.iter_mut().find(|kind| !is_quiet(kind, now)) else {
            self.others = self.others.saturating_add(1);
            return None;
        };
        let left = old.pending;
        *old = fresh;
        self.others = self.others.saturating_add(left);
        Some(fresh)
    }

    fn kind_mut(&mut self, client: u8, reason: Reason) -> Option<&mut Kind> {
        self.kinds
            .iter_mut()
            .find(|kind| kind.client == client && kind.reason == reason)
    }

    fn walk<F: NorFlash>(
        flash: &mut F,
        range: &Range<u32>,
        see: &mut dyn FnMut(&Entry),
    ) -> Result<Listed, Error<F::Error>> {
        let mut listed = Listed { shown: 0, skipped: 0 };
        let mut queue = Self::queue(flash, range)?;
        let mut records = wait(queue.iter())?;
        let mut buffer = [0; BUFFER_BYTES];
        while let Some(record) = wait(records.next(&mut buffer))? {
            match Entry::decode(&record) {
                Some(entry) => {
                    see(&entry);
                    listed.shown = listed.shown.saturating_add(1);
                }
                None => listed.skipped = listed.skipped.saturating_add(1),
            }
        }
        Ok(listed)
    }

    fn queue<'a, F: NorFlash>(flash: &'a mut F, range: &Range<u32>) -> Result<Queue<'a, F>, Error<F::Error>> {
        let config = QueueConfig::try_new(range.clone()).map_err(|_| Error::ItemTooBig)?;
        Ok(QueueStorage::new(Blocking(flash), config, Cache::new_uncached()))
    }
}

/// Whether the minute of a kind has not passed. A clock that went back has not moved on.
fn is_quiet(kind: &Kind, now: TimeMs) -> bool {
    now.as_ms().saturating_sub(kind.tried_at.as_ms()) < QUIET_MS
}

impl Entry {
    fn encode(&self) -> Option<Bytes> {
        let mut out = Bytes::new();
        let reason = self.reason.name().as_bytes();
        let subject = shortened(self.subject.as_str()).as_bytes();
        let fields: [&[u8]; 9] = [
            &[VERSION, self.client, u8::from(self.never_issued)],
            &self.boot.to_le_bytes(),
            &self.at.as_ms().to_le_bytes(),
            &self.count.to_le_bytes(),
            &self.others.to_le_bytes(),
            &self.presented.get().to_le_bytes(),
            &[u8::try_from(reason.len()).ok()?],
            reason,
            subject,
        ];
        fields.iter().try_for_each(|field| out.extend_from_slice(field)).ok()?;
        Some(out)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version, client, never_issued], rest) = bytes.split_first_chunk()?;
        let (boot, rest) = rest.split_first_chunk()?;
        let (at, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let (others, rest) = rest.split_first_chunk()?;
        let (presented, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first()?;
        let (reason, subject) = rest.split_at_checked(usize::from(*len))?;
        if version != VERSION {
            return None;
        }
        Some(Self {
            boot: u32::from_le_bytes(*boot),
            at: TimeMs::new(u64::from_le_bytes(*at))?,
            client,
            reason: *Reason::ALL.iter().find(|known| known.name().as_bytes() == reason)?,
            count: u32::from_le_bytes(*count),
            others: u32::from_le_bytes(*others),
            subject: Name::new(core::str::from_utf8(subject).ok()?).ok()?,
            presented: Token::presented(u64::from_le_bytes(*presented))?,
            never_issued: never_issued != 0,
        })
    }
}

/// The longest beginning of a name that a kiosk keeps.
fn shortened(name: &str) -> &str {
    let end = (0..=NAME_BYTES_MAX.min(name.len()))
        .rev()
        .find(|end| name.is_char_boundary(*end));
    end.and_then(|end| name.get(..end)).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_room_in_a_record_and_reads_back() {
        for reason in Reason::ALL {
            let entry = Entry {
                boot: u32::MAX,
                at: TimeMs::MAX,
                client: 7,
                reason: *reason,
                count: 3,
                others: u32::MAX,
                subject: Name::new(&"n".repeat(NAME_BYTES_MAX)).unwrap(),
                presented: Token::FIRST,
                never_issued: true,
            };
            assert_eq!(Entry::decode(&entry.encode().unwrap()), Some(entry));
        }
    }

    #[test]
    fn a_name_is_cut_between_two_characters() {
        let name = "ä".repeat(20);
        assert_eq!(shortened(&name), "ä".repeat(16));
        assert_eq!(shortened(&std::format!("x{name}")), std::format!("x{}", "ä".repeat(15)));
    }
}
