//! Which tears and readings are tried for an operation.

use crate::flash::{Erased, Geometry, Gone, Image, Operation, Reading, Tear};
use crate::random::{Random, fold};

/// The readings under which an image is mounted: each kind that shows a difference.
#[must_use]
pub fn readings(image: &Image, seed: u64) -> Vec<Reading> {
    let mut readings = vec![Reading::AsLeft];
    let seed = fold(seed, image.digest()) >> 40;
    if image.has_marginal_cells() {
        readings.extend([Reading::Other, Reading::TurnsAfter(2), Reading::Wavering(seed)]);
    }
    if image.has_faulty_units() {
        readings.push(Reading::Faulting);
        if !image.has_marginal_cells() {
            readings.extend([Reading::TurnsAfter(2), Reading::Wavering(seed)]);
        }
    }
    readings
}

/// The reading of the next mount: cells that kept still may turn now.
#[must_use]
pub const fn turned(reading: Reading) -> Reading {
    match reading {
        Reading::AsLeft | Reading::TurnsAfter(_) => Reading::Other,
        Reading::Other | Reading::Faulting => Reading::AsLeft,
        Reading::Wavering(seed) => Reading::Wavering(seed ^ 1),
    }
}

/// Every tear that is tried for `operation`, [`Tear::Clean`] first. Random shapes are seeded by
/// `seed`.
#[must_use]
pub fn tears(geometry: &Geometry, operation: &Operation, seed: u64) -> Vec<Tear> {
    let mut random = Random::new(fold(seed, 1));
    // Short seeds keep the names of cases readable.
    let mut short = || random.next() >> 40;
    let mut tears = vec![Tear::Clean];
    match operation {
        Operation::Program { data, .. } => {
            let half = (data.len() / 2) as u16;
            let bit = (short() % 509) as u16;
            let solid = short();
            let mut add = |left, other| tears.push(Tear::Program { left, other });
            add(Gone::None, Gone::All);
            add(Gone::Random(solid), Gone::Random(solid));
            add(Gone::Random(short()), Gone::Random(short()));
            add(Gone::Random(short()), Gone::None);
            add(Gone::Random(short()), Gone::All);
            add(Gone::FirstBytes(half.max(1)), Gone::FirstBytes(half.max(1)));
            add(Gone::AfterBytes(half.max(1)), Gone::AfterBytes(half.max(1)));
            add(Gone::Bit(bit), Gone::None);
            add(Gone::AllBut(bit), Gone::All);
            if geometry.rule.has_ecc() {
                add(Gone::All, Gone::None);
            }
        }
        Operation::Erase { .. } => {
            let units = geometry.units_per_page() as u32;
            let unit = geometry.write_size_bytes as u32;
            let mut add = |left, other| tears.push(Tear::Erase { left, other });
            add(Erased::Nothing, Erased::Everything);
            add(Erased::Nothing, Erased::RandomBits(short()));
            add(Erased::Everything, Erased::Everything);
            add(Erased::Everything, Erased::Nothing);
            add(Erased::Everything, Erased::AlmostEverything(short()));
            // The sizes that page headers and frames have, in units.
            for bytes in [unit, 2 * unit, 8, 16, 32, 48, 64, 128] {
                let n = bytes.div_ceil(unit).max(1);
                add(Erased::FirstUnits(n), Erased::FirstUnits(n));
                add(Erased::AllButFirst(n), Erased::AllButFirst(n));
            }
            for n in [1, 2, units / 2] {
                add(Erased::LastUnits(n), Erased::LastUnits(n));
                add(Erased::AllButLast(n), Erased::AllButLast(n));
            }
            add(Erased::FirstUnits(units / 2), Erased::Everything);
            add(Erased::Ends, Erased::Ends);
            add(Erased::Ends, Erased::Nothing);
            add(Erased::RandomUnits(short()), Erased::RandomUnits(short()));
            let solid = short();
            add(Erased::RandomUnits(solid), Erased::RandomUnits(solid));
            add(Erased::RandomBits(short()), Erased::RandomBits(short()));
            add(Erased::AlmostEverything(short()), Erased::Everything);
            add(Erased::Zeros, Erased::Everything);
            add(Erased::Noise(short()), Erased::Noise(short()));
            let mut seen = std::collections::HashSet::new();
            tears.retain(|tear| seen.insert(*tear));
        }
    }
    tears
}

/// One tear of `operation`, drawn with everything random.
#[must_use]
pub fn seeded_tear(geometry: &Geometry, operation: &Operation, random: &mut Random) -> Tear {
    if random.below(8) == 0 {
        return Tear::Clean;
    }
    match operation {
        Operation::Program { data, .. } => {
            let left = seeded_gone(data.len(), random);
            let other = if random.below(3) == 0 {
                left
            } else {
                seeded_gone(data.len(), random)
            };
            Tear::Program { left, other }
        }
        Operation::Erase { .. } => {
            let units = geometry.units_per_page() as u64;
            let left = seeded_erased(units, random);
            let other = if random.below(3) == 0 {
                left
            } else {
                seeded_erased(units, random)
            };
            Tear::Erase { left, other }
        }
    }
}

/// One reading, drawn at random.
#[must_use]
pub fn seeded_reading(random: &mut Random) -> Reading {
    match random.below(5) {
        0 => Reading::AsLeft,
        1 => Reading::Other,
        2 => Reading::Faulting,
        3 => Reading::TurnsAfter(random.below(12) as u32),
        _ => Reading::Wavering(random.next() >> 40),
    }
}

fn seeded_gone(len: usize, random: &mut Random) -> Gone {
    let within = |random: &mut Random| random.below(len as u64 + 1) as u16;
    match random.below(8) {
        0 => Gone::None,
        1 => Gone::All,
        2 => Gone::FirstBytes(within(random)),
        3 => Gone::AfterBytes(within(random)),
        4 => Gone::Bit(random.below(1024) as u16),
        5 => Gone::AllBut(random.below(1024) as u16),
        _ => Gone::Random(random.next() >> 40),
    }
}

fn seeded_erased(units: u64, random: &mut Random) -> Erased {
    // Markers and headers lie at the ends: half of the ranges are short.
    let some = |random: &mut Random| {
        let bound = if random.below(2) == 0 { 16 } else { units };
        1 + random.below(bound.min(units)) as u32
    };
    match random.below(13) {
        0 => Erased::Nothing,
        1 | 2 => Erased::Everything,
        3 => Erased::FirstUnits(some(random)),
        4 => Erased::LastUnits(some(random)),
        5 => Erased::Ends,
        6 => Erased::AllButFirst(some(random)),
        7 => Erased::AllButLast(some(random)),
        8 => Erased::RandomUnits(random.next() >> 40),
        9 => Erased::RandomBits(random.next() >> 40),
        10 => Erased::AlmostEverything(random.next() >> 40),
        11 => Erased::Zeros,
        _ => Erased::Noise(random.next() >> 40),
    }
}
