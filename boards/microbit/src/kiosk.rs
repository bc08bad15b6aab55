//! The application on this board.

use defmt_rtt as _;
use keyfence_core::TimeMs;
use keyfence_firmware::kiosk::{Board, Deadlines, Layout, Note, OutputSpec, Station};

use crate::flash::Flash;
use crate::{clock, interrupts, pins, power, random, serial};

/// Pages of the journal's region.
const PAGES: usize = 24;
/// How long the main loop goes on after a warning of the supply before it begins anew, in milliseconds: if the supply
/// holds after all, the kiosk is back.
const FAILING_MS: u64 = 1_000;

unsafe extern "C" {
    static __identity_start: u8;
    static __identity_end: u8;
    static __journal_start: u8;
    static __journal_end: u8;
}

/// Where things lie, as the linker was told.
fn layout() -> Layout {
    let identity = (&raw const __identity_start) as u32..(&raw const __identity_end) as u32;
    let journal = (&raw const __journal_start) as u32..(&raw const __journal_end) as u32;
    Layout { identity, journal }
}

/// This board; everything that it stands for is one of a kind.
#[derive(Clone, Copy)]
struct Microbit;

impl Board for Microbit {
    const OUTPUTS: &'static [OutputSpec] = pins::OUTPUTS;
    /// The manual says 22.3.
    const ERASE_MS: u64 = 23;
    /// The manual's: 20,000.
    const ERASES_RATED: u32 = 20_000;
    /// The tick comes every millisecond; the longest that it waits for is a word of flash or a critical section.
    const LAPSE_MS: u64 = 2;

    fn now(self) -> TimeMs {
        clock::now()
    }

    fn random(self, bytes: &mut [u8]) {
        random::fill(bytes);
    }

    fn deadlines(&self) -> &Deadlines {
        &pins::DEADLINES
    }

    fn apply_outputs(self) {
        pins::apply(clock::now());
    }

    fn light(self, is_lit: bool) {
        pins::light(is_lit);
    }

    fn receive(self) -> Option<u8> {
        serial::receive()
    }

    fn send(self, bytes: &[u8]) {
        serial::send(bytes);
    }

    fn is_power_failing(self) -> bool {
        power::is_failing()
    }

    fn note(self, note: Note) {
        defmt::info!("{}", note);
    }
}

defmt::timestamp!("{=u64:ms}", clock::now().as_ms());

/// The application, in a place of its own. A function apart: what it takes to make it is not for ever on the stack.
#[inline(never)]
fn station() -> Option<&'static mut Station<Flash, Microbit, PAGES>> {
    // SAFETY: called once; the linker keeps the program out of the identity and the journal.
    let flash = unsafe { Flash::take() };
    cortex_m::singleton!(: Station<Flash, Microbit, PAGES> = Station::new(flash, layout(), Microbit))
}

#[cortex_m_rt::entry]
fn main() -> ! {
    pins::start();
    power::start();
    clock::start();
    serial::start();
    interrupts::enable();
    defmt::info!("reset: {=u32:#x}", power::take_reset_reason());
    let Some(station) = station() else {
        interrupts::reset();
    };
    station.start();
    let mut failing_since = None;
    loop {
        station.turn();
        power::feed_watchdog();
        if power::is_failing() {
            let since = *failing_since.get_or_insert(clock::now());
            if clock::now().as_ms() >= since.as_ms() + FAILING_MS {
                interrupts::reset();
            }
        }
        // The tick wakes it, and whatever else comes.
        cortex_m::asm::wfi();
    }
}
