//! Files to measure on: how they are filled, copied and kept comparable from round to round.
//!
//! * **L1.** A round starts on a write-ahead log that is as long as it gets, so that no commit has to make it longer: that
//!   is how a ledger lives from its first checkpoint on.
//! * **L2.** Both files are written in pieces as small as SQLite's own writes. What one large write leaves in the page cache
//!   is one large folio, and every small write into it costs in proportion to its size, which no ledger ever pays.
//! * **L3.** A small load is copied afresh for every round; a large one is kept and topped up by what was worked off.
//!   So the counts in a load's name hold in every round (a large one's finished messages only grow).

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::bare::CHECKPOINT_PAGES;
use super::queue::{Kind, Manner, Queue, Stretch, work};

/// Messages worked off before a round: statements are prepared, pages are read.
const WARM_UP: usize = 40;
const PAGE_BYTES: usize = 4096;
/// A page and its header in the log.
const LOG_FRAME_BYTES: usize = PAGE_BYTES + 24;
/// From how many messages on a file is kept instead of being copied for every round.
const KEPT_FROM: usize = 50_000;
/// How many messages a transaction of the filling takes.
const FILL_BATCH: usize = 1_000;

/// What lies in a file before it is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    /// Finished messages.
    pub finished: usize,
    /// Messages ready to be claimed.
    pub ready: usize,
}

impl Load {
    fn is_kept(self) -> bool {
        self.finished + self.ready >= KEPT_FROM
    }

    /// For tables.
    #[must_use]
    pub fn name(self) -> String {
        let short = |count: usize| match count {
            0..1_000 => count.to_string(),
            1_000..1_000_000 => format!("{}k", count / 1_000),
            _ => format!("{}M", count / 1_000_000),
        };
        format!("{} finished, {} ready", short(self.finished), short(self.ready))
    }
}

/// A folder on a disk, or on one that is memory.
#[derive(Clone, Debug)]
pub struct Place {
    /// For tables.
    pub name: &'static str,
    /// Where files are made.
    pub folder: PathBuf,
}

/// Makes filled files, each once.
#[derive(Debug)]
pub struct Workshop {
    folder: PathBuf,
    made: HashMap<(Kind, Load), PathBuf>,
}

impl Workshop {
    /// Makes them in `folder`, which had better be a memory disk.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            made: HashMap::new(),
        }
    }

    /// The filled file of this kind; not to be written, but copied.
    ///
    /// # Errors
    /// When it cannot be filled.
    pub fn template(&mut self, kind: Kind, load: Load) -> Result<PathBuf> {
        if let Some(path) = self.made.get(&(kind, load)) {
            return Ok(path.clone());
        }
        let path = self.folder.join(format!("{kind}-{}-{}.db", load.finished, load.ready));
        fill(kind, &path, load)?;
        self.made.insert((kind, load), path.clone());
        Ok(path)
    }
}

/// Fills a file by the contender's own batch calls, so that every row, index entry and event is the genuine one.
///
/// # Errors
/// When the store fails.
pub fn fill(kind: Kind, path: &Path, load: Load) -> Result<()> {
    let mut queue = kind.open(path)?;
    for (count, finish) in [(load.finished, true), (load.ready, false)] {
        let mut left = count;
        while left > 0 {
            let batch = left.min(FILL_BATCH);
            queue.send(batch)?;
            if finish {
                ensure!(queue.claim(batch)? == batch, "the queue ran dry while it was filled");
                queue.complete()?;
            }
            left -= batch;
        }
    }
    queue.checkpoint()
}

/// Copies a database file whose log was checkpointed, gives it a log of full length, and makes both durable: what a copy
/// leaves in the page cache must not be written while something is timed.
///
/// # Errors
/// When it cannot be copied.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    remove(to)?;
    copy_pages(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    // Nothing in it passes for a log: SQLite begins a new one in the same blocks (L1).
    let mut name = to.as_os_str().to_owned();
    name.push("-wal");
    let log = File::create(&name)?;
    log.set_permissions(fs::metadata(to)?.permissions())?;
    for _ in 0..CHECKPOINT_PAGES + 100 {
        (&log).write_all(&[0; LOG_FRAME_BYTES])?;
    }
    log.sync_all()?;
    Ok(())
}

/// Copies a file with its permissions page by page (L2), and syncs it.
fn copy_pages(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::create(to)?;
    target.set_permissions(source.metadata()?.permissions())?;
    let mut page = [0; PAGE_BYTES];
    loop {
        match source.read(&mut page)? {
            0 => return target.sync_all(),
            bytes => target.write_all(&page[..bytes])?,
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    let folder = path.parent().context("a file lies in a folder")?;
    let name = path
        .file_name()
        .context("a file has a name")?
        .to_string_lossy()
        .into_owned();
    // The database, its log, its shared memory, and whatever else a contender keeps beside it.
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// One contender on one load at one place, working in one manner.
pub struct Lane {
    /// Who.
    pub kind: Kind,
    /// In which manner.
    pub manner: Manner,
    load: Load,
    template: PathBuf,
    path: PathBuf,
    queue: Option<Box<dyn Queue>>,
}

impl Lane {
    /// Prepares a lane; the template is made now, copies later.
    ///
    /// # Errors
    /// When the template cannot be filled.
    pub fn new(workshop: &mut Workshop, place: &Place, kind: Kind, load: Load, manner: Manner) -> Result<Self> {
        let file = format!("lane-{kind}-{}-{}-{manner:?}.db", load.finished, load.ready);
        Ok(Self {
            kind,
            manner,
            load,
            template: workshop.template(kind, load)?,
            path: place.folder.join(file),
            queue: None,
        })
    }

    /// Gets ready for a round of `messages`, by L1 to L3.
    ///
    /// # Errors
    /// When the store fails.
    pub fn begin(&mut self, messages: usize) -> Result<()> {
        let mut queue = match self.queue.take() {
            Some(queue) => queue,
            None => {
                copy(&self.template, &self.path)?;
                self.kind.open(&self.path)?
            }
        };
        queue.send(messages + WARM_UP)?;
        work(&mut *queue, Manner::OneByOne, WARM_UP)?;
        self.manner.begin(&mut *queue)?;
        self.queue = Some(queue);
        Ok(())
    }

    /// The queue, between [`Lane::begin`] and [`Lane::end`].
    ///
    /// # Errors
    /// Before and after.
    pub fn queue(&mut self) -> Result<&mut dyn Queue> {
        Ok(&mut **self.queue.as_mut().context("a round has not begun")?)
    }

    /// Works off `messages` of the round.
    ///
    /// # Errors
    /// When the store fails.
    pub fn turn(&mut self, messages: usize) -> Result<Stretch> {
        let manner = self.manner;
        work(self.queue()?, manner, messages)
    }

    /// Ends a round.
    ///
    /// # Errors
    /// When the store fails.
    pub fn end(&mut self) -> Result<()> {
        let manner = self.manner;
        manner.end(self.queue()?)?;
        if !self.load.is_kept() {
            self.queue = None;
            remove(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.queue = None;
        // Gigabytes; what cannot be removed lies in a temporary folder.
        drop(remove(&self.path));
    }
}

/// `count` places in an order that begins with another one each round, so that none is always measured first.
pub fn rotated(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |place| (place + round) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_starts_every_round_from_its_load() {
        // A thousand commits; on a memory disk where there is one.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        }
        .unwrap();
        let place = Place {
            name: "test",
            folder: folder.path().into(),
        };
        let mut workshop = Workshop::new(folder.path().into());
        let load = Load {
            finished: 20,
            ready: 10,
        };
        for manner in [Manner::OneByOne, Manner::Batches(5), Manner::Fused(5)] {
            let mut lane = Lane::new(&mut workshop, &place, Kind::Correct, load, manner).unwrap();
            for _ in 0..2 {
                lane.begin(10).unwrap();
                let mut done = lane.turn(5).unwrap();
                done.extend(&lane.turn(5).unwrap());
                assert_eq!(done.messages, 10);
                let held = if manner == Manner::Fused(5) { 5 } else { 0 };
                let queue = lane.queue().unwrap();
                assert_eq!(queue.claim(100).unwrap(), load.ready - held);
                queue.complete().unwrap();
                lane.end().unwrap();
            }
        }
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "only the template is left");
    }

    #[test]
    fn every_round_begins_with_another() {
        assert_eq!(rotated(3, 4).collect::<Vec<_>>(), [1, 2, 0]);
    }

    #[test]
    fn a_load_is_named_shortly() {
        assert_eq!(
            Load {
                finished: 1_000,
                ready: 1_000_000
            }
            .name(),
            "1k finished, 1M ready"
        );
    }
}
