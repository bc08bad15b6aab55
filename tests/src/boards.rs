//! The boards: how their images are built, and how large they may be.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A board's package.
#[derive(Debug)]
pub struct Board {
    /// Its name after `keyfence-`.
    pub name: &'static str,
    /// What it is compiled for.
    pub target: &'static str,
    /// Where its flash begins and ends.
    pub flash: Range<u32>,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of flash that its image may take at most.
    pub image_bytes_max: u32,
}

/// The micro:bit v1, which the emulator knows.
pub const MICROBIT: Board = Board {
    name: "microbit",
    target: "thumbv6m-none-eabi",
    flash: 0..0x4_0000,
    page_bytes: 1024,
    image_bytes_max: 124 * 1024,
};

/// All of them.
pub const BOARDS: [Board; 4] = [
    MICROBIT,
    Board {
        name: "nrf52840dk",
        target: "thumbv7em-none-eabi",
        flash: 0..0x10_0000,
        page_bytes: 4096,
        image_bytes_max: 124 * 1024,
    },
    Board {
        name: "pico",
        target: "thumbv6m-none-eabi",
        flash: 0x1000_0000..0x1020_0000,
        page_bytes: 4096,
        image_bytes_max: 132 * 1024,
    },
    Board {
        name: "nucleo-l432kc",
        target: "thumbv7em-none-eabi",
        flash: 0x0800_0000..0x0804_0000,
        page_bytes: 2048,
        image_bytes_max: 128 * 1024,
    },
];

/// Builds the image of a board and returns where it is. `folder` is one below `target/boards`: the target folder of the
/// test run may be locked by it.
///
/// # Errors
///
/// When it cannot be built.
pub fn build(board: &Board, folder: &str) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("target").join("boards").join(folder);
    let package = format!("keyfence-{}", board.name);
    let mut command = Command::new(root.join("tests").join("embedded-cargo"));
    command
        .args([board.target, "build", "--quiet", "--package", &package])
        .args(["--profile", "kiosk"])
        .env("CARGO_TARGET_DIR", &folder)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdin(Stdio::null());
    let status = command.status().context("tests/embedded-cargo")?;
    ensure!(status.success(), "the image of {package} is not built: {status}");
    // Where the compiler is Debian's, the wrapper has a folder of its own below that.
    let program = Path::new(board.target).join("kiosk").join(&package);
    let found = [folder.join("debian").join(&program), folder.join(&program)];
    let newest = found.into_iter().filter_map(|path| {
        let built = path.metadata().and_then(|metadata| metadata.modified()).ok()?;
        Some((built, path))
    });
    newest.max().map(|(_, path)| path).context("the build left no program")
}
