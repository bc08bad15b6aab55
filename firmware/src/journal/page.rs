//! Page headers and what is known of each page.

use super::crc::Crc;

/// Bytes of one header copy, before it is padded to whole units.
pub(super) const PAGE_HEADER_BYTES: usize = 24;
const MAGIC: [u8; 3] = *b"KFJ";
/// The version of the format that is written.
pub(super) const VERSION: u8 = 1;
const PADDING: u8 = 0x5a;

/// One copy of a page header. Both copies of a page are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) unit: u8,
    pub(super) index: u8,
    pub(super) pages: u8,
    pub(super) size_log: u8,
    pub(super) generation: u32,
    pub(super) erases: u32,
    pub(super) instance: u32,
}

/// Why a header copy says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoHeader {
    /// It is not one.
    Invalid,
    /// It is one of another version.
    Version(u8),
}

impl PageHeader {
    /// The copy, padded to the length of `out`.
    pub(super) fn encode(&self, out: &mut [u8]) {
        let mut bytes = [0; PAGE_HEADER_BYTES];
        let words = [self.generation, self.erases, self.instance].map(u32::to_le_bytes);
        let fields = MAGIC
            .into_iter()
            .chain([VERSION, self.unit, self.index, self.pages, self.size_log])
            .chain(words.into_iter().flatten());
        bytes.iter_mut().zip(fields).for_each(|(slot, byte)| *slot = byte);
        let (content, sum) = bytes.split_at_mut(PAGE_HEADER_BYTES - 4);
        sum.copy_from_slice(&Crc::new().update(content).finish().to_le_bytes());
        out.fill(PADDING);
        out.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = byte);
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, NoHeader> {
        let (content, rest) = bytes.split_at_checked(PAGE_HEADER_BYTES - 4).ok_or(NoHeader::Invalid)?;
        let sum = Crc::new().update(content).finish().to_le_bytes();
        if rest.get(..4) != Some(&sum) || content.get(..3) != Some(&MAGIC) {
            return Err(NoHeader::Invalid);
        }
        let byte = |at: usize| content.get(at).copied().unwrap_or(0);
        let word = |at: usize| u32::from_le_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)]);
        if byte(3) != VERSION {
            return Err(NoHeader::Version(byte(3)));
        }
        Ok(Self {
            unit: byte(4),
            index: byte(5),
            pages: byte(6),
            size_log: byte(7),
            generation: word(8),
            erases: word(12),
            instance: word(16),
        })
    }
}

/// What a page is to the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageRole {
    /// It counts for nothing and may be erased.
    Retired,
    /// It was erased and has its headers, and no frame in it counts.
    Prepared,
    /// It holds frames that count.
    Live,
    /// An erase or a header of it failed since the mount.
    Failed,
}

/// What is known of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) role: PageRole,
    /// Whether a valid header copy was found or written.
    pub(super) headed: bool,
    /// Whether the second header copy was at least begun.
    pub(super) second_begun: bool,
    /// Whether it was prepared since the mount: then nothing in it can be weak.
    pub(super) fresh: bool,
    pub(super) generation: u32,
    pub(super) erases: u32,
    /// The last unit that is not blank.
    pub(super) last_used: u16,
}

impl Page {
    pub(super) const UNKNOWN: Self = Self {
        role: PageRole::Retired,
        headed: false,
        second_begun: false,
        fresh: false,
        generation: 0,
        erases: 0,
        last_used: 0,
    };
}
