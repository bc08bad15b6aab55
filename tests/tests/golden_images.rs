//! Golden images: a region of each kind of unit, as this format version has written it. Every later version must mount them
//! and tell the same story. After a change of the format that is meant, write them anew and read the difference:
//!
//! ```text
//! KEYFENCE_BLESS=1 cargo test -p keyfence-tests --test golden_images
//! ```

use std::path::{Path, PathBuf};

use keyfence_tests::flash::Geometry;
use keyfence_tests::powercut::inspect::{Counts, FindingKind, Role, Verdict, compare, inspect};
use keyfence_tests::powercut::malformed::{TINY, lived, mounted};

/// The life behind the images.
const SEED: u64 = 2;

fn file(name: &str, extension: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/flash");
    folder.join(format!("format-1-{name}.{extension}"))
}

/// The region as the life has left it, with the begin of one more frame: its header and no more.
fn image(geometry: &'static Geometry) -> Vec<u8> {
    let mut bytes = lived(geometry, SEED);
    let story = inspect(geometry, &bytes).expect("whole pages");
    let last = story.frames.last().expect("a history has frames");
    let at = last.offset + (last.units + 1) * story.unit_bytes;
    // A body that was cut in its first unit.
    bytes[at..at + story.unit_bytes].fill(0x5c);
    bytes
}

#[test]
fn every_image_of_this_format_mounts_and_tells_its_story() {
    for name in TINY {
        let geometry = Geometry::named(name).expect("a geometry of the list");
        if std::env::var_os("KEYFENCE_BLESS").is_some() {
            let bytes = image(geometry);
            std::fs::write(file(name, "bin"), &bytes).expect("an image");
            let story = inspect(geometry, &bytes).expect("whole pages").to_string();
            std::fs::write(file(name, "txt"), story).expect("a story");
        }
        let bytes = std::fs::read(file(name, "bin")).expect("an image");
        mounted(geometry, &bytes).expect("a sound region");
        let story = inspect(geometry, &bytes).expect("whole pages");
        let expected = std::fs::read_to_string(file(name, "txt")).expect("a story");
        assert_eq!(story.to_string(), expected, "{name}");

        let Verdict::Sound {
            boot,
            sequence,
            chain,
            repaired,
            ..
        } = story.verdict
        else {
            panic!("{name}: {:?}", story.verdict);
        };
        assert!(
            boot > 3 && sequence > 100 && repaired == 0,
            "{name}: boot {boot}, frame {sequence}"
        );
        // The story comes to what the mount says by itself.
        let last = story.frames.last().expect("a history has frames");
        assert_eq!((last.sequence, last.chain), (Some(sequence), Some(chain)), "{name}");
        assert!(story.frames.iter().all(|frame| frame.sequence.is_some()), "{name}");
        // Only the last piece was torn, and it is found.
        let torn: Vec<_> = story
            .findings
            .iter()
            .filter(|finding| finding.kind == FindingKind::TornBody)
            .collect();
        assert_eq!(torn.len(), 1, "{name}: {:?}", story.findings);
        assert!(torn[0].text.contains("the next mount drops it"), "{name}");
        let harmless = [FindingKind::TornBody, FindingKind::Settled];
        assert!(
            story.findings.iter().all(|finding| harmless.contains(&finding.kind)),
            "{name}: {:?}",
            story.findings
        );
        assert!(story.pages.iter().any(|page| page.role == Role::Live), "{name}");
        let live: usize = story.frames.iter().map(|frame| frame.live.len()).sum();
        assert!(live > 8, "{name}: {live} live records");
        let counts = |counts| story.frames.iter().filter(|frame| frame.counts == counts).count();
        assert_eq!(counts(Counts::Dropped), 0, "{name}");
        assert!(counts(Counts::Committed) > 8, "{name}");
    }
}

#[test]
fn an_image_that_was_put_back_or_parted_is_told_by_an_earlier_one() {
    let geometry = Geometry::named("tiny-4").expect("a geometry of the list");
    let story = |seed| inspect(geometry, &lived(geometry, seed)).expect("whole pages");
    let (one, other) = (story(1), story(3));
    assert_eq!(compare(&one, &one), []);
    let kinds: Vec<FindingKind> = compare(&other, &one)
        .iter()
        .chain(&compare(&one, &other))
        .map(|finding| finding.kind)
        .collect();
    assert!(kinds.contains(&FindingKind::RolledBack), "{kinds:?}");
}
