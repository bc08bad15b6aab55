//! The regions beside a store's: what is done to them, operation by operation.

use std::ops::Range;

use crate::flash::{Image, Operation, Reading, SimFlash, TracedOperation};

/// Does `act` on a chip that holds `image`, powered up with its marginal cells read as `reading`: its answer, its flash
/// operations, each with what was there before it, and what it left.
///
/// # Panics
///
/// When a rule of the chip is broken.
pub fn traced<const WRITE: usize, const ERASE: usize, T>(
    image: &Image,
    reading: Reading,
    act: impl FnOnce(&mut SimFlash<WRITE, ERASE>) -> T,
) -> (T, Vec<TracedOperation>, Image) {
    let mut flash = SimFlash::<WRITE, ERASE>::with_image(image.clone());
    flash.chip_mut().power_up(reading);
    flash.chip_mut().start_trace();
    let answer = act(&mut flash);
    let mut chip = flash.chip_mut();
    let trace = chip.take_trace();
    assert_eq!(chip.abuse(), None, "a rule of the chip was broken");
    (answer, trace, chip.image().clone())
}

/// Whether nothing outside `range` is touched.
///
/// # Panics
///
/// When something is.
pub fn stays_inside(trace: &[TracedOperation], range: &Range<u32>, erase_size: usize) {
    for traced in trace {
        let (from, len) = match &traced.operation {
            Operation::Program { offset, data } => (*offset, data.len()),
            Operation::Erase { page } => ((page * erase_size) as u32, erase_size),
        };
        assert!(
            range.contains(&from) && from + len as u32 <= range.end,
            "{:?} outside {range:?}",
            traced.operation
        );
    }
}
