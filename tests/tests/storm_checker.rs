//! The checker of event histories is itself checked: a genuine history passes, and for each rule there is a forged one
//! that breaks it and is found by that rule's name.

use std::collections::BTreeSet;
use std::convert::Infallible;

use keyfence_core::event::{Event, EventKind, Replaced};
use keyfence_core::mailbox::{self, Claim, MessageGrant, Priority, Redrive, Send};
use keyfence_core::memory::{Memory, MemoryStep};
use keyfence_core::store::{Failure, Store as _, Transaction as _};
use keyfence_core::{
    AttemptId, Decision, Digest, Expiry, Incarnation, Name, ProcessId, TimeMs, Token, Ttl, actor, attempt, counter,
    host, session,
};
use keyfence_tests::storm::history::{Act, Checker, Rule};

const RETRIES_MAX: u16 = 1;

type Step = MemoryStep<16, 256>;
type History = Vec<(u64, Event)>;

/// Several processes of everything, on a store in memory.
struct Story {
    ledger: Memory<16, 256>,
    attempts: u8,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn process(number: u8) -> ProcessId {
    ProcessId::from_bytes([number; 16])
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_ms(ms).unwrap()
}

fn time(ms: u64) -> TimeMs {
    TimeMs::new(ms).unwrap()
}

fn token(number: u64) -> Token {
    Token::presented(number).unwrap()
}

impl Story {
    fn at(&mut self, ms: u64) {
        self.ledger.set_now(time(ms));
    }

    /// One step that has to be granted.
    fn step<T>(&mut self, decide: impl FnMut(&mut Step, TimeMs) -> Result<Decision<T>, Failure<Infallible>>) -> T {
        self.ledger.step(decide).unwrap().unwrap()
    }

    fn send(&mut self, id: &str) {
        let ask = Send {
            id: name(id),
            sender: None,
            recipient: name("lucy"),
            content: Digest::NONE,
            priority: Priority::default(),
            not_before: None,
            retries_max: RETRIES_MAX,
        };
        let _sent = self.step(|step, now| mailbox::send(step, &ask, now));
    }

    fn claim(&mut self, id: &str, by: u8, lease_token: Option<Token>) -> MessageGrant {
        let ask = Claim {
            message: name(id),
            owner: name("lucy"),
            process: Some(process(by)),
            lease_token,
            ttl: ttl(100),
        };
        self.step(|step, now| mailbox::claim(step, &ask, now)).grant
    }

    fn acquire(&mut self, who: &str, by: u8) -> actor::ActorGrant {
        let ask = actor::Acquire {
            actor: name(who),
            process: process(by),
            ttl: ttl(100),
        };
        self.step(|step, now| actor::acquire(step, &ask, now)).grant
    }

    fn attempt(&mut self, assignment: &str, lease: &actor::ActorGrant) -> attempt::AttemptGrant {
        self.attempts += 1;
        let ask = attempt::Acquire {
            assignment: name(assignment),
            actor: lease.name().clone(),
            process: lease.process(),
            lease_token: lease.token(),
            attempt: AttemptId::from_bytes([self.attempts; 16]),
            ttl: ttl(100),
        };
        self.step(|step, now| attempt::acquire(step, &ask, now)).grant
    }

    fn assign(&mut self, assignment: &str) {
        let ask = attempt::Create {
            id: name(assignment),
            actor: name("lucy"),
            retry_of: None,
        };
        let _created = self.step(|step, now| attempt::create(step, &ask, now));
    }

    fn register(&mut self, which: &str, by: u8) -> host::HostGrant {
        let ask = host::Register {
            host: name(which),
            process: process(by),
            proof: host::Proof::Process,
            ttl: ttl(1_000),
        };
        self.step(|step, now| host::register(step, &ask, now)).grant
    }

    fn session(&mut self, host: &host::HostGrant) -> session::SessionGrant {
        let ask = session::ClaimSession {
            session: name("chat"),
            host: host.clone(),
            ttl: ttl(100),
        };
        self.step(|step, now| session::claim(step, &ask, now)).grant
    }

    /// done: given back, claimed, lapsed, taken over, completed. dead: two failures, redriven; the new one dead-lettered.
    /// lost: swept to NEW, then to DEAD. revoked: revoked, given back after a lapse, completed.
    fn messages(&mut self) {
        self.at(1_000);
        for id in ["done", "dead", "lost", "operator", "leased", "revoked"] {
            self.send(id);
        }
        let grant = self.claim("done", 1, None);
        let _settled = self.step(|step, now| mailbox::give_back(step, &grant, now));
        self.claim("done", 1, None);
        self.at(1_100);
        let grant = self.claim("done", 2, None);
        let _done = self.step(|step, now| mailbox::complete(step, &grant, Digest::NONE, now));

        for _ in 0..2 {
            let grant = self.claim("dead", 1, None);
            let _settled = self.step(|step, now| mailbox::retry(step, &grant, None, Digest::NONE, now));
        }
        let ask = Redrive {
            dead: name("dead"),
            id: name("again"),
        };
        let _redriven = self.step(|step, now| mailbox::redrive(step, &ask, now));
        let grant = self.claim("again", 1, None);
        let _dead = self.step(|step, now| mailbox::dead_letter(step, &grant, Digest::NONE, now));

        for at in [1_200, 1_300] {
            self.claim("lost", 1, None);
            self.at(at);
            assert_eq!(self.step(|step, now| mailbox::sweep(step, None, 8, now)), 1);
        }
        let operator = name("operator");
        let _dead = self.step(|step, now| mailbox::dead_letter_new(step, &operator, now));

        let revoked = name("revoked");
        self.claim("revoked", 1, None);
        let _revoked = self.step(|step, now| mailbox::revoke(step, &revoked, now));
        let grant = self.claim("revoked", 1, None);
        self.at(1_400);
        let _settled = self.step(|step, now| mailbox::give_back(step, &grant, now));
        let grant = self.claim("revoked", 1, None);
        let _done = self.step(|step, now| mailbox::complete(step, &grant, Digest::NONE, now));
    }

    /// revoked-late: revoked after a lapse, which costs one retry, and once more, which finds none left.
    fn revocations(&mut self) {
        self.send("revoked-late");
        let revoked_late = name("revoked-late");
        for at in [1_700, 1_800] {
            self.claim("revoked-late", 1, None);
            self.at(at);
            let _revoked = self.step(|step, now| mailbox::revoke(step, &revoked_late, now));
        }
    }

    /// completed: released, finished. orphaned: taken over while live, its lease being gone; revoked; finished.
    /// worker-lost: closed.
    fn assignments(&mut self) {
        let lease = self.acquire("lucy", 1);
        let grant = self.claim("leased", 1, Some(lease.token()));
        let _done = self.step(|step, now| mailbox::complete(step, &grant, Digest::NONE, now));
        for assignment in ["completed", "orphaned", "worker-lost"] {
            self.assign(assignment);
        }
        let grant = self.attempt("completed", &lease);
        let _released = self.step(|step, now| attempt::release(step, &grant, now));
        let grant = self.attempt("completed", &lease);
        let (completed, blocked) = (attempt::Outcome::Completed, attempt::Outcome::Blocked);
        let _done = self.step(|step, now| attempt::finish(step, &grant, completed, Digest::NONE, now));
        self.attempt("orphaned", &lease);
        let _released = self.step(|step, now| actor::release(step, &lease, now));
        let lease = self.acquire("lucy", 2);
        self.attempt("orphaned", &lease);
        self.attempt("worker-lost", &lease);
        self.at(1_500);
        let lease = self.acquire("lucy", 3);
        let (orphaned, lost, lucy) = (name("orphaned"), name("worker-lost"), name("lucy"));
        let _closed = self.step(|step, now| attempt::close_lost(step, &lost, now));
        let _revoked = self.step(|step, now| attempt::revoke(step, &orphaned, now));
        let grant = self.attempt("orphaned", &lease);
        let _done = self.step(|step, now| attempt::finish(step, &grant, blocked, Digest::NONE, now));
        let _revoked = self.step(|step, now| actor::revoke(step, &lucy, now));
        let purpose = name("purpose");
        self.step(|step, now| counter::mint_for(step, &purpose, now));
    }

    /// A session moves A(1) B(2) A(3) A(4) B(5); it is released, revoked and finished on the way.
    fn sessions(&mut self) {
        let a = self.register("kiosk-a", 1);
        let b = self.register("kiosk-b", 2);
        self.session(&a);
        self.at(1_600);
        let grant = self.session(&b);
        let _released = self.step(|step, now| session::release(step, &grant, now));
        self.session(&a);
        let chat = name("chat");
        let _revoked = self.step(|step, now| session::revoke(step, &chat, now));
        self.session(&a);
        // Its host is gone: the next claim does not wait for the session's expiry.
        let _released = self.step(|step, now| host::release(step, &a, now));
        let grant = self.session(&b);
        let _done = self.step(|step, now| session::finish(step, &grant, Digest::NONE, now));
        let b = name("kiosk-b");
        let _revoked = self.step(|step, now| host::revoke(step, &b, now));
    }
}

/// A genuine history in which every kind of claim is made, taken over, given back, revoked and finished; and the counter.
fn genuine() -> (History, Option<Token>) {
    let mut story = Story {
        ledger: Memory::new(),
        attempts: 0,
    };
    story.messages();
    story.assignments();
    story.sessions();
    story.revocations();
    let counter = story.step(|step, _| step.last_minted().map(Ok));
    ((1..).zip(story.ledger.events().cloned()).collect(), counter)
}

fn check(history: &History, counter: Option<Token>) -> Checker {
    let mut checker = Checker::new(|_| RETRIES_MAX);
    for (seq, event) in history {
        checker.feed(*seq, event);
    }
    checker.check_counter(counter);
    checker.check_finished();
    checker
}

fn rules(checker: &Checker) -> BTreeSet<Rule> {
    checker.violations().iter().map(|violation| violation.rule).collect()
}

/// Where the `n`-th event of this kind and subject lies, counted from 0.
fn find(history: &History, kind: EventKind, subject: &str, n: usize) -> usize {
    history
        .iter()
        .enumerate()
        .filter(|(_, (_, event))| event.kind == kind && event.subject.as_str() == subject)
        .map(|(index, _)| index)
        .nth(n)
        .unwrap_or_else(|| panic!("no event {n} `{kind}` of `{subject}`"))
}

/// The same event, to be changed.
fn at<'h>(history: &'h mut History, kind: EventKind, subject: &str, n: usize) -> &'h mut Event {
    let index = find(history, kind, subject, n);
    &mut history[index].1
}

fn renumber(history: &mut History) {
    for (seq, (number, _)) in (1..).zip(history) {
        *number = seq;
    }
}

fn insert(history: &mut History, index: usize, event: Event) {
    history.insert(index, (0, event));
    renumber(history);
}

fn remove(history: &mut History, index: usize) -> Event {
    let (_, event) = history.remove(index);
    renumber(history);
    event
}

/// A number above every token of the genuine history, for claims that are added to it.
const ADDED: u64 = 90;

/// The rule that finds a forged history, what is wrong with it, and how it is made from the genuine one.
type Forgery = (Rule, &'static str, fn(&mut History));

const FORGERIES: &[Forgery] = &[
    (Rule::Malformed, "a claim without a token", |history| {
        at(history, EventKind::HostRegistered, "kiosk-b", 0).token = None;
    }),
    (Rule::Malformed, "a claim without an expiry", |history| {
        at(history, EventKind::MessageClaimed, "done", 0).expires_at = None;
    }),
    (Rule::Sequence, "an event is missing", |history| {
        let index = find(history, EventKind::TokenMinted, "purpose", 0);
        history.remove(index);
    }),
    (Rule::TokenTwice, "a takeover under the token it replaced", |history| {
        let takeover = at(history, EventKind::MessageClaimed, "done", 2);
        takeover.token = takeover.replaced.as_ref().map(|replaced| replaced.token);
    }),
    (
        Rule::TokenOrder,
        "claims under tokens smaller than one before",
        |history| {
            at(history, EventKind::TokenMinted, "purpose", 0).token = Some(token(ADDED));
        },
    ),
    (Rule::Replaced, "two claims of one NEW message", |history| {
        let index = find(history, EventKind::MessageClaimed, "leased", 0);
        let mut second = history[index].1.clone();
        second.token = Some(token(ADDED));
        insert(history, index + 1, second);
    }),
    (Rule::Replaced, "a takeover of a claim that nobody holds", |history| {
        let other = at(history, EventKind::MessageClaimed, "done", 2).replaced.clone();
        at(history, EventKind::ActorAcquired, "lucy", 0).replaced = other;
    }),
    (Rule::TooEarly, "a message taken over a millisecond early", |history| {
        at(history, EventKind::MessageClaimed, "done", 2).at = time(1_099);
    }),
    (Rule::TooEarly, "a message swept while it is live", |history| {
        at(history, EventKind::MessageLapsed, "lost", 0).at = time(1_150);
    }),
    (Rule::TooEarly, "an actor taken over while it is live", |history| {
        at(history, EventKind::ActorAcquired, "lucy", 2).at = time(1_450);
    }),
    (
        Rule::TooEarly,
        "an attempt taken over under the same lease",
        |history| {
            let index = find(history, EventKind::AttemptAcquired, "completed", 0);
            let mut second = history[index].1.clone();
            second.replaced = Some(Replaced {
                holder: second.holder.clone().unwrap(),
                token: second.token.unwrap(),
                expiry: Expiry::At(second.expires_at.unwrap()),
            });
            second.attempt = Some(AttemptId::from_bytes([99; 16]));
            second.token = Some(token(ADDED));
            insert(history, index + 1, second);
        },
    ),
    (Rule::TooEarly, "a session taken over from a live host", |history| {
        at(history, EventKind::SessionClaimed, "chat", 1).at = time(1_550);
    }),
    (
        Rule::Superseded,
        "a completion under a token that was taken over",
        |history| {
            let old = at(history, EventKind::MessageClaimed, "done", 1).token;
            at(history, EventKind::MessageCompleted, "done", 0).token = old;
        },
    ),
    (Rule::Superseded, "a completion by another process", |history| {
        let holder = at(history, EventKind::MessageCompleted, "done", 0).holder.as_mut();
        holder.unwrap().process = Some(process(1));
    }),
    (Rule::Superseded, "a completion after a give-back", |history| {
        let index = find(history, EventKind::MessageGivenBack, "done", 0);
        let mut completed = history[index].1.clone();
        completed.kind = EventKind::MessageCompleted;
        insert(history, index + 1, completed);
    }),
    (
        Rule::Superseded,
        "a session finished by an earlier incarnation",
        |history| {
            at(history, EventKind::SessionFinished, "chat", 0).incarnation = Some(Incarnation::FIRST);
        },
    ),
    (
        Rule::Superseded,
        "an attempt finished under another attempt's id",
        |history| {
            at(history, EventKind::AttemptCompleted, "completed", 0).attempt = Some(AttemptId::from_bytes([99; 16]));
        },
    ),
    (
        Rule::Superseded,
        "a release by a process that does not hold it",
        |history| {
            let holder = at(history, EventKind::ActorReleased, "lucy", 0).holder.as_mut();
            holder.unwrap().process = Some(process(9));
        },
    ),
    (Rule::Parent, "attempts under a lease that was released", |history| {
        let released = find(history, EventKind::ActorReleased, "lucy", 0);
        let release = remove(history, released);
        let index = find(history, EventKind::AttemptAcquired, "completed", 0);
        insert(history, index, release);
    }),
    (Rule::Parent, "a session under another host token", |history| {
        at(history, EventKind::SessionClaimed, "chat", 0).parent_token = Some(token(1));
    }),
    (Rule::Parent, "an attempt on another actor's assignment", |history| {
        let holder = at(history, EventKind::AssignmentCreated, "completed", 0)
            .holder
            .as_mut();
        holder.unwrap().name = name("mary");
    }),
    (Rule::AfterTheEnd, "a message completed twice", |history| {
        let index = find(history, EventKind::MessageCompleted, "done", 0);
        let again = history[index].1.clone();
        insert(history, index + 1, again);
    }),
    (Rule::AfterTheEnd, "a finished assignment that fails", |history| {
        let index = find(history, EventKind::AttemptCompleted, "completed", 0);
        let mut late = history[index].1.clone();
        late.kind = EventKind::AttemptFailed;
        insert(history, index + 1, late);
    }),
    (Rule::Budget, "a takeover that costs nothing", |history| {
        at(history, EventKind::MessageClaimed, "done", 2).retries = Some(0);
    }),
    (Rule::Budget, "a retry that costs two", |history| {
        at(history, EventKind::MessageRetried, "dead", 0).retries = Some(2);
    }),
    (Rule::Budget, "a give-back in time that costs one", |history| {
        at(history, EventKind::MessageGivenBack, "done", 0).retries = Some(1);
    }),
    (Rule::Budget, "a first lapse that ends the message", |history| {
        let lapsed = at(history, EventKind::MessageLapsed, "lost", 0);
        lapsed.kind = EventKind::MessageDead;
        lapsed.retries = Some(0);
    }),
    (
        Rule::Incarnation,
        "a session claimed under its old incarnation",
        |history| {
            at(history, EventKind::SessionClaimed, "chat", 1).incarnation = Some(Incarnation::FIRST);
        },
    ),
    (Rule::Incarnation, "a session that does not start at 1", |history| {
        at(history, EventKind::SessionClaimed, "chat", 0).incarnation = Incarnation::presented(2);
    }),
    (Rule::LateFinish, "a session finished at its expiry", |history| {
        let finished = at(history, EventKind::SessionFinished, "chat", 0);
        finished.at = finished.expires_at.unwrap();
    }),
    (Rule::AttemptTwice, "two attempts of one id", |history| {
        let first = at(history, EventKind::AttemptAcquired, "completed", 0).attempt;
        at(history, EventKind::AttemptAcquired, "completed", 1).attempt = first;
    }),
    (Rule::Creation, "a message sent twice", |history| {
        let index = find(history, EventKind::MessageSent, "done", 0);
        let again = history[index].1.clone();
        insert(history, index + 1, again);
    }),
    (Rule::Creation, "a message claimed that was never sent", |history| {
        let index = find(history, EventKind::MessageSent, "leased", 0);
        remove(history, index);
    }),
    (Rule::Creation, "a message redriven that is not DEAD", |history| {
        at(history, EventKind::MessageRedriven, "again", 0).refers_to = Some(name("done"));
    }),
    (Rule::Shortened, "a completion that shortens its own claim", |history| {
        at(history, EventKind::MessageCompleted, "done", 0).expires_at = TimeMs::new(1_150);
    }),
    (
        Rule::Shortened,
        "a takeover that shortens what it replaces",
        |history| {
            let takeover = at(history, EventKind::MessageClaimed, "done", 2);
            takeover.at = time(1_050);
            takeover.replaced.as_mut().unwrap().expiry = Expiry::At(time(1_050));
        },
    ),
    (Rule::Unfinished, "a message that nobody ended", |history| {
        let index = find(history, EventKind::MessageCompleted, "leased", 0);
        remove(history, index);
    }),
];

#[test]
fn a_genuine_history_of_every_kind_breaks_no_rule() {
    let (history, counter) = genuine();
    let checker = check(&history, counter);
    assert_eq!(checker.violations(), []);
    assert!(checker.is_settled());
    let seen: BTreeSet<&str> = history.iter().map(|(_, event)| event.kind.name()).collect();
    let never: Vec<&str> = EventKind::ALL
        .iter()
        .map(|kind| kind.name())
        .filter(|kind| !seen.contains(kind))
        .collect();
    assert_eq!(
        never,
        [
            "attempt.failed",
            "gate.raised",
            "gate.rebound",
            "ledger.restored",
            "ledger.pruned"
        ]
    );
    let counts = checker.counts();
    assert_eq!((counts.sent, counts.done, counts.dead), (8, 3, 5));
    assert_eq!((counts.assignments, counts.sessions), (3, 1));
    assert_eq!(counts.events, u64::try_from(history.len()).unwrap());
}

#[test]
fn each_rule_finds_the_history_that_was_forged_against_it() {
    let (history, counter) = genuine();
    for (rule, what, forge) in FORGERIES {
        let mut forged = history.clone();
        forge(&mut forged);
        assert_ne!(forged, history, "{what}: the forgery changed nothing");
        let found = check(&forged, counter.max(Some(token(ADDED))));
        let expected = rule.name();
        assert!(
            rules(&found).contains(rule),
            "{what}: not `{expected}`: {:#?}",
            found.violations()
        );
    }
}

#[test]
fn every_rule_has_a_history_that_breaks_it() {
    let mut broken: BTreeSet<Rule> = FORGERIES.iter().map(|(rule, ..)| *rule).collect();
    // These three compare the history with something else and have tests of their own.
    broken.extend([Rule::CounterBelow, Rule::Acknowledged, Rule::RequestTwice]);
    assert_eq!(broken, Rule::ALL.iter().copied().collect());
}

#[test]
fn a_counter_below_a_token_is_found() {
    let (history, counter) = genuine();
    let below = Token::presented(counter.unwrap().get() - 1);
    assert!(below.is_some());
    for counter in [below, None] {
        assert_eq!(rules(&check(&history, counter)), BTreeSet::from([Rule::CounterBelow]));
    }
}

#[test]
fn an_acknowledged_act_that_is_not_in_the_history_is_found() {
    let (history, counter) = genuine();
    let mut checker = check(&history, counter);
    let index = find(&history, EventKind::MessageCompleted, "done", 0);
    let told = Act {
        kind: EventKind::MessageCompleted,
        subject: name("done"),
        token: history[index].1.token.unwrap(),
    };
    checker.check_acknowledged(&told);
    assert_eq!(checker.violations(), []);
    checker.check_acknowledged(&Act {
        token: token(1),
        ..told
    });
    assert_eq!(rules(&checker), BTreeSet::from([Rule::Acknowledged]));
}

#[test]
fn a_request_that_took_effect_twice_is_found() {
    let (history, counter) = genuine();
    let mut checker = check(&history, counter);
    // One process never claimed anything, the other many times.
    checker.check_request("r1", process(9));
    assert_eq!(checker.violations(), []);
    checker.check_request("r1", process(1));
    assert_eq!(rules(&checker), BTreeSet::from([Rule::RequestTwice]));
}
