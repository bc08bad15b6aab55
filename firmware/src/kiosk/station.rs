//! A kiosk at its line: what the main loop of a board runs.

use embedded_storage::nor_flash::NorFlash;

use super::board::Board;
use super::{Kiosk, Layout};
use crate::identity;
use crate::journal::{Law, Policy};
use crate::link::KioskEnd;

/// Bytes that are taken from the line before the rest of the main loop has its turn, a frame and more.
const BYTES_A_TURN: usize = 1_024;

/// A kiosk and its end of the link.
///
/// Call [`start`](Self::start), then [`turn`](Self::turn) for ever; in between the processor may sleep until an interrupt.
pub struct Station<F, B, const PAGES: usize, P = Law> {
    board: B,
    kiosk: Kiosk<F, B, PAGES, P>,
    link: KioskEnd,
}

impl<F: NorFlash, B: Board, const PAGES: usize, P: Policy> Station<F, B, PAGES, P> {
    /// Reads who the kiosk is. Nothing is written; every output is safe. Call [`start`](Self::start) next.
    pub fn new(mut flash: F, layout: Layout, board: B) -> Self {
        let boot = super::fresh_process(board);
        let found = identity::read(&mut flash, &layout.identity);
        let known = found.as_ref().map(|_| ()).map_err(|error| *error);
        let identity = found.ok().map(|identity| identity.on_link());
        Self {
            board,
            kiosk: Kiosk::new(flash, layout, board, boot, known),
            link: KioskEnd::new(identity, boot),
        }
    }

    /// Reads the ledger. Nothing is written.
    pub fn start(&mut self) {
        self.kiosk.start();
    }

    /// The kiosk.
    pub const fn kiosk(&self) -> &Kiosk<F, B, PAGES, P> {
        &self.kiosk
    }

    /// One turn of the main loop: what was received is answered, then whatever else is due.
    pub fn turn(&mut self) {
        let board = self.board;
        let mut random = |bytes: &mut [u8]| board.random(bytes);
        for _ in 0..BYTES_A_TURN {
            let Some(byte) = board.receive() else {
                break;
            };
            self.kiosk.received();
            if let Some(frame) = self.link.receive(byte, &mut random, &mut self.kiosk) {
                board.send(frame);
            }
        }
        self.kiosk.turn();
    }
}
