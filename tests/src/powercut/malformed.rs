//! Regions that no life has left: what a fuzzer's bytes mean, and what must hold whatever they are.
//!
//! The check sums of the journal turn almost all noise away, so most inputs are edits of a region that was lived in: bits
//! and runs of bytes turned over, pages in each other's places, pages missing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use keyfence_core::TimeMs;
use keyfence_firmware::journal::Journal;
use keyfence_firmware::store::Ledger;

use super::inspect::{Verdict, inspect};
use super::life::{Bounds, Model, Row, Verb};
use super::stores::{self, on_chip};
use super::subject::Subject;
use crate::flash::{Chip, Geometry, Image, SharedChip, SimFlash};
use crate::random::Random;

/// The geometries that regions are made on, one for each kind of unit.
pub const TINY: [&str; 4] = ["tiny-1", "tiny-4", "tiny-8", "tiny-32"];

/// Verbs of the life behind a region.
const VERBS: usize = 120;

/// The content of a region in which keyfence has lived, a function of the geometry and the seed alone.
///
/// # Panics
///
/// When the store does not live: other tests say why.
#[must_use]
pub fn lived(geometry: &'static Geometry, seed: u64) -> Vec<u8> {
    let store = stores::named("keyfence").expect("a store of the list");
    let pages = (store.pages)(geometry).expect("it runs everywhere");
    let chip = Rc::new(RefCell::new(Chip::new(geometry, pages)));
    let start = |subject: &mut dyn Subject| {
        subject.mount().expect("an unharmed region");
        while subject.prepare().expect("a working chip").is_some() {}
    };
    let mut subject = (store.build)(&chip);
    subject.provision().expect("a blank chip");
    start(subject.as_mut());
    let bounds = Bounds::for_page_size(geometry.erase_size_bytes);
    let (mut model, mut random) = (Model::default(), Random::new(seed));
    for _ in 0..VERBS {
        let verb = model.next_verb(bounds, &mut random);
        if verb == Verb::Reboot {
            subject = (store.build)(&chip);
            start(subject.as_mut());
            model.reboot();
            continue;
        }
        let change = model.change(verb);
        let token = subject.perform(verb, &change).expect("a working chip");
        if let Some(key) = change.key {
            let fresh = |row: Row| Row {
                token: token.unwrap_or(row.token),
                ..row
            };
            model.set(key, change.after.map(fresh));
        }
    }
    drop(subject);
    let image = chip.borrow().image().clone();
    image.bytes()
}

/// [`lived`] from memory: a fuzzer asks for the same few regions thousands of times.
fn lived_once(geometry: &'static Geometry, seed: u64) -> Vec<u8> {
    static LIVED: Mutex<BTreeMap<(&str, u64), Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut known = LIVED.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = known.entry((geometry.name, seed));
    bytes.or_insert_with(|| lived(geometry, seed)).clone()
}

/// The region that a fuzzer's `data` stands for; `None` when it is too short to stand for any.
#[must_use]
pub fn region(data: &[u8]) -> Option<(&'static Geometry, Vec<u8>)> {
    let (&[pick, mode, seed], rest) = data.split_first_chunk()?;
    let geometry = Geometry::named(TINY[usize::from(pick) % TINY.len()])?;
    let page = geometry.erase_size_bytes;
    if mode % 4 == 0 {
        // The bytes themselves, and blank cells behind them up to a whole page.
        let mut bytes = rest[..rest.len().min(64 * page)].to_vec();
        bytes.resize(bytes.len().next_multiple_of(page).max(page), 0xff);
        return Some((geometry, bytes));
    }
    let mut bytes = lived_once(geometry, u64::from(seed % 4));
    let pages = bytes.len() / page;
    match mode % 4 {
        1 => {
            for (place, from) in rest.iter().enumerate().take(pages) {
                let from = usize::from(*from) % pages * page;
                let content = bytes[from..from + page].to_vec();
                bytes[place * page..(place + 1) * page].copy_from_slice(&content);
            }
        }
        2 => {
            let kept = rest.first().map_or(1, |kept| 1 + usize::from(*kept) % pages);
            bytes.truncate(kept * page);
            edit(&mut bytes, rest.get(1..).unwrap_or(&[]));
        }
        _ => edit(&mut bytes, rest),
    }
    Some((geometry, bytes))
}

/// Edits of five bytes each: a place, what is done there, a value.
fn edit(bytes: &mut [u8], edits: &[u8]) {
    for edit in edits.chunks_exact(5) {
        let at = (usize::from(edit[0]) | usize::from(edit[1]) << 8 | usize::from(edit[2]) << 16) % bytes.len();
        match edit[3] % 4 {
            0 => bytes[at] = edit[4],
            1 => bytes[at] ^= 1 << (edit[4] % 8),
            2 => bytes[at..].iter_mut().take(edit[4].into()).for_each(|byte| *byte = 0),
            _ => bytes[at..]
                .iter_mut()
                .take(edit[4].into())
                .for_each(|byte| *byte = 0xff),
        }
    }
}

/// Mounts a region as the journal and as the ledger: an answer or an error of a type, and never less than it said before.
///
/// # Panics
///
/// When something does not hold that holds for every content.
pub fn mount(data: &[u8]) {
    if let Some((geometry, bytes)) = region(data) {
        let _ = mounted(geometry, &bytes);
    }
}

/// Whether a region mounts, or the error in words.
///
/// # Errors
///
/// The ledger's own refusal, as text.
///
/// # Panics
///
/// As [`mount`], and when `bytes` are not whole pages.
pub fn mounted(geometry: &'static Geometry, bytes: &[u8]) -> Result<(), String> {
    fn on<const WRITE: usize, const ERASE: usize>(chip: &SharedChip) -> Result<(), String> {
        let size = chip.borrow().image().size_bytes() as u32;
        let before = chip.borrow().image().bytes();
        let flash = SimFlash::<WRITE, ERASE>::on(chip.clone());
        let mut journal = Box::new(Journal::<_, 64, 0xf0, 416>::new(flash.clone(), 0..size, 1));
        let first = journal.mount().map(|()| journal.report());
        assert_eq!(chip.borrow().image().bytes(), before, "a mount has written");
        if first.is_ok()
            && let Ok(settled) = journal.settle(0)
        {
            for key in 0..0xf0 {
                let _ = journal.get(key);
            }
            journal.mount().expect("what was settled mounts again");
            let again = journal.report().expect("it is mounted");
            assert!(again.limit >= settled.limit && again.boot >= settled.boot && again.sequence >= settled.sequence);
        }
        let clock = || TimeMs::ZERO;
        let mut ledger: Box<Ledger<_, _, 1, 1, 4, 2, 8, 1, 64, 80, 416>> = Box::new(Ledger::new(flash, 0..size, clock));
        ledger.power_up(0).map(drop).map_err(|error| format!("{error:?}"))
    }
    let image = Image::from_bytes(geometry, bytes).expect("whole pages");
    let chip = Rc::new(RefCell::new(Chip::with_image(image)));
    on_chip!(&chip, on)
}

/// Tells the story of a region: it has one, as text and as JSON, and its verdict is that of a mount.
///
/// # Panics
///
/// When something does not hold that holds for every content.
pub fn tell(data: &[u8]) {
    let Some((geometry, bytes)) = region(data) else {
        return;
    };
    let story = inspect(geometry, &bytes).expect("whole pages have a story");
    assert!(!story.to_string().is_empty());
    let json = serde_json::to_value(&story).expect("a story is JSON");
    assert_eq!(
        json["pages"].as_array().map(Vec::len),
        Some(bytes.len() / geometry.erase_size_bytes)
    );
    if let Verdict::Sound { sequence, .. } = story.verdict {
        assert!(sequence > 0, "a ledger begins with frame 1");
        assert!(!story.frames.is_empty(), "a history without a frame");
    }
}
