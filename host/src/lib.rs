//! keyfence on a PC: leases, fencing tokens and mailboxes in one SQLite file that many processes share.
//!
//! [`Ledger`] is the handle; [`Ledger::call`] makes one [`Call`], whose verbs are those of the machines in [`core`].
//! [`Ledger::fenced`] commits rows of your own together with the fence. The views ([`Ledger::message`],
//! [`Ledger::events`], ...) only read. Operators have [`doctor`], [`backup`], [`restore`] and [`prune`].
//!
//! A call ends in one of three ways, and none passes for another: granted or refused (a [`Decision`]), or an [`Error`],
//! of which [`Error::Unknown`] alone may have been committed.
//!
//! ```
//! use keyfence::core::attempt::Done;
//! use keyfence::core::mailbox::{ClaimNext, Priority};
//! use keyfence::{Ledger, Name, NewMessage, Options, ProcessId, Reason, Ttl};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("keyfence.db");
//! let ledger = Ledger::open(&path, Options::default())?;
//! let lucy = Name::new("lucy")?;
//! let message = NewMessage {
//!     id: Name::new("order-1")?,
//!     sender: None,
//!     recipient: lucy.clone(),
//!     subject: "order".into(),
//!     body: b"3 lamps".to_vec(),
//!     priority: Priority::default(),
//!     not_before: None,
//!     retries_max: 3,
//! };
//! assert_eq!(ledger.call().mailbox_send(&message)??, Done::Now);
//!
//! // A worker claims it for a millisecond, and is slow.
//! let ask = |worker: u8, ttl| ClaimNext {
//!     owner: lucy.clone(),
//!     process: Some(ProcessId::from_bytes([worker; 16])),
//!     lease_token: None,
//!     ttl,
//! };
//! let slow = ledger.call().mailbox_claim_next(&ask(1, Ttl::from_ms(1).unwrap()), 1)??;
//! std::thread::sleep(std::time::Duration::from_millis(5));
//!
//! // Another one takes the message over. The slow one's work no longer counts.
//! let quick = ledger.call().mailbox_claim_next(&ask(2, Ttl::MAILBOX_CLAIM), 1)??;
//! let late = ledger.call().mailbox_complete(&slow[0].granted.grant, b"late")?;
//! assert_eq!(late.unwrap_err().reason, Reason::FencingTokenStale);
//! assert_eq!(ledger.call().mailbox_complete(&quick[0].granted.grant, b"sent")??, Done::Now);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call;
mod clock;
pub mod emulator;
mod error;
mod fenced;
pub mod fresh;
mod gate_file;
pub mod kiosk;
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
pub use gate_file::{FileGate, GateError, GateRefusal};
pub use keyfence_core as core;
pub use keyfence_core::{
    AttemptId, Decision, Digest, Expiry, Incarnation, LedgerId, Name, ProcessId, Reason, Refusal, TimeMs, Token, Ttl,
};
pub use ledger::{Ledger, Options, is_own_file};
pub use maintain::{
    Damage, DamagedRows, Dropped, Finding, Lapsed, Lost, Progress, Pruned, Report, Restored, Severity, Tick, backup,
    doctor, doctor_embedded, prune, restore,
};
pub use message::{BatchAndNext, CompletedAndNext, Completion, Delivery, NewMessage, TEXT_BYTES_MAX};
/// The SQLite binding whose connections [`Ledger::fenced`] and [`Ledger::transaction`] hand out.
pub use rusqlite;
pub use view::{
    ActorView, AssignmentView, Claims, EventRecord, HostView, MessageView, Page, RefusalRecord, SessionView, Status,
};

/// The code in the README is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
