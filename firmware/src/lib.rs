//! The flash ledger of keyfence for microcontrollers: no allocation, no operating system.
//!
//! Read [`journal`] first: the log of frames on NOR flash under everything else. Then [`store`]: the ledger on it, which
//! runs the machines of the core. The bytes on the flash are described in `FORMAT.md`. [`link`] is how a host talks to a
//! kiosk: both ends of it, for kiosks and hosts alike.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod journal;
pub mod link;
pub mod store;
