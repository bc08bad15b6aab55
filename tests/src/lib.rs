//! How keyfence is proved.

pub mod bench;
