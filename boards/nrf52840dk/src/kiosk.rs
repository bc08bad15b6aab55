//! The application on this board.

use cortex_m::singleton;
use defmt_rtt as _;
use embassy_time::Instant;
use keyfence_firmware::kiosk::{Layout, Station};

use crate::interrupts;
use crate::peripherals::{self, BOARD, Flash, Kiosk};

/// Pages of the journal's region.
const PAGES: usize = 8;

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

defmt::timestamp!("{=u64:ms}", Instant::now().as_millis());

/// The application, in a place of its own.
#[inline(never)]
fn station(flash: Flash) -> Option<&'static mut Station<Flash, Kiosk, PAGES>> {
    singleton!(: Station<Flash, Kiosk, PAGES> = Station::new(flash, layout(), BOARD))
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let Some((flash, mut watchdog)) = peripherals::start() else {
        interrupts::reset();
    };
    if let Some(station) = station(flash) {
        keyfence_board::run(station, BOARD, || {
            watchdog.pet();
        });
    }
    interrupts::reset();
}
