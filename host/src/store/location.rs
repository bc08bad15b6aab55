//! Where a ledger may lie, and how its file and folder come into being.
//!
//! Whoever may write the file or its folder is trusted: fencing is against mistakes. So a place that others may write is
//! refused, and so is one where SQLite's locks cannot be relied on.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::error::Error;

/// The folder that a file lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// The path as SQLite has to be given it: what begins with `file:` or is called `:memory:` is a name like any other.
pub(crate) fn literal(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|error| Error::io(path, error))
}

/// Which file it is, whatever it is called. No other file has it for as long as that one is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file that stands at `path`.
    pub(crate) fn at(path: &Path) -> Result<Self, Error> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Self {
                device: metadata.dev(),
                inode: metadata.ino(),
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::LedgerMissing { path: path.to_owned() }),
            Err(error) => Err(storage(path, error)),
        }
    }

    /// Refuses a path where no file stands any more, or another one.
    pub(crate) fn check(self, path: &Path) -> Result<(), Error> {
        if Self::at(path)? == self {
            Ok(())
        } else {
            Err(Error::LedgerReplaced { path: path.to_owned() })
        }
    }
}

/// Makes the folder durable: which files are in it.
pub(crate) fn sync_folder_of(path: &Path) -> Result<(), Error> {
    let folder = folder_of(path);
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| Error::io(folder, error))
}

/// What stands where a ledger is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing.
    Nothing,
    /// A file.
    File,
}

/// What the longest name of a file beside a ledger adds to the ledger's own: the journal of the draft of a restore.
const BESIDE_BYTES: usize = "-restoring-journal".len();
/// The longest name of a file (`NAME_MAX`, `limits.h`).
const NAME_BYTES: usize = 255;
/// The longest path that SQLite opens (`MAX_PATHNAME`, `os_unix.c`).
const PATH_BYTES: usize = 512;

/// Refuses a path that is too long for the files beside it, before anything is made there.
pub(crate) fn check_length(path: &Path) -> Result<(), Error> {
    let name = path.file_name().map_or(0, |name| name.len());
    let whole = literal(path)?.as_os_str().len();
    let (what, bytes, limit) = if name > NAME_BYTES - BESIDE_BYTES {
        ("name", name, NAME_BYTES - BESIDE_BYTES)
    } else if whole > PATH_BYTES - BESIDE_BYTES {
        ("path", whole, PATH_BYTES - BESIDE_BYTES)
    } else {
        return Ok(());
    };
    Err(Error::Misuse {
        what: format!(
            "the {what} of the file {} has {bytes} bytes, and {limit} is the limit",
            path.display()
        ),
    })
}

/// Looks without opening anything.
pub(crate) fn standing(path: &Path) -> Result<Standing, Error> {
    check_length(path)?;
    let other = |why: &str| Error::NotALedger {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    // The name itself first: looked at after its target, it may be a file that another opener has made meanwhile.
    let own = match fs::symlink_metadata(path) {
        Ok(own) => own,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Standing::Nothing),
        Err(error) => return Err(storage(path, error)),
    };
    let metadata = if own.is_symlink() {
        match fs::metadata(path) {
            Ok(target) => target,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(other("it is a symbolic link to nothing"));
            }
            Err(error) => return Err(storage(path, error)),
        }
    } else {
        own
    };
    if metadata.is_file() {
        Ok(Standing::File)
    } else if metadata.is_dir() {
        Err(other("it is a folder"))
    } else {
        Err(other("it is no regular file"))
    }
}

/// What the names of the files beside a ledger or a gate end with: SQLite's, the lock, the drafts of a restore and of a gate.
const BESIDE: [&str; 6] = ["-wal", "-shm", "-journal", "-lock", "-restoring", "-draft"];

/// Whether `path` names the ledger or one of the files beside it, there or not.
pub(crate) fn is_part_of(ledger: &Path, path: &Path) -> bool {
    let folder = |path: &Path| fs::canonicalize(folder_of(path)).ok();
    let (Some(own), Some(name)) = (ledger.file_name(), path.file_name()) else {
        return false;
    };
    let (own, name) = (own.as_encoded_bytes(), name.as_encoded_bytes());
    let named_so = name
        .strip_prefix(own)
        .is_some_and(|rest| rest.is_empty() || BESIDE.iter().any(|suffix| rest == suffix.as_bytes()));
    named_so && folder(ledger).is_some_and(|own| folder(path) == Some(own))
}

/// Whether two paths lead to one file.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Why this process may not write the ledger: its file, or the folder that SQLite keeps its log in.
pub(crate) fn bar_to_writing(path: &Path) -> Option<Error> {
    [path, folder_of(path)].into_iter().find_map(|place| {
        let errno = denied(place, Access::WRITE_OK)?;
        Some(Error::ReadOnly {
            // The working folder by its name: `.` says nothing to who reads this.
            path: std::path::absolute(place).unwrap_or_else(|_| place.to_owned()),
            why: why_denied(place, errno, "write it"),
        })
    })
}

/// Why this process cannot get at the file: rights that it lacks on the way there, for reading or for writing.
fn bar(path: &Path) -> Option<Error> {
    let folder = folder_of(path);
    let no_way_in = denied(folder, Access::EXEC_OK).map(|errno| (folder, errno, "enter it"));
    let obstacle = no_way_in.or_else(|| Some((path, denied(path, Access::READ_OK)?, "read it")));
    match obstacle {
        Some((place, errno, act)) => Some(Error::PermissionDenied {
            path: place.to_owned(),
            why: why_denied(place, errno, act),
        }),
        None => bar_to_writing(path),
    }
}

/// Whether the system denies this process, with the rights that it acts with, access to what is there.
fn denied(place: &Path, access: Access) -> Option<Errno> {
    match accessat(CWD, place, access, AtFlags::EACCESS) {
        Err(errno @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => Some(errno),
        // What is not there denies nothing; what cannot be asked is found out by whoever opens it.
        Ok(()) | Err(_) => None,
    }
}

fn why_denied(place: &Path, errno: Errno, act: &str) -> String {
    match errno {
        Errno::ROFS => "its file system is mounted read-only".into(),
        Errno::PERM => "it is marked as immutable".into(),
        _ => {
            let me = rustix::process::geteuid().as_raw();
            match fs::metadata(place) {
                Ok(metadata) => format!(
                    "user {me} may not {act} (its owner is user {}, its mode {:04o})",
                    metadata.uid(),
                    metadata.mode() & 0o7777
                ),
                Err(_) => format!("user {me} may not {act}"),
            }
        }
    }
}

/// Names an error of SQLite's that it has no words for: it could not open the file or one of those beside it.
pub(crate) fn cannot_open(path: &Path) -> Option<Error> {
    bar(path).or_else(|| {
        let room = rustix::fs::statvfs(folder_of(path)).ok()?;
        let full = room.f_bavail == 0 || (room.f_files > 0 && room.f_favail == 0);
        full.then_some(Error::DiskFull)
    })
}

/// What is wrong with the places of a ledger, worst first; nothing if they are safe.
pub(crate) fn concerns(path: &Path) -> Result<Vec<(PathBuf, String)>, Error> {
    let mut concerns = Vec::new();
    let folder = folder_of(path);
    let mut concern = |place: &Path, why: &str| concerns.push((place.to_owned(), why.to_owned()));
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => concern(path, "it is a symbolic link"),
        Ok(metadata) => {
            if metadata.is_file() && metadata.nlink() > 1 {
                concern(
                    path,
                    "it has more than one name, and SQLite's log only follows one of them",
                );
            }
            if let Some(why) = others_may_write(&metadata) {
                concern(path, why);
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(storage(path, error)),
    }
    match fs::metadata(folder) {
        Ok(metadata) => {
            if let Some(why) = others_may_write(&metadata) {
                concern(folder, why);
            }
            if let Some(why) = network_file_system(folder)? {
                concern(folder, why);
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(storage(folder, error)),
    }
    Ok(concerns)
}

/// Refuses an unsafe place.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    match concerns(path)?.into_iter().next() {
        None => Ok(()),
        Some((path, why)) => Err(Error::UnsafeLocation { path, why }),
    }
}

fn others_may_write(metadata: &Metadata) -> Option<&'static str> {
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != me && metadata.uid() != 0 {
        return Some("it belongs to another user");
    }
    match metadata.mode() & 0o022 {
        0 => None,
        0o020 => Some("its group may write it"),
        _ => Some("others may write it"),
    }
}

/// File systems whose locks and shared memory SQLite cannot rely on (`statfs(2)`, `linux/magic.h`).
#[cfg(target_os = "linux")]
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "it lies on a network file system (NFS)"),
    (0x517b, "it lies on a network file system (SMB)"),
    (0xff53_4d42, "it lies on a network file system (CIFS)"),
    (0xfe53_4d42, "it lies on a network file system (SMB2)"),
    (0x0102_1997, "it lies on a file system of the host (9p)"),
    (0x786f_4256, "it lies on a file system of the host (vboxsf)"),
    (
        0x6573_5546,
        "it lies on a FUSE file system, which may be a network file system",
    ),
    (0x00c3_6400, "it lies on a network file system (Ceph)"),
    (0x5346_414f, "it lies on a network file system (AFS)"),
    (0x7375_7245, "it lies on a network file system (Coda)"),
    (0x0bd0_0bd0, "it lies on a network file system (Lustre)"),
    (0x0116_1970, "it lies on a cluster file system (GFS2)"),
    (0x7461_636f, "it lies on a cluster file system (OCFS2)"),
];

#[cfg(target_os = "linux")]
fn network_file_system(folder: &Path) -> Result<Option<&'static str>, Error> {
    let statfs = rustix::fs::statfs(folder).map_err(|errno| Error::io(folder, errno.into()))?;
    // The kernel's numbers have 32 bits, whatever the width and sign of the field.
    let found = statfs.f_type as u64 & 0xffff_ffff;
    Ok(NETWORK.iter().find(|(magic, _)| *magic == found).map(|(_, why)| *why))
}

/// Other systems do not tell; the doctor says so.
#[cfg(not(target_os = "linux"))]
fn network_file_system(_folder: &Path) -> Result<Option<&'static str>, Error> {
    Ok(None)
}

/// Makes the folder, for the owner only, if it is not there. The folder above it must be.
pub(crate) fn create_folder(path: &Path) -> Result<(), Error> {
    let folder = folder_of(path);
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => sync_folder_of(folder),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(storage(folder, error)),
    }
}

/// Makes an empty file, readable and writable by its owner only; returns whether it was made now. The only time that a
/// ledger's file is opened without SQLite (H7): nobody can have a lock on it yet.
pub(crate) fn create_file(path: &Path) -> Result<bool, Error> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created.and_then(|file| file.sync_all()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(storage(path, error)),
    }
}

/// An error of the operating system, by its name where it has one.
pub(crate) fn storage(path: &Path, error: io::Error) -> Error {
    let kind = error.kind();
    if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
        Error::DiskFull
    } else if matches!(kind, ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) {
        bar(path).unwrap_or_else(|| Error::PermissionDenied {
            path: path.to_owned(),
            why: error.to_string(),
        })
    } else {
        Error::io(path, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_and_a_folder_are_made_for_their_owner_only() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("ledgers/keyfence.db");
        create_folder(&path).unwrap();
        assert!(create_file(&path).unwrap());
        assert!(!create_file(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(folder_of(&path)).unwrap().mode() & 0o777, 0o700);
        assert!(check(&path).is_ok());
    }

    #[test]
    fn a_place_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keyfence.db");
        create_file(&path).unwrap();
        chmod(&path, 0o620);
        assert!(matches!(check(&path), Err(Error::UnsafeLocation { path: at, .. }) if at == path));
        chmod(&path, 0o600);
        chmod(folder.path(), 0o707);
        assert!(matches!(check(&path), Err(Error::UnsafeLocation { path: at, .. }) if at == folder.path()));
        chmod(folder.path(), 0o755);
        assert!(check(&path).is_ok());
    }

    #[test]
    fn a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link, second) = (
            folder.path().join("keyfence.db"),
            folder.path().join("link.db"),
            folder.path().join("second.db"),
        );
        create_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(check(&link), Err(Error::UnsafeLocation { .. })));
        fs::hard_link(&path, &second).unwrap();
        assert!(matches!(check(&path), Err(Error::UnsafeLocation { .. })));
    }

    #[test]
    fn a_file_without_a_folder_lies_in_the_working_folder() {
        assert_eq!(folder_of(Path::new("keyfence.db")), Path::new("."));
    }
}
