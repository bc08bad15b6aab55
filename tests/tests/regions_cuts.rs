//! The regions beside the ledger under power cuts: settings and audit only ever
//! say what was put there, and none of them writes outside its own pages.

use std::ops::Range;

use keyfence_core::refusal::RefusedCall;
use keyfence_core::{LedgerId, Name, Reason, TimeMs, Token};
use keyfence_firmware::audit::{Audit, KINDS_MAX, Noted, QUIET_MS};
use keyfence_firmware::journal::Existing;
use keyfence_firmware::settings::{Answer, RegionError, SETTING_BYTES_MAX, SETTINGS_MAX, Settings};
use keyfence_firmware::store::Ledger;
use keyfence_tests::flash::{Chip, Image, Reading, SimFlash};
use keyfence_tests::powercut::{readings, stays_inside, tears, traced};
use keyfence_tests::random::Random;

/// The region of each test lies behind one page that nobody may touch.
const fn region<const ERASE: usize>(pages: u32) -> Range<u32> {
    ERASE as u32..(1 + pages) * ERASE as u32
}

// ---- settings

type Values = Vec<Vec<u8>>;

fn value(key: u8, round: u8) -> Vec<u8> {
    (0..8 + key % 3).map(|i| key ^ round.wrapping_mul(31) ^ i).collect()
}

/// Puts a key; its earlier values are in `put`.
fn settings_survive<const WRITE: usize, const ERASE: usize>(name: &str) {
    let range = region::<ERASE>(3);
    let settings = Settings::new(range.clone());
    let mut image = SimFlash::<WRITE, ERASE>::named(name, 5).chip().image().clone();
    let mut random = Random::new(7);
    let mut put: [Values; 4] = Default::default();
    let mut formatted = 0;
    for round in 0..60 {
        let key = random.below(4) as u8;
        let new = value(key, round);
        let (done, trace, after) = traced(&image, Reading::AsLeft, |flash: &mut SimFlash<WRITE, ERASE>| {
            settings.put(flash, key, &new)
        });
        assert_eq!(done, Ok(Answer::Kept(())), "{name}, {round}");
        put[usize::from(key)].push(new);
        stays_inside(&trace, &range, ERASE);
        for traced_operation in &trace {
            for tear in tears(image.geometry(), &traced_operation.operation, u64::from(round)) {
                let torn = traced_operation.before.torn(&traced_operation.operation, &tear);
                for reading in readings(&torn, 3) {
                    let what = format!("{name}, {round}, {tear}, {reading}");
                    formatted += u32::from(judge_settings::<WRITE, ERASE>(&torn, reading, &put, &what));
                }
            }
        }
        image = after;
    }
    println!("{name}: formatted itself {formatted} times");
}

/// Every value is one that was put, and the region can be written. Whether it had to be formatted.
fn judge_settings<const WRITE: usize, const ERASE: usize>(
    torn: &Image,
    reading: Reading,
    put: &[Values; 4],
    what: &str,
) -> bool {
    let range = region::<ERASE>(3);
    let settings = Settings::new(range.clone());
    let (formatted, trace, _) = traced(torn, reading, |flash: &mut SimFlash<WRITE, ERASE>| {
        let mut formatted = false;
        for key in 0..4 {
            let answer = settings
                .get(flash, key)
                .unwrap_or_else(|error| panic!("{what}: {error:?}"));
            formatted |= matches!(answer, Answer::Formatted(_));
            if let Some(found) = answer.value() {
                assert!(
                    put[usize::from(key)].iter().any(|value| *value == found[..]),
                    "{what}: {found:?}"
                );
            }
        }
        let stored = settings
            .put(flash, 0, b"new")
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        formatted |= stored == Answer::Formatted(());
        flash.chip_mut().power_up(Reading::AsLeft);
        formatted
    });
    stays_inside(&trace, &range, ERASE);
    formatted
}

#[test]
fn settings_say_only_what_was_put_and_format_themselves_when_unreadable() {
    settings_survive::<1, 512>("tiny-1");
    settings_survive::<4, 512>("tiny-4");
    settings_survive::<8, 512>("tiny-8");
    settings_survive::<32, 1024>("tiny-32");
}

#[test]
fn settings_have_bounds() {
    let mut flash = SimFlash::<4, 1024>::named("nrf51", 4);
    let settings = Settings::new(0..2048);
    let long = [7; SETTING_BYTES_MAX];
    for round in 0..40 {
        for key in 0..SETTINGS_MAX {
            assert_eq!(settings.put(&mut flash, key, &long), Ok(Answer::Kept(())), "{round}");
        }
    }
    assert_eq!(settings.put(&mut flash, SETTINGS_MAX, b"x"), Err(RegionError::TooLong));
    assert_eq!(
        settings.put(&mut flash, 0, &[0; SETTING_BYTES_MAX + 1]),
        Err(RegionError::TooLong)
    );
    for wrong in [0..1024, 512..2560, 3072..5120] {
        assert_eq!(Settings::new(wrong).get(&mut flash, 0), Err(RegionError::Range));
    }
}

// ---- audit

fn refused(at_ms: u64, reason: Reason, presented: u64) -> RefusedCall {
    RefusedCall {
        at: TimeMs::new(at_ms).expect("a moment"),
        reason,
        subject: Name::new("supplier-chat").expect("a name"),
        presented: Token::presented(presented).expect("a token"),
        never_issued: false,
    }
}

/// Boot, client, count, others and token of every record.
fn listed<const WRITE: usize, const ERASE: usize>(
    audit: &Audit,
    flash: &mut SimFlash<WRITE, ERASE>,
) -> Vec<(u32, u8, u32, u32, u64)> {
    let mut entries = Vec::new();
    let read = audit.read(flash, |entry| {
        assert_eq!(entry.subject.as_str(), "supplier-chat");
        entries.push((
            entry.boot,
            entry.client,
            entry.count,
            entry.others,
            entry.presented.get(),
        ));
    });
    let read = read.expect("a region").value();
    assert_eq!((read.shown as usize, read.skipped), (entries.len(), 0));
    entries
}

#[test]
fn a1_at_most_one_record_a_minute_for_each_client_and_reason() {
    let mut flash = SimFlash::<4, 1024>::named("nrf51", 2);
    let mut audit = Audit::new(0..2048);
    for second in 0..181 {
        let at = second * 1000;
        let noted = audit.note(&mut flash, 5, 1, &refused(at, Reason::SessionClaimStale, 40 + second));
        let expected = if at % QUIET_MS == 0 {
            Noted::Written
        } else {
            Noted::Counted
        };
        assert_eq!(noted, Ok(Answer::Kept(expected)), "{second}");
    }
    // Another reason and another client have minutes of their own.
    let other = audit.note(&mut flash, 5, 1, &refused(181_000, Reason::Fenced, 7));
    assert_eq!(other, Ok(Answer::Kept(Noted::Written)));
    let other = audit.note(&mut flash, 5, 2, &refused(181_000, Reason::SessionClaimStale, 8));
    assert_eq!(other, Ok(Answer::Kept(Noted::Written)));
    // A clock that goes back writes nothing.
    let back = audit.note(&mut flash, 5, 2, &refused(1000, Reason::SessionClaimStale, 8));
    assert_eq!(back, Ok(Answer::Kept(Noted::Counted)));
    let expected = [
        (5, 1, 1, 0, 40),
        (5, 1, 60, 0, 100),
        (5, 1, 60, 0, 160),
        (5, 1, 60, 0, 220),
        (5, 1, 1, 0, 7),
        (5, 2, 1, 0, 8),
    ];
    assert_eq!(listed(&audit, &mut flash), expected);
}

#[test]
fn a2_pairs_that_are_not_told_apart_are_counted_together() {
    let mut flash = SimFlash::<4, 1024>::named("nrf51", 4);
    let mut audit = Audit::new(0..4096);
    for client in 0..=u8::MAX {
        let noted = audit
            .note(&mut flash, 1, client, &refused(0, Reason::Fenced, 1))
            .expect("a region");
        let expected = if usize::from(client) < KINDS_MAX {
            Noted::Written
        } else {
            Noted::Counted
        };
        assert_eq!(noted, Answer::Kept(expected), "{client}");
    }
    let noted = audit.note(&mut flash, 1, 200, &refused(QUIET_MS, Reason::Fenced, 2));
    assert_eq!(noted, Ok(Answer::Kept(Noted::Written)));
    let entries = listed(&audit, &mut flash);
    assert_eq!(entries.len(), KINDS_MAX + 1);
    assert_eq!(entries.last(), Some(&(1, 200, 1, 256 - KINDS_MAX as u32, 2)));
}

#[test]
fn the_ring_keeps_the_newest_and_a_new_boot_reads_it() {
    let mut flash = SimFlash::<8, 2048>::named("stm32l4", 2);
    for boot in 1..=200 {
        let mut audit = Audit::new(0..4096);
        let noted = audit.note(&mut flash, boot, 0, &refused(9, Reason::Fenced, boot.into()));
        assert_eq!(noted, Ok(Answer::Kept(Noted::Written)));
    }
    let entries = listed(&Audit::new(0..4096), &mut flash);
    let newest: Vec<u32> = entries.iter().map(|entry| entry.0).collect();
    let from = 201 - newest.len() as u32;
    assert_eq!(newest, (from..=200).collect::<Vec<_>>());
    assert!(newest.len() >= 16, "{}", newest.len());
    assert_eq!(flash.chip().abuse(), None);
}

fn the_ring_survives<const WRITE: usize, const ERASE: usize>(name: &str) {
    let range = region::<ERASE>(3);
    let mut image = SimFlash::<WRITE, ERASE>::named(name, 5).chip().image().clone();
    let mut formatted = 0;
    for boot in 1..40 {
        let note = |flash: &mut SimFlash<WRITE, ERASE>, boot: u32| {
            Audit::new(range.clone()).note(flash, boot, 0, &refused(9, Reason::Fenced, boot.into()))
        };
        let (noted, trace, after) = traced(&image, Reading::AsLeft, |flash| note(flash, boot));
        assert_eq!(noted, Ok(Answer::Kept(Noted::Written)), "{name}, {boot}");
        stays_inside(&trace, &range, ERASE);
        for traced_operation in &trace {
            for tear in tears(image.geometry(), &traced_operation.operation, boot.into()) {
                let torn = traced_operation.before.torn(&traced_operation.operation, &tear);
                for reading in readings(&torn, 5) {
                    let what = format!("{name}, {boot}, {tear}, {reading}");
                    let (noted, trace, after) = traced(&torn, reading, |flash| note(flash, boot + 1));
                    stays_inside(&trace, &range, ERASE);
                    let noted = noted.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                    assert_eq!(noted.value(), Noted::Written, "{what}");
                    formatted += u32::from(matches!(noted, Answer::Formatted(_)));
                    let mut flash = SimFlash::<WRITE, ERASE>::with_image(after);
                    let boots = listed(&Audit::new(range.clone()), &mut flash);
                    assert!(boots.iter().all(|entry| entry.0 <= boot + 1), "{what}: {boots:?}");
                }
            }
        }
        image = after;
    }
    println!("{name}: formatted itself {formatted} times");
}

#[test]
fn the_ring_takes_records_after_every_cut() {
    the_ring_survives::<1, 512>("tiny-1");
    the_ring_survives::<4, 512>("tiny-4");
    the_ring_survives::<8, 512>("tiny-8");
    the_ring_survives::<32, 1024>("tiny-32");
}

// ---- all of them

/// Noise, and pages of the regions themselves in wrong places: answers or errors, no panic and no endless loop.
fn anything_is_answered<const WRITE: usize, const ERASE: usize>(name: &str) {
    let mut random = Random::new(23);
    let mut flash = SimFlash::<WRITE, ERASE>::named(name, 3);
    let range = 0..(3 * ERASE) as u32;
    for round in 0..20 {
        let _ = Settings::new(range.clone())
            .put(&mut flash, round % 8, &value(round, round))
            .expect("a region");
    }
    let settings = flash.chip().image().bytes();
    let mut flash = SimFlash::<WRITE, ERASE>::named(name, 3);
    for boot in 1..20 {
        let noted = Audit::new(range.clone()).note(&mut flash, boot, 0, &refused(9, Reason::Fenced, boot.into()));
        assert_eq!(noted, Ok(Answer::Kept(Noted::Written)));
    }
    let audit = flash.chip().image().bytes();
    let geometry = flash.chip().geometry();
    for round in 0..3000u32 {
        let mut bytes = if round % 2 == 0 {
            settings.clone()
        } else {
            audit.clone()
        };
        match random.below(4) {
            0 => {
                let (a, b) = (random.below(3) as usize, random.below(3) as usize);
                let page = bytes[a * ERASE..(a + 1) * ERASE].to_vec();
                bytes[b * ERASE..(b + 1) * ERASE].copy_from_slice(&page);
            }
            1 => bytes.iter_mut().for_each(|byte| *byte = random.byte()),
            _ => {
                for _ in 0..=random.below(40) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = if random.below(2) == 0 {
                        random.byte()
                    } else {
                        bytes[at] ^ 1 << random.below(8)
                    };
                }
            }
        }
        let image = Image::from_bytes(geometry, &bytes).expect("whole pages");
        let mut flash = SimFlash::<WRITE, ERASE>::on(std::rc::Rc::new(Chip::with_image(image.clone()).into()));
        let got = Settings::new(range.clone()).get(&mut flash, 1);
        assert!(got.is_ok(), "{name}, {round}: {got:?}");
        let put = Settings::new(range.clone()).put(&mut flash, 1, b"x");
        assert!(put.is_ok(), "{name}, {round}: {put:?}");
        let mut flash = SimFlash::<WRITE, ERASE>::with_image(image);
        let read = Audit::new(range.clone()).read(&mut flash, |_| ());
        assert!(read.is_ok(), "{name}, {round}: {read:?}");
        let noted = Audit::new(range.clone()).note(&mut flash, 1, 0, &refused(9, Reason::Fenced, 1));
        assert!(noted.is_ok(), "{name}, {round}: {noted:?}");
    }
}

#[test]
fn malformed_regions_are_formatted_or_refused() {
    anything_is_answered::<1, 512>("tiny-1");
    anything_is_answered::<4, 512>("tiny-4");
    anything_is_answered::<8, 512>("tiny-8");
    anything_is_answered::<32, 1024>("tiny-32");
}

#[test]
fn losing_settings_and_audit_never_weakens_the_fence() {
    const PAGE: u32 = 4096;
    let (fence, beside) = (0..4 * PAGE, [4 * PAGE..6 * PAGE, 6 * PAGE..8 * PAGE]);
    let flash = SimFlash::<4, 4096>::named("nrf52", 8);
    let clock = || TimeMs::new(1000).expect("a moment");
    let mut ledger: Box<Ledger<_, _>> = Box::new(Ledger::new(flash.clone(), fence.clone(), clock));
    ledger
        .provision(LedgerId::from_bytes([1; 16]), 1, 500, Existing::Refuse)
        .expect("a blank region");
    let mut random = Random::new(3);
    for round in 0..60 {
        let mut beside_flash = flash.clone();
        let _ = Settings::new(beside[0].clone())
            .put(&mut beside_flash, 1, &[round])
            .expect("a region");
        let call = refused(9, Reason::Fenced, 1);
        let _ = Audit::new(beside[1].clone())
            .note(&mut beside_flash, 1, 0, &call)
            .expect("a region");
        // Every bit of both regions is turned over, or anything else.
        let before = ledger.power_up(0).expect("an unharmed ledger");
        let mut image = flash.chip().image().clone();
        for _ in 0..300 {
            image.flip_bit(4 * PAGE + random.below(4 * u64::from(PAGE)) as u32, random.byte());
        }
        flash.chip_mut().restore(&image);
        let _ = Settings::new(beside[0].clone())
            .get(&mut beside_flash, 1)
            .expect("a region");
        let _ = Audit::new(beside[1].clone())
            .read(&mut beside_flash, |_| ())
            .expect("a region");
        let after = ledger.power_up(0).expect("an unharmed ledger");
        assert_eq!(
            (after.limit, after.boot, after.sequence),
            (before.limit, before.boot + 1, before.sequence + 1)
        );
    }
}
