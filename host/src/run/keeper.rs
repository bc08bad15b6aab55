//! Keeping both leases while the work goes on, and knowing until when they are certainly kept.
//!
//! * **K1.** A lease is renewed when a third of its length has passed since the last accepted renewal *was sent*. What
//!   failed is sent again after a twelfth of it; what was refused is not: the authority is gone.
//! * **K2.** The local deadline is the moment the last accepted renewal was sent plus the lease's length, on a clock that
//!   goes on during suspend. The ledger counts from a later moment, so its expiry is never the earlier one.
//! * **K3.** Renewing is done by a thread of its own: whoever watches the work never waits for the ledger.
//! * **K4.** A deadline that has passed stays passed, whatever the ledger answers afterwards.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use keyfence_core::actor::ActorGrant;
use keyfence_core::attempt::AttemptGrant;
use keyfence_core::lease::Granted;
use keyfence_core::{Refusal, Ttl};

use super::boot_clock::{self, Alarm};
use super::interrupt::Waker;
use crate::{Ledger, Outcome};

/// One lease as the local clock sees it.
#[derive(Debug)]
struct Kept {
    ttl: Ttl,
    /// When the last accepted claim or renewal was sent, in milliseconds of the local clock.
    sent_ms: AtomicU64,
}

impl Kept {
    fn new(ttl: Ttl, sent: Duration) -> Self {
        Self {
            ttl,
            sent_ms: AtomicU64::new(as_ms(sent)),
        }
    }

    fn accepted(&self, sent: Duration) {
        self.sent_ms.fetch_max(as_ms(sent), Ordering::SeqCst);
    }

    fn sent(&self) -> Duration {
        Duration::from_millis(self.sent_ms.load(Ordering::SeqCst))
    }

    fn length(&self) -> Duration {
        Duration::from_millis(self.ttl.as_ms())
    }

    fn expiry(&self) -> Duration {
        self.sent() + self.length()
    }
}

/// Rounded down, so that a deadline is never later than it should be.
fn as_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Both leases, shared between whoever watches the work and the thread that renews.
#[derive(Debug)]
pub(super) struct Leases {
    actor: Kept,
    attempt: Kept,
    grace: Duration,
    refused: Mutex<Option<Refusal>>,
    lost: Waker,
    stop: Waker,
    stopped: AtomicBool,
}

impl Leases {
    /// `actor` and `attempt` are the lengths and when the claims were sent.
    pub(super) fn new(actor: (Ttl, Duration), attempt: (Ttl, Duration), grace: Duration) -> io::Result<Self> {
        Ok(Self {
            actor: Kept::new(actor.0, actor.1),
            attempt: Kept::new(attempt.0, attempt.1),
            grace,
            refused: Mutex::new(None),
            lost: Waker::new()?,
            stop: Waker::new()?,
            stopped: AtomicBool::new(false),
        })
    }

    /// From when on the leases may have lapsed (K2).
    pub(super) fn expiry(&self) -> Duration {
        self.actor.expiry().min(self.attempt.expiry())
    }

    /// When the work is asked to end: the grace, or a third of the length, before the expiry.
    pub(super) fn ask_at(&self) -> Duration {
        let ask = |kept: &Kept| kept.expiry().saturating_sub(self.grace.min(kept.length() / 3));
        ask(&self.actor).min(ask(&self.attempt))
    }

    /// When the work is killed: a tenth of the length before the expiry, one second at most, so that it is over by then.
    pub(super) fn kill_at(&self) -> Duration {
        let kill = |kept: &Kept| {
            let margin = (kept.length() / 10).min(Duration::from_secs(1));
            kept.expiry().saturating_sub(margin)
        };
        kill(&self.actor).min(kill(&self.attempt)).max(self.ask_at())
    }

    /// How long the work has between being asked to end and being killed, where no expiry is nearer.
    pub(super) fn grace(&self) -> Duration {
        self.grace
    }

    /// The refusal of a renewal: the authority is gone.
    pub(super) fn refused(&self) -> Option<Refusal> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Readable when a renewal was refused.
    pub(super) fn lost(&self) -> &Waker {
        &self.lost
    }

    /// Ends [`Leases::keep`], after the renewal that it may be in.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.stop.wake();
    }

    /// Renews both leases until it is stopped, refused, or too late.
    pub(super) fn keep(&self, ledger: &Ledger, actor: &ActorGrant, attempt: &AttemptGrant) -> io::Result<()> {
        let alarm = Alarm::new()?;
        let mut actor_due = self.actor.sent() + self.actor.length() / 3;
        let mut attempt_due = self.attempt.sent() + self.attempt.length() / 3;
        loop {
            alarm.wait(&[self.stop.as_fd()], actor_due.min(attempt_due))?;
            // After a wake-up past the deadline nothing is renewed any more, even if the ledger would.
            if self.stopped.load(Ordering::SeqCst) || boot_clock::now() >= self.expiry() {
                return Ok(());
            }
            // The actor's first: the attempt is live only under it.
            if boot_clock::now() >= actor_due {
                let renewed = renew(&self.actor, self.expiry(), || {
                    ledger
                        .call()
                        .timeout(self.actor.length() / 6)
                        .actor_renew(actor, self.actor.ttl)
                });
                match renewed {
                    Ok(due) => actor_due = due,
                    Err(refusal) => return self.lose(refusal),
                }
            }
            if boot_clock::now() >= attempt_due {
                let renewed = renew(&self.attempt, self.expiry(), || {
                    let mut call = ledger.call().timeout(self.attempt.length() / 6);
                    call.attempt_renew(attempt, self.attempt.ttl)
                });
                match renewed {
                    Ok(due) => attempt_due = due,
                    Err(refusal) => return self.lose(refusal),
                }
            }
        }
    }

    fn lose(&self, refusal: Refusal) -> io::Result<()> {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        self.lost.wake();
        Ok(())
    }
}

/// Sends one renewal; returns when the next one is due (K1). One whose answer came after the deadline moves nothing (K4).
#[expect(
    clippy::result_large_err,
    reason = "a refusal carries its evidence by value, as everywhere"
)]
fn renew<G>(kept: &Kept, deadline: Duration, send: impl FnOnce() -> Outcome<Granted<G>>) -> Result<Duration, Refusal> {
    let sent = boot_clock::now();
    match send() {
        Ok(Ok(_)) => {
            if boot_clock::now() < deadline {
                kept.accepted(sent);
            }
            Ok(sent + kept.length() / 3)
        }
        Ok(Err(refusal)) => Err(refusal),
        // Busy, failed or unknown: a renewal can be sent again, and the deadline does not wait for it.
        Err(_) => Ok(boot_clock::now() + (kept.length() / 12).max(Duration::from_millis(1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(actor_ms: u64, attempt_ms: u64, grace_ms: u64) -> Leases {
        let sent = Duration::from_millis(1_000_000);
        Leases::new(
            (Ttl::from_ms(actor_ms).unwrap(), sent),
            (Ttl::from_ms(attempt_ms).unwrap(), sent),
            Duration::from_millis(grace_ms),
        )
        .unwrap()
    }

    fn ms(time: Duration) -> u64 {
        as_ms(time) - 1_000_000
    }

    #[test]
    fn the_work_is_asked_at_the_grace_or_a_third_before_the_expiry() {
        assert_eq!(ms(leases(300_000, 900_000, 10_000).ask_at()), 290_000);
        assert_eq!(ms(leases(9_000, 900_000, 10_000).ask_at()), 6_000);
        assert_eq!(ms(leases(300_000, 6_000, 10_000).ask_at()), 4_000);
    }

    #[test]
    fn the_work_is_killed_before_the_earlier_expiry_and_never_before_it_was_asked() {
        let long = leases(300_000, 900_000, 10_000);
        assert_eq!((ms(long.kill_at()), ms(long.expiry())), (299_000, 300_000));
        let short = leases(600, 60_000, 10_000);
        assert_eq!((ms(short.kill_at()), ms(short.expiry())), (540, 600));
        let impatient = leases(600, 60_000, 0);
        assert_eq!(ms(impatient.kill_at()), ms(impatient.ask_at()));
        assert!(impatient.kill_at() <= impatient.expiry());
    }

    #[test]
    fn a_deadline_moves_with_what_was_accepted_and_never_back() {
        let leases = leases(1_000, 5_000, 10_000);
        leases.actor.accepted(Duration::from_millis(1_000_400));
        leases.actor.accepted(Duration::from_millis(1_000_300));
        assert_eq!(ms(leases.expiry()), 1_400);
    }
}
