//! The one counter: shared, strictly increasing, never burnt by a refusal, never wrapping, never told what it is.

use keyfence_core::actor::{Acquire, ActorGrant};
use keyfence_core::attempt::{self, AttemptGrant};
use keyfence_core::host::HostGrant;
use keyfence_core::lease::Released;
use keyfence_core::mailbox::{Claim, MessageGrant};
use keyfence_core::store::Place;
use keyfence_core::token::MAX_NUMBER;
use keyfence_core::{Reason, Token};

use crate::kit::stage::{
    A, B, COURSE, Evidence, JOB, KIOSK_A, KIOSK_B, OTHER, Stage, after, attempt_id, done, granted, minutes, mixed,
    name, never_issued, refused,
};

pub(in crate::kit) fn claims_of_every_kind_draw_from_one_counter(stage: &mut Stage<'_>) {
    stage.send_job();
    let (lease, attempt) = stage.working(A);
    let message = stage.claimed(A);
    let host = stage.register(KIOSK_A, A, 10);
    let session = stage.held(&host, 5, 1);
    let own = granted(stage.mint(&name("till")));
    let tokens = [
        lease.token(),
        attempt.token(),
        message.token(),
        host.token(),
        session.token(),
        own,
    ];
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert_eq!(stage.minted(), Some(own));
}

pub(in crate::kit) fn the_counter_survives_the_end_of_every_claim(stage: &mut Stage<'_>) {
    let lease = stage.lease(A);
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    stage.send_job();
    let message = stage.claimed(A);
    done(stage.mailbox_complete(&message, ""));
    stage.prune();
    let next = stage.lease(A);
    assert_eq!(next.token(), after(message.token(), 1));
}

/// Every claim there is, refused for this reason, and nothing written.
fn every_claim_is_refused(stage: &mut Stage<'_>, lease: &ActorGrant, host: &HostGrant, reason: Reason) {
    let acquire = Acquire {
        actor: name(OTHER),
        ..stage.acquire(A)
    };
    let register = stage.registration(KIOSK_B, B);
    let attempt = stage.try_job(lease, 1);
    let next = stage.next(A);
    stage.unchanged(|stage| {
        refused(stage.mint(&name("till")), reason);
        refused(stage.actor_acquire(&acquire), reason);
        refused(stage.actor_acquire_or_renew(&acquire), reason);
        refused(stage.attempt_acquire(&attempt), reason);
        refused(stage.claim(A), reason);
        refused(stage.mailbox_claim_next(&next, 8), reason);
        refused(stage.host_register(&register), reason);
        refused(stage.hold(host, 1), reason);
    });
}

pub(in crate::kit) fn at_the_end_of_its_range_the_counter_refuses_every_claim(stage: &mut Stage<'_>) {
    let lease = stage.lease(A);
    let host = stage.register(KIOSK_A, A, 60);
    stage.assign(JOB, COURSE);
    stage.send_job();
    let last_but_one = Token::presented(MAX_NUMBER - 1).expect("in range");
    stage.lift_counter(last_but_one);
    let last = granted(stage.mint(&name("till")));
    assert_eq!(last, never_issued(), "the last number is minted");
    for _ in 0..2 {
        every_claim_is_refused(stage, &lease, &host, Reason::TokenExhausted);
    }
    // What needs no new token goes on.
    granted(stage.actor_renew(&lease, minutes(60)));
    granted(stage.host_renew(&host, minutes(60)));
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    assert_eq!(stage.minted(), Some(last));
}

pub(in crate::kit) fn the_last_tokens_are_handed_out_before_the_counter_refuses(stage: &mut Stage<'_>) {
    for id in ["one", "two", "three"] {
        let letter = stage.letter(id);
        stage.send(&letter);
    }
    stage.lift_counter(Token::presented(MAX_NUMBER - 2).expect("in range"));
    let ask = stage.next(A);
    assert_eq!(granted(stage.mailbox_claim_next(&ask, 3)).len(), 2);
    assert_eq!(stage.seen(Place::Message, "three").state, "NEW");
    refused(stage.mailbox_claim_next(&ask, 3), Reason::TokenExhausted);
}

pub(in crate::kit) fn the_counter_is_lifted_and_never_lowered(stage: &mut Stage<'_>) {
    let floor = Token::presented(1 << 40).expect("in range");
    stage.lift_counter(floor);
    assert_eq!(stage.lease(A).token(), after(floor, 1));
    stage.lift_counter(Token::FIRST);
    stage.at(5);
    assert_eq!(stage.lease(A).token(), after(floor, 2));
}

/// A number that was never issued here was refused, and said to be one.
#[track_caller]
fn made_up(refusal: &Evidence) {
    assert!(refusal.never_issued, "{refusal:?}");
}

pub(in crate::kit) fn a_number_that_was_never_issued_is_refused_and_never_adopted(stage: &mut Stage<'_>) {
    let token = never_issued();
    // On a ledger that minted nothing.
    let lease = ActorGrant::presented(name(COURSE), A, token);
    made_up(&stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&lease, minutes(5))));
    // And on rows that are there.
    let (own, attempt) = stage.working(A);
    stage.send_job();
    stage.claimed(A);
    let host = stage.register(KIOSK_A, A, 60);
    let session = stage.held(&host, 30, 1);
    let minted = stage.minted();

    made_up(&stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&lease, minutes(5))));
    let ask = attempt::Acquire {
        lease_token: token,
        ..stage.try_job(&own, 2)
    };
    made_up(&stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.attempt_acquire(&ask)));
    let wrong = AttemptGrant::presented(name(JOB), attempt.attempt(), token);
    made_up(&stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&wrong)));
    made_up(&stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| {
        stage.attempt_renew(&wrong, minutes(5))
    }));
    let absent = AttemptGrant::presented(name("nothing"), attempt_id(1), token);
    made_up(&stage.refused_and_recorded(Reason::AssignmentMissing, |stage| stage.finish(&absent)));

    let wrong = MessageGrant::presented(name(JOB), name(COURSE), Some(A), token);
    let stale = Reason::FencingTokenStale;
    made_up(&stage.refused_and_recorded(stale, |stage| stage.mailbox_complete(&wrong, "")));
    made_up(&stage.refused_and_recorded(stale, |stage| stage.mailbox_retry(&wrong, None, "")));
    made_up(&stage.refused_and_recorded(stale, |stage| stage.mailbox_give_back(&wrong)));
    made_up(&stage.refused_and_recorded(stale, |stage| stage.mailbox_dead_letter(&wrong, "")));
    made_up(&stage.refused_and_recorded(stale, |stage| stage.mailbox_extend(&wrong, minutes(5))));
    let absent = MessageGrant::presented(name("nothing"), name(COURSE), Some(A), token);
    made_up(&stage.refused_and_recorded(Reason::MessageMissing, |stage| stage.mailbox_complete(&absent, "")));
    let ask = Claim {
        lease_token: Some(token),
        ..stage.ask(B)
    };
    made_up(&stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.mailbox_claim(&ask)));

    let wrong = HostGrant::presented(name(KIOSK_A), A, token);
    made_up(&stage.refused_and_recorded(Reason::HostLeaseLost, |stage| stage.host_renew(&wrong, minutes(5))));
    made_up(&stage.refused_and_recorded(Reason::HostLeaseLost, |stage| stage.hold(&wrong, 5)));
    let wrong = mixed(&session, |generation| generation.token = token);
    made_up(&stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&wrong, "")));

    assert_eq!(stage.minted(), minted);
    // The very last token minted was issued; the next number was not yet.
    let newest = minted.expect("some were minted");
    let stale = MessageGrant::presented(name(JOB), name(COURSE), Some(A), newest);
    let refusal = refused(stage.mailbox_complete(&stale, ""), Reason::FencingTokenStale);
    assert!(!refusal.never_issued);
    let next = MessageGrant::presented(name(JOB), name(COURSE), Some(A), after(newest, 1));
    made_up(&refused(stage.mailbox_complete(&next, ""), Reason::FencingTokenStale));
}

pub(in crate::kit) fn a_refusal_carries_no_number_that_would_work(stage: &mut Stage<'_>) {
    stage.send_job();
    let held = stage.claimed(A);
    let refusal = refused(stage.claim(B), Reason::MessageHeld);
    assert_eq!((refusal.held_token, refusal.high_water), (None, None));
    let wrong = MessageGrant::presented(name(JOB), name(COURSE), Some(B), held.token());
    let refusal = refused(stage.mailbox_complete(&wrong, ""), Reason::NotClaimant);
    assert_eq!(refusal.held_token, None);
}
