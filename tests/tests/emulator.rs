//! The image of the micro:bit: that it starts and holds in the emulator.

use std::time::{Duration, Instant};

use keyfence::emulator::{FLASH_BYTES, Image, Machine, RAM};
use keyfence_tests::emulator::{Build, image, is_available, log};

/// The register of the pins' levels, and the pins of the outputs.
const GPIO_OUT: u32 = 0x5000_0504;
const OUTPUT_PINS: u32 = 1 << 3 | 1 << 2 | 1 << 1;

fn product() -> Image {
    image(Build::Product).unwrap()
}

/// Lets the machine run until the log has a line with `words`.
fn wait_for_line(machine: &mut Machine, image: &Image, words: &str) -> Vec<String> {
    let begin = Instant::now();
    machine.run().unwrap();
    loop {
        let lines = log::lines(machine, image).unwrap_or_default();
        if lines.iter().any(|line| line.contains(words)) {
            return lines;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "no `{words}` in {lines:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_blank_board_starts_says_that_it_is_unprovisioned_and_drives_nothing() {
    if !is_available() {
        return;
    }
    let image = product();
    let mut machine = Machine::start(&image, None).unwrap();
    let lines = wait_for_line(&mut machine, &image, "Unprovisioned");
    assert!(lines.iter().any(|line| line.contains("reset")), "{lines:#?}");
    assert_eq!(machine.register(GPIO_OUT).unwrap() & OUTPUT_PINS, 0);
    let flash = machine.flash().unwrap();
    assert!(
        flash[image.size_bytes() as usize..].iter().all(|byte| *byte == 0xff),
        "nothing was written"
    );
}

#[test]
fn a_power_cut_keeps_the_flash_and_spoils_the_ram() {
    if !is_available() {
        return;
    }
    let image = product();
    let mut flash = vec![0xff; FLASH_BYTES];
    let journal = image.journal().unwrap();
    flash[journal.start as usize..][..4].copy_from_slice(b"mark");
    let mut machine = Machine::start(&image, Some(&flash)).unwrap();
    wait_for_line(&mut machine, &image, "reset");
    let before = machine.memory(RAM.start, RAM.len()).unwrap();
    for seed in 0..20 {
        machine.cut_power(seed).unwrap();
        assert_ne!(machine.memory(RAM.start, RAM.len()).unwrap(), before);
        machine.run().unwrap();
    }
    wait_for_line(&mut machine, &image, "reset");
    assert_eq!(&machine.journal().unwrap()[..4], b"mark");
    assert_eq!(
        machine.flash().unwrap()[..0x100],
        flash_of(&image)[..0x100],
        "the program is as it was"
    );
}

/// What the program's own segments are.
fn flash_of(image: &Image) -> Vec<u8> {
    let mut flash = vec![0xff; FLASH_BYTES];
    for (at, bytes) in image.segments() {
        flash[*at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    flash
}
