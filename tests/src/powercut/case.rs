//! The name of a case: which cuts led to it. A failure is replayed by its name.

use std::fmt;

use serde::Serialize;

use crate::flash::{Reading, Tear};

/// Kinds of cut, as reports count them, the mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CutKind {
    /// Between two operations.
    Clean,
    /// During a program; the bits left are solid, or fault on a chip with ECC.
    TornWrite,
    /// During a program; its bits may read otherwise later.
    MarginalWrite,
    /// During an erase; what is left reads the same until it is programmed.
    TornErase,
    /// During an erase; what is left may read otherwise later.
    MarginalErase,
    /// Any cut on a chip with ECC after which a read of a torn unit faulted.
    EccFault,
}

impl CutKind {
    /// Every kind, in the order of reports.
    pub const ALL: [Self; 6] = [
        Self::Clean,
        Self::TornWrite,
        Self::MarginalWrite,
        Self::TornErase,
        Self::MarginalErase,
        Self::EccFault,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::TornWrite => "torn_write",
            Self::MarginalWrite => "marginal_write",
            Self::TornErase => "torn_erase",
            Self::MarginalErase => "marginal_erase",
            Self::EccFault => "ecc_fault",
        }
    }

    /// The kind of `tear`.
    #[must_use]
    pub fn of(tear: &Tear) -> Self {
        match tear {
            Tear::Clean => Self::Clean,
            Tear::Program { left, other } if left == other => Self::TornWrite,
            Tear::Program { .. } => Self::MarginalWrite,
            Tear::Erase { left, other } if left == other => Self::TornErase,
            Tear::Erase { .. } => Self::MarginalErase,
        }
    }
}

/// One cut and the power-up after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The operation that was cut: counted from the begin of the life, or of the recovery.
    pub operation: usize,
    /// What the cut left.
    pub tear: Tear,
    /// How marginal cells read after the power-up.
    pub reading: Reading,
}

/// The cuts of a case, the first one in the life, each further one in the recovery from the one
/// before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(pub Vec<Cut>);

impl Path {
    /// This path and one more cut.
    #[must_use]
    pub fn then(&self, cut: Cut) -> Self {
        let mut path = self.clone();
        path.0.push(cut);
        path
    }

    /// What the case counts as: the harshest of its cuts, so that a case under `clean` has no torn
    /// operation in it at any depth.
    #[must_use]
    pub fn kind(&self) -> CutKind {
        let kinds = self.0.iter().map(|cut| CutKind::of(&cut.tear));
        kinds.max().unwrap_or(CutKind::Clean)
    }

    /// Reads the text form back: `OPERATION~TEAR~READING` for each cut, joined by `/`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let cut = |text: &str| {
            let mut parts = text.split('~');
            let cut = Cut {
                operation: parts.next()?.parse().ok()?,
                tear: Tear::parse(parts.next()?)?,
                reading: Reading::parse(parts.next()?)?,
            };
            parts.next().is_none().then_some(cut)
        };
        text.split('/').map(cut).collect::<Option<_>>().map(Self)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, cut) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "/" };
            write!(
                f,
                "{separator}{}~{}~{}",
                cut.operation, cut.tear, cut.reading
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::{Erased, Gone};

    #[test]
    fn a_path_reads_back_and_counts_as_its_harshest_cut() {
        let erase = Tear::Erase {
            left: Erased::Ends,
            other: Erased::Noise(9),
        };
        let write = Tear::Program {
            left: Gone::Random(1),
            other: Gone::None,
        };
        let path = Path::default()
            .then(Cut {
                operation: 12,
                tear: erase,
                reading: Reading::TurnsAfter(2),
            })
            .then(Cut {
                operation: 0,
                tear: write,
                reading: Reading::Wavering(3),
            });
        assert_eq!(Path::parse(&path.to_string()), Some(path.clone()));
        assert_eq!(path.kind(), CutKind::MarginalErase);
        assert_eq!(Path::parse("12~clean"), None);
        assert_eq!(Path::parse(""), None);
    }
}
