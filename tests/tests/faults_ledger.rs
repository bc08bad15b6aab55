//! The ledger on a disk that fails, at every call of a scripted life: what was told stays true.

use std::sync::Arc;

use keyfence_tests::faults::disk::{Disk, Fault, Kind};
use keyfence_tests::faults::life::{LIFE, Life, RETRIES_MAX, Told, Verb};
use keyfence_tests::faults::{account, scratch, vfs};

/// What faults led to, so that a test can tell that they led to something.
#[derive(Debug, Default)]
struct Tally {
    lives: u64,
    hit: u64,
    not_opened: u64,
    not_done: u64,
    unknown: u64,
    unknown_happened: u64,
}

fn led_soundly() -> (Arc<Disk>, Life) {
    let home = scratch().unwrap();
    let disk = Arc::new(Disk::sound());
    let _watch = vfs::watch(home.path(), Arc::clone(&disk)).unwrap();
    let mut life = Life::new(&home.path().join("ledger.db"));
    life.lead(|_| {});
    life.close();
    (disk, life)
}

/// Leads a life on a disk with this fault, then opens the ledger on a sound one and compares.
fn lead(fault: Fault, tally: &mut Tally) {
    let home = scratch().unwrap();
    let disk = Arc::new(Disk::failing(fault));
    let watch = vfs::watch(home.path(), Arc::clone(&disk)).unwrap();
    let mut life = Life::new(&home.path().join("ledger.db"));
    life.lead(|_| {});
    tally.lives += 1;
    tally.hit += u64::from(disk.hits() > 0);
    tally.not_opened += u64::from(life.ledger().is_none());
    life.close();
    drop(watch);

    let told = life.told.clone();
    let failed = |what: &str| -> ! {
        let account: Vec<String> = told.iter().map(|(verb, told)| format!("{verb:?}: {told:?}")).collect();
        panic!("{fault:?}: {what}\n{}", account.join("\n"))
    };
    if let Err(error) = life.open() {
        failed(&format!("the sound disk's ledger does not open: {error}"));
    }
    if let Some(mode) = &life.journal_mode
        && mode != "wal"
    {
        failed(&format!("the ledger was opened in journal mode {mode}"));
    }
    let examine = |life: &Life| account::examine(life.ledger().unwrap(), RETRIES_MAX);
    let history = examine(&life).unwrap_or_else(|what| failed(&what));
    // The doctor takes as long as all the rest: every fourth life is shown to it.
    if tally.lives % 4 == 1 {
        account::diagnose(life.ledger().unwrap()).unwrap_or_else(|what| failed(&what));
    }
    let happened = account::compare(&history, &told).unwrap_or_else(|what| failed(&what));

    let unknown = told
        .iter()
        .enumerate()
        .filter(|(_, (_, told))| matches!(told, Told::Unknown(..)));
    let mut length = history.len();
    for ((number, (verb, told)), happened) in unknown.zip(&happened) {
        let Told::Unknown(possible, _) = told else { continue };
        tally.unknown += 1;
        tally.unknown_happened += u64::from(*happened);
        let again = life.ask(*verb, number);
        if let Told::Unknown(_, why) = &again {
            failed(&format!("act {number}, {verb:?}, is unknown on a sound disk: {why}"));
        }
        let grown = examine(&life).unwrap_or_else(|what| failed(&what)).len() - length;
        length += grown;
        let most = if *happened { 0 } else { possible.len() };
        if grown > most {
            failed(&format!("act {number}, {verb:?}, happened once more: {again:?}"));
        }
    }
    tally.not_done += told.iter().filter(|(_, told)| matches!(told, Told::NotDone(_))).count() as u64;
    let greatest = history.iter().filter_map(|record| record.event.token).max();
    match life.ask(Verb::Mint, 999) {
        Told::Committed(effects) if effects[0].token > greatest => {}
        other @ (Told::Committed(_) | Told::NotDone(_) | Told::Unknown(..)) => {
            failed(&format!("after {greatest:?} was minted {other:?}"))
        }
    }
}

fn lead_all(faults: impl Iterator<Item = Fault>) -> Tally {
    let mut tally = Tally::default();
    for fault in faults {
        lead(fault, &mut tally);
    }
    println!("{tally:?}");
    assert!(tally.lives > 0);
    tally
}

#[test]
fn the_life_is_led_whole_on_a_sound_disk() {
    let (_, life) = led_soundly();
    let skipped = [Verb::Lapse, Verb::Checkpoint, Verb::Reopen];
    assert_eq!(
        life.told.len(),
        LIFE.iter().filter(|verb| !skipped.contains(verb)).count()
    );
    for (verb, told) in &life.told {
        assert!(
            matches!(told, Told::Committed(effects) if !effects.is_empty()),
            "{verb:?}: {told:?}"
        );
    }
}

#[test]
fn a_write_that_fails_at_any_call_breaks_no_word() {
    let calls = led_soundly().0.calls(Kind::Write);
    let tally = lead_all((1..=calls).map(|nth| Fault::Once(Kind::Write, nth)));
    assert!(tally.not_done > 0);
}

#[test]
fn a_write_that_is_done_by_half_at_any_call_breaks_no_word() {
    let calls = led_soundly().0.calls(Kind::Write);
    let tally = lead_all((1..=calls).step_by(2).map(Fault::HalfWritten));
    assert!(tally.not_done > 0);
}

#[test]
fn a_sync_that_fails_at_any_call_breaks_no_word() {
    let calls = led_soundly().0.calls(Kind::Sync);
    let tally = lead_all((1..=calls).map(|nth| Fault::Once(Kind::Sync, nth)));
    assert!(tally.not_done + tally.unknown > 0);
}

#[test]
fn a_sync_that_fails_although_it_was_done_breaks_no_word() {
    let calls = led_soundly().0.calls(Kind::Sync);
    let tally = lead_all((1..=calls).map(Fault::SyncedButFailed));
    assert!(tally.not_done + tally.unknown > 0);
}

#[test]
fn a_disk_that_fails_from_any_write_or_sync_on_breaks_no_word() {
    let sound = led_soundly().0;
    // A disk that stays broken makes every act fail, which takes long: some of them will do.
    let syncs = (1..=sound.calls(Kind::Sync))
        .step_by(2)
        .map(|nth| Fault::From(Kind::Sync, nth));
    let writes = (1..=sound.calls(Kind::Write))
        .step_by(5)
        .map(|nth| Fault::From(Kind::Write, nth));
    let faults = syncs.chain(writes);
    let tally = lead_all(faults);
    assert!(tally.not_done > 0 && tally.unknown_happened > 0);
}

#[test]
fn a_disk_that_is_full_from_any_call_on_breaks_no_word() {
    let calls = led_soundly().0.growing_calls();
    let tally = lead_all((1..=calls).step_by(5).map(Fault::Full));
    assert!(tally.not_done > 0);
}

#[test]
fn any_other_call_that_fails_breaks_no_word() {
    let sound = led_soundly().0;
    let faults = [Kind::Open, Kind::Read, Kind::Truncate, Kind::Delete, Kind::Map]
        .into_iter()
        .flat_map(|kind| (1..=sound.calls(kind)).map(move |nth| Fault::Once(kind, nth)));
    let tally = lead_all(faults);
    assert!(tally.hit > 0);
}
