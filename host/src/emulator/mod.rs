//! A whole kiosk without hardware: QEMU's `microbit` runs the very image that is flashed onto the board.
//!
//! Read [`Machine`] first. The modules: `image` (the program as it was linked), `qmp` and `gdb` (QEMU's two control sockets),
//! `machine` (power, flash, serial port), `flash_file` (provisioning), `service` (a kiosk whose flash is a file).
//!
//! What was found out about QEMU 7.2 and is relied on:
//!
//! * Its flash begins as zeros, so it is filled with ones first. A reset keeps what lies outside of the image's own
//!   segments, restores those, and keeps the RAM: a power cut fills that with garbage.
//! * `memsave` runs between two stores to the flash, so what it saves is what a power cut at that moment leaves.
//! * The first byte for the serial port after a boot is noticed only once some command of QMP has been served.
//! * While the debugger is attached only the debugger stops and continues.

mod flash_file;
mod gdb;
mod image;
mod machine;
mod qmp;
mod service;

use std::path::PathBuf;
use std::time::Duration;

pub use flash_file::provision;
pub use image::{Image, ImageError};
pub use keyfence_firmware::kiosk::Existing;
pub use machine::{FLASH_BYTES, Machine, Port, RAM, Stop};
pub use service::{Files, Order, serve};

/// No answer of the emulator takes longer; one that does is taken for lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The program to start.
const QEMU: &str = "qemu-system-arm";

/// What goes wrong with an emulator.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// It is not installed.
    #[error("qemu-system-arm is not installed (Debian: apt-get install qemu-system-arm)")]
    NotInstalled,
    /// Its program cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// It ended by itself.
    #[error("the emulator ended: {0}")]
    Ended(String),
    /// A control socket failed, or did not answer in time.
    #[error("the emulator's {socket} failed while {while_doing}")]
    Socket {
        /// Which socket.
        socket: &'static str,
        /// What was asked for.
        while_doing: String,
        /// Why.
        source: std::io::Error,
    },
    /// A control socket answered something else than it should.
    #[error("the emulator's {socket} answered {answer:?} to {asked}")]
    Answer {
        /// Which socket.
        socket: &'static str,
        /// What was asked for.
        asked: String,
        /// The answer.
        answer: String,
    },
    /// A file could not be read or written.
    #[error("{path}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What is to be the flash has another size.
    #[error("the flash has {FLASH_BYTES} bytes, not {0}")]
    FlashSize(usize),
    /// The kiosk could not be provisioned.
    #[error("the kiosk was not provisioned: {0}")]
    Provision(keyfence_firmware::kiosk::ProvisionError),
    /// An emulator has this flash.
    #[error("{} is in use by an emulator that runs", .0.display())]
    Running(PathBuf),
    /// No emulator has this flash.
    #[error("no emulator runs on {}", .0.display())]
    NotRunning(PathBuf),
}

impl EmulatorError {
    /// The stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotInstalled => "emulator_missing",
            Self::Image(_) => "image",
            Self::Ended(_) => "emulator_ended",
            Self::Socket { .. } | Self::Answer { .. } => "emulator",
            Self::File { .. } => "emulator_file",
            Self::FlashSize(_) => "flash_size",
            Self::Provision(_) => "not_provisioned",
            Self::Running(_) => "emulator_runs",
            Self::NotRunning(_) => "emulator_not_running",
        }
    }

    /// What to do now.
    #[must_use]
    pub const fn next(&self) -> &'static str {
        match self {
            Self::NotInstalled => "install qemu-system-arm",
            Self::Image(_) => {
                "build it: tests/embedded-cargo thumbv6m-none-eabi build -p keyfence-microbit --profile kiosk; then name it"
            }
            Self::Ended(_) | Self::Socket { .. } | Self::Answer { .. } => {
                "start it again: what the kiosk had answered is kept"
            }
            Self::File { .. } => "look at what the system says, then ask again",
            Self::FlashSize(_) => "name the file of an emulated kiosk's flash",
            Self::Provision(_) => "name another file, or remove this one if its ledger is not needed any more",
            Self::Running(_) => "stop that emulator first",
            Self::NotRunning(_) => "start one: keyfence kiosk emulate",
        }
    }
}

/// Whether the emulator is installed.
#[must_use]
pub fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(QEMU).is_file())
}
