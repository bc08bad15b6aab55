//! The scenarios, by what they are about.

pub(super) mod actor;
pub(super) mod attempt;
pub(super) mod bounds;
pub(super) mod budget;
pub(super) mod claim;
pub(super) mod clock;
pub(super) mod counter;
pub(super) mod damage;
pub(super) mod gate;
pub(super) mod history;
pub(super) mod host;
pub(super) mod operator;
pub(super) mod seeds;
pub(super) mod session;
pub(super) mod settle;
pub(super) mod stale_writer;
