//! Who holds a lock now, where the system tells (`/proc/locks`). It says whom to look at and decides nothing.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::error::LockHolder;
use crate::store::reading::beside;

/// Where in the shared memory's file SQLite locks the right to write a WAL: `UNIX_SHM_BASE + WAL_WRITE_LOCK`, part of its
/// file format ("WAL-mode file format", 2.3).
const WAL_WRITE_LOCK: u64 = 120;

/// The process that keeps writers of this ledger waiting: who has SQLite's lock, else who has the queue's.
pub(super) fn writer(ledger: &Path) -> Option<LockHolder> {
    find(&beside(ledger, "-shm"), |lock| {
        lock.kind == "POSIX" && lock.first <= WAL_WRITE_LOCK && WAL_WRITE_LOCK <= lock.last
    })
    .or_else(|| holder(&beside(ledger, "-lock")))
}

/// The process that has the `flock` of this file.
pub(crate) fn holder(path: &Path) -> Option<LockHolder> {
    find(path, |lock| lock.kind == "FLOCK")
}

/// A lock that is held.
struct Held<'l> {
    kind: &'l str,
    pid: u32,
    file: &'l str,
    first: u64,
    last: u64,
}

/// `1: FLOCK  ADVISORY  WRITE 24915 fe:00:5382432 0 EOF`; a waiter's line has `->` behind the number, and is none.
fn parse(line: &str) -> Option<Held<'_>> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let kind = words.next()?;
    let _advisory = words.next()?;
    if words.next()? != "WRITE" {
        return None;
    }
    Some(Held {
        kind,
        pid: words.next()?.parse().ok()?,
        file: words.next()?,
        first: words.next()?.parse().ok()?,
        last: match words.next()? {
            "EOF" => u64::MAX,
            last => last.parse().ok()?,
        },
    })
}

fn find(path: &Path, is_it: impl Fn(&Held<'_>) -> bool) -> Option<LockHolder> {
    let metadata = std::fs::metadata(path).ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    let pid = locks
        .lines()
        .filter_map(parse)
        .find(|lock| lock.file == file && is_it(lock))?
        .pid;
    let program = std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .ok()
        .map(|name| name.trim_end().to_owned());
    Some(LockHolder { pid, program })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_told_from_a_waiter_and_a_reader() {
        let held = parse("1: POSIX  ADVISORY  WRITE 77 fe:00:53 120 120").unwrap();
        assert_eq!((held.kind, held.pid, held.file), ("POSIX", 77, "fe:00:53"));
        assert_eq!((held.first, held.last), (120, 120));
        assert_eq!(
            parse("2: FLOCK  ADVISORY  WRITE 7 fe:00:5 0 EOF").unwrap().last,
            u64::MAX
        );
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 78 fe:00:53 0 EOF",
            "3: POSIX  ADVISORY  READ 79 fe:00:53 124 124",
            "4:",
        ] {
            assert!(parse(other).is_none(), "{other}");
        }
    }
}
