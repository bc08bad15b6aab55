//! A gate on a file: for a resource with no ledger of its own (a lock, a drawer, a folder, an object store).
//!
//! * **G1.** Only who holds the lock on `<gate>-lock` reads, decides and acts: the check and the act go together.
//! * **G2.** A greater mark is durable before the act: temporary file, fsync, rename, fsync of the folder.
//! * **G3.** A gate whose file is not as it was written admits nobody.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyfence_core::gate::{self, Admit, Admitted, Binding, ClaimKind, Gate, LedgerCounter};
use keyfence_core::{Decision, Name, Token};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::error::Error;
use crate::store::check::Check;
use crate::store::location::{storage, sync_folder_of};
use crate::store::lock::{Deadline, holder};

/// The format of the file.
const FORMAT: u64 = 1;

/// The longest file that is read as a gate, in bytes: a name of 64 bytes, escaped, and the rest.
const FILE_BYTES_MAX: u64 = 4_096;

/// Why a gate came to no decision.
pub type GateError = Error;

/// A gate whose mark lives in a file.
#[derive(Clone, Debug)]
pub struct FileGate {
    path: PathBuf,
    timeout: Duration,
}

impl FileGate {
    /// Names the file; nothing is touched. Calls wait 5 seconds for the gate's lock.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            timeout: Duration::from_secs(5),
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
    /// [`Error::Io`]: the file's name is no name of 1 to 64 bytes of UTF-8 without control characters.
    pub fn name(&self) -> Result<Name, Error> {
        self.path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| Name::new(name).ok())
            .ok_or_else(|| Error::io(&self.path, ErrorKind::InvalidFilename.into()))
    }

    /// Runs `act` under the gate's lock if the token may pass. `counter` is asked under the lock. A token above the mark is
    /// durable as the new mark before `act` begins; if the process dies after that, the mark stays raised.
    ///
    /// # Errors
    /// [`Error::Busy`] when the lock was not free in time; [`Error::Damaged`] when the file is not as it was written;
    /// [`Error::Io`], [`Error::DiskFull`], [`Error::ReadOnly`]. Then `act` did not run. Refuses as [`gate::decide`] does.
    pub fn admit<R>(
        &self,
        binding: &Binding,
        token: Token,
        counter: impl FnOnce() -> LedgerCounter,
        act: impl FnOnce(Admitted) -> R,
    ) -> Result<Decision<(Admitted, R)>, Error> {
        let name = self.name()?;
        let _turn = self.lock()?;
        let row = self.read(&name)?;
        let ask = Admit {
            gate: name,
            binding: binding.clone(),
            token,
            counter: counter(),
        };
        let admitted = match gate::decide(row.as_ref(), &ask) {
            Ok(admitted) => admitted,
            Err(refusal) => return Ok(Err(refusal)),
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
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn show(&self) -> Result<Option<Gate>, Error> {
        self.read(&self.name()?)
    }

    /// Binds the gate to another claim by an operator's act; its mark starts anew. Durable when this returns.
    ///
    /// # Errors
    /// As [`FileGate::admit`]. A damaged gate can be rebound.
    pub fn rebind(&self, binding: &Binding) -> Result<(), Error> {
        let name = self.name()?;
        let _turn = self.lock()?;
        self.write(&Gate {
            name,
            binding: binding.clone(),
            high_water: None,
        })
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(suffix);
        path.into()
    }

    /// Holds the lock until the file is dropped (G1). Unlike a ledger's, this lock decides: without it there is no answer.
    fn lock(&self) -> Result<File, Error> {
        let path = self.beside("-lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| storage(&path, error))?;
        let deadline = Deadline::after(self.timeout);
        let mut pause = Duration::from_millis(1);
        loop {
            match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) if deadline.has_passed() => {
                    return Err(Error::Busy {
                        holder: holder(&path),
                        waited: deadline.waited(),
                    });
                }
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {
                    std::thread::sleep(pause.min(deadline.remaining()));
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
                Err(errno) => return Err(storage(&path, errno.into())),
            }
        }
    }

    fn read(&self, name: &Name) -> Result<Option<Gate>, Error> {
        let metadata = match fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(storage(&self.path, error)),
        };
        let damaged = || Error::Damaged {
            place: format!("the gate {}", self.path.display()),
            why: "it is not as it was written".into(),
        };
        if metadata.len() > FILE_BYTES_MAX {
            return Err(damaged());
        }
        let text = fs::read(&self.path).map_err(|error| storage(&self.path, error))?;
        decode(name, &text).map(Some).ok_or_else(damaged)
    }

    /// Replaces the file (G2).
    fn write(&self, gate: &Gate) -> Result<(), Error> {
        let draft = self.beside("-new");
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| {
                file.write_all(&encode(gate))?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&draft, &self.path));
        written.map_err(|error| storage(&self.path, error))?;
        sync_folder_of(&self.path)
    }
}

/// The check value over everything that the file says.
fn check(gate: &Gate) -> i64 {
    let mut check = Check::new("gate");
    check.bytes(gate.binding.ledger.as_bytes());
    check.text(gate.binding.kind.name());
    check.text(gate.binding.name.as_str());
    check.opt(gate.high_water, |check, token| check.word(token.get()));
    check.finish()
}

fn encode(gate: &Gate) -> Vec<u8> {
    let mut text = json!({
        "keyfence_gate": FORMAT,
        "ledger": gate.binding.ledger.to_string(),
        "kind": gate.binding.kind.name(),
        "name": gate.binding.name.as_str(),
        "high_water": gate.high_water.map(Token::get),
        "check": format!("{:016x}", check(gate)),
    })
    .to_string()
    .into_bytes();
    text.push(b'\n');
    text
}

/// `None` where the bytes are not a gate as it was written (G3).
fn decode(name: &Name, text: &[u8]) -> Option<Gate> {
    let value: Value = serde_json::from_slice(text).ok()?;
    if value.get("keyfence_gate")?.as_u64()? != FORMAT {
        return None;
    }
    let gate = Gate {
        name: name.clone(),
        binding: Binding {
            ledger: value.get("ledger")?.as_str()?.parse().ok()?,
            kind: ClaimKind::from_name(value.get("kind")?.as_str()?)?,
            name: Name::new(value.get("name")?.as_str()?).ok()?,
        },
        high_water: match value.get("high_water")? {
            mark if mark.is_null() => None,
            mark => Some(Token::presented(mark.as_u64()?)?),
        },
    };
    (value.get("check")?.as_str()? == format!("{:016x}", check(&gate))).then_some(gate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyfence_core::{LedgerId, Reason};

    fn token(number: u64) -> Token {
        Token::presented(number).unwrap()
    }

    fn binding(name: &str) -> Binding {
        Binding {
            ledger: LedgerId::from_bytes([3; 16]),
            kind: ClaimKind::Session,
            name: Name::new(name).unwrap(),
        }
    }

    fn gate() -> (tempfile::TempDir, FileGate) {
        let folder = tempfile::tempdir().unwrap();
        let gate = FileGate::at(&folder.path().join("freezer.gate")).timeout(Duration::from_millis(20));
        (folder, gate)
    }

    #[expect(clippy::result_large_err, reason = "a refusal carries its evidence by value")]
    fn try_admit(gate: &FileGate, number: u64) -> Decision<Admitted> {
        let counter = || LedgerCounter::Read(Some(token(50)));
        let decision = gate.admit(&binding("night"), token(number), counter, |_| ()).unwrap();
        decision.map(|(admitted, ())| admitted)
    }

    #[test]
    fn an_older_token_does_not_pass_after_a_newer_one() {
        let (_folder, gate) = gate();
        assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
        assert_eq!(try_admit(&gate, 41), Ok(Admitted::AtMark));
        assert_eq!(try_admit(&gate, 43), Ok(Admitted::Raised));
        let refusal = try_admit(&gate, 41).unwrap_err();
        assert_eq!((refusal.reason, refusal.high_water), (Reason::Fenced, Some(token(43))));
        let refusal = try_admit(&gate, 51).unwrap_err();
        assert!(refusal.never_issued);
        assert_eq!(gate.show().unwrap().unwrap().high_water, Some(token(43)));
    }

    #[test]
    fn another_binding_is_refused_until_the_gate_is_rebound() {
        let (_folder, gate) = gate();
        assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
        let other = || {
            gate.admit(
                &binding("day"),
                token(7),
                || LedgerCounter::Read(Some(token(50))),
                |_| (),
            )
        };
        assert_eq!(other().unwrap().unwrap_err().reason, Reason::GateMismatch);
        gate.rebind(&binding("day")).unwrap();
        assert!(other().unwrap().is_ok());
    }

    #[test]
    fn without_its_ledger_only_the_mark_itself_passes() {
        let (_folder, gate) = gate();
        let blind = |number| gate.admit(&binding("night"), token(number), || LedgerCounter::Unreadable, |_| ());
        assert_eq!(blind(41).unwrap().unwrap_err().reason, Reason::LedgerUnreadable);
        assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
        assert!(blind(41).unwrap().is_ok());
        assert_eq!(blind(42).unwrap().unwrap_err().reason, Reason::LedgerUnreadable);
    }

    #[test]
    fn a_gate_that_was_changed_admits_nobody() {
        let (_folder, gate) = gate();
        assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
        let text = fs::read_to_string(gate.path()).unwrap();
        for broken in [text.replace("41", "40"), text.replace("night", "day"), String::new()] {
            fs::write(gate.path(), broken).unwrap();
            let answer = gate.admit(&binding("night"), token(41), || LedgerCounter::Unreadable, |_| ());
            assert_eq!(answer.unwrap_err().name(), "damaged");
        }
        gate.rebind(&binding("night")).unwrap();
        assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
    }

    #[test]
    fn nobody_passes_while_another_acts() {
        let (_folder, gate) = gate();
        let counter = || LedgerCounter::Read(Some(token(50)));
        let inner = gate.admit(&binding("night"), token(41), counter, |_| {
            gate.admit(&binding("night"), token(42), counter, |_| ())
                .unwrap_err()
                .name()
        });
        assert_eq!(inner.unwrap().unwrap(), (Admitted::Raised, "busy"));
    }
}
