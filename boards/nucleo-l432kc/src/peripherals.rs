//! Clock, pins, serial port, noise, supply and watchdog of this board.

use core::sync::atomic::{AtomicBool, Ordering};

use embassy_stm32::gpio::{Level as PinLevel, Output, Speed};
use embassy_stm32::pac;
use embassy_stm32::pac::pwr::vals::Pls;
use embassy_stm32::rcc::{LsConfig, MSIRange, Sysclk, mux};
use embassy_stm32::rng::{self, Rng};
use embassy_stm32::usart::{self, BufferedUart};
use embassy_stm32::wdg::IndependentWatchdog;
use embassy_stm32::{bind_interrupts, peripherals};
use embassy_time::Instant;
use keyfence_board::{Chip, On, Outputs, Parts, Shared, Supplied};
use keyfence_core::TimeMs;
use keyfence_firmware::kiosk::{Level, Note};

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

static PARTS: Parts<Output<'static>, BufferedUart<'static>> = Parts::new();
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
    PARTS.pins.put(Outputs::new([till, freezer, alarm], light, Level::High));

    // The warning at 2.8 V; the board runs at 3.3 V.
    pac::PWR.cr2().modify(|cr2| {
        cr2.set_pls(Pls::V2_8);
        cr2.set_pvde(true);
    });
    keyfence_board::start_tick(core.SYST, PROCESSOR_HZ);
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
    PARTS.serial.start(port.ok()?);

    let mut watchdog = IndependentWatchdog::new(chip.IWDG, WATCHDOG_US);
    watchdog.unleash();
    Some((Supplied::new(EccFlash::new(chip.FLASH), is_power_failing), watchdog))
}

/// What the application runs on.
pub(crate) type Kiosk = On<Nucleo>;
/// It; everything that it stands for is one of a kind.
pub(crate) const BOARD: Kiosk = On::new();

/// This chip.
#[derive(Clone, Copy)]
pub(crate) struct Nucleo;

impl Chip for Nucleo {
    type Pin = Output<'static>;
    type Port = BufferedUart<'static>;
    /// The manual says 24.47.
    const ERASE_MS: u64 = 25;
    /// The manual's: 10,000.
    const ERASES_RATED: u32 = 10_000;

    fn parts() -> &'static Parts<Self::Pin, Self::Port> {
        &PARTS
    }

    /// Milliseconds since this boot, by the trimmed oscillator. Never goes back.
    fn now() -> TimeMs {
        TimeMs::new(Instant::now().as_millis()).unwrap_or(TimeMs::MAX)
    }

    /// Fills `bytes` from the chip's noise.
    fn random(bytes: &mut [u8]) {
        for word in bytes.chunks_mut(4) {
            // One word at a time, so that interrupts wait for no more than one.
            NOISE.with(|noise| noise.fill_bytes(word));
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
    if pac::PWR.sr2().read().pvdo() {
        FAILING.store(true, Ordering::Relaxed);
    }
    FAILING.load(Ordering::Relaxed)
}
