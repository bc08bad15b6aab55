//! Reading a ledger and leaving nothing behind.
//!
//! SQLite's readers of a WAL write beside it: an index that all processes share, and an empty log where there is none.
//! A connection that may write takes both away again when it is the last one to close; one that may not leaves them, with
//! the rights of the ledger's file, in everybody's way. So a reader opens the file for writing where it can, and writes
//! nothing (`query_only`).
//!
//! * **F1.** A file that this process cannot write, and that nobody has a log beside, is *frozen*: it is read as it lies,
//!   without locks and without an index. What was read counts only if it was frozen all the while.
//! * **F2.** A log that others left is left as it is: only a writer copies it into the file.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::location;
use crate::error::Error;

/// A connection that only reads.
pub(crate) struct Reader {
    pub(crate) connection: Connection,
    /// What the file was like, if it is frozen.
    frozen: Option<Frozen>,
}

impl Reader {
    /// A connection that is a reader like others.
    pub(crate) const fn shared(connection: Connection) -> Self {
        Self {
            connection,
            frozen: None,
        }
    }

    /// Opens the file, which must be there. Nothing of it is looked at yet.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] where the last commits lie in a log that this process cannot read without writing.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        if location::bar_to_writing(path).is_some() && !is_there(&beside(path, "-shm")) {
            if let Some(frozen) = Frozen::at(path) {
                let flags =
                    OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                return Ok(Self {
                    connection: Connection::open_with_flags(as_it_lies(path)?, flags)?,
                    frozen: Some(frozen),
                });
            }
            return Err(Error::ReadOnly {
                path: path.to_owned(),
                why: "its last commits lie in the log beside it, which cannot be read without writing there".into(),
            });
        }
        // SQLite opens for reading what it cannot open for writing.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(location::literal(path)?, flags)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(Self::shared(connection))
    }

    /// Runs `look` in one snapshot.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        self.connection.prepare_cached("BEGIN")?.execute([])?;
        let answer = look(&self.connection);
        let ended = self
            .connection
            .prepare_cached("ROLLBACK")
            .and_then(|mut rollback| rollback.execute([]));
        if self.frozen.as_ref().is_some_and(Frozen::has_thawed) {
            // Somebody with more rights writes: what was read may be half of one commit and half of another.
            return Err(Error::Busy {
                holder: None,
                waited: Duration::ZERO,
            });
        }
        match (answer, ended) {
            (Ok(answer), Ok(_)) => Ok(answer),
            (Ok(_), Err(error)) => Err(error.into()),
            (Err(error), _) => Err(error),
        }
    }

    /// The connection, if it can be used again: a frozen file has to be looked at anew each time.
    pub(crate) fn into_shared(self) -> Option<Connection> {
        match self.frozen {
            None => Some(self.connection),
            Some(_) => None,
        }
    }
}

/// What a file was like that nobody is writing.
struct Frozen {
    path: PathBuf,
    length: u64,
    modified: (i64, i64),
}

impl Frozen {
    /// `None` where there is a log or a journal with something in it.
    fn at(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        (!is_filled(&beside(path, "-wal")) && !is_filled(&beside(path, "-journal"))).then(|| Self {
            path: path.to_owned(),
            length: metadata.len(),
            modified: modified(&metadata),
        })
    }

    fn has_thawed(&self) -> bool {
        is_there(&beside(&self.path, "-shm"))
            || Self::at(&self.path).is_none_or(|now| now.length != self.length || now.modified != self.modified)
    }
}

fn modified(metadata: &Metadata) -> (i64, i64) {
    (metadata.mtime(), metadata.mtime_nsec())
}

/// Whether there is a log with something in it.
pub(super) fn has_log(path: &Path) -> bool {
    is_filled(&beside(path, "-wal"))
}

/// The file beside the ledger's whose name ends so.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn is_filled(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
}

/// The URI of a file that is read without locks (<https://sqlite.org/uri.html>).
fn as_it_lies(path: &Path) -> Result<String, Error> {
    let mut uri = String::from("file:");
    for byte in location::literal(path)?.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_path_in_a_uri_is_that_path_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        for name in [&b"a?b=c&d#e"[..], b"50%41", b"zw\xc3\xb6lf", b"byte\xff", b"two words"] {
            let path = folder.path().join(OsStr::from_bytes(name));
            Connection::open(&path)
                .unwrap()
                .execute_batch("PRAGMA user_version = 7")
                .unwrap();
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            let frozen = Connection::open_with_flags(as_it_lies(&path).unwrap(), flags).unwrap();
            let version: i64 = frozen
                .pragma_query_value(None, "user_version", |row| row.get(0))
                .unwrap();
            assert_eq!(version, 7, "{path:?}");
        }
    }
}
