//! What a store has to offer: one atomic step.
//!
//! ```text
//! caller -> Store::step : lock or snapshot
//!              the machine reads the rows it asks for
//!              the machine decides
//!              the machine puts its write set and its event
//!           commit, all or nothing
//!        <- grant | refusal
//! ```
//!
//! # What the machines rely on
//!
//! * **S1. Atomic and isolated.** All that a step read is still so when its writes become visible, and they become
//!   visible all at once or not at all.
//! * **S2. Durable before told.** [`Store::step`] returns a grant only when its writes will survive whatever the store
//!   promises to survive.
//! * **S3. The counter only grows.** [`Transaction::mint`] returns a token greater than every token that any committed
//!   step ever returned, whatever rows were deleted since. A step that does not commit mints nothing.
//! * **S4. Damage is reported.** A row that cannot be read as it was written is [`Failure::Corrupt`]; a missing or
//!   malformed expiry is never read as an expired one.
//! * **S5. Refusals commit only their record** and overdue bookkeeping. When that commit fails the refusal stands.
//! * **S6. Candidates are hints.** A store may offer too many or too few; each is read again by key and decided.
//!
//! Nothing relies on more: not on an order of rows, not on a running sweeper, not on a clock that never jumps.
//! Hash chains, message bodies, request ids and transactions of the caller's own belong to a store, not to this trait.

use core::fmt;

use crate::actor::ActorLease;
use crate::attempt::Assignment;
use crate::event::Event;
use crate::gate::Gate;
use crate::host::HostLease;
use crate::mailbox::Message;
use crate::name::Name;
use crate::refusal::{Decision, RefusedCall};
use crate::session::Session;
use crate::time::TimeMs;
use crate::token::{Incarnation, Token};

/// Which part of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Place {
    /// The counter of tokens.
    Counter,
    /// The actor leases.
    Actor,
    /// The assignments and their attempts.
    Assignment,
    /// The messages.
    Message,
    /// The host leases.
    Host,
    /// The sessions.
    Session,
    /// The gates.
    Gate,
    /// The history.
    History,
}

impl Place {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Actor => "actor",
            Self::Assignment => "assignment",
            Self::Message => "message",
            Self::Host => "host",
            Self::Session => "session",
            Self::Gate => "gate",
            Self::History => "history",
        }
    }
}

/// The medium's fault: what was found is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Corrupt {
    /// Where.
    pub place: Place,
    /// In which row, where it can be told.
    pub key: Option<Name>,
    /// What is wrong with it.
    pub why: &'static str,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{} `{key}`: {}", self.place.name(), self.why),
            None => write!(f, "{}: {}", self.place.name(), self.why),
        }
    }
}

/// A step that ended without a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Failure<E> {
    /// Nothing was committed, and nothing will be: the store failed before.
    Store(E),
    /// The store failed when the commit may already have happened: neither committed nor refused may be told. Asking
    /// again with the same request id, or looking at the row, tells.
    Unknown(E),
    /// The store found damage. Nothing was committed.
    Corrupt(Corrupt),
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the store failed: {error}"),
            Self::Unknown(error) => write!(f, "the outcome is unknown: {error}"),
            Self::Corrupt(corrupt) => write!(f, "damaged: {corrupt}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for Failure<E> {}

impl<E> From<Corrupt> for Failure<E> {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

/// A row of a store.
pub trait Record: Clone {
    /// Where rows of this kind live.
    const PLACE: Place;
    /// Under which name: the only key a row has.
    fn key(&self) -> &Name;
}

/// How many candidates a store offers at a time.
pub const CANDIDATES_MAX: usize = 8;

/// How many candidates to ask for next, when `taken` of at most `limit` rows were taken; `None` when that is all.
pub(crate) fn wanted(limit: usize, taken: usize) -> Option<usize> {
    match limit.saturating_sub(taken).min(CANDIDATES_MAX) {
        0 => None,
        wanted => Some(wanted),
    }
}

/// Keys of rows that a store offers.
pub type Candidates = heapless::Vec<Name, CANDIDATES_MAX>;

/// What candidates are asked for.
#[derive(Clone, Copy, Debug)]
pub enum Query<'a> {
    /// Messages of this recipient that are NEW and due, or whose claim has lapsed; by priority, then age.
    Deliverable(&'a Name),
    /// Messages of this recipient, or of all, whose claim has lapsed.
    LapsedMessages(Option<&'a Name>),
    /// RUNNING assignments whose attempt is not live.
    LostAttempts,
}

/// What every step can do besides reading and putting rows.
pub trait Transaction {
    /// The store's own error.
    type Error;

    /// The greatest token that was ever minted here or that the counter was lifted to; `None` on a new ledger.
    ///
    /// # Errors
    /// [`Failure`], when the counter cannot be read.
    fn last_minted(&mut self) -> Result<Option<Token>, Failure<Self::Error>>;

    /// Mints the next token; `None` at the end of the range. It belongs to this step: when the step does not commit,
    /// nobody ever saw it.
    ///
    /// # Errors
    /// [`Failure`], when the counter cannot be read or written.
    fn mint(&mut self) -> Result<Option<Token>, Failure<Self::Error>>;

    /// The incarnation that every new session has to start above, raised when sessions are pruned.
    ///
    /// # Errors
    /// [`Failure`], when it cannot be read.
    fn incarnation_floor(&mut self) -> Result<Option<Incarnation>, Failure<Self::Error>>;

    /// Appends an event to the history.
    ///
    /// # Errors
    /// [`Failure`], when it cannot be written.
    fn append(&mut self, event: &Event) -> Result<(), Failure<Self::Error>>;

    /// Records a call that was refused, in a bounded table.
    ///
    /// # Errors
    /// [`Failure`], when it cannot be written. The machines do not pass it on: the refusal stands without its record.
    fn record_refusal(&mut self, call: &RefusedCall) -> Result<(), Failure<Self::Error>>;

    /// Offers up to `limit` rows that answer `query`, a hint (S6). Rows that this step has put count as they are now.
    ///
    /// # Errors
    /// [`Failure`], when they cannot be read.
    fn candidates(&mut self, query: Query<'_>, now: TimeMs, limit: usize) -> Result<Candidates, Failure<Self::Error>>;
}

/// Rows of one kind within a step.
pub trait Table<R: Record>: Transaction {
    /// Reads a row by its key.
    ///
    /// # Errors
    /// [`Failure::Corrupt`] when the row is there and cannot be read as one.
    fn get(&mut self, key: &Name) -> Result<Option<R>, Failure<Self::Error>>;

    /// Whether a new row of this name would find room; otherwise the refusal that says why not. A machine asks before
    /// it mints, so that a claim refused for want of room mints nothing.
    ///
    /// # Errors
    /// [`Failure`], when that cannot be told.
    fn room_for(&mut self, key: &Name) -> Result<Decision<()>, Failure<Self::Error>>;

    /// Writes a row. `before` is the row as this step read it (`None`: there was none), so that a store can make the
    /// write a compare-and-set.
    ///
    /// # Errors
    /// [`Failure`], when it cannot be written.
    fn put(&mut self, before: Option<&R>, after: &R) -> Result<(), Failure<Self::Error>>;
}

/// All that the machines need of one atomic step.
pub trait Step:
    Transaction + Table<ActorLease> + Table<Assignment> + Table<Message> + Table<HostLease> + Table<Session> + Table<Gate>
{
}

impl<S> Step for S where
    S: Transaction
        + Table<ActorLease>
        + Table<Assignment>
        + Table<Message>
        + Table<HostLease>
        + Table<Session>
        + Table<Gate>
{
}

/// A ledger: the serialization boundary.
pub trait Store {
    /// The store's own error.
    type Error;
    /// Its atomic step.
    type Step<'a>: Step + Transaction<Error = Self::Error>;

    /// Runs `decide` as one atomic step and commits what it put. `now` is read from the store's clock after any wait
    /// for the store, so that validity is decided at the granting moment.
    ///
    /// `decide` may be run again when the store finds a conflict; it must depend on nothing but its arguments. On a
    /// refusal only the refusal's own write set is committed.
    ///
    /// # Errors
    /// [`Failure`]: no decision was made, or whether it was committed is unknown.
    fn step<T>(
        &mut self,
        decide: impl FnMut(&mut Self::Step<'_>, TimeMs) -> Result<Decision<T>, Failure<Self::Error>>,
    ) -> Result<Decision<T>, Failure<Self::Error>>;
}

impl<S: Store> Store for &mut S {
    type Error = S::Error;
    type Step<'a> = S::Step<'a>;

    fn step<T>(
        &mut self,
        decide: impl FnMut(&mut Self::Step<'_>, TimeMs) -> Result<Decision<T>, Failure<Self::Error>>,
    ) -> Result<Decision<T>, Failure<Self::Error>> {
        S::step(self, decide)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter;
    use crate::memory::{Memory, MemoryStep};

    /// A ledger that many hold by shared reference, as threads share one.
    struct Shared(core::cell::RefCell<Memory<1>>);

    impl Store for &Shared {
        type Error = core::convert::Infallible;
        type Step<'a> = MemoryStep<1, 64>;

        fn step<T>(
            &mut self,
            decide: impl FnMut(&mut Self::Step<'_>, TimeMs) -> Result<Decision<T>, Failure<Self::Error>>,
        ) -> Result<Decision<T>, Failure<Self::Error>> {
            self.0.borrow_mut().step(decide)
        }
    }

    #[test]
    fn a_shared_reference_to_a_ledger_can_be_a_store() {
        let shared = Shared(core::cell::RefCell::new(Memory::new()));
        let purpose = Name::new("till").unwrap();
        for expected in [1, 2] {
            let mut store = &shared;
            let token = store
                .step(|step, now| counter::mint_for(step, &purpose, now))
                .unwrap()
                .unwrap();
            assert_eq!(token.get(), expected);
        }
    }
}
