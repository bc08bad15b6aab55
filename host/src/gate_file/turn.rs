//! Whose turn it is at a gate (G1).
//!
//! The lock's file is there only while somebody is inside or died there: whoever leaves takes it away, under the lock. So
//! whoever gets the lock looks whether it is still the one of that name, and otherwise queues on the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::GateError;
use super::beside;
use crate::store::location::storage;
use crate::store::lock::{Deadline, holder};

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The right to read, decide and act, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    /// Closed, and so unlocked, after its name is gone.
    _locked: File,
    path: PathBuf,
}

impl Turn {
    /// Waits for the right. Unlike a ledger's, this lock decides: without it there is no answer.
    pub(super) fn wait(gate: &Path, timeout: Duration) -> Result<Self, GateError> {
        let path = beside(gate, "-lock");
        let failed = |error| GateError::place(gate, storage(&path, error));
        let deadline = Deadline::after(timeout);
        let mut pause = Duration::from_millis(1);
        loop {
            let file = open(&path).map_err(failed)?;
            match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_named(&file, &path).map_err(failed)? => return Ok(Self { _locked: file, path }),
                // Whoever was inside has taken this one away.
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) if deadline.has_passed() => {
                    return Err(GateError::Busy {
                        path: gate.to_owned(),
                        holder: holder(&path),
                        waited: deadline.waited(),
                    });
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {
                    std::thread::sleep(pause.min(deadline.remaining()));
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // One that cannot be taken away is in nobody's way: the next one locks it.
        let _: io::Result<()> = fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

/// Whether the file is the one of this name.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
