//! The ledger after a power cut, at every point of a scripted life: what was told stays true, from the moment the ledger
//! was first opened.

use std::path::Path;
use std::sync::Arc;

use keyfence_tests::faults::disk::{Disk, Entry};
use keyfence_tests::faults::images::{self, Image};
use keyfence_tests::faults::life::{Life, RETRIES_MAX, Told, Verb};
use keyfence_tests::faults::{account, scratch, vfs};

const SEED: u64 = 0x70_6f77_6572;
const SEEDED: u64 = 2;

/// Leads the life and returns what reached the disk and what was told. The mark `n + 1` stands after the `n`-th act was
/// told, the mark 1 after the ledger was opened.
fn recorded() -> (Vec<Entry>, Vec<(Verb, Told)>) {
    let home = scratch().unwrap();
    let disk = Arc::new(Disk::recording());
    let _watch = vfs::watch(home.path(), Arc::clone(&disk)).unwrap();
    let mut life = Life::new(&home.path().join("ledger.db"));
    life.lead(|told| {
        if told == 0 {
            // The ledger syncs its new folder itself, which SQLite's disk does not see.
            disk.folder_synced();
        }
        disk.mark(told as u64 + 1);
    });
    life.close();
    (disk.take_log(), life.told)
}

/// Opens the image and compares it with what was told before the cut; the act in flight may be there or not.
///
/// Every fourth image is shown to the doctor as well, who takes as long as all the rest.
fn check(image: &Image, told: &[(Verb, Told)]) -> Result<(), String> {
    let folder = scratch().map_err(|error| error.to_string())?;
    image.write_to(folder.path()).map_err(|error| error.to_string())?;
    let before = usize::try_from(image.mark).unwrap_or(usize::MAX).saturating_sub(1);
    let mut account = told[..before].to_vec();
    if let Some((verb, Told::Committed(effects))) = told.get(before) {
        account.push((*verb, Told::Unknown(effects.clone(), "in flight".into())));
    }
    look(
        &folder.path().join("ledger.db"),
        &account,
        image.entry.is_multiple_of(4),
    )
}

fn look(path: &Path, account: &[(Verb, Told)], doctor: bool) -> Result<(), String> {
    let mut life = Life::new(path);
    life.open().map_err(|error| format!("does not open: {error}"))?;
    let ledger = life.ledger().ok_or("closed")?;
    let history = account::examine(ledger, RETRIES_MAX)?;
    if doctor {
        account::diagnose(ledger)?;
    }
    account::compare(&history, account)?;
    let greatest = history.iter().filter_map(|record| record.event.token).max();
    match life.ask(Verb::Mint, 999) {
        Told::Committed(effects) if effects[0].token > greatest => Ok(()),
        other @ (Told::Committed(_) | Told::NotDone(_) | Told::Unknown(..)) => {
            Err(format!("after {greatest:?} was minted {other:?}"))
        }
    }
}

#[test]
fn a_power_cut_at_any_moment_loses_nothing_that_was_told() {
    let (log, told) = recorded();
    assert!(told.iter().all(|(_, told)| matches!(told, Told::Committed(_))));
    let count = images::for_each(&log, SEED, SEEDED, |image| {
        check(image, &told).map_err(|what| {
            let Image { entry, mark, kept, .. } = image;
            let next = &log[entry.saturating_sub(3)..*entry];
            let shown: Vec<String> = next
                .iter()
                .map(|entry| format!("{entry:?}").chars().take(80).collect())
                .collect();
            format!(
                "cut after entry {entry} of {}, mark {mark}, {kept:?} kept: {what}\n{shown:#?}",
                log.len()
            )
        })
    });
    match count {
        Ok(count) => {
            println!("{count} images");
            assert!(count > 500, "{count}");
        }
        Err(what) => panic!("{what}"),
    }
}

#[test]
fn the_same_life_without_its_syncs_of_the_log_is_found_losing() {
    let (mut log, told) = recorded();
    // What `synchronous=NORMAL` leaves out.
    log.retain(|entry| !matches!(entry, Entry::Sync(file) if file.ends_with("-wal")));
    let lost = images::for_each(&log, SEED, 1, |image| check(image, &told));
    assert!(lost.is_err(), "of {lost:?} images none lost anything");
}
