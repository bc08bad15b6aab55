//! A provisioned kiosk in the emulator, with somebody at its line.

use std::time::Duration;

use anyhow::{Context, Result};
use keyfence::emulator::{Existing, FLASH_BYTES, Image, Machine, provision};
use keyfence_core::{LedgerId, Name};
use keyfence_firmware::identity::Identity;
use keyfence_firmware::link::{DeviceId, LinkKey};

use super::caller::Caller;

/// A read at the serial port waits this long before its caller looks at the clock.
const READ_TIMEOUT: Duration = Duration::from_millis(5);

/// Who the kiosk called `name` is; every name has its own device and key.
#[must_use]
pub fn identity(name: &str) -> Identity {
    let letter = name.bytes().last().unwrap_or_default();
    Identity {
        host: Name::new(name).unwrap_or_else(|error| panic!("{name}: {error}")),
        device: DeviceId::from_bytes([letter; 16]),
        key: LinkKey::from_bytes([letter ^ 0xff; 32]),
    }
}

/// The whole flash of a freshly provisioned kiosk, without its program.
///
/// # Errors
///
/// When the image has no place for a ledger.
pub fn provisioned(image: &Image, identity: &Identity) -> Result<Vec<u8>> {
    let mut flash = vec![0xff; FLASH_BYTES];
    let ledger = LedgerId::from_bytes(identity.device.as_bytes().map(|byte| byte ^ 0x55));
    provision(image, &mut flash, identity, ledger, 0, Existing::Refuse)?;
    Ok(flash)
}

/// Starts a provisioned kiosk called `name`, lets it run, and connects to it.
///
/// # Errors
///
/// When the emulator does not start.
pub fn start(image: &Image, name: &str, seed: u64) -> Result<(Machine, Caller)> {
    let identity = identity(name);
    let flash = provisioned(image, &identity)?;
    let mut machine = Machine::start(image, Some(&flash)).context("the emulator")?;
    let port = machine.serial(READ_TIMEOUT)?;
    machine.run()?;
    Ok((machine, Caller::new(port, identity.on_link(), 0, seed)))
}
