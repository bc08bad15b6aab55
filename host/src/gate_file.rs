//! A gate on a file: for a resource with no ledger of its own (a lock, a drawer, a folder, an object store).
//!
//! * **G1.** Only who holds the lock on `<gate>-lock` reads, decides and acts: the check and the act go together.
//! * **G2.** A greater mark is durable before the act: temporary file, fsync, rename, fsync of the folder.
//! * **G3.** A gate whose file is not as it was written admits nobody.
//! * **G4.** A gate has one name and lies where only its owner writes: through a link it would have two locks and two
//!   marks.
//! * **G5.** Nothing but a gate is ever replaced by one, and a call leaves no file behind but the gate; a killed one may leave
//!   `<gate>-draft`, which the next one replaces.

mod error;
mod format;
mod turn;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyfence_core::gate::{self, Admit, Admitted, Binding, Gate, LedgerCounter};
use keyfence_core::{Name, Refusal, Token};

pub use error::GateError;
use format::{FILE_BYTES_MAX, Unread, decode, encode};
use turn::Turn;

use crate::store::location::{self, storage, sync_folder_of};

/// A gate whose mark lives in a file.
#[derive(Clone, Debug)]
pub struct FileGate {
    path: PathBuf,
    timeout: Duration,
    allow_unsafe_location: bool,
}

/// Why a token did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRefusal {
    /// The refusal, with the gate's mark.
    pub refusal: Box<Refusal>,
    /// What the gate is bound to, if it is.
    pub bound: Option<Binding>,
}

impl FileGate {
    /// Names the file; nothing is touched. Calls wait 5 seconds for the gate's lock.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            timeout: Duration::from_secs(5),
            allow_unsafe_location: false,
        }
    }

    /// Accepts a link, and a file or folder that others may write.
    #[must_use]
    pub fn allow_unsafe_location(self, allow_unsafe_location: bool) -> Self {
        Self {
            allow_unsafe_location,
            ..self
        }
    }

    /// Bounds the wait for the gate's lock.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The gate's name: that of its file.
    ///
    /// # Errors
    /// [`GateError::Name`]: the file's name is no name of 1 to 64 bytes of UTF-8 without control characters.
    pub fn name(&self) -> Result<Name, GateError> {
        self.path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| Name::new(name).ok())
            .ok_or_else(|| GateError::Name {
                path: self.path.clone(),
            })
    }

    /// Runs `act` under the gate's lock if the token may pass. `counter` is asked under the lock. A token above the mark is
    /// durable as the new mark before `act` begins; if the process dies after that, the mark stays raised.
    ///
    /// # Errors
    /// [`GateError`]; then `act` did not run. Refuses as [`gate::decide`] does.
    pub fn admit<R>(
        &self,
        binding: &Binding,
        token: Token,
        counter: impl FnOnce() -> LedgerCounter,
        act: impl FnOnce(Admitted) -> R,
    ) -> Result<Result<(Admitted, R), GateRefusal>, GateError> {
        let name = self.name()?;
        let _turn = self.turn(&name)?;
        let row = self.read(&name)?;
        let ask = Admit {
            gate: name,
            binding: binding.clone(),
            token,
            counter: counter(),
        };
        let admitted = match gate::decide(row.as_ref(), &ask) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                return Ok(Err(GateRefusal {
                    refusal: Box::new(refusal),
                    bound: row.map(|gate| gate.binding),
                }));
            }
        };
        match admitted {
            Admitted::AtMark => {}
            Admitted::Raised => self.write(&gate::raised(&ask))?,
        }
        Ok(Ok((admitted, act(admitted))))
    }

    /// The gate as it stands; `None` while no file is there.
    ///
    /// # Errors
    /// [`GateError::Damaged`], [`GateError::NotAGate`], [`GateError::Place`].
    pub fn show(&self) -> Result<Option<Gate>, GateError> {
        let name = self.name()?;
        self.check_location()?;
        self.read(&name)
    }

    /// Binds the gate to another claim by an operator's act; its mark starts anew. Durable when this returns.
    ///
    /// # Errors
    /// As [`FileGate::admit`]. A damaged gate can be rebound; a file that is no gate is left alone.
    pub fn rebind(&self, binding: &Binding) -> Result<(), GateError> {
        let name = self.name()?;
        let _turn = self.turn(&name)?;
        match self.read(&name) {
            Ok(_) | Err(GateError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
        self.write(&Gate {
            name,
            binding: binding.clone(),
            high_water: None,
        })
    }

    /// Waits for the lock, in a place where that is the only one (G1, G4). The lock's file of what is no gate is none of
    /// ours either (G5).
    fn turn(&self, name: &Name) -> Result<Turn, GateError> {
        self.check_location()?;
        if let Err(error @ GateError::NotAGate { .. }) = self.read(name) {
            return Err(error);
        }
        Turn::wait(&self.path, self.timeout)
    }

    /// Refuses a place where two gates could stand for one (G4).
    fn check_location(&self) -> Result<(), GateError> {
        if self.allow_unsafe_location {
            return Ok(());
        }
        location::check(&self.path).map_err(|error| GateError::place(&self.path, error))
    }

    fn read(&self, name: &Name) -> Result<Option<Gate>, GateError> {
        let failed = |error| GateError::place(&self.path, storage(&self.path, error));
        let other = |why| GateError::NotAGate {
            path: self.path.clone(),
            why,
        };
        match fs::metadata(&self.path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(other("it is no regular file")),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        let mut text = Vec::new();
        File::open(&self.path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text))
            .map_err(failed)?;
        decode(name, &text).map(Some).map_err(|unread| match unread {
            Unread::Damaged => GateError::Damaged {
                path: self.path.clone(),
            },
            Unread::Foreign => other("what it says is not what a gate says"),
        })
    }

    /// Replaces the file (G2).
    fn write(&self, gate: &Gate) -> Result<(), GateError> {
        let draft = beside(&self.path, "-draft");
        let written = write_durably(&draft, &encode(gate)).and_then(|()| fs::rename(&draft, &self.path));
        if let Err(error) = written {
            // What cannot be taken away is replaced by the next call.
            let _: io::Result<()> = fs::remove_file(&draft);
            return Err(GateError::place(&self.path, storage(&self.path, error)));
        }
        sync_folder_of(&self.path).map_err(|error| GateError::place(&self.path, error))
    }
}

/// Makes a file for its owner only, in place of the one that a call left which was killed.
fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn beside(gate: &Path, suffix: &str) -> PathBuf {
    let mut path = gate.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

#[cfg(test)]
mod tests;
