//! The name of a case: which cuts led to it. A failure is replayed by its name.

use std::fmt;

use serde::Serialize;

use crate::flash::{Reading, Tear};

/// Kinds of cut, as reports count them, the mildest first; and the faults that are no cuts.
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
    /// No cut: the driver reported what had not happened, or kept back what had.
    DriverLie,
    /// No cut: a read failed once.
    ReadFault,
}

impl CutKind {
    /// Every kind, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Clean,
        Self::TornWrite,
        Self::MarginalWrite,
        Self::TornErase,
        Self::MarginalErase,
        Self::EccFault,
        Self::DriverLie,
        Self::ReadFault,
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
            Self::DriverLie => "driver_lie",
            Self::ReadFault => "read_fault",
        }
    }

    /// Whether it occurs on every geometry in every search that proves anything.
    #[must_use]
    pub const fn always_occurs(self) -> bool {
        match self {
            Self::Clean | Self::TornWrite | Self::MarginalWrite | Self::TornErase | Self::MarginalErase => true,
            Self::EccFault | Self::DriverLie | Self::ReadFault => false,
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
            write!(f, "{separator}{}~{}~{}", cut.operation, cut.tear, cut.reading)?;
        }
        Ok(())
    }
}

/// What happens to one operation or read of a store whose power stays on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The driver reports a failure of an operation that was done.
    ErrorThoughDone,
    /// The driver reports a failure of an operation of which nothing was done.
    ErrorNothingDone,
    /// The driver reports a failure of an operation that was done in part.
    ErrorTorn,
    /// The driver reports success of an operation of which nothing was done.
    SuccessNothingDone,
    /// The driver reports success of an operation that was done in part.
    SuccessTorn,
    /// A read call fails once.
    Read,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::ErrorThoughDone,
        Self::ErrorNothingDone,
        Self::ErrorTorn,
        Self::SuccessNothingDone,
        Self::SuccessTorn,
        Self::Read,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::ErrorThoughDone => "error-done",
            Self::ErrorNothingDone => "error-nothing",
            Self::ErrorTorn => "error-torn",
            Self::SuccessNothingDone => "success-nothing",
            Self::SuccessTorn => "success-torn",
            Self::Read => "read",
        }
    }
}

/// A fault: the store is mounted as it was before a verb of the life, and does the verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The verb, counted from the begin of the life.
    pub verb: usize,
    /// The operation that is lied about, or the read that fails, counted from the mount.
    pub at: u64,
    /// What happens.
    pub kind: FaultKind,
}

impl Fault {
    /// What the case counts as.
    #[must_use]
    pub const fn counts_as(&self) -> CutKind {
        match self.kind {
            FaultKind::ErrorThoughDone
            | FaultKind::ErrorNothingDone
            | FaultKind::ErrorTorn
            | FaultKind::SuccessNothingDone
            | FaultKind::SuccessTorn => CutKind::DriverLie,
            FaultKind::Read => CutKind::ReadFault,
        }
    }
}

/// A case by its name: cuts, or a fault as `fault~VERB~AT~KIND`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Case {
    /// One cut or several.
    Cuts(Path),
    /// A fault.
    Fault(Fault),
}

impl Case {
    /// Reads the text form back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let Some(fault) = text.strip_prefix("fault~") else {
            return Path::parse(text).map(Self::Cuts);
        };
        let mut parts = fault.splitn(3, '~');
        let (verb, at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let name = parts.next()?;
        let kind = FaultKind::ALL.into_iter().find(|kind| kind.name() == name)?;
        Some(Self::Fault(Fault { verb, at, kind }))
    }

    /// The number of cuts in it.
    #[must_use]
    pub const fn depth(&self) -> usize {
        match self {
            Self::Cuts(path) => path.0.len(),
            Self::Fault(_) => 0,
        }
    }

    /// Where in the life it happens, for sorting.
    pub(super) fn place(&self) -> usize {
        match self {
            Self::Cuts(path) => path.0.first().map_or(0, |cut| cut.operation),
            Self::Fault(fault) => fault.verb,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuts(path) => write!(f, "{path}"),
            Self::Fault(Fault { verb, at, kind }) => {
                write!(f, "fault~{verb}~{at}~{}", kind.name())
            }
        }
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

    #[test]
    fn a_fault_reads_back() {
        for kind in FaultKind::ALL {
            let case = Case::Fault(Fault { verb: 3, at: 12, kind });
            assert_eq!(Case::parse(&case.to_string()), Some(case));
        }
        assert_eq!(Case::parse("fault~1~2~nothing"), None);
        assert!(matches!(Case::parse("3~clean~left"), Some(Case::Cuts(_))));
    }
}
