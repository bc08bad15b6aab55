//! One worker process: does a bit of everything, often wrongly on purpose, and writes down what it was told.
//!
//! It stalls past its leases, walks away from claims, completes late under old grants, asks again under the request id of
//! a question whose answer was lost. What it must never get is a terminal write that the history does not justify; whether
//! it does is for the checker to say.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keyfence::{Delivery, Error, Ledger, Options, Outcome, RequestId};
use keyfence_core::attempt::{self, AttemptGrant, Done};
use keyfence_core::event::EventKind;
use keyfence_core::gate::ClaimKind;
use keyfence_core::lease::Released;
use keyfence_core::mailbox::{Claim, ClaimNext, MessageGrant, Settled};
use keyfence_core::session::SessionGrant;
use keyfence_core::{AttemptId, Name, ProcessId, actor, host, session};

use super::journal::{Journal, Question, Told};
use super::plan::{self, OffsetClock};
use super::weak::Weakness;

/// How many old grants a worker keeps for late calls.
const OLD_MAX: usize = 16;

/// What a worker is told on its command line.
#[derive(Clone, Debug)]
pub struct Orders {
    /// The ledger.
    pub ledger: PathBuf,
    /// Where it writes down what it was told.
    pub journal: PathBuf,
    /// Which worker it is; a successor has the same number.
    pub slot: usize,
    /// Every choice follows from it.
    pub seed: u64,
    /// How many messages there are.
    pub messages: u64,
    /// How long leases last, in milliseconds.
    pub ttl_ms: u64,
    /// Which predicate it leaves out.
    pub weakness: Option<Weakness>,
}

/// A worker at work.
pub(super) struct Worker {
    pub(super) ledger: Ledger,
    pub(super) orders: Orders,
    pub(super) random: fastrand::Rng,
    pub(super) process: ProcessId,
    pub(super) journal: Journal,
    messages: VecDeque<MessageGrant>,
    attempts: VecDeque<AttemptGrant>,
    pub(super) sessions: VecDeque<SessionGrant>,
}

pub(super) fn fresh_process() -> ProcessId {
    ProcessId::from_bytes(*uuid::Uuid::new_v4().as_bytes())
}

/// Works until the process is killed, or its parent is gone.
///
/// # Errors
/// When its journal cannot be written, or the ledger fails in a way that no storm explains.
pub fn work(orders: Orders) -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let parent = rustix::process::getppid();
    let mut told = Told::default();
    told.read(&orders.journal)?;
    let ledger = open(&orders.ledger, orders.slot)?;
    let mut worker = Worker {
        ledger,
        random: fastrand::Rng::with_seed(orders.seed),
        process: fresh_process(),
        journal: Journal::open(&orders.journal)?,
        messages: VecDeque::new(),
        attempts: VecDeque::new(),
        sessions: VecDeque::new(),
        orders,
    };
    if let Some(question) = told.open {
        worker.ask(&question)?;
    }
    while rustix::process::getppid() == parent {
        worker.act()?;
    }
    Ok(())
}

/// Opens the ledger; while others create it, or hold its lock, it waits.
fn open(path: &Path, slot: usize) -> anyhow::Result<Ledger> {
    loop {
        let options = Options {
            clock: Arc::new(OffsetClock::of_slot(slot)),
            timeout: Duration::from_secs(2),
            ..Options::default()
        };
        match Ledger::open(path, options) {
            Ok(ledger) => return Ok(ledger),
            Err(Error::Busy { .. }) => {}
            Err(error) => return Err(error).context("a worker cannot open the ledger"),
        }
    }
}

impl Worker {
    fn act(&mut self) -> anyhow::Result<()> {
        if let Some(weakness) = self.orders.weakness
            && self.random.bool()
        {
            return self.act_weakly(weakness);
        }
        match self.random.u32(0..100) {
            0..64 => self.mail(),
            64..70 => self.question(),
            70..78 => self.late(),
            78..87 => self.assignment(),
            87..96 => self.session(),
            96 => {
                let ticked = self.ledger.call().supervise_tick();
                self.answer("tick", ticked).map(drop)
            }
            97 => {
                let listed = self.ledger.call().mailbox_inbox(&plan::crew(), keyfence::Page::FIRST);
                self.answer("inbox", listed).map(drop)
            }
            98 => self.by_id(),
            _ => self.operate(),
        }
    }

    /// Takes an answer apart: what was granted, or nothing, having counted why.
    pub(super) fn answer<T>(&mut self, verb: &str, outcome: Outcome<T>) -> anyhow::Result<Option<T>> {
        match outcome {
            Ok(Ok(value)) => return Ok(Some(value)),
            Ok(Err(refusal)) => self.journal.counted(&format!("refused.{}", refusal.reason))?,
            Err(error @ (Error::Busy { .. } | Error::Unknown(_))) => self.journal.counted(error.name())?,
            Err(error) => {
                self.journal.counted(&format!("failed.{}", error.name()))?;
                return Err(error).with_context(|| format!("a worker's `{verb}`"));
            }
        }
        Ok(None)
    }

    pub(super) fn ttl(&self) -> keyfence_core::Ttl {
        plan::ttl(self.orders.ttl_ms)
    }

    /// Works for a moment, or stalls up to twice a lease's length.
    pub(super) fn stall(&mut self) {
        std::thread::sleep(Duration::from_millis(self.random.u64(0..self.orders.ttl_ms * 2)));
    }

    pub(super) fn next_of(&self, owner: Name, lease: Option<&actor::ActorGrant>) -> ClaimNext {
        ClaimNext {
            owner,
            process: Some(self.process),
            lease_token: lease.map(actor::ActorGrant::token),
            ttl: self.ttl(),
        }
    }

    fn remember(&mut self, deliveries: &[Delivery]) -> anyhow::Result<()> {
        for delivery in deliveries {
            let grant = &delivery.granted.grant;
            self.journal
                .told(EventKind::MessageClaimed, grant.message(), grant.token())?;
            if self.messages.len() == OLD_MAX {
                self.messages.pop_front();
            }
            self.messages.push_back(grant.clone());
        }
        Ok(())
    }

    /// Claims the next messages and does something with each.
    fn mail(&mut self) -> anyhow::Result<()> {
        let ask = self.next_of(plan::crew(), None);
        let limit = self.random.usize(1..4);
        let claimed = self.ledger.call().mailbox_claim_next(&ask, limit);
        let Some(deliveries) = self.answer("claim_next", claimed)? else {
            return Ok(());
        };
        if deliveries.is_empty() {
            std::thread::sleep(Duration::from_millis(self.random.u64(1..20)));
        }
        self.remember(&deliveries)?;
        for delivery in &deliveries {
            self.settle(&delivery.granted.grant)?;
        }
        Ok(())
    }

    /// Claims one message by its id.
    fn by_id(&mut self) -> anyhow::Result<()> {
        let index = self.random.u64(0..self.orders.messages);
        let ask = Claim {
            message: plan::message_id(index),
            owner: plan::recipient(index),
            process: Some(self.process),
            lease_token: None,
            ttl: self.ttl(),
        };
        let claimed = self.ledger.call().mailbox_claim(&ask);
        if let Some(delivery) = self.answer("claim", claimed)? {
            self.remember(std::slice::from_ref(&delivery))?;
            self.settle(&delivery.granted.grant)?;
        }
        Ok(())
    }

    /// What becomes of a claimed message.
    fn settle(&mut self, grant: &MessageGrant) -> anyhow::Result<()> {
        match self.random.u32(0..100) {
            0 => {
                self.stall();
                self.complete(grant)
            }
            1..5 => Ok(()), // Walks away.
            5..11 => self.retry(grant),
            11..15 => self.give_back(grant),
            15 => self.dead_letter(grant),
            16..20 => {
                let extended = self.ledger.call().mailbox_extend(grant, self.ttl());
                self.answer("extend", extended)?;
                self.complete(grant)
            }
            20..35 => self.complete_and_next(grant),
            _ => self.complete(grant),
        }
    }

    fn complete(&mut self, grant: &MessageGrant) -> anyhow::Result<()> {
        let result = self.random.u8(0..2).to_le_bytes();
        let completed = self.ledger.call().mailbox_complete(grant, &result);
        if let Some(Done::Now | Done::Already) = self.answer("complete", completed)? {
            self.journal
                .told(EventKind::MessageCompleted, grant.message(), grant.token())?;
        }
        Ok(())
    }

    fn complete_and_next(&mut self, grant: &MessageGrant) -> anyhow::Result<()> {
        let ask = self.next_of(plan::crew(), None);
        let completed = self.ledger.call().mailbox_complete_and_next(grant, b"fused", &ask, 1);
        let Some(both) = self.answer("complete_and_next", completed)? else {
            return Ok(());
        };
        self.journal
            .told(EventKind::MessageCompleted, grant.message(), grant.token())?;
        if let Some(next) = self.answer("complete_and_next", Ok(both.next))? {
            self.remember(&next)?;
            for delivery in &next {
                self.complete(&delivery.granted.grant)?;
            }
        }
        Ok(())
    }

    fn retry(&mut self, grant: &MessageGrant) -> anyhow::Result<()> {
        let delay = self
            .random
            .bool()
            .then(|| Duration::from_millis(self.random.u64(1..50)));
        let retried = self.ledger.call().mailbox_retry(grant, delay, "another try");
        let settled = self.answer("retry", retried)?;
        self.settled(settled, EventKind::MessageRetried, grant)
    }

    fn give_back(&mut self, grant: &MessageGrant) -> anyhow::Result<()> {
        let given_back = self.ledger.call().mailbox_give_back(grant);
        let settled = self.answer("give_back", given_back)?;
        self.settled(settled, EventKind::MessageGivenBack, grant)
    }

    fn settled(&mut self, settled: Option<Settled>, kind: EventKind, grant: &MessageGrant) -> anyhow::Result<()> {
        if let Some(settled) = settled {
            let kind = if settled.dead { EventKind::MessageDead } else { kind };
            self.journal.told(kind, grant.message(), grant.token())?;
        }
        Ok(())
    }

    fn dead_letter(&mut self, grant: &MessageGrant) -> anyhow::Result<()> {
        let dead = self.ledger.call().mailbox_dead_letter(grant, "no use");
        if let Some(Done::Now | Done::Already) = self.answer("dead_letter", dead)? {
            self.journal
                .told(EventKind::MessageDead, grant.message(), grant.token())?;
        }
        Ok(())
    }

    /// Presents a grant of earlier.
    fn late(&mut self) -> anyhow::Result<()> {
        self.journal.counted("late")?;
        let old = |len: usize, random: &mut fastrand::Rng| random.usize(0..len.max(1));
        match self.random.u32(0..6) {
            0 => {
                let index = old(self.attempts.len(), &mut self.random);
                match self.attempts.get(index).cloned() {
                    Some(grant) => self.finish_attempt(&grant),
                    None => Ok(()),
                }
            }
            1 => {
                let index = old(self.sessions.len(), &mut self.random);
                match self.sessions.get(index).cloned() {
                    Some(grant) => self.finish_session(&grant),
                    None => Ok(()),
                }
            }
            verb => {
                let index = old(self.messages.len(), &mut self.random);
                let Some(grant) = self.messages.get(index).cloned() else {
                    return Ok(());
                };
                match verb {
                    2 => self.retry(&grant),
                    3 => self.give_back(&grant),
                    _ => self.complete(&grant),
                }
            }
        }
    }

    /// One claim under a request id and a process identity of its own, now and then asked twice.
    fn question(&mut self) -> anyhow::Result<()> {
        let number = uuid::Uuid::new_v4().simple().to_string();
        let question = Question {
            request: plan::name(&format!("r-{number}")),
            process: fresh_process(),
        };
        self.journal.asked(&question)?;
        self.ask(&question)?;
        if self.random.u8(0..4) == 0 {
            self.ask(&question)?;
        }
        Ok(())
    }

    fn ask(&mut self, question: &Question) -> anyhow::Result<()> {
        let ask = ClaimNext {
            process: Some(question.process),
            ..self.next_of(plan::crew(), None)
        };
        let request = RequestId::new(question.request.as_str()).context("a request id is a name")?;
        let caller = plan::name(&format!("slot-{}", self.orders.slot));
        let mut call = self.ledger.call().request(request, caller);
        let claimed = call.mailbox_claim_next(&ask, 1);
        if call.replayed() {
            self.journal.counted("replayed")?;
        }
        if let Err(Error::Busy { .. } | Error::Unknown(_)) = claimed {
            self.answer("question", claimed)?;
            return Ok(()); // It stays open: whoever takes this slot over asks again.
        }
        if let Some(deliveries) = self.answer("question", claimed)? {
            self.remember(&deliveries)?;
            self.journal.answered(&question.request)?;
            for delivery in &deliveries {
                self.complete(&delivery.granted.grant)?;
            }
        } else {
            self.journal.answered(&question.request)?;
        }
        Ok(())
    }

    pub(super) fn lease(&mut self, actor: Name) -> anyhow::Result<Option<actor::ActorGrant>> {
        let ask = actor::Acquire {
            actor,
            process: self.process,
            ttl: self.ttl(),
        };
        let acquired = self.ledger.call().actor_acquire_or_renew(&ask);
        let Some(granted) = self.answer("actor_acquire", acquired)? else {
            return Ok(None);
        };
        let grant = granted.grant;
        self.journal
            .told(EventKind::ActorAcquired, grant.name(), grant.token())?;
        Ok(Some(grant))
    }

    fn release(&mut self, lease: &actor::ActorGrant) -> anyhow::Result<()> {
        let released = self.ledger.call().actor_release(lease);
        if let Some(Released::Now | Released::Already) = self.answer("actor_release", released)? {
            self.journal
                .told(EventKind::ActorReleased, lease.name(), lease.token())?;
        }
        Ok(())
    }

    pub(super) fn attempt(&mut self, lease: &actor::ActorGrant) -> anyhow::Result<Option<AttemptGrant>> {
        let target = plan::target(self.random.u64(..));
        let assignment = plan::name(&format!("a-{}-{target}", lease.name()));
        let create = attempt::Create {
            id: assignment.clone(),
            actor: lease.name().clone(),
            retry_of: None,
        };
        let created = self.ledger.call().assignment_create(&create);
        self.answer("assignment_create", created)?;
        let ask = attempt::Acquire {
            assignment,
            actor: lease.name().clone(),
            process: lease.process(),
            lease_token: lease.token(),
            attempt: AttemptId::from_bytes(*uuid::Uuid::new_v4().as_bytes()),
            ttl: self.ttl(),
        };
        let acquired = self.ledger.call().attempt_acquire(&ask);
        let Some(granted) = self.answer("attempt_acquire", acquired)? else {
            return Ok(None);
        };
        let grant = granted.grant;
        self.journal
            .told(EventKind::AttemptAcquired, grant.assignment(), grant.token())?;
        if self.attempts.len() == OLD_MAX {
            self.attempts.pop_front();
        }
        self.attempts.push_back(grant.clone());
        Ok(Some(grant))
    }

    /// A captain's lease, an assignment and a message under it.
    fn assignment(&mut self) -> anyhow::Result<()> {
        let captain = plan::captain(self.random.u64(0..plan::CAPTAINS));
        let Some(lease) = self.lease(captain.clone())? else {
            return Ok(());
        };
        let attempt = self.attempt(&lease)?;
        let ask = self.next_of(captain, Some(&lease));
        let claimed = self.ledger.call().mailbox_claim_next(&ask, 2);
        if let Some(deliveries) = self.answer("claim_next", claimed)? {
            self.remember(&deliveries)?;
            for delivery in &deliveries {
                self.settle(&delivery.granted.grant)?;
            }
        }
        if let Some(attempt) = attempt {
            match self.random.u32(0..40) {
                0 => self.stall(),
                1..3 => return Ok(()), // Walks away.
                3..10 => {
                    let renewed = self.ledger.call().actor_renew(&lease, self.ttl());
                    self.answer("actor_renew", renewed)?;
                    let renewed = self.ledger.call().attempt_renew(&attempt, self.ttl());
                    self.answer("attempt_renew", renewed)?;
                }
                10..18 => {
                    let released = self.ledger.call().attempt_release(&attempt);
                    if let Some(Released::Now | Released::Already) = self.answer("attempt_release", released)? {
                        self.journal
                            .told(EventKind::AttemptReleased, attempt.assignment(), attempt.token())?;
                    }
                }
                18..22 => self.release(&lease)?, // Too early: the finish has to be refused.
                _ => {}
            }
            self.finish_attempt(&attempt)?;
        }
        self.release(&lease)
    }

    fn finish_attempt(&mut self, grant: &AttemptGrant) -> anyhow::Result<()> {
        let (outcome, kind) = match self.random.u8(0..4) {
            0 => (attempt::Outcome::Blocked, EventKind::AttemptBlocked),
            1 => (attempt::Outcome::Failed, EventKind::AttemptFailed),
            _ => (attempt::Outcome::Completed, EventKind::AttemptCompleted),
        };
        let finished = self.ledger.call().attempt_finish(grant, outcome, b"result");
        if let Some(Done::Now | Done::Already) = self.answer("attempt_finish", finished)? {
            self.journal.told(kind, grant.assignment(), grant.token())?;
        }
        Ok(())
    }

    pub(super) fn host(&mut self) -> anyhow::Result<Option<host::HostGrant>> {
        let ask = host::Register {
            host: plan::host(self.random.u64(0..plan::HOSTS)),
            process: self.process,
            proof: host::Proof::Process,
            ttl: self.ttl(),
        };
        let registered = self.ledger.call().host_register(&ask);
        let Some(granted) = self.answer("host_register", registered)? else {
            return Ok(None);
        };
        let grant = granted.grant;
        self.journal
            .told(EventKind::HostRegistered, grant.name(), grant.token())?;
        Ok(Some(grant))
    }

    pub(super) fn session_name(&mut self) -> Name {
        plan::name(&format!("s-{}", plan::target(self.random.u64(..))))
    }

    pub(super) fn claim_session(&mut self, host: &host::HostGrant) -> anyhow::Result<Option<SessionGrant>> {
        let ask = session::ClaimSession {
            session: self.session_name(),
            host: host.clone(),
            ttl: self.ttl(),
        };
        let claimed = self.ledger.call().session_claim(&ask);
        let Some(granted) = self.answer("session_claim", claimed)? else {
            return Ok(None);
        };
        let grant = granted.grant;
        self.journal
            .told(EventKind::SessionClaimed, grant.session(), grant.token())?;
        if self.sessions.len() == OLD_MAX {
            self.sessions.pop_front();
        }
        self.sessions.push_back(grant.clone());
        Ok(Some(grant))
    }

    fn session(&mut self) -> anyhow::Result<()> {
        let Some(host) = self.host()? else { return Ok(()) };
        let Some(grant) = self.claim_session(&host)? else {
            return Ok(());
        };
        match self.random.u32(0..40) {
            0 => self.stall(),
            1..12 => return Ok(()), // Walks away: another host takes it over.
            12..20 => {
                let released = self.ledger.call().session_release(&grant);
                if let Some(Released::Now | Released::Already) = self.answer("session_release", released)? {
                    self.journal
                        .told(EventKind::SessionReleased, grant.session(), grant.token())?;
                }
            }
            20..22 => self.release_host(&host)?, // Too early: the finish has to be refused.
            22..26 => {
                let renewed = self.ledger.call().host_renew(&host, self.ttl());
                self.answer("host_renew", renewed)?;
            }
            _ => {}
        }
        self.finish_session(&grant)?;
        if self.random.bool() {
            self.release_host(&host)
        } else {
            Ok(())
        }
    }

    fn release_host(&mut self, host: &host::HostGrant) -> anyhow::Result<()> {
        let released = self.ledger.call().host_release(host);
        if let Some(Released::Now | Released::Already) = self.answer("host_release", released)? {
            self.journal.told(EventKind::HostReleased, host.name(), host.token())?;
        }
        Ok(())
    }

    fn finish_session(&mut self, grant: &SessionGrant) -> anyhow::Result<()> {
        let finished = self.ledger.call().session_finish(grant, b"result");
        if let Some(Done::Now | Done::Already) = self.answer("session_finish", finished)? {
            self.journal
                .told(EventKind::SessionFinished, grant.session(), grant.token())?;
        }
        Ok(())
    }

    /// An operator's act, or a token for something else.
    fn operate(&mut self) -> anyhow::Result<()> {
        let index = self.random.u64(0..self.orders.messages);
        let (kind, name) = match self.random.u32(0..8) {
            0 => (ClaimKind::Actor, plan::captain(index)),
            1 => (ClaimKind::Host, plan::host(index)),
            2 => (ClaimKind::Session, self.session_name()),
            3 => (
                ClaimKind::Attempt,
                plan::name(&format!("a-{}-{}", plan::captain(index), plan::target(index))),
            ),
            4 | 5 => (ClaimKind::Message, plan::message_id(index)),
            _ => {
                let purpose = plan::name("purpose");
                let minted = self.ledger.call().mint(&purpose);
                if let Some(token) = self.answer("mint", minted)? {
                    self.journal.told(EventKind::TokenMinted, &purpose, token)?;
                }
                return Ok(());
            }
        };
        let revoked = self.ledger.call().revoke(kind, &name, "for the storm");
        self.answer("revoke", revoked).map(drop)
    }
}
