//! The real command, asked as its users ask it.

mod backups;
mod broken;
mod claims;
mod damage;
mod demo;
mod help;
mod kiosk;
mod mailbox;
mod operate;
mod readme;
mod run;
mod run_fence;
mod sessions;
mod support;
mod upkeep;
mod usage;
