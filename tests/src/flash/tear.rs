//! How an interrupted operation may have left its cells.

use core::fmt;

use crate::random::Random;

/// Which bits of an interrupted program have gone from 1 to 0. Bits are counted among those that
/// were going, in address order; numbers beyond the last wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gone {
    /// None: the unit reads as before.
    None,
    /// All: the unit reads as if the program had completed.
    All,
    /// Those in the first bytes, this many of them.
    FirstBytes(u16),
    /// Those beyond the first bytes, this many of them.
    AfterBytes(u16),
    /// Each with even odds, as the seed says.
    Random(u64),
    /// One bit only.
    Bit(u16),
    /// All bits but one.
    AllBut(u16),
}

impl Gone {
    /// Applies the subset to `cells`, which are being programmed with `data`.
    pub(super) fn apply(self, cells: &mut [u8], data: &[u8]) {
        debug_assert_eq!(cells.len(), data.len());
        match self {
            Self::None => {}
            Self::All => and(cells, data),
            Self::FirstBytes(n) => {
                let n = usize::from(n).min(cells.len());
                and(&mut cells[..n], &data[..n]);
            }
            Self::AfterBytes(n) => {
                let n = usize::from(n).min(cells.len());
                and(&mut cells[n..], &data[n..]);
            }
            Self::Random(seed) => {
                let mut random = Random::new(seed);
                for (cell, byte) in cells.iter_mut().zip(data) {
                    *cell &= byte | random.byte();
                }
            }
            Self::Bit(k) => one_bit(cells, data, k, false),
            Self::AllBut(k) => one_bit(cells, data, k, true),
        }
    }
}

fn and(cells: &mut [u8], data: &[u8]) {
    for (cell, byte) in cells.iter_mut().zip(data) {
        *cell &= byte;
    }
}

/// Clears the `k`-th going bit, or every going bit but that one.
fn one_bit(cells: &mut [u8], data: &[u8], k: u16, all_but: bool) {
    let going: u32 = cells
        .iter()
        .zip(data)
        .map(|(cell, byte)| (cell & !byte).count_ones())
        .sum();
    if going == 0 {
        return;
    }
    let chosen = u32::from(k) % going;
    let mut seen = 0;
    for (cell, byte) in cells.iter_mut().zip(data) {
        let mut rest = *cell & !byte;
        while rest != 0 {
            let bit = rest & rest.wrapping_neg();
            rest ^= bit;
            if (seen == chosen) != all_but {
                *cell &= !bit;
            }
            seen += 1;
        }
    }
}

/// What an interrupted erase has left in its page. Numbers of units beyond the page mean the whole
/// page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Erased {
    /// Nothing was erased: the old content.
    Nothing,
    /// The whole page reads blank.
    Everything,
    /// Only the first units are blank: marker words at the start of the page are gone.
    FirstUnits(u32),
    /// Only the last units are blank: marker words at the end of the page are gone.
    LastUnits(u32),
    /// Only the first and the last unit are blank.
    Ends,
    /// All but the first units are blank: marker words survive, content does not.
    AllButFirst(u32),
    /// All but the last units are blank.
    AllButLast(u32),
    /// Each unit is blank with even odds.
    RandomUnits(u64),
    /// Each 0 bit has become 1 with even odds.
    RandomBits(u64),
    /// Few bits are still 0: each 0 bit has become 1 with odds of 31 to 1.
    AlmostEverything(u64),
    /// All bits are 0, as chips do that program a page before they erase it.
    Zeros,
    /// Bytes that have nothing to do with the old content.
    Noise(u64),
}

impl Erased {
    /// Applies the shape to the `old` content of a page, whose write unit has `unit` bytes.
    pub(super) fn apply(self, old: &mut [u8], unit: usize) {
        let size = old.len();
        let bytes = |units: u32| (units as usize).saturating_mul(unit).min(size);
        match self {
            Self::Nothing => {}
            Self::Everything => old.fill(0xff),
            Self::FirstUnits(n) => old[..bytes(n)].fill(0xff),
            Self::LastUnits(n) => old[size - bytes(n)..].fill(0xff),
            Self::Ends => {
                old[..unit].fill(0xff);
                old[size - unit..].fill(0xff);
            }
            Self::AllButFirst(n) => old[bytes(n)..].fill(0xff),
            Self::AllButLast(n) => old[..size - bytes(n)].fill(0xff),
            Self::RandomUnits(seed) => {
                let mut random = Random::new(seed);
                for chunk in old.chunks_mut(unit) {
                    if random.below(2) == 0 {
                        chunk.fill(0xff);
                    }
                }
            }
            Self::RandomBits(seed) => {
                let mut random = Random::new(seed);
                old.iter_mut().for_each(|cell| *cell |= random.byte());
            }
            Self::AlmostEverything(seed) => {
                let mut random = Random::new(seed);
                old.iter_mut().for_each(|cell| {
                    let still_zero = (0..5).fold(0xff, |bits, _| bits & random.byte());
                    *cell |= !still_zero;
                });
            }
            Self::Zeros => old.fill(0),
            Self::Noise(seed) => {
                let mut random = Random::new(seed);
                old.iter_mut().for_each(|cell| *cell = random.byte());
            }
        }
    }
}

/// What a power cut did to the operation that it interrupted. The two values of the cells are the
/// ones between which a marginal cell may change (F5); equal values make the damage solid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tear {
    /// The power went before the operation began: nothing is marginal.
    Clean,
    /// A torn program. Of an erase it means [`Tear::Clean`].
    Program {
        /// The bits gone, as left.
        left: Gone,
        /// The bits gone, as a later read may see it.
        other: Gone,
    },
    /// A torn erase. Of a program it means [`Tear::Clean`].
    Erase {
        /// The page as left.
        left: Erased,
        /// The page as a later read may see it.
        other: Erased,
    },
}

/// The text form that [`Tear::parse`] reads: `clean`, `w:LEFT>OTHER`, `e:LEFT>OTHER`.
impl fmt::Display for Tear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => write!(f, "clean"),
            Self::Program { left, other } => write!(f, "w:{left}>{other}"),
            Self::Erase { left, other } => write!(f, "e:{left}>{other}"),
        }
    }
}

impl Tear {
    /// Reads the text form back; `None` when it is no tear.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "clean" {
            return Some(Self::Clean);
        }
        let (kind, values) = text.split_once(':')?;
        let (left, other) = values.split_once('>')?;
        match kind {
            "w" => Some(Self::Program {
                left: Gone::parse(left)?,
                other: Gone::parse(other)?,
            }),
            "e" => Some(Self::Erase {
                left: Erased::parse(left)?,
                other: Erased::parse(other)?,
            }),
            _ => None,
        }
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "none"),
            Self::All => write!(f, "all"),
            Self::FirstBytes(n) => write!(f, "first{n}"),
            Self::AfterBytes(n) => write!(f, "after{n}"),
            Self::Random(seed) => write!(f, "random{seed}"),
            Self::Bit(k) => write!(f, "bit{k}"),
            Self::AllBut(k) => write!(f, "allbut{k}"),
        }
    }
}

impl Gone {
    fn parse(text: &str) -> Option<Self> {
        let (word, number) = split_number(text);
        Some(match (word, number) {
            ("none", None) => Self::None,
            ("all", None) => Self::All,
            ("first", Some(n)) => Self::FirstBytes(n.try_into().ok()?),
            ("after", Some(n)) => Self::AfterBytes(n.try_into().ok()?),
            ("random", Some(seed)) => Self::Random(seed),
            ("bit", Some(n)) => Self::Bit(n.try_into().ok()?),
            ("allbut", Some(n)) => Self::AllBut(n.try_into().ok()?),
            _ => return None,
        })
    }
}

impl fmt::Display for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "nothing"),
            Self::Everything => write!(f, "everything"),
            Self::FirstUnits(n) => write!(f, "first{n}"),
            Self::LastUnits(n) => write!(f, "last{n}"),
            Self::Ends => write!(f, "ends"),
            Self::AllButFirst(n) => write!(f, "allbutfirst{n}"),
            Self::AllButLast(n) => write!(f, "allbutlast{n}"),
            Self::RandomUnits(seed) => write!(f, "units{seed}"),
            Self::RandomBits(seed) => write!(f, "bits{seed}"),
            Self::AlmostEverything(seed) => write!(f, "almost{seed}"),
            Self::Zeros => write!(f, "zeros"),
            Self::Noise(seed) => write!(f, "noise{seed}"),
        }
    }
}

impl Erased {
    fn parse(text: &str) -> Option<Self> {
        let (word, number) = split_number(text);
        Some(match (word, number) {
            ("nothing", None) => Self::Nothing,
            ("everything", None) => Self::Everything,
            ("ends", None) => Self::Ends,
            ("zeros", None) => Self::Zeros,
            ("first", Some(n)) => Self::FirstUnits(n.try_into().ok()?),
            ("last", Some(n)) => Self::LastUnits(n.try_into().ok()?),
            ("allbutfirst", Some(n)) => Self::AllButFirst(n.try_into().ok()?),
            ("allbutlast", Some(n)) => Self::AllButLast(n.try_into().ok()?),
            ("units", Some(seed)) => Self::RandomUnits(seed),
            ("bits", Some(seed)) => Self::RandomBits(seed),
            ("almost", Some(seed)) => Self::AlmostEverything(seed),
            ("noise", Some(seed)) => Self::Noise(seed),
            _ => return None,
        })
    }
}

/// Splits `first12` into `first` and 12.
pub(super) fn split_number(text: &str) -> (&str, Option<u64>) {
    let end = text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    (&text[..end], text[end..].parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f3_any_subset_only_takes_bits_that_were_going() {
        let (before, data) = ([0b1111_0000u8, 0xff], [0b1010_1010u8, 0x0f]);
        let shapes = [Gone::None, Gone::All, Gone::FirstBytes(1), Gone::AfterBytes(1)];
        let more = (0..40).flat_map(|k| {
            [
                Gone::Random(u64::from(k)),
                Gone::Bit(k),
                Gone::AllBut(k),
                Gone::FirstBytes(k),
            ]
        });
        for gone in shapes.into_iter().chain(more) {
            let mut cells = before;
            gone.apply(&mut cells, &data);
            for i in 0..2 {
                assert_eq!(cells[i] | before[i], before[i], "{gone:?} set a bit");
                assert_eq!(cells[i] & (before[i] & data[i]), before[i] & data[i], "{gone:?}");
            }
        }
    }

    #[test]
    fn f3_single_bits_count_among_the_going_ones() {
        let mut cells = [0xf0, 0xff];
        Gone::Bit(4).apply(&mut cells, &[0x00, 0xfe]);
        assert_eq!(cells, [0xf0, 0xfe]);
        let mut cells = [0xf0, 0xff];
        Gone::AllBut(4).apply(&mut cells, &[0x00, 0xfe]);
        assert_eq!(cells, [0x00, 0xff]);
    }

    #[test]
    fn f4_marker_shapes_hit_the_ends_of_the_page() {
        let mut page = [0u8; 16];
        Erased::Ends.apply(&mut page, 4);
        assert_eq!(page[..4], [0xff; 4]);
        assert_eq!(page[4..12], [0; 8]);
        assert_eq!(page[12..], [0xff; 4]);
        let mut page = [0u8; 16];
        Erased::AllButFirst(1).apply(&mut page, 4);
        assert_eq!((page[3], page[4], page[15]), (0, 0xff, 0xff));
        let mut page = [0u8; 16];
        Erased::LastUnits(99).apply(&mut page, 4);
        assert_eq!(page, [0xff; 16]);
    }

    #[test]
    fn the_text_form_of_a_tear_reads_back() {
        let tears = [
            Tear::Clean,
            Tear::Program {
                left: Gone::None,
                other: Gone::Random(u64::MAX),
            },
            Tear::Program {
                left: Gone::AllBut(3),
                other: Gone::FirstBytes(12),
            },
            Tear::Program {
                left: Gone::Bit(0),
                other: Gone::AfterBytes(1),
            },
            Tear::Erase {
                left: Erased::Nothing,
                other: Erased::Everything,
            },
            Tear::Erase {
                left: Erased::AllButFirst(2),
                other: Erased::AllButLast(7),
            },
            Tear::Erase {
                left: Erased::Ends,
                other: Erased::Zeros,
            },
            Tear::Erase {
                left: Erased::RandomUnits(1),
                other: Erased::RandomBits(2),
            },
            Tear::Erase {
                left: Erased::Noise(3),
                other: Erased::AlmostEverything(4),
            },
            Tear::Erase {
                left: Erased::FirstUnits(3),
                other: Erased::LastUnits(4),
            },
        ];
        for tear in tears {
            assert_eq!(Tear::parse(&tear.to_string()), Some(tear));
        }
        for text in ["", "w:none", "x:none>all", "w:none>bit", "e:first>ends", "clean2"] {
            assert_eq!(Tear::parse(text), None, "{text}");
        }
    }
}
