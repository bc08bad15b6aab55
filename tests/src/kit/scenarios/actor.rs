//! The actor lease, clause by clause.

use keyfence_core::Reason;
use keyfence_core::actor::{Acquire, ActorGrant};
use keyfence_core::lease::{Released, Revoked};
use keyfence_core::store::Place;

use crate::kit::stage::{A, B, COURSE, OTHER, Stage, after, granted, minutes, name, refused, revoked};

pub(in crate::kit) fn acquiring_a_free_actor_wins(stage: &mut Stage<'_>) {
    let ask = stage.acquire(A);
    let won = granted(stage.actor_acquire(&ask));
    assert!(!won.renewed);
    assert_eq!(won.expires_at, stage.moment(5));
    assert_eq!(won.grant.process(), A);
    assert_eq!(won.grant.name(), &name(COURSE));
    assert_eq!(stage.minted(), Some(won.grant.token()));
    let row = stage.seen(Place::Actor, COURSE);
    assert_eq!((row.process, row.token), (Some(A), Some(won.grant.token())));
    assert_eq!(row.expires_at, Some(stage.moment(5)));
}

pub(in crate::kit) fn a_live_actor_lease_refuses_everyone_its_holder_too(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    for process in [A, B] {
        stage.at_ms(5 * 60_000 - 1);
        let ask = stage.acquire(process);
        let refusal = stage.unchanged(|stage| refused(stage.actor_acquire(&ask), Reason::ActorLeaseHeld));
        let holder = refusal.holder.expect("who holds it");
        assert_eq!((holder.name, holder.process), (name(COURSE), Some(A)));
        assert_eq!(refusal.held_token, Some(held.token()));
        assert_eq!(refusal.since, Some(stage.moment(0)));
        assert_eq!(refusal.expires_at, Some(stage.moment(5)));
    }
}

pub(in crate::kit) fn a_lapsed_actor_lease_goes_to_whoever_acquires_under_a_greater_token(stage: &mut Stage<'_>) {
    let first = stage.lease(A);
    stage.at(5);
    let second = stage.lease(B);
    assert!(second.token() > first.token());
    stage.at(10);
    let third = stage.lease(B);
    assert!(third.token() > second.token(), "the old holder mints anew too");
    refused(stage.actor_renew(&second, minutes(5)), Reason::ActorLeaseLost);
}

pub(in crate::kit) fn two_actors_do_not_stand_in_each_others_way(stage: &mut Stage<'_>) {
    stage.lease(A);
    let ask = Acquire {
        actor: name(OTHER),
        ..stage.acquire(A)
    };
    granted(stage.actor_acquire(&ask));
}

pub(in crate::kit) fn acquire_or_renew_keeps_the_callers_own_live_lease(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    stage.at(3);
    let ask = stage.acquire(A);
    let events = stage.history().len();
    let again = granted(stage.actor_acquire_or_renew(&ask));
    assert!(again.renewed);
    assert_eq!(again.grant, held);
    assert_eq!(again.expires_at, stage.moment(8));
    assert_eq!(stage.minted(), Some(held.token()));
    assert_eq!(stage.history().len(), events, "a renewal leaves no event");
    assert_eq!(stage.seen(Place::Actor, COURSE).expires_at, Some(stage.moment(8)));
}

pub(in crate::kit) fn acquire_or_renew_refuses_on_anothers_live_lease(stage: &mut Stage<'_>) {
    stage.lease(A);
    let ask = stage.acquire(B);
    stage.unchanged(|stage| refused(stage.actor_acquire_or_renew(&ask), Reason::ActorLeaseHeld));
}

pub(in crate::kit) fn acquire_or_renew_mints_anew_once_the_lease_lapsed(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    stage.at(5);
    let ask = stage.acquire(A);
    let again = granted(stage.actor_acquire_or_renew(&ask));
    assert!(!again.renewed);
    assert!(again.grant.token() > held.token());
}

pub(in crate::kit) fn renewing_an_actor_lease_keeps_its_token_and_moves_its_expiry(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    stage.at_ms(5 * 60_000 - 1);
    let renewed = granted(stage.actor_renew(&held, minutes(5)));
    assert!(renewed.renewed);
    assert_eq!(renewed.grant, held);
    assert_eq!(renewed.expires_at.as_ms(), stage.moment(10).as_ms() - 1);
    assert_eq!(stage.minted(), Some(held.token()));
    stage.at(9);
    let ask = stage.acquire(B);
    refused(stage.actor_acquire(&ask), Reason::ActorLeaseHeld);
}

pub(in crate::kit) fn a_renewal_never_shortens_an_actor_lease(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    let renewed = granted(stage.actor_renew(&held, minutes(1)));
    assert_eq!(renewed.expires_at, stage.moment(5));
    let ask = Acquire {
        ttl: minutes(1),
        ..stage.acquire(A)
    };
    let again = granted(stage.actor_acquire_or_renew(&ask));
    assert_eq!(again.expires_at, stage.moment(5));
    assert_eq!(stage.seen(Place::Actor, COURSE).expires_at, Some(stage.moment(5)));
}

pub(in crate::kit) fn another_process_cannot_renew_an_actor_lease(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    let wrong = ActorGrant::presented(name(COURSE), B, held.token());
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&wrong, minutes(5)));
}

pub(in crate::kit) fn another_token_cannot_renew_an_actor_lease(stage: &mut Stage<'_>) {
    let first = stage.lease(A);
    stage.at(5);
    let second = stage.lease(A);
    let refusal = stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&first, minutes(5)));
    assert_eq!(refusal.held_token, Some(second.token()));
    assert!(!refusal.never_issued);
}

pub(in crate::kit) fn a_lapsed_actor_lease_cannot_be_renewed(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    stage.at(5);
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&held, minutes(5)));
}

pub(in crate::kit) fn a_lease_that_nobody_holds_cannot_be_renewed(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    assert_eq!(granted(stage.actor_release(&held)), Released::Now);
    let refusal = stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&held, minutes(5)));
    assert_eq!(refusal.holder, None);
    let absent = ActorGrant::presented(name(OTHER), A, held.token());
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&absent, minutes(5)));
}

pub(in crate::kit) fn a_released_actor_is_acquired_at_once_under_a_greater_token(stage: &mut Stage<'_>) {
    let first = stage.lease(A);
    assert_eq!(granted(stage.actor_release(&first)), Released::Now);
    let second = stage.lease(B);
    assert_eq!(second.token(), after(first.token(), 1));
}

pub(in crate::kit) fn another_process_cannot_release_an_actor(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    let wrong = ActorGrant::presented(name(COURSE), B, held.token());
    let answer = stage.unchanged(|stage| stage.actor_release(&wrong));
    assert_eq!(granted(answer), Released::NotHeld);
}

pub(in crate::kit) fn another_token_cannot_release_an_actor(stage: &mut Stage<'_>) {
    let first = stage.lease(A);
    stage.at(5);
    let second = stage.lease(A);
    let answer = stage.unchanged(|stage| stage.actor_release(&first));
    assert_eq!(granted(answer), Released::NotHeld);
    granted(stage.actor_renew(&second, minutes(5)));
}

pub(in crate::kit) fn releasing_an_actor_nobody_ever_held_changes_nothing(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    let absent = ActorGrant::presented(name(OTHER), A, held.token());
    let answer = stage.unchanged(|stage| stage.actor_release(&absent));
    assert_eq!(granted(answer), Released::NotHeld);
}

pub(in crate::kit) fn a_lapsed_actor_lease_that_nobody_took_is_still_released(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    stage.at(9);
    assert_eq!(granted(stage.actor_release(&held)), Released::Now);
    assert_eq!(stage.seen(Place::Actor, COURSE).token, None);
}

pub(in crate::kit) fn a_repeated_release_of_an_actor_is_recognised_until_a_newer_claim(stage: &mut Stage<'_>) {
    let first = stage.lease(A);
    assert_eq!(granted(stage.actor_release(&first)), Released::Now);
    let answer = stage.unchanged(|stage| stage.actor_release(&first));
    assert_eq!(granted(answer), Released::Already);
    for wrong in [
        ActorGrant::presented(name(COURSE), B, first.token()),
        ActorGrant::presented(name(COURSE), A, after(first.token(), 1)),
    ] {
        let answer = stage.unchanged(|stage| stage.actor_release(&wrong));
        assert_eq!(granted(answer), Released::NotHeld, "only its own release is recognised");
    }
    stage.lease(B);
    let answer = stage.unchanged(|stage| stage.actor_release(&first));
    assert_eq!(granted(answer), Released::NotHeld);
}

pub(in crate::kit) fn a_revoked_actor_lease_is_dead(stage: &mut Stage<'_>) {
    let held = stage.lease(A);
    let (holder, token) = revoked(stage.actor_revoke(&name(COURSE)));
    assert_eq!((holder.name, holder.process), (name(COURSE), Some(A)));
    assert_eq!(token, held.token());
    refused(stage.actor_renew(&held, minutes(5)), Reason::ActorLeaseLost);
    let answer = stage.unchanged(|stage| stage.actor_release(&held));
    assert_eq!(
        granted(answer),
        Released::NotHeld,
        "a revocation is not a release of one's own"
    );
    let again = stage.unchanged(|stage| stage.actor_revoke(&name(COURSE)));
    assert_eq!(granted(again), Revoked::Nothing);
    let absent = stage.unchanged(|stage| stage.actor_revoke(&name(OTHER)));
    assert_eq!(granted(absent), Revoked::Nothing);
    assert_eq!(stage.lease(B).token(), after(held.token(), 1));
}
