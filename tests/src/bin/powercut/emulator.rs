//! `powercut emulator`: cuts the power of the real image.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use keyfence_tests::emulator::cuts::{self, Settings};
use keyfence_tests::emulator::{Build, image};

use crate::sim::print;

/// Cut the power of a whole kiosk: the image of the micro:bit, in the emulator
///
/// It is built if it is not there. It claims, is taken over, finishes; the power is cut before, in or after a flash operation
/// that the seed chooses, also while it mounts or works ahead; its RAM is garbage afterwards, and what it says over its link is held against
/// everything that it had told. Exit status: 0 nothing broke the rules; 1 something did; 2 misuse, or the emulator failed; 3 some
/// kind of cut never occurred.
#[derive(Debug, Args)]
pub(crate) struct Emulator {
    /// Power cuts
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    cuts: u32,
    /// Seed of everything that is chosen
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A control that has to fail: each cut also takes back what the last answered call had written
    #[arg(long)]
    forgets: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Emulator {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        ensure!(
            keyfence::emulator::is_installed(),
            "qemu-system-arm is not installed (Debian: apt-get install qemu-system-arm)"
        );
        let image = image(Build::Product)?;
        let settings = Settings {
            cuts: self.cuts,
            seed: self.seed,
            forgets: self.forgets,
        };
        let bar = ProgressBar::new(self.cuts.into());
        bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} cuts, {eta} left")?);
        bar.enable_steady_tick(Duration::from_millis(500));
        let begin = Instant::now();
        let report = cuts::run(&image, settings, |cuts| bar.set_position(cuts.into()));
        bar.finish_and_clear();
        let (report, seconds) = (report?, begin.elapsed().as_secs_f64());
        let tally = report.tally;
        let kinds = [
            ("between operations", tally.clean),
            ("in a program", tally.torn_programs),
            ("in an erase", tally.torn_erases),
            ("of all, in work ahead", tally.idle),
            ("of all, in a mount", tally.in_boots),
            ("of all, after an answer", tally.after_answers),
        ];
        if self.json {
            let kinds: serde_json::Map<_, _> = kinds
                .iter()
                .map(|(kind, cuts)| ((*kind).to_owned(), (*cuts).into()))
                .collect();
            let object = serde_json::json!({
                "cuts": tally.all(), "seed": self.seed, "kinds": kinds, "calls": report.calls, "settled": report.settled, "sent_again": report.sent_again,
                "erases_max": report.erases_max, "violations": report.violations, "seconds": seconds,
            });
            print(&object.to_string())?;
        } else {
            print(&format!(
                "micro:bit in the emulator: {} cuts, seed {}",
                tally.all(),
                self.seed
            ))?;
            for (kind, cuts) in kinds {
                print(&format!("{kind:<24}{cuts:>8}"))?;
            }
            print(&format!(
                "{} calls answered; {} cut off that had taken effect; {} frames sent again; a page erased {} times at most; \
                 {seconds:.1} s",
                report.calls, report.settled, report.sent_again, report.erases_max
            ))?;
            for violation in &report.violations {
                print(&format!("violation  {violation}"))?;
            }
            print(&match report.violations.len() {
                0 => "held: what was told stayed so".to_owned(),
                count => format!(
                    "{count} violations; again: powercut emulator --cuts {} --seed {}{}",
                    self.cuts,
                    self.seed,
                    if self.forgets { " --forgets" } else { "" }
                ),
            })?;
        }
        Ok(ExitCode::from(if !report.violations.is_empty() {
            1
        } else if kinds.iter().any(|(_, cuts)| *cuts == 0) {
            3
        } else {
            0
        }))
    }
}
