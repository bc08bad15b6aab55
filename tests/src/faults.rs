//! Disks that fail and machines that lose power, under the real ledger.
//!
//! 1. [`disk`]: what a watched folder's disk does and remembers: the plan of faults and the log of I/O.
//! 2. [`vfs`]: the SQLite VFS that asks it.
//! 3. [`images`]: what may lie on a disk after a power cut, rebuilt from the log.
//! 4. [`life`]: the scripted life that is led on such disks, and what was told in it. [`account`]: whether the history
//!    agrees with that.
//! 5. [`power`]: real power cuts for a real file system, where that is possible.

pub mod account;
pub mod disk;
pub mod images;
pub mod life;
#[cfg(target_os = "linux")]
pub mod power;
pub mod vfs;

use std::path::Path;

/// A temporary folder for files that a test makes and forgets, in memory where the system offers a disk there.
///
/// # Errors
/// When it cannot be made.
pub fn scratch() -> std::io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let made = memory.is_dir().then(|| tempfile::tempdir_in(memory));
    match made {
        Some(Ok(folder)) => Ok(folder),
        Some(Err(_)) | None => tempfile::tempdir(),
    }
}
