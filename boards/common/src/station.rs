//! The main loop.

use embedded_storage::nor_flash::NorFlash;
use keyfence_core::TimeMs;
use keyfence_firmware::kiosk::{Board, Station};

/// How long the main loop goes on after a warning of the supply before it begins anew, in milliseconds: if the supply
/// holds after all, the kiosk is back.
const FAILING_MS: u64 = 1_000;

/// Runs the kiosk until the supply has failed for a second; then it is time for a reset. `each_turn` feeds the watchdog, and may
/// let the processor sleep until an interrupt.
pub fn run<F: NorFlash, B: Board, const PAGES: usize>(
    station: &mut Station<F, B, PAGES>,
    board: B,
    mut each_turn: impl FnMut(),
) {
    station.start();
    let mut failing_since: Option<TimeMs> = None;
    loop {
        station.turn();
        each_turn();
        if board.is_power_failing() {
            let now = board.now();
            let since = *failing_since.get_or_insert(now);
            if now.as_ms() >= since.as_ms().saturating_add(FAILING_MS) {
                return;
            }
        }
    }
}
