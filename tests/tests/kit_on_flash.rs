//! The conformance kit on the flash store: as it is, and with the region mounted again between every two steps of the
//! same power-up, which changes no answer.

use std::cell::Cell;
use std::rc::Rc;

use keyfence_core::event::Event;
use keyfence_core::refusal::RefusedCall;
use keyfence_core::store::Place;
use keyfence_core::{Incarnation, LedgerId, Name, TimeMs, Token};
use keyfence_firmware::journal::Existing;
use keyfence_firmware::store::{Ledger, NAME_BYTES_MAX};
use keyfence_tests::flash::SimFlash;
use keyfence_tests::kit::{BadExpiry, Bench, Bounds, Can, left_out};

/// How many rows of each kind there is room for.
const ROWS: usize = 12;

type Now = Rc<Cell<TimeMs>>;
type Store<const WRITE: usize, const ERASE: usize> =
    Ledger<SimFlash<WRITE, ERASE>, Reading, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, 16, 232, 416>;

/// The clock that the scenarios set.
struct Reading(Now);

impl keyfence_firmware::store::Clock for Reading {
    fn now(&mut self) -> TimeMs {
        self.0.get()
    }
}

struct OnFlash<const WRITE: usize, const ERASE: usize> {
    ledger: Box<Store<WRITE, ERASE>>,
    now: Now,
    remounts: bool,
}

impl<const WRITE: usize, const ERASE: usize> OnFlash<WRITE, ERASE> {
    fn new(geometry: &str, pages: usize, remounts: bool) -> Self {
        let now = Now::new(Cell::new(epoch()));
        let flash = SimFlash::named(geometry, pages);
        // Scenarios count tokens; a mount jumps over what was reserved and not used, so nothing is.
        let range = 0..(pages * ERASE) as u32;
        let mut ledger = Box::new(Store::reserving(1, flash, range, Reading(now.clone())));
        ledger
            .provision(LedgerId::from_bytes([3; 16]), 1, 0, Existing::Refuse)
            .expect("a blank region");
        Self { ledger, now, remounts }
    }
}

fn epoch() -> TimeMs {
    TimeMs::new(100_000_000).expect("a day after the power-up")
}

impl<const WRITE: usize, const ERASE: usize> Bench for OnFlash<WRITE, ERASE> {
    type Store = Store<WRITE, ERASE>;

    fn store(&mut self) -> &mut Self::Store {
        &mut self.ledger
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            epoch: epoch(),
            name_bytes_max: NAME_BYTES_MAX,
            rows_max: Some(ROWS),
            can: &[Can::Prune, Can::Lift, Can::Reboot, Can::Fill],
        }
    }

    fn set_now(&mut self, now: TimeMs) {
        self.now.set(now);
    }

    fn between(&mut self) {
        if self.remounts {
            self.ledger.remount().expect("nothing is damaged");
        }
    }

    fn history(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn refusals(&mut self) -> Vec<RefusedCall> {
        Vec::new()
    }

    fn damage(&mut self, _: Place, _: &Name, _: BadExpiry) {
        unreachable!("expiries are not written")
    }

    fn prune(&mut self) {
        self.ledger.prune().expect("nothing is damaged");
    }

    fn lift_counter(&mut self, floor: Token) {
        self.ledger.lift_counter(floor).expect("the counter is lifted");
    }

    fn raise_incarnations(&mut self, floor: Incarnation) {
        self.ledger.raise_incarnation_floor(floor).expect("the floor is raised");
    }

    fn reboot(&mut self) {
        self.ledger.power_up(0).expect("nothing is damaged");
    }
}

mod as_it_is {
    keyfence_tests::kit_tests!(super::OnFlash::<4, 4096>::new("nrf52", 16, false));
}

mod mounted_again_between_steps {
    keyfence_tests::kit_tests!(super::OnFlash::<4, 4096>::new("nrf52", 16, true));
}

mod on_large_units {
    keyfence_tests::kit_tests!(super::OnFlash::<32, 131_072>::new("stm32h7", 4, true));
}

#[test]
fn only_what_a_kiosk_does_not_keep_is_left_out() {
    let left_out = left_out(&Bench::bounds(&OnFlash::<4, 4096>::new("nrf52", 16, false)));
    // Expiries are not written, the frames are the history, and the audit ring has the refusals.
    assert_eq!(left_out.len(), 19, "{left_out:?}");
    let kept = |name: &&str| !name.contains("malformed") && !name.contains("event") && !name.contains("recor");
    let others: Vec<&str> = left_out.into_iter().filter(kept).collect();
    assert_eq!(
        others,
        [
            "an_attempts_end_is_in_the_history_by_its_name",
            "a_messages_end_is_in_the_history_by_its_name"
        ]
    );
}
