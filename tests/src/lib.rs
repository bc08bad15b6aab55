//! How keyfence is proved.
//!
//! [`kit`] has the contract as scenarios, [`model`] every interleaving of a few calls, [`storm`] real processes. [`flash`]
//! is the chip that every flash test runs on, and [`powercut`] cuts its power.

pub mod bench;
pub mod boards;
pub mod clauses;
pub mod emulator;
pub mod faults;
pub mod flash;
pub mod kit;
pub mod model;
pub mod powercut;
pub mod random;
pub mod storm;
