//! The application's board, made of what a chip's drivers give.

use core::marker::PhantomData;

use embedded_hal::digital::OutputPin;
use embedded_io_async::{Read, Write};
use keyfence_core::TimeMs;
use keyfence_firmware::kiosk::{Board, Deadlines, Note, OutputSpec};

use crate::{OUTPUTS, Outputs, Serial, Shared};

/// What the main loop and the clock's interrupt share, for a board's one static.
#[derive(Debug)]
pub struct Parts<Pin, Port> {
    /// Until when each output may be active.
    pub deadlines: Deadlines,
    /// The outputs, once they are there.
    pub pins: Shared<Outputs<Pin>>,
    /// The serial port, once it is there.
    pub serial: Serial<Port>,
}

impl<Pin: OutputPin, Port: Read + Write> Default for Parts<Pin, Port> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Pin: OutputPin, Port: Read + Write> Parts<Pin, Port> {
    /// Nothing is there yet: no output, no port.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            deadlines: Deadlines::new(),
            pins: Shared::new(),
            serial: Serial::new(),
        }
    }
}

/// What a chip gives.
pub trait Chip: Copy + 'static {
    /// A pin.
    type Pin: OutputPin + 'static;
    /// The driver of the serial port.
    type Port: Read + Write + 'static;
    /// Milliseconds that an erase of one page halts everything, at most.
    const ERASE_MS: u64;
    /// Erases that the chip's maker promises for a page.
    const ERASES_RATED: u32;

    /// The board's one static.
    fn parts() -> &'static Parts<Self::Pin, Self::Port>;
    /// Milliseconds since this boot; never goes back.
    fn now() -> TimeMs;
    /// Fills `bytes` with what nobody can foretell.
    fn random(bytes: &mut [u8]);
    /// Whether the supply was found below its warning level since the boot.
    fn is_power_failing() -> bool;
    /// Writes a line of the log.
    fn note(note: Note);
}

/// The board of a chip.
#[derive(Debug)]
pub struct On<C>(PhantomData<C>);

impl<C> Clone for On<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for On<C> {}

impl<C: Chip> Default for On<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Chip> On<C> {
    /// The board.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }

    /// What the clock's interrupt does every millisecond: an output leaves its active level when its moment has come, and
    /// all do when the supply fails, whatever the main loop does.
    pub fn tick(self) {
        if C::is_power_failing() {
            self.make_safe();
        } else {
            self.apply_outputs();
        }
    }

    /// Makes every output safe without looking at anything.
    pub fn make_safe(self) {
        C::parts().pins.with(Outputs::make_safe);
    }
}

impl<C: Chip> Board for On<C> {
    const OUTPUTS: &'static [OutputSpec] = OUTPUTS;
    const ERASE_MS: u64 = C::ERASE_MS;
    const ERASES_RATED: u32 = C::ERASES_RATED;
    /// The tick comes every millisecond; the longest that it waits for is a critical section.
    const LAPSE_MS: u64 = 2;

    fn now(self) -> TimeMs {
        C::now()
    }

    fn random(self, bytes: &mut [u8]) {
        C::random(bytes);
    }

    fn deadlines(&self) -> &Deadlines {
        &C::parts().deadlines
    }

    fn apply_outputs(self) {
        let parts = C::parts();
        parts.pins.with(|pins| pins.apply(&parts.deadlines, C::now()));
    }

    fn light(self, is_lit: bool) {
        C::parts().pins.with(|pins| pins.light(is_lit));
    }

    fn receive(self) -> Option<u8> {
        C::parts().serial.receive()
    }

    fn send(self, bytes: &[u8]) {
        C::parts().serial.send(bytes);
    }

    fn is_power_failing(self) -> bool {
        C::is_power_failing()
    }

    fn note(self, note: Note) {
        C::note(note);
    }
}
