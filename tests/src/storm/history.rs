//! The checker: reads a ledger's event history, and nothing else of it, and says which rule of the fence it breaks.
//!
//! It knows no store and shares no code with the machines: it replays the history with its own idea of who holds what.
//! Rows can be made right afterwards; a history that is appended in the same step as each transition cannot.
//!
//! The order of the events is the witness. Each event carries the `now` it was decided with, so that a claim which did
//! not look at the expiry is noticed even when clocks differ by minutes.
//!
//! Not decidable from a history, and therefore not checked: whether a parent lease that was renewed (renewals leave no
//! event) had lapsed when somebody claimed under it, or when a session under it was taken over.

mod machines;

use std::collections::{HashMap, HashSet};
use std::fmt;

use keyfence_core::event::{Event, EventKind};
use keyfence_core::refusal::Holder;
use keyfence_core::{AttemptId, Incarnation, Name, ProcessId, TimeMs, Token};

/// What a history can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// H1. An event lacks what its kind carries.
    Malformed,
    /// H2. The sequence numbers go up by one.
    Sequence,
    /// H3. No token is handed out twice.
    TokenTwice,
    /// H4. Tokens grow strictly in the order of the events.
    TokenOrder,
    /// H5. The counter is not below any token.
    CounterBelow,
    /// H6. A claim over another one names exactly that one as replaced, and a claim over none names none.
    Replaced,
    /// H7. A takeover, a sweep or a closing happens at or after the expiry of what it replaces, by its own `now`; or the
    /// replaced claim's parent is gone.
    TooEarly,
    /// H8. A holder's act carries holder, token, attempt and incarnation of the latest claim of its subject, which is
    /// still open.
    Superseded,
    /// H9. A claim under a parent, and every act under it, finds the parent's latest claim to carry that very token.
    Parent,
    /// H10. Nothing happens to a finished subject.
    AfterTheEnd,
    /// H11. A message's retries go up by one with every failure and every lapse, by none otherwise, and never above its
    /// budget; a lapse ends it only when the budget is used up.
    Budget,
    /// H12. Incarnations of a session grow strictly; the first is 1.
    Incarnation,
    /// H13. A session is finished before the expiry of its claim, by the event's own `now`.
    LateFinish,
    /// H14. No attempt id is used twice.
    AttemptTwice,
    /// H15. A subject is created once, and before anything else happens to it.
    Creation,
    /// H16. An expiry is never shortened within one claim.
    Shortened,
    /// H17. When the work is over, every message is DONE or DEAD.
    Unfinished,
    /// H18. What a caller was told is in the history, as it was told.
    Acknowledged,
    /// H19. One request id takes effect once.
    RequestTwice,
}

impl Rule {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Malformed,
        Self::Sequence,
        Self::TokenTwice,
        Self::TokenOrder,
        Self::CounterBelow,
        Self::Replaced,
        Self::TooEarly,
        Self::Superseded,
        Self::Parent,
        Self::AfterTheEnd,
        Self::Budget,
        Self::Incarnation,
        Self::LateFinish,
        Self::AttemptTwice,
        Self::Creation,
        Self::Shortened,
        Self::Unfinished,
        Self::Acknowledged,
        Self::RequestTwice,
    ];

    /// A stable name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Sequence => "sequence",
            Self::TokenTwice => "token_twice",
            Self::TokenOrder => "token_order",
            Self::CounterBelow => "counter_below",
            Self::Replaced => "replaced",
            Self::TooEarly => "too_early",
            Self::Superseded => "superseded",
            Self::Parent => "parent",
            Self::AfterTheEnd => "after_the_end",
            Self::Budget => "budget",
            Self::Incarnation => "incarnation",
            Self::LateFinish => "late_finish",
            Self::AttemptTwice => "attempt_twice",
            Self::Creation => "creation",
            Self::Shortened => "shortened",
            Self::Unfinished => "unfinished",
            Self::Acknowledged => "acknowledged",
            Self::RequestTwice => "request_twice",
        }
    }
}

/// One place where a history breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// At which event; 0 for what only shows at the end.
    pub seq: u64,
    /// What was found.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}: {}", self.seq, self.rule.name(), self.what)
    }
}

/// How many violations are kept with their text; the rest is only counted.
const KEPT_MAX: usize = 20;

/// The machine that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Machine {
    Actor,
    Assignment,
    Message,
    Host,
    Session,
}

/// A claim as the history tells it.
#[derive(Clone, Debug)]
struct Claim {
    holder: Holder,
    token: Token,
    parent: Option<Token>,
    /// As the claim was made; renewals can only have moved it up.
    expires_at: TimeMs,
    attempt: Option<AttemptId>,
    incarnation: Option<Incarnation>,
}

/// What the history says about one subject so far.
#[derive(Clone, Debug, Default)]
struct Subject {
    claim: Option<Claim>,
    ended: Option<EventKind>,
    redriven: bool,
    retries: u16,
    retries_max: u16,
    incarnation: Option<Incarnation>,
    /// Whose assignment it is.
    owner: Option<Name>,
}

/// A holder's act that a history contains: what an acknowledgement is looked up by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Act {
    /// What it did.
    pub kind: EventKind,
    /// To what.
    pub subject: Name,
    /// Under which token.
    pub token: Token,
}

/// What was counted on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events read.
    pub events: u64,
    /// Tokens handed out.
    pub tokens: u64,
    /// Claims that replaced another one.
    pub takeovers: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages that ended as DONE.
    pub done: u64,
    /// Messages that ended as DEAD.
    pub dead: u64,
    /// Assignments that ended.
    pub assignments: u64,
    /// Sessions that were finished.
    pub sessions: u64,
    /// Violations found, the ones without a kept text included.
    pub violations: u64,
}

/// Replays a history, one event at a time.
pub struct Checker {
    retries_max: Box<dyn Fn(&Name) -> u16 + Send>,
    subjects: HashMap<(Machine, Name), Subject>,
    tokens: HashSet<Token>,
    attempts: HashSet<AttemptId>,
    /// How many claims each process was granted.
    claims: HashMap<ProcessId, u64>,
    acts: HashSet<Act>,
    last_token: Option<Token>,
    last_seq: Option<u64>,
    incarnation_floor: Option<Incarnation>,
    counts: Counts,
    violations: Vec<Violation>,
}

impl Checker {
    /// A checker that knows what budget each message was sent with: the history does not say.
    #[must_use]
    pub fn new(retries_max: impl Fn(&Name) -> u16 + Send + 'static) -> Self {
        Self {
            retries_max: Box::new(retries_max),
            subjects: HashMap::new(),
            tokens: HashSet::new(),
            attempts: HashSet::new(),
            claims: HashMap::new(),
            acts: HashSet::new(),
            last_token: None,
            last_seq: None,
            incarnation_floor: None,
            counts: Counts::default(),
            violations: Vec::new(),
        }
    }

    /// Reads the next event.
    pub fn feed(&mut self, seq: u64, event: &Event) {
        self.counts.events += 1;
        if self.last_seq.is_some_and(|last| last.checked_add(1) != Some(seq)) {
            let last = self.last_seq.unwrap_or_default();
            self.found(Rule::Sequence, seq, format!("follows event {last}"));
        }
        self.last_seq = Some(seq);
        self.replay(seq, event);
        if let Some(token) = event.token {
            self.acts.insert(Act {
                kind: event.kind,
                subject: event.subject.clone(),
                token,
            });
        }
    }

    /// The sequence number of the last event that was read: where to read on.
    #[must_use]
    pub const fn last_seq(&self) -> Option<u64> {
        self.last_seq
    }

    /// What was counted so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The violations found so far, at most [`KEPT_MAX`] of them.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Compares the counter with what was handed out (H5).
    pub fn check_counter(&mut self, counter: Option<Token>) {
        if let Some(last) = self.last_token
            && counter < Some(last)
        {
            let counter = counter.map_or(0, Token::get);
            self.found(
                Rule::CounterBelow,
                0,
                format!("the counter is {counter}, token {last} was handed out"),
            );
        }
    }

    /// Finds the messages that are neither DONE nor DEAD (H17), and reports them if the work is over.
    pub fn check_finished(&mut self) {
        let open: Vec<Name> = self
            .subjects
            .iter()
            .filter(|((machine, _), subject)| *machine == Machine::Message && subject.ended.is_none())
            .map(|((_, name), _)| name.clone())
            .collect();
        for name in open {
            self.found(Rule::Unfinished, 0, format!("message `{name}` never ended"));
        }
    }

    /// Looks for an act that a caller was told to have happened (H18).
    pub fn check_acknowledged(&mut self, act: &Act) {
        if !self.acts.contains(act) {
            let Act { kind, subject, token } = act;
            self.found(
                Rule::Acknowledged,
                0,
                format!("`{kind}` of `{subject}` under token {token} was acknowledged and is not in the history"),
            );
        }
    }

    /// Checks a request (H19) that was asked for one claim, once or several times, under a process identity of its own.
    pub fn check_request(&mut self, request: &str, process: ProcessId) {
        let claims = self.claims.get(&process).copied().unwrap_or_default();
        if claims > 1 {
            let what = format!("request `{request}` was granted {claims} claims");
            self.found(Rule::RequestTwice, 0, what);
        }
    }

    /// Whether every message that was sent has ended.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.counts.sent == self.counts.done + self.counts.dead
    }

    fn found(&mut self, rule: Rule, seq: u64, what: String) {
        self.counts.violations += 1;
        if self.violations.len() < KEPT_MAX || self.violations.iter().all(|known| known.rule != rule) {
            self.violations.push(Violation { rule, seq, what });
        }
    }

    fn subject(&mut self, machine: Machine, name: &Name) -> &mut Subject {
        self.subjects.entry((machine, name.clone())).or_default()
    }

    /// The open claim on an actor or a host, if it carries `token`.
    fn carries(&self, machine: Machine, name: &Name, token: Token) -> bool {
        self.subjects
            .get(&(machine, name.clone()))
            .and_then(|subject| subject.claim.as_ref())
            .is_some_and(|claim| claim.token == token)
    }
}
