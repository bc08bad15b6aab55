//! How a kiosk stands, as it says itself.

use keyfence_core::{LedgerId, ProcessId, TimeMs, Token};

use super::wire::{In, Out, Wire, wire_struct, wire_words};

/// Bytes of the journal's region in one answer.
pub const DUMP_BYTES_MAX: usize = 256;
/// Outputs that a kiosk can have.
pub const OUTPUTS_MAX: usize = 4;
/// The longest name of an output, in bytes.
pub const OUTPUT_NAME_BYTES_MAX: usize = 16;

/// Why a kiosk is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its journal is damaged: kept as it is, for whoever looks into it.
    Damaged,
    /// Its journal has the format of a newer version.
    NewerFormat,
    /// The flash failed, and what it says is not known. It is read again by itself.
    Flash,
    /// The journal's region does not suit this image.
    Geometry,
}

impl Why {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::NewerFormat => "newer_format",
            Self::Flash => "flash",
            Self::Geometry => "geometry",
        }
    }
}

/// How a kiosk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has no key, or no ledger.
    Unprovisioned,
    /// Its ledger is not open yet: the first authenticated call opens it.
    Starting,
    /// It answers.
    Ready,
    /// It answers, and has no room for new rows.
    Full,
    /// It reads, and its flash takes no more.
    Worn,
    /// Its ledger is closed.
    Closed(Why),
}

impl State {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unprovisioned => "unprovisioned",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Full => "full",
            Self::Worn => "worn",
            Self::Closed(_) => "closed",
        }
    }

    /// As the one byte of a hello.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Unprovisioned => 0,
            Self::Starting => 1,
            Self::Ready => 2,
            Self::Full => 3,
            Self::Worn => 4,
            Self::Closed(Why::Damaged) => 16,
            Self::Closed(Why::NewerFormat) => 17,
            Self::Closed(Why::Flash) => 18,
            Self::Closed(Why::Geometry) => 19,
        }
    }

    pub(super) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Unprovisioned,
            1 => Self::Starting,
            2 => Self::Ready,
            3 => Self::Full,
            4 => Self::Worn,
            16 => Self::Closed(Why::Damaged),
            17 => Self::Closed(Why::NewerFormat),
            18 => Self::Closed(Why::Flash),
            19 => Self::Closed(Why::Geometry),
            _ => return None,
        })
    }
}

/// How worn the journal's region is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// Pages of the region.
    pub pages: u8,
    /// Pages of it that are out of service.
    pub retired: u8,
    /// The most erases that one page has had.
    pub erases_max: u32,
    /// How many the chip's data sheet promises for a page.
    pub erases_rated: u32,
}

/// An output that follows authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name.
    pub name: heapless::String<OUTPUT_NAME_BYTES_MAX>,
    /// Whether it is on.
    pub is_on: bool,
    /// Until when it stays on unless authority is renewed, on the kiosk's clock.
    pub until: Option<TimeMs>,
}

/// How a kiosk stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// How it is.
    pub state: State,
    /// Which ledger it keeps.
    pub ledger: Option<LedgerId>,
    /// The number of this boot.
    pub boot: u32,
    /// The process identity of this boot.
    pub boot_id: ProcessId,
    /// The kiosk's clock: milliseconds since this boot.
    pub now: TimeMs,
    /// The highest token that was minted.
    pub last_token: Option<Token>,
    /// No token above this one was ever handed out.
    pub limit: u64,
    /// The sequence number of the last commit.
    pub sequence: u64,
    /// A sum over all commits: differs between histories that parted.
    pub chain: u32,
    /// The instance that the region was provisioned as.
    pub instance: u32,
    /// Commits in which flipped bits were put right.
    pub repaired: u16,
    /// Bytes that are set aside for the rows there are.
    pub room_used: u32,
    /// Bytes for rows in all.
    pub room_total: u32,
    /// How worn the flash is.
    pub wear: Wear,
    /// Frames that were not authentic, since this boot.
    pub rejected: u32,
    /// The outputs.
    pub outputs: heapless::Vec<Output, OUTPUTS_MAX>,
}

/// A piece of the journal's region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// Bytes of the region in all.
    pub total: u32,
    /// The bytes from the offset that was asked for; fewer than [`DUMP_BYTES_MAX`] only at the region's end.
    pub bytes: heapless::Vec<u8, DUMP_BYTES_MAX>,
}

wire_struct!(Wear {
    pages,
    retired,
    erases_max,
    erases_rated
});
wire_struct!(Output { name, is_on, until });
wire_struct!(Info {
    state,
    ledger,
    boot,
    boot_id,
    now,
    last_token,
    limit,
    sequence,
    chain,
    instance,
    repaired,
    room_used,
    room_total,
    wear,
    rejected,
    outputs,
});
wire_struct!(Dump { total, bytes });
wire_words!(Why { 0 => Damaged, 1 => NewerFormat, 2 => Flash, 3 => Geometry });

impl Wire for State {
    fn put(&self, out: &mut Out<'_>) {
        out.number(self.code().into());
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        Self::from_code(u8::take(from)?)
    }
}

impl<const N: usize> Wire for heapless::Vec<Output, N> {
    fn put(&self, out: &mut Out<'_>) {
        out.array(self.len() as u64);
        self.iter().for_each(|output| output.put(out));
    }
    fn take(from: &mut In<'_>) -> Option<Self> {
        let mut outputs = Self::new();
        for _ in 0..from.array()? {
            outputs.push(Wire::take(from)?).ok()?;
        }
        Some(outputs)
    }
}
