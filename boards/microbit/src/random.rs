//! Random bytes from the chip's noise, with its bias correction on.

use crate::registers::rng;

pub(crate) fn fill(bytes: &mut [u8]) {
    rng::CONFIG.write(1);
    rng::START.write(1);
    for byte in bytes {
        // One takes 677 microseconds on average. Without any the watchdog ends the wait: nothing is served then.
        while rng::EVENTS_VALRDY.read() == 0 {
            core::hint::spin_loop();
        }
        rng::EVENTS_VALRDY.write(0);
        *byte = rng::VALUE.read() as u8;
    }
    rng::STOP.write(1);
}
