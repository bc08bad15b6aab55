//! The registers of the chip that this board uses: nRF51 Series Reference Manual 3.0.

/// A register of a peripheral. Made only here, so that every address is one of the manual's.
#[derive(Clone, Copy)]
pub(crate) struct Register(u32);

impl Register {
    pub(crate) fn read(self) -> u32 {
        // SAFETY: the address is that of a readable, aligned register of this chip.
        unsafe { (self.0 as *const u32).read_volatile() }
    }

    pub(crate) fn write(self, value: u32) {
        // SAFETY: the address is that of a writable, aligned register of this chip. None of them moves memory that the
        // compiler knows of, but the flash controller's, whose driver is the only one to write them.
        unsafe { (self.0 as *mut u32).write_volatile(value) }
    }

    /// The register `index` words behind this one.
    pub(crate) const fn at(self, index: usize) -> Self {
        Self(self.0 + 4 * index as u32)
    }
}

macro_rules! registers {
    ($($(#[$doc:meta])* $peripheral:ident = $base:literal { $($name:ident = $offset:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        pub(crate) mod $peripheral {
            use super::Register;
            $(pub(crate) const $name: Register = Register($base + $offset);)*
        }
    )*};
}

registers! {
    /// Oscillators, supply, resets.
    power = 0x4000_0000 {
        HFCLKSTART = 0x000, EVENTS_HFCLKSTARTED = 0x100, EVENTS_POFWARN = 0x108, INTENSET = 0x304,
        RESETREAS = 0x400, POFCON = 0x510,
    }
    /// The serial port.
    uart = 0x4000_2000 {
        STARTRX = 0x000, STARTTX = 0x008, EVENTS_RXDRDY = 0x108, EVENTS_TXDRDY = 0x11c, EVENTS_ERROR = 0x124,
        INTENSET = 0x304, ERRORSRC = 0x480, ENABLE = 0x500, PSELTXD = 0x50c, PSELRXD = 0x514, RXD = 0x518,
        TXD = 0x51c, BAUDRATE = 0x524,
    }
    /// The only timer with 32 bits.
    timer = 0x4000_8000 {
        START = 0x000, CLEAR = 0x00c, CAPTURE = 0x040, EVENTS_COMPARE = 0x140, INTENSET = 0x304, MODE = 0x504,
        BITMODE = 0x508, PRESCALER = 0x510, CC = 0x540,
    }
    /// Random numbers from noise.
    rng = 0x4000_d000 {
        START = 0x000, STOP = 0x004, EVENTS_VALRDY = 0x100, CONFIG = 0x504, VALUE = 0x508,
    }
    /// The watchdog.
    wdt = 0x4001_0000 {
        START = 0x000, CRV = 0x504, RREN = 0x508, CONFIG = 0x50c, RR = 0x600,
    }
    /// The flash controller.
    nvmc = 0x4001_e000 {
        READY = 0x400, CONFIG = 0x504, ERASEPAGE = 0x508,
    }
    /// The pins.
    gpio = 0x5000_0000 {
        OUTSET = 0x508, OUTCLR = 0x50c, DIRSET = 0x518, PIN_CNF = 0x700,
    }
}
