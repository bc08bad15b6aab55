//! Clock, pins, serial port, flash, noise, supply and watchdog of this board.

use core::sync::atomic::{AtomicBool, Ordering};

use embassy_nrf::buffered_uarte::{self, BufferedUarte};
use embassy_nrf::config::{HfclkSource, LfclkSource};
use embassy_nrf::gpio::{Level as PinLevel, Output, OutputDrive};
use embassy_nrf::mode::Blocking;
use embassy_nrf::nvmc::Nvmc;
use embassy_nrf::pac::power::vals::Threshold;
use embassy_nrf::rng::Rng;
use embassy_nrf::uarte::{self, Baudrate};
use embassy_nrf::wdt::{self, Watchdog, WatchdogHandle};
use embassy_nrf::{bind_interrupts, pac, peripherals};
use embassy_time::Instant;
use keyfence_board::{Chip, On, Outputs, Parts, Shared, Supplied};
use keyfence_core::TimeMs;
use keyfence_firmware::kiosk::{Level, Note};

/// What the tick is counted from. The processor never sleeps: its clock would stand still.
const PROCESSOR_HZ: u32 = 64_000_000;
/// The watchdog resets the chip when it was not fed for this long.
const WATCHDOG_SECONDS: u32 = 4;

bind_interrupts!(struct Interrupts {
    UARTE0 => buffered_uarte::InterruptHandler<peripherals::UARTE0>;
});

/// The flash, left alone while the supply fails.
pub(crate) type Flash = Supplied<Nvmc<'static>>;

static PARTS: Parts<Output<'static>, BufferedUarte<'static>> = Parts::new();
static NOISE: Shared<Rng<'static, Blocking>> = Shared::new();
static FAILING: AtomicBool = AtomicBool::new(false);

/// Starts everything, outputs first. `None` when it was started before, or the watchdog runs with other settings.
pub(crate) fn start() -> Option<(Flash, WatchdogHandle)> {
    let core = cortex_m::Peripherals::take()?;
    let mut config = embassy_nrf::config::Config::default();
    // Leases are measured by the crystals.
    config.hfclk_source = HfclkSource::ExternalXtal;
    config.lfclk_source = LfclkSource::ExternalXtal;
    let chip = embassy_nrf::init(config);

    // D0 to D2 on the connector; the light is LED1, on at low.
    let till = Output::new(chip.P1_01, PinLevel::Low, OutputDrive::Standard);
    let freezer = Output::new(chip.P1_02, PinLevel::Low, OutputDrive::Standard);
    let alarm = Output::new(chip.P1_03, PinLevel::Low, OutputDrive::Standard);
    let light = Output::new(chip.P0_13, PinLevel::High, OutputDrive::Standard);
    PARTS.pins.put(Outputs::new([till, freezer, alarm], light, Level::Low));

    start_supply_warning();
    keyfence_board::start_tick(core.SYST, PROCESSOR_HZ);
    let noise = Rng::new_blocking(chip.RNG);
    noise.set_bias_correction(true);
    NOISE.put(noise);

    let received = cortex_m::singleton!(: [u8; 512] = [0; 512])?;
    let to_send = cortex_m::singleton!(: [u8; 512] = [0; 512])?;
    let mut settings = uarte::Config::default();
    settings.baudrate = Baudrate::Baud115200;
    // The pins that lead to the debugger's serial port.
    PARTS.serial.start(BufferedUarte::new(
        chip.UARTE0,
        chip.TIMER1,
        chip.PPI_CH0,
        chip.PPI_CH1,
        chip.PPI_GROUP0,
        chip.P0_08,
        chip.P0_06,
        Interrupts,
        settings,
        received,
        to_send,
    ));

    let mut guard = wdt::Config::default();
    guard.timeout_ticks = WATCHDOG_SECONDS * 32_768;
    let (_, [watchdog]) = Watchdog::try_new(chip.WDT, guard).ok()?;
    Some((Supplied::new(Nvmc::new(chip.NVMC), is_power_failing), watchdog))
}

/// The warning at 2.7 V; the board runs at 3 V.
fn start_supply_warning() {
    pac::POWER.events_pofwarn().write_value(0);
    pac::POWER.pofcon().write(|pofcon| {
        pofcon.set_pof(true);
        pofcon.set_threshold(Threshold::V27);
    });
}

/// What the application runs on.
pub(crate) type Kiosk = On<Dk>;
/// It; everything that it stands for is one of a kind.
pub(crate) const BOARD: Kiosk = On::new();

/// This chip.
#[derive(Clone, Copy)]
pub(crate) struct Dk;

impl Chip for Dk {
    type Pin = Output<'static>;
    type Port = BufferedUarte<'static>;
    /// The manual says 85, and 89.7 in the worst case.
    const ERASE_MS: u64 = 90;
    /// The manual's: 10,000.
    const ERASES_RATED: u32 = 10_000;

    fn parts() -> &'static Parts<Self::Pin, Self::Port> {
        &PARTS
    }

    /// Milliseconds since this boot, by the crystal of 32,768 Hz. Never goes back.
    fn now() -> TimeMs {
        TimeMs::new(Instant::now().as_millis()).unwrap_or(TimeMs::MAX)
    }

    /// Fills `bytes` from the chip's noise, with its bias correction on.
    fn random(bytes: &mut [u8]) {
        for byte in bytes {
            // One byte at a time, so that interrupts wait for no more than one.
            NOISE.with(|noise| noise.blocking_fill_bytes(core::slice::from_mut(byte)));
        }
    }

    fn is_power_failing() -> bool {
        is_power_failing()
    }

    fn note(note: Note) {
        defmt::info!("{}", note);
    }
}

/// Whether the supply was found below its warning level since the boot.
fn is_power_failing() -> bool {
    if pac::POWER.events_pofwarn().read() != 0 {
        FAILING.store(true, Ordering::Relaxed);
    }
    FAILING.load(Ordering::Relaxed)
}
