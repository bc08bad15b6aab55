//! The flash ledger of keyfence for microcontrollers: no allocation, no operating system.
//!
//! Read [`journal`] first: the log of frames on NOR flash under everything else. Then [`store`]: the ledger on it, which
//! runs the machines of the core. The bytes on the flash are described in `FORMAT.md`. [`link`] is how a host talks to a
//! kiosk: both ends of it, for kiosks and hosts alike. [`kiosk`] is the application around all of them.
//!
//! Beside the ledger's region a kiosk has three more: [`identity`] (who it is; never lost to a power cut), [`settings`] and
//! [`audit`] (which may be lost, and weaken nothing then).
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod audit;
mod blocking;
pub mod identity;
pub mod journal;
pub mod kiosk;
pub mod link;
pub mod settings;
pub mod store;
