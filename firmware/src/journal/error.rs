//! What can go wrong, sorted by who is to blame.

/// Why the journal cannot run on this flash at all: a mistake of the program, found at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeometryError {
    /// The driver's write, read or erase size is out of range.
    Driver,
    /// The range is not one of whole pages inside the driver's capacity.
    Range,
    /// Fewer than three pages, more than the journal has room for, or too many units.
    Pages,
    /// Too few pages for a new ledger to have room after [`CUTS`](super::CUTS) power cuts in a row.
    Room {
        /// So many are needed.
        pages_min: usize,
    },
    /// A page cannot hold the largest frame.
    Frame,
    /// More keys than a journal can have.
    Keys,
}

/// Why a mount refused. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountError {
    /// The journal cannot run on this flash.
    Geometry(GeometryError),
    /// No ledger was ever provisioned here, or its provisioning was cut off.
    Unprovisioned,
    /// The region holds a format of another version.
    Unsupported {
        /// That version.
        version: u8,
    },
    /// The region is damaged (J6): refused, and left as it is.
    Damaged(Damage),
}

/// Where the region is damaged, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// The page, counted from the start of the region.
    pub page: u8,
    /// The unit in the page.
    pub unit: u16,
    /// What is wrong there.
    pub why: DamageKind,
}

/// Kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageKind {
    /// A committed frame whose body cannot be repaired.
    BadFrame,
    /// Committed frames are missing before this place.
    MissingFrames,
    /// A page with committed frames is missing.
    MissingPage,
    /// A page that belongs to another place of the region.
    MisplacedPage,
    /// A page of another ledger, or an unfinished re-provisioning.
    ForeignPage,
    /// Two pages of the same generation.
    DuplicatePage,
    /// A good frame whose content makes no sense.
    BadContent,
}

/// Why a mounted journal could not be settled, or a region not be provisioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleError {
    /// Nothing is mounted.
    NotMounted,
    /// The journal cannot run on this flash.
    Geometry(GeometryError),
    /// The flash took nothing, or too few pages are left in service.
    Worn,
    /// The outcome is not known: mount again.
    Unknown,
    /// The floor is above the highest token.
    FloorTooHigh,
    /// A ledger is there already; say that it may be replaced, and above which floor.
    Provisioned,
}

/// Why a commit was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitError {
    /// Nothing of it was written, or nothing that counts.
    Refused(Refused),
    /// It may have happened or not. The journal is closed: mount again and look.
    Unknown,
}

/// Why a commit was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The journal is not open: mount and settle it.
    Closed,
    /// The batch does not fit into one frame (J1).
    TooLarge,
    /// A key is out of range or comes twice.
    BadKey,
    /// The counter has reached its end.
    TokenExhausted,
    /// No page has room.
    Full,
    /// The flash refused two slots (J5), or too few pages are left in service.
    Worn,
    /// A committed frame was found damaged (J6).
    Damaged(Damage),
}

impl From<Refused> for CommitError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<GeometryError> for MountError {
    fn from(error: GeometryError) -> Self {
        Self::Geometry(error)
    }
}

impl From<GeometryError> for SettleError {
    fn from(error: GeometryError) -> Self {
        Self::Geometry(error)
    }
}

/// Why a record was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// The journal is not open: mount and settle it.
    Closed,
    /// Its frame is damaged beyond repair (J6).
    Damaged(Damage),
}
