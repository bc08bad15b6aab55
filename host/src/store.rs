//! The SQLite store. Read in this order:
//!
//! 1. [`schema`]: the tables.
//! 2. [`check`]: the check value of a row, and the encoding that the history's hash chain runs over.
//! 3. [`location`], [`lock`], [`connection`], [`reading`]: where the file may lie, who may write now, how it is opened.
//! 4. [`step`]: one atomic step, with one file for each table.
//!
//! * **H1.** Every write path is `BEGIN IMMEDIATE` under WAL and `synchronous=FULL`, verified after they were set.
//! * **H2.** Every write is a compare-and-set on the row as this step read it: exactly one row changes, or the step is
//!   rolled back as a bug of ours.
//! * **H3.** Counter, event sequence and chain head are one row, written once a step.
//! * **H4.** The lock is for fairness alone: a writer that skips it is serialized by SQLite all the same.
//! * **H5.** `now` is read after every wait.
//! * **H6.** A connection that failed is closed and the file read again.
//! * **H7.** The ledger's file is opened through SQLite alone: another open and close in this process would drop
//!   SQLite's locks.

pub(crate) mod check;
pub(crate) mod connection;
pub(crate) mod location;
pub(crate) mod lock;
pub(crate) mod reading;
pub(crate) mod schema;
pub(crate) mod step;
