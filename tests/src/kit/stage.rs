//! The stage: a fresh ledger, a few persons, short ways to ask, and assertions that say what went wrong.

use std::ops::{Deref, DerefMut};

use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::attempt::{self, AttemptGrant, Outcome};
use keyfence_core::event::{Event, EventKind};
use keyfence_core::gate::{Admit, Binding, ClaimKind, LedgerCounter};
use keyfence_core::host::{self, HostGrant, Proof};
use keyfence_core::lease::{Granted, Revoked};
use keyfence_core::mailbox::{Claim, ClaimNext, MessageGrant, Priority, RETRIES_MAX_DEFAULT, Settled};
use keyfence_core::refusal::Holder;
use keyfence_core::session::{ClaimSession, Generation, SessionGrant};
use keyfence_core::store::Place;
use keyfence_core::token::MAX_NUMBER;
use keyfence_core::{AttemptId, Incarnation, LedgerId, Name, ProcessId, Reason, TimeMs, Token, Ttl};

use super::subject::{Answer, Letter, Seen, Subject};

/// The actor of most scenarios, who is the recipient of most messages too.
pub(super) const COURSE: &str = "course";
/// Somebody else.
pub(super) const OTHER: &str = "other";
/// The assignment, the message and the session of most scenarios.
pub(super) const JOB: &str = "job";
/// Two hosts.
pub(super) const KIOSK_A: &str = "kiosk-a";
pub(super) const KIOSK_B: &str = "kiosk-b";

/// A name.
pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("scenarios use names that every ledger takes")
}

/// Three processes that claim to be the same actor.
pub(super) const A: ProcessId = ProcessId::from_bytes([0xa; 16]);
pub(super) const B: ProcessId = ProcessId::from_bytes([0xb; 16]);
pub(super) const C: ProcessId = ProcessId::from_bytes([0xc; 16]);

/// An attempt's id.
pub(super) fn attempt_id(number: u8) -> AttemptId {
    AttemptId::from_bytes([number; 16])
}

/// A length in minutes.
pub(super) fn minutes(minutes: u64) -> Ttl {
    Ttl::from_ms(minutes * 60_000).expect("a length that a lease can have")
}

/// The token that was minted `distance` after `token`.
pub(super) fn after(token: Token, distance: u64) -> Token {
    token.advanced(distance).expect("far from the end of the range")
}

/// The greatest token there can be, which no scenario mints unless it says so.
pub(super) fn never_issued() -> Token {
    Token::presented(MAX_NUMBER).expect("the last number is one")
}

/// The greatest incarnation there can be.
pub(super) fn last_incarnation() -> Incarnation {
    Incarnation::presented(MAX_NUMBER).expect("the last number is one")
}

/// What was asked for.
#[track_caller]
pub(super) fn granted<T>(answer: Answer<T>) -> T {
    match answer {
        Ok(Ok(value)) => value,
        Ok(Err(refusal)) => panic!("refused: {refusal:?}"),
        Err(fault) => panic!("no decision: {fault:?}"),
    }
}

/// What a refusal says besides its reason, which has been asserted: a scenario may look further, or not.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) holder: Option<Holder>,
    pub(super) held_token: Option<Token>,
    pub(super) since: Option<TimeMs>,
    pub(super) expires_at: Option<TimeMs>,
    pub(super) due_at: Option<TimeMs>,
    pub(super) high_water: Option<Token>,
    pub(super) never_issued: bool,
}

/// The evidence of a refusal, which must be for this reason.
#[track_caller]
pub(super) fn refused<T: core::fmt::Debug>(answer: Answer<T>, expected: Reason) -> Evidence {
    match answer {
        Ok(Err(refusal)) => {
            assert_eq!(refusal.reason, expected, "{refusal:?}");
            Evidence {
                holder: refusal.holder,
                held_token: refusal.held_token,
                since: refusal.since,
                expires_at: refusal.expires_at,
                due_at: refusal.due_at,
                high_water: refusal.high_water,
                never_issued: refusal.never_issued,
            }
        }
        Ok(Ok(value)) => panic!("not refused with {expected}: {value:?}"),
        Err(fault) => panic!("no decision: {fault:?}"),
    }
}

/// A call that must have taken effect now.
#[track_caller]
pub(super) fn done(answer: Answer<attempt::Done>) {
    assert_eq!(granted(answer), attempt::Done::Now);
}

/// A give-back or a retry that must have taken effect now and left the message in this state.
#[track_caller]
pub(super) fn settled(answer: Answer<Settled>, state: &str) {
    let settled = granted(answer);
    let left = if settled.dead { "DEAD" } else { "NEW" };
    assert_eq!((settled.done, left), (attempt::Done::Now, state));
}

/// A give-back or a retry that must have been recognised as one of before, the message being in this state.
#[track_caller]
pub(super) fn settled_before(answer: Answer<Settled>, state: &str) {
    let settled = granted(answer);
    let left = if settled.dead { "DEAD" } else { "NEW" };
    assert_eq!((settled.done, left), (attempt::Done::Already, state));
}

/// Who held the claim that was revoked, and under which token.
#[track_caller]
pub(super) fn revoked(answer: Answer<Revoked>) -> (Holder, Token) {
    match granted(answer) {
        Revoked::Claim(holder, token) => (holder, token),
        Revoked::Nothing => panic!("nothing was revoked"),
    }
}

/// A fresh ledger and its clock.
pub struct Stage<'s> {
    subject: &'s mut dyn Subject,
    epoch: TimeMs,
    now: TimeMs,
    watched: Vec<(Place, Name)>,
}

impl<'s> Deref for Stage<'s> {
    type Target = dyn Subject + 's;
    fn deref(&self) -> &Self::Target {
        self.subject
    }
}

impl DerefMut for Stage<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.subject
    }
}

impl<'s> Stage<'s> {
    /// Sets the stage on a fresh ledger.
    pub fn new(subject: &'s mut dyn Subject) -> Self {
        let epoch = subject.bounds().epoch;
        subject.set_now(epoch);
        let watched = [
            (Place::Actor, COURSE),
            (Place::Actor, OTHER),
            (Place::Assignment, JOB),
            (Place::Message, JOB),
            (Place::Session, JOB),
            (Place::Host, KIOSK_A),
            (Place::Host, KIOSK_B),
            (Place::Gate, JOB),
        ];
        Self {
            subject,
            epoch,
            now: epoch,
            watched: watched.map(|(place, key)| (place, name(key))).to_vec(),
        }
    }

    /// Sets the clock to `minutes` after the beginning, forwards or backwards.
    pub(super) fn at(&mut self, minutes: u64) {
        self.at_ms(i64::try_from(minutes * 60_000).expect("a moment that a scenario can name"));
    }

    /// Sets the clock to `ms` milliseconds after the beginning, or before it.
    pub(super) fn at_ms(&mut self, ms: i64) {
        self.now = self.moment_ms(ms);
        self.subject.set_now(self.now);
    }

    /// The moment `minutes` after the beginning.
    pub(super) fn moment(&self, minutes: u64) -> TimeMs {
        self.moment_ms(i64::try_from(minutes * 60_000).expect("a moment that a scenario can name"))
    }

    fn moment_ms(&self, ms: i64) -> TimeMs {
        self.epoch
            .as_ms()
            .checked_add_signed(ms)
            .and_then(TimeMs::new)
            .expect("a moment that a clock can show")
    }

    /// The clock.
    pub(super) const fn now(&self) -> TimeMs {
        self.now
    }

    /// The row, which must be there.
    #[track_caller]
    pub(super) fn seen(&mut self, place: Place, key: &str) -> Seen {
        self.row(place, &name(key)).expect("readable").expect("there")
    }

    /// The greatest token that was minted.
    #[track_caller]
    pub(super) fn minted(&mut self) -> Option<Token> {
        self.counter().expect("readable")
    }

    /// Runs `act`, after which rows, counter and history must be what they were.
    #[track_caller]
    pub(super) fn unchanged<R>(&mut self, act: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.everything();
        let answer = act(self);
        assert_eq!(before, self.everything(), "this call must write nothing");
        answer
    }

    /// All that a call could change, save the recorded refusals.
    fn everything(&mut self) -> (Vec<Option<Seen>>, Option<Token>, usize) {
        let watched = self.watched.clone();
        let rows = watched
            .iter()
            .map(|(place, key)| self.row(*place, key).expect("readable"))
            .collect();
        (rows, self.minted(), self.subject.history().len())
    }

    /// Runs `act`, which must be refused for this reason, leave everything as it was and leave a record.
    #[track_caller]
    pub(super) fn refused_and_recorded<T: core::fmt::Debug>(
        &mut self,
        reason: Reason,
        act: impl FnOnce(&mut Self) -> Answer<T>,
    ) -> Evidence {
        let recorded = self.refusals().len();
        let answer = self.unchanged(act);
        let refusal = refused(answer, reason);
        if self.bounds().can.contains(&super::Can::SeeRefusals) {
            let calls = self.refusals();
            assert_eq!(calls.len(), recorded + 1, "the refusal must leave one record");
            let last = calls.last().expect("the record just counted");
            assert_eq!(last.reason, reason);
            assert_eq!(last.at, self.now);
            assert_eq!(last.never_issued, refusal.never_issued);
        }
        refusal
    }

    /// Runs `act`, which must leave exactly one event of this kind, and returns the event.
    #[track_caller]
    pub(super) fn leaves<R>(&mut self, kind: EventKind, act: impl FnOnce(&mut Self) -> R) -> (R, Event) {
        let before = self.history();
        let answer = act(self);
        let after = self.history();
        assert_eq!(after.len(), before.len() + 1, "one transition leaves one event");
        let event = after.last().expect("the event just counted").clone();
        assert_eq!(event.kind, kind);
        assert_eq!(event.at, self.now);
        (answer, event)
    }

    // ---- actors

    /// An ask for the actor's lease, for five minutes.
    pub(super) fn acquire(&self, process: ProcessId) -> actor::Acquire {
        actor::Acquire {
            actor: name(COURSE),
            process,
            ttl: minutes(5),
        }
    }

    /// A lease of the actor for five minutes.
    #[track_caller]
    pub(super) fn lease(&mut self, process: ProcessId) -> ActorGrant {
        let ask = self.acquire(process);
        granted(self.actor_acquire(&ask)).grant
    }

    // ---- attempts

    /// Creates an assignment of the actor.
    #[track_caller]
    pub(super) fn assign(&mut self, id: &str, actor: &str) {
        let ask = attempt::Create {
            id: name(id),
            actor: name(actor),
            retry_of: None,
        };
        assert_eq!(granted(self.assignment_create(&ask)), attempt::Done::Now);
    }

    /// An ask for an attempt at the job under this lease, for fifteen minutes.
    pub(super) fn try_job(&self, lease: &ActorGrant, number: u8) -> attempt::Acquire {
        attempt::Acquire {
            assignment: name(JOB),
            actor: lease.name().clone(),
            process: lease.process(),
            lease_token: lease.token(),
            attempt: attempt_id(number),
            ttl: minutes(15),
        }
    }

    /// An attempt at the job under this lease.
    #[track_caller]
    pub(super) fn attempt(&mut self, lease: &ActorGrant, number: u8) -> AttemptGrant {
        let ask = self.try_job(lease, number);
        granted(self.attempt_acquire(&ask)).grant
    }

    /// A lease, the job created, and an attempt at it.
    #[track_caller]
    pub(super) fn working(&mut self, process: ProcessId) -> (ActorGrant, AttemptGrant) {
        let lease = self.lease(process);
        self.assign(JOB, COURSE);
        let attempt = self.attempt(&lease, 1);
        (lease, attempt)
    }

    /// Finishes as COMPLETED.
    pub(super) fn finish(&mut self, grant: &AttemptGrant) -> Answer<attempt::Done> {
        self.attempt_finish(grant, Outcome::Completed, "result")
    }

    // ---- messages

    /// A letter to the recipient of most messages.
    pub(super) fn letter(&self, id: &str) -> Letter {
        Letter {
            id: name(id),
            sender: None,
            recipient: name(COURSE),
            body: "Restock vanilla".to_owned(),
            priority: Priority::default(),
            not_before: None,
            retries_max: RETRIES_MAX_DEFAULT,
        }
    }

    /// Sends a letter.
    #[track_caller]
    pub(super) fn send(&mut self, letter: &Letter) {
        assert_eq!(granted(self.mailbox_send(letter)), attempt::Done::Now);
    }

    /// Sends the job as a message.
    #[track_caller]
    pub(super) fn send_job(&mut self) {
        let letter = self.letter(JOB);
        self.send(&letter);
    }

    /// An ask for the message, for fifteen minutes.
    pub(super) fn ask(&self, process: ProcessId) -> Claim {
        Claim {
            message: name(JOB),
            owner: name(COURSE),
            process: Some(process),
            lease_token: None,
            ttl: minutes(15),
        }
    }

    /// A claim of the message by one of the recipient's processes.
    pub(super) fn claim(&mut self, process: ProcessId) -> Answer<Granted<MessageGrant>> {
        let ask = self.ask(process);
        self.mailbox_claim(&ask)
    }

    /// A granted claim of the message.
    #[track_caller]
    pub(super) fn claimed(&mut self, process: ProcessId) -> MessageGrant {
        let granted = granted(self.claim(process));
        assert!(!granted.renewed);
        granted.grant
    }

    /// An ask for the next messages.
    pub(super) fn next(&self, process: ProcessId) -> ClaimNext {
        ClaimNext {
            owner: name(COURSE),
            process: Some(process),
            lease_token: None,
            ttl: minutes(15),
        }
    }

    // ---- hosts and sessions

    /// An ask for a host's lease, for one minute.
    pub(super) fn registration(&self, host: &str, process: ProcessId) -> host::Register {
        host::Register {
            host: name(host),
            process,
            proof: Proof::Process,
            ttl: minutes(1),
        }
    }

    /// Registers a host for `length` minutes.
    #[track_caller]
    pub(super) fn register(&mut self, host: &str, process: ProcessId, length: u64) -> HostGrant {
        let ask = host::Register {
            ttl: minutes(length),
            ..self.registration(host, process)
        };
        granted(self.host_register(&ask)).grant
    }

    /// A claim of the session by a host, for `length` minutes.
    pub(super) fn hold(&mut self, host: &HostGrant, length: u64) -> Answer<Granted<SessionGrant>> {
        let ask = ClaimSession {
            session: name(JOB),
            host: host.clone(),
            ttl: minutes(length),
        };
        self.session_claim(&ask)
    }

    /// A granted claim of the session, which must be this incarnation.
    #[track_caller]
    pub(super) fn held(&mut self, host: &HostGrant, length: u64, incarnation: u64) -> SessionGrant {
        let granted = granted(self.hold(host, length));
        assert_eq!(granted.grant.incarnation().get(), incarnation);
        granted.grant
    }

    // ---- gates

    /// An ask to pass the gate for the session's claim.
    pub(super) fn pass(&mut self, token: Token) -> Admit {
        Admit {
            gate: name(JOB),
            binding: binding(),
            token,
            counter: LedgerCounter::Read(self.minted()),
        }
    }
}

/// What the gate of most scenarios is bound to.
pub(super) fn binding() -> Binding {
    Binding {
        ledger: LedgerId::from_bytes([7; 16]),
        kind: ClaimKind::Session,
        name: name(JOB),
    }
}

/// The grant with something about it changed.
pub(super) fn mixed(grant: &SessionGrant, change: impl FnOnce(&mut Generation)) -> SessionGrant {
    let mut generation = grant.generation().clone();
    change(&mut generation);
    SessionGrant::presented(grant.session().clone(), generation)
}
