//! The outputs and the light.

use keyfence_core::TimeMs;
use keyfence_core::gate::ClaimKind;
use keyfence_firmware::kiosk::{Deadlines, Follows, Level, OutputSpec};

use crate::registers::gpio;

/// The outputs. On the edge connector: `till` on the large pad 0, `freezer` on 1, `alarm` on 2. In reset the pins are
/// inputs without a pull; a resistor of 10 kilohms to ground holds each at its safe level.
pub(crate) const OUTPUTS: &[OutputSpec] = &[
    OutputSpec {
        name: "till",
        follows: Follows::Claim(ClaimKind::Session, "till"),
        active: Level::High,
    },
    OutputSpec {
        name: "freezer",
        follows: Follows::Gate("freezer"),
        active: Level::High,
    },
    OutputSpec {
        name: "alarm",
        follows: Follows::Claim(ClaimKind::Actor, "alarm"),
        active: Level::High,
    },
];
/// The pins of the outputs.
const PINS: [u32; OUTPUTS.len()] = [3, 2, 1];
/// The light is the upper left one of the matrix: its row is driven high, its column low.
const LIGHT_ROW: u32 = 13;
const LIGHT_COLUMN: u32 = 4;

pub(crate) static DEADLINES: Deadlines = Deadlines::new();

fn set(pin: u32, level: Level) {
    match level {
        Level::High => gpio::OUTSET.write(1 << pin),
        Level::Low => gpio::OUTCLR.write(1 << pin),
    }
}

/// Makes the outputs outputs, each at its safe level.
pub(crate) fn start() {
    make_safe();
    for pin in PINS.into_iter().chain([LIGHT_ROW, LIGHT_COLUMN]) {
        gpio::DIRSET.write(1 << pin);
    }
}

/// Brings every output to what its deadline says at `now`.
pub(crate) fn apply(now: TimeMs) {
    for (index, (output, pin)) in OUTPUTS.iter().zip(PINS).enumerate() {
        let is_active = DEADLINES.is_active(index, now);
        set(
            pin,
            if is_active {
                output.active
            } else {
                output.active.opposite()
            },
        );
    }
}

/// Makes every output safe without looking at anything: for a program that is about to end.
pub(crate) fn make_safe() {
    for (output, pin) in OUTPUTS.iter().zip(PINS) {
        set(pin, output.active.opposite());
    }
}

pub(crate) fn light(is_lit: bool) {
    set(LIGHT_ROW, if is_lit { Level::High } else { Level::Low });
    set(LIGHT_COLUMN, Level::Low);
}
