//! How keyfence is proved.

pub mod bench;
pub mod kit;
