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
    // After it was asked to end: when it is killed, and how many interrupts had been heard by then.
    let mut asked: Option<(Duration, usize)> = None;
    loop {
        alarm.wait(
            &[child.as_fd(), interrupt.as_fd()],
            asked.map_or(Duration::MAX, |(kill_at, _)| kill_at),
        )?;
        if let Some(ended) = child.poll()? {
            return Ok(ended);
        }
        let times = interrupt.times();
        match asked {
            None if times > 0 => {
                child.terminate();
                asked = Some((boot_clock::now() + GRACE, times));
            }
            None => {}
            Some((kill_at, heard)) if times > heard || boot_clock::now() >= kill_at => return child.kill(),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    use std::thread;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    fn ran(script: &str) -> Ended {
        guarded(&mut shell(script), &Interrupt::new().unwrap()).unwrap()
    }

    #[test]
    fn a_program_ends_with_its_status_or_its_signal() {
        assert_eq!(ran("exit 0"), Ended::Exited(0));
        assert_eq!(ran("exit 42"), Ended::Exited(42));
        assert_eq!(ran("kill -TERM $$"), Ended::Killed(15));
    }

    #[test]
    fn a_program_leads_a_group_of_its_own() {
        assert_eq!(ran("test $(ps -o pgid= -p $$) = $$"), Ended::Exited(0));
    }

    #[test]
    fn a_program_that_is_not_there_is_told_as_such() {
        let error = guarded(&mut Command::new("./not-there"), &Interrupt::new().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    /// Runs a script that prints a line when it is ready, and raises the interrupt this often.
    fn interrupted(script: &str, times: usize) -> Ended {
        let interrupt = Interrupt::new().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let mut command = shell(script);
        command.stdout(writer);
        thread::scope(|scope| {
            let raised = scope.spawn(|| {
                let mut line = String::new();
                BufReader::new(reader).read_line(&mut line).unwrap();
                for _ in 0..times {
                    interrupt.raise();
                }
            });
            let ended = guarded(&mut command, &interrupt).unwrap();
            drop(command);
            raised.join().unwrap();
            ended
        })
    }

    #[test]
    fn an_interrupt_asks_a_program_to_end() {
        let polite = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done";
        assert_eq!(interrupted(polite, 1), Ended::Exited(5));
        assert_eq!(interrupted("echo ready; kill -STOP $$; exit 1", 1), Ended::Killed(15));
    }
}
