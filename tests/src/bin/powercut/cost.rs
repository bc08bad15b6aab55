//! `powercut cost`: what claims, mints and mounts cost each store.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use keyfence_tests::flash::Geometry;
use keyfence_tests::powercut::cost::{self, Daily};
use keyfence_tests::powercut::stores;

use crate::sim::{parse_geometry, print};

/// Print what claims, mints and mounts cost each store, and how long the flash will live.
#[derive(Debug, Args)]
pub(crate) struct Cost {
    /// The chip
    #[arg(long, default_value = "nrf52", value_parser = parse_geometry)]
    geometry: &'static Geometry,
    /// Claims and other commits in a day
    #[arg(long)]
    claims: Option<f64>,
    /// Renewals in a day
    #[arg(long)]
    renewals: Option<f64>,
    /// Power-ups in a day
    #[arg(long)]
    boots: Option<f64>,
    /// Recorded refusals in a day
    #[arg(long)]
    refusals: Option<f64>,
    /// Erases that a page of the part survives; the chip's rating when it is not given
    #[arg(long)]
    erase_rating: Option<f64>,
    /// Print one JSON object, keyed by store
    #[arg(long)]
    json: bool,
}

impl Cost {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let usual = Daily::busy_kiosk(self.geometry);
        let daily = Daily {
            claims: self.claims.unwrap_or(usual.claims),
            renewals: self.renewals.unwrap_or(usual.renewals),
            boots: self.boots.unwrap_or(usual.boots),
            refusals: self.refusals.unwrap_or(usual.refusals),
            erase_rating: self.erase_rating.unwrap_or(usual.erase_rating),
        };
        let mut costs = BTreeMap::new();
        for store in stores::STORES {
            match cost::measure(store, self.geometry, &daily) {
                Ok(cost) => {
                    costs.insert(store.name, cost);
                }
                Err(violation) => {
                    eprintln!("{}: {}: {}", store.name, violation.kind, violation.detail);
                }
            }
        }
        if self.json {
            print(&serde_json::to_string_pretty(&costs)?)?;
        } else {
            print(&cost::table(&costs, &daily))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
