//! The application on this board.

use cortex_m::singleton;
use defmt_rtt as _;
use embassy_rp::flash::FLASH_BASE;
use embassy_time::Instant;
use keyfence_board::OUTPUTS;
use keyfence_core::TimeMs;
use keyfence_firmware::kiosk::{Board, Deadlines, Layout, Note, OutputSpec, Station};

use crate::interrupts;
use crate::peripherals::{self, Flash};

/// Pages of the journal's region.
const PAGES: usize = 8;

unsafe extern "C" {
    static __identity_start: u8;
    static __identity_end: u8;
    static __journal_start: u8;
    static __journal_end: u8;
}

/// Where things lie, as the linker was told; the driver counts from the beginning of the flash.
fn layout() -> Layout {
    let identity = offset(&raw const __identity_start)..offset(&raw const __identity_end);
    let journal = offset(&raw const __journal_start)..offset(&raw const __journal_end);
    Layout { identity, journal }
}

/// How far into the flash a place lies.
fn offset(place: *const u8) -> u32 {
    (place as u32).wrapping_sub(FLASH_BASE as u32)
}

/// This board; everything that it stands for is one of a kind.
#[derive(Clone, Copy)]
struct Pico;

impl Board for Pico {
    const OUTPUTS: &'static [OutputSpec] = OUTPUTS;
    /// The flash chip's manual (W25Q16JV): a sector takes 400 at most.
    const ERASE_MS: u64 = 400;
    /// That manual's: 100,000.
    const ERASES_RATED: u32 = 100_000;
    /// The tick comes every millisecond; the longest that it waits for is a critical section.
    const LAPSE_MS: u64 = 2;

    fn now(self) -> TimeMs {
        peripherals::now()
    }

    fn random(self, bytes: &mut [u8]) {
        peripherals::random(bytes);
    }

    fn deadlines(&self) -> &Deadlines {
        &peripherals::DEADLINES
    }

    fn apply_outputs(self) {
        peripherals::apply_outputs();
    }

    fn light(self, is_lit: bool) {
        peripherals::light(is_lit);
    }

    fn receive(self) -> Option<u8> {
        peripherals::SERIAL.receive()
    }

    fn send(self, bytes: &[u8]) {
        peripherals::SERIAL.send(bytes);
    }

    fn is_power_failing(self) -> bool {
        peripherals::is_power_failing()
    }

    fn note(self, note: Note) {
        defmt::info!("{}", note);
    }
}

defmt::timestamp!("{=u64:ms}", Instant::now().as_millis());

/// The application, in a place of its own.
#[inline(never)]
fn station(flash: Flash) -> Option<&'static mut Station<Flash, Pico, PAGES>> {
    singleton!(: Station<Flash, Pico, PAGES> = Station::new(flash, layout(), Pico))
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let Some((flash, mut watchdog)) = peripherals::start() else {
        interrupts::reset();
    };
    if let Some(station) = station(flash) {
        keyfence_board::run(station, Pico, || {
            watchdog.feed(peripherals::WATCHDOG);
            // The tick wakes it, and whatever else comes.
            cortex_m::asm::wfi();
        });
    }
    interrupts::reset();
}
