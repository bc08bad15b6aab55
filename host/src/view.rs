//! Reading without writing: rows with their texts, the history, refusals, the whole at a glance.

use keyfence_core::actor::ActorLease;
use keyfence_core::attempt::Assignment;
use keyfence_core::event::Event;
use keyfence_core::host::HostLease;
use keyfence_core::mailbox::Message;
use keyfence_core::refusal::RefusedCall;
use keyfence_core::session::Session;
use keyfence_core::{Name, TimeMs, Token};

use crate::error::Error;
use crate::ledger::Ledger;

/// A part of a list, so that no list has to fit in memory: the rows after the one numbered `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The `number` of the last row that was read; 0 to begin.
    pub after: u64,
    /// How many rows at most.
    pub limit: usize,
}

impl Page {
    /// The first hundred rows.
    pub const FIRST: Self = Self { after: 0, limit: 100 };

    /// As many rows after the one of this number.
    #[must_use]
    pub const fn after(self, number: u64) -> Self {
        Self { after: number, ..self }
    }
}

/// An actor's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorView {
    /// The row's number, for [`Page::after`].
    pub number: u64,
    /// The row.
    pub row: ActorLease,
}

/// A host's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// The row's number, for [`Page::after`].
    pub number: u64,
    /// The row.
    pub row: HostLease,
}

/// An assignment with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignmentView {
    /// The row's number, for [`Page::after`].
    pub number: u64,
    /// The row.
    pub row: Assignment,
    /// What came of it: read only where one assignment is asked for by its id.
    pub result: Option<Vec<u8>>,
}

/// A session with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The row's number, for [`Page::after`].
    pub number: u64,
    /// The row.
    pub row: Session,
    /// What came of it: read only where one session is asked for by its name.
    pub result: Option<Vec<u8>>,
}

/// A message with its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageView {
    /// The row's number, for [`Page::after`]; messages are numbered by age.
    pub number: u64,
    /// The row.
    pub row: Message,
    /// Who sent it.
    pub sender: Option<Name>,
    /// When it was sent; `None` once it is pruned.
    pub sent_at: Option<TimeMs>,
    /// What it is about; empty once it is pruned.
    pub subject: String,
    /// How long its body is, in bytes.
    pub body_bytes: u64,
    /// Its body: read only where one message is asked for by its id.
    pub body: Option<Vec<u8>>,
    /// What came of it: read only where one message is asked for by its id.
    pub result: Option<Vec<u8>>,
    /// Why it was last retried or dead-lettered: read only where one message is asked for by its id.
    pub reason: Option<String>,
}

/// An event of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// Its place in the history: 1, 2, 3, ...
    pub seq: u64,
    /// What happened.
    pub event: Event,
    /// The reason that an operator or a holder gave.
    pub note: Option<String>,
}

/// A recorded refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalRecord {
    /// Its number among all that were ever recorded.
    pub number: u64,
    /// The call.
    pub call: RefusedCall,
}

/// The ledger at a glance, as it stands at `now`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The moment on the ledger's clock.
    pub now: TimeMs,
    /// The greatest token.
    pub counter: Option<Token>,
    /// The last event.
    pub last_event: u64,
    /// The first event that is still kept.
    pub first_event: u64,
    /// Actor leases: live.
    pub actors_live: u64,
    /// Actor leases: lapsed and not released.
    pub actors_lapsed: u64,
    /// Host leases: live.
    pub hosts_live: u64,
    /// Host leases: lapsed and not released.
    pub hosts_lapsed: u64,
    /// Assignments: CREATED.
    pub assignments_created: u64,
    /// Assignments: RUNNING, the attempt live or not.
    pub assignments_running: u64,
    /// Assignments: COMPLETED, BLOCKED or FAILED.
    pub assignments_finished: u64,
    /// Messages: NEW.
    pub messages_new: u64,
    /// Messages: CLAIMED and live.
    pub messages_claimed: u64,
    /// Messages: CLAIMED and lapsed.
    pub messages_lapsed: u64,
    /// Messages: DONE.
    pub messages_done: u64,
    /// Messages: DEAD.
    pub messages_dead: u64,
    /// Sessions: claimed.
    pub sessions_claimed: u64,
    /// Sessions: free.
    pub sessions_free: u64,
    /// Sessions: finished.
    pub sessions_finished: u64,
    /// How many refusals were ever recorded.
    pub refusals: u64,
    /// The longest lease that was ever asked for, in milliseconds.
    pub longest_ttl_ms: u64,
    /// How many claims expire later than `now` plus the longest lease that was asked for: a clock was set back.
    pub expiries_too_far: u64,
}

macro_rules! lists {
    ($($(#[$doc:meta])* $list:ident, $one:ident -> $view:ty;)*) => {
        impl Ledger {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`Error`].
            pub fn $list(&self, _page: Page) -> Result<Vec<$view>, Error> {
                Err(crate::error::unavailable())
            }

            /// The one of this name, with its texts.
            ///
            /// # Errors
            /// [`Error`].
            pub fn $one(&self, _name: &Name) -> Result<Option<$view>, Error> {
                Err(crate::error::unavailable())
            }
        )*}
    };
}

lists! {
    /// The actor leases.
    actors, actor -> ActorView;
    /// The assignments.
    assignments, assignment -> AssignmentView;
    /// The messages, by age.
    messages, message -> MessageView;
    /// The host leases.
    hosts, host -> HostView;
    /// The sessions.
    sessions, session -> SessionView;
}

impl Ledger {
    /// The events after `since`, oldest first, `limit` at most.
    ///
    /// # Errors
    /// [`Error`].
    pub fn events(&self, _since: u64, _limit: usize) -> Result<Vec<EventRecord>, Error> {
        Err(crate::error::unavailable())
    }

    /// The last recorded refusals, newest first.
    ///
    /// # Errors
    /// [`Error`].
    pub fn refusals(&self, _limit: usize) -> Result<Vec<RefusalRecord>, Error> {
        Err(crate::error::unavailable())
    }

    /// Counts.
    ///
    /// # Errors
    /// [`Error`].
    pub fn status(&self) -> Result<Status, Error> {
        Err(crate::error::unavailable())
    }
}

pub(crate) fn open_messages(
    _connection: &rusqlite::Connection,
    _recipient: &Name,
    _page: Page,
) -> Result<Vec<MessageView>, Error> {
    Err(crate::error::unavailable())
}
