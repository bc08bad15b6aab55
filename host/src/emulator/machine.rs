//! One emulated board: its power, its flash, its serial port.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use super::gdb::Gdb;
use super::qmp::Qmp;
use super::{ANSWER_TIMEOUT, EmulatorError, Image, QEMU, is_installed};

/// Bytes of flash on the board.
pub const FLASH_BYTES: usize = 256 * 1024;
/// The board's RAM.
pub const RAM: Range<u32> = 0x2000_0000..0x2000_4000;
/// The register of the flash controller that erases the page whose address is stored to it.
const ERASEPAGE: u32 = 0x4001_e508;
/// How long the emulator may take to end when it is told to.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a processor that was let run halted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is about to store to the flash or to begin an erase.
    FlashOperation,
    /// The time was over first; it was interrupted.
    Timeout,
}

/// An emulated board. It is halted after [`start`](Self::start) and after every power cut and reset; [`run`](Self::run)
/// lets it go on. Dropping it ends the emulator.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    folder: TempDir,
    qmp: Arc<Mutex<Qmp>>,
    gdb: Gdb,
    is_running: bool,
    journal: Range<u32>,
}

impl Machine {
    /// Starts the emulator with `image` as its program and, outside of that, `flash` in its flash; ones when there is none.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`]; nothing is left running then.
    pub fn start(image: &Image, flash: Option<&[u8]>) -> Result<Self, EmulatorError> {
        if !is_installed() {
            return Err(EmulatorError::NotInstalled);
        }
        let folder = tempfile::tempdir().map_err(|source| EmulatorError::File {
            path: std::env::temp_dir(),
            source,
        })?;
        let socket = |name: &str| folder.path().join(name);
        let mut child = spawn(image.path(), folder.path())?;
        let attached = (|| {
            let qmp = Qmp::greet(connect(&mut child, &socket("qmp"))?)?;
            let gdb = Gdb::attach(connect(&mut child, &socket("gdb"))?)?;
            Ok((qmp, gdb, image.journal()?))
        })();
        let (qmp, gdb, journal) = match attached {
            Ok(attached) => attached,
            Err(error) => {
                end(&mut child);
                return Err(error);
            }
        };
        let mut machine = Self {
            child,
            folder,
            qmp: Arc::new(Mutex::new(qmp)),
            gdb,
            is_running: false,
            journal,
        };
        let blank = vec![0xff; FLASH_BYTES];
        machine.fill_flash(image, flash.unwrap_or(&blank))?;
        machine.reset()?;
        Ok(machine)
    }

    /// Writes what does not belong to the program.
    fn fill_flash(&mut self, image: &Image, flash: &[u8]) -> Result<(), EmulatorError> {
        if flash.len() != FLASH_BYTES {
            return Err(EmulatorError::FlashSize(flash.len()));
        }
        let mut from = 0;
        let mut segments = image.segments().to_vec();
        segments.sort();
        for (at, bytes) in segments.into_iter().chain([(FLASH_BYTES as u32, Vec::new())]) {
            if let Some(between) = flash.get(from as usize..at as usize) {
                self.gdb.write(from, between)?;
            }
            from = from.max(at + bytes.len() as u32);
        }
        Ok(())
    }

    /// The socket that the serial port is at; one at a time may connect to it.
    #[must_use]
    pub fn serial_path(&self) -> PathBuf {
        self.folder.path().join("serial")
    }

    /// Connects to the serial port. A read waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// When somebody else is connected, or the emulator ended.
    pub fn serial(&mut self, timeout: Duration) -> Result<Port, EmulatorError> {
        let path = self.serial_path();
        let stream = connect(&mut self.child, &path)?;
        let set = stream.set_read_timeout(Some(timeout));
        set.and_then(|()| stream.set_write_timeout(Some(ANSWER_TIMEOUT)))
            .map_err(|source| EmulatorError::Socket {
                socket: "serial port",
                while_doing: "connecting".to_owned(),
                source,
            })?;
        Ok(Port {
            stream,
            qmp: Arc::clone(&self.qmp),
        })
    }

    /// Lets the processor run.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn run(&mut self) -> Result<(), EmulatorError> {
        if !self.is_running {
            self.gdb.resume()?;
            self.is_running = true;
        }
        Ok(())
    }

    /// Halts the processor between two instructions.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn halt(&mut self) -> Result<(), EmulatorError> {
        if self.is_running {
            self.gdb.interrupt()?;
            self.is_running = false;
        }
        Ok(())
    }

    /// Halts the processor and has it halt from now on before every store to the journal and every erase, or no longer.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn watch_flash(&mut self, is_on: bool) -> Result<(), EmulatorError> {
        self.halt()?;
        let journal = self.journal.clone();
        self.gdb.watch(journal.start, journal.end - journal.start, is_on)?;
        self.gdb.watch(ERASEPAGE, 4, is_on)
    }

    /// Waits until a running processor that watches its flash halts; halts it after `timeout`.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn wait_for_flash(&mut self, timeout: Duration) -> Result<Stop, EmulatorError> {
        self.run()?;
        if self.gdb.wait(timeout)? {
            self.is_running = false;
            return Ok(Stop::FlashOperation);
        }
        self.halt()?;
        Ok(Stop::Timeout)
    }

    /// Has a processor that was halted before a flash operation do this one.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn pass_flash_operation(&mut self) -> Result<(), EmulatorError> {
        self.watch_flash(false)?;
        self.gdb.step()?;
        self.watch_flash(true)
    }

    /// Resets the chip, as its pin does: RAM and flash stay. It is halted afterwards.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn reset(&mut self) -> Result<(), EmulatorError> {
        self.halt()?;
        self.command("system_reset")
    }

    /// Cuts the power and brings it back: the RAM is garbage that `seed` decides, the flash is as it was at that instant.
    /// It is halted afterwards.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn cut_power(&mut self, seed: u64) -> Result<(), EmulatorError> {
        self.halt()?;
        // A step of Knuth's generator for each byte: any garbage will do, as long as it can be made again.
        let mut state = seed;
        let garbage = RAM.map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        let garbage: Vec<u8> = garbage.collect();
        self.gdb.write(RAM.start, &garbage)?;
        self.reset()
    }

    /// What is in the flash now. The processor may run.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn flash(&mut self) -> Result<Vec<u8>, EmulatorError> {
        self.memory(0, FLASH_BYTES)
    }

    /// What is in the journal's range now. The processor may run.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn journal(&mut self) -> Result<Vec<u8>, EmulatorError> {
        self.memory(self.journal.start, self.journal.len())
    }

    /// Reads memory or registers through the emulator's own eyes. The processor may run.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn memory(&mut self, at: u32, len: usize) -> Result<Vec<u8>, EmulatorError> {
        let path = self.folder.path().join("memory");
        let arguments = json!({ "val": at, "size": len, "filename": path });
        self.qmp().execute("memsave", arguments)?;
        std::fs::read(&path).map_err(|source| EmulatorError::File { path, source })
    }

    /// Reads a register of the chip.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn register(&mut self, at: u32) -> Result<u32, EmulatorError> {
        let was_running = self.is_running;
        self.halt()?;
        let mut word = [0; 4];
        self.gdb.read(at, &mut word)?;
        if was_running {
            self.run()?;
        }
        Ok(u32::from_le_bytes(word))
    }

    /// Puts `bytes` into the journal's range, as a power cut or a debug probe leaves them there. Halts the processor.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn set_journal(&mut self, bytes: &[u8]) -> Result<(), EmulatorError> {
        self.halt()?;
        let len = bytes.len().min(self.journal.len());
        self.gdb.write(self.journal.start, bytes.get(..len).unwrap_or(bytes))
    }

    /// Lets bytes that wait at the serial port be noticed, for somebody who connected to
    /// [`serial_path`](Self::serial_path) by himself. [`Port`] does that by itself.
    ///
    /// # Errors
    ///
    /// [`EmulatorError`].
    pub fn nudge(&mut self) -> Result<(), EmulatorError> {
        self.command("query-status")
    }

    fn command(&mut self, command: &str) -> Result<(), EmulatorError> {
        self.qmp().execute(command, json!({})).map(drop)
    }

    fn qmp(&self) -> std::sync::MutexGuard<'_, Qmp> {
        // What a panicking thread left half asked ends in an answer that does not fit, and is reported there.
        self.qmp.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The serial port of a machine.
#[derive(Debug)]
pub struct Port {
    stream: UnixStream,
    qmp: Arc<Mutex<Qmp>>,
}

impl Read for Port {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.read(bytes)
    }
}

impl Write for Port {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.stream.write(bytes)?;
        let mut qmp = self.qmp.lock().unwrap_or_else(PoisonError::into_inner);
        qmp.execute("query-status", json!({})).map_err(std::io::Error::other)?;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

fn spawn(image: &Path, folder: &Path) -> Result<Child, EmulatorError> {
    let socket = |name: &str| format!("path={},server=on,wait=off", folder.join(name).display());
    let log = folder.join("log");
    let log_file = std::fs::File::create(&log).map_err(|source| EmulatorError::File { path: log, source })?;
    // It ends with the thread that started it, however that ends, where there is a program that sees to it.
    let mut command = match Path::new("/usr/bin/setpriv").is_file() {
        true => {
            let mut command = Command::new("/usr/bin/setpriv");
            command.args(["--pdeathsig", "KILL", QEMU]);
            command
        }
        false => Command::new(QEMU),
    };
    command
        .args(["-M", "microbit", "-display", "none", "-nodefaults", "-S"])
        .arg("-kernel")
        .arg(image)
        .args(["-chardev", &format!("socket,id=serial,{}", socket("serial"))])
        .args(["-serial", "chardev:serial"])
        .args(["-chardev", &format!("socket,id=qmp,{}", socket("qmp"))])
        .args(["-mon", "chardev=qmp,mode=control"])
        .args(["-chardev", &format!("socket,id=gdb,{}", socket("gdb"))])
        .args(["-gdb", "chardev:gdb"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log_file)
        .spawn()
        .map_err(|source| EmulatorError::File {
            path: QEMU.into(),
            source,
        })
}

/// Connects to a socket that the emulator makes when it starts.
fn connect(child: &mut Child, path: &Path) -> Result<UnixStream, EmulatorError> {
    let begin = Instant::now();
    loop {
        let source = match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(source) => source,
        };
        if let Ok(Some(status)) = child.try_wait() {
            let log = path.with_file_name("log");
            let said = std::fs::read_to_string(log).unwrap_or_default();
            return Err(EmulatorError::Ended(format!("{status}: {}", said.trim())));
        }
        if begin.elapsed() > ANSWER_TIMEOUT {
            return Err(EmulatorError::Socket {
                socket: "sockets",
                while_doing: "connecting".to_owned(),
                source,
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends the emulator and waits for it.
fn end(child: &mut Child) {
    // The signal that it ends on by itself, then the one that cannot be missed.
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let asked = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
    let begin = Instant::now();
    while asked == Some(Ok(())) && begin.elapsed() < QUIT_TIMEOUT {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // Neither can fail for a child that was not waited for.
    let _ = child.kill();
    let _ = child.wait();
}
