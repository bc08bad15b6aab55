//! The mailbox: durable messages that the processes of their recipient claim, work on and complete.
//!
//! * **M1.** A message is NEW, CLAIMED, DONE or DEAD; DONE and DEAD are never left. Only its recipient can own it.
//! * **M2.** A claim wants the message due, and NEW or lapsed. The same process asking again inside its live claim gets the
//!   same token and the same expiry; only [`extend`] moves it.
//! * **M3.** Every call under a token compares state, token, owner and process in the step that writes, and wants the
//!   actor's row to carry the lease token that the claim named, if it named one.
//! * **M4. Budget.** [`retry`] costs one retry; so does a claim that lapsed, once, by whoever changes the row; a voluntary
//!   [`give_back`] inside the claim costs none. A message that has used up `retries_max` ends DEAD at the next failure.
//!   A claim that an earlier boot left behind costs nothing.
//! * **M5.** A repeated act of the same grant with the same outcome is recognised until a newer claim, before any other
//!   test, and writes nothing.
//!
//! [`message`] has the rows, [`deliver`] the claims, [`settle`] what ends them, [`operate`] the operator's acts.

pub mod deliver;
pub mod message;
pub mod operate;
pub mod settle;

pub use deliver::{Claim, ClaimNext, claim, claim_next, extend, sweep};
pub use message::{
    Act, Cause, Claimed, Dead, Last, Message, MessageGrant, MessageState, Open, Priority, RETRIES_MAX_DEFAULT,
};
pub use operate::{Redrive, Send, dead_letter_new, redrive, revoke, send};
pub use settle::{Settled, complete, dead_letter, give_back, retry};
