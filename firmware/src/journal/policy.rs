//! What a test may switch off, to show that its sweep can fail.

/// The safeguards of the journal. A product uses [`Law`] and nothing else; the other choices exist
/// so that a sweep of power cuts can be shown to find what goes wrong without each safeguard.
#[doc(hidden)]
pub trait Policy {
    /// J1: a body counts only with its check sum.
    const CHECKSUM: bool = true;
    /// J2: a frame counts only with its mark; without it every good body does and a bad one never
    /// was.
    const MARK: bool = true;
    /// J3: a mount settles what it has seen before it answers.
    const SETTLE: bool = true;
    /// J4: a page is looked through again before it is erased; without it a mount takes a page turn
    /// that it finds begun for done.
    const RECHECK: bool = true;
}

/// Every safeguard is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {}

impl Policy for Law {}
