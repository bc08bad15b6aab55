//! Milliseconds since this boot, from TIMER0, and the tick that everything periodic hangs on.
//!
//! The timer counts microseconds in 32 bits and wraps after 71 minutes; it is read at every tick, so no wrap is missed.

use core::cell::Cell;

use critical_section::Mutex;
use keyfence_core::TimeMs;

use crate::registers::timer;

/// Microseconds between two ticks.
const TICK_US: u32 = 1_000;

/// Microseconds since the boot, as of the last reading.
static ELAPSED_US: Mutex<Cell<u64>> = Mutex::new(Cell::new(0));

pub(crate) fn start() {
    timer::MODE.write(0);
    timer::BITMODE.write(3);
    // 16 MHz divided by 2^4.
    timer::PRESCALER.write(4);
    timer::CLEAR.write(1);
    timer::CC.write(TICK_US);
    timer::INTENSET.write(1 << 16);
    timer::START.write(1);
}

/// The time since the boot. Never goes back.
pub(crate) fn now() -> TimeMs {
    critical_section::with(|section| {
        timer::CAPTURE.at(1).write(1);
        let counter = timer::CC.at(1).read();
        let elapsed = ELAPSED_US.borrow(section);
        let before = elapsed.get();
        let now = before + u64::from(counter.wrapping_sub(before as u32));
        elapsed.set(now);
        TimeMs::new(now / 1_000).unwrap_or(TimeMs::MAX)
    })
}

/// Answers the tick's interrupt and sets the next.
pub(crate) fn tick() -> TimeMs {
    timer::EVENTS_COMPARE.write(0);
    timer::CAPTURE.at(2).write(1);
    timer::CC.write(timer::CC.at(2).read().wrapping_add(TICK_US));
    now()
}
