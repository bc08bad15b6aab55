//! The real image in the emulator: built, started, read.
//!
//! [`image`] builds it, [`keyfence::emulator::Machine`] runs it, [`counter`] provisions one and calls it, [`log`] reads what it
//! logged.

pub mod caller;
pub mod counter;
pub mod log;

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use keyfence::emulator::{Image, Machine};

use crate::boards::{self, MICROBIT};

/// The features of the board's package that a test builds it with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// The image that is flashed onto the board.
    Product,
}

impl Build {
    const fn folder(self) -> &'static str {
        match self {
            Self::Product => "product",
        }
    }
}

/// Builds the image of the micro:bit, once in a process, and reads it.
///
/// # Errors
///
/// When it cannot be built.
pub fn image(build: Build) -> Result<Image> {
    static PRODUCT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = match build {
        Build::Product => {
            PRODUCT.get_or_init(|| boards::build(&MICROBIT, build.folder()).map_err(|error| format!("{error:#}")))
        }
    };
    let path = built.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
    Image::read(path).context("the image that was built")
}

/// What the stack's memory has in it where the program never was: it is painted when the program starts.
const PAINT: u8 = 0xcc;

/// Bytes of the stack: the deepest that it was seen since the program started, and what there is. Below it there is no memory.
///
/// # Errors
///
/// When the image has no such symbols, or the emulator fails.
pub fn deepest_stack(machine: &mut Machine, image: &Image) -> Result<(usize, usize)> {
    let (end, start) = (image.symbol("_stack_end")?, image.symbol("_stack_start")?);
    let stack = machine.memory(end, (start - end) as usize)?;
    let untouched = stack.iter().take_while(|byte| **byte == PAINT).count();
    Ok((stack.len() - untouched, stack.len()))
}

/// Whether tests in the emulator can run. Says so when they cannot, as `tests/run` does at its end, and fails where they must:
/// where `CI` is set, and where `tests/run` has found the emulator (`KEYFENCE_EMULATOR=required`).
///
/// # Panics
///
/// When the emulator is required and not installed.
#[must_use]
pub fn is_available() -> bool {
    let is_installed = keyfence::emulator::is_installed();
    let is_set = |variable| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    let is_required = is_set("KEYFENCE_EMULATOR") || is_set("CI");
    assert!(
        is_installed || !is_required,
        "qemu-system-arm is required and not installed"
    );
    if !is_installed {
        eprintln!("SKIPPED: qemu-system-arm is not installed, so nothing is tested in the emulator");
    }
    is_installed
}
