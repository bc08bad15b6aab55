//! `powercut inspect`: the story of a region image.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use keyfence_tests::flash::Geometry;
use keyfence_tests::powercut::inspect::{Finding, FindingKind, InspectError, Story, Verdict, compare, guess, inspect};
use serde::Serialize;

use crate::sim::{parse_geometry, print};

/// Tell the story of a region image: every frame in order, what is live, what was torn and which cut explains it.
///
/// The image is the raw content of the region, from its first page to its last. Exit status: 0 a mount accepts it and nothing
/// contradicts it, 1 a mount refuses it or it contradicts itself or the earlier image, 2 misuse.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The image
    dump: PathBuf,
    /// The chip that it is from; guessed from the page headers when it is not given
    #[arg(long, value_parser = parse_geometry)]
    geometry: Option<&'static Geometry>,
    /// An image of the same ledger that was taken before: tells whether this one was rolled back or cloned since
    #[arg(long, value_name = "DUMP")]
    earlier: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    story: &'a Story,
    since_earlier: Option<Vec<Finding>>,
}

impl Inspect {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let story = self.read(&self.dump)?;
        let earlier = self.earlier.as_deref().map(|path| self.read(path)).transpose()?;
        let since = earlier.map(|earlier| compare(&story, &earlier));
        if self.json {
            let told = Told {
                story: &story,
                since_earlier: since.clone(),
            };
            print(&serde_json::to_string_pretty(&told)?)?;
        } else {
            let mut text = story.to_string();
            for finding in since.iter().flatten() {
                text.push_str(&format!("  since the earlier image: {}\n", finding.text));
            }
            if since.as_ref().is_some_and(Vec::is_empty) {
                text.push_str("  it goes on from the earlier image\n");
            }
            print(&text)?;
        }
        let mut findings = story.findings.iter().chain(since.iter().flatten());
        let is_bad =
            findings.any(|finding| contradicts(finding.kind)) || matches!(story.verdict, Verdict::Refused { .. });
        Ok(ExitCode::from(u8::from(is_bad)))
    }

    fn read(&self, path: &Path) -> Result<Story> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let geometry = match self.geometry {
            Some(geometry) => geometry,
            None => guess(&bytes).ok_or(InspectError::NoHeader).context("give --geometry")?,
        };
        inspect(geometry, &bytes).with_context(|| format!("{}", path.display()))
    }
}

/// Whether no cut explains it.
const fn contradicts(kind: FindingKind) -> bool {
    match kind {
        FindingKind::Damaged
        | FindingKind::Gap
        | FindingKind::RolledBack
        | FindingKind::Cloned
        | FindingKind::Foreign
        | FindingKind::NoLedger => true,
        FindingKind::TornBody
        | FindingKind::TornMark
        | FindingKind::Settled
        | FindingKind::TornErase
        | FindingKind::TornHeader
        | FindingKind::Repaired => false,
    }
}
