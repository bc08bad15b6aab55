//! The one path from "I want to work" to "my result counts".
//!
//! A run draws a fresh process identity, acquires the actor's lease strictly, acquires an attempt at the assignment (which
//! it makes when it does not exist), does the work while it renews both leases, makes the terminal write, and gives the
//! lease up on every path. [`program`] runs a program, [`work`] a closure; the `keyfence run` command is the first.
//!
//! # What is promised
//!
//! * **R1.** A run that is refused, or that fails before its work starts, has given back what it took.
//! * **R2.** While this process is scheduled: leases are renewed at a third of their length; the deadline is counted from
//!   the moment the last accepted renewal was sent, on a clock that goes on during suspend; the program's process group
//!   gets TERM at the expiry minus the grace (a third of the lease at most), and KILL before the expiry.
//! * **R3.** The first act after a wake-up is that check. A run that wakes past its own deadline stops the program and writes
//!   FAILED `lease_lapsed` if nobody superseded it; otherwise the ledger refuses it. What the program returned meanwhile
//!   is never committed.
//! * **R4.** On Linux the program dies with the process, and with the thread, that runs it.
//! * **R5.** An interrupt stops the program, writes FAILED `interrupted` and gives the authority back.
//! * **R6.** A renewal that is refused means that somebody superseded this run: the program is killed at once.
//!
//! Not promised: that a program stops while this process itself is stopped (SIGSTOP). Its result is never committed.
//!
//! Read [`program`] first; `keeper` has the leases, `child` the process group and the terminal.

mod authority;
pub(crate) mod boot_clock;
mod child;
mod guarded;
mod interrupt;
mod keeper;
mod plan;
mod program;
mod work;

pub use child::Ended;
pub use guarded::guarded;
pub use interrupt::Interrupt;
pub use plan::{Authority, Ending, GRACE_DEFAULT, Plan, Report, RunError, Written};
pub use program::program;
pub use work::{Watch, work};
