//! A keyfence kiosk on a micro:bit v1: which pins, which flash range, which clock. Nothing here decides anything; see
//! `keyfence_firmware::kiosk`.
//!
//! Built by `tests/embedded-cargo thumbv6m-none-eabi build -p keyfence-microbit --profile kiosk`. The emulator's machine
//! `microbit` runs the same image.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod clock;
#[cfg(target_os = "none")]
mod flash;
#[cfg(target_os = "none")]
mod interrupts;
#[cfg(target_os = "none")]
mod kiosk;
#[cfg(target_os = "none")]
mod pins;
#[cfg(target_os = "none")]
mod power;
#[cfg(target_os = "none")]
mod random;
#[cfg(target_os = "none")]
mod registers;
#[cfg(target_os = "none")]
mod serial;

#[cfg(not(target_os = "none"))]
fn main() {
    println!(
        "build this for thumbv6m-none-eabi: tests/embedded-cargo thumbv6m-none-eabi build -p keyfence-microbit --profile kiosk"
    );
}
