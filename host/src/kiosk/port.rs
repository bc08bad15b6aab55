//! The way to a kiosk: a serial port, or the socket of an emulated one.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::KioskError;

/// Bits a second on the serial line, 8 data bits, no parity, one stop bit.
pub const BAUD: u32 = 115_200;

/// How long one read waits for bytes.
const READ_TIMEOUT: Duration = Duration::from_millis(10);

/// A stream of bytes to a kiosk and back. A read that finds none ends soon with [`io::ErrorKind::WouldBlock`] or
/// [`io::ErrorKind::TimedOut`].
pub trait Port: Read + Write + Send {}

impl<T: Read + Write + Send> Port for T {}

/// Where a kiosk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a serial port.
    Serial(PathBuf),
    /// At the socket of an emulator.
    Socket(PathBuf),
}

impl Place {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Serial(path) | Self::Socket(path) => path,
        }
    }

    /// Opens it, exclusively.
    ///
    /// # Errors
    /// [`KioskError::PortMissing`], [`KioskError::PortBusy`], [`KioskError::PortDenied`] or [`KioskError::Port`].
    pub fn connect(&self) -> Result<Box<dyn Port>, KioskError> {
        match self {
            Self::Serial(path) => serial(path),
            Self::Socket(path) => socket(path).map_err(|error| failed(error, path)),
        }
    }
}

fn serial(path: &Path) -> Result<Box<dyn Port>, KioskError> {
    let port = serialport::new(path.to_string_lossy(), BAUD)
        .timeout(READ_TIMEOUT)
        .exclusive(true)
        .open();
    match port {
        Ok(port) => Ok(Box::new(port)),
        Err(error) => Err(match error.kind() {
            serialport::ErrorKind::NoDevice if path.exists() => KioskError::PortBusy { path: path.into() },
            serialport::ErrorKind::NoDevice => KioskError::PortMissing { path: path.into() },
            serialport::ErrorKind::Io(kind) => failed(io::Error::new(kind, error), path),
            serialport::ErrorKind::InvalidInput | serialport::ErrorKind::Unknown => KioskError::Port(error.into()),
        }),
    }
}

fn socket(path: &Path) -> io::Result<Box<dyn Port>> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    Ok(Box::new(stream))
}

fn failed(error: io::Error, path: &Path) -> KioskError {
    let path = path.to_path_buf();
    // The kinds have no list that could be matched to its end.
    if error.kind() == io::ErrorKind::NotFound {
        KioskError::PortMissing { path }
    } else if error.kind() == io::ErrorKind::ResourceBusy {
        KioskError::PortBusy { path }
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        KioskError::PortDenied { path }
    } else {
        KioskError::Port(error)
    }
}
