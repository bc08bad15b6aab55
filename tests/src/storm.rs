//! The process storm.
pub mod history;
