//! The outputs and the light.

use embedded_hal::digital::{OutputPin, PinState};
use keyfence_core::TimeMs;
use keyfence_core::gate::ClaimKind;
use keyfence_firmware::kiosk::{Deadlines, Follows, Level, OutputSpec};

/// A shop's outputs, the same on each of these boards. In reset their pins are inputs; a resistor of 10 kilohms to ground
/// holds each at its safe level.
pub const OUTPUTS: &[OutputSpec; 3] = &[
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

/// The pins of the [`OUTPUTS`], and the light that shows the state.
#[derive(Debug)]
pub struct Outputs<P> {
    pins: [P; OUTPUTS.len()],
    light: P,
    /// The level at which the light is lit.
    lit: Level,
}

impl<P: OutputPin> Outputs<P> {
    /// Takes the pins, and makes every output safe.
    pub fn new(pins: [P; OUTPUTS.len()], light: P, lit: Level) -> Self {
        let mut outputs = Self { pins, light, lit };
        outputs.make_safe();
        outputs.light(false);
        outputs
    }

    /// Brings every output to what its deadline says at `now`.
    pub fn apply(&mut self, deadlines: &Deadlines, now: TimeMs) {
        for (index, (pin, output)) in self.pins.iter_mut().zip(OUTPUTS).enumerate() {
            let is_active = deadlines.is_active(index, now);
            set(pin, output.active, is_active);
        }
    }

    /// Makes every output safe without looking at anything: for a program that is about to end.
    pub fn make_safe(&mut self) {
        for (pin, output) in self.pins.iter_mut().zip(OUTPUTS) {
            set(pin, output.active, false);
        }
    }

    /// Switches the light.
    pub fn light(&mut self, is_lit: bool) {
        set(&mut self.light, self.lit, is_lit);
    }
}

fn set<P: OutputPin>(pin: &mut P, active: Level, is_active: bool) {
    let level = if is_active { active } else { active.opposite() };
    let state = match level {
        Level::Low => PinState::Low,
        Level::High => PinState::High,
    };
    // A pin of these chips is a bit in a register: setting it cannot fail.
    let _: Result<(), P::Error> = pin.set_state(state);
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;
    use core::sync::atomic::{AtomicBool, Ordering};

    use embedded_hal::digital::ErrorType;

    use super::*;

    /// A pin whose level can be read.
    struct Pin<'a>(&'a AtomicBool);

    impl ErrorType for Pin<'_> {
        type Error = Infallible;
    }

    impl OutputPin for Pin<'_> {
        fn set_low(&mut self) -> Result<(), Infallible> {
            self.0.store(false, Ordering::Relaxed);
            Ok(())
        }

        fn set_high(&mut self) -> Result<(), Infallible> {
            self.0.store(true, Ordering::Relaxed);
            Ok(())
        }
    }

    fn at(ms: u64) -> TimeMs {
        TimeMs::new(ms).unwrap()
    }

    #[test]
    fn an_output_is_active_until_its_deadline_and_the_light_has_its_own_level() {
        let levels = [const { AtomicBool::new(true) }; 4];
        let [till, freezer, alarm, light] = &levels;
        let read = || levels.each_ref().map(|level| level.load(Ordering::Relaxed));
        let mut outputs = Outputs::new([Pin(till), Pin(freezer), Pin(alarm)], Pin(light), Level::Low);
        assert_eq!(read(), [false, false, false, true], "safe and dark from the start");
        let deadlines = Deadlines::new();
        deadlines.set(1, Some(at(100)));
        outputs.apply(&deadlines, at(99));
        assert_eq!(read(), [false, true, false, true]);
        outputs.apply(&deadlines, at(100));
        assert_eq!(read(), [false, false, false, true]);
        outputs.light(true);
        outputs.apply(&deadlines, at(50));
        assert_eq!(read(), [false, true, false, false]);
        outputs.make_safe();
        assert_eq!(read(), [false, false, false, false]);
    }
}
