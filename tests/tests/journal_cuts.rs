//! The journal under every power cut, on the bench of `powercut`: no violation with every safeguard
//! on, and violations with any one of them off.

use keyfence_firmware::journal::{
    CommitError, Existing, Journal, Law, MountError, Policy, Record, Refused, SettleError,
};
use keyfence_tests::flash::{Geometry, Image, SharedChip, SimFlash};
use keyfence_tests::powercut::life::{Bounds, Change, Key, Model, Row, RowState, Rows, Verb};
use keyfence_tests::powercut::search::{self, Progress, Settings};
use keyfence_tests::powercut::{Failure, Mounted, Store, Subject};
use keyfence_tests::random::Random;

/// Tokens reserved at a time.
const BLOCK: u32 = 8;
/// Keys of messages begin here, those of sessions at 0.
const MESSAGES: u8 = 16;

/// As few as are provisioned on tiny pages.
const PAGES: usize = 5;

/// A record that is written once, so that it only lives by being copied from page to page.
const COLD: u8 = 31;
const COLD_VALUE: &[u8] = b"written once";

type Of<const WRITE: usize, const ERASE: usize, P> = Journal<SimFlash<WRITE, ERASE>, 8, 32, 256, P>;

struct OnJournal<const WRITE: usize, const ERASE: usize, P>(Of<WRITE, ERASE, P>);

const fn key(key: Key) -> u8 {
    match key {
        Key::Session(n) => n,
        Key::Message(n) => MESSAGES + n,
    }
}

fn encode(row: &Row) -> Vec<u8> {
    let state = match row.state {
        RowState::Held => 1,
        RowState::Free => 2,
        RowState::Finished => 3,
    };
    let mut bytes = vec![state, row.holder];
    bytes.extend_from_slice(&row.incarnation.to_le_bytes());
    bytes.extend_from_slice(&row.token.to_le_bytes());
    bytes
}

fn decode(key: Key, bytes: &[u8]) -> Option<Row> {
    let (state, rest) = bytes.split_first()?;
    let (holder, rest) = rest.split_first()?;
    let (incarnation, token) = rest.split_at_checked(4)?;
    Some(Row {
        key,
        state: match state {
            1 => RowState::Held,
            2 => RowState::Free,
            3 => RowState::Finished,
            _ => return None,
        },
        holder: *holder,
        incarnation: u32::from_le_bytes(incarnation.try_into().ok()?),
        token: u64::from_le_bytes(token.try_into().ok()?),
    })
}

fn mount_failure(error: MountError) -> Failure {
    Failure::Corrupt(format!("{error:?}"))
}

fn settle_failure(error: SettleError) -> Failure {
    Failure::Other(format!("{error:?}"))
}

fn commit_failure(error: CommitError) -> Failure {
    match error {
        CommitError::Refused(Refused::Full) => Failure::Full(format!("{error:?}")),
        CommitError::Refused(Refused::Damaged(_)) => Failure::Corrupt(format!("{error:?}")),
        CommitError::Refused(_) | CommitError::Unknown => Failure::Other(format!("{error:?}")),
    }
}

impl<const WRITE: usize, const ERASE: usize, P: Policy> Subject for OnJournal<WRITE, ERASE, P> {
    fn provision(&mut self) -> Result<(), Failure> {
        self.0.provision(7, 0, Existing::Refuse).map_err(settle_failure)?;
        self.mount()?;
        let record = Record::put(COLD, COLD_VALUE);
        let _committed = self.0.commit(&[record], 0).map_err(commit_failure)?;
        Ok(())
    }

    fn mount(&mut self) -> Result<Mounted, Failure> {
        self.0.mount().map_err(mount_failure)?;
        let report = self.0.settle(0).map_err(settle_failure)?;
        Ok(Mounted {
            counter: report.limit,
            reserved: report.limit,
        })
    }

    fn perform(&mut self, _: Verb, change: &Change) -> Result<Option<u64>, Failure> {
        let token = change.mints.then(|| self.0.last_token() + 1);
        let value = change.after.map_or_else(Vec::new, |row| {
            encode(&Row {
                token: token.unwrap_or(row.token),
                ..row
            })
        });
        let record = change.key.map(|name| Record {
            key: key(name),
            value: &value,
        });
        let records = record.as_slice();
        let committed = self
            .0
            .commit(records, u32::from(change.mints))
            .map_err(commit_failure)?;
        assert!(token.is_none_or(|token| token == committed.first_token));
        Ok(token)
    }

    fn rows(&mut self, keys: &[Key], _: &Model) -> Result<Rows, Failure> {
        let cold = self
            .0
            .get(COLD)
            .map_err(|error| Failure::Corrupt(format!("{error:?}")))?;
        if cold != Some(COLD_VALUE) {
            return Err(Failure::Corrupt(format!("the record that never changes: {cold:?}")));
        }
        let mut rows = Rows::new();
        for name in keys {
            let bytes = self
                .0
                .get(key(*name))
                .map_err(|error| Failure::Corrupt(format!("{error:?}")))?;
            if let Some(bytes) = bytes {
                let row = decode(*name, bytes).ok_or_else(|| Failure::Corrupt(format!("the row of {name:?}")))?;
                rows.insert(*name, row);
            }
        }
        Ok(rows)
    }

    fn reserved(&self) -> u64 {
        self.0.report().map_or(0, |report| report.limit)
    }

    fn reservation(&self) -> u64 {
        BLOCK.into()
    }
}

fn build<P: Policy + 'static>(chip: &SharedChip) -> Box<dyn Subject> {
    fn on<const WRITE: usize, const ERASE: usize, P: Policy + 'static>(chip: &SharedChip) -> Box<dyn Subject> {
        let size = chip.borrow().image().size_bytes() as u32;
        let flash = SimFlash::<WRITE, ERASE>::on(chip.clone());
        Box::new(OnJournal::<WRITE, ERASE, P>(Journal::new(flash, 0..size, BLOCK)))
    }
    let geometry = chip.borrow().geometry();
    match (geometry.write_size_bytes, geometry.erase_size_bytes) {
        (4, 1024) => on::<4, 1024, P>(chip),
        (4, 4096) => on::<4, 4096, P>(chip),
        (1, 4096) => on::<1, 4096, P>(chip),
        (8, 2048) => on::<8, 2048, P>(chip),
        (32, 131_072) => on::<32, 131_072, P>(chip),
        (1, 512) => on::<1, 512, P>(chip),
        (4, 512) => on::<4, 512, P>(chip),
        (8, 512) => on::<8, 512, P>(chip),
        (32, 1024) => on::<32, 1024, P>(chip),
        sizes => panic!("a geometry with other sizes: {sizes:?}"),
    }
}

const JOURNAL: Store = Store {
    name: "journal",
    about: "keyfence's journal alone",
    renews_in_ram: true,
    pages: |_| Some(PAGES),
    build: build::<Law>,
};

fn sweep(store: &'static Store, name: &str, depth: usize, commits: usize) {
    let geometry = Geometry::named(name).expect("a geometry of the list");
    let settings = Settings {
        depth,
        commits,
        ..Settings::new(store, geometry)
    };
    let report = match search::exhaustive(&settings, &Progress::default()) {
        Ok(report) => report,
        Err(violation) => panic!("{name}: the life itself: {violation:?}"),
    };
    assert_eq!(report.failures, 0, "{name}: {}", report.table());
    assert!(report.cases > 100, "{name}");
}

macro_rules! no_cut_shows {
    ($($test:ident, $name:literal, $depth:literal, $commits:literal;)*) => {$(
        #[test]
        fn $test() {
            sweep(&JOURNAL, $name, $depth, $commits);
        }
    )*};
}

no_cut_shows! {
    j3_no_cut_shows_on_tiny_1, "tiny-1", 1, 24;
    j3_no_cut_shows_on_tiny_4, "tiny-4", 1, 24;
    j3_no_cut_shows_on_tiny_8, "tiny-8", 1, 24;
    j3_no_cut_shows_on_tiny_32, "tiny-32", 1, 24;
    j3_no_second_cut_shows_on_tiny_1, "tiny-1", 2, 3;
    j3_no_second_cut_shows_on_tiny_4, "tiny-4", 2, 3;
    j3_no_second_cut_shows_on_tiny_8, "tiny-8", 2, 3;
    j3_no_second_cut_shows_on_tiny_32, "tiny-32", 2, 3;
}

/// Safeguards switched off, one at a time.
macro_rules! without {
    ($($policy:ident, $store:ident, $name:literal, $safeguard:ident;)*) => {$(
        #[derive(Debug)]
        enum $policy {}

        impl Policy for $policy {
            const $safeguard: bool = false;
        }

        static $store: Store = Store {
            name: $name,
            about: "keyfence's journal with a safeguard off",
            build: build::<$policy>,
            ..JOURNAL
        };
    )*};
}

without! {
    Unchecked, UNCHECKED, "without check sums", CHECKSUM;
    Unsettled, UNSETTLED, "without settling", SETTLE;
    Rash, RASH, "without a look before the erase", RECHECK;
}

/// Whether a sweep shows the safeguard missing: in its life already, or under a cut.
fn shows(store: &'static Store, name: &str, commits: usize) -> bool {
    let geometry = Geometry::named(name).expect("a geometry of the list");
    let settings = Settings {
        commits,
        ..Settings::new(store, geometry)
    };
    search::exhaustive(&settings, &Progress::default()).map_or(true, |report| report.failures > 0)
}

#[test]
fn j1_without_check_sums_cuts_show() {
    assert!(shows(&UNCHECKED, "tiny-4", 12));
}

#[test]
fn j3_without_settling_cuts_show() {
    assert!(shows(&UNSETTLED, "tiny-4", 12));
}

#[test]
fn j4_without_a_look_before_the_erase_cuts_show() {
    assert!(shows(&RASH, "tiny-4", 24));
}

/// A life on a chip, and what it has left.
struct Aged<const WRITE: usize, const ERASE: usize> {
    image: Image,
    rows: Rows,
    keys: Vec<Key>,
    /// The last token that was handed out.
    token: u64,
}

impl<const WRITE: usize, const ERASE: usize> Aged<WRITE, ERASE> {
    fn new<P: Policy + 'static>(name: &str, verbs: usize, seed: u64) -> Self {
        let flash = SimFlash::<WRITE, ERASE>::named(name, PAGES);
        let size = flash.chip().image().size_bytes() as u32;
        let mut subject = OnJournal::<WRITE, ERASE, P>(Journal::new(flash.clone(), 0..size, BLOCK));
        subject.provision().unwrap();
        subject.mount().unwrap();
        let bounds = Bounds::for_page_size(ERASE);
        let (mut model, mut random) = (Model::default(), Random::new(seed));
        let mut token = 0;
        for _ in 0..verbs {
            let verb = model.next_verb(bounds, &mut random);
            if verb == Verb::Reboot {
                subject.mount().unwrap();
                continue;
            }
            let change = model.change(verb);
            let drawn = subject.perform(verb, &change).unwrap();
            token = drawn.unwrap_or(token);
            if let Some(key) = change.key {
                let after = change.after.map(|row| Row {
                    token: drawn.unwrap_or(row.token),
                    ..row
                });
                model.set(key, after);
            }
        }
        let image = flash.chip().image().clone();
        Self {
            image,
            rows: model.rows,
            keys: bounds.keys().collect(),
            token,
        }
    }

    /// Mounts a damaged image: it says the same or refuses with the place. Whether it refused.
    fn judge<P: Policy + 'static>(&self, image: &Image, what: &str) -> bool {
        let flash = SimFlash::<WRITE, ERASE>::with_image(image.clone());
        let size = image.size_bytes() as u32;
        let mut subject = OnJournal::<WRITE, ERASE, P>(Journal::new(flash, 0..size, BLOCK));
        match subject.mount() {
            Err(Failure::Corrupt(text)) => {
                assert!(text.contains("Damaged"), "{what}: {text}");
                true
            }
            Err(failure) => panic!("{what}: {failure}"),
            Ok(mounted) => {
                let rows = subject.rows(&self.keys, &Model::default()).unwrap();
                assert_eq!(rows, self.rows, "{what}");
                assert!(mounted.counter >= self.token, "{what}: {mounted:?}");
                false
            }
        }
    }
}

fn flip_everywhere<const WRITE: usize, const ERASE: usize>(name: &str) {
    let mut random = Random::new(5);
    for seed in 0..1 {
        let aged = Aged::<WRITE, ERASE>::new::<Law>(name, 90 + 17 * seed as usize, seed);
        let mut refused = 0;
        let bits = aged.image.size_bytes() as u32 * 8;
        for bit in 0..bits {
            let mut image = aged.image.clone();
            image.flip_bit(bit / 8, bit as u8 & 7);
            let what = format!("{name}, seed {seed}, bit {} of {:#x}", bit & 7, bit / 8);
            refused += u32::from(aged.judge::<Law>(&image, &what));
            // A second one in the same word.
            let other = bit / 32 * 32 + random.below(32) as u32;
            if other != bit {
                image.flip_bit(other / 8, other as u8 & 7);
                let what = format!("{what} and bit {} of {:#x}", other & 7, other / 8);
                refused += u32::from(aged.judge::<Law>(&image, &what));
            }
        }
        assert_eq!(refused, 0, "{name}: small damage is put right, not refused");
    }
}

/// J2's mark tells a damaged record from a torn one: without it the same damage goes unseen.
#[derive(Debug)]
enum Unmarked {}

impl Policy for Unmarked {
    const MARK: bool = false;
}

#[test]
fn j2_without_marks_a_flipped_bit_brings_back_an_older_state() {
    let aged = Aged::<4, 512>::new::<Unmarked>("tiny-4", 90, 1);
    let seen = (0..aged.image.size_bytes() as u32 * 8).any(|bit| {
        let mut image = aged.image.clone();
        image.flip_bit(bit / 8, bit as u8 & 7);
        std::panic::catch_unwind(|| aged.judge::<Unmarked>(&image, "without marks")).is_err()
    });
    assert!(seen);
}

#[test]
fn j2_no_flipped_bits_bring_back_an_older_state() {
    flip_everywhere::<4, 512>("tiny-4");
    flip_everywhere::<1, 512>("tiny-1");
    flip_everywhere::<8, 512>("tiny-8");
    flip_everywhere::<32, 1024>("tiny-32");
}

/// Mounts what the bytes say; a panic would fail the test.
fn mounts<const WRITE: usize, const ERASE: usize>(name: &str, bytes: &[u8]) -> Result<(), Failure> {
    let geometry = Geometry::named(name).expect("a geometry of the list");
    let image = Image::from_bytes(geometry, bytes).expect("whole pages");
    let flash = SimFlash::<WRITE, ERASE>::with_image(image);
    let mut subject = OnJournal::<WRITE, ERASE, Law>(Journal::new(flash, 0..bytes.len() as u32, BLOCK));
    subject.mount().map(drop)
}

fn malformed<const WRITE: usize, const ERASE: usize>(name: &str) {
    let aged = Aged::<WRITE, ERASE>::new::<Law>(name, 120, 7);
    let bytes = aged.image.bytes();
    let pages = bytes.len() / ERASE;
    mounts::<WRITE, ERASE>(name, &bytes).expect("the ledger itself");
    // A page in another's place is told from a copy of the ledger.
    for a in 0..pages {
        for b in 0..a {
            let mut swapped = bytes.clone();
            let (low, high) = swapped.split_at_mut(a * ERASE);
            low[b * ERASE..(b + 1) * ERASE].swap_with_slice(&mut high[..ERASE]);
            let failure = mounts::<WRITE, ERASE>(name, &swapped).expect_err("two pages changed places");
            assert!(
                failure.to_string().contains("MisplacedPage"),
                "{name} {a} {b}: {failure}"
            );
        }
    }
    // The end of the region is missing: the headers say how many pages there were.
    for kept in 3..pages {
        mounts::<WRITE, ERASE>(name, &bytes[..kept * ERASE]).expect_err("pages are missing");
    }
    // A page that counts and was blanked is missed; one that does not count is not.
    let blanked = (0..pages).map(|page| {
        let mut blanked = bytes.clone();
        blanked[page * ERASE..(page + 1) * ERASE].fill(0xff);
        mounts::<WRITE, ERASE>(name, &blanked).is_err()
    });
    assert!(blanked.filter(|missed| *missed).count() >= 1);
    // Noise in a part of the region, or in all of it.
    let mut random = Random::new(11);
    for _ in 0..400 {
        let mut noisy = bytes.clone();
        let from = random.below(bytes.len() as u64) as usize;
        let len = random.below((bytes.len() - from) as u64 + 1) as usize;
        noisy[from..from + len]
            .iter_mut()
            .for_each(|byte| *byte = random.byte());
        let _ = mounts::<WRITE, ERASE>(name, &noisy);
    }
    for _ in 0..50 {
        let noise: Vec<u8> = (0..bytes.len()).map(|_| random.byte()).collect();
        mounts::<WRITE, ERASE>(name, &noise).expect_err("noise is no ledger");
    }
    let blank = vec![0xff; bytes.len()];
    let failure = mounts::<WRITE, ERASE>(name, &blank).expect_err("a blank region");
    assert!(failure.to_string().contains("Unprovisioned"));
}

#[test]
fn j6_malformed_regions_end_in_errors() {
    malformed::<4, 512>("tiny-4");
    malformed::<1, 512>("tiny-1");
    malformed::<8, 512>("tiny-8");
    malformed::<32, 1024>("tiny-32");
}
