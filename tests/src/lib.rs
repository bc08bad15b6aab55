//! Tests of keyfence that need more than one package: simulated flash and power cuts.
//!
//! Read [`flash`] first: it is the chip that every flash test runs on.

pub mod flash;
pub mod powercut;
pub mod random;
