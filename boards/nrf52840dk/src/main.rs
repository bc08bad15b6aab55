//! A keyfence kiosk on an nRF52840-DK: which pins, which flash range, which clock. Nothing here decides anything; see
//! `keyfence_firmware::kiosk`.
//!
//! Built by `tests/embedded-cargo thumbv7em-none-eabi build -p keyfence-nrf52840dk --profile kiosk`.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod interrupts;
#[cfg(target_os = "none")]
mod kiosk;
#[cfg(target_os = "none")]
mod peripherals;

#[cfg(not(target_os = "none"))]
fn main() {
    println!(
        "build this for thumbv7em-none-eabi: tests/embedded-cargo thumbv7em-none-eabi build -p keyfence-nrf52840dk --profile kiosk"
    );
}
