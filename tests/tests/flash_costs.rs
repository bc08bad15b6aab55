//! What a claim costs on the flash store, beside the peer in the same run: takeovers of 8 sessions between 2 hosts, names
//! of 8 bytes, 4 pages.

use std::cell::Cell;
use std::rc::Rc;

use keyfence_core::host::{self, Register};
use keyfence_core::session::{self, ClaimSession};
use keyfence_core::store::Store as _;
use keyfence_core::{LedgerId, Name, ProcessId, TimeMs, Ttl, counter};
use keyfence_firmware::journal::Existing;
use keyfence_firmware::store::{Clock, Ledger};
use keyfence_tests::flash::{Counters, Geometry, SimFlash};
use keyfence_tests::powercut::cost::{CLAIM_ERASES_TARGET, Cost, Daily, MINT_ERASES_TARGET, measure};
use keyfence_tests::powercut::stores;

const PAGES: usize = 4;
const SESSIONS: u64 = 8;
/// Erases that are waited for, so that page turns are counted in full.
const ERASES: u64 = 24;

struct At(Rc<Cell<u64>>);

impl Clock for At {
    fn now(&mut self) -> TimeMs {
        TimeMs::new(self.0.get()).expect("a moment")
    }
}

/// What something costs on average.
#[derive(Debug)]
struct Average {
    bytes: f64,
    erases_per_million: f64,
    read_bytes: f64,
}

fn average(counters: impl Fn() -> Counters, mut act: impl FnMut()) -> Average {
    let first = counters().erases;
    while counters().erases == first {
        act();
    }
    let (start, mut acts) = (counters(), 0);
    while counters().erases < start.erases + ERASES {
        act();
        acts += 1;
    }
    let end = counters();
    let per_act = |after: u64, before: u64| (after - before) as f64 / f64::from(acts);
    Average {
        bytes: per_act(end.programmed_bytes, start.programmed_bytes),
        erases_per_million: 1e6 * per_act(end.erases, start.erases),
        read_bytes: per_act(end.read_bytes, start.read_bytes),
    }
}

/// Claims and pure mints.
fn ours<const WRITE: usize, const ERASE: usize>(name: &str) -> (Average, Average) {
    let flash = SimFlash::<WRITE, ERASE>::named(name, PAGES);
    let time = Rc::new(Cell::new(1_000_000));
    let range = 0..(PAGES * ERASE) as u32;
    let mut ledger: Box<Ledger<_, _>> = Box::new(Ledger::new(flash.clone(), range, At(time.clone())));
    ledger
        .provision(LedgerId::from_bytes([5; 16]), 1, 0, Existing::Refuse)
        .expect("a blank region");
    let forever = Ttl::from_ms(Ttl::MAX_MS).expect("ten years");
    let hosts: Vec<_> = [1, 2]
        .map(|number| {
            let ask = Register {
                host: Name::new(&format!("kiosk-{number:02}")).expect("a name"),
                process: ProcessId::from_bytes([number; 16]),
                proof: host::Proof::Process,
                ttl: forever,
            };
            let granted = ledger
                .step(|step, now| host::register(step, &ask, now))
                .expect("a decision");
            granted.expect("a free host").grant
        })
        .into();
    let mut claims = 0;
    let counters = || flash.chip().counters().clone();
    let claim = average(counters, || {
        let ask = ClaimSession {
            session: Name::new(&format!("sess-{:03}", claims % SESSIONS)).expect("a name"),
            host: hosts[(claims / SESSIONS % 2) as usize].clone(),
            ttl: Ttl::SESSION_LEASE,
        };
        claims += 1;
        time.set(time.get() + 61_000);
        let granted = ledger
            .step(|step, now| session::claim(step, &ask, now))
            .expect("a decision");
        assert!(!granted.expect("the lease before has lapsed").renewed);
    });
    let purpose = Name::new("till").expect("a name");
    let mint = average(counters, || {
        ledger
            .step(|step, now| counter::mint_for(step, &purpose, now))
            .expect("a decision")
            .expect("a token");
    });
    assert_eq!(flash.chip().abuse(), None);
    (claim, mint)
}

fn peer(name: &str) -> Cost {
    let geometry = Geometry::named(name).expect("a geometry of the list");
    let store = stores::named("sequential-storage").expect("a store of the list");
    measure(store, geometry, &Daily::busy_kiosk(geometry)).expect("the peer lives")
}

fn compare<const WRITE: usize, const ERASE: usize>(name: &str) {
    let ((claim, mint), peer) = (ours::<WRITE, ERASE>(name), peer(name));
    let ratio = claim.erases_per_million / peer.erases_per_million;
    let mint_ratio = mint.erases_per_million / peer.erases_per_million;
    println!(
        "{name}: {:.1} bytes programmed and {:.0} read a claim, {:.0} erases a million; the peer {:.1} and {:.0}: ratio \
         {ratio:.3}. A mint {:.0} erases a million: ratio {mint_ratio:.4}",
        claim.bytes,
        claim.read_bytes,
        claim.erases_per_million,
        peer.bytes_per_claim,
        peer.erases_per_million,
        mint.erases_per_million,
    );
    assert!(ratio <= CLAIM_ERASES_TARGET, "{name}: {ratio}");
    assert!(mint_ratio <= MINT_ERASES_TARGET, "{name}: {mint_ratio}");
}

#[test]
fn claims_and_mints_cost_what_was_promised() {
    compare::<4, 4096>("nrf52");
    compare::<8, 2048>("stm32l4");
    compare::<32, 131_072>("stm32h7");
}
