//! Exact counts: syncs and bytes a message.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::Bench;
use super::count::{Counting, Written};
use super::queue::{Kind, Manner, Queue, work};
use super::report::{Report, Table, Target};

/// So few that no checkpoint falls among them: what a commit alone costs.
const BETWEEN_CHECKPOINTS: usize = 20;
/// So many that checkpoints are paid for in proportion.
const WITH_CHECKPOINTS: usize = 4_000;

/// What messages worked off in `manner` write. Connections that this process opens meanwhile are counted too.
struct Counted {
    counting: Counting,
    queue: Box<dyn Queue>,
    manner: Manner,
}

impl Counted {
    fn begin(folder: &Path, kind: Kind, manner: Manner, messages: usize) -> Result<Self> {
        let counting = Counting::install()?;
        let mut queue = kind.open(&folder.join(format!("counted-{kind}-{manner:?}.db")))?;
        // Some more: fused, they are held at the end.
        queue.send(messages + BETWEEN_CHECKPOINTS + 10)?;
        queue.checkpoint()?;
        manner.begin(&mut *queue)?;
        // The first commit into an empty log also writes and syncs its header.
        work(&mut *queue, manner, BETWEEN_CHECKPOINTS)?;
        Ok(Self {
            counting,
            queue,
            manner,
        })
    }

    fn work(&mut self, messages: usize) -> Result<Written> {
        let begin = self.counting.written();
        work(&mut *self.queue, self.manner, messages)?;
        Ok(self.counting.written() - begin)
    }
}

fn each(total: u64, messages: usize) -> f64 {
    total as f64 / messages as f64
}

/// Syncs a message, where no checkpoint falls among them.
///
/// # Errors
/// When the store fails.
pub fn syncs(folder: &Path, kind: Kind, manner: Manner) -> Result<f64> {
    let mut counted = Counted::begin(folder, kind, manner, BETWEEN_CHECKPOINTS)?;
    Ok(each(counted.work(BETWEEN_CHECKPOINTS)?.syncs(), BETWEEN_CHECKPOINTS))
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
            (Manner::Fused(1), "fused", Some(1.0)),
            (Manner::Batches(10), "batches of ten", None),
            (Manner::Fused(10), "batches of ten, fused", None),
        ] {
            let mut counted = Counted::begin(&folder, kind, manner, BETWEEN_CHECKPOINTS + WITH_CHECKPOINTS)?;
            let syncs = each(counted.work(BETWEEN_CHECKPOINTS)?.syncs(), BETWEEN_CHECKPOINTS);
            let many = counted.work(WITH_CHECKPOINTS)?;
            let kib = |bytes| each(bytes, WITH_CHECKPOINTS) / 1024.0;
            table.row(json!({
                "who": kind.name(),
                "manner": label,
                "syncs": syncs,
                "with checkpoints": each(many.syncs(), WITH_CHECKPOINTS),
                "log KiB": kib(many.log_bytes),
                "file KiB": kib(many.file_bytes),
            }));
            if let (Kind::Keyfence, Some(exact)) = (kind, exact) {
                report.aim_exact(format!("syncs a message, {label}"), Target::Exactly(exact), syncs);
            }
        }
    }
    report.table(table);
    Ok(report)
}
