//! A gate on a file: for a resource with no ledger of its own.

use std::path::{Path, PathBuf};

use keyfence_core::Decision;
use keyfence_core::gate::{Admitted, Binding, Gate, LedgerCounter};
use keyfence_core::{Name, Token};

use crate::error::Error;

/// Why a gate came to no decision.
pub type GateError = Error;

/// A gate whose mark lives in a file.
#[derive(Debug)]
pub struct FileGate {
    path: PathBuf,
}

impl FileGate {
    /// Names the file; nothing is touched.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `act` under the gate's lock if the token may pass. `counter` is asked under the lock.
    ///
    /// # Errors
    /// [`Error`].
    pub fn admit<R>(
        &self,
        _binding: &Binding,
        _token: Token,
        _counter: impl FnOnce() -> LedgerCounter,
        _act: impl FnOnce(Admitted) -> R,
    ) -> Result<Decision<(Admitted, R)>, Error> {
        Err(crate::error::unavailable())
    }

    /// The gate as it stands; `None` while no file is there.
    ///
    /// # Errors
    /// [`Error`].
    pub fn show(&self) -> Result<Option<Gate>, Error> {
        Err(crate::error::unavailable())
    }

    /// Binds the gate to another claim; its mark starts anew.
    ///
    /// # Errors
    /// [`Error`].
    pub fn rebind(&self, _binding: &Binding) -> Result<(), Error> {
        Err(crate::error::unavailable())
    }

    /// The gate's name: that of its file.
    ///
    /// # Errors
    /// [`Error`].
    pub fn name(&self) -> Result<Name, Error> {
        Err(crate::error::unavailable())
    }
}
