//! How keyfence is proved.

pub mod bench;
pub mod clauses;
pub mod faults;
pub mod kit;
pub mod model;
pub mod storm;
