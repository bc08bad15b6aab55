//! Random calls on the store in memory and on SQLite, side by side: every answer and every row must be the same.
//!
//! `KEYFENCE_SEED=7` replays the sequence of seed 7; `KEYFENCE_SEEDS=500` runs seeds 1 to 500 instead of a few.

use core::fmt::Debug;

use fastrand::Rng;
use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::attempt::{self, AttemptGrant, Outcome};
use keyfence_core::event::Event;
use keyfence_core::gate::{Admit, Binding, ClaimKind, LedgerCounter};
use keyfence_core::host::{self, HostGrant, Proof};
use keyfence_core::lease::Granted;
use keyfence_core::mailbox::{Claim, ClaimNext, MessageGrant, Priority, Redrive};
use keyfence_core::session::{ClaimSession, SessionGrant};
use keyfence_core::store::Place;
use keyfence_core::{AttemptId, LedgerId, Name, ProcessId, TimeMs, Token, Ttl};
use keyfence_tests::kit::{Answer, Letter, OnMemory, OnSqlite, Subject};

/// How many calls a sequence has.
const CALLS: usize = 400;
/// More rows than a sequence has.
const ALL: usize = 50;
/// How many sequences run by default.
const SEEDS: u64 = 6;

/// Everything that was ever granted in a sequence, to be presented again at any time.
#[derive(Default)]
struct Grants {
    actors: Vec<ActorGrant>,
    attempts: Vec<AttemptGrant>,
    messages: Vec<MessageGrant>,
    hosts: Vec<HostGrant>,
    sessions: Vec<SessionGrant>,
}

/// What a call answered, in a form to be compared, and what it granted.
type Told = (String, Grants);
/// A call in words, and the call.
type Call = (String, Box<dyn Fn(&mut dyn Subject) -> Told>);

fn told<T: Debug>(answer: &Answer<T>) -> String {
    format!("{answer:?}")
}

/// The answer of a claim and what it granted.
fn claimed<G: Clone + Debug>(answer: Answer<Granted<G>>, keep: impl FnOnce(&mut Grants, G)) -> Told {
    let mut grants = Grants::default();
    let text = told(&answer);
    if let Ok(Ok(granted)) = answer {
        keep(&mut grants, granted.grant);
    }
    (text, grants)
}

fn only<T: Debug>(answer: Answer<T>) -> Told {
    (told(&answer), Grants::default())
}

/// One of several, if there is any.
fn one<'t, T>(rng: &mut Rng, of: &'t [T]) -> Option<&'t T> {
    (!of.is_empty()).then(|| &of[rng.usize(..of.len())])
}

/// Makes up the calls of a sequence.
struct Author {
    rng: Rng,
    grants: Grants,
    epoch: u64,
    now: u64,
}

impl Author {
    fn name(&mut self, of: &[&str]) -> Name {
        Name::new(of[self.rng.usize(..of.len())]).unwrap()
    }

    fn actor(&mut self) -> Name {
        self.name(&["course", "other"])
    }

    fn job(&mut self) -> Name {
        self.name(&["job-1", "job-2", "job-3"])
    }

    fn process(&mut self) -> ProcessId {
        ProcessId::from_bytes([self.rng.u8(1..=3); 16])
    }

    fn ttl(&mut self) -> Ttl {
        Ttl::from_ms(self.rng.u64(1..=20) * 60_000).unwrap()
    }

    fn moment(&mut self) -> TimeMs {
        TimeMs::new(self.now + self.rng.u64(..20) * 60_000).unwrap()
    }

    /// A token that was granted for something, or one that is made up.
    fn token(&mut self) -> Token {
        let tokens: Vec<_> = (self.grants.actors.iter().map(ActorGrant::token))
            .chain(self.grants.attempts.iter().map(AttemptGrant::token))
            .chain(self.grants.messages.iter().map(MessageGrant::token))
            .chain(self.grants.hosts.iter().map(HostGrant::token))
            .chain(self.grants.sessions.iter().map(SessionGrant::token))
            .collect();
        let made_up = Token::presented(self.rng.u64(1..=500)).unwrap();
        match one(&mut self.rng, &tokens) {
            Some(token) if self.rng.u8(..10) > 0 => *token,
            Some(_) | None => made_up,
        }
    }

    fn result(&mut self) -> String {
        ["", "result", "another"][self.rng.usize(..3)].to_owned()
    }

    /// Mostly the clock goes on; now and then it jumps.
    fn clock(&mut self) -> Option<TimeMs> {
        self.now = match self.rng.u8(..10) {
            0..=5 => return None,
            6..=8 => self.now + self.rng.u64(..8) * 60_000,
            _ => self.epoch + self.rng.u64(..60) * 60_000,
        };
        TimeMs::new(self.now)
    }

    /// A grant as it was issued, or in other hands, or with another token.
    fn actor_grant(&mut self) -> Option<ActorGrant> {
        let grant = one(&mut self.rng, &self.grants.actors)?.clone();
        Some(match self.rng.u8(..8) {
            0 => ActorGrant::presented(grant.name().clone(), self.process(), grant.token()),
            1 => ActorGrant::presented(grant.name().clone(), grant.process(), self.token()),
            _ => grant,
        })
    }

    fn attempt_grant(&mut self) -> Option<AttemptGrant> {
        let grant = one(&mut self.rng, &self.grants.attempts)?.clone();
        Some(match self.rng.u8(..8) {
            0 => AttemptGrant::presented(grant.assignment().clone(), grant.attempt(), self.token()),
            1 => AttemptGrant::presented(self.job(), grant.attempt(), grant.token()),
            _ => grant,
        })
    }

    fn message_grant(&mut self) -> Option<MessageGrant> {
        let grant = one(&mut self.rng, &self.grants.messages)?.clone();
        let parts = (
            grant.message().clone(),
            grant.owner().clone(),
            grant.process(),
            grant.token(),
        );
        let (message, owner, process, token) = parts;
        Some(match self.rng.u8(..8) {
            0 => MessageGrant::presented(message, owner, process, self.token()),
            1 => MessageGrant::presented(message, owner, Some(self.process()), token),
            2 => MessageGrant::presented(message, self.actor(), process, token),
            3 => MessageGrant::presented(self.job(), owner, process, token),
            _ => grant,
        })
    }

    fn host_grant(&mut self) -> Option<HostGrant> {
        let grant = one(&mut self.rng, &self.grants.hosts)?.clone();
        Some(match self.rng.u8(..8) {
            0 => HostGrant::presented(grant.name().clone(), self.process(), grant.token()),
            1 => HostGrant::presented(grant.name().clone(), grant.process(), self.token()),
            _ => grant,
        })
    }

    fn session_grant(&mut self) -> Option<SessionGrant> {
        let grant = one(&mut self.rng, &self.grants.sessions)?.clone();
        let mut generation = grant.generation().clone();
        match self.rng.u8(..10) {
            0 => generation.token = self.token(),
            1 => generation.host_token = self.token(),
            2 => generation.incarnation = generation.incarnation.successor().unwrap(),
            3 => generation.host = self.name(&["kiosk-a", "kiosk-b"]),
            _ => {}
        }
        Some(SessionGrant::presented(grant.session().clone(), generation))
    }

    fn process_or_none(&mut self) -> Option<ProcessId> {
        (self.rng.u8(..5) > 0).then(|| self.process())
    }

    fn lease_token(&mut self) -> Option<Token> {
        (self.rng.u8(..3) == 0).then(|| self.token())
    }

    /// The next call; none when there is no grant to make this one with.
    fn next(&mut self) -> Option<Call> {
        macro_rules! call {
            ($name:literal, $($ask:ident),* => |$subject:ident| $told:expr) => {{
                let words = [$name.to_owned() $(, format!(" {:?}", $ask))*].concat();
                (words, Box::new(move |$subject: &mut dyn Subject| $told) as Box<dyn Fn(&mut dyn Subject) -> Told>)
            }};
        }
        Some(match self.rng.u8(..36) {
            0..=2 => {
                let ask = actor::Acquire {
                    actor: self.actor(),
                    process: self.process(),
                    ttl: self.ttl(),
                };
                let keep = |grants: &mut Grants, grant| grants.actors.push(grant);
                match self.rng.bool() {
                    true => call!("acquire", ask => |on| claimed(on.actor_acquire(&ask), keep)),
                    false => call!("acquire or renew", ask => |on| claimed(on.actor_acquire_or_renew(&ask), keep)),
                }
            }
            3 => {
                let (grant, ttl) = (self.actor_grant()?, self.ttl());
                call!("renew", grant, ttl => |on| only(on.actor_renew(&grant, ttl)))
            }
            4 => {
                let grant = self.actor_grant()?;
                call!("release", grant => |on| only(on.actor_release(&grant)))
            }
            5 => {
                let ask = attempt::Create {
                    id: self.job(),
                    actor: self.actor(),
                    retry_of: (self.rng.u8(..4) == 0).then(|| self.job()),
                };
                call!("create", ask => |on| only(on.assignment_create(&ask)))
            }
            6..=8 => {
                let lease = self.actor_grant()?;
                let ask = attempt::Acquire {
                    assignment: self.job(),
                    actor: lease.name().clone(),
                    process: lease.process(),
                    lease_token: lease.token(),
                    attempt: AttemptId::from_bytes([self.rng.u8(1..=3); 16]),
                    ttl: self.ttl(),
                };
                call!("attempt", ask => |on| claimed(on.attempt_acquire(&ask), |grants, grant| grants.attempts.push(grant)))
            }
            9 => {
                let (grant, ttl) = (self.attempt_grant()?, self.ttl());
                call!("renew", grant, ttl => |on| only(on.attempt_renew(&grant, ttl)))
            }
            10 => {
                let grant = self.attempt_grant()?;
                call!("release", grant => |on| only(on.attempt_release(&grant)))
            }
            11 => {
                let (grant, result) = (self.attempt_grant()?, self.result());
                let outcome = [Outcome::Completed, Outcome::Blocked, Outcome::Failed][self.rng.usize(..3)];
                call!("finish", grant, outcome, result => |on| only(on.attempt_finish(&grant, outcome, &result)))
            }
            12 => {
                let job = self.job();
                call!("close lost", job => |on| only(on.attempt_close_lost(&job)))
            }
            13 => {
                call!("close all lost", => |on| {
                    // In which order is not promised.
                    let mut closed = on.attempt_close_all_lost(ALL);
                    if let Ok(Ok(names)) = &mut closed {
                        names.sort();
                    }
                    only(closed)
                })
            }
            14..=15 => {
                let letter = Letter {
                    id: self.job(),
                    sender: (self.rng.bool()).then(|| self.actor()),
                    recipient: self.actor(),
                    body: self.result(),
                    priority: Priority::new(self.rng.i64(-1..=1)).unwrap(),
                    not_before: (self.rng.u8(..4) == 0).then(|| self.moment()),
                    retries_max: self.rng.u16(..4),
                };
                call!("send", letter => |on| only(on.mailbox_send(&letter)))
            }
            16..=18 => {
                let ask = Claim {
                    message: self.job(),
                    owner: self.actor(),
                    process: self.process_or_none(),
                    lease_token: self.lease_token(),
                    ttl: self.ttl(),
                };
                call!("claim", ask => |on| claimed(on.mailbox_claim(&ask), |grants, grant| grants.messages.push(grant)))
            }
            19..=20 => {
                let ask = ClaimNext {
                    owner: self.actor(),
                    process: self.process_or_none(),
                    lease_token: self.lease_token(),
                    ttl: self.ttl(),
                };
                let limit = self.rng.usize(..4);
                call!("claim next", ask, limit => |on| {
                    let answer = on.mailbox_claim_next(&ask, limit);
                    let mut grants = Grants::default();
                    if let Ok(Ok(granted)) = &answer {
                        grants.messages.extend(granted.iter().map(|granted| granted.grant.clone()));
                    }
                    (told(&answer), grants)
                })
            }
            21 => {
                let recipient = (self.rng.bool()).then(|| self.actor());
                call!("sweep", recipient => |on| only(on.mailbox_sweep(recipient.as_ref(), ALL)))
            }
            22 => {
                let (grant, ttl) = (self.message_grant()?, self.ttl());
                call!("extend", grant, ttl => |on| only(on.mailbox_extend(&grant, ttl)))
            }
            23 => {
                let grant = self.message_grant()?;
                call!("give back", grant => |on| only(on.mailbox_give_back(&grant)))
            }
            24 => {
                let (grant, reason) = (self.message_grant()?, self.result());
                let due = (self.rng.bool()).then(|| self.moment());
                call!("retry", grant, due, reason => |on| only(on.mailbox_retry(&grant, due, &reason)))
            }
            25 => {
                let (grant, result) = (self.message_grant()?, self.result());
                match self.rng.bool() {
                    true => call!("complete", grant, result => |on| only(on.mailbox_complete(&grant, &result))),
                    false => call!("dead-letter", grant, result => |on| only(on.mailbox_dead_letter(&grant, &result))),
                }
            }
            26 => {
                let job = self.job();
                call!("dead-letter new", job => |on| only(on.mailbox_dead_letter_new(&job)))
            }
            27 => {
                let ask = Redrive {
                    dead: self.job(),
                    id: self.name(&["job-1", "again-1", "again-2"]),
                };
                call!("redrive", ask => |on| only(on.mailbox_redrive(&ask)))
            }
            28 => {
                let ask = host::Register {
                    host: self.name(&["kiosk-a", "kiosk-b"]),
                    process: self.process(),
                    proof: match self.rng.u8(..4) {
                        0 => Proof::Bridge(None),
                        1 => Proof::Bridge(Some(self.token())),
                        _ => Proof::Process,
                    },
                    ttl: self.ttl(),
                };
                call!("register", ask => |on| claimed(on.host_register(&ask), |grants, grant| grants.hosts.push(grant)))
            }
            29 => {
                let (grant, ttl) = (self.host_grant()?, self.ttl());
                match self.rng.bool() {
                    true => call!("renew", grant, ttl => |on| only(on.host_renew(&grant, ttl))),
                    false => call!("release", grant => |on| only(on.host_release(&grant))),
                }
            }
            30..=31 => {
                let ask = ClaimSession {
                    session: self.job(),
                    host: self.host_grant()?,
                    ttl: self.ttl(),
                };
                call!("hold", ask => |on| claimed(on.session_claim(&ask), |grants, grant| grants.sessions.push(grant)))
            }
            32 => {
                let (grant, result) = (self.session_grant()?, self.result());
                match self.rng.u8(..3) {
                    0 => call!("finish", grant, result => |on| only(on.session_finish(&grant, &result))),
                    _ => call!("release", grant => |on| only(on.session_release(&grant))),
                }
            }
            33 => {
                let ask = Admit {
                    gate: self.name(&["till", "freezer"]),
                    binding: Binding {
                        ledger: LedgerId::from_bytes([self.rng.u8(1..=2); 16]),
                        kind: ClaimKind::Session,
                        name: self.job(),
                    },
                    token: self.token(),
                    counter: match self.rng.u8(..3) {
                        0 => LedgerCounter::Unreadable,
                        _ => LedgerCounter::Read(Some(self.token())),
                    },
                };
                match self.rng.u8(..6) {
                    0 => call!("rebind", ask => |on| only(on.gate_rebind(&ask.gate, &ask.binding))),
                    _ => call!("admit", ask => |on| only(on.gate_admit(&ask))),
                }
            }
            34 => {
                let (actor, job) = (self.actor(), self.job());
                let host = self.name(&["kiosk-a", "kiosk-b"]);
                match self.rng.u8(..5) {
                    0 => call!("revoke actor", actor => |on| only(on.actor_revoke(&actor))),
                    1 => call!("revoke attempt", job => |on| only(on.attempt_revoke(&job))),
                    2 => call!("revoke message", job => |on| only(on.mailbox_revoke(&job))),
                    3 => call!("revoke session", job => |on| only(on.session_revoke(&job))),
                    _ => call!("revoke host", host => |on| only(on.host_revoke(&host))),
                }
            }
            _ => {
                let purpose = self.actor();
                call!("mint", purpose => |on| only(on.mint(&purpose)))
            }
        })
    }
}

/// Every row there can be.
fn rows(on: &mut dyn Subject) -> String {
    let mut rows = String::new();
    for (place, keys) in [
        (Place::Actor, &["course", "other"][..]),
        (Place::Assignment, &["job-1", "job-2", "job-3"]),
        (Place::Message, &["job-1", "job-2", "job-3", "again-1", "again-2"]),
        (Place::Host, &["kiosk-a", "kiosk-b"]),
        (Place::Session, &["job-1", "job-2", "job-3"]),
        (Place::Gate, &["till", "freezer"]),
    ] {
        for key in keys {
            let row = on.row(place, &Name::new(key).unwrap());
            rows += &format!("{} {key}: {row:?}\n", place.name());
        }
    }
    rows + &format!("counter: {:?}\n", on.counter())
}

/// In which order a sweep ends the claims that it finds is not promised: sorted by name within each sweep.
fn tidied(mut events: Vec<Event>) -> Vec<Event> {
    for sweep in events.chunk_by_mut(|one, other| one.holder.is_none() && other.holder.is_none()) {
        sweep.sort_by(|one, other| one.subject.cmp(&other.subject));
    }
    events
}

/// Runs the sequence of this seed; how many grants of each kind were made.
fn sequence(seed: u64) -> [usize; 5] {
    let replay = format!("replay: KEYFENCE_SEED={seed} cargo test -p keyfence-tests --test differential");
    let (mut memory, mut sqlite) = (OnMemory::new(), OnSqlite::new());
    let epoch = Subject::bounds(&memory).epoch;
    assert_eq!(epoch, Subject::bounds(&sqlite).epoch);
    let mut author = Author {
        rng: Rng::with_seed(seed),
        grants: Grants::default(),
        epoch: epoch.as_ms(),
        now: epoch.as_ms(),
    };
    Subject::set_now(&mut memory, epoch);
    let mut history = String::new();
    for number in 0..CALLS {
        if let Some(now) = author.clock() {
            history += &format!("{number}: the clock goes to {now}\n");
            Subject::set_now(&mut memory, now);
            Subject::set_now(&mut sqlite, now);
        }
        let Some((words, call)) = author.next() else {
            continue;
        };
        let (expected, grants) = call(&mut memory);
        let (answer, _) = call(&mut sqlite);
        history += &format!("{number}: {words}\n    {expected}\n");
        assert_eq!(
            expected, answer,
            "the answers differ (memory, SQLite)\n{history}{replay}"
        );
        assert_eq!(
            rows(&mut memory),
            rows(&mut sqlite),
            "the rows differ (memory, SQLite)\n{history}{replay}"
        );
        author.grants.actors.extend(grants.actors);
        author.grants.attempts.extend(grants.attempts);
        author.grants.messages.extend(grants.messages);
        author.grants.hosts.extend(grants.hosts);
        author.grants.sessions.extend(grants.sessions);
    }
    // Memory keeps the last ones only.
    let (expected, events) = (Subject::history(&mut memory), Subject::history(&mut sqlite));
    let (expected, events) = (tidied(expected), tidied(events));
    assert_eq!(
        expected[..],
        events[events.len() - expected.len()..],
        "the histories differ\n{replay}"
    );
    let (expected, calls) = (Subject::refusals(&mut memory), Subject::refusals(&mut sqlite));
    let both = expected.len().min(calls.len());
    assert_eq!(
        expected[expected.len() - both..],
        calls[calls.len() - both..],
        "the recorded refusals differ\n{replay}"
    );
    let granted = &author.grants;
    [
        granted.actors.len(),
        granted.attempts.len(),
        granted.messages.len(),
        granted.hosts.len(),
        granted.sessions.len(),
    ]
}

#[test]
fn memory_and_sqlite_answer_alike() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    if let Some(seed) = number("KEYFENCE_SEED") {
        println!("granted: {:?}", sequence(seed));
        return;
    }
    let mut granted = [0; 5];
    for seed in 1..=number("KEYFENCE_SEEDS").unwrap_or(SEEDS) {
        for (sum, count) in granted.iter_mut().zip(sequence(seed)) {
            *sum += count;
        }
    }
    println!("granted: {granted:?}");
    assert!(
        granted.iter().all(|sum| *sum >= 10),
        "sequences that are granted little show little: {granted:?}"
    );
}
