//! What an image logged: defmt frames in the ring of its RTT control block, read from memory.

use anyhow::{Context, Result, ensure};
use defmt_decoder::{DecodeError, Table};
use keyfence::emulator::{Image, Machine};

/// Every line that is still in the ring, oldest first. Lines that the ring has overwritten in part are left out.
///
/// # Errors
///
/// When the image has no log, or the ring is not one (after a power cut, before the program has set it up).
pub fn lines(machine: &mut Machine, image: &Image) -> Result<Vec<String>> {
    let table = Table::parse(image.elf())?.context("the image has no log")?;
    let block = machine.memory(image.symbol("_SEGGER_RTT")?, 48)?;
    ensure!(block.starts_with(b"SEGGER RTT"), "the ring is not set up");
    let word = |at: usize| -> Result<u32> {
        let bytes = block.get(at..at + 4).context("a control block")?;
        Ok(u32::from_le_bytes(bytes.try_into()?))
    };
    let (buffer, size, written) = (word(28)?, word(32)? as usize, word(36)? as usize);
    ensure!(size <= 4096 && written < size, "the ring is not one");
    let mut ring = machine.memory(buffer, size)?;
    // Behind the writer lies the oldest content. A ring that never went round has zeros there, which end no frame twice.
    ring.rotate_left(written);
    let mut decoder = table.new_stream_decoder();
    decoder.received(&ring);
    let mut lines = Vec::new();
    loop {
        match decoder.decode() {
            Ok(frame) => lines.push(frame.display(false).to_string()),
            Err(DecodeError::UnexpectedEof) => return Ok(lines),
            Err(DecodeError::Malformed) => {}
        }
    }
}
