//! The fencing machines of keyfence: who may work now, and whose work counts.
//!
//! A *lease* says who should be working; it cannot stop a worker that stalled, lost its lease and woke up again. A
//! *fencing token* can: every takeover mints a greater number, and the resource itself compares it in the same atomic
//! step as the write. This crate holds the rules of that game and nothing else. It reads no clock, does no I/O,
//! allocates nothing and knows no store, so that the same code decides in a SQLite ledger, on a microcontroller's
//! flash, in a model checker and over a network.
//!
//! # How to read it
//!
//! 1. [`token`] and [`name`]: the numbers and the names.
//! 2. [`time`]: what *live* and *lapsed* mean.
//! 3. [`store`]: the one atomic [`Step`](store::Step) that a store has to offer.
//! 4. The machines, each a handful of functions `verb(step, &ask, now) -> Decision`: [`actor`], [`attempt`],
//!    [`mailbox`], [`host`], [`session`], [`gate`]; all of them draw their tokens through [`counter`].
//! 5. [`refusal`] and [`event`]: what a machine says when it refuses, and what it leaves behind when it does not.
//! 6. [`memory`]: a bounded store in RAM, for tests, models and examples.
//!
//! # How the functions are sorted
//!
//! * **Claims** (`acquire`, `claim`, `register`, ...) mint a token in the step that stores it.
//! * **Renewals** (`renew`, `extend`) keep the token and never shorten the expiry.
//! * **Terminal calls** (`finish`, `complete`, `dead_letter`, ...) take the grant and compare it in the step that writes.
//! * **Give-backs** (`release`, `give_back`, `retry`) end a claim before its time.
//! * **Operator's acts** (`revoke`, `redrive`, `dead_letter_new`, `rebind`) present no token and are recorded.
//!
//! # What is promised
//!
//! One winner among contenders for each generation, and no terminal write under a token that a newer claim superseded.
//! Not promised: that a stale process stops running.
//!
//! ```
//! use keyfence_core::{actor, memory::Memory, name::{Name, ProcessId}, store::Store, time::{TimeMs, Ttl}};
//!
//! let mut ledger: Memory<8> = Memory::new();
//! ledger.set_now(TimeMs::new(0).unwrap());
//! let ask = actor::Acquire {
//!     actor: Name::new("operator-course").unwrap(),
//!     process: ProcessId::from_bytes([1; 16]),
//!     ttl: Ttl::from_ms(300_000).unwrap(),
//! };
//! let granted = ledger.step(|step, now| actor::acquire(step, &ask, now)).unwrap().unwrap();
//! assert_eq!(granted.grant.token().get(), 1);
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod actor;
pub mod attempt;
pub mod counter;
pub mod event;
pub mod gate;
pub mod host;
pub mod lease;
pub mod mailbox;
pub mod memory;
pub mod name;
pub mod refusal;
pub mod session;
pub mod store;
pub mod time;
pub mod token;

pub use name::{AttemptId, Digest, LedgerId, Name, ProcessId};
pub use refusal::{Decision, Reason, Refusal};
pub use time::{Expiry, TimeMs, Ttl};
pub use token::{Incarnation, Token};
