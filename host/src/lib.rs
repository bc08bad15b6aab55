//! keyfence on a PC: leases, fencing tokens and mailboxes in one SQLite file that many processes share.

mod call;
mod clock;
mod error;
mod fenced;
pub mod fresh;
mod gate_file;
mod ledger;
mod maintain;
mod message;
pub mod run;
mod store;
mod view;

pub use call::{Call, RequestId};
pub use clock::{Clock, FixedClock, SystemClock};
pub use error::{Error, LockHolder, Outcome};
pub use fenced::{Fenced, FencedError, Pending, Receipt, Terminal, Tx};
pub use gate_file::{FileGate, GateError};
pub use keyfence_core as core;
pub use keyfence_core::{
    AttemptId, Decision, Digest, Expiry, Incarnation, LedgerId, Name, ProcessId, Reason, Refusal, TimeMs, Token, Ttl,
};
pub use ledger::{Ledger, Options};
pub use maintain::{
    Finding, Lapsed, Lost, Progress, Pruned, Report, Restored, Severity, Tick, backup, doctor, prune, restore,
};
pub use message::{BatchAndNext, CompletedAndNext, Completion, Delivery, NewMessage};
/// The SQLite binding whose connections [`Ledger::fenced`] and [`Ledger::transaction`] hand out.
pub use rusqlite;
pub use view::{
    ActorView, AssignmentView, EventRecord, HostView, MessageView, Page, RefusalRecord, SessionView, Status,
};

/// The code in the README is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
