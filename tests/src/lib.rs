//! How keyfence is proved.

pub mod faults;
pub mod storm;
