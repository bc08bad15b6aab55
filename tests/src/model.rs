//! Interleavings: every order of what a few contenders can do, in the machines of the core over the store in memory.
//!
//! A [`World`] is a ledger, a clock and what each contender remembers; an [`Act`] is one thing that can happen next.
//! [`explore`](explore()) runs through all orders of acts within the bounds of a [`Cast`], breadth first, and remembers which
//! worlds it has seen. In every world a [`Monitor`](monitor::Monitor), which knows nothing of the machines, follows the
//! history and checks:
//!
//! * **I1.** Tokens increase strictly in the order of the events that claim.
//! * **I2.** A claim replaces no live claim, and says truly whom it replaced.
//! * **I3.** A generation ends at most once, under its own token, while it is the current one.
//! * **I4.** What is terminal is left no more: at most one terminal write for each name.
//! * **I5.** What descends from a lease ends well only while that lease is the current one; a session only while it and its
//!   host are live, besides.
//! * **I6.** A renewal keeps the token of the current generation and never shortens.
//! * **I7.** A message is delivered at most `retries_max + 1` times, not counting deliveries that were given back or revoked
//!   in time.
//! * **I8.** "Already done" is said only to the grant that did it. A refusal mints nothing and grants nothing.
//!
//! Contenders are processes of *one* actor: two actors never meet on a lease, so that the disease could not appear.
//! A [`Weakness`] takes one predicate out of the machines from outside; the exploration must then find a world that
//! breaks an invariant, and prints the shortest way to it.

mod cast;
mod explore;
mod lens;
mod monitor;
mod world;

pub use cast::{Act, Cast};
pub use explore::{Explored, explore, story};
pub use lens::Weakness;
pub use monitor::Broken;
pub use world::World;
