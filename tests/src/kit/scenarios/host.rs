//! The host lease, clause by clause.

use keyfence_core::Reason;
use keyfence_core::host::{HostGrant, Proof, Register};
use keyfence_core::lease::{Released, Revoked};
use keyfence_core::store::Place;

use crate::kit::stage::{A, B, KIOSK_A, KIOSK_B, Stage, after, granted, minutes, name, never_issued, refused, revoked};

pub(in crate::kit) fn registering_a_free_host_wins(stage: &mut Stage<'_>) {
    let ask = stage.registration(KIOSK_A, A);
    let won = granted(stage.host_register(&ask));
    assert!(!won.renewed);
    assert_eq!(won.expires_at, stage.moment(1));
    assert_eq!((won.grant.name(), won.grant.process()), (&name(KIOSK_A), A));
    assert_eq!(stage.minted(), Some(won.grant.token()));
    let other = stage.registration(KIOSK_B, A);
    granted(stage.host_register(&other));
}

pub(in crate::kit) fn registering_again_renews_ones_own_live_lease(stage: &mut Stage<'_>) {
    let held = stage.register(KIOSK_A, A, 2);
    let events = stage.history().len();
    let ask = stage.registration(KIOSK_A, A);
    let shorter = granted(stage.host_register(&ask));
    assert_eq!(shorter.expires_at, stage.moment(2), "a renewal never shortens");
    stage.at_ms(2 * 60_000 - 1);
    let again = granted(stage.host_register(&ask));
    assert!(again.renewed);
    assert_eq!(again.grant, held);
    assert_eq!(again.expires_at.as_ms(), stage.moment(3).as_ms() - 1);
    assert_eq!(stage.minted(), Some(held.token()));
    assert_eq!(stage.history().len(), events, "a renewal leaves no event");
}

pub(in crate::kit) fn a_live_host_lease_refuses_another_process(stage: &mut Stage<'_>) {
    let held = stage.register(KIOSK_A, A, 1);
    stage.at_ms(60_000 - 1);
    let ask = stage.registration(KIOSK_A, B);
    let refusal = stage.unchanged(|stage| refused(stage.host_register(&ask), Reason::HostLeaseHeld));
    assert_eq!(refusal.held_token, Some(held.token()));
    assert_eq!(refusal.holder.and_then(|holder| holder.process), Some(A));
    assert_eq!(refusal.expires_at, Some(stage.moment(1)));
}

pub(in crate::kit) fn a_lapsed_host_lease_goes_to_whoever_registers_under_a_greater_token(stage: &mut Stage<'_>) {
    let first = stage.register(KIOSK_A, A, 1);
    stage.at(1);
    let second = stage.register(KIOSK_A, A, 1);
    assert_eq!(second.token(), after(first.token(), 1), "its own process too");
    stage.at(2);
    let third = stage.register(KIOSK_A, B, 1);
    assert_eq!(third.token(), after(second.token(), 1));
}

pub(in crate::kit) fn a_released_host_is_registered_at_once_under_a_greater_token(stage: &mut Stage<'_>) {
    let first = stage.register(KIOSK_A, A, 1);
    assert_eq!(granted(stage.host_release(&first)), Released::Now);
    let second = stage.register(KIOSK_A, A, 1);
    assert_eq!(second.token(), after(first.token(), 1));
}

pub(in crate::kit) fn a_bridge_shows_the_host_token_it_was_granted(stage: &mut Stage<'_>) {
    let bridge = |token| Register {
        host: name(KIOSK_A),
        process: A,
        proof: Proof::Bridge(token),
        ttl: minutes(1),
    };
    let first = granted(stage.host_register(&bridge(None))).grant;
    let again = granted(stage.host_register(&bridge(Some(first.token()))));
    assert!(again.renewed);
    assert_eq!(again.grant, first);
    // A second bridge for the same boot has no token, or a wrong one.
    stage.unchanged(|stage| refused(stage.host_register(&bridge(None)), Reason::HostLeaseHeld));
    let refusal = stage.refused_and_recorded(Reason::HostLeaseHeld, |stage| {
        stage.host_register(&bridge(Some(never_issued())))
    });
    assert!(refusal.never_issued);
    // The right token in the hands of another process is not enough.
    let other = Register {
        process: B,
        ..bridge(Some(first.token()))
    };
    let refusal = stage.refused_and_recorded(Reason::HostLeaseHeld, |stage| stage.host_register(&other));
    assert!(!refusal.never_issued);
    stage.at(1);
    let second = granted(stage.host_register(&bridge(Some(never_issued()))));
    assert_eq!(
        second.grant.token(),
        after(first.token(), 1),
        "a presented number is never adopted"
    );
}

pub(in crate::kit) fn a_host_lease_is_renewed_on_exact_process_and_token_while_live(stage: &mut Stage<'_>) {
    let old = stage.register(KIOSK_A, A, 1);
    stage.at(1);
    let held = stage.register(KIOSK_A, A, 1);
    for wrong in [
        HostGrant::presented(name(KIOSK_A), B, held.token()),
        HostGrant::presented(name(KIOSK_A), A, old.token()),
        HostGrant::presented(name(KIOSK_B), A, held.token()),
    ] {
        stage.refused_and_recorded(Reason::HostLeaseLost, |stage| stage.host_renew(&wrong, minutes(1)));
    }
    stage.at_ms(2 * 60_000 - 1);
    let renewed = granted(stage.host_renew(&held, minutes(1)));
    assert!(renewed.renewed);
    assert_eq!(renewed.grant, held);
    stage.at(3);
    stage.refused_and_recorded(Reason::HostLeaseLost, |stage| stage.host_renew(&held, minutes(1)));
}

pub(in crate::kit) fn a_host_is_released_on_exact_process_and_token(stage: &mut Stage<'_>) {
    let old = stage.register(KIOSK_A, A, 1);
    stage.at(1);
    let held = stage.register(KIOSK_A, A, 1);
    for wrong in [
        HostGrant::presented(name(KIOSK_A), B, held.token()),
        HostGrant::presented(name(KIOSK_A), A, old.token()),
        HostGrant::presented(name(KIOSK_B), A, held.token()),
    ] {
        let answer = stage.unchanged(|stage| stage.host_release(&wrong));
        assert_eq!(granted(answer), Released::NotHeld);
    }
    assert_eq!(granted(stage.host_release(&held)), Released::Now);
    let answer = stage.unchanged(|stage| stage.host_release(&held));
    assert_eq!(granted(answer), Released::Already);
    refused(stage.host_renew(&held, minutes(1)), Reason::HostLeaseLost);
    stage.register(KIOSK_A, B, 1);
    assert_eq!(granted(stage.host_release(&held)), Released::NotHeld);
}

pub(in crate::kit) fn a_revoked_host_lease_is_dead(stage: &mut Stage<'_>) {
    let held = stage.register(KIOSK_A, A, 1);
    let (holder, token) = revoked(stage.host_revoke(&name(KIOSK_A)));
    assert_eq!((holder.process, token), (Some(A), held.token()));
    assert_eq!(stage.seen(Place::Host, KIOSK_A).token, None);
    refused(stage.host_renew(&held, minutes(1)), Reason::HostLeaseLost);
    assert_eq!(granted(stage.host_revoke(&name(KIOSK_A))), Revoked::Nothing);
    stage.register(KIOSK_A, B, 1);
}
