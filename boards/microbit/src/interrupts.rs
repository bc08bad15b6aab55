//! What interrupts the main loop, and how a program that cannot go on ends.

use core::panic::PanicInfo;

use cortex_m::interrupt::InterruptNumber;
use cortex_m::peripheral::{NVIC, SCB};
use cortex_m_rt::exception;

use crate::{clock, pins, power, serial};

/// The interrupts that are used, by their number in the chip.
#[derive(Clone, Copy)]
enum Interrupt {
    Power = 0,
    Uart = 2,
    Timer = 8,
}

// SAFETY: the numbers are those of the chip's interrupts (manual, section 4.2.2) and do not change.
unsafe impl InterruptNumber for Interrupt {
    fn number(self) -> u16 {
        self as u16
    }
}

type Handler = unsafe extern "C" fn();

unsafe extern "C" {
    /// cortex-m-rt's name for what handles everything unexpected.
    fn DefaultHandler();
}

/// The chip's part of the table of interrupts.
#[unsafe(link_section = ".vector_table.interrupts")]
#[unsafe(no_mangle)]
pub(crate) static __INTERRUPTS: [Handler; 32] = {
    let mut handlers: [Handler; 32] = [DefaultHandler; 32];
    handlers[Interrupt::Power as usize] = on_power;
    handlers[Interrupt::Uart as usize] = on_uart;
    handlers[Interrupt::Timer as usize] = on_timer;
    handlers
};

extern "C" fn on_power() {
    power::warned();
    pins::make_safe();
}

extern "C" fn on_uart() {
    serial::interrupted();
}

extern "C" fn on_timer() {
    let now = clock::tick();
    if power::is_failing() {
        pins::make_safe();
    } else {
        pins::apply(now);
    }
}

pub(crate) fn enable() {
    for interrupt in [Interrupt::Power, Interrupt::Uart, Interrupt::Timer] {
        // SAFETY: everything that the handlers touch has been started, and is shared through critical sections.
        unsafe { NVIC::unmask(interrupt) }
    }
}

/// Ends the program: outputs safe, and from the start again.
pub(crate) fn reset() -> ! {
    cortex_m::interrupt::disable();
    pins::make_safe();
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
