//! Local deadlines: a clock that goes on while the machine is suspended, and an alarm on it.
//!
//! A lease lapses on the ledger's clock whether this machine sleeps or not. So the local deadline must not stand still
//! during suspend, and the alarm has to fire at the wake-up, not the rest of the time-out later.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::ClockId;

/// Linux calls it `CLOCK_BOOTTIME`. On macOS and the BSDs the monotonic clock goes on during sleep.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The time since this machine booted, suspend included.
pub(crate) fn now() -> Duration {
    let time = rustix::time::clock_gettime(CLOCK);
    // Neither field of a clock that counts from boot is ever negative.
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Waits for file descriptors, but not beyond a moment of this clock.
#[derive(Debug)]
pub(super) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: std::os::fd::OwnedFd,
}

impl Alarm {
    /// An alarm that is not set.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            #[cfg(target_os = "linux")]
            timer: rustix::time::timerfd_create(
                rustix::time::TimerfdClockId::Boottime,
                rustix::time::TimerfdFlags::CLOEXEC | rustix::time::TimerfdFlags::NONBLOCK,
            )?,
        })
    }

    /// Returns when one of `sources` is readable, when `until` has come, or early: the caller looks at what it waits for.
    pub(super) fn wait(&self, sources: &[BorrowedFd<'_>], until: Duration) -> io::Result<()> {
        let mut polled: Vec<PollFd<'_>> = sources
            .iter()
            .map(|source| PollFd::from_borrowed_fd(*source, PollFlags::IN))
            .collect();
        let timeout = self.arm(until, &mut polled)?;
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(target_os = "linux")]
    fn arm<'a>(&'a self, until: Duration, polled: &mut Vec<PollFd<'a>>) -> io::Result<Option<Timespec>> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};
        // Zero would disarm it.
        let value = timespec(until.max(Duration::from_nanos(1)));
        let interval = timespec(Duration::ZERO);
        timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec {
                it_interval: interval,
                it_value: value,
            },
        )?;
        polled.push(PollFd::new(&self.timer, PollFlags::IN));
        Ok(None)
    }

    /// Without a timer on this clock: short naps, so that a wake-up is noticed soon.
    #[cfg(not(target_os = "linux"))]
    fn arm<'a>(&'a self, until: Duration, _polled: &mut Vec<PollFd<'a>>) -> io::Result<Option<Timespec>> {
        const NAP: Duration = Duration::from_millis(200);
        Ok(Some(timespec(until.saturating_sub(now()).min(NAP))))
    }
}

fn timespec(length: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(length.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: length.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_alarm_that_lies_in_the_past_returns_at_once() {
        let alarm = Alarm::new().unwrap();
        let before = now();
        alarm.wait(&[], Duration::ZERO).unwrap();
        alarm.wait(&[], before).unwrap();
        assert!(now() - before < Duration::from_secs(1));
    }

    #[test]
    fn an_alarm_rings_at_its_moment_and_not_before() {
        let alarm = Alarm::new().unwrap();
        let until = now() + Duration::from_millis(20);
        while now() < until {
            alarm.wait(&[], until).unwrap();
        }
        assert!(now() < until + Duration::from_secs(1));
    }

    #[test]
    fn a_readable_source_ends_the_wait() {
        let alarm = Alarm::new().unwrap();
        let (reader, writer) = UnixStream::pair().unwrap();
        drop(writer);
        let before = now();
        alarm.wait(&[reader.as_fd()], before + Duration::from_secs(60)).unwrap();
        assert!(now() - before < Duration::from_secs(30));
    }
}
