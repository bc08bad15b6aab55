//! What the ledger weighs on a microcontroller, and that nothing in it can panic.
//!
//! Builds the examples for thumbv6m-none-eabi in the profile `kiosk` and reads the symbols of the images. Where the target
//! is not installed (`rustup target add thumbv6m-none-eabi`) the test is skipped, and the run that asks for it is told.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "thumbv6m-none-eabi";
/// The journal alone, with the runtime functions that it needs.
const JOURNAL_BYTES_MAX: u32 = 20 * 1024;
/// The journal and the store, machines of the core apart.
const LEDGER_BYTES_MAX: u32 = 30 * 1024;
/// A ledger in its default bounds.
const RAM_BYTES_MAX: usize = 4 * 1024;

/// A function of an image and its size.
struct Function {
    name: String,
    size: u32,
}

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len]
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

fn text(bytes: &[u8], at: usize) -> String {
    let end = bytes[at..]
        .iter()
        .position(|byte| *byte == 0)
        .expect("a terminated string");
    String::from_utf8_lossy(&bytes[at..at + end]).into_owned()
}

/// The functions of a 32-bit little-endian ELF file.
fn functions(elf: &[u8]) -> Vec<Function> {
    assert_eq!(elf[..6], *b"\x7fELF\x01\x01", "a 32-bit little-endian ELF file");
    let (table, size, count) = (number(elf, 32, 4), number(elf, 46, 2), number(elf, 48, 2));
    let section = |index: usize, field: usize| number(elf, table + index * size + 4 * field, 4);
    let symbols = (0..count)
        .find(|index| section(*index, 1) == 2)
        .expect("a symbol table");
    let names = section(section(symbols, 6), 4);
    let (from, len) = (section(symbols, 4), section(symbols, 5));
    (from..from + len)
        .step_by(16)
        .filter(|at| elf[at + 12] & 15 == 2)
        .map(|at| Function {
            name: text(elf, names + number(elf, at, 4)),
            size: number(elf, at + 8, 4) as u32,
        })
        .collect()
}

fn is_installed() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// Says that a test was not run, in the list that the run of all tests prints in the end, too. It does not fail where `CI`
/// is set, as others do: the sizes are those of one compiler, and the other way to this target builds with an older one.
fn skip(test: &str, why: &str) {
    eprintln!("skipped: {test}: {why}");
    if let Some(file) = std::env::var_os("KEYFENCE_SKIPPED") {
        let mut file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(file)
            .expect("the list of what was skipped");
        // One write, so that lines of tests that run at once do not mix.
        file.write_all(format!("{test}: {why}\n").as_bytes())
            .expect("the list of what was skipped");
    }
}

fn images() -> Option<PathBuf> {
    if !is_installed() {
        skip("code_size", &format!("{TARGET} is not installed: nothing is weighed"));
        return None;
    }
    // A target folder of its own: the one of the test run is locked by it.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("code-size");
    let links = [
        "--unresolved-symbols=ignore-all",
        "--entry=image_entry",
        "--gc-sections",
    ];
    let flags: Vec<String> = links.iter().map(|flag| format!("-Clink-arg={flag}")).collect();
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "keyfence-firmware", "--examples"])
        .args(["--target", TARGET, "--profile", "kiosk"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", &folder)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env_remove("RUSTFLAGS")
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the images are not built");
    Some(folder.join(TARGET).join("kiosk").join("examples"))
}

#[test]
fn the_ledger_fits_a_small_microcontroller_and_never_panics() {
    let Some(images) = images() else {
        return;
    };
    let image = |name: &str| functions(&std::fs::read(images.join(name)).expect("an image"));
    let (journal, store) = (image("size_journal"), image("size_store"));
    for function in journal.iter().chain(&store) {
        let is_panic = ["panicking", "unwrap_failed", "expect_failed", "rust_begin_unwind"]
            .iter()
            .any(|word| function.name.contains(word));
        assert!(!is_panic, "a way to panic: {}", function.name);
    }
    let sum = |functions: &[Function], word: &str| -> u32 {
        let of_word = functions.iter().filter(|function| function.name.contains(word));
        of_word.map(|function| function.size).sum()
    };
    let whole: u32 = journal.iter().map(|function| function.size).sum();
    let ledger = sum(&store, "keyfence_firmware");
    println!("journal alone, everything it needs: {whole} bytes of at most {JOURNAL_BYTES_MAX}");
    println!("journal and store: {ledger} bytes of at most {LEDGER_BYTES_MAX}");
    println!("machines of the core: {} bytes", sum(&store, "keyfence_core"));
    assert!(whole <= JOURNAL_BYTES_MAX);
    assert!(ledger <= LEDGER_BYTES_MAX);
}

#[test]
fn the_ledger_fits_the_ram_of_a_small_microcontroller() {
    type Step = keyfence_firmware::store::FlashStep<NoFlash>;
    let bytes = size_of::<Step>();
    println!("a ledger in its default bounds: {bytes} bytes of RAM of at most {RAM_BYTES_MAX}");
    assert!(bytes <= RAM_BYTES_MAX);
}

/// Stands for a driver without state.
struct NoFlash;
