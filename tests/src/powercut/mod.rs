//! Power cuts: a scripted life of a store, cut at every flash operation.
//!
//! Read [`Subject`] first: it is what a store must offer to be put on this bench. [`life`] has the
//! verbs of its life and the rows that they leave, [`Oracle`] says what may be seen after a cut, and
//! [`search`] cuts, mounts and judges.
//!
//! The life is run once without a cut, with every flash operation traced together with the image
//! before it. A cut is then that image with the operation torn, so no part of the life is run twice.

mod aside;
mod bench;
mod case;
pub mod cost;
mod faults;
pub mod html;
pub mod inspect;
pub mod life;
pub mod malformed;
mod oracle;
pub mod report;
mod script;
pub mod search;
#[cfg(test)]
mod search_tests;
pub mod stores;
mod subject;
mod variants;

pub use aside::{stays_inside, traced};
pub use case::{Case, Cut, CutKind, Fault, FaultKind, Path};
pub use oracle::{Oracle, Violation};
pub use subject::{Failure, Mounted, Store, Subject};
pub use variants::{readings, seeded_reading, seeded_tear, tears, turned};
