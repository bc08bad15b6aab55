//! Clock, pins, serial port, flash, noise and watchdog of this board.

use embassy_rp::clocks::RoscRng;
use embassy_rp::flash::{self, Blocking};
use embassy_rp::gpio::{Level as PinLevel, Output};
use embassy_rp::uart::{self, BufferedInterruptHandler, BufferedUart};
use embassy_rp::watchdog::Watchdog;
use embassy_rp::{bind_interrupts, peripherals};
use embassy_time::{Duration, Instant};
use keyfence_board::{Chip, On, Outputs, Parts, Supplied};
use keyfence_core::TimeMs;
use keyfence_firmware::kiosk::{Level, Note};
use sha2::{Digest as _, Sha256};

/// The watchdog resets the chip when it was not fed for this long; its counter holds little more than 8 seconds.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(4);
/// Bytes on the Pico's flash.
const FLASH_BYTES: usize = 2 * 1024 * 1024;
/// Samples of the ring oscillator that go into 32 random bytes: eight bits for one.
const SAMPLES: usize = 32 * 8;

bind_interrupts!(struct Interrupts {
    UART0_IRQ => BufferedInterruptHandler<peripherals::UART0>;
});

/// The flash. While it is programmed or erased, code runs from RAM with interrupts off; that is the driver's.
pub(crate) type Flash = Supplied<flash::Flash<'static, peripherals::FLASH, Blocking, FLASH_BYTES>>;

static PARTS: Parts<Output<'static>, BufferedUart> = Parts::new();

/// Starts everything, outputs first. `None` when it was started before.
pub(crate) fn start() -> Option<(Flash, Watchdog)> {
    let core = cortex_m::Peripherals::take()?;
    // The crystal of 12 MHz, 125 MHz for the processor.
    let chip = embassy_rp::init(embassy_rp::config::Config::default());

    let till = Output::new(chip.PIN_2, PinLevel::Low);
    let freezer = Output::new(chip.PIN_3, PinLevel::Low);
    let alarm = Output::new(chip.PIN_4, PinLevel::Low);
    let light = Output::new(chip.PIN_25, PinLevel::Low);
    PARTS.pins.put(Outputs::new([till, freezer, alarm], light, Level::High));

    keyfence_board::start_tick(core.SYST, embassy_rp::clocks::clk_sys_freq());

    let received = cortex_m::singleton!(: [u8; 512] = [0; 512])?;
    let to_send = cortex_m::singleton!(: [u8; 512] = [0; 512])?;
    // 115,200 baud.
    let settings = uart::Config::default();
    PARTS.serial.start(BufferedUart::new(
        chip.UART0, chip.PIN_0, chip.PIN_1, Interrupts, to_send, received, settings,
    ));

    let mut watchdog = Watchdog::new(chip.WATCHDOG);
    watchdog.pause_on_debug(true);
    watchdog.start(WATCHDOG);
    let flash = flash::Flash::new_blocking(chip.FLASH);
    Some((Supplied::new(flash, is_power_failing), watchdog))
}

/// What the application runs on.
pub(crate) type Kiosk = On<Pico>;
/// It; everything that it stands for is one of a kind.
pub(crate) const BOARD: Kiosk = On::new();

/// This chip.
#[derive(Clone, Copy)]
pub(crate) struct Pico;

impl Chip for Pico {
    type Pin = Output<'static>;
    type Port = BufferedUart;
    /// The flash chip's manual (W25Q16JV): a sector takes 400 at most.
    const ERASE_MS: u64 = 400;
    /// That manual's: 100,000.
    const ERASES_RATED: u32 = 100_000;

    fn parts() -> &'static Parts<Self::Pin, Self::Port> {
        &PARTS
    }

    /// Milliseconds since this boot, by the crystal. Never goes back.
    fn now() -> TimeMs {
        TimeMs::new(Instant::now().as_millis()).unwrap_or(TimeMs::MAX)
    }

    /// Fills `bytes` from the ring oscillator. Its bits are biased and follow each other (manual, section 2.17.5), so many of
    /// them go into each through a hash.
    fn random(bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            let mut samples = [0; SAMPLES];
            RoscRng.fill_bytes(&mut samples);
            for (byte, mixed) in chunk.iter_mut().zip(Sha256::digest(samples)) {
                *byte = mixed;
            }
        }
    }

    fn is_power_failing() -> bool {
        is_power_failing()
    }

    fn note(note: Note) {
        defmt::info!("{}", note);
    }
}

/// This chip warns of nothing: its brown-out detector resets it, and the journal is made for that.
fn is_power_failing() -> bool {
    false
}
