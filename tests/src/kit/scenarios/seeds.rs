//! The exercises that the rules come from, as facts about every ledger: two of the shop's staff, one shop, one numbered
//! key.

use keyfence_core::Reason;
use keyfence_core::actor::Acquire;
use keyfence_core::attempt;
use keyfence_core::lease::Released;
use keyfence_core::mailbox::{Claim, MessageGrant};
use keyfence_core::store::Place;

use crate::kit::stage::{
    A, B, COURSE, JOB, KIOSK_A, KIOSK_B, Stage, after, attempt_id, done, granted, minutes, name, never_issued, refused,
    settled,
};

// ---- the mailbox

pub(in crate::kit) fn one_of_two_processes_of_a_recipient_wins_a_contested_message(stage: &mut Stage<'_>) {
    stage.send_job();
    let won = stage.claimed(A);
    refused(stage.claim(B), Reason::MessageHeld);
    assert_eq!(stage.seen(Place::Message, JOB).process, Some(A));
    done(stage.mailbox_complete(&won, ""));
}

pub(in crate::kit) fn a_never_issued_token_is_refused_and_the_right_one_completes(stage: &mut Stage<'_>) {
    stage.send_job();
    let won = stage.claimed(A);
    let made_up = MessageGrant::presented(name(JOB), name(COURSE), Some(A), never_issued());
    refused(stage.mailbox_complete(&made_up, ""), Reason::FencingTokenStale);
    done(stage.mailbox_complete(&won, ""));
}

pub(in crate::kit) fn the_lease_timeline_is_fresh_same_refused_fresh_refused(stage: &mut Stage<'_>) {
    stage.send_job();
    let fresh = granted(stage.claim(A));
    assert!(!fresh.renewed);
    stage.at(5);
    let same = granted(stage.claim(A));
    assert!(same.renewed);
    assert_eq!(
        (same.grant.token(), same.expires_at),
        (fresh.grant.token(), stage.moment(15))
    );
    stage.at(10);
    refused(stage.claim(B), Reason::MessageHeld);
    stage.at(20);
    let taken = granted(stage.claim(B));
    assert!(!taken.renewed);
    assert!(taken.grant.token() > fresh.grant.token());
    assert_eq!(taken.expires_at, stage.moment(35));
    stage.at(25);
    let refusal = refused(stage.claim(A), Reason::MessageHeld);
    assert_eq!(refusal.holder.and_then(|holder| holder.process), Some(B));
    // The late completion is refused, the holder's accepted.
    refused(stage.mailbox_complete(&fresh.grant, ""), Reason::FencingTokenStale);
    done(stage.mailbox_complete(&taken.grant, ""));
}

pub(in crate::kit) fn a_claim_on_ones_own_expired_lease_mints_a_fresh_token(stage: &mut Stage<'_>) {
    stage.send_job();
    let first = stage.claimed(A);
    stage.at(15);
    let second = stage.claimed(A);
    assert_eq!(second.token(), after(first.token(), 1));
    refused(stage.mailbox_complete(&first, ""), Reason::FencingTokenStale);
    done(stage.mailbox_complete(&second, ""));
}

pub(in crate::kit) fn the_same_actor_from_two_processes_is_exclusive(stage: &mut Stage<'_>) {
    stage.send_job();
    let first = stage.claimed(A);
    refused(stage.claim(B), Reason::MessageHeld);
    let in_the_others_name = MessageGrant::presented(name(JOB), name(COURSE), Some(B), first.token());
    refused(stage.mailbox_complete(&in_the_others_name, ""), Reason::NotClaimant);
    done(stage.mailbox_complete(&first, ""));
}

pub(in crate::kit) fn a_stale_copy_cannot_drive_a_retry_or_a_dead_letter(stage: &mut Stage<'_>) {
    stage.send_job();
    let stale = stage.claimed(A);
    stage.at(15);
    let current = stage.claimed(B);
    refused(stage.mailbox_retry(&stale, None, ""), Reason::FencingTokenStale);
    refused(stage.mailbox_dead_letter(&stale, ""), Reason::FencingTokenStale);
    assert_eq!(stage.seen(Place::Message, JOB).token, Some(current.token()));
}

pub(in crate::kit) fn a_dead_message_stays_on_the_ledger(stage: &mut Stage<'_>) {
    stage.send_job();
    for (minute, state) in (100..).zip(["NEW", "NEW", "NEW", "DEAD"]) {
        stage.at(minute);
        let grant = stage.claimed(A);
        settled(stage.mailbox_retry(&grant, None, "failed"), state);
    }
    let row = stage.seen(Place::Message, JOB);
    assert_eq!((row.state, row.retries), ("DEAD", Some(3)));
}

// ---- actor and attempt

pub(in crate::kit) fn the_actor_lease_is_a_compare_and_set(stage: &mut Stage<'_>) {
    let a = stage.lease(A);
    assert_eq!(a.token().get(), 1);
    let ask = stage.acquire(B);
    refused(stage.actor_acquire(&ask), Reason::ActorLeaseHeld);
    assert_eq!(granted(stage.actor_release(&a)), Released::Now);
    let b = stage.lease(B);
    assert_eq!(b.token().get(), 2, "a refusal in between burns no number");
}

pub(in crate::kit) fn an_attempt_wants_the_lease_and_is_held_by_one(stage: &mut Stage<'_>) {
    let (lease, _) = stage.working(A);
    let again = stage.try_job(&lease, 2);
    refused(stage.attempt_acquire(&again), Reason::ExecutionAttemptHeld);
    let stale = attempt::Acquire {
        lease_token: never_issued(),
        ..again
    };
    refused(stage.attempt_acquire(&stale), Reason::ActorLeaseLost);
}

pub(in crate::kit) fn a_second_process_of_an_actor_is_refused_before_its_work_starts(stage: &mut Stage<'_>) {
    stage.assign("first", COURSE);
    stage.assign("second", COURSE);
    let lease = stage.lease(A);
    let ask = attempt::Acquire {
        assignment: name("first"),
        ..stage.try_job(&lease, 1)
    };
    let attempt = granted(stage.attempt_acquire(&ask)).grant;
    let second = stage.acquire(B);
    refused(stage.actor_acquire(&second), Reason::ActorLeaseHeld);
    assert_eq!(stage.seen(Place::Assignment, "second").state, "CREATED");
    done(stage.finish(&attempt));
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    // Exclusive for a moment, not locked out for ever.
    let lease = stage.lease(B);
    let ask = attempt::Acquire {
        assignment: name("second"),
        attempt: attempt_id(2),
        ..stage.try_job(&lease, 2)
    };
    let attempt = granted(stage.attempt_acquire(&ask)).grant;
    done(stage.finish(&attempt));
    assert_eq!(stage.seen(Place::Assignment, "second").state, "COMPLETED");
}

pub(in crate::kit) fn an_attempt_is_refused_when_its_actor_was_taken_over_before_it_began(stage: &mut Stage<'_>) {
    stage.assign(JOB, COURSE);
    let old = stage.lease(A);
    let ask = stage.try_job(&old, 1);
    stage.at(5);
    let ask_b = Acquire {
        ttl: minutes(5),
        ..stage.acquire(B)
    };
    granted(stage.actor_acquire(&ask_b));
    refused(stage.attempt_acquire(&ask), Reason::ActorLeaseLost);
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "CREATED");
}

// ---- two kiosks

pub(in crate::kit) fn a_takeover_increments_the_incarnation_and_fences_the_stale_finish(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 1);
    let stale = stage.held(&a, 1, 1);
    stage.at(1);
    let b = stage.register(KIOSK_B, B, 1);
    let current = stage.held(&b, 1, 2);
    refused(stage.session_finish(&stale, "A's result"), Reason::SessionClaimStale);
    done(stage.session_finish(&current, "B's result"));
    let row = stage.seen(Place::Session, JOB);
    assert_eq!((row.state, row.incarnation), ("FINISHED", Some(current.incarnation())));
    refused(stage.session_finish(&stale, "A's result"), Reason::SessionClaimStale);
}

pub(in crate::kit) fn kiosk_a_cannot_finish_its_first_run_from_its_second(stage: &mut Stage<'_>) {
    let first_run = stage.register(KIOSK_A, A, 1);
    let stale = stage.held(&first_run, 1, 1);
    stage.at(1);
    let b = stage.register(KIOSK_B, B, 1);
    stage.held(&b, 1, 2);
    stage.at(2);
    let second_run = stage.register(KIOSK_A, A, 1);
    let current = stage.held(&second_run, 1, 3);
    assert_eq!(
        stale.generation().host,
        current.generation().host,
        "the same host and the same session"
    );
    refused(stage.session_finish(&stale, "first run"), Reason::SessionClaimStale);
    done(stage.session_finish(&current, "second run"));
}

// ---- wrong first

/// A claim that looks, decides and then writes, kept to show what it does: two workers look before either writes, and
/// both believe that they own the message.
pub(in crate::kit) fn looking_before_writing_makes_two_owners(stage: &mut Stage<'_>) {
    stage.send_job();
    let a_saw = stage.seen(Place::Message, JOB).state;
    let b_saw = stage.seen(Place::Message, JOB).state;
    let mut on_paper = None;
    let mut believers = Vec::new();
    for (worker, saw) in [("worker-a", a_saw), ("worker-b", b_saw)] {
        if saw == "NEW" {
            on_paper = Some(worker);
            believers.push(worker);
        }
    }
    assert_eq!(believers, ["worker-a", "worker-b"], "the disease");
    assert_eq!(on_paper, Some("worker-b"));
    // The same two, deciding in the step that writes.
    let winners: Vec<_> = [A, B]
        .into_iter()
        .filter(|process| {
            let ask = Claim {
                process: Some(*process),
                ..stage.ask(A)
            };
            stage.mailbox_claim(&ask).expect("a decision").is_ok()
        })
        .collect();
    assert_eq!(winners, [A], "the cure");
}
