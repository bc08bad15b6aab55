//! The handle of a ledger.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keyfence_core::{LedgerId, Token};

use crate::call::Call;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;

pub(crate) fn unavailable() -> Error {
    Error::Bug {
        what: "this part is not built yet".into(),
    }
}

/// How a ledger is opened.
#[derive(Clone)]
pub struct Options {
    /// Whether a missing ledger is created, readable and writable by its owner only.
    pub create: bool,
    /// Whether nothing shall be written: no creation, no migration, no call.
    pub read_only: bool,
    /// Whether a file or folder that others may write, a symbolic link or a network file system is accepted.
    pub allow_unsafe_location: bool,
    /// The clock of lease decisions.
    pub clock: Arc<dyn Clock>,
    /// How long a call waits for the ledger's lock unless it says otherwise.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            read_only: false,
            allow_unsafe_location: false,
            clock: Arc::new(SystemClock),
            timeout: Duration::from_secs(5),
        }
    }
}

/// A ledger in an SQLite file. Threads share a handle by reference; many processes share the file.
pub struct Ledger {
    id: LedgerId,
    path: std::path::PathBuf,
}

impl Ledger {
    /// Opens a ledger that owns its file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(_path: &Path, _options: Options) -> Result<Self, Error> {
        Err(unavailable())
    }

    /// Opens a ledger whose tables (prefix `keyfence_`) live in a file of the caller's own.
    ///
    /// # Errors
    /// [`Error`].
    pub fn embedded(_path: &Path, _options: Options) -> Result<Self, Error> {
        Err(unavailable())
    }

    /// The ledger's identity, which a restore keeps.
    #[must_use]
    pub const fn id(&self) -> LedgerId {
        self.id
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One call, with the handle's time-out and without a request id.
    pub const fn call(&self) -> Call<'_> {
        Call::new(self)
    }

    /// The greatest token that was ever minted here; `None` on a new ledger. It is evidence and no authority.
    ///
    /// # Errors
    /// [`Error`].
    pub fn counter(&self) -> Result<Option<Token>, Error> {
        Err(unavailable())
    }
}
