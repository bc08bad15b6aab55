//! How fast the disk is right now: 4 KiB written over themselves and synced, over and over.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::stats::Latencies;

/// As many blocks as a write-ahead log has between two checkpoints, so that the probe too writes over old blocks and
/// never makes the file longer.
const BLOCKS: u64 = 256;
const BLOCK_BYTES: usize = 4096;

/// A file to probe a folder's disk with.
#[derive(Debug)]
pub struct Probe {
    file: File,
    next: u64,
}

/// What one stretch of probing found.
#[derive(Clone, Copy, Debug)]
pub struct Fsyncs {
    /// How many write + fsync pairs a second.
    pub per_second: f64,
    /// The middle one, in microseconds.
    pub p50_us: f64,
}

impl Probe {
    /// Makes the file.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn new(folder: &Path) -> Result<Self> {
        let path = folder.join("probe");
        let mut file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        for _ in 0..BLOCKS {
            file.write_all(&[0; BLOCK_BYTES])?;
        }
        file.sync_all()?;
        Ok(Self { file, next: 0 })
    }

    /// Probes for `length`.
    ///
    /// # Errors
    /// When a write or an fsync fails.
    pub fn run(&mut self, length: Duration) -> Result<Fsyncs> {
        let mut latencies = Latencies::with_capacity(1 << 16);
        let block = [0x5a; BLOCK_BYTES];
        let begin = Instant::now();
        let mut calls = 0_u32;
        while begin.elapsed() < length {
            let start = Instant::now();
            self.file
                .seek(SeekFrom::Start(self.next % BLOCKS * BLOCK_BYTES as u64))?;
            self.file.write_all(&block)?;
            // What SQLite, as it is bundled, calls for FULL.
            self.file.sync_all()?;
            latencies.push(start.elapsed());
            self.next += 1;
            calls += 1;
        }
        Ok(Fsyncs {
            per_second: f64::from(calls) / begin.elapsed().as_secs_f64(),
            p50_us: latencies.quantile_us(0.5),
        })
    }
}
