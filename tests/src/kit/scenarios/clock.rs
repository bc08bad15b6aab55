//! Clocks that jump, and claims of earlier boots.

use keyfence_core::Reason;
use keyfence_core::attempt::{CloseLost, Done};

use crate::kit::stage::{A, B, JOB, KIOSK_A, KIOSK_B, Stage, done, granted, minutes, name, refused, revoked};

pub(in crate::kit) fn a_clock_that_jumps_back_delays_a_takeover_and_no_more(stage: &mut Stage<'_>) {
    stage.send_job();
    let lease = stage.lease(A);
    let host = stage.register(KIOSK_A, A, 1);
    let message = stage.claimed(A);
    stage.at_ms(-3_600_000);
    let ask = stage.acquire(B);
    refused(stage.actor_acquire(&ask), Reason::ActorLeaseHeld);
    refused(stage.claim(B), Reason::MessageHeld);
    let other = stage.registration(KIOSK_A, B);
    refused(stage.host_register(&other), Reason::HostLeaseHeld);
    // A renewal at an earlier hour still never shortens.
    assert_eq!(
        granted(stage.actor_renew(&lease, minutes(5))).expires_at,
        stage.moment(5)
    );
    assert_eq!(
        granted(stage.mailbox_extend(&message, minutes(5))).expires_at,
        stage.moment(15)
    );
    assert_eq!(granted(stage.host_renew(&host, minutes(1))).expires_at, stage.moment(1));
    done(stage.mailbox_complete(&message, ""));
}

pub(in crate::kit) fn a_clock_that_jumps_ahead_hastens_a_takeover_and_no_more(stage: &mut Stage<'_>) {
    stage.send_job();
    let (_, attempt) = stage.working(A);
    let message = stage.claimed(A);
    stage.at(1_000_000);
    let lease = stage.lease(B);
    let newer_attempt = stage.attempt(&lease, 2);
    let newer = stage.claimed(B);
    // Back again: the first holders' leases would be live by the clock, and their tokens are dead all the same.
    stage.at(1);
    stage.refused_and_recorded(Reason::FencingTokenStale, |stage| stage.mailbox_complete(&message, ""));
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&attempt));
    done(stage.mailbox_complete(&newer, ""));
    done(stage.finish(&newer_attempt));
}

pub(in crate::kit) fn tokens_and_incarnations_grow_while_the_clock_runs_backwards(stage: &mut Stage<'_>) {
    let mut last = None;
    for turn in 0..4 {
        stage.at(100 - 20 * turn);
        let a = stage.register(KIOSK_A, A, 1);
        let held = stage.held(&a, 1, turn + 1);
        assert!(Some(a.token()) > last && held.token() > a.token());
        last = Some(held.token());
        revoked(stage.session_revoke(&name(JOB)));
        revoked(stage.host_revoke(&name(KIOSK_A)));
    }
}

pub(in crate::kit) fn an_expiry_beyond_the_last_moment_is_the_last_moment(stage: &mut Stage<'_>) {
    let last = keyfence_core::TimeMs::MAX;
    stage.set_now(last);
    let ask = stage.acquire(A);
    let won = granted(stage.actor_acquire(&ask));
    assert_eq!(won.expires_at, last);
    stage.at(0);
    refused(stage.actor_acquire(&ask), Reason::ActorLeaseHeld);
}

// ---- after a power-up that cannot tell how long it was dark

pub(in crate::kit) fn after_a_reboot_every_earlier_lease_has_lapsed(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    let host = stage.register(KIOSK_A, A, 600);
    let session = stage.held(&host, 600, 1);
    let other = stage.register(KIOSK_B, B, 600);
    stage.reboot();
    refused(stage.actor_renew(&lease, minutes(5)), Reason::ActorLeaseLost);
    refused(stage.attempt_renew(&attempt, minutes(5)), Reason::ActorLeaseLost);
    refused(stage.host_renew(&host, minutes(5)), Reason::HostLeaseLost);
    refused(stage.hold(&host, 1), Reason::HostLeaseLost);
    let refusal = stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&session, ""));
    assert_eq!(
        (refusal.since, refusal.expires_at),
        (None, None),
        "times of another boot say nothing"
    );
    assert_eq!(granted(stage.finish(&attempt)), Done::Now, "while nobody superseded it");
    let newer = stage.lease(B);
    assert!(newer.token() > other.token());
    let again = stage.register(KIOSK_A, A, 1);
    stage.held(&again, 1, 2);
}

pub(in crate::kit) fn after_a_reboot_an_attempt_is_not_live(stage: &mut Stage<'_>) {
    stage.working(A);
    stage.reboot();
    assert_eq!(granted(stage.attempt_close_lost(&name(JOB))), CloseLost::Closed);
}
