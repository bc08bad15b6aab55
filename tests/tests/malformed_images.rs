//! Regions that no life has left end in typed errors, and have a story all the same. The same functions run under a
//! coverage-guided fuzzer; see `tests/fuzz`.

use std::panic::catch_unwind;

use keyfence_tests::flash::Geometry;
use keyfence_tests::powercut::malformed::{TINY, lived, mount, mounted, region, tell};
use keyfence_tests::random::Random;

/// Inputs of each kind, and each of them to both targets.
const INPUTS: u64 = 1500;

#[test]
fn no_input_makes_a_mount_or_a_story_panic() {
    let mut random = Random::new(41);
    for input in 0..INPUTS {
        for mode in 0..4 {
            let len = if mode == 0 {
                random.below(4096)
            } else {
                random.below(60)
            };
            let mut data = vec![random.byte(), mode, random.byte()];
            data.extend((0..len).map(|_| random.byte()));
            let held = catch_unwind(|| {
                mount(&data);
                tell(&data);
            });
            assert!(held.is_ok(), "input {input}: {data:?}");
        }
    }
}

#[test]
fn every_kind_of_input_stands_for_a_region() {
    assert_eq!(region(&[0, 0]), None);
    for pick in 0..4 {
        for mode in 0..4 {
            let (geometry, bytes) = region(&[pick, mode, 0, 9, 9, 9, 9, 9]).expect("a region");
            assert_eq!(geometry.name, TINY[usize::from(pick)]);
            assert_eq!(bytes.len() % geometry.erase_size_bytes, 0, "{pick} {mode}");
        }
    }
}

fn each_geometry(judge: impl Fn(&'static Geometry, Vec<u8>)) {
    for name in TINY {
        let geometry = Geometry::named(name).expect("a geometry of the list");
        let bytes = lived(geometry, 1);
        mounted(geometry, &bytes).expect("a region that was lived in");
        judge(geometry, bytes);
    }
}

#[test]
fn every_page_swapped_with_every_other_is_refused() {
    each_geometry(|geometry, bytes| {
        let page = geometry.erase_size_bytes;
        for a in 0..bytes.len() / page {
            for b in 0..a {
                let mut swapped = bytes.clone();
                let (low, high) = swapped.split_at_mut(a * page);
                low[b * page..(b + 1) * page].swap_with_slice(&mut high[..page]);
                let error = mounted(geometry, &swapped).expect_err("two pages changed places");
                assert!(error.contains("MisplacedPage"), "{} {a} {b}: {error}", geometry.name);
            }
        }
    });
}

#[test]
fn noise_other_formats_and_truncated_regions_never_start_anew() {
    each_geometry(|geometry, bytes| {
        let page = geometry.erase_size_bytes;
        for kept in 3..bytes.len() / page {
            mounted(geometry, &bytes[..kept * page]).expect_err("pages are missing");
        }
        let mut random = Random::new(17);
        let noise: Vec<u8> = bytes.iter().map(|_| random.byte()).collect();
        let error = mounted(geometry, &noise).expect_err("noise");
        assert!(error.contains("Damaged"), "{}: {error}", geometry.name);
        let text: Vec<u8> = b"SQLite format 3\0".iter().copied().cycle().take(bytes.len()).collect();
        let error = mounted(geometry, &text).expect_err("another format");
        assert!(error.contains("Damaged"), "{}: {error}", geometry.name);
        let blank = vec![0xff; bytes.len()];
        let error = mounted(geometry, &blank).expect_err("nothing was provisioned");
        assert!(error.contains("Unprovisioned"), "{}: {error}", geometry.name);
        // Another version of the format: both header copies of every page say so, with a good check sum or not.
        let mut other = bytes;
        other.chunks_mut(page).for_each(|page| page[3] ^= 0x40);
        mounted(geometry, &other)
            .err()
            .into_iter()
            .for_each(|error| assert!(!error.contains("Unprovisioned"), "{error}"));
    });
}
