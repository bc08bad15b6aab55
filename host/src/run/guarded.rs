//! A program that runs while its parent holds something for it: a gate's lock.

use std::io;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::Duration;

use super::boot_clock::{self, Alarm};
use super::child::{Child, Ended};
use super::interrupt::Interrupt;

/// How long an interrupted program has between being asked to end and being killed.
const GRACE: Duration = super::GRACE_DEFAULT;

/// Runs a program to its end, in a process group of its own that on Linux dies with the calling thread. An interrupt asks it
/// to end; it is killed at the second one, or when it has not ended after 10 seconds. When this returns nothing of the
/// group is left.
///
/// # Errors
/// When the program cannot be started, or the system cannot wait for it.
pub fn guarded(command: &mut Command, interrupt: &Interrupt) -> io::Result<Ended> {
    let alarm = Alarm::new()?;
    let mut child = Child::spawn(command)?;
    let mut kill_at = None;
    loop {
        alarm.wait(&[child.as_fd(), interrupt.as_fd()], kill_at.unwrap_or(Duration::MAX))?;
        if let Some(ended) = child.poll()? {
            return Ok(ended);
        }
        let raised = interrupt.drain();
        match kill_at {
            None if interrupt.raised().is_some() => {
                child.terminate();
                kill_at = Some(boot_clock::now() + GRACE);
            }
            None => {}
            Some(moment) if raised > 0 || boot_clock::now() >= moment => return child.kill(),
            Some(_) => {}
        }
    }
}
