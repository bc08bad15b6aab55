//! How keyfence is proved.

pub mod kit;
