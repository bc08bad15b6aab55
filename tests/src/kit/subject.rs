//! What a scenario drives: the verbs, and what a test may do to a ledger besides calling them.

use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::attempt::{self, AttemptGrant, CloseLost, Done, Outcome};
use keyfence_core::event::Event;
use keyfence_core::gate::{Admit, Admitted, Binding};
use keyfence_core::host::{self, HostGrant};
use keyfence_core::lease::{Granted, Released, Revoked};
use keyfence_core::mailbox::{self, Claim, ClaimNext, MessageGrant, Priority, Settled};
use keyfence_core::refusal::RefusedCall;
use keyfence_core::session::{ClaimSession, SessionGrant};
use keyfence_core::store::Place;
use keyfence_core::{Decision, Incarnation, Name, ProcessId, TimeMs, Token, Ttl};

/// A call that ended without a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The ledger found damage and said where.
    Damaged(String),
    /// The ledger failed; nothing was committed.
    Failed(String),
    /// The ledger failed, and whether it committed cannot be told.
    Unknown(String),
}

/// What a verb answers.
pub type Answer<T> = Result<Decision<T>, Fault>;

/// What a test is able to do to a ledger, or to see of it, besides calling its verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Can {
    /// Read its history.
    SeeHistory,
    /// Read its recorded refusals.
    SeeRefusals,
    /// Put a malformed expiry into a row.
    Damage,
    /// Prune finished rows.
    Prune,
    /// Lift its counter and its floor of incarnations.
    Lift,
    /// Make it forget how long it was dark, as a kiosk's power-up does.
    Reboot,
    /// Fill it: its room is bounded and small.
    Fill,
}

/// What the scenarios have to know of a ledger.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Where its clock stands when it is new. Scenarios move it by minutes from there.
    pub epoch: TimeMs,
    /// The longest name it takes, in bytes: at least 8.
    pub name_bytes_max: usize,
    /// How many rows of a kind it takes: at least 8. `None` where only the medium limits it.
    pub rows_max: Option<usize>,
    /// What the test can do to it.
    pub can: &'static [Can],
}

/// How an expiry can be malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadExpiry {
    /// It is missing.
    Missing,
    /// It lies before the origin.
    Negative,
    /// It lies beyond the last moment that can be written down.
    TooLarge,
}

impl BadExpiry {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Missing, Self::Negative, Self::TooLarge];
}

/// A message as its sender gives it.
#[derive(Clone, Debug)]
pub struct Letter {
    /// Its id.
    pub id: Name,
    /// Who sends it.
    pub sender: Option<Name>,
    /// Who may claim it.
    pub recipient: Name,
    /// What it says.
    pub body: String,
    /// How urgent it is.
    pub priority: Priority,
    /// Before which moment it is not delivered.
    pub not_before: Option<TimeMs>,
    /// How many retries it has.
    pub retries_max: u16,
}

/// A row as a ledger shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The state's name, in capitals: HELD, FREE, CREATED, NEW, ...
    pub state: &'static str,
    /// The process that holds the claim.
    pub process: Option<ProcessId>,
    /// The token of the current claim.
    pub token: Option<Token>,
    /// The current or the last incarnation.
    pub incarnation: Option<Incarnation>,
    /// Until when the claim is live.
    pub expires_at: Option<TimeMs>,
    /// How many retries were used up.
    pub retries: Option<u16>,
    /// How many claims were granted.
    pub deliveries: Option<u32>,
    /// Everything else that the ledger keeps of it, in a form that can only be compared.
    pub rest: String,
}

/// The ledger under test.
#[expect(missing_docs, reason = "the verbs are those of the core, and documented there")]
pub trait Subject {
    /// What the scenarios have to know of it.
    fn bounds(&self) -> Bounds;
    /// Sets the clock that its decisions are made by; it may jump either way.
    fn set_now(&mut self, now: TimeMs);
    /// Runs before every call. Nothing that is allowed to happen between two calls may change an answer: a store may be
    /// closed and opened again here.
    fn between(&mut self) {}

    fn mint(&mut self, purpose: &Name) -> Answer<Token>;

    fn actor_acquire(&mut self, ask: &actor::Acquire) -> Answer<Granted<ActorGrant>>;
    fn actor_acquire_or_renew(&mut self, ask: &actor::Acquire) -> Answer<Granted<ActorGrant>>;
    fn actor_renew(&mut self, grant: &ActorGrant, ttl: Ttl) -> Answer<Granted<ActorGrant>>;
    fn actor_release(&mut self, grant: &ActorGrant) -> Answer<Released>;
    fn actor_revoke(&mut self, actor: &Name) -> Answer<Revoked>;

    fn assignment_create(&mut self, ask: &attempt::Create) -> Answer<Done>;
    fn attempt_acquire(&mut self, ask: &attempt::Acquire) -> Answer<Granted<AttemptGrant>>;
    fn attempt_renew(&mut self, grant: &AttemptGrant, ttl: Ttl) -> Answer<Granted<AttemptGrant>>;
    fn attempt_release(&mut self, grant: &AttemptGrant) -> Answer<Released>;
    fn attempt_finish(&mut self, grant: &AttemptGrant, outcome: Outcome, result: &str) -> Answer<Done>;
    fn attempt_close_lost(&mut self, assignment: &Name) -> Answer<CloseLost>;
    fn attempt_close_all_lost(&mut self, limit: usize) -> Answer<Vec<Name>>;
    fn attempt_revoke(&mut self, assignment: &Name) -> Answer<Revoked>;

    fn mailbox_send(&mut self, letter: &Letter) -> Answer<Done>;
    fn mailbox_claim(&mut self, ask: &Claim) -> Answer<Granted<MessageGrant>>;
    fn mailbox_claim_next(&mut self, ask: &ClaimNext, limit: usize) -> Answer<Vec<Granted<MessageGrant>>>;
    fn mailbox_sweep(&mut self, recipient: Option<&Name>, limit: usize) -> Answer<usize>;
    fn mailbox_extend(&mut self, grant: &MessageGrant, ttl: Ttl) -> Answer<Granted<MessageGrant>>;
    fn mailbox_give_back(&mut self, grant: &MessageGrant) -> Answer<Settled>;
    fn mailbox_retry(&mut self, grant: &MessageGrant, not_before: Option<TimeMs>, reason: &str) -> Answer<Settled>;
    fn mailbox_complete(&mut self, grant: &MessageGrant, result: &str) -> Answer<Done>;
    fn mailbox_dead_letter(&mut self, grant: &MessageGrant, reason: &str) -> Answer<Done>;
    fn mailbox_dead_letter_new(&mut self, message: &Name) -> Answer<Done>;
    fn mailbox_redrive(&mut self, ask: &mailbox::Redrive) -> Answer<(Name, Done)>;
    fn mailbox_revoke(&mut self, message: &Name) -> Answer<Revoked>;

    fn host_register(&mut self, ask: &host::Register) -> Answer<Granted<HostGrant>>;
    fn host_renew(&mut self, grant: &HostGrant, ttl: Ttl) -> Answer<Granted<HostGrant>>;
    fn host_release(&mut self, grant: &HostGrant) -> Answer<Released>;
    fn host_revoke(&mut self, host: &Name) -> Answer<Revoked>;

    fn session_claim(&mut self, ask: &ClaimSession) -> Answer<Granted<SessionGrant>>;
    fn session_release(&mut self, grant: &SessionGrant) -> Answer<Released>;
    fn session_finish(&mut self, grant: &SessionGrant, result: &str) -> Answer<Done>;
    fn session_revoke(&mut self, session: &Name) -> Answer<Revoked>;

    fn gate_admit(&mut self, ask: &Admit) -> Answer<Admitted>;
    fn gate_rebind(&mut self, gate: &Name, binding: &Binding) -> Answer<()>;

    /// The greatest token that was minted.
    fn counter(&mut self) -> Result<Option<Token>, Fault>;
    /// A row as it stands; writes nothing.
    fn row(&mut self, place: Place, key: &Name) -> Result<Option<Seen>, Fault>;
    /// The history, oldest first ([`Can::SeeHistory`]).
    fn history(&mut self) -> Vec<Event>;
    /// The recorded refusals, oldest first ([`Can::SeeRefusals`]).
    fn refusals(&mut self) -> Vec<RefusedCall>;

    /// Makes the expiry of a claim malformed ([`Can::Damage`]).
    fn damage(&mut self, place: Place, key: &Name, how: BadExpiry);
    /// Prunes every finished row ([`Can::Prune`]).
    fn prune(&mut self);
    /// Lifts the counter, so that the next token lies above `floor` ([`Can::Lift`]).
    fn lift_counter(&mut self, floor: Token);
    /// Makes new sessions start above `floor` ([`Can::Lift`]).
    fn raise_incarnations(&mut self, floor: Incarnation);
    /// Makes every claim one of an earlier boot ([`Can::Reboot`]).
    fn reboot(&mut self);
}
