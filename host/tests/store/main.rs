//! The SQLite store through the library's public calls.

mod fencing;
mod mailbox;
mod maintenance;
mod opening;
mod replaced;
mod support;
mod waiting;
