//! The ledger's lock: who waits ends in `busy` at the deadline, who reads does not wait, and a holder that dies lets go.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use keyfence::{Error, Ledger, NewMessage, Options};
use keyfence_core::mailbox::{ClaimNext, Priority};
use keyfence_core::{Name, ProcessId, Token, Ttl};
use keyfence_tests::storm::contend::HOLDING;
use rustix::process::{Pid, Signal, kill_process};

const TIMEOUT: Duration = Duration::from_millis(300);
/// How much later than its deadline a call may come back on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

fn storm() -> Command {
    Command::new(env!("CARGO_BIN_EXE_storm"))
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn open(path: &Path) -> Ledger {
    Ledger::open(path, Options::default()).unwrap()
}

fn mint(ledger: &Ledger) -> Result<Token, Error> {
    let minted = ledger.call().timeout(TIMEOUT).mint(&name("test"));
    minted.map(|decision| decision.expect("a mint is never refused here"))
}

/// A ledger, and a process that holds its lock.
struct Held {
    _home: tempfile::TempDir,
    path: PathBuf,
    /// A handle that was opened before.
    ledger: Ledger,
    holder: Child,
}

impl Held {
    /// Inside a transaction.
    fn in_a_transaction() -> Self {
        Self::new("hold")
    }

    /// The lock that writers queue on, and no transaction.
    fn in_the_queue() -> Self {
        Self::new("queue")
    }

    fn new(how: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ledger.db");
        let ledger = open(&path);
        mint(&ledger).unwrap();
        let holder = storm().arg(how).arg(&path).stdout(Stdio::piped()).spawn();
        let mut held = Self {
            _home: home,
            path,
            ledger,
            holder: holder.unwrap(),
        };
        let mut line = String::new();
        BufReader::new(held.holder.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line.trim(), HOLDING);
        held
    }

    fn signal(&self, to_send: Signal) {
        signal(&self.holder, to_send);
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

impl Drop for Held {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn assert_busy(asked: Instant, outcome: Result<Token, Error>, holder: Option<u32>) {
    let took = asked.elapsed();
    match outcome {
        Err(Error::Busy { holder: found, waited }) => {
            assert!(waited >= TIMEOUT, "{waited:?}");
            if holder.is_some() {
                assert_eq!(found.map(|found| found.pid), holder);
            }
        }
        other => panic!("not busy: {other:?}"),
    }
    assert!(took >= TIMEOUT && took < TIMEOUT + SLACK, "{took:?}");
}

#[test]
fn a_writer_behind_a_stopped_holder_is_busy_at_its_deadline_and_readers_go_on() {
    let held = Held::in_a_transaction();
    held.signal(Signal::STOP);
    let ledger = &held.ledger;
    let holder = cfg!(target_os = "linux").then_some(held.holder.id());
    for _ in 0..2 {
        assert_busy(Instant::now(), mint(ledger), holder);
    }
    let begin = Instant::now();
    assert_eq!(open(&held.path).counter().unwrap(), Some(Token::FIRST));
    assert_eq!(ledger.status().unwrap().counter, Some(Token::FIRST));
    assert_eq!(ledger.events(0, 10).unwrap().len(), 1);
    let reader = Ledger::open(
        &held.path,
        Options {
            read_only: true,
            create: false,
            ..Options::default()
        },
    );
    assert_eq!(reader.unwrap().counter().unwrap(), Some(Token::FIRST));
    assert!(begin.elapsed() < SLACK, "{:?}", begin.elapsed());
}

#[test]
fn a_killed_holder_frees_everyone_and_leaves_nothing_behind() {
    let mut held = Held::in_a_transaction();
    held.signal(Signal::STOP);
    let path = held.path.clone();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let minted = open(&path).call().timeout(Duration::from_secs(20)).mint(&name("test"));
                    minted.unwrap().unwrap()
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        held.holder.kill().unwrap();
        held.holder.wait().unwrap();
        let tokens: BTreeSet<u64> = waiters.into_iter().map(|waiter| waiter.join().unwrap().get()).collect();
        assert_eq!(tokens, BTreeSet::from([2, 3, 4, 5]));
    });
    let raw = rusqlite::Connection::open(&path).unwrap();
    let there = raw.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'never'", [], |row| {
        row.get::<_, i64>(0)
    });
    assert_eq!(there.unwrap(), 0);
}

#[test]
fn a_process_that_is_stopped_when_its_turn_has_come_keeps_nobody_out() {
    let held = Held::in_the_queue();
    held.signal(Signal::STOP);
    let begin = Instant::now();
    for token in 2..60 {
        assert_eq!(mint(&held.ledger).unwrap().get(), token);
    }
    // A handle that was opened meanwhile has its own patience to lose.
    assert_eq!(mint(&open(&held.path)).unwrap().get(), 60);
    assert!(begin.elapsed() < SLACK, "{:?}", begin.elapsed());
}

#[test]
fn a_process_that_is_stopped_while_it_waits_keeps_nobody_out() {
    let mut held = Held::in_a_transaction();
    let mut waiter = storm()
        .arg("mint")
        .arg(&held.path)
        .arg("1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It is in the queue by then, or on its way there: both must do no harm.
    std::thread::sleep(Duration::from_millis(300));
    signal(&waiter, Signal::STOP);
    held.holder.kill().unwrap();
    held.holder.wait().unwrap();
    let begin = Instant::now();
    for token in 2..60 {
        assert_eq!(mint(&held.ledger).unwrap().get(), token);
    }
    assert!(begin.elapsed() < SLACK, "{:?}", begin.elapsed());
    signal(&waiter, Signal::CONT);
    let mut line = String::new();
    BufReader::new(waiter.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(waiter.wait().unwrap().success());
    assert_eq!(line.trim(), "60");
}

/// A process that mints so many tokens in this ledger and prints them.
fn minting(ledger: &Path, times: usize) -> Child {
    let mut command = storm();
    command.arg("mint").arg(ledger).arg(times.to_string());
    command.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn processes_that_write_without_a_pause_take_turns() {
    const PROCESSES: usize = 3;
    const TIMES: usize = 800;
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    drop(open(&path));
    let started: Vec<Child> = (0..PROCESSES).map(|_| minting(&path, TIMES)).collect();
    let tokens: Vec<Vec<usize>> = started
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let lines = String::from_utf8(output.stdout).unwrap();
            lines.lines().map(|line| line.parse().unwrap()).collect()
        })
        .collect();
    // All of them were at work in the middle of it.
    let middle = TIMES..2 * TIMES;
    let shares: Vec<usize> = tokens
        .iter()
        .map(|of_one| of_one.iter().filter(|token| middle.contains(token)).count())
        .collect();
    assert!(shares.iter().all(|share| *share > TIMES / 9), "{shares:?}");
}

#[test]
fn a_writer_that_knows_only_sqlites_lock_is_waited_for_too() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger.db");
    let ledger = open(&path);
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_busy(Instant::now(), mint(&ledger), None);
    raw.execute_batch("ROLLBACK").unwrap();
    assert_eq!(mint(&ledger).unwrap(), Token::FIRST);
}

#[test]
fn processes_that_open_a_new_ledger_at_once_all_succeed_and_share_one_counter() {
    const PROCESSES: usize = 8;
    const TIMES: usize = 25;
    for _ in 0..3 {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ledger.db");
        let started: Vec<Child> = (0..PROCESSES).map(|_| minting(&path, TIMES)).collect();
        let mut tokens = BTreeSet::new();
        for child in started {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let printed: Vec<u64> = String::from_utf8(output.stdout)
                .unwrap()
                .lines()
                .map(|line| line.parse().unwrap())
                .collect();
            assert_eq!(printed.len(), TIMES);
            assert!(printed.is_sorted_by(|a, b| a < b), "{printed:?}");
            tokens.extend(printed);
        }
        let all: BTreeSet<u64> = (1..).take(PROCESSES * TIMES).collect();
        assert_eq!(tokens, all);
    }
}

#[test]
fn threads_share_a_handle_and_each_message_goes_to_one_of_them() {
    const THREADS: u8 = 8;
    const MESSAGES: usize = 200;
    let home = tempfile::tempdir().unwrap();
    let ledger = open(&home.path().join("ledger.db"));
    let messages: Vec<NewMessage> = (0..MESSAGES)
        .map(|number| NewMessage {
            id: name(&format!("m-{number}")),
            sender: None,
            recipient: name("crew"),
            subject: String::new(),
            body: Vec::new(),
            priority: Priority::default(),
            not_before: None,
            retries_max: 3,
        })
        .collect();
    for sent in ledger.call().mailbox_send_batch(&messages).unwrap().unwrap() {
        let _done = sent.unwrap();
    }
    let work = |thread: u8| {
        let ask = ClaimNext {
            owner: name("crew"),
            process: Some(ProcessId::from_bytes([thread; 16])),
            lease_token: None,
            ttl: Ttl::MAILBOX_CLAIM,
        };
        let mut done = Vec::new();
        loop {
            let mut call = ledger.call().timeout(Duration::from_secs(60));
            let deliveries = call.mailbox_claim_next(&ask, 1).unwrap().unwrap();
            let Some(delivery) = deliveries.first() else {
                return done;
            };
            let grant = &delivery.granted.grant;
            let _done = call.mailbox_complete(grant, &[thread]).unwrap().unwrap();
            done.push((grant.message().to_string(), grant.token().get()));
        }
    };
    let done: Vec<Vec<(String, u64)>> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for of_one in &done {
        assert!(of_one.is_sorted_by(|a, b| a.1 < b.1));
    }
    let ids: BTreeSet<&String> = done.iter().flatten().map(|(id, _)| id).collect();
    let tokens: BTreeSet<u64> = done.iter().flatten().map(|(_, token)| *token).collect();
    assert_eq!((ids.len(), tokens.len()), (MESSAGES, MESSAGES));
    assert_eq!(done.iter().flatten().count(), MESSAGES);
}
