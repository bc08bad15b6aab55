//! The chips, as data.

/// How often a unit may be programmed between two erases, and what happens beyond that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteRule {
    /// Any number of times; the result is the AND (RP2040's external flash).
    AnyTimes,
    /// At most this many times; the result is the AND (nRF51, nRF52: 2).
    AtMost(u8),
    /// Once, with ECC; all zeros may be programmed over anything (STM32L4, STM32G4).
    OnceOrZeros,
    /// Once, with ECC; a second program makes the unit unreadable (STM32H7).
    Once,
}

impl WriteRule {
    /// Whether the chip keeps an error-correcting code beside each unit, so that a torn unit can
    /// fault when it is read.
    #[must_use]
    pub const fn has_ecc(self) -> bool {
        match self {
            Self::AnyTimes | Self::AtMost(_) => false,
            Self::OnceOrZeros | Self::Once => true,
        }
    }
}

/// One kind of flash: sizes and rules. The number of pages is the region's, not the chip's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// What the command line and the reports call it.
    pub name: &'static str,
    /// The smallest write, and the alignment of every write.
    pub write_size_bytes: usize,
    /// The page: the smallest erase.
    pub erase_size_bytes: usize,
    /// What one program operation covers at most and what a power cut tears as a whole: the write
    /// unit, or a larger program page.
    pub program_size_bytes: usize,
    /// How often a unit may be programmed.
    pub rule: WriteRule,
    /// Erases that the maker promises for each page; predictions of life divide by it.
    pub erase_rating: u32,
}

impl Geometry {
    /// The geometry called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        GEOMETRIES.iter().find(|geometry| geometry.name == name)
    }

    /// Write units in one page.
    #[must_use]
    pub const fn units_per_page(&self) -> usize {
        self.erase_size_bytes / self.write_size_bytes
    }

    /// The page that holds `offset`.
    #[must_use]
    pub const fn page_of(&self, offset: u32) -> usize {
        offset as usize / self.erase_size_bytes
    }
}

/// Every geometry, real chips first, then one tiny one for each write rule. A tiny page holds 4 to
/// 8 records of the size a session row has, so that a page turns every few commits.
pub const GEOMETRIES: [Geometry; 9] = [
    Geometry {
        name: "nrf51",
        write_size_bytes: 4,
        erase_size_bytes: 1024,
        program_size_bytes: 4,
        rule: WriteRule::AtMost(2),
        erase_rating: 20_000,
    },
    Geometry {
        name: "nrf52",
        write_size_bytes: 4,
        erase_size_bytes: 4096,
        program_size_bytes: 4,
        rule: WriteRule::AtMost(2),
        erase_rating: 10_000,
    },
    Geometry {
        name: "rp2040",
        write_size_bytes: 1,
        erase_size_bytes: 4096,
        program_size_bytes: 256,
        rule: WriteRule::AnyTimes,
        erase_rating: 100_000,
    },
    Geometry {
        name: "stm32l4",
        write_size_bytes: 8,
        erase_size_bytes: 2048,
        program_size_bytes: 8,
        rule: WriteRule::OnceOrZeros,
        erase_rating: 10_000,
    },
    Geometry {
        name: "stm32h7",
        write_size_bytes: 32,
        erase_size_bytes: 128 * 1024,
        program_size_bytes: 32,
        rule: WriteRule::Once,
        erase_rating: 10_000,
    },
    Geometry {
        name: "tiny-1",
        write_size_bytes: 1,
        erase_size_bytes: 512,
        program_size_bytes: 128,
        rule: WriteRule::AnyTimes,
        erase_rating: 100_000,
    },
    Geometry {
        name: "tiny-4",
        write_size_bytes: 4,
        erase_size_bytes: 512,
        program_size_bytes: 4,
        rule: WriteRule::AtMost(2),
        erase_rating: 10_000,
    },
    Geometry {
        name: "tiny-8",
        write_size_bytes: 8,
        erase_size_bytes: 512,
        program_size_bytes: 8,
        rule: WriteRule::OnceOrZeros,
        erase_rating: 10_000,
    },
    Geometry {
        name: "tiny-32",
        write_size_bytes: 32,
        erase_size_bytes: 1024,
        program_size_bytes: 32,
        rule: WriteRule::Once,
        erase_rating: 10_000,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_divide_each_other() {
        for geometry in GEOMETRIES {
            assert!(geometry.erase_size_bytes.is_multiple_of(geometry.program_size_bytes));
            assert!(geometry.program_size_bytes.is_multiple_of(geometry.write_size_bytes));
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for geometry in GEOMETRIES {
            assert_eq!(Geometry::named(geometry.name), Some(&geometry));
        }
        assert_eq!(Geometry::named("eprom"), None);
    }
}
