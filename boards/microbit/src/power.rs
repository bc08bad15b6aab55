//! The supply, the oscillator, the watchdog.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::registers::{power, wdt};

/// The highest of the four warning levels, 2.7 V: the micro:bit runs at 3.3 V from USB, 3 V from its batteries.
const POFCON_2V7: u32 = 1 | 3 << 1;
/// The watchdog resets the chip when it was not fed for this long.
const WATCHDOG_SECONDS: u32 = 4;
const WATCHDOG_RELOAD: u32 = 0x6e52_4635;

static FAILING: AtomicBool = AtomicBool::new(false);

/// Starts the crystal oscillator, the warning of a failing supply and the watchdog, which nothing can stop.
pub(crate) fn start() {
    power::HFCLKSTART.write(1);
    while power::EVENTS_HFCLKSTARTED.read() == 0 {
        core::hint::spin_loop();
    }
    power::EVENTS_POFWARN.write(0);
    power::INTENSET.write(1 << 2);
    power::POFCON.write(POFCON_2V7);
    wdt::CRV.write(WATCHDOG_SECONDS * 32_768 - 1);
    // It runs while the processor sleeps, and pauses while a debugger has stopped it.
    wdt::CONFIG.write(1);
    wdt::RREN.write(1);
    wdt::START.write(1);
}

/// Tells the watchdog that the main loop runs.
pub(crate) fn feed_watchdog() {
    wdt::RR.write(WATCHDOG_RELOAD);
}

/// The supply is below the warning level. Nothing is programmed or erased from here on; when the supply holds after all, a
/// reset begins anew.
pub(crate) fn warned() {
    power::EVENTS_POFWARN.write(0);
    FAILING.store(true, Ordering::Relaxed);
}

/// Whether the supply was found failing since the boot.
pub(crate) fn is_failing() -> bool {
    FAILING.load(Ordering::Relaxed)
}

/// Why the chip was reset; the next reset finds it clear.
pub(crate) fn take_reset_reason() -> u32 {
    let reason = power::RESETREAS.read();
    power::RESETREAS.write(reason);
    reason
}
