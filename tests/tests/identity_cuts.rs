//! The identity under power cuts: once a store has returned no cut loses it, and no cut ever shows another one.

use std::collections::HashSet;
use std::ops::Range;

use keyfence_core::Name;
use keyfence_firmware::identity::{self, COPY_BYTES, Identity, IdentityError};
use keyfence_firmware::link::{DeviceId, LinkKey};
use keyfence_tests::flash::{Image, Reading, SimFlash, TracedOperation};
use keyfence_tests::powercut::{readings, seeded_reading, seeded_tear, stays_inside, tears, traced, turned};
use keyfence_tests::random::{Random, fold};

/// The region lies behind one page that nobody may touch.
const fn region<const ERASE: usize>() -> Range<u32> {
    ERASE as u32..3 * ERASE as u32
}

fn kiosk(number: u8) -> Identity {
    Identity {
        host: Name::new(&format!("kiosk-{number}")).expect("a name"),
        device: DeviceId::from_bytes([number ^ 0x55; 16]),
        key: LinkKey::from_bytes([number; 32]),
    }
}

/// Which of the kiosks an identity is; none but one whose every byte fits.
fn number(identity: &Identity) -> u8 {
    let number = identity.host.as_str().trim_start_matches("kiosk-").parse();
    let number = number.expect("the name of a kiosk");
    assert_eq!(identity.encode(), kiosk(number).encode(), "a mixture");
    number
}

type Flash<const WRITE: usize, const ERASE: usize> = SimFlash<WRITE, ERASE>;

/// What a load says: a kiosk, or none. Nothing else can come of a cut.
fn said<const WRITE: usize, const ERASE: usize>(flash: &mut Flash<WRITE, ERASE>, what: &str) -> Option<u8> {
    match identity::load(flash, &region::<ERASE>()) {
        Ok(identity) => Some(number(&identity)),
        Err(IdentityError::Missing | IdentityError::Damaged) => None,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

fn stored<const WRITE: usize, const ERASE: usize>(
    flash: &mut Flash<WRITE, ERASE>,
    number: u8,
) -> Result<(), IdentityError> {
    identity::store(flash, &region::<ERASE>(), &kiosk(number))
}

/// A fresh chip with an identity on it.
fn with_kiosk<const WRITE: usize, const ERASE: usize>(name: &str, number: u8) -> Image {
    let mut flash = Flash::<WRITE, ERASE>::named(name, 4);
    stored(&mut flash, number).expect("a blank region");
    flash.chip().image().clone()
}

#[derive(Default)]
struct Search {
    seen: HashSet<u64>,
    cases: u64,
}

impl Search {
    /// Cuts each operation of `trace` in every way, and the loads after that in turn; each load says one of `may`.
    fn cut<const WRITE: usize, const ERASE: usize>(
        &mut self,
        trace: &[TracedOperation],
        may: &[Option<u8>],
        depth: u32,
        past: &str,
    ) {
        stays_inside(trace, &region::<ERASE>(), ERASE);
        for cut in trace {
            for tear in tears(cut.before.geometry(), &cut.operation, cut.before.digest()) {
                let image = cut.before.torn(&cut.operation, &tear);
                if !self.seen.insert(fold(image.digest(), u64::from(depth))) {
                    continue;
                }
                for reading in readings(&image, 1) {
                    let what = format!("{past}/{}~{tear}~{reading}", cut.number);
                    self.cases += 1;
                    let load = |flash: &mut Flash<WRITE, ERASE>| said(flash, &what);
                    let (first, trace, after) = traced(&image, reading, load);
                    assert!(may.contains(&first), "{what}: {first:?} of {may:?}");
                    let (again, _, after) = traced(&after, turned(reading), load);
                    assert!(may.contains(&again), "{what}, again: {again:?} of {may:?}");
                    // Whatever was cut can be done again, and is settled then.
                    let (redone, _, after) = traced(&after, reading, |flash: &mut Flash<WRITE, ERASE>| {
                        identity::forget(flash, &region::<ERASE>())?;
                        stored(flash, 9)
                    });
                    assert_eq!(redone, Ok(()), "{what}");
                    let (settled, trace_of_settled, _) = traced(&after, turned(reading), load);
                    assert_eq!((settled, trace_of_settled.len()), (Some(9), 0), "{what}");
                    if depth > 1 {
                        self.cut::<WRITE, ERASE>(&trace, may, depth - 1, &what);
                    }
                }
            }
        }
    }
}

macro_rules! on_each_rule {
    ($of:ident) => {
        $of::<1, 512>("tiny-1");
        $of::<4, 512>("tiny-4");
        $of::<8, 512>("tiny-8");
        $of::<32, 1024>("tiny-32");
    };
}

#[test]
fn k4_a_store_or_a_forgetting_that_is_cut_leaves_the_identity_in_question_or_none() {
    fn each<const WRITE: usize, const ERASE: usize>(name: &str) {
        let mut search = Search::default();
        let blank = Flash::<WRITE, ERASE>::named(name, 4).chip().image().clone();
        let (done, trace, image) = traced(&blank, Reading::AsLeft, |flash| stored::<WRITE, ERASE>(flash, 1));
        assert_eq!(done, Ok(()));
        search.cut::<WRITE, ERASE>(&trace, &[None, Some(1)], 2, name);
        let forget = |flash: &mut Flash<WRITE, ERASE>| identity::forget(flash, &region::<ERASE>());
        let (done, trace, image) = traced(&image, Reading::AsLeft, forget);
        assert_eq!(done, Ok(()));
        search.cut::<WRITE, ERASE>(&trace, &[None, Some(1)], 2, name);
        // K3: nothing of it comes back while the next one is stored.
        let (done, trace, _) = traced(&image, Reading::AsLeft, |flash| stored::<WRITE, ERASE>(flash, 2));
        assert_eq!(done, Ok(()));
        search.cut::<WRITE, ERASE>(&trace, &[None, Some(2)], 2, name);
        assert!(search.cases > 300, "{name}: {}", search.cases);
    }
    on_each_rule!(each);
}

#[test]
fn k2_no_cut_in_mending_a_copy_loses_the_identity() {
    fn each<const WRITE: usize, const ERASE: usize>(name: &str) {
        let mut search = Search::default();
        for page in 1..3 {
            let flash = Flash::<WRITE, ERASE>::with_image(with_kiosk::<WRITE, ERASE>(name, 1));
            flash.chip_mut().image_mut().flip_bit((page * ERASE) as u32 + 60, 3);
            let damaged = flash.chip().image().clone();
            let (first, trace, mended) = traced(&damaged, Reading::AsLeft, |flash| said::<WRITE, ERASE>(flash, name));
            assert_eq!(first, Some(1), "{name}");
            assert!(!trace.is_empty(), "{name}: the copy was not mended");
            search.cut::<WRITE, ERASE>(&trace, &[Some(1)], 2, name);
            let (second, trace, _) = traced(&mended, Reading::AsLeft, |flash| said::<WRITE, ERASE>(flash, name));
            assert_eq!((second, trace.len()), (Some(1), 0), "{name}: mended once");
        }
        assert!(search.cases > 200, "{name}: {}", search.cases);
    }
    on_each_rule!(each);
}

/// Chains of acts and cuts, each in what the one before has left, far deeper than every cut can be tried.
#[test]
fn k2_k3_long_chains_of_cuts_never_lose_what_was_stored_nor_show_what_was_forgotten() {
    fn chain<const WRITE: usize, const ERASE: usize>(name: &str, seed: u64) {
        let mut random = Random::new(seed);
        let mut image = with_kiosk::<WRITE, ERASE>(name, 1);
        // One copy is damaged, so that loads have something to mend.
        let flash = Flash::<WRITE, ERASE>::with_image(image);
        let damaged = (1 + random.below(2)) * ERASE as u64 + random.below(COPY_BYTES as u64);
        flash.chip_mut().image_mut().flip_bit(damaged as u32, 1);
        image = flash.chip().image().clone();
        let mut may = vec![Some(1)];
        for link in 0..16 {
            let what = format!("{name}, seed {seed}, link {link}");
            let fresh = 2 + random.below(200) as u8;
            let act = random.below(10);
            let reading = seeded_reading(&mut random);
            let (after_returning, trace, left) = traced(&image, reading, |flash: &mut Flash<WRITE, ERASE>| match act {
                0 => {
                    identity::forget(flash, &region::<ERASE>()).expect("a working chip");
                    vec![None]
                }
                1 => match stored(flash, fresh) {
                    Ok(()) => vec![Some(fresh)],
                    Err(IdentityError::Taken) => may.clone(),
                    Err(error) => panic!("{what}: {error:?}"),
                },
                _ => {
                    let said = said(flash, &what);
                    assert!(may.contains(&said), "{what}: {said:?} of {may:?}");
                    may.clone()
                }
            });
            let Some(cut) = trace.get(random.below(trace.len() as u64 + 2) as usize) else {
                (image, may) = (left, after_returning);
                continue;
            };
            let tear = seeded_tear(image.geometry(), &cut.operation, &mut random);
            image = cut.before.torn(&cut.operation, &tear);
            match act {
                0 => may.push(None),
                1 => may.extend([None, Some(fresh)]),
                _ => {}
            }
        }
    }
    for seed in 0..2000 {
        chain::<1, 512>("tiny-1", seed);
        chain::<4, 512>("tiny-4", seed);
        chain::<8, 512>("tiny-8", seed);
        chain::<32, 1024>("tiny-32", seed);
    }
}

#[test]
fn flipped_bits_in_one_copy_are_mended_and_in_both_they_are_told() {
    let range = region::<512>();
    let image = with_kiosk::<4, 512>("tiny-4", 1);
    let flipped = |bits: &[u32]| {
        let mut flash = Flash::<4, 512>::with_image(image.clone());
        for bit in bits {
            flash.chip_mut().image_mut().flip_bit(512 + bit / 8, *bit as u8 & 7);
        }
        identity::load(&mut flash, &range).map(|identity| number(&identity))
    };
    for bit in 0..COPY_BYTES as u32 * 8 {
        let in_second = bit + 512 * 8;
        assert_eq!(flipped(&[bit]), Ok(1), "bit {bit}");
        assert_eq!(flipped(&[in_second]), Ok(1), "bit {in_second}");
        assert_eq!(
            flipped(&[bit, in_second]),
            Err(IdentityError::Damaged),
            "bit {bit} of both"
        );
    }
}

#[test]
fn noise_and_other_formats_are_no_identity() {
    fn each<const WRITE: usize, const ERASE: usize>(name: &str) {
        let mut random = Random::new(5);
        let image = with_kiosk::<WRITE, ERASE>(name, 1);
        for _ in 0..200 {
            let noise: Vec<u8> = (0..image.size_bytes()).map(|_| random.byte()).collect();
            let noise = Image::from_bytes(image.geometry(), &noise).expect("whole pages");
            let mut flash = Flash::<WRITE, ERASE>::with_image(noise);
            let loaded = identity::load(&mut flash, &region::<ERASE>()).map(|identity| number(&identity));
            assert_eq!(loaded, Err(IdentityError::Damaged), "{name}");
        }
    }
    on_each_rule!(each);
}

#[test]
fn an_identity_is_stored_once_and_forgotten_before_the_next() {
    let (range, mut flash) = (region::<512>(), Flash::<4, 512>::named("tiny-4", 4));
    assert_eq!(
        identity::load(&mut flash, &range).map(|_| ()),
        Err(IdentityError::Missing)
    );
    assert_eq!(stored(&mut flash, 1), Ok(()));
    assert_eq!(stored(&mut flash, 1), Err(IdentityError::Taken));
    assert_eq!(stored(&mut flash, 2), Err(IdentityError::Taken));
    assert_eq!(said(&mut flash, "stored"), Some(1));
    assert_eq!(identity::forget(&mut flash, &range), Ok(()));
    assert_eq!(stored(&mut flash, 2), Ok(()));
    assert_eq!(said(&mut flash, "stored anew"), Some(2));
}

#[test]
fn an_image_that_is_made_outside_has_a_copy_at_the_start_of_each_page() {
    let image = with_kiosk::<4, 512>("tiny-4", 1).bytes();
    let copy = kiosk(1).encode().expect("a short name");
    for page in 1..3 {
        let (content, rest) = image[page * 512..(page + 1) * 512].split_at(COPY_BYTES);
        assert_eq!(content, copy);
        assert!(rest.iter().all(|byte| *byte == 0xff));
    }
}

#[test]
fn an_identity_has_two_whole_pages_and_a_name_that_fits() {
    let mut flash = Flash::<4, 512>::named("tiny-4", 4);
    #[expect(clippy::reversed_empty_ranges, reason = "a range that is none")]
    let wrong = [0..512, 0..1536, 256..1280, 1024..512, 1536..2560];
    for range in wrong {
        let loaded = identity::load(&mut flash, &range).map(|_| ());
        assert_eq!(loaded, Err(IdentityError::Range), "{range:?}");
    }
    let long = Identity {
        host: Name::new(&"n".repeat(33)).expect("a name of the core"),
        ..kiosk(1)
    };
    let refused = identity::store(&mut flash, &(0..1024), &long);
    assert_eq!(refused, Err(IdentityError::NameTooLong));
}
