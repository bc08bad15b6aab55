//! The application on this board.

use cortex_m::singleton;
use defmt_rtt as _;
use embassy_rp::flash::FLASH_BASE;
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
            watchdog.feed(peripherals::WATCHDOG);
            // The tick wakes it, and whatever else comes.
            cortex_m::asm::wfi();
        });
    }
    interrupts::reset();
}
