//! J7 on the simulated chips: within the journal's capacity no commit is ever refused for want of room, however full it
//! is and however long it lives; a region that is too small for power cuts is never provisioned; and what cuts and failing
//! slots take at the end of a page is not missed.

use std::collections::BTreeMap;

use keyfence_firmware::journal::{CUTS, Existing, GeometryError, Journal, Record, SettleError};
use keyfence_tests::flash::{Gone, Image, Lie, Plan, Reading, Reported, SimFlash, Tear, Work};
use keyfence_tests::random::Random;

const KEYS: usize = 64;
const PAGES_MAX: usize = 16;
/// No record is longer, as no record of the store is.
const VALUE_BYTES_MAX: u64 = 136;
/// What the capacity counts for a record beside its value.
const RECORD_BYTES: usize = 3;

type Of<const WRITE: usize, const ERASE: usize, const FRAME: usize> =
    Journal<SimFlash<WRITE, ERASE>, PAGES_MAX, KEYS, FRAME>;

/// A journal that is filled to a level and then lives from what it has.
struct Life<const WRITE: usize, const ERASE: usize, const FRAME: usize> {
    flash: SimFlash<WRITE, ERASE>,
    pages: usize,
    journal: Of<WRITE, ERASE, FRAME>,
    records: BTreeMap<u8, Vec<u8>>,
    random: Random,
    what: String,
}

impl<const WRITE: usize, const ERASE: usize, const FRAME: usize> Life<WRITE, ERASE, FRAME> {
    fn new(name: &str, pages: usize, seed: u64) -> Self {
        let flash = SimFlash::named(name, pages);
        let mut journal = Of::new(flash.clone(), 0..(pages * ERASE) as u32, 8);
        journal.provision(1, 0, Existing::Refuse).expect("a blank region");
        journal.mount().expect("a new ledger");
        journal.settle(0).expect("a new ledger");
        Self {
            flash,
            pages,
            journal,
            records: BTreeMap::new(),
            random: Random::new(seed),
            what: format!("{name}, {pages} pages, seed {seed}"),
        }
    }

    fn used_bytes(&self) -> usize {
        self.records.values().map(|value| value.len() + RECORD_BYTES).sum()
    }

    fn value(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.random.byte()).collect()
    }

    fn commit(&mut self, changes: &[(u8, Vec<u8>)], tokens: u32) {
        let records: Vec<Record<'_>> = changes.iter().map(|(key, value)| Record::put(*key, value)).collect();
        let (used, capacity) = (self.used_bytes(), self.journal.capacity_bytes());
        let committed = self.journal.commit(&records, tokens);
        assert!(
            committed.is_ok(),
            "{}: {used} of {capacity} bytes: {committed:?}",
            self.what
        );
        for (key, value) in changes {
            self.records.insert(*key, value.clone());
        }
    }

    /// Adds records as long as they fit below `bytes`.
    fn fill(&mut self, bytes: usize) {
        let longest = (self.journal.batch_bytes_max() as u64 - 3).min(VALUE_BYTES_MAX);
        for key in self.records.len() as u8..KEYS as u8 {
            let len = 1 + self.random.below(longest) as usize;
            if self.used_bytes() + len + RECORD_BYTES > bytes {
                break;
            }
            let value = self.value(len);
            self.commit(&[(key, value)], 0);
        }
    }

    fn reboot(&mut self) {
        self.journal = Of::new(self.flash.clone(), 0..(self.pages * ERASE) as u32, 8);
        let mounted = self.journal.mount();
        assert_eq!(mounted, Ok(()), "{}", self.what);
        let settled = self.journal.settle(0);
        assert!(settled.is_ok(), "{}: {settled:?}", self.what);
        for (key, value) in &self.records {
            assert_eq!(self.journal.get(*key), Ok(Some(&value[..])), "{}", self.what);
        }
    }

    /// Changes what is there, one to three records at a time, none of them getting longer.
    fn live(&mut self, acts: usize) {
        for _ in 0..acts {
            match self.random.below(24) {
                0 => self.reboot(),
                1 => self.commit(&[], 1),
                _ => {
                    let mut changes = BTreeMap::new();
                    let mut room = self.journal.batch_bytes_max();
                    for _ in 0..=self.random.below(3) {
                        let key = self.random.below(self.records.len().max(1) as u64) as u8;
                        let Some(len) = self.records.get(&key).map(Vec::len) else {
                            continue;
                        };
                        if len + RECORD_BYTES <= room && !changes.contains_key(&key) {
                            room -= len + RECORD_BYTES;
                            let value = self.value(len);
                            changes.insert(key, value);
                        }
                    }
                    let changes: Vec<_> = changes.into_iter().collect();
                    let tokens = if room > 16 { self.random.below(2) as u32 } else { 0 };
                    self.commit(&changes, tokens);
                }
            }
        }
    }
}

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
    assert_eq!(least, [5, 5, 5, 5, 5, 3, 3, 4, 3]);
}

fn never_full<const WRITE: usize, const ERASE: usize, const FRAME: usize>(name: &str, acts: usize) {
    const LEVELS: usize = 8;
    let least = least_pages::<WRITE, ERASE, FRAME>(name);
    for pages in [least, least + 1, 8] {
        for level in 1..=LEVELS {
            for seed in 0..4 {
                let mut life = Life::<WRITE, ERASE, FRAME>::new(name, pages, seed + 10 * level as u64);
                let bytes = life.journal.capacity_bytes() / LEVELS * level;
                life.fill(bytes);
                life.live(acts);
                life.reboot();
                assert_eq!(life.flash.chip().abuse(), None, "{}", life.what);
            }
        }
    }
}

macro_rules! never_full {
    ($($test:ident, $name:literal, $write:literal, $erase:literal, $frame:literal, $acts:literal;)*) => {$(
        #[test]
        fn $test() {
            never_full::<$write, $erase, $frame>($name, $acts);
        }
    )*};
}

never_full! {
    j7_nothing_is_full_on_tiny_1, "tiny-1", 1, 512, 144, 1500;
    j7_nothing_is_full_on_tiny_4, "tiny-4", 4, 512, 144, 1500;
    j7_nothing_is_full_on_tiny_8, "tiny-8", 8, 512, 144, 1500;
    j7_nothing_is_full_on_tiny_32, "tiny-32", 32, 1024, 160, 1500;
    j7_nothing_is_full_on_nrf51, "nrf51", 4, 1024, 256, 1500;
    j7_nothing_is_full_on_nrf52, "nrf52", 4, 4096, 416, 3000;
    j7_nothing_is_full_on_rp2040, "rp2040", 1, 4096, 416, 3000;
    j7_nothing_is_full_on_stm32l4, "stm32l4", 8, 2048, 416, 2000;
    j7_nothing_is_full_on_stm32h7, "stm32h7", 32, 131_072, 416, 3000;
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
