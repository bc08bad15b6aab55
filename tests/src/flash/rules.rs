//! One test, or more, for each numbered rule of the model.

use embedded_storage::nor_flash::{NorFlashError, NorFlashErrorKind};

use super::*;

fn geometry(name: &str) -> &'static Geometry {
    Geometry::named(name).expect("a geometry of the list")
}

fn chip(name: &str) -> Chip {
    Chip::new(geometry(name), 2)
}

fn read<const N: usize>(chip: &mut Chip, offset: u32) -> Result<[u8; N], FlashError> {
    let mut bytes = [0xa5; N];
    chip.read(offset, &mut bytes).map(|()| bytes)
}

fn cut_now(chip: &mut Chip, tear: Tear) {
    let at = chip.counters().operations;
    chip.arm(Plan::Cut { at, tear });
}

const fn program(left: Gone, other: Gone) -> Tear {
    Tear::Program { left, other }
}

const fn erase(left: Erased, other: Erased) -> Tear {
    Tear::Erase { left, other }
}

/// Tears a program of `data` at 0 and gives the power back.
fn torn_program(chip: &mut Chip, data: &[u8], tear: Tear, reading: Reading) {
    cut_now(chip, tear);
    assert_eq!(chip.write(0, data), Err(FlashError::PowerLost));
    chip.power_up(reading);
}

/// Tears an erase of page 0 and gives the power back.
fn torn_erase(chip: &mut Chip, tear: Tear, reading: Reading) {
    cut_now(chip, tear);
    let size = chip.geometry().erase_size_bytes as u32;
    assert_eq!(chip.erase(0, size), Err(FlashError::PowerLost));
    chip.power_up(reading);
}

#[test]
fn f1_programs_clear_bits_and_erases_set_them() {
    let mut chip = chip("nrf52");
    chip.write(4, &[0xf0, 0x0f, 0xff, 0x00]).unwrap();
    chip.write(4, &[0x3c, 0xff, 0x01, 0x55]).unwrap();
    assert_eq!(read(&mut chip, 4), Ok([0x30, 0x0f, 0x01, 0x00]));
    chip.write(4096, &[0; 4]).unwrap();
    chip.erase(0, 4096).unwrap();
    assert_eq!(read(&mut chip, 4), Ok([0xff; 4]));
    assert_eq!(read(&mut chip, 4096), Ok([0; 4]), "the other page is untouched");
}

#[test]
fn f2_a_word_of_an_nrf_is_programmed_twice_at_most() {
    let mut chip = chip("nrf51");
    chip.write(0, &[0xf0; 4]).unwrap();
    chip.write(0, &[0x00; 4]).unwrap();
    assert_eq!(chip.write(0, &[0; 4]), Err(FlashError::Refused(0)));
    assert_eq!((chip.counters().abuses, chip.abuse().unwrap().offset), (1, 0));
    chip.erase(0, 1024).unwrap();
    chip.write(0, &[0; 4]).unwrap();
}

#[test]
fn f2_an_rp2040_byte_may_be_programmed_any_number_of_times() {
    let mut chip = chip("rp2040");
    for bit in 0..8 {
        chip.write(9, &[!(1 << bit)]).unwrap();
    }
    assert_eq!(read(&mut chip, 8), Ok([0xff, 0, 0xff]));
    assert_eq!(chip.counters().abuses, 0);
}

#[test]
fn f2_an_stm32l4_takes_a_second_program_only_of_zeros() {
    let mut chip = chip("stm32l4");
    chip.write(8, &[0x12; 8]).unwrap();
    assert_eq!(chip.write(8, &[0x10; 8]), Err(FlashError::Refused(8)));
    assert_eq!(read(&mut chip, 8), Ok([0x12; 8]), "a refusal changes nothing");
    assert_eq!(chip.counters().abuses, 1);
    chip.write(8, &[0; 8]).unwrap();
    chip.write(8, &[0; 8]).unwrap();
    assert_eq!(read(&mut chip, 8), Ok([0; 8]));
    assert_eq!(chip.counters().abuses, 1);
}

#[test]
fn f2_calls_that_are_not_aligned_or_out_of_bounds_change_nothing() {
    let mut chip = chip("nrf52");
    assert_eq!(chip.write(2, &[0; 4]), Err(FlashError::NotAligned));
    assert_eq!(chip.write(0, &[0; 3]), Err(FlashError::NotAligned));
    assert_eq!(chip.write(8192, &[0; 4]), Err(FlashError::OutOfBounds));
    assert_eq!(chip.write(u32::MAX - 3, &[0; 4]), Err(FlashError::OutOfBounds));
    assert_eq!(chip.erase(0, 4), Err(FlashError::NotAligned));
    assert_eq!(chip.erase(4096, 0), Err(FlashError::OutOfBounds));
    assert_eq!(chip.erase(0, 12288), Err(FlashError::OutOfBounds));
    assert_eq!(read::<1>(&mut chip, 8192), Err(FlashError::OutOfBounds));
    assert_eq!(chip.counters().abuses, 8);
    assert_eq!(chip.image().digest(), Image::blank(geometry("nrf52"), 2).digest());
    assert_eq!(FlashError::NotAligned.kind(), NorFlashErrorKind::NotAligned);
    assert_eq!(FlashError::OutOfBounds.kind(), NorFlashErrorKind::OutOfBounds);
}

#[test]
fn f3_a_torn_program_leaves_a_subset_and_harms_nothing_else() {
    let mut chip = chip("nrf52");
    chip.write(4, &[0; 4]).unwrap();
    cut_now(&mut chip, program(Gone::FirstBytes(2), Gone::FirstBytes(2)));
    assert_eq!(chip.write(8, &[1, 2, 3, 4, 5, 6, 7, 8]), Err(FlashError::PowerLost));
    chip.power_up(Reading::AsLeft);
    assert_eq!(
        read(&mut chip, 4),
        Ok([0, 0, 0, 0, 1, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    );
}

#[test]
fn f3_words_before_the_torn_one_are_complete_and_those_after_it_untouched() {
    let mut chip = chip("nrf52");
    let at = chip.counters().operations + 1;
    chip.arm(Plan::Cut {
        at,
        tear: program(Gone::None, Gone::None),
    });
    assert_eq!(chip.write(0, &[7; 12]), Err(FlashError::PowerLost));
    chip.power_up(Reading::Other);
    let mut expected = [0xff; 12];
    expected[..4].fill(7);
    assert_eq!(read(&mut chip, 0), Ok(expected));
}

#[test]
fn f3_an_rp2040_tears_across_its_program_page_and_not_beyond() {
    let mut chip = chip("rp2040");
    let tear = program(Gone::AfterBytes(100), Gone::AfterBytes(100));
    cut_now(&mut chip, tear);
    assert_eq!(chip.write(100, &[0; 300]), Err(FlashError::PowerLost));
    chip.power_up(Reading::AsLeft);
    let bytes: [u8; 400] = read(&mut chip, 0).unwrap();
    assert!(
        bytes[..200].iter().all(|byte| *byte == 0xff),
        "the first bytes had not gone"
    );
    assert!(bytes[200..256].iter().all(|byte| *byte == 0), "the later ones had");
    assert!(
        bytes[256..].iter().all(|byte| *byte == 0xff),
        "the next page was not begun"
    );
}

#[test]
fn f4_a_torn_erase_leaves_its_shape() {
    let mut chip = chip("nrf51");
    chip.write(0, &[0x11; 2048]).unwrap();
    torn_erase(
        &mut chip,
        erase(Erased::FirstUnits(1), Erased::Nothing),
        Reading::AsLeft,
    );
    assert_eq!(read(&mut chip, 0), Ok([0xff, 0xff, 0xff, 0xff, 0x11]));
    assert_eq!(read(&mut chip, 1020), Ok([0x11; 8]));
    assert!(chip.image().is_half_erased(0) && !chip.image().is_half_erased(1));
}

#[test]
fn f5_marginal_cells_read_as_the_reading_says() {
    let tear = program(Gone::All, Gone::None);
    let mut chip = chip("nrf52");
    torn_program(&mut chip, &[0; 4], tear, Reading::AsLeft);
    assert_eq!(read(&mut chip, 0), Ok([0; 4]));
    chip.power_up(Reading::Other);
    assert_eq!(read(&mut chip, 0), Ok([0xff; 4]));
    chip.power_up(Reading::TurnsAfter(2));
    assert_eq!(read(&mut chip, 0), Ok([0; 4]));
    assert_eq!(read(&mut chip, 0), Ok([0; 4]), "a second read-back agrees");
    assert_eq!(read(&mut chip, 0), Ok([0xff; 4]), "and then the cells turn");
    chip.power_up(Reading::Wavering(1));
    let seen: Vec<[u8; 4]> = (0..64).map(|_| read(&mut chip, 0).unwrap()).collect();
    assert!(seen.contains(&[0; 4]) && seen.contains(&[0xff; 4]));
    assert!(
        seen.iter().any(|word| *word != [0; 4] && *word != [0xff; 4]),
        "mixtures too"
    );
}

#[test]
fn f5_bits_that_were_not_going_are_solid() {
    let mut chip = chip("nrf52");
    chip.write(4, &[0; 4]).unwrap();
    torn_program(
        &mut chip,
        &[0x0f; 4],
        program(Gone::None, Gone::All),
        Reading::Wavering(3),
    );
    for _ in 0..64 {
        let word: [u8; 8] = read(&mut chip, 0).unwrap();
        assert!(word[..4].iter().all(|byte| byte & 0x0f == 0x0f), "{word:x?}");
        assert_eq!(word[4..], [0; 4]);
    }
}

#[test]
fn f6_a_completed_program_makes_its_zeros_solid_and_nothing_else() {
    let mut chip = chip("nrf52");
    torn_program(&mut chip, &[0; 4], program(Gone::None, Gone::All), Reading::Other);
    chip.write(0, &[0, 0xff, 0, 0]).unwrap();
    chip.power_up(Reading::AsLeft);
    assert_eq!(
        read(&mut chip, 0),
        Ok([0, 0xff, 0, 0]),
        "the second byte was not programmed"
    );
    assert!(!chip.image().is_solid());
    chip.write(0, &[0; 4]).unwrap();
    assert!(chip.image().is_solid());
}

#[test]
fn f6_a_completed_erase_makes_the_page_solid() {
    let mut chip = chip("nrf52");
    chip.write(0, &[0; 8]).unwrap();
    torn_erase(
        &mut chip,
        erase(Erased::Everything, Erased::RandomBits(1)),
        Reading::AsLeft,
    );
    assert!(!chip.image().is_solid());
    chip.erase(0, 4096).unwrap();
    assert!(chip.image().is_solid());
    assert_eq!(chip.image().digest(), Image::blank(geometry("nrf52"), 2).digest());
}

#[test]
fn f7_what_is_programmed_on_a_half_erased_page_may_be_gone_later() {
    for name in ["nrf52", "rp2040", "stm32l4", "stm32h7"] {
        let mut chip = chip(name);
        let unit = chip.geometry().write_size_bytes;
        chip.write(0, &vec![0; unit]).unwrap();
        torn_erase(
            &mut chip,
            erase(Erased::Everything, Erased::Everything),
            Reading::AsLeft,
        );
        assert_eq!(read(&mut chip, 0), Ok([0xff]), "{name} reads blank");
        chip.write(0, &vec![0x5a; unit]).unwrap();
        assert_eq!(read(&mut chip, 0), Ok([0x5a]), "{name} reads back");
        chip.power_up(Reading::Other);
        assert_eq!(read(&mut chip, 0), Ok([0xff]), "{name} has lost it");
    }
}

#[test]
fn f8_a_torn_unit_of_an_ecc_chip_can_fault_and_of_others_never() {
    for (name, faults) in [
        ("nrf52", false),
        ("rp2040", false),
        ("stm32l4", true),
        ("stm32h7", true),
    ] {
        let mut chip = chip(name);
        let unit = chip.geometry().write_size_bytes;
        let tear = program(Gone::All, Gone::None);
        torn_program(&mut chip, &vec![1; unit], tear, Reading::AsLeft);
        assert_eq!(read(&mut chip, 0), Ok([1]), "{name}");
        chip.power_up(Reading::Faulting);
        assert_eq!(read::<1>(&mut chip, 0).is_err(), faults, "{name}");
        assert_eq!(chip.counters().faults, u64::from(faults), "{name}");
        chip.power_up(Reading::Other);
        assert_eq!(read(&mut chip, 0), Ok([0xff]), "{name}");
        chip.power_up(Reading::TurnsAfter(1));
        assert_eq!(read(&mut chip, 0), Ok([1]), "{name}");
        assert_ne!(read(&mut chip, 0), Ok([1]), "{name}");
    }
}

#[test]
fn f8_zeros_heal_a_torn_unit_of_an_stm32l4() {
    let mut chip = chip("stm32l4");
    torn_program(&mut chip, &[1; 8], program(Gone::Bit(3), Gone::None), Reading::Faulting);
    assert_eq!(read::<8>(&mut chip, 0), Err(FlashError::Unreadable(0)));
    chip.write(0, &[0; 8]).unwrap();
    assert_eq!(read(&mut chip, 0), Ok([0; 8]));
    assert!(chip.image().is_solid());
    assert_eq!(chip.counters().abuses, 0);
}

#[test]
fn f8_a_second_program_of_an_stm32h7_unit_makes_it_unreadable() {
    let mut chip = chip("stm32h7");
    chip.write(32, &[1; 32]).unwrap();
    chip.write(32, &[0; 32]).unwrap();
    assert_eq!(read::<4>(&mut chip, 40), Err(FlashError::Unreadable(40)));
    assert_eq!(chip.counters().abuses, 1);
    chip.erase(0, 128 * 1024).unwrap();
    assert_eq!(read(&mut chip, 32), Ok([0xff; 4]));
}

#[test]
fn f8_zeros_over_a_torn_stm32h7_unit_hold_only_where_nothing_had_gone() {
    for (left, readable) in [(Gone::None, true), (Gone::Bit(0), false)] {
        let mut chip = chip("stm32h7");
        torn_program(&mut chip, &[0; 32], program(left, Gone::None), Reading::AsLeft);
        chip.write(0, &[0; 32]).unwrap();
        assert_eq!(read::<32>(&mut chip, 0).is_ok(), readable);
        assert_eq!(chip.counters().abuses, 0, "the store could not know");
    }
}

#[test]
fn f9_without_power_every_call_fails_and_changes_nothing() {
    let mut chip = chip("nrf52");
    chip.write(0, &[1; 4]).unwrap();
    chip.power_down();
    let (digest, counters) = (chip.image().digest(), chip.counters().clone());
    assert_eq!(chip.write(4, &[0; 4]), Err(FlashError::PowerLost));
    assert_eq!(chip.erase(0, 4096), Err(FlashError::PowerLost));
    assert_eq!(read::<1>(&mut chip, 0), Err(FlashError::PowerLost));
    assert_eq!((chip.image().digest(), chip.counters()), (digest, &counters));
    chip.power_up(Reading::AsLeft);
    assert_eq!(read(&mut chip, 0), Ok([1; 4]));
}

#[test]
fn f9_a_clean_cut_leaves_nothing_of_its_operation() {
    let mut chip = chip("nrf52");
    chip.write(0, &[0x10; 4]).unwrap();
    let digest = chip.image().digest();
    torn_erase(&mut chip, Tear::Clean, Reading::AsLeft);
    torn_program(&mut chip, &[0; 4], Tear::Clean, Reading::AsLeft);
    assert_eq!(chip.image().digest(), digest);
    assert!(chip.image().is_solid());
}

#[test]
fn f10_a_driver_can_lie_in_both_directions() {
    let mut chip = chip("nrf52");
    chip.arm(Plan::Lie {
        at: 0,
        lie: Lie {
            work: Work::Done,
            reported: Reported::Failure,
        },
    });
    assert_eq!(chip.write(0, &[1; 4]), Err(FlashError::Driver));
    assert_eq!(read(&mut chip, 0), Ok([1; 4]));
    chip.arm(Plan::Lie {
        at: 1,
        lie: Lie {
            work: Work::Nothing,
            reported: Reported::Success,
        },
    });
    assert_eq!(chip.erase(0, 4096), Ok(()));
    assert_eq!(read(&mut chip, 0), Ok([1; 4]));
    let work = Work::Torn(program(Gone::FirstBytes(1), Gone::All));
    chip.arm(Plan::Lie {
        at: 2,
        lie: Lie {
            work,
            reported: Reported::Failure,
        },
    });
    assert_eq!(chip.write(4, &[2; 4]), Err(FlashError::Driver));
    assert_eq!(read(&mut chip, 4), Ok([2, 0xff, 0xff, 0xff]));
    assert!(chip.is_powered());
    assert_eq!(chip.write(8, &[3; 4]), Ok(()), "a lie is told once");
}

#[test]
fn f10_a_planned_read_fault_happens_once() {
    let mut chip = chip("nrf52");
    chip.arm(Plan::ReadFault { at: 1 });
    assert_eq!(read(&mut chip, 0), Ok([0xff]));
    assert_eq!(read::<1>(&mut chip, 4), Err(FlashError::Unreadable(4)));
    assert_eq!(read(&mut chip, 4), Ok([0xff]));
}

#[test]
fn f10_a_broken_page_takes_nothing() {
    let mut chip = chip("nrf52");
    chip.write(0, &[1; 4]).unwrap();
    chip.set_broken(0, true);
    assert_eq!(chip.erase(0, 4096), Err(FlashError::Driver));
    assert_eq!(chip.write(4, &[0; 4]), Err(FlashError::Driver));
    assert_eq!(read(&mut chip, 0), Ok([1, 1, 1, 1, 0xff]));
    chip.write(4096, &[0; 4]).unwrap();
    chip.set_broken(0, false);
    chip.erase(0, 4096).unwrap();
}

#[test]
fn counters_count_words_program_pages_erases_and_wear() {
    let mut nrf = chip("nrf52");
    nrf.write(0, &[0; 64]).unwrap();
    nrf.erase(0, 8192).unwrap();
    nrf.erase(4096, 8192).unwrap();
    read::<10>(&mut nrf, 0).unwrap();
    let counters = nrf.counters();
    assert_eq!((counters.programs, counters.programmed_bytes), (16, 64));
    assert_eq!((counters.erases, counters.wear.as_slice()), (3, &[1, 2][..]));
    assert_eq!((counters.operations, counters.reads, counters.read_words()), (19, 1, 3));
    let mut rp2040 = chip("rp2040");
    rp2040.write(250, &[0; 20]).unwrap();
    assert_eq!(rp2040.counters().programs, 2, "two program pages are touched");
}

#[test]
fn a_trace_reproduces_every_cut_without_running_the_store_again() {
    let run = |chip: &mut Chip| -> Result<(), FlashError> {
        chip.write(0, &[0x12; 16])?;
        chip.erase(4096, 8192)?;
        chip.write(4096, &[0x34; 8])
    };
    let tears = [
        Tear::Clean,
        program(Gone::Random(5), Gone::None),
        erase(Erased::RandomUnits(6), Erased::Nothing),
    ];
    let mut whole = chip("nrf52");
    whole.start_trace();
    run(&mut whole).unwrap();
    let trace = whole.take_trace();
    assert_eq!(trace.len(), 7);
    for step in &trace {
        for tear in tears {
            let mut cut = chip("nrf52");
            cut.arm(Plan::Cut { at: step.number, tear });
            assert_eq!(run(&mut cut), Err(FlashError::PowerLost));
            let torn = step.before.torn(&step.operation, &tear);
            assert_eq!(cut.image().digest(), torn.digest(), "{} {tear}", step.number);
            assert_eq!(cut.image().bytes(), torn.bytes());
        }
    }
}

#[test]
fn digests_tell_images_with_other_marginal_sets_apart() {
    let blank = Image::blank(geometry("tiny-4"), 2);
    let operation = Operation::Program {
        offset: 0,
        data: vec![0; 4],
    };
    let solid = blank.torn(&operation, &program(Gone::None, Gone::None));
    let marginal = blank.torn(&operation, &program(Gone::None, Gone::All));
    let half = blank.torn(&Operation::Erase { page: 0 }, &erase(Erased::Nothing, Erased::Nothing));
    assert_eq!(blank.digest(), solid.digest());
    assert_ne!(blank.digest(), marginal.digest());
    assert_ne!(blank.digest(), half.digest());
    assert_eq!(blank.bytes(), marginal.bytes());
    assert_eq!(marginal.other_bytes()[..4], [0; 4]);
}

#[test]
fn a_snapshot_is_not_changed_by_later_work() {
    let mut chip = chip("nrf52");
    chip.write(0, &[1; 4]).unwrap();
    let snapshot = chip.image().clone();
    chip.write(4, &[2; 4]).unwrap();
    chip.erase(0, 4096).unwrap();
    chip.restore(&snapshot);
    assert_eq!(read(&mut chip, 0), Ok([1, 1, 1, 1, 0xff]));
}

#[test]
fn a_dump_loads_as_a_solid_image() {
    let mut bytes = vec![0xff; 1024];
    bytes[8..16].fill(3);
    let image = Image::from_bytes(geometry("tiny-8"), &bytes).unwrap();
    assert!(image.is_solid());
    assert_eq!(image.bytes(), bytes);
    let mut chip = Chip::with_image(image);
    assert_eq!(chip.write(8, &[1; 8]), Err(FlashError::Refused(8)));
    chip.write(0, &[1; 8]).unwrap();
    assert!(Image::from_bytes(geometry("tiny-8"), &bytes[1..]).is_none());
    assert!(Image::from_bytes(geometry("tiny-8"), &[]).is_none());
}

#[test]
fn a_flipped_bit_is_solid_damage() {
    let mut chip = chip("nrf52");
    chip.write(0, &[0; 4]).unwrap();
    chip.image_mut().flip_bit(1, 3);
    assert_eq!(read(&mut chip, 0), Ok([0, 8, 0, 0]));
    assert!(chip.image().is_solid());
}

#[test]
fn the_text_form_of_a_reading_reads_back() {
    for reading in [
        Reading::AsLeft,
        Reading::Other,
        Reading::TurnsAfter(3),
        Reading::Wavering(u64::MAX),
    ] {
        assert_eq!(Reading::parse(&reading.to_string()), Some(reading));
    }
    assert_eq!(Reading::parse("right"), None);
}
