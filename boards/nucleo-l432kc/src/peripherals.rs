//! Clock, pins, serial port, noise, supply and watchdog of this board.

use core::sync::atomic::{AtomicBool, Ordering};

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;
use embassy_stm32::gpio::{Level as PinLevel, Output, Speed};
use embassy_stm32::pac;
use embassy_stm32::pac::pwr::vals::Pls;
use embassy_stm32::rcc::{LsConfig, MSIRange, Sysclk, mux};
use embassy_stm32::rng::{self, Rng};
use embassy_stm32::usart::{self, BufferedUart};
use embassy_stm32::wdg::IndependentWatchdog;
use embassy_stm32::{bind_interrupts, peripherals};
use embassy_time::Instant;
use keyfence_board::{Outputs, Serial, Shared, Supplied};
use keyfence_core::TimeMs;
use keyfence_firmware::kiosk::{Deadlines, Level};

use crate::flash::EccFlash;

/// The processor's clock.
const PROCESSOR_HZ: u32 = 48_000_000;
/// The watchdog resets the chip when it was not fed for this long.
const WATCHDOG_US: u32 = 4_000_000;

bind_interrupts!(struct Interrupts {
    USART2 => usart::BufferedInterruptHandler<peripherals::USART2>;
    RNG => rng::InterruptHandler<peripherals::RNG>;
});

/// The flash, left alone while the supply fails.
pub(crate) type Flash = Supplied<EccFlash>;
/// The watchdog.
pub(crate) type Watchdog = IndependentWatchdog<'static, peripherals::IWDG>;

pub(crate) static DEADLINES: Deadlines = Deadlines::new();
pub(crate) static SERIAL: Serial<BufferedUart<'static>> = Serial::new();
static PINS: Shared<Outputs<Output<'static>>> = Shared::new();
static NOISE: Shared<Rng<'static, peripherals::RNG>> = Shared::new();
static FAILING: AtomicBool = AtomicBool::new(false);

/// Starts everything, outputs first. `None` when it was started before.
pub(crate) fn start() -> Option<(Flash, Watchdog)> {
    let core = cortex_m::Peripherals::take()?;
    let mut config = embassy_stm32::Config::default();
    // The oscillator of 48 MHz, trimmed by the crystal of 32,768 Hz that leases are measured by; noise runs on it as well.
    config.rcc.ls = LsConfig::default_lse();
    config.rcc.msi = Some(MSIRange::RANGE48M);
    config.rcc.sys = Sysclk::MSI;
    config.rcc.mux.clk48sel = mux::Clk48sel::MSI;
    let chip = embassy_stm32::init(config);

    // D9 to D11 on the connector; the light is LD3.
    let till = Output::new(chip.PA8, PinLevel::Low, Speed::Low);
    let freezer = Output::new(chip.PA11, PinLevel::Low, Speed::Low);
    let alarm = Output::new(chip.PB5, PinLevel::Low, Speed::Low);
    let light = Output::new(chip.PB3, PinLevel::Low, Speed::Low);
    PINS.put(Outputs::new([till, freezer, alarm], light, Level::High));

    // The warning at 2.8 V; the board runs at 3.3 V.
    pac::PWR.cr2().modify(|cr2| {
        cr2.set_pls(Pls::V2_8);
        cr2.set_pvde(true);
    });
    start_tick(core.SYST);
    NOISE.put(Rng::new(chip.RNG, Interrupts));

    let received = cortex_m::singleton!(: [u8; 512] = [0; 512])?;
    let to_send = cortex_m::singleton!(: [u8; 512] = [0; 512])?;
    // 115,200 baud, on the pins that lead to the debugger's serial port.
    let settings = usart::Config::default();
    let port = BufferedUart::new(
        chip.USART2,
        chip.PA15,
        chip.PA2,
        to_send,
        received,
        Interrupts,
        settings,
    );
    SERIAL.start(port.ok()?);

    let mut watchdog = IndependentWatchdog::new(chip.IWDG, WATCHDOG_US);
    watchdog.unleash();
    Some((Supplied::new(EccFlash::new(chip.FLASH), is_power_failing), watchdog))
}

fn start_tick(mut tick: SYST) {
    tick.set_clock_source(SystClkSource::Core);
    tick.set_reload(PROCESSOR_HZ / 1_000 - 1);
    tick.clear_current();
    tick.enable_counter();
    tick.enable_interrupt();
}

/// Milliseconds since this boot, by the trimmed oscillator. Never goes back.
pub(crate) fn now() -> TimeMs {
    TimeMs::new(Instant::now().as_millis()).unwrap_or(TimeMs::MAX)
}

/// Fills `bytes` from the chip's noise.
pub(crate) fn random(bytes: &mut [u8]) {
    for word in bytes.chunks_mut(4) {
        // One word at a time, so that interrupts wait for no more than one.
        NOISE.with(|noise| noise.fill_bytes(word));
    }
}

/// Brings the pins to what the deadlines say now.
pub(crate) fn apply_outputs() {
    PINS.with(|pins| pins.apply(&DEADLINES, now()));
}

/// Makes every output safe.
pub(crate) fn make_safe() {
    PINS.with(Outputs::make_safe);
}

/// Switches the light.
pub(crate) fn light(is_lit: bool) {
    PINS.with(|pins| pins.light(is_lit));
}

/// Whether the supply was found below its warning level since the boot.
pub(crate) fn is_power_failing() -> bool {
    if pac::PWR.sr2().read().pvdo() {
        FAILING.store(true, Ordering::Relaxed);
    }
    FAILING.load(Ordering::Relaxed)
}
