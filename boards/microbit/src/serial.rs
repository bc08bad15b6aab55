//! UART0 at 115,200 baud, driven by its interrupt, with a ring for each direction.
//!
//! While a page is erased the processor is halted for 22 ms, and what arrives meanwhile is lost but for six bytes. The link
//! recovers from that as from any lost frame.

use core::cell::RefCell;

use critical_section::Mutex;
use heapless::Deque;

use crate::registers::{gpio, uart};

/// micro:bit v1: the pins that lead to the USB interface.
const PIN_TX: u32 = 24;
const PIN_RX: u32 = 25;
const BAUD_115200: u32 = 0x01d7_e000;
const ENABLED: u32 = 4;

struct Rings {
    /// Whether a byte is on its way out, whose end the interrupt will tell.
    is_sending: bool,
    received: Deque<u8, 256>,
    to_send: Deque<u8, 256>,
}

static RINGS: Mutex<RefCell<Rings>> = Mutex::new(RefCell::new(Rings {
    is_sending: false,
    received: Deque::new(),
    to_send: Deque::new(),
}));

pub(crate) fn start() {
    // The pins as the manual's chapter on the UART wants them: a line that idles high, and an input that is connected.
    gpio::OUTSET.write(1 << PIN_TX);
    gpio::DIRSET.write(1 << PIN_TX);
    gpio::PIN_CNF.at(PIN_RX as usize).write(0);
    uart::PSELTXD.write(PIN_TX);
    uart::PSELRXD.write(PIN_RX);
    uart::BAUDRATE.write(BAUD_115200);
    uart::ENABLE.write(ENABLED);
    uart::EVENTS_RXDRDY.write(0);
    uart::EVENTS_TXDRDY.write(0);
    uart::INTENSET.write(1 << 2 | 1 << 7 | 1 << 9);
    uart::STARTRX.write(1);
    uart::STARTTX.write(1);
}

/// The oldest byte that was received and not yet taken.
pub(crate) fn receive() -> Option<u8> {
    critical_section::with(|section| RINGS.borrow_ref_mut(section).received.pop_front())
}

/// Sends all bytes; waits while the ring is full.
pub(crate) fn send(bytes: &[u8]) {
    for byte in bytes {
        let mut is_queued = false;
        while !is_queued {
            is_queued = critical_section::with(|section| {
                let mut rings = RINGS.borrow_ref_mut(section);
                if !rings.is_sending {
                    rings.is_sending = true;
                    uart::TXD.write((*byte).into());
                    return true;
                }
                rings.to_send.push_back(*byte).is_ok()
            });
        }
    }
}

/// Answers the interrupt.
pub(crate) fn interrupted() {
    critical_section::with(|section| {
        let mut rings = RINGS.borrow_ref_mut(section);
        if uart::EVENTS_ERROR.read() != 0 {
            uart::EVENTS_ERROR.write(0);
            uart::ERRORSRC.write(uart::ERRORSRC.read());
        }
        while uart::EVENTS_RXDRDY.read() != 0 {
            uart::EVENTS_RXDRDY.write(0);
            // A full ring drops the byte; its frame is lost and sent again.
            let _ = rings.received.push_back(uart::RXD.read() as u8);
        }
        if uart::EVENTS_TXDRDY.read() != 0 {
            uart::EVENTS_TXDRDY.write(0);
            match rings.to_send.pop_front() {
                Some(byte) => uart::TXD.write(byte.into()),
                None => rings.is_sending = false,
            }
        }
    });
}
