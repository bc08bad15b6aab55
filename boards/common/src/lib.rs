//! What the boards with a driver library have in common: outputs on `embedded-hal` pins, a serial port that is
//! driven by interrupts, a flash that is left alone while the supply fails, the main loop. Nothing here decides anything; see `keyfence_firmware::kiosk`.
#![no_std]

mod board;
mod flash;
mod outputs;
mod serial;
mod shared;
mod station;
#[cfg(target_os = "none")]
mod tick;

pub use board::{Chip, On, Parts};
pub use flash::{Supplied, SuppliedError};
pub use outputs::{OUTPUTS, Outputs};
pub use serial::Serial;
pub use shared::Shared;
pub use station::run;
#[cfg(target_os = "none")]
pub use tick::start_tick;
