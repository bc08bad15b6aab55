//! How keyfence is proved.

pub mod clauses;
pub mod kit;
pub mod model;
