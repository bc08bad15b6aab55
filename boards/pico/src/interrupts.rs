//! What interrupts the main loop, and how a program that cannot go on ends.

use core::panic::PanicInfo;

use cortex_m::peripheral::SCB;
use cortex_m_rt::exception;

use crate::peripherals::BOARD;

/// Every millisecond.
#[exception]
fn SysTick() {
    BOARD.tick();
}

/// Ends the program: outputs safe, and from the start again.
pub(crate) fn reset() -> ! {
    cortex_m::interrupt::disable();
    BOARD.make_safe();
    SCB::sys_reset()
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    reset()
}

#[exception]
unsafe fn HardFault(_: &cortex_m_rt::ExceptionFrame) -> ! {
    reset()
}

#[exception]
unsafe fn DefaultHandler(_: i16) {
    reset()
}
