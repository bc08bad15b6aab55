//! A ledger, a clock, and what each contender remembers. What contenders do is in one file for each machine.

mod assignment;
mod leases;
mod message;
mod sessions;

use core::fmt::{self, Debug};
use std::convert::Infallible;

use keyfence_core::actor::{self, ActorGrant, ActorLease};
use keyfence_core::attempt::{self, Assignment, AttemptGrant, Done};
use keyfence_core::event::Event;
use keyfence_core::host::{HostGrant, HostLease};
use keyfence_core::lease::{Granted, Released, Revoked};
use keyfence_core::mailbox::{self, Message, MessageGrant, MessageState, Priority};
use keyfence_core::memory::{Memory, MemoryStep};
use keyfence_core::session::{self, Session, SessionGrant};
use keyfence_core::store::{Failure, Store};
use keyfence_core::{Decision, Digest, Name, ProcessId, TimeMs, Token, Ttl};

use super::cast::{Act, Cast};
use super::lens::{Lens, Presented, Weakness};
use super::monitor::{Broken, Monitor, Of};

type Ledger = Memory<2, 1>;
type Step = MemoryStep<2, 1>;

/// A world. Two worlds are the same when everything that can happen next is the same and is judged the same.
#[derive(Clone)]
pub struct World {
    ledger: Ledger,
    lease_ttl: Ttl,
    claim_ttl: Ttl,
    now: u64,
    /// How many ticks the clock went on, altogether.
    pub(super) ticks: u8,
    /// How often it jumped back.
    pub(super) jumps: u8,
    /// Every grant that was ever handed out, in order; each of its holder remembers it for ever.
    pub(super) leases: Vec<ActorGrant>,
    pub(super) attempts: Vec<(AttemptGrant, Token)>,
    pub(super) claims: Vec<(MessageGrant, Option<Token>, MessageState)>,
    pub(super) hosts: Vec<HostGrant>,
    pub(super) sessions: Vec<SessionGrant>,
    monitor: Monitor,
    weakness: Option<Weakness>,
    /// Whether the weakness shows in what happens now.
    weak: bool,
    /// What the last act left in the history.
    pub(super) left: Vec<Event>,
}

impl std::hash::Hash for World {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.ledger.rows::<ActorLease>().hash(state);
        self.ledger.rows::<Assignment>().hash(state);
        self.ledger.rows::<Message>().hash(state);
        self.ledger.rows::<HostLease>().hash(state);
        self.ledger.rows::<Session>().hash(state);
        (self.now, self.ticks, self.jumps).hash(state);
        self.leases.hash(state);
        self.attempts.hash(state);
        self.claims.hash(state);
        self.hosts.hash(state);
        self.sessions.hash(state);
        self.monitor.hash(state);
    }
}

const MINUTE: u64 = 60_000;

fn process(contender: usize) -> ProcessId {
    ProcessId::from_bytes([[0xa; 16], [0xb; 16], [0xc; 16]][contender])
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn actor_name() -> Name {
    name("course")
}

fn job() -> Name {
    name("job")
}

/// The third contender is a second process of the first host.
fn host_name(contender: usize) -> Name {
    name(["kiosk-a", "kiosk-b", "kiosk-a"][contender])
}

/// Hears what was answered.
pub(super) type Tell<'t> = &'t mut dyn FnMut(fmt::Arguments<'_>);

/// What a step ended with: the answer, and the events it left.
type Answered<T> = (Decision<T>, Vec<Event>);

impl World {
    /// The beginning: the job is there as an assignment and as a message, nothing was ever claimed.
    #[must_use]
    pub fn new(cast: &Cast, weakness: Option<Weakness>) -> Self {
        let ttl = |ticks: u8| Ttl::from_ms(u64::from(ticks) * MINUTE).expect("at least one tick");
        let mut world = Self {
            ledger: Memory::new(),
            lease_ttl: ttl(cast.lease_ticks),
            claim_ttl: ttl(cast.claim_ticks),
            now: 0,
            ticks: 0,
            jumps: 0,
            leases: Vec::new(),
            attempts: Vec::new(),
            claims: Vec::new(),
            hosts: Vec::new(),
            sessions: Vec::new(),
            monitor: Monitor::new(cast.retries_max),
            weakness,
            weak: false,
            left: Vec::new(),
        };
        let create = attempt::Create {
            id: job(),
            actor: actor_name(),
            retry_of: None,
        };
        let send = mailbox::Send {
            id: job(),
            sender: None,
            recipient: actor_name(),
            content: Digest::NONE,
            priority: Priority::default(),
            not_before: None,
            retries_max: cast.retries_max,
        };
        let begun = world.ledger.step(|step, now| {
            if cast.attempts > 0 {
                assert_eq!(attempt::create(step, &create, now)?, Ok(Done::Now));
            }
            if cast.claims > 0 {
                assert_eq!(mailbox::send(step, &send, now)?, Ok(Done::Now));
            }
            Ok(Ok(()))
        });
        assert_eq!(begun, Ok(Ok(())));
        world
    }

    fn moment(&self) -> TimeMs {
        TimeMs::new(self.now * MINUTE).expect("a few minutes")
    }

    /// One atomic step of the ledger, seen through the lens; the monitor follows what it left.
    fn step<T: Debug>(
        &mut self,
        presented: &Presented,
        mut verb: impl FnMut(&mut Lens<'_, Step>, TimeMs) -> Result<Decision<T>, Failure<Infallible>>,
    ) -> Result<Answered<T>, Broken> {
        let mut events = Vec::new();
        let weakness = self.weakness.filter(|_| self.weak);
        let mut minted = false;
        let decision = self.ledger.step(|step, now| {
            let mut lens = Lens {
                step,
                weakness,
                presented,
                events: Vec::new(),
                minted: false,
            };
            let decision = verb(&mut lens, now)?;
            (events, minted) = (lens.events, lens.minted);
            Ok(decision)
        });
        self.left.clone_from(&events);
        let decision = decision.map_err(|failure| Broken {
            invariant: "the ledger",
            how: format!("{failure}"),
        })?;
        if decision.is_err() {
            Monitor::refused(&events)?;
            if minted {
                return Err(Broken {
                    invariant: "I8",
                    how: format!("a refused call minted: {decision:?}"),
                });
            }
        }
        let now = self.moment();
        for event in &events {
            self.monitor.follow(event, now)?;
        }
        Ok((decision, events))
    }

    /// A claim or a renewal: the grant if it is a new one.
    fn claimed<G: Debug>(
        &mut self,
        of: Of,
        name: &Name,
        answered: Answered<Granted<G>>,
        token: impl Fn(&G) -> Token,
        tell: Tell<'_>,
    ) -> Result<(bool, Option<G>), Broken> {
        let (decision, events) = answered;
        match decision {
            Err(refusal) => {
                tell(format_args!("refused: {refusal}"));
                Ok((!events.is_empty(), None))
            }
            Ok(granted) => {
                let token = token(&granted.grant);
                let until = granted.expires_at.as_ms() / MINUTE;
                if granted.renewed {
                    tell(format_args!("token {token} as before, until {until}"));
                    let now = self.moment();
                    self.monitor.renewed(of, name, token, granted.expires_at, now)?;
                    return Ok((true, None));
                }
                tell(format_args!("granted token {token}, until {until}"));
                if self.monitor.current(of, name).map(|current| current.token) != Some(token) {
                    return Err(Broken {
                        invariant: "I3",
                        how: format!("token {token} was granted and is not the current one of {name}"),
                    });
                }
                Ok((true, Some(granted.grant)))
            }
        }
    }

    /// A call that ends a generation.
    fn ended(
        &mut self,
        of: Of,
        name: &Name,
        token: Token,
        act: &'static str,
        answered: Answered<Done>,
        tell: Tell<'_>,
    ) -> Result<bool, Broken> {
        match answered.0 {
            Err(refusal) => {
                tell(format_args!("refused: {refusal}"));
                Ok(!answered.1.is_empty())
            }
            Ok(Done::Now) => {
                tell(format_args!("done"));
                self.monitor.acted(of, name, token, act);
                Ok(true)
            }
            Ok(Done::Already) => {
                tell(format_args!("was done already"));
                self.monitor.repeated(of, name, token, act)?;
                Monitor::refused(&answered.1)?;
                Ok(false)
            }
        }
    }

    fn released(
        &mut self,
        of: Of,
        name: &Name,
        token: Token,
        answered: Answered<Released>,
        tell: Tell<'_>,
    ) -> Result<bool, Broken> {
        let (decision, events) = answered;
        let done = match decision {
            Ok(Released::Now) => Ok(Done::Now),
            Ok(Released::Already) => Ok(Done::Already),
            Ok(Released::NotHeld) => {
                tell(format_args!("nothing of his to release"));
                Monitor::refused(&events)?;
                return Ok(false);
            }
            Err(refusal) => Err(refusal),
        };
        self.ended(of, name, token, "release", (done, events), tell)
    }

    /// Lets one thing happen. Whether it had an effect, or which invariant it broke.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn act(&mut self, act: &Act, tell: Tell<'_>) -> Result<bool, Broken> {
        self.left.clear();
        self.weak = self.weakness.is_some_and(|weakness| act.ends() || !weakness.of_ends());
        match *act {
            Act::Tick => {
                self.ticks += 1;
                Ok(self.set_clock(self.now + 1, tell))
            }
            Act::JumpBack => {
                self.jumps += 1;
                Ok(self.set_clock(self.now.saturating_sub(2), tell))
            }
            Act::Acquire(contender) => self.acquire(contender, tell),
            Act::AcquireOrRenew(contender) => self.acquire_or_renew(contender, tell),
            Act::RenewLease(grant) => self.renew_lease(grant, tell),
            Act::ReleaseLease(grant) => self.release_lease(grant, tell),
            Act::RevokeLease => self.revoke(|step, now| actor::revoke(step, &actor_name(), now), tell),
            Act::Attempt(lease) => self.attempt(lease, tell),
            Act::RenewAttempt(grant) => self.renew_attempt(grant, tell),
            Act::ReleaseAttempt(grant) => self.release_attempt(grant, tell),
            Act::Finish(grant) => self.finish(grant, tell),
            Act::CloseLost => self.close_lost(tell),
            Act::RevokeAttempt => self.revoke(|step, now| attempt::revoke(step, &job(), now), tell),
            Act::Claim(contender) => self.claim(process(contender), None, tell),
            Act::ClaimUnder(lease) => {
                let lease = &self.leases[lease];
                self.claim(lease.process(), Some(lease.token()), tell)
            }
            Act::ClaimNext(contender) => self.claim_next(contender, tell),
            Act::Extend(grant) => self.extend(grant, tell),
            Act::GiveBack(grant) => self.settle(grant, "give back", tell, |step, grant, _, now| {
                Ok(mailbox::give_back(step, grant, now)?.map(|settled| settled.done))
            }),
            Act::Retry(grant) => self.settle(grant, "retry", tell, |step, grant, bytes, now| {
                Ok(mailbox::retry(step, grant, None, bytes, now)?.map(|settled| settled.done))
            }),
            Act::Complete(grant) => self.settle(grant, "complete", tell, |step, grant, bytes, now| {
                mailbox::complete(step, grant, bytes, now)
            }),
            Act::DeadLetter(grant) => self.settle(grant, "dead-letter", tell, |step, grant, bytes, now| {
                mailbox::dead_letter(step, grant, bytes, now)
            }),
            Act::Sweep => self.sweep(tell),
            Act::RevokeMessage => self.revoke(|step, now| mailbox::revoke(step, &job(), now), tell),
            Act::DeadLetterNew => self.dead_letter_new(tell),
            Act::Register(contender) => self.register(contender, tell),
            Act::RenewHost(grant) => self.renew_host(grant, tell),
            Act::ReleaseHost(grant) => self.release_host(grant, tell),
            Act::Hold(host) => self.hold(host, tell),
            Act::ReleaseSession(grant) => self.release_session(grant, tell),
            Act::FinishSession(grant) => self.finish_session(grant, tell),
            Act::RevokeSession => self.revoke(|step, now| session::revoke(step, &job(), now), tell),
        }
    }

    /// Who does it, and under which token.
    pub(super) fn who(&self, act: &Act) -> Option<String> {
        let letter = |of: ProcessId| {
            (0..)
                .zip(["A", "B", "C"])
                .find(|(contender, _)| process(*contender) == of)
        };
        let under = |of: Option<ProcessId>, token: Token| {
            let letter = of.and_then(letter).map_or("nobody", |(_, letter)| letter);
            Some(format!("{letter} with token {token}"))
        };
        match *act {
            Act::Acquire(contender)
            | Act::AcquireOrRenew(contender)
            | Act::Claim(contender)
            | Act::ClaimNext(contender)
            | Act::Register(contender) => letter(process(contender)).map(|(_, letter)| letter.to_owned()),
            Act::RenewLease(grant) | Act::ReleaseLease(grant) | Act::Attempt(grant) | Act::ClaimUnder(grant) => {
                under(Some(self.leases[grant].process()), self.leases[grant].token())
            }
            Act::RenewAttempt(grant) | Act::ReleaseAttempt(grant) | Act::Finish(grant) => {
                let (grant, _) = &self.attempts[grant];
                under(Some(ProcessId::from_bytes(*grant.attempt().as_bytes())), grant.token())
            }
            Act::Extend(grant)
            | Act::GiveBack(grant)
            | Act::Retry(grant)
            | Act::Complete(grant)
            | Act::DeadLetter(grant) => under(self.claims[grant].0.process(), self.claims[grant].0.token()),
            Act::RenewHost(grant) | Act::ReleaseHost(grant) | Act::Hold(grant) => {
                under(Some(self.hosts[grant].process()), self.hosts[grant].token())
            }
            Act::ReleaseSession(grant) | Act::FinishSession(grant) => {
                let grant = &self.sessions[grant];
                let host = self
                    .hosts
                    .iter()
                    .find(|host| host.token() == grant.generation().host_token)?;
                under(Some(host.process()), grant.token())
            }
            Act::Tick
            | Act::JumpBack
            | Act::RevokeLease
            | Act::CloseLost
            | Act::RevokeAttempt
            | Act::Sweep
            | Act::RevokeMessage
            | Act::DeadLetterNew
            | Act::RevokeSession => None,
        }
    }

    fn set_clock(&mut self, now: u64, tell: Tell<'_>) -> bool {
        self.now = now;
        self.ledger.set_now(self.moment());
        tell(format_args!("it is {now}"));
        true
    }

    fn revoke(
        &mut self,
        verb: impl FnMut(&mut Lens<'_, Step>, TimeMs) -> Result<Decision<Revoked>, Failure<Infallible>>,
        tell: Tell<'_>,
    ) -> Result<bool, Broken> {
        let (decision, events) = self.step(&Presented::default(), verb)?;
        match decision {
            Ok(Revoked::Claim(_, token)) => tell(format_args!("token {token} is dead")),
            Ok(Revoked::Nothing) => tell(format_args!("nothing to revoke")),
            Err(refusal) => tell(format_args!("refused: {refusal}")),
        }
        Ok(!events.is_empty())
    }
}

fn under(lease: Option<Token>) -> Presented {
    Presented {
        parent: lease,
        ..Presented::default()
    }
}

fn presented(token: Token, parent: Option<Token>) -> Presented {
    Presented {
        token: Some(token),
        parent,
        ..Presented::default()
    }
}
