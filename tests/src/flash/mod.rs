//! Simulated NOR flash: what a chip does, what it refuses, and what it holds after the power went.
//!
//! Read [`Geometry`] (the chips), then [`Chip`] (the engine), then [`SimFlash`] (the front that
//! implements `embedded-storage`'s traits). [`Tear`] and [`Reading`] are the ways in which an
//! interrupted operation shows itself afterwards.
//!
//! # The model
//!
//! - **F1** A program only takes bits from 1 to 0: `after = before & data`. An erase makes every bit
//!   of one page 1.
//! - **F2** The chip refuses what its [`WriteRule`] and its alignment forbid. A refusal changes
//!   nothing and is counted as an [`Abuse`] of the chip: a store that earns one has a bug.
//! - **F3** An interrupted program leaves any subset of its bits gone:
//!   `after = before & (data | noise)`. Nothing else in the page changes. The unit of interruption
//!   is [`Geometry::program_size_bytes`]: one write unit, or a 256-byte program page on the RP2040.
//! - **F4** An interrupted erase leaves anything in the page; [`Erased`] lists the shapes.
//! - **F5** Only cells of an interrupted operation are marginal. They have two values, *as left*
//!   and *other*, and [`Reading`] decides at each read which of the two is seen.
//! - **F6** A marginal cell becomes solid when it is programmed to completion (to 0) or its page is
//!   erased to completion. A completed operation on a solid page is solid for ever.
//! - **F7** A page whose erase was interrupted is *half erased* until an erase of it completes:
//!   what is programmed there reads back, and may be gone at a later read.
//! - **F8** On a chip with ECC a unit of an interrupted operation can fault when it is read. Where
//!   the rule is [`WriteRule::OnceOrZeros`], zeros over it heal it; where it is
//!   [`WriteRule::Once`], a second program of a programmed or partly programmed unit makes it
//!   unreadable until the page is erased.
//! - **F9** Once the power is gone every call fails until [`Chip::power_up`]. No call changes
//!   anything in between.
//! - **F10** A driver can lie ([`Lie`]): an error for work that was done, none for work that was
//!   not. A read can fault once. A page can break for good.
//!
//! Interrupted programs do not count towards the number of programs that a rule allows, since no
//! driver can know of them.

mod chip;
mod front;
mod geometry;
mod image;
#[cfg(test)]
mod rules;
mod tear;

pub use chip::{Abuse, Chip, Counters, FlashError, Lie, Plan, Reported, TracedOperation, Work};
pub use front::{SharedChip, SimFlash};
pub use geometry::{GEOMETRIES, Geometry, WriteRule};
pub use image::{Image, Operation, Reading};
pub use tear::{Erased, Gone, Tear};
