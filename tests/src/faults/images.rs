//! What may lie on a disk after a power cut.
//!
//! The model of the disk, weaker than every real one that keeps the word of `fsync`:
//!
//! * **P1.** A file's bytes are safe as of its last sync. Of what was written or cut since, anything may be missing: all of
//!   it, a suffix, or any part, in sectors of 512 bytes.
//! * **P2.** That a file was created or removed is safe as of the folder's last sync. Of what happened since, a prefix may
//!   be there: file systems journal the changes of a folder in order. Syncing a file does not make its name safe.
//! * **P3.** What was synced stays as it is: nothing next to a write is damaged by it.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;

use super::disk::Entry;

const SECTOR_BYTES: usize = 512;

/// The files of a folder after a power cut.
#[derive(Clone, Debug)]
pub struct Image {
    /// After how many entries of the log the power went.
    pub entry: usize,
    /// The last [`Entry::Mark`] before that; 0 when there was none.
    pub mark: u64,
    /// What was kept of the unsynced rest.
    pub kept: Kept,
    /// Names and contents.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// What a power cut left of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Nothing,
    /// Everything.
    Everything,
    /// A part that this seed chose.
    Some(u64),
}

impl Image {
    /// Writes the files into an empty folder, readable and writable by their owner only.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn write_to(&self, folder: &Path) -> std::io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt as _;
        for (name, bytes) in &self.files {
            let mut options = std::fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(folder.join(name))?;
            std::io::Write::write_all(&mut file, bytes)?;
        }
        Ok(())
    }
}

/// Hands `check` the images of a cut after every entry of the log: nothing kept, everything kept, and `seeded` random
/// parts. The same files after the same mark are handed out once. Returns how many there were.
///
/// # Errors
/// The first error of `check`.
pub fn for_each<E>(
    log: &[Entry],
    seed: u64,
    seeded: u64,
    mut check: impl FnMut(&Image) -> Result<(), E>,
) -> Result<u64, E> {
    let mut folder = Folder::default();
    let (mut mark, mut count) = (0, 0);
    let mut seen = HashSet::new();
    for (index, entry) in log.iter().enumerate() {
        match entry {
            Entry::Mark(number) => mark = *number,
            Entry::Create(_)
            | Entry::Write(..)
            | Entry::Truncate(..)
            | Entry::Sync(_)
            | Entry::Delete(_)
            | Entry::SyncFolder => folder.apply(entry),
        }
        let fixed = [Kept::Nothing, Kept::Everything].into_iter();
        let cut = seed.wrapping_add(index as u64 * seeded);
        for kept in fixed.chain((0..seeded).map(|n| Kept::Some(cut + n))) {
            let image = Image {
                entry: index + 1,
                mark,
                kept,
                files: folder.after_cut(kept),
            };
            let mut hasher = DefaultHasher::new();
            (mark, &image.files).hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                count += 1;
                check(&image)?;
            }
        }
    }
    Ok(count)
}

/// An unsynced change of one file.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

#[derive(Clone, Debug, Default)]
struct File {
    safe: Vec<u8>,
    pending: Vec<Change>,
}

/// An unsynced change of the folder: a name and the file it stands for from now on, or none.
type Renamed = (String, Option<usize>);

#[derive(Debug, Default)]
struct Folder {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    safe_names: BTreeMap<String, usize>,
    pending_names: Vec<Renamed>,
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let index = |offset: &u64| usize::try_from(*offset).expect("files of a test fit into memory");
    match change {
        Change::Write(offset, data) => {
            let offset = index(offset);
            let end = offset + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[offset..end].copy_from_slice(data);
        }
        Change::Truncate(size) => bytes.resize(index(size), 0),
    }
}

impl Folder {
    fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Create(name) => {
                self.files.push(File::default());
                let file = self.files.len() - 1;
                self.names.insert(name.clone(), file);
                self.pending_names.push((name.clone(), Some(file)));
            }
            Entry::Delete(name) => {
                self.names.remove(name);
                self.pending_names.push((name.clone(), None));
            }
            Entry::Write(name, offset, bytes) => {
                self.pending(name).push(Change::Write(*offset, bytes.clone()));
            }
            Entry::Truncate(name, size) => self.pending(name).push(Change::Truncate(*size)),
            Entry::Sync(name) => {
                let pending = std::mem::take(self.pending(name));
                let file = &mut self.files[self.names[name]];
                for change in &pending {
                    apply(&mut file.safe, change);
                }
            }
            Entry::SyncFolder => {
                self.safe_names = self.names.clone();
                self.pending_names.clear();
            }
            Entry::Mark(_) => {}
        }
    }

    fn pending(&mut self, name: &str) -> &mut Vec<Change> {
        let file = *self.names.get(name).expect("a log starts with an empty folder");
        &mut self.files[file].pending
    }

    fn after_cut(&self, kept: Kept) -> BTreeMap<String, Vec<u8>> {
        let mut random = match kept {
            Kept::Nothing | Kept::Everything => fastrand::Rng::with_seed(0),
            Kept::Some(seed) => fastrand::Rng::with_seed(seed),
        };
        let renamed = match kept {
            Kept::Nothing => 0,
            Kept::Everything => self.pending_names.len(),
            Kept::Some(_) => random.usize(0..=self.pending_names.len()),
        };
        let mut names = self.safe_names.clone();
        for (name, file) in &self.pending_names[..renamed] {
            match file {
                Some(file) => names.insert(name.clone(), *file),
                None => names.remove(name),
            };
        }
        let content = |(name, file): (String, usize)| (name, self.files[file].after_cut(kept, &mut random));
        names.into_iter().map(content).collect()
    }
}

impl File {
    fn after_cut(&self, kept: Kept, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = self.safe.clone();
        match kept {
            Kept::Nothing => {}
            Kept::Everything => self.pending.iter().for_each(|change| apply(&mut bytes, change)),
            Kept::Some(_) => match random.u8(0..3) {
                0 => {
                    let prefix = random.usize(0..=self.pending.len());
                    self.pending[..prefix]
                        .iter()
                        .for_each(|change| apply(&mut bytes, change));
                }
                1 => {
                    for change in &self.pending {
                        if random.bool() {
                            apply(&mut bytes, change);
                        }
                    }
                }
                _ => {
                    for change in &self.pending {
                        torn(change, random).iter().for_each(|part| apply(&mut bytes, part));
                    }
                }
            },
        }
        bytes
    }
}

/// The sectors of a write that reached the disk; a truncation is whole or missing.
fn torn(change: &Change, random: &mut fastrand::Rng) -> Vec<Change> {
    match change {
        Change::Truncate(_) => {
            if random.bool() {
                vec![change.clone()]
            } else {
                Vec::new()
            }
        }
        Change::Write(offset, data) => {
            let sectors = (*offset..).step_by(SECTOR_BYTES).zip(data.chunks(SECTOR_BYTES));
            let mut kept = Vec::new();
            for (offset, sector) in sectors {
                if random.u8(0..4) != 0 {
                    kept.push(Change::Write(offset, sector.to_vec()));
                }
            }
            kept
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Vec<Entry> {
        let file = || "f".to_owned();
        vec![
            Entry::Create(file()),
            Entry::Write(file(), 0, vec![1; 1024]),
            Entry::Sync(file()),
            Entry::SyncFolder,
            Entry::Mark(1),
            Entry::Write(file(), 512, vec![2; 1024]),
            Entry::Truncate(file(), 100),
        ]
    }

    fn all(log: &[Entry]) -> Vec<Image> {
        let mut images = Vec::new();
        let collected: Result<_, ()> = for_each(log, 7, 20, |image| {
            images.push(image.clone());
            Ok(())
        });
        assert_eq!(collected, Ok(images.len() as u64));
        images
    }

    #[test]
    fn synced_bytes_and_synced_names_are_never_lost() {
        for image in all(&log()).iter().filter(|image| image.mark == 1) {
            let bytes = &image.files["f"];
            assert!(bytes.len() >= 100, "{image:?}");
            assert_eq!(bytes[..100], [1; 100], "{:?}", image.kept);
        }
    }

    #[test]
    fn a_name_without_a_folder_sync_may_be_lost_although_the_file_was_synced() {
        let mut told = log()[..3].to_vec();
        told.push(Entry::Mark(1));
        let images = all(&told);
        let after = |image: &&Image| image.mark == 1;
        assert!(images.iter().filter(after).any(|image| image.files.is_empty()));
        assert!(images.iter().filter(after).any(|image| image.files.contains_key("f")));
    }

    #[test]
    fn unsynced_changes_are_kept_whole_in_part_or_not_at_all() {
        let contents: HashSet<Vec<u8>> = all(&log())
            .into_iter()
            .filter(|image| image.mark == 1)
            .map(|mut image| image.files.remove("f").unwrap())
            .collect();
        let lost = vec![1; 1024];
        let whole = [vec![1; 512], vec![2; 1024]].concat();
        let torn = [vec![1; 1024], vec![2; 512]].concat();
        let cut_only = vec![1; 100];
        for expected in [lost, whole, torn, cut_only] {
            assert!(contents.contains(&expected), "{} bytes", expected.len());
        }
    }
}
