//! A kiosk whose flash is a file: started, served to whoever connects, reset, and its power cut.
//!
//! * **S1. One emulator a file.** The file is locked while one runs or is provisioned.
//! * **S2. Kept before it is told.** What the kiosk sends leaves only after the file has what its flash had by then, so a
//!   killed emulator comes back as a kiosk whose power was cut, and never as one that went back.
//! * **S3. One caller at a time** has the port, like that of a serial cable; the next one waits for it.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::machine::Port;
use super::{EmulatorError, FLASH_BYTES, Image, Machine};

/// How long a turn waits for the kiosk to say something.
const TURN: Duration = Duration::from_millis(1);
/// How long somebody at the control socket may take for his line, and the emulator for its answer.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

/// The files of an emulated kiosk: its flash, and the two sockets beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    flash: PathBuf,
}

impl Files {
    /// The kiosk whose flash is kept in this file.
    #[must_use]
    pub fn of(flash: &Path) -> Self {
        Self {
            flash: flash.to_owned(),
        }
    }

    /// The file with the bytes of the whole flash.
    #[must_use]
    pub fn flash(&self) -> &Path {
        &self.flash
    }

    /// The socket that the kiosk's serial port is at while it runs.
    #[must_use]
    pub fn port(&self) -> PathBuf {
        self.beside("port")
    }

    /// The socket that resets and power cuts are asked for at.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.beside("control")
    }

    fn beside(&self, what: &str) -> PathBuf {
        let mut name = self.flash.as_os_str().to_owned();
        name.push(".");
        name.push(what);
        name.into()
    }

    fn failed(&self, source: std::io::Error) -> EmulatorError {
        EmulatorError::File {
            path: self.flash.clone(),
            source,
        }
    }

    /// Opens the flash, blank if there is none, for its owner only, and locks it (S1).
    fn lock(&self) -> Result<(File, Vec<u8>), EmulatorError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.flash);
        let mut file = file.map_err(|error| self.failed(error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(EmulatorError::Running(self.flash.clone())),
            Err(std::fs::TryLockError::Error(error)) => return Err(self.failed(error)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| self.failed(error))?;
        if bytes.is_empty() {
            bytes = vec![0xff; FLASH_BYTES];
        }
        if bytes.len() != FLASH_BYTES {
            return Err(EmulatorError::FlashSize(bytes.len()));
        }
        Ok((file, bytes))
    }

    /// Changes the flash of a kiosk that does not run. Nothing is changed when `work` fails.
    ///
    /// # Errors
    ///
    /// [`EmulatorError::Running`] while an emulator has it; [`EmulatorError::File`]; what `work` fails with.
    pub fn change(&self, work: impl FnOnce(&mut [u8]) -> Result<(), EmulatorError>) -> Result<(), EmulatorError> {
        let (file, mut bytes) = self.lock()?;
        let worked = work(&mut bytes);
        if worked.is_err() {
            // A file that was made for this is not left behind.
            if file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
                let _ = std::fs::remove_file(&self.flash);
            }
            return worked;
        }
        let written = file.write_all_at(&bytes, 0).and_then(|()| file.sync_all());
        written.map_err(|error| self.failed(error))
    }

    /// Asks the emulator that runs on this file for something, and waits until it is done.
    ///
    /// # Errors
    ///
    /// [`EmulatorError::NotRunning`]; [`EmulatorError::Ended`] with what it says when it fails.
    pub fn ask(&self, order: Order) -> Result<(), EmulatorError> {
        let path = self.control();
        let stream = UnixStream::connect(&path).map_err(|_| EmulatorError::NotRunning(self.flash.clone()))?;
        let asked = (|| {
            stream.set_read_timeout(Some(2 * CONTROL_TIMEOUT))?;
            writeln!(&stream, "{}", order.line())?;
            let mut answer = String::new();
            BufReader::new(&stream).read_line(&mut answer)?;
            Ok(answer)
        })();
        let answer = asked.map_err(|source| EmulatorError::Socket {
            socket: "control socket",
            while_doing: order.line(),
            source,
        })?;
        match answer.trim() {
            "ok" => Ok(()),
            other => Err(EmulatorError::Ended(other.to_owned())),
        }
    }
}

/// What a running emulator can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The chip's reset: RAM and flash stay.
    Reset,
    /// The power goes and comes back: the RAM is garbage that this seed decides.
    CutPower(u64),
}

impl Order {
    fn line(self) -> String {
        match self {
            Self::Reset => "reset".to_owned(),
            Self::CutPower(seed) => format!("cut {seed}"),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            None if line == "reset" => Some(Self::Reset),
            Some(("cut", seed)) => seed.parse().ok().map(Self::CutPower),
            None | Some(_) => None,
        }
    }
}

/// Runs the kiosk of `files` until `stop` is set, and calls `started` once its port can be connected to.
///
/// # Errors
///
/// [`EmulatorError`]. What the kiosk has answered is in the file in every case (S2).
pub fn serve(
    image: &Image,
    files: &Files,
    stop: &AtomicBool,
    started: impl FnOnce() -> std::io::Result<()>,
) -> Result<(), EmulatorError> {
    let (file, bytes) = files.lock()?;
    let range = image.identity()?.start..image.journal()?.end;
    let mut machine = Machine::start(image, Some(&bytes))?;
    let mut served = Served {
        kept: machine.memory(range.start, range.len())?,
        at: range.start,
        serial: machine.serial(TURN)?,
        file,
        files,
        caller: None,
    };
    served.keep_all(&mut machine)?;
    let (port, control) = (listen(&files.port())?, listen(&files.control())?);
    machine.run()?;
    started().map_err(|error| files.failed(error))?;
    let mut ended = Ok(());
    while ended.is_ok() && !stop.load(Ordering::Relaxed) {
        ended = served.turn(&mut machine, &port.0, &control.0);
    }
    ended.and_then(|()| served.keep_all(&mut machine))
}

/// A socket that is gone with the emulator.
struct Listening(UnixListener, PathBuf);

impl Drop for Listening {
    fn drop(&mut self) {
        // Somebody who finds it afterwards is told that nobody listens.
        let _ = std::fs::remove_file(&self.1);
    }
}

fn listen(path: &Path) -> Result<Listening, EmulatorError> {
    // Whoever holds the lock of the flash owns the sockets beside it; what is there was left by one that was killed.
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    match listener {
        Ok(listener) => Ok(Listening(listener, path.to_owned())),
        Err(source) => Err(EmulatorError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

struct Served<'f> {
    files: &'f Files,
    file: File,
    /// What the program may write, identity and journal, as the file has it, and where it lies there.
    kept: Vec<u8>,
    at: u32,
    serial: Port,
    caller: Option<UnixStream>,
}

impl Served<'_> {
    fn turn(
        &mut self,
        machine: &mut Machine,
        port: &UnixListener,
        control: &UnixListener,
    ) -> Result<(), EmulatorError> {
        if let Ok((stream, _)) = control.accept() {
            self.obey(machine, &stream)?;
        }
        if self.caller.is_none()
            && let Ok((stream, _)) = port.accept()
            && stream.set_nonblocking(true).is_ok()
        {
            self.caller = Some(stream);
        }
        let mut bytes = [0; 1024];
        if let Some(caller) = &mut self.caller {
            match caller.read(&mut bytes) {
                Ok(0) => self.caller = None,
                Ok(len) => {
                    let sent = self.serial.write_all(bytes.get(..len).unwrap_or_default());
                    sent.map_err(serial_failed)?;
                }
                Err(error) if is_silence(&error) => {}
                Err(_) => self.caller = None,
            }
        }
        match self.serial.read(&mut bytes) {
            Ok(0) => Err(EmulatorError::Ended("its serial port was closed".to_owned())),
            Ok(len) => {
                self.keep(machine)?;
                let said = bytes.get(..len).unwrap_or_default();
                // Nobody there, or somebody who does not read: as on a cable, it is lost.
                let told = self.caller.as_mut().map(|caller| caller.write_all(said));
                if matches!(told, Some(Err(_))) {
                    self.caller = None;
                }
                Ok(())
            }
            Err(error) if is_silence(&error) => Ok(()),
            Err(error) => Err(serial_failed(error)),
        }
    }

    fn obey(&mut self, machine: &mut Machine, stream: &UnixStream) -> Result<(), EmulatorError> {
        let mut line = String::new();
        let read = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(CONTROL_TIMEOUT)))
            .and_then(|()| BufReader::new(stream).read_line(&mut line));
        let order = read.ok().and_then(|_| Order::parse(line.trim()));
        match order {
            Some(Order::Reset) => machine.reset()?,
            Some(Order::CutPower(seed)) => machine.cut_power(seed)?,
            None => {}
        }
        if order.is_some() {
            self.keep(machine)?;
            machine.run()?;
        }
        // Somebody who is gone misses nothing but the word.
        let _ = (&mut &*stream).write_all(if order.is_some() { b"ok\n" } else { b"no such order\n" });
        Ok(())
    }

    /// Brings what the program may have written to the file (S2).
    fn keep(&mut self, machine: &mut Machine) -> Result<(), EmulatorError> {
        let now = machine.memory(self.at, self.kept.len())?;
        if now != self.kept {
            let written = self.file.write_all_at(&now, self.at.into());
            written.map_err(|error| self.files.failed(error))?;
            self.kept = now;
        }
        Ok(())
    }

    /// Brings the whole file to what is in the flash.
    fn keep_all(&mut self, machine: &mut Machine) -> Result<(), EmulatorError> {
        machine.halt()?;
        let flash = machine.flash()?;
        let written = self.file.write_all_at(&flash, 0).and_then(|()| self.file.sync_all());
        written.map_err(|error| self.files.failed(error))
    }
}

/// Nothing has arrived yet, or a signal came first.
fn is_silence(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

fn serial_failed(source: std::io::Error) -> EmulatorError {
    EmulatorError::Socket {
        socket: "serial port",
        while_doing: "serving".to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for order in [Order::Reset, Order::CutPower(0), Order::CutPower(u64::MAX)] {
            assert_eq!(Order::parse(&order.line()), Some(order));
        }
        for line in ["", "cut", "cut x", "reset 1", "stop"] {
            assert_eq!(Order::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_flash_that_is_in_use_is_neither_run_nor_changed() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::of(&folder.path().join("kiosk.flash"));
        let (_file, bytes) = files.lock().unwrap();
        assert_eq!(bytes.len(), FLASH_BYTES);
        assert!(matches!(files.change(|_| Ok(())), Err(EmulatorError::Running(_))));
        assert!(matches!(files.ask(Order::Reset), Err(EmulatorError::NotRunning(_))));
    }

    #[test]
    fn a_change_is_kept_and_one_that_failed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::of(&folder.path().join("kiosk.flash"));
        let failed = files.change(|_| Err(EmulatorError::FlashSize(1)));
        assert!(matches!(failed, Err(EmulatorError::FlashSize(1))));
        assert!(!files.flash().exists());
        let set = |byte: u8| {
            move |flash: &mut [u8]| {
                flash.fill(byte);
                Ok(())
            }
        };
        files.change(set(7)).unwrap();
        assert_eq!(std::fs::read(files.flash()).unwrap(), vec![7; FLASH_BYTES]);
    }
}
