//! How keyfence is proved.

pub mod faults;
pub mod kit;
pub mod storm;
