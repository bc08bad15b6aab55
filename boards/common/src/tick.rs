//! The interrupt that comes every millisecond.

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;

/// Starts it, counted from the processor's clock.
pub fn start_tick(mut tick: SYST, processor_hz: u32) {
    tick.set_clock_source(SystClkSource::Core);
    tick.set_reload(processor_hz / 1_000 - 1);
    tick.clear_current();
    tick.enable_counter();
    tick.enable_interrupt();
}
