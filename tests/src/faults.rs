//! Disks that fail and machines that lose power, under the real ledger.
//!
//! 1. [`disk`]: what a watched folder's disk does and remembers: the plan of faults and the log of I/O.
//! 2. [`vfs`]: the SQLite VFS that asks it.
//! 3. [`images`]: what may lie on a disk after a power cut, rebuilt from the log.

pub mod disk;
pub mod images;
pub mod vfs;
