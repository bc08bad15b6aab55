//! The assignment and the execution attempt: creating, acquiring, renewing, giving back, closing.

use keyfence_core::actor::ActorGrant;
use keyfence_core::attempt::{Acquire, AttemptGrant, CloseLost, Create, Done, Outcome};
use keyfence_core::lease::{Released, Revoked};
use keyfence_core::store::Place;
use keyfence_core::{Reason, Token};

use crate::kit::stage::{
    A, B, COURSE, JOB, OTHER, Stage, after, attempt_id, done, granted, minutes, name, never_issued, refused, revoked,
};

pub(in crate::kit) fn an_assignment_is_created_once(stage: &mut Stage<'_>) {
    stage.assign(JOB, COURSE);
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "CREATED");
    let same = Create {
        id: name(JOB),
        actor: name(COURSE),
        retry_of: None,
    };
    let answer = stage.unchanged(|stage| stage.assignment_create(&same));
    assert_eq!(granted(answer), Done::Already);
    let other_actor = Create {
        actor: name(OTHER),
        ..same.clone()
    };
    stage.unchanged(|stage| refused(stage.assignment_create(&other_actor), Reason::AssignmentExists));
    let other_origin = Create {
        retry_of: Some(name(JOB)),
        ..same
    };
    stage.unchanged(|stage| refused(stage.assignment_create(&other_origin), Reason::AssignmentExists));
}

pub(in crate::kit) fn a_retry_names_an_assignment_of_the_same_actor(stage: &mut Stage<'_>) {
    stage.assign(JOB, COURSE);
    let ask = |retried: &str, actor: &str| Create {
        id: name("again"),
        actor: name(actor),
        retry_of: Some(name(retried)),
    };
    refused(
        stage.assignment_create(&ask("nothing", COURSE)),
        Reason::AssignmentMissing,
    );
    refused(stage.assignment_create(&ask(JOB, OTHER)), Reason::WrongActor);
    assert_eq!(stage.row(Place::Assignment, &name("again")), Ok(None));
    done(stage.assignment_create(&ask(JOB, COURSE)));
    assert_eq!(granted(stage.assignment_create(&ask(JOB, COURSE))), Done::Already);
}

pub(in crate::kit) fn an_attempt_descends_from_the_actors_live_lease(stage: &mut Stage<'_>) {
    let lease = stage.lease(A);
    stage.assign(JOB, COURSE);
    let ask = stage.try_job(&lease, 1);
    let won = granted(stage.attempt_acquire(&ask));
    assert!(!won.renewed);
    assert_eq!(won.expires_at, stage.moment(15));
    assert_eq!(won.grant.token(), after(lease.token(), 1), "one counter for both");
    assert_eq!(won.grant.attempt(), attempt_id(1));
    let row = stage.seen(Place::Assignment, JOB);
    assert_eq!((row.state, row.process), ("RUNNING", Some(A)));
    assert_eq!(row.token, Some(won.grant.token()));
}

/// An attempt under a lease that is not the actor's current one is refused, and the assignment stays CREATED.
fn no_attempt_under(stage: &mut Stage<'_>, ask: &Acquire) {
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.attempt_acquire(ask));
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "CREATED");
}

pub(in crate::kit) fn no_attempt_without_a_lease(stage: &mut Stage<'_>) {
    stage.assign(JOB, COURSE);
    let lease = stage.lease(A);
    let ask = stage.try_job(&lease, 1);
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    no_attempt_under(stage, &ask);
}

pub(in crate::kit) fn no_attempt_under_a_lapsed_lease(stage: &mut Stage<'_>) {
    stage.assign(JOB, COURSE);
    let lease = stage.lease(A);
    let ask = stage.try_job(&lease, 1);
    stage.at(5);
    no_attempt_under(stage, &ask);
}

pub(in crate::kit) fn no_attempt_under_another_token(stage: &mut Stage<'_>) {
    stage.assign(JOB, COURSE);
    let old = stage.lease(A);
    stage.at(5);
    let lease = stage.lease(A);
    let ask = Acquire {
        lease_token: old.token(),
        ..stage.try_job(&lease, 1)
    };
    no_attempt_under(stage, &ask);
}

pub(in crate::kit) fn no_attempt_by_another_process(stage: &mut Stage<'_>) {
    stage.assign(JOB, COURSE);
    let lease = stage.lease(A);
    let ask = Acquire {
        process: B,
        ..stage.try_job(&lease, 1)
    };
    no_attempt_under(stage, &ask);
}

pub(in crate::kit) fn no_attempt_at_an_assignment_that_is_not_there(stage: &mut Stage<'_>) {
    let lease = stage.lease(A);
    let ask = stage.try_job(&lease, 1);
    stage.unchanged(|stage| refused(stage.attempt_acquire(&ask), Reason::AssignmentMissing));
}

pub(in crate::kit) fn no_attempt_at_an_assignment_of_another_actor(stage: &mut Stage<'_>) {
    stage.assign(JOB, OTHER);
    let lease = stage.lease(A);
    let ask = stage.try_job(&lease, 1);
    stage.unchanged(|stage| refused(stage.attempt_acquire(&ask), Reason::WrongActor));
}

pub(in crate::kit) fn no_attempt_at_a_finished_assignment(stage: &mut Stage<'_>) {
    for (number, outcome) in [(1, Outcome::Completed), (2, Outcome::Blocked), (3, Outcome::Failed)] {
        let lease = stage.lease(A);
        let job = format!("job-{number}");
        stage.assign(&job, COURSE);
        let ask = Acquire {
            assignment: name(&job),
            ..stage.try_job(&lease, number)
        };
        let attempt = granted(stage.attempt_acquire(&ask)).grant;
        done(stage.attempt_finish(&attempt, outcome, "result"));
        assert_eq!(stage.seen(Place::Assignment, &job).state, outcome.name());
        refused(stage.attempt_acquire(&ask), Reason::AssignmentFinished);
        assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    }
}

pub(in crate::kit) fn a_live_attempt_refuses_everyone_its_holder_too(stage: &mut Stage<'_>) {
    let (lease, held) = stage.working(A);
    granted(stage.actor_renew(&lease, minutes(60)));
    stage.at_ms(15 * 60_000 - 1);
    for number in [1, 2] {
        let ask = stage.try_job(&lease, number);
        let refusal = stage.unchanged(|stage| refused(stage.attempt_acquire(&ask), Reason::ExecutionAttemptHeld));
        assert_eq!(refusal.held_token, Some(held.token()));
        assert_eq!(refusal.holder.and_then(|holder| holder.process), Some(A));
        assert_eq!(refusal.expires_at, Some(stage.moment(15)));
    }
}

pub(in crate::kit) fn a_lapsed_attempt_is_replaced_under_a_greater_token(stage: &mut Stage<'_>) {
    let (lease, old) = stage.working(A);
    granted(stage.actor_renew(&lease, minutes(60)));
    stage.at(15);
    let new = stage.attempt(&lease, 2);
    assert_eq!(new.token(), after(old.token(), 1));
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&old));
    done(stage.finish(&new));
}

pub(in crate::kit) fn an_unexpired_attempt_under_a_lost_lease_is_not_live(stage: &mut Stage<'_>) {
    let (_, old) = stage.working(A);
    stage.at(5);
    let lease = stage.lease(B);
    let new = stage.attempt(&lease, 2);
    assert!(new.token() > old.token());
    done(stage.finish(&new));
}

pub(in crate::kit) fn attempt_refusals_come_in_the_order_of_the_contract(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    stage.assign("theirs", OTHER);
    let stale = |ask: Acquire| Acquire {
        lease_token: never_issued(),
        ..ask
    };
    let ask = |stage: &Stage<'_>, id: &str| Acquire {
        assignment: name(id),
        ..stage.try_job(&lease, 2)
    };
    // The lease comes before the assignment's being there, before its actor and its state, and before a live attempt.
    for id in ["nothing", "theirs", JOB] {
        let ask = stale(ask(stage, id));
        refused(stage.attempt_acquire(&ask), Reason::ActorLeaseLost);
    }
    let missing = ask(stage, "nothing");
    refused(stage.attempt_acquire(&missing), Reason::AssignmentMissing);
    done(stage.finish(&attempt));
    let finished = ask(stage, JOB);
    refused(stage.attempt_acquire(&finished), Reason::AssignmentFinished);
    // Its actor comes before its state: the other actor's finished assignment is not his.
    let other = keyfence_core::actor::Acquire {
        actor: name(OTHER),
        ..stage.acquire(B)
    };
    let other = granted(stage.actor_acquire(&other)).grant;
    let foreign = stage.try_job(&other, 3);
    refused(stage.attempt_acquire(&foreign), Reason::WrongActor);
}

pub(in crate::kit) fn renewing_an_attempt_keeps_its_token_and_moves_its_expiry(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    stage.at(4);
    granted(stage.actor_renew(&lease, minutes(60)));
    let renewed = granted(stage.attempt_renew(&attempt, minutes(15)));
    assert!(renewed.renewed);
    assert_eq!(renewed.grant, attempt);
    assert_eq!(renewed.expires_at, stage.moment(19));
    let shorter = granted(stage.attempt_renew(&attempt, minutes(1)));
    assert_eq!(shorter.expires_at, stage.moment(19), "a renewal never shortens");
    assert_eq!(stage.minted(), Some(attempt.token()));
    stage.at(18);
    let ask = stage.try_job(&lease, 2);
    refused(stage.attempt_acquire(&ask), Reason::ExecutionAttemptHeld);
}

pub(in crate::kit) fn an_attempt_is_renewed_on_its_exact_id_and_token(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    for wrong in [
        AttemptGrant::presented(name(JOB), attempt_id(2), attempt.token()),
        AttemptGrant::presented(name(JOB), attempt.attempt(), lease.token()),
    ] {
        let refusal = stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| {
            stage.attempt_renew(&wrong, minutes(15))
        });
        assert_eq!(refusal.held_token, Some(attempt.token()));
    }
    let absent = AttemptGrant::presented(name("nothing"), attempt.attempt(), attempt.token());
    stage.refused_and_recorded(Reason::AssignmentMissing, |stage| {
        stage.attempt_renew(&absent, minutes(15))
    });
}

pub(in crate::kit) fn a_lapsed_attempt_cannot_be_renewed(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    granted(stage.actor_renew(&lease, minutes(60)));
    stage.at(15);
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| {
        stage.attempt_renew(&attempt, minutes(15))
    });
}

pub(in crate::kit) fn an_attempt_under_a_lapsed_lease_cannot_be_renewed(stage: &mut Stage<'_>) {
    let (_, attempt) = stage.working(A);
    stage.at(5);
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| {
        stage.attempt_renew(&attempt, minutes(15))
    });
}

pub(in crate::kit) fn an_attempt_under_a_superseded_lease_cannot_be_renewed(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    let newer = stage.lease(A);
    let refusal = stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| {
        stage.attempt_renew(&attempt, minutes(15))
    });
    assert_eq!(refusal.held_token, Some(newer.token()));
}

pub(in crate::kit) fn a_released_attempt_gives_the_assignment_back(stage: &mut Stage<'_>) {
    let (lease, old) = stage.working(A);
    assert_eq!(granted(stage.attempt_release(&old)), Released::Now);
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "CREATED");
    refused(stage.finish(&old), Reason::ExecutionAttemptLost);
    let new = stage.attempt(&lease, 2);
    assert_eq!(new.token(), after(old.token(), 1));
}

pub(in crate::kit) fn an_attempt_is_released_on_its_exact_id_and_token(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    for wrong in [
        AttemptGrant::presented(name(JOB), attempt_id(2), attempt.token()),
        AttemptGrant::presented(name(JOB), attempt.attempt(), lease.token()),
        AttemptGrant::presented(name("nothing"), attempt.attempt(), attempt.token()),
    ] {
        let answer = stage.unchanged(|stage| stage.attempt_release(&wrong));
        assert_eq!(granted(answer), Released::NotHeld);
    }
}

pub(in crate::kit) fn an_attempt_under_a_lost_lease_is_not_released(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    let answer = stage.unchanged(|stage| stage.attempt_release(&attempt));
    assert_eq!(granted(answer), Released::NotHeld);
}

pub(in crate::kit) fn a_lapsed_attempt_that_nobody_took_is_still_released(stage: &mut Stage<'_>) {
    let (_, attempt) = stage.working(A);
    stage.at(60);
    assert_eq!(granted(stage.attempt_release(&attempt)), Released::Now);
}

pub(in crate::kit) fn a_repeated_release_of_an_attempt_is_recognised_until_a_newer_claim(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    assert_eq!(granted(stage.attempt_release(&attempt)), Released::Now);
    for wrong in [
        AttemptGrant::presented(name(JOB), attempt_id(2), attempt.token()),
        AttemptGrant::presented(name(JOB), attempt.attempt(), lease.token()),
    ] {
        assert_eq!(granted(stage.attempt_release(&wrong)), Released::NotHeld);
    }
    // Before every other clause: the lease is gone, and the release is recognised all the same.
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    let answer = stage.unchanged(|stage| stage.attempt_release(&attempt));
    assert_eq!(granted(answer), Released::Already);
    let lease = stage.lease(B);
    stage.attempt(&lease, 2);
    assert_eq!(granted(stage.attempt_release(&attempt)), Released::NotHeld);
}

pub(in crate::kit) fn a_live_attempt_is_never_closed_as_lost(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    granted(stage.actor_renew(&lease, minutes(60)));
    stage.at_ms(15 * 60_000 - 1);
    let answer = stage.unchanged(|stage| stage.attempt_close_lost(&name(JOB)));
    assert_eq!(granted(answer), CloseLost::Live);
    assert_eq!(granted(stage.attempt_close_all_lost(8)), []);
    done(stage.finish(&attempt));
}

pub(in crate::kit) fn an_expired_attempt_is_closed_as_worker_lost(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    granted(stage.actor_renew(&lease, minutes(60)));
    stage.at(15);
    assert_eq!(granted(stage.attempt_close_lost(&name(JOB))), CloseLost::Closed);
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "FAILED");
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&attempt));
    // Nor does the same outcome pass for a repetition: it was not this attempt that wrote it.
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| {
        stage.attempt_finish(&attempt, Outcome::Failed, "")
    });
    let again = stage.unchanged(|stage| stage.attempt_close_lost(&name(JOB)));
    assert_eq!(granted(again), CloseLost::NotRunning);
}

pub(in crate::kit) fn an_unexpired_attempt_whose_lease_is_gone_is_closed_as_worker_lost(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    assert_eq!(granted(stage.attempt_close_all_lost(8)), [name(JOB)]);
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "FAILED");
    refused(stage.finish(&attempt), Reason::ExecutionAttemptLost);
}

pub(in crate::kit) fn what_is_not_running_is_not_closed(stage: &mut Stage<'_>) {
    assert_eq!(
        granted(stage.attempt_close_lost(&name("nothing"))),
        CloseLost::NotRunning
    );
    stage.assign(JOB, COURSE);
    let answer = stage.unchanged(|stage| stage.attempt_close_lost(&name(JOB)));
    assert_eq!(granted(answer), CloseLost::NotRunning);
}

pub(in crate::kit) fn closing_lost_attempts_stops_at_its_limit(stage: &mut Stage<'_>) {
    let lease = stage.lease(A);
    for number in 1..=3 {
        let id = format!("job-{number}");
        stage.assign(&id, COURSE);
        let ask = Acquire {
            assignment: name(&id),
            ..stage.try_job(&lease, number)
        };
        granted(stage.attempt_acquire(&ask));
    }
    stage.at(15);
    assert_eq!(granted(stage.attempt_close_all_lost(0)), []);
    assert_eq!(granted(stage.attempt_close_all_lost(2)).len(), 2);
    assert_eq!(granted(stage.attempt_close_all_lost(8)).len(), 1);
    assert_eq!(granted(stage.attempt_close_all_lost(8)), []);
}

pub(in crate::kit) fn a_revoked_attempt_is_dead_and_the_assignment_open(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    let (holder, token) = revoked(stage.attempt_revoke(&name(JOB)));
    assert_eq!((holder.process, token), (Some(A), attempt.token()));
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "CREATED");
    refused(stage.finish(&attempt), Reason::ExecutionAttemptLost);
    assert_eq!(granted(stage.attempt_release(&attempt)), Released::NotHeld);
    let again = stage.unchanged(|stage| stage.attempt_revoke(&name(JOB)));
    assert_eq!(granted(again), Revoked::Nothing);
    stage.attempt(&lease, 2);
}

// ---- finish, clause by clause

pub(in crate::kit) fn an_attempt_finishes_its_assignment(stage: &mut Stage<'_>) {
    let (_, attempt) = stage.working(A);
    done(stage.finish(&attempt));
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "COMPLETED");
}

pub(in crate::kit) fn expiry_alone_does_not_refuse_a_finish(stage: &mut Stage<'_>) {
    let (_, attempt) = stage.working(A);
    stage.at(60);
    done(stage.finish(&attempt));
}

pub(in crate::kit) fn another_attempt_cannot_finish(stage: &mut Stage<'_>) {
    let (_, attempt) = stage.working(A);
    let wrong = AttemptGrant::presented(name(JOB), attempt_id(2), attempt.token());
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&wrong));
}

pub(in crate::kit) fn another_token_cannot_finish(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    let stale = AttemptGrant::presented(name(JOB), attempt.attempt(), lease.token());
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&stale));
}

pub(in crate::kit) fn an_assignment_that_is_not_running_cannot_be_finished(stage: &mut Stage<'_>) {
    let (_, attempt) = stage.working(A);
    assert_eq!(granted(stage.attempt_release(&attempt)), Released::Now);
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&attempt));
    let absent = AttemptGrant::presented(name("nothing"), attempt.attempt(), attempt.token());
    stage.refused_and_recorded(Reason::AssignmentMissing, |stage| stage.finish(&absent));
}

/// The current attempt of a RUNNING assignment cannot finish once the actor's lease is not the one it descends from.
fn cannot_finish(stage: &mut Stage<'_>, attempt: &AttemptGrant, current_lease: Option<Token>) {
    let refusal = stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.finish(attempt));
    assert_eq!(refusal.held_token, current_lease);
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "RUNNING");
    if stage.bounds().can.contains(&crate::kit::Can::SeeRefusals) {
        let last = stage.refusals().pop().expect("just recorded");
        assert_eq!((last.subject, last.presented), (name(JOB), attempt.token()));
    }
}

pub(in crate::kit) fn an_attempt_cannot_finish_after_its_lease_was_released(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    cannot_finish(stage, &attempt, None);
}

pub(in crate::kit) fn an_attempt_cannot_finish_after_its_lease_was_revoked(stage: &mut Stage<'_>) {
    let (_, attempt) = stage.working(A);
    revoked(stage.actor_revoke(&name(COURSE)));
    cannot_finish(stage, &attempt, None);
}

pub(in crate::kit) fn an_attempt_cannot_finish_after_its_lease_was_taken_over(stage: &mut Stage<'_>) {
    let (_, attempt) = stage.working(A);
    stage.at(5);
    let newer = stage.lease(B);
    cannot_finish(stage, &attempt, Some(newer.token()));
}

pub(in crate::kit) fn an_attempt_cannot_finish_after_its_own_process_acquired_the_actor_again(stage: &mut Stage<'_>) {
    let (_, attempt) = stage.working(A);
    stage.at(5);
    let newer = stage.lease(A);
    cannot_finish(stage, &attempt, Some(newer.token()));
}

pub(in crate::kit) fn a_repeated_finish_is_recognised_before_every_other_clause(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    done(stage.finish(&attempt));
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    stage.at(60);
    let answer = stage.unchanged(|stage| stage.finish(&attempt));
    assert_eq!(granted(answer), Done::Already);
}

pub(in crate::kit) fn another_outcome_of_a_finished_attempt_is_refused(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    done(stage.finish(&attempt));
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| {
        stage.attempt_finish(&attempt, Outcome::Failed, "result")
    });
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| {
        stage.attempt_finish(&attempt, Outcome::Completed, "another result")
    });
    for wrong in [
        AttemptGrant::presented(name(JOB), attempt_id(2), attempt.token()),
        AttemptGrant::presented(name(JOB), attempt.attempt(), lease.token()),
    ] {
        stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&wrong));
    }
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "COMPLETED");
}

pub(in crate::kit) fn a_refused_second_process_leaves_its_assignment_created(stage: &mut Stage<'_>) {
    stage.assign(JOB, COURSE);
    stage.assign("another", COURSE);
    let lease = stage.lease(A);
    stage.attempt(&lease, 1);
    let ask = stage.acquire(B);
    refused(stage.actor_acquire(&ask), Reason::ActorLeaseHeld);
    // Nor does it help to make up the lease that the first process holds.
    let forged = ActorGrant::presented(name(COURSE), B, lease.token());
    let ask = Acquire {
        assignment: name("another"),
        ..stage.try_job(&forged, 2)
    };
    refused(stage.attempt_acquire(&ask), Reason::ActorLeaseLost);
    assert_eq!(stage.seen(Place::Assignment, "another").state, "CREATED");
}
