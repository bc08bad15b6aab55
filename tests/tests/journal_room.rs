//! Room for power cuts, on the simulated chips: a region that is too small for them is never provisioned, what cuts and
//! failing slots take at the end of a page is not missed, and small frames empty a page that large ones have filled.

use keyfence_firmware::journal::{CUTS, Existing, GeometryError, Journal, Record, SettleError};
use keyfence_tests::flash::{Gone, Image, Lie, Plan, Reading, Reported, SimFlash, Tear, Work};

const KEYS: usize = 64;
const PAGES_MAX: usize = 16;
type Of<const WRITE: usize, const ERASE: usize, const FRAME: usize> =
    Journal<SimFlash<WRITE, ERASE>, PAGES_MAX, KEYS, FRAME>;

/// The fewest pages that are provisioned; with one less the refusal says how many.
fn least_pages<const WRITE: usize, const ERASE: usize, const FRAME: usize>(name: &str) -> usize {
    let provision = |pages: usize| {
        let flash = SimFlash::named(name, pages);
        let mut journal = Of::<WRITE, ERASE, FRAME>::new(flash, 0..(pages * ERASE) as u32, 8);
        journal.provision(1, 0, Existing::Refuse)
    };
    let least = (3..PAGES_MAX).find(|pages| provision(*pages).is_ok());
    let least = least.expect("a number of pages that is enough");
    for pages in 3..least {
        let refused = SettleError::Geometry(GeometryError::Room { pages_min: least });
        assert_eq!(provision(pages), Err(refused), "{name}: {pages} pages");
    }
    least
}

#[test]
fn j7_a_region_too_small_for_power_cuts_is_not_provisioned() {
    let least = [
        least_pages::<1, 512, 256>("tiny-1"),
        least_pages::<4, 512, 256>("tiny-4"),
        least_pages::<8, 512, 256>("tiny-8"),
        least_pages::<32, 1024, 256>("tiny-32"),
        least_pages::<4, 1024, 416>("nrf51"),
        least_pages::<4, 4096, 416>("nrf52"),
        least_pages::<1, 4096, 416>("rp2040"),
        least_pages::<8, 2048, 416>("stm32l4"),
        least_pages::<32, 131_072, 416>("stm32h7"),
    ];
    assert_eq!(least, [5, 5, 5, 5, 5, 3, 3, 3, 3]);
}

/// A journal on what is left of a chip.
fn on_image<const WRITE: usize, const ERASE: usize>(image: &Image) -> (SimFlash<WRITE, ERASE>, Of<WRITE, ERASE, 256>) {
    let flash = SimFlash::with_image(image.clone());
    let journal = Of::new(flash.clone(), 0..image.size_bytes() as u32, 8);
    (flash, journal)
}

/// A new journal and the chip that it is on.
fn provisioned<const WRITE: usize, const ERASE: usize>(name: &str) -> (SimFlash<WRITE, ERASE>, Of<WRITE, ERASE, 256>) {
    let flash = SimFlash::named(name, 5);
    let mut journal = Of::new(flash.clone(), 0..(5 * ERASE) as u32, 8);
    journal.provision(1, 0, Existing::Refuse).expect("a blank region");
    journal.mount().expect("a new ledger");
    journal.settle(0).expect("a new ledger");
    (flash, journal)
}

/// J5: one commit after the other, each tried before with a driver that does nothing in its first operation and says so.
fn a_failing_slot_costs_no_commit<const WRITE: usize, const ERASE: usize>(name: &str) {
    let (flash, mut journal) = provisioned::<WRITE, ERASE>(name);
    for act in 0..120u8 {
        let value = [act; 70];
        let image = flash.chip().image().clone();
        let (lying, mut tried) = on_image::<WRITE, ERASE>(&image);
        tried.mount().expect("an unharmed region");
        tried.settle(0).expect("an unharmed region");
        let at = lying.chip().counters().operations;
        let lie = Lie {
            work: Work::Nothing,
            reported: Reported::Failure,
        };
        lying.chip_mut().arm(Plan::Lie { at, lie });
        let committed = tried.commit(&[Record::put(0, &value)], 0);
        assert!(committed.is_ok(), "{name}, commit {act}: {committed:?}");
        let committed = journal.commit(&[Record::put(0, &value)], 0);
        assert!(committed.is_ok(), "{name}, commit {act}: {committed:?}");
    }
}

#[test]
fn j5_a_slot_that_fails_at_the_end_of_a_page_is_followed_by_one_in_the_next() {
    a_failing_slot_costs_no_commit::<1, 512>("tiny-1");
    a_failing_slot_costs_no_commit::<4, 512>("tiny-4");
    a_failing_slot_costs_no_commit::<8, 512>("tiny-8");
}

/// J3: [`CUTS`] cuts in a row, the first one in a commit and each other one in the first write of a mount. Each leaves
/// cells that read used until the last mount, and blank in it: it has to cover them all, or its boot frame is on one.
fn weak_units_in_a_row<const WRITE: usize, const ERASE: usize>(name: &str) {
    let (flash, mut journal) = provisioned::<WRITE, ERASE>(name);
    let tear = Tear::Program {
        left: Gone::None,
        other: Gone::All,
    };
    let cut = |flash: &SimFlash<WRITE, ERASE>| {
        let at = flash.chip().counters().operations;
        flash.chip_mut().arm(Plan::Cut { at, tear });
    };
    for act in 0..120u8 {
        let what = format!("{name}, commit {act}");
        let (before, after) = ([act; 40], [act + 1; 40]);
        let _committed = journal.commit(&[Record::put(0, &before)], 0).expect("room");
        let (flash, mut cut_off) = on_image::<WRITE, ERASE>(flash.chip().image());
        let size = flash.chip().image().size_bytes() as u32;
        let again = || Of::<WRITE, ERASE, 256>::new(flash.clone(), 0..size, 8);
        cut_off.mount().expect("an unharmed region");
        cut_off.settle(0).expect("an unharmed region");
        cut(&flash);
        let lost = cut_off.commit(&[Record::put(0, &after)], 0);
        assert!(lost.is_err(), "{what}");
        for _ in 1..CUTS {
            flash.chip_mut().power_up(Reading::Other);
            cut(&flash);
            let mut journal = again();
            journal.mount().expect("nothing but cuts");
            let lost = journal.settle(0);
            assert!(lost.is_err(), "{what}");
        }
        for reading in [Reading::AsLeft, Reading::Other, Reading::AsLeft] {
            flash.chip_mut().power_up(reading);
            let mut journal = again();
            let mounted = journal.mount();
            assert_eq!(mounted, Ok(()), "{what}, {reading:?}");
            journal.settle(0).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            assert_eq!(journal.get(0), Ok(Some(&before[..])), "{what}");
            let committed = journal.commit(&[Record::put(1, &after)], 1);
            assert!(committed.is_ok(), "{what}: {committed:?}");
        }
        assert_eq!(flash.chip().abuse(), None, "{what}");
    }
}

#[test]
fn j3_weak_units_that_cuts_in_a_row_have_left_are_covered_by_the_mount_that_sees_them_blank() {
    weak_units_in_a_row::<1, 512>("tiny-1");
    weak_units_in_a_row::<4, 512>("tiny-4");
    weak_units_in_a_row::<8, 512>("tiny-8");
    weak_units_in_a_row::<32, 1024>("tiny-32");
}

/// J1, J7: frames that empty a page are no larger than those of commits, however small the largest one is.
#[test]
fn j7_pages_are_emptied_with_the_smallest_frames_that_a_journal_can_have() {
    let flash = SimFlash::<4, 512>::named("tiny-4", 5);
    let mut journal = Of::<4, 512, 144>::new(flash.clone(), 0..5 * 512, 8);
    journal.provision(1, 0, Existing::Refuse).expect("a blank region");
    journal.mount().expect("a new ledger");
    journal.settle(0).expect("a new ledger");
    let longest = journal.batch_bytes_max() - 3;
    for act in 0..400usize {
        let value = vec![act as u8; if act % 5 == 0 { longest } else { 30 }];
        let committed = journal.commit(&[Record::put((act % 4) as u8, &value)], 0);
        assert!(committed.is_ok(), "commit {act}: {committed:?}");
    }
    assert_eq!(flash.chip().abuse(), None);
}
