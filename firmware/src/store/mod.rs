//! The flash ledger: the core's machines on the [`journal`](crate::journal).
//!
//! Read [`Ledger`] first. The modules: `keys` (which record is under which key), `codec` (rows as bytes), `rows` (one
//! codec for each kind of row), `step` (the atomic step), `upkeep` (pruning, requests, contents).
//!
//! # How it keeps its promises
//!
//! * **R1. A step is one frame.** What a step puts is gathered in RAM and committed as one batch of the journal, or not
//!   at all. Reads of the step see it.
//! * **R2. Only what changed is written.** A row is two records: its name and what its maker chose, and its state. A
//!   claim writes the state alone.
//! * **R3. Expiries live in RAM.** No lease outlives the boot, so a renewal changes RAM only. An expiry belongs to the
//!   token that it was granted under; a row whose token has none is of an earlier boot.
//! * **R4. Rows stay in flash.** RAM has sixteen bytes a row: a hash of the name, the expiry. A row is read when it is
//!   asked for, with its check sum.
//! * **R5. Room is set aside.** A new row is refused as `full` unless everything that it and all other rows can grow to
//!   has room (J7), so no later call on a row ever is.
//! * **R6. A row that cannot be read as it was written is corruption** and is reported with its place.
//!
//! # What it costs
//!
//! In the default bounds a [`Ledger`] takes about 3 KiB of RAM, and rows as large as they can be take 12 KiB of flash: 7
//! pages of 4 KiB. On fewer pages it holds fewer rows; see [`Ledger::room`].

mod codec;
mod keys;
mod rows;
mod step;
mod upkeep;

use core::fmt;
use core::ops::Range;

use keyfence_core::store::{Corrupt, Failure, Place, Store};
use keyfence_core::{Decision, LedgerId, Name, TimeMs};

use crate::journal::{CommitError, Existing, Journal, Law, MountError, ReadError, Refused, Report, SettleError};
pub use step::FlashStep;
pub use upkeep::{Content, ContentKind, Replay};

/// The longest name that a kiosk keeps, in bytes.
pub const NAME_BYTES_MAX: usize = 32;
/// The longest body or result, in bytes.
pub const BODY_BYTES_MAX: usize = 64;
/// The longest subject, in bytes.
pub const SUBJECT_BYTES_MAX: usize = 32;
/// The longest answer that is kept for a request id, in bytes. Room for one of each client is always set aside.
pub const ANSWER_BYTES_MAX: usize = 74;
/// Clients that can have request ids.
pub const CLIENTS: usize = 8;

/// Where `now` comes from: milliseconds since this boot.
pub trait Clock {
    /// The time now. It may stand still; it does not go back within a boot.
    fn now(&mut self) -> TimeMs;
}

impl<T: FnMut() -> TimeMs> Clock for T {
    fn now(&mut self) -> TimeMs {
        self()
    }
}

/// Why a step of the flash ledger came to no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A name is longer than [`NAME_BYTES_MAX`].
    NameTooLong,
    /// A body, a result, a subject or an answer is longer than it may be.
    ContentTooLong,
    /// The step writes more than one frame holds.
    TooMuch,
    /// The journal refused.
    Refused(Refused),
    /// The journal's outcome is not known. The ledger is mounted again by the next call.
    Unknown,
    /// The ledger could not be mounted.
    Mount(MountError),
    /// The ledger could not be settled.
    Settle(SettleError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameTooLong => f.write_str("a name is longer than this ledger keeps"),
            Self::ContentTooLong => f.write_str("a body, subject, result or answer is longer than this ledger keeps"),
            Self::TooMuch => f.write_str("the step writes more than one frame holds"),
            Self::Refused(refused) => write!(f, "the journal refused: {refused:?}"),
            Self::Unknown => f.write_str("the journal does not know what became of it"),
            Self::Mount(error) => write!(f, "the journal was not mounted: {error:?}"),
            Self::Settle(error) => write!(f, "the journal was not settled: {error:?}"),
        }
    }
}

impl core::error::Error for Error {}

/// What RAM has of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    used: bool,
    /// A hash of the name.
    hash: u16,
    /// The low bits of the token that `expires_at_ms` belongs to.
    token: u32,
    /// 0 for none.
    expires_at_ms: u64,
}

/// A ledger on flash.
///
/// `F` is the flash driver, `C` the clock. The numbers are how many rows of each kind it holds; then come the most pages
/// of its region, the keys of its journal (at least [`FlashStep::KEYS_NEEDED`], tested when it is compiled) and the
/// bytes of the largest frame.
///
/// ```
/// use keyfence_core::{TimeMs, store::Store};
/// use keyfence_firmware::journal::Existing;
/// use keyfence_firmware::store::Ledger;
/// # use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash};
/// # struct Ram([u8; 32768]);
/// # impl ErrorType for Ram { type Error = NorFlashErrorKind; }
/// # impl ReadNorFlash for Ram {
/// #     const READ_SIZE: usize = 1;
/// #     fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), Self::Error> {
/// #         bytes.copy_from_slice(&self.0[at as usize..at as usize + bytes.len()]); Ok(())
/// #     }
/// #     fn capacity(&self) -> usize { self.0.len() }
/// # }
/// # impl NorFlash for Ram {
/// #     const WRITE_SIZE: usize = 4;
/// #     const ERASE_SIZE: usize = 4096;
/// #     fn erase(&mut self, from: u32, to: u32) -> Result<(), Self::Error> {
/// #         self.0[from as usize..to as usize].fill(0xff); Ok(())
/// #     }
/// #     fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Self::Error> {
/// #         self.0[at as usize..].iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte); Ok(())
/// #     }
/// # }
/// # let flash = Ram([0xff; 32768]);
/// let clock = || TimeMs::ZERO;
/// let mut ledger: Ledger<_, _> = Ledger::new(flash, 0..32768, clock);
/// let id = keyfence_core::LedgerId::from_bytes([7; 16]);
/// ledger.provision(id, 1, 0, Existing::Refuse).unwrap();
/// let purpose = keyfence_core::Name::new("till").unwrap();
/// let token = ledger.step(|step, now| keyfence_core::counter::mint_for(step, &purpose, now)).unwrap().unwrap();
/// assert_eq!(token.get(), 1);
/// ```
pub struct Ledger<
    F,
    C,
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
    clock: C,
    step: FlashStep<F, ACTORS, ASSIGNMENTS, MESSAGES, HOSTS, SESSIONS, GATES, PAGES, KEYS, FRAME, P>,
}

/// Writes an `impl` for a ledger or a step of any bounds.
macro_rules! for_all_bounds {
    ($type:ident<$($extra:ident: $bound:path),*> $(as $of:path)? { $($body:tt)* }) => {
        impl<
            F: embedded_storage::nor_flash::NorFlash,
            $($extra: $bound,)*
            P: crate::journal::Policy,
            const ACTORS: usize,
            const ASSIGNMENTS: usize,
            const MESSAGES: usize,
            const HOSTS: usize,
            const SESSIONS: usize,
            const GATES: usize,
            const PAGES: usize,
            const KEYS: usize,
            const FRAME: usize,
        > $($of for)? $type<
            F, $($extra,)* ACTORS, ASSIGNMENTS, MESSAGES, HOSTS, SESSIONS, GATES, PAGES, KEYS, FRAME, P,
        > {
            $($body)*
        }
    };
}
use for_all_bounds;

/// Tokens reserved at a time.
const BLOCK: u32 = 64;

for_all_bounds! { Ledger<C: Clock> {
    /// A ledger on `range` of `flash`; nothing is read yet. Call [`power_up`](Self::power_up). Tokens are reserved 64 at
    /// a time.
    pub fn new(flash: F, range: Range<u32>, clock: C) -> Self {
        Self::reserving(BLOCK, flash, range, clock)
    }

    /// A ledger that reserves `block` tokens at a time (J8): a claim that finds none reserved writes a few bytes more, and
    /// every mount jumps over those that are left. With 1 there are no gaps.
    pub fn reserving(block: u32, flash: F, range: Range<u32>, clock: C) -> Self {
        Self { clock, step: FlashStep::new(Journal::new(flash, range, block)) }
    }

    /// Reads the region and opens the ledger after a power-up: every claim counts as lapsed. Tokens go on above `floor`,
    /// the highest one that anybody remembers (0 for none).
    ///
    /// # Errors
    ///
    /// As the journal's `mount` and `settle`; and [`Error::Mount`] with [`MountError::Unprovisioned`] when the
    /// provisioning was cut off.
    pub fn power_up(&mut self, floor: u64) -> Result<Report, Failure<Error>> {
        self.step.forget_expiries();
        Ok(self.step.open(floor)?)
    }

    /// Reads the region again within the same power-up, as every step does by itself after an outcome that is not known.
    /// Expiries stay.
    ///
    /// # Errors
    ///
    /// As [`power_up`](Self::power_up).
    pub fn remount(&mut self) -> Result<Report, Failure<Error>> {
        Ok(self.step.open(0)?)
    }

    /// Makes a new ledger and opens it. Says no to a region that is not blank unless told to replace it, and then tokens
    /// begin above `floor`.
    ///
    /// # Errors
    ///
    /// As the journal's `provision`.
    pub fn provision(
        &mut self,
        id: LedgerId,
        instance: u32,
        floor: u64,
        existing: Existing,
    ) -> Result<Report, Failure<Error>> {
        let provisioned = self.step.journal.provision(instance, floor, existing);
        provisioned.map_err(|error| Failure::Store(Error::Settle(error)))?;
        self.step.forget_expiries();
        self.step.create(id)?;
        Ok(self.step.open(floor)?)
    }

    /// Which ledger this is.
    #[must_use]
    pub const fn id(&self) -> LedgerId {
        self.step.id
    }

    /// How things stand; `None` while nothing is mounted.
    pub fn report(&self) -> Option<Report> {
        self.step.journal.report()
    }

    /// The journal underneath: for its checkpoint and its upkeep.
    pub const fn journal(&mut self) -> &mut Journal<F, PAGES, KEYS, FRAME, P> {
        &mut self.step.journal
    }

    /// The clock.
    pub const fn clock(&mut self) -> &mut C {
        &mut self.clock
    }

    /// Bytes that are set aside for the rows there are, and bytes that there are in all (R5).
    #[must_use]
    pub fn room(&self) -> (usize, usize) {
        (self.step.reserved_bytes(), self.step.journal.capacity_bytes())
    }

    /// Reads and changes rows outside of any machine, as one atomic step: for pruning and the like.
    fn upkeep<T>(
        &mut self,
        work: impl FnOnce(
            &mut FlashStep<F, ACTORS, ASSIGNMENTS, MESSAGES, HOSTS, SESSIONS, GATES, PAGES, KEYS, FRAME, P>,
        ) -> Result<T, Trouble>,
    ) -> Result<T, Failure<Error>> {
        self.step.begin()?;
        let worked = work(&mut self.step);
        match worked {
            Ok(value) => Ok(self.step.commit().map(|()| value)?),
            Err(trouble) => {
                self.step.abandon();
                Err(trouble.into())
            }
        }
    }
} }

for_all_bounds! { Ledger<C: Clock> as Store {
    type Error = Error;
    type Step<'a> =
        FlashStep<F, ACTORS, ASSIGNMENTS, MESSAGES, HOSTS, SESSIONS, GATES, PAGES, KEYS, FRAME, P>;

    fn step<T>(
        &mut self,
        mut decide: impl FnMut(&mut Self::Step<'_>, TimeMs) -> Result<Decision<T>, Failure<Error>>,
    ) -> Result<Decision<T>, Failure<Error>> {
        self.step.begin()?;
        let now = self.clock.now();
        match decide(&mut self.step, now) {
            Ok(Ok(value)) => {
                self.step.commit()?;
                Ok(Ok(value))
            }
            Ok(Err(refusal)) => {
                // A refusal mints nothing, and stands even when what is overdue cannot be written.
                self.step.forget_tokens();
                let _ = self.step.commit();
                Ok(Err(refusal))
            }
            Err(failure) => {
                self.step.abandon();
                Err(failure)
            }
        }
    }
} }

/// What goes wrong inside a step: small, so that passing it on costs little code.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Store(Error),
    Unknown(Error),
    Corrupt(Place, &'static str),
}

impl Trouble {
    /// The failure of a call about the row of this name.
    fn about(self, place: Place, key: &Name) -> Failure<Error> {
        match self {
            Self::Corrupt(at, why) if at == place => Failure::Corrupt(Corrupt {
                place,
                key: Some(key.clone()),
                why,
            }),
            Self::Store(_) | Self::Unknown(_) | Self::Corrupt(..) => self.into(),
        }
    }
}

impl From<Trouble> for Failure<Error> {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Store(error) => Self::Store(error),
            Trouble::Unknown(error) => Self::Unknown(error),
            Trouble::Corrupt(place, why) => Self::Corrupt(Corrupt { place, key: None, why }),
        }
    }
}

/// What a journal's refusal to commit means to a step.
const fn not_committed(error: CommitError) -> Trouble {
    match error {
        CommitError::Unknown => Trouble::Unknown(Error::Unknown),
        CommitError::Refused(Refused::Damaged(_)) => {
            Trouble::Corrupt(Place::History, "a committed frame cannot be repaired")
        }
        CommitError::Refused(Refused::TooLarge) => Trouble::Store(Error::TooMuch),
        CommitError::Refused(refused) => Trouble::Store(Error::Refused(refused)),
    }
}

const fn not_read(place: Place, error: ReadError) -> Trouble {
    match error {
        ReadError::Closed => Trouble::Store(Error::Refused(Refused::Closed)),
        ReadError::Damaged(_) => Trouble::Corrupt(place, "its frame cannot be repaired"),
    }
}

const _: () = assert!(size_of::<Slot>() <= 16);
