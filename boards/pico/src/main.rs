//! A keyfence kiosk on a Raspberry Pi Pico (RP2040): which pins, which flash range, which clock. Nothing here decides anything; see
//! `keyfence_firmware::kiosk`.
//!
//! Built by `tests/embedded-cargo thumbv6m-none-eabi build -p keyfence-pico --profile kiosk`.
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
        "build this for thumbv6m-none-eabi: tests/embedded-cargo thumbv6m-none-eabi build -p keyfence-pico --profile kiosk"
    );
}
