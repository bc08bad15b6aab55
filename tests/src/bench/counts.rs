//! Exact counts: syncs and bytes a message.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::Bench;
use super::count::{Counting, Written};
use super::queue::{Kind, Manner, work};
use super::report::{Report, Table, Target};

/// So few that no checkpoint falls among them: what a commit alone costs.
const BETWEEN_CHECKPOINTS: usize = 20;
/// So many that checkpoints are paid for in proportion.
const WITH_CHECKPOINTS: usize = 4_000;

/// What a message costs on disk.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Syncs a message where no checkpoint falls among them.
    pub syncs: f64,
    /// Syncs a message, checkpoints included.
    pub syncs_with_checkpoints: f64,
    /// KiB a message written to the log.
    pub log_kib: f64,
    /// KiB a message that checkpoints wrote to the file.
    pub file_kib: f64,
}

/// Counts what messages worked off in `manner` cost. Connections that this process opens meanwhile are counted too.
///
/// # Errors
/// When the store fails.
pub fn cost(folder: &Path, kind: Kind, manner: Manner) -> Result<Cost> {
    let counting = Counting::install()?;
    let mut queue = kind.open(&folder.join(format!("counted-{kind}-{manner:?}.db")))?;
    // One more: fused, one is held at the end.
    queue.send(2 * BETWEEN_CHECKPOINTS + WITH_CHECKPOINTS + 1)?;
    queue.checkpoint()?;
    manner.begin(&mut *queue)?;
    // The first commit into an empty log also writes and syncs its header.
    work(&mut *queue, manner, BETWEEN_CHECKPOINTS)?;
    let begin = counting.written();
    work(&mut *queue, manner, BETWEEN_CHECKPOINTS)?;
    let few = counting.written() - begin;
    let begin = counting.written();
    work(&mut *queue, manner, WITH_CHECKPOINTS)?;
    let many = counting.written() - begin;
    manner.end(&mut *queue)?;
    drop(queue);
    let each = |total: u64, messages: usize| total as f64 / messages as f64;
    let syncs = |written: Written| written.log_syncs + written.file_syncs;
    Ok(Cost {
        syncs: each(syncs(few), BETWEEN_CHECKPOINTS),
        syncs_with_checkpoints: each(syncs(many), WITH_CHECKPOINTS),
        log_kib: each(many.log_bytes, WITH_CHECKPOINTS) / 1024.0,
        file_kib: each(many.file_bytes, WITH_CHECKPOINTS) / 1024.0,
    })
}

/// Counts for every contender and manner.
///
/// # Errors
/// When a store fails.
pub fn counts(bench: &mut Bench) -> Result<Report> {
    let mut report = Report::default();
    let mut table = Table::new("written to disk for each message, counted");
    let folder = bench.fastest();
    for kind in Kind::ALL {
        for (manner, label, exact) in [
            (Manner::OneByOne, "one by one", Some(2.0)),
            (Manner::Fused, "fused", Some(1.0)),
            (Manner::Batches(10), "batches of ten", None),
        ] {
            let cost = cost(&folder, kind, manner)?;
            table.row(json!({
                "who": kind.name(),
                "manner": label,
                "syncs": cost.syncs,
                "with checkpoints": cost.syncs_with_checkpoints,
                "log KiB": cost.log_kib,
                "file KiB": cost.file_kib,
            }));
            if let (Kind::Keyfence, Some(exact)) = (kind, exact) {
                report.aim_exact(format!("syncs a message, {label}"), Target::Exactly(exact), cost.syncs);
            }
        }
    }
    report.table(table);
    Ok(report)
}
