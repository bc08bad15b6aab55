//! The stale writer, step by step, on every machine that the table applies to: A and B are two processes of one
//! recipient, of one actor, of two hosts.
//!
//! | moment | on the ledger | what A remembers | may A commit? |
//! | --- | --- | --- | --- |
//! | A claims | A, 41 | A, 41 | yes |
//! | the lease expires | unchanged | A, 41 | yes until superseded (sessions: no) |
//! | B takes over | B, 42 | A, 41 | no |
//! | B gives it back | nobody | A, 41 | no |
//! | A itself claims again | A, 43 | A, 41 (old instance) | no; only 43 |
//! | A completes with 41 | unchanged | A, 41 | refused, recorded |

use keyfence_core::Reason;
use keyfence_core::lease::Released;
use keyfence_core::store::Place;

use crate::kit::stage::{A, B, COURSE, JOB, KIOSK_A, KIOSK_B, Stage, done, granted, minutes, settled};

pub(in crate::kit) fn the_stale_writer_of_a_message(stage: &mut Stage<'_>) {
    stage.send_job();
    let old = stage.claimed(A);
    stage.at(15);
    assert_eq!(
        stage.seen(Place::Message, JOB).token,
        Some(old.token()),
        "expiry alone changes nothing"
    );
    let taken = stage.claimed(B);
    stage.refused_and_recorded(Reason::FencingTokenStale, |stage| stage.mailbox_complete(&old, ""));
    settled(stage.mailbox_give_back(&taken), "NEW");
    let row = stage.seen(Place::Message, JOB);
    assert_eq!((row.state, row.process, row.token), ("NEW", None, None));
    stage.refused_and_recorded(Reason::FencingTokenStale, |stage| stage.mailbox_complete(&old, ""));
    let new = stage.claimed(A);
    assert!(old.token() < taken.token() && taken.token() < new.token());
    assert_eq!((old.owner(), old.process()), (new.owner(), new.process()));
    stage.refused_and_recorded(Reason::FencingTokenStale, |stage| stage.mailbox_complete(&old, ""));
    assert_eq!(stage.seen(Place::Message, JOB).token, Some(new.token()));
    done(stage.mailbox_complete(&new, ""));
}

pub(in crate::kit) fn the_stale_writer_of_a_message_commits_while_nobody_superseded_it(stage: &mut Stage<'_>) {
    stage.send_job();
    let old = stage.claimed(A);
    stage.at(15);
    done(stage.mailbox_complete(&old, ""));
    stage.refused_and_recorded(Reason::MessageFinished, |stage| stage.mailbox_complete(&old, "late"));
}

pub(in crate::kit) fn the_stale_writer_of_an_actor_lease(stage: &mut Stage<'_>) {
    let old = stage.lease(A);
    stage.at(5);
    assert_eq!(
        stage.seen(Place::Actor, COURSE).token,
        Some(old.token()),
        "expiry alone changes nothing"
    );
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&old, minutes(5)));
    let taken = stage.lease(B);
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&old, minutes(5)));
    assert_eq!(granted(stage.actor_release(&taken)), Released::Now);
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&old, minutes(5)));
    let new = stage.lease(A);
    assert!(old.token() < taken.token() && taken.token() < new.token());
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.actor_renew(&old, minutes(5)));
    assert_eq!(
        granted(stage.actor_release(&old)),
        Released::NotHeld,
        "a stale release leaves the holder intact"
    );
    granted(stage.actor_renew(&new, minutes(5)));
}

pub(in crate::kit) fn the_stale_writer_of_an_attempt(stage: &mut Stage<'_>) {
    let (lease, old) = stage.working(A);
    granted(stage.actor_renew(&lease, minutes(600)));
    stage.at(15);
    assert_eq!(
        stage.seen(Place::Assignment, JOB).token,
        Some(old.token()),
        "expiry alone changes nothing"
    );
    // Under one lease the takeover is another attempt of its process.
    let taken = stage.attempt(&lease, 2);
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&old));
    assert_eq!(granted(stage.attempt_release(&taken)), Released::Now);
    assert_eq!(stage.seen(Place::Assignment, JOB).state, "CREATED");
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&old));
    let new = stage.attempt(&lease, 1);
    assert!(old.token() < taken.token() && taken.token() < new.token());
    assert_eq!(
        old.attempt(),
        new.attempt(),
        "not even the attempt's id tells them apart"
    );
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&old));
    done(stage.finish(&new));
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&old));
}

pub(in crate::kit) fn the_stale_writer_of_an_attempt_whose_actor_was_taken_over(stage: &mut Stage<'_>) {
    let (_, old) = stage.working(A);
    stage.at(5);
    let taken = stage.lease(B);
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.finish(&old));
    assert_eq!(granted(stage.actor_release(&taken)), Released::Now);
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.finish(&old));
    let again = stage.lease(A);
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.finish(&old));
    let new = stage.attempt(&again, 2);
    stage.refused_and_recorded(Reason::ExecutionAttemptLost, |stage| stage.finish(&old));
    done(stage.finish(&new));
}

pub(in crate::kit) fn the_stale_writer_of_a_session(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 600);
    let b = stage.register(KIOSK_B, B, 600);
    let old = stage.held(&a, 1, 1);
    stage.at(1);
    assert_eq!(
        stage.seen(Place::Session, JOB).token,
        Some(old.token()),
        "expiry alone changes nothing"
    );
    stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&old, ""));
    let taken = stage.held(&b, 1, 2);
    stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&old, ""));
    assert_eq!(granted(stage.session_release(&taken)), Released::Now);
    stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&old, ""));
    let new = stage.held(&a, 1, 3);
    assert!(old.token() < taken.token() && taken.token() < new.token());
    assert_eq!(old.generation().host_token, new.generation().host_token);
    stage.refused_and_recorded(Reason::SessionClaimStale, |stage| stage.session_finish(&old, ""));
    assert_eq!(stage.seen(Place::Session, JOB).incarnation, Some(new.incarnation()));
    done(stage.session_finish(&new, ""));
}

pub(in crate::kit) fn the_stale_writer_of_a_host_lease(stage: &mut Stage<'_>) {
    let old = stage.register(KIOSK_A, A, 1);
    stage.at(1);
    stage.refused_and_recorded(Reason::HostLeaseLost, |stage| stage.host_renew(&old, minutes(1)));
    let taken = stage.register(KIOSK_A, B, 1);
    stage.refused_and_recorded(Reason::HostLeaseLost, |stage| stage.host_renew(&old, minutes(1)));
    assert_eq!(granted(stage.host_release(&taken)), Released::Now);
    stage.refused_and_recorded(Reason::HostLeaseLost, |stage| stage.host_renew(&old, minutes(1)));
    let new = stage.register(KIOSK_A, A, 1);
    assert!(old.token() < taken.token() && taken.token() < new.token());
    stage.refused_and_recorded(Reason::HostLeaseLost, |stage| stage.host_renew(&old, minutes(1)));
    assert_eq!(granted(stage.host_release(&old)), Released::NotHeld);
    granted(stage.host_renew(&new, minutes(1)));
}
