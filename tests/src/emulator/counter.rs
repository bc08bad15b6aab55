//! A provisioned kiosk in the emulator, with somebody at its line.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use embedded_storage::nor_flash::{
    ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write,
};
use keyfence::emulator::{FLASH_BYTES, Image, Machine};
use keyfence_core::{LedgerId, Name};
use keyfence_firmware::journal::Existing;
use keyfence_firmware::kiosk::{Layout, Nameplate, provision};

use super::caller::Caller;

/// Pages that a journal may have.
const PAGES: usize = 24;
/// A read at the serial port waits this long before its caller looks at the clock.
const READ_TIMEOUT: Duration = Duration::from_millis(5);

/// The flash of a board as the computer that provisions it sees it: a file's content.
struct File(Vec<u8>);

impl ErrorType for File {
    type Error = NorFlashErrorKind;
}

impl ReadNorFlash for File {
    const READ_SIZE: usize = 4;

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        check_read(self, at, bytes.len())?;
        let from = at as usize;
        bytes.copy_from_slice(&self.0[from..from + bytes.len()]);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.0.len()
    }
}

impl NorFlash for File {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = 1024;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        check_erase(self, from, to)?;
        self.0[from as usize..to as usize].fill(0xff);
        Ok(())
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        check_write(self, at, bytes.len())?;
        let cells = self.0[at as usize..].iter_mut();
        cells.zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        Ok(())
    }
}

/// The nameplate of the kiosk called `name`; every name has its own device and key.
#[must_use]
pub fn nameplate(name: &str) -> Nameplate {
    let letter = name.bytes().last().unwrap_or_default();
    Nameplate {
        name: Name::new(name).unwrap_or_else(|error| panic!("{name}: {error}")),
        device: [letter; 16],
        key: [letter ^ 0xff; 32],
    }
}

/// The whole flash of a freshly provisioned kiosk, without its program.
///
/// # Errors
///
/// When the image has no place for a ledger.
pub fn provisioned(image: &Image, nameplate: &Nameplate) -> Result<Vec<u8>> {
    let layout = Layout {
        nameplate: image.nameplate()?,
        journal: image.journal()?,
    };
    let mut file = File(vec![0xff; FLASH_BYTES]);
    let ledger = LedgerId::from_bytes([nameplate.device[0] ^ 0x55; 16]);
    provision::<_, PAGES>(&mut file, &layout, nameplate, ledger, 0, Existing::Refuse)
        .map_err(|failure| anyhow!("{failure}"))?;
    Ok(file.0)
}

/// Starts a provisioned kiosk called `name`, lets it run, and connects to it.
///
/// # Errors
///
/// When the emulator does not start.
pub fn start(image: &Image, name: &str, seed: u64) -> Result<(Machine, Caller)> {
    let nameplate = nameplate(name);
    let flash = provisioned(image, &nameplate)?;
    let mut machine = Machine::start(image, Some(&flash)).context("the emulator")?;
    let port = machine.serial(READ_TIMEOUT)?;
    machine.run()?;
    Ok((machine, Caller::new(port, nameplate.identity(), 0, seed)))
}
