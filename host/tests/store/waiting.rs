//! Waiting for the right to write: deadlines, fairness, and who is named.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::support::{Bench, name};
use keyfence::{Error, Ledger, LockHolder, Options};
use rustix::fs::{FlockOperation, flock};

fn busy(ledger: &Ledger, timeout: Duration) -> Option<LockHolder> {
    let asked = Instant::now();
    let error = ledger.call().timeout(timeout).mint(&name("purpose")).unwrap_err();
    let waited = asked.elapsed();
    assert!(waited >= timeout, "{waited:?}");
    assert!(waited < timeout + Duration::from_millis(500), "{waited:?}");
    let Error::Busy { holder, waited } = error else {
        panic!("{error}");
    };
    assert!(waited >= timeout);
    holder
}

fn side_file(bench: &Bench) -> File {
    let path = bench.folder.path().join("keyfence.db-lock");
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_call_is_busy_at_its_deadline_and_names_who_holds_the_lock() {
    let bench = Bench::new();
    let ledger = bench.open();
    let other = bench.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for timeout in [0, 30, 60, 120] {
        let holder = busy(&ledger, Duration::from_millis(timeout)).unwrap();
        assert_eq!(holder.pid, std::process::id());
    }
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(ledger.call().mint(&name("purpose")).unwrap().unwrap().get(), 1);
}

/// What a process leaves that was stopped when its turn had come: the queue's lock is taken, and nobody writes.
#[test]
fn who_has_the_queues_lock_and_does_not_write_keeps_nobody_out() {
    let bench = Bench::new();
    let ledger = bench.open();
    let side = side_file(&bench);
    flock(side.as_fd(), FlockOperation::LockExclusive).unwrap();
    let begun = Instant::now();
    for timeout in [0, 30, 60, 20_000] {
        let call = ledger.call().timeout(Duration::from_millis(timeout));
        assert!({ call }.mint(&name("purpose")).unwrap().is_ok(), "{timeout} ms");
    }
    // Whoever went past once is not patient again.
    for _ in 0..100 {
        assert!(ledger.call().mint(&name("purpose")).unwrap().is_ok());
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    flock(side.as_fd(), FlockOperation::Unlock).unwrap();
    assert!(ledger.call().mint(&name("purpose")).unwrap().is_ok());
}

#[test]
fn who_keeps_the_lock_for_longer_than_a_step_is_not_passed() {
    let bench = Bench::new();
    let ledger = bench.open();
    let side = side_file(&bench);
    flock(side.as_fd(), FlockOperation::LockExclusive).unwrap();
    // As a restore marks it.
    side.set_len(1).unwrap();
    for timeout in [0, 30, 120] {
        let holder = busy(&ledger, Duration::from_millis(timeout)).unwrap();
        assert_eq!(holder.pid, std::process::id());
    }
    // It died: its mark means nothing any more, and the next one clears it.
    flock(side.as_fd(), FlockOperation::Unlock).unwrap();
    assert!(ledger.call().mint(&name("purpose")).unwrap().is_ok());
    assert!(bench.open().call().mint(&name("purpose")).unwrap().is_ok());
    assert_eq!(side.metadata().unwrap().len(), 0);
}

#[test]
fn a_place_in_the_queue_outlives_the_call_that_took_it() {
    let bench = Bench::new();
    let (ledger, rival) = (bench.open(), bench.open());
    let side = side_file(&bench);
    let other = bench.raw();
    flock(side.as_fd(), FlockOperation::LockExclusive).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let _holder = busy(&ledger, Duration::from_millis(20));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ledger.call().mint(&name("purpose")).unwrap().unwrap());
        other.execute_batch("COMMIT").unwrap();
        flock(side.as_fd(), FlockOperation::Unlock).unwrap();
        assert_eq!(waiting.join().unwrap().get(), 1);
    });
    // Nobody wants the place any more: it must not keep others out.
    assert!(rival.call().mint(&name("purpose")).unwrap().is_ok());
    flock(side.as_fd(), FlockOperation::LockExclusive).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let _holder = busy(&ledger, Duration::from_millis(20));
    other.execute_batch("COMMIT").unwrap();
    flock(side.as_fd(), FlockOperation::Unlock).unwrap();
    assert!(rival.call().mint(&name("purpose")).unwrap().is_ok());
}

#[test]
fn readers_do_not_wait_for_a_writer() {
    let bench = Bench::new();
    let ledger = bench.open();
    let side = side_file(&bench);
    flock(side.as_fd(), FlockOperation::LockExclusive).unwrap();
    bench.raw().execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(ledger.status().unwrap().last_event, 0);
}

#[test]
fn threads_of_one_handle_take_turns() {
    let bench = Bench::new();
    let options = Options {
        timeout: Duration::from_secs(20),
        ..bench.options()
    };
    let ledger = Ledger::open(&bench.path(), options).unwrap();
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (ledger, order) = (&ledger, &order);
            scope.spawn(move || {
                for _ in 0..50 {
                    let token = ledger.call().mint(&name("purpose")).unwrap().unwrap();
                    order.lock().unwrap().push((token, worker));
                }
            });
        }
    });
    let mut order = order.into_inner().unwrap();
    order.sort_unstable();
    let tokens: Vec<u64> = order.iter().map(|(token, _)| token.get()).collect();
    assert_eq!(tokens, (1..=200).collect::<Vec<u64>>());
    // While all four were at work, each had its share.
    let shares: Vec<usize> = (0..4)
        .map(|worker| order[20..120].iter().filter(|(_, by)| *by == worker).count())
        .collect();
    assert!(shares.iter().all(|share| *share >= 10), "{shares:?}");
}
