//! How keyfence is proved.

pub mod storm;
