//! The session, clause by clause; the incarnation above all.

use keyfence_core::attempt::Done;
use keyfence_core::host::HostGrant;
use keyfence_core::lease::{Released, Revoked};
use keyfence_core::session::{ClaimSession, SessionGrant};
use keyfence_core::store::Place;
use keyfence_core::{Incarnation, Reason};

use crate::kit::stage::{
    A, B, JOB, KIOSK_A, KIOSK_B, Stage, after, done, granted, last_incarnation, minutes, mixed, name, never_issued,
    refused, revoked,
};

pub(in crate::kit) fn a_new_session_is_claimed_as_incarnation_1(stage: &mut Stage<'_>) {
    let host = stage.register(KIOSK_A, A, 10);
    let won = granted(stage.hold(&host, 1));
    assert!(!won.renewed);
    assert_eq!(won.expires_at, stage.moment(1));
    assert_eq!(won.grant.incarnation(), Incarnation::FIRST);
    assert_eq!(won.grant.token(), after(host.token(), 1));
    let generation = won.grant.generation();
    assert_eq!(
        (&generation.host, generation.host_token),
        (&name(KIOSK_A), host.token())
    );
    let row = stage.seen(Place::Session, JOB);
    assert_eq!((row.state, row.process), ("CLAIMED", Some(A)));
    assert_eq!(
        (row.token, row.incarnation),
        (Some(won.grant.token()), Some(Incarnation::FIRST))
    );
}

pub(in crate::kit) fn the_same_host_lease_keeps_incarnation_and_token(stage: &mut Stage<'_>) {
    let host = stage.register(KIOSK_A, A, 10);
    let first = stage.held(&host, 2, 1);
    let events = stage.history().len();
    let shorter = granted(stage.hold(&host, 1));
    assert_eq!(shorter.expires_at, stage.moment(2), "a renewal never shortens");
    stage.at_ms(2 * 60_000 - 1);
    let again = granted(stage.hold(&host, 2));
    assert!(again.renewed);
    assert_eq!(again.grant, first);
    assert_eq!(again.expires_at.as_ms(), stage.moment(4).as_ms() - 1);
    assert_eq!(stage.minted(), Some(first.token()));
    assert_eq!(stage.history().len(), events, "a renewal leaves no event");
    stage.at(3);
    let other = stage.register(KIOSK_B, B, 10);
    refused(stage.hold(&other, 1), Reason::SessionHeld);
}

/// A claim by a host whose lease is not the current one is refused.
#[track_caller]
fn no_claim_by(stage: &mut Stage<'_>, host: &HostGrant) {
    stage.refused_and_recorded(Reason::HostLeaseLost, |stage| stage.hold(host, 1));
    assert_eq!(stage.row(Place::Session, &name(JOB)), Ok(None));
}

pub(in crate::kit) fn a_session_is_claimed_under_the_hosts_live_and_current_lease(stage: &mut Stage<'_>) {
    let old = stage.register(KIOSK_A, A, 1);
    stage.at(1);
    no_claim_by(stage, &old);
    let host = stage.register(KIOSK_A, A, 1);
    no_claim_by(stage, &old);
    no_claim_by(stage, &HostGrant::presented(name(KIOSK_A), B, host.token()));
    no_claim_by(stage, &HostGrant::presented(name(KIOSK_B), A, host.token()));
    no_claim_by(stage, &HostGrant::presented(name(KIOSK_A), A, never_issued()));
    assert_eq!(granted(stage.host_release(&host)), Released::Now);
    no_claim_by(stage, &host);
}

pub(in crate::kit) fn a_live_session_refuses_another_host(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 10);
    let b = stage.register(KIOSK_B, B, 10);
    let held = stage.held(&a, 1, 1);
    stage.at_ms(60_000 - 1);
    let refusal = stage.unchanged(|stage| refused(stage.hold(&b, 1), Reason::SessionHeld));
    let holder = refusal.holder.expect("who holds it");
    assert_eq!((holder.name, holder.process), (name(KIOSK_A), Some(A)));
    assert_eq!(refusal.held_token, Some(held.token()));
    assert_eq!(refusal.expires_at, Some(stage.moment(1)));
}

pub(in crate::kit) fn a_lapsed_session_is_claimed_as_the_next_incarnation(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 10);
    let first = stage.held(&a, 1, 1);
    stage.at(1);
    let second = stage.held(&a, 1, 2);
    assert!(second.token() > first.token(), "its own host too");
    stage.at(2);
    let b = stage.register(KIOSK_B, B, 10);
    let third = stage.held(&b, 1, 3);
    assert!(third.token() > second.token());
}

pub(in crate::kit) fn a_session_whose_host_lapsed_is_claimed_as_the_next_incarnation(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 1);
    stage.held(&a, 60, 1);
    stage.at(1);
    let b = stage.register(KIOSK_B, B, 10);
    stage.held(&b, 60, 2);
}

pub(in crate::kit) fn a_session_whose_host_registered_anew_is_claimed_as_the_next_incarnation(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 10);
    stage.held(&a, 60, 1);
    assert_eq!(granted(stage.host_release(&a)), Released::Now);
    let again = stage.register(KIOSK_A, A, 10);
    stage.held(&again, 60, 2);
}

pub(in crate::kit) fn a_finished_session_cannot_be_claimed(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 10);
    let held = stage.held(&a, 1, 1);
    done(stage.session_finish(&held, "result"));
    assert_eq!(stage.seen(Place::Session, JOB).state, "FINISHED");
    stage.unchanged(|stage| refused(stage.hold(&a, 1), Reason::SessionFinished));
}

// ---- release

pub(in crate::kit) fn a_released_session_is_claimed_at_once_as_the_next_incarnation(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 10);
    let b = stage.register(KIOSK_B, B, 10);
    let first = stage.held(&a, 5, 1);
    assert_eq!(granted(stage.session_release(&first)), Released::Now);
    let second = stage.held(&b, 5, 2);
    assert!(second.token() > first.token());
}

pub(in crate::kit) fn a_session_is_released_on_exactly_its_own_generation(stage: &mut Stage<'_>) {
    let (_, first, third) = third_act(stage);
    let absent = SessionGrant::presented(name("nothing"), third.generation().clone());
    let mixtures = [
        mixed(&third, |generation| generation.host = name(KIOSK_B)),
        mixed(&third, |generation| generation.incarnation = first.incarnation()),
        mixed(&third, |generation| generation.token = first.token()),
        mixed(&third, |generation| {
            generation.host_token = first.generation().host_token
        }),
        first,
        absent,
    ];
    for wrong in mixtures {
        let answer = stage.unchanged(|stage| stage.session_release(&wrong));
        assert_eq!(granted(answer), Released::NotHeld, "{wrong:?}");
    }
    assert_eq!(granted(stage.session_release(&third)), Released::Now);
}

pub(in crate::kit) fn a_session_whose_host_lease_is_gone_is_not_released(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 10);
    let held = stage.held(&a, 5, 1);
    assert_eq!(granted(stage.host_release(&a)), Released::Now);
    let answer = stage.unchanged(|stage| stage.session_release(&held));
    assert_eq!(granted(answer), Released::NotHeld);
}

pub(in crate::kit) fn a_repeated_release_of_a_session_is_recognised_until_a_newer_claim(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 10);
    let held = stage.held(&a, 5, 1);
    assert_eq!(granted(stage.session_release(&held)), Released::Now);
    let other = mixed(&held, |generation| generation.token = a.token());
    assert_eq!(granted(stage.session_release(&other)), Released::NotHeld);
    assert_eq!(granted(stage.host_release(&a)), Released::Now);
    let answer = stage.unchanged(|stage| stage.session_release(&held));
    assert_eq!(granted(answer), Released::Already, "before every other clause");
    let b = stage.register(KIOSK_B, B, 10);
    stage.held(&b, 5, 2);
    assert_eq!(granted(stage.session_release(&held)), Released::NotHeld);
}

pub(in crate::kit) fn a_revoked_session_is_dead_and_the_next_claim_is_the_next_incarnation(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 10);
    assert_eq!(granted(stage.session_revoke(&name(JOB))), Revoked::Nothing);
    let held = stage.held(&a, 5, 1);
    let (holder, token) = revoked(stage.session_revoke(&name(JOB)));
    assert_eq!((holder.name, token), (name(KIOSK_A), held.token()));
    refused(stage.session_finish(&held, ""), Reason::SessionClaimStale);
    assert_eq!(granted(stage.session_release(&held)), Released::NotHeld);
    assert_eq!(granted(stage.session_revoke(&name(JOB))), Revoked::Nothing);
    stage.held(&a, 5, 2);
}

// ---- finish, clause by clause

/// A(1), B(2), A(3), all long-lived hosts: the first host's lease, its grants of generation 1 and of generation 3.
fn third_act(stage: &mut Stage<'_>) -> (HostGrant, SessionGrant, SessionGrant) {
    let a1 = stage.register(KIOSK_A, A, 2);
    let first = stage.held(&a1, 1, 1);
    stage.at(2);
    let b = stage.register(KIOSK_B, B, 60);
    stage.held(&b, 1, 2);
    stage.at(3);
    let a3 = stage.register(KIOSK_A, A, 60);
    let third = stage.held(&a3, 30, 3);
    (a3, first, third)
}

/// The finish is refused as stale, leaves the claim as it was, and the right grant still finishes afterwards.
#[track_caller]
fn cannot_finish(stage: &mut Stage<'_>, wrong: &SessionGrant, right: &SessionGrant) {
    let refusal = stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(wrong, "result"));
    assert_eq!(refusal.held_token, Some(right.token()));
    done(stage.session_finish(right, "result"));
    assert_eq!(stage.seen(Place::Session, JOB).incarnation, Some(right.incarnation()));
}

pub(in crate::kit) fn the_current_generation_finishes(stage: &mut Stage<'_>) {
    let (_, _, third) = third_act(stage);
    done(stage.session_finish(&third, "result"));
    let row = stage.seen(Place::Session, JOB);
    assert_eq!((row.state, row.incarnation), ("FINISHED", Some(third.incarnation())));
}

pub(in crate::kit) fn the_callback_of_generation_1_is_refused_in_generation_3(stage: &mut Stage<'_>) {
    let (_, first, third) = third_act(stage);
    assert_eq!(first.generation().host, third.generation().host);
    cannot_finish(stage, &first, &third);
}

pub(in crate::kit) fn another_host_cannot_finish(stage: &mut Stage<'_>) {
    let (_, _, third) = third_act(stage);
    let wrong = mixed(&third, |generation| generation.host = name(KIOSK_B));
    cannot_finish(stage, &wrong, &third);
}

pub(in crate::kit) fn an_old_incarnation_cannot_finish_even_with_the_current_tokens(stage: &mut Stage<'_>) {
    let (_, first, third) = third_act(stage);
    let wrong = mixed(&third, |generation| generation.incarnation = first.incarnation());
    cannot_finish(stage, &wrong, &third);
}

pub(in crate::kit) fn an_old_token_cannot_finish_even_as_the_current_incarnation(stage: &mut Stage<'_>) {
    let (_, first, third) = third_act(stage);
    let wrong = mixed(&third, |generation| generation.token = first.token());
    cannot_finish(stage, &wrong, &third);
}

pub(in crate::kit) fn an_old_host_token_cannot_finish_even_with_the_rest_right(stage: &mut Stage<'_>) {
    let (_, first, third) = third_act(stage);
    let wrong = mixed(&third, |generation| {
        generation.host_token = first.generation().host_token
    });
    cannot_finish(stage, &wrong, &third);
}

pub(in crate::kit) fn a_generation_whose_host_registered_anew_cannot_finish(stage: &mut Stage<'_>) {
    let (host, _, third) = third_act(stage);
    assert_eq!(granted(stage.host_release(&host)), Released::Now);
    stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&third, ""));
    stage.register(KIOSK_A, A, 60);
    stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&third, ""));
}

pub(in crate::kit) fn an_expired_session_cannot_finish_without_a_takeover(stage: &mut Stage<'_>) {
    let (_, _, third) = third_act(stage);
    stage.at(33);
    stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&third, ""));
    stage.at_ms(33 * 60_000 - 1);
    assert_eq!(
        granted(stage.session_finish(&third, "")),
        Done::Now,
        "until its last millisecond it can"
    );
}

pub(in crate::kit) fn a_session_cannot_finish_once_its_hosts_lease_lapsed(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 10);
    let held = stage.held(&a, 60, 1);
    stage.at(10);
    stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&held, ""));
    stage.at_ms(10 * 60_000 - 1);
    assert_eq!(
        granted(stage.session_finish(&held, "")),
        Done::Now,
        "until its last millisecond it can"
    );
}

pub(in crate::kit) fn a_session_nobody_holds_cannot_finish(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 10);
    let held = stage.held(&a, 5, 1);
    assert_eq!(granted(stage.session_release(&held)), Released::Now);
    let refusal = stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&held, ""));
    assert_eq!(refusal.holder, None);
    let absent = SessionGrant::presented(name("nothing"), held.generation().clone());
    stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&absent, ""));
    assert_eq!(stage.row(Place::Session, &name("nothing")), Ok(None));
}

pub(in crate::kit) fn a_repeated_finish_of_a_session_is_recognised_before_every_other_clause(stage: &mut Stage<'_>) {
    let (host, first, third) = third_act(stage);
    done(stage.session_finish(&third, "result"));
    assert_eq!(granted(stage.host_release(&host)), Released::Now);
    stage.at(90);
    let answer = stage.unchanged(|stage| stage.session_finish(&third, "result"));
    assert_eq!(granted(answer), Done::Already);
    stage.refused_and_recorded(Reason::SessionClaimStale, |stage| {
        stage.session_finish(&third, "another")
    });
    let mixtures = [
        mixed(&third, |generation| generation.host = name(KIOSK_B)),
        mixed(&third, |generation| generation.incarnation = first.incarnation()),
        mixed(&third, |generation| generation.token = first.token()),
        mixed(&third, |generation| {
            generation.host_token = first.generation().host_token
        }),
    ];
    for wrong in mixtures {
        stage.refused_and_recorded(Reason::SessionClaimStale, |stage| {
            stage.session_finish(&wrong, "result")
        });
    }
}

// ---- the floor and the end of the incarnations

pub(in crate::kit) fn a_new_session_starts_above_the_floor(stage: &mut Stage<'_>) {
    let floor = Incarnation::presented(1_000_000).expect("in range");
    stage.raise_incarnations(floor);
    let a = stage.register(KIOSK_A, A, 10);
    stage.held(&a, 5, 1_000_001);
}

pub(in crate::kit) fn an_incarnation_at_the_end_of_its_range_is_not_followed(stage: &mut Stage<'_>) {
    let floor = Incarnation::presented(last_incarnation().get() - 1).expect("in range");
    stage.raise_incarnations(floor);
    let a = stage.register(KIOSK_A, A, 10);
    let last = stage.held(&a, 5, last_incarnation().get());
    assert_eq!(granted(stage.session_release(&last)), Released::Now);
    stage.unchanged(|stage| refused(stage.hold(&a, 5), Reason::IncarnationExhausted));
    let other = ClaimSession {
        session: name("another"),
        host: a,
        ttl: minutes(1),
    };
    granted(stage.session_claim(&other));
}

pub(in crate::kit) fn a_refusal_says_until_when_the_claim_was_live_under_its_host(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 2);
    let b = stage.register(KIOSK_B, B, 60);
    let held = stage.held(&a, 10, 1);
    let refusal = refused(stage.hold(&b, 1), Reason::SessionHeld);
    assert_eq!(refusal.expires_at, Some(stage.moment(2)), "with its host's lease");
    stage.at(3);
    let refusal = refused(stage.session_finish(&held, ""), Reason::SessionClaimStale);
    assert_eq!(refusal.expires_at, Some(stage.moment(2)));
    stage.register(KIOSK_A, A, 60);
    let refusal = refused(stage.session_finish(&held, ""), Reason::SessionClaimStale);
    assert_eq!(refusal.expires_at, None, "its host's lease is another one");
    let second = stage.held(&b, 1, 2);
    stage.at(5);
    let refusal = refused(stage.session_finish(&second, ""), Reason::SessionClaimStale);
    assert_eq!(refusal.expires_at, Some(stage.moment(4)), "by its own lease");
}
