//! The mailbox: what a holder does under its token, clause by clause for every one of those calls.

use keyfence_core::actor::ActorGrant;
use keyfence_core::attempt::Done;
use keyfence_core::lease::Released;
use keyfence_core::mailbox::{Claim, MessageGrant, Settled};
use keyfence_core::store::Place;
use keyfence_core::{Reason, Token};

use crate::kit::stage::{
    A, B, COURSE, JOB, OTHER, Stage, after, done, granted, minutes, name, refused, revoked, settled,
};
use crate::kit::{Answer, Can};

/// A call under a message's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Extend,
    GiveBack,
    Complete,
    Retry,
    DeadLetter,
}

const CALLS: [Call; 5] = [
    Call::Extend,
    Call::GiveBack,
    Call::Complete,
    Call::Retry,
    Call::DeadLetter,
];
/// Those that end the claim.
const ENDS: [Call; 4] = [Call::GiveBack, Call::Complete, Call::Retry, Call::DeadLetter];

/// What a call that ended a claim answered: whether now or before, and in which state the message is.
type Ended = (Option<Done>, &'static str);

fn ended(settled: Settled) -> Ended {
    (Some(settled.done), if settled.dead { "DEAD" } else { "NEW" })
}

/// Makes the call, with these bytes where it carries some.
fn call(stage: &mut Stage<'_>, call: Call, grant: &MessageGrant, text: &str) -> Answer<Ended> {
    Ok(match call {
        Call::Extend => stage.mailbox_extend(grant, minutes(15))?.map(|_| (None, "CLAIMED")),
        Call::GiveBack => stage.mailbox_give_back(grant)?.map(ended),
        Call::Complete => stage.mailbox_complete(grant, text)?.map(|done| (Some(done), "DONE")),
        Call::Retry => stage.mailbox_retry(grant, None, text)?.map(ended),
        Call::DeadLetter => stage.mailbox_dead_letter(grant, text)?.map(|done| (Some(done), "DEAD")),
    })
}

/// The state that the call leaves a message in, with budget left.
const fn leaves(call: Call) -> &'static str {
    match call {
        Call::Extend => "CLAIMED",
        Call::GiveBack | Call::Retry => "NEW",
        Call::Complete => "DONE",
        Call::DeadLetter => "DEAD",
    }
}

/// Sends and claims a message of its own for each call.
fn fresh(stage: &mut Stage<'_>, call: Call) -> MessageGrant {
    let id = format!("{call:?}").to_lowercase();
    let id = &id[..id.len().min(8)];
    let letter = stage.letter(id);
    stage.send(&letter);
    let ask = Claim {
        message: name(id),
        ..stage.ask(A)
    };
    granted(stage.mailbox_claim(&ask)).grant
}

/// The grant with another owner, process or token.
fn presented(
    grant: &MessageGrant,
    owner: &str,
    process: Option<keyfence_core::ProcessId>,
    token: Token,
) -> MessageGrant {
    MessageGrant::presented(grant.message().clone(), name(owner), process, token)
}

/// The row under the grant must not change, and the refusal is recorded.
#[track_caller]
fn refuses(stage: &mut Stage<'_>, of: Call, grant: &MessageGrant, reason: Reason) {
    let before = stage.row(Place::Message, grant.message());
    let refusal = stage.refused_and_recorded(reason, |stage| call(stage, of, grant, "text"));
    assert_eq!(before, stage.row(Place::Message, grant.message()));
    if reason != Reason::ActorLeaseLost {
        assert_eq!(refusal.held_token, None, "a refusal never carries a message's token");
    }
    if stage.bounds().can.contains(&Can::SeeRefusals) {
        let last = stage.refusals().pop().expect("just recorded");
        assert_eq!((&last.subject, last.presented), (grant.message(), grant.token()));
    }
}

pub(in crate::kit) fn every_call_under_the_right_grant_takes_effect(stage: &mut Stage<'_>) {
    for of in CALLS {
        let grant = fresh(stage, of);
        let (done, state) = granted(call(stage, of, &grant, "text"));
        assert_eq!(state, leaves(of), "{of:?}");
        assert!(done.is_none_or(|done| done == Done::Now));
        let row = stage.seen(Place::Message, grant.message().as_str());
        assert_eq!(row.state, leaves(of), "{of:?}");
        assert_eq!(row.retries, Some(u16::from(of == Call::Retry)));
        if of != Call::Extend {
            assert_eq!((row.process, row.token, row.expires_at), (None, None, None));
        }
    }
}

pub(in crate::kit) fn no_call_works_under_a_stale_token(stage: &mut Stage<'_>) {
    for of in CALLS {
        let old = fresh(stage, of);
        settled(stage.mailbox_give_back(&old), "NEW");
        let ask = Claim {
            message: old.message().clone(),
            ..stage.ask(A)
        };
        granted(stage.mailbox_claim(&ask));
        refuses(stage, of, &old, Reason::FencingTokenStale);
    }
}

pub(in crate::kit) fn no_call_works_for_another_owner(stage: &mut Stage<'_>) {
    for of in CALLS {
        let grant = fresh(stage, of);
        let wrong = presented(&grant, OTHER, Some(A), grant.token());
        refuses(stage, of, &wrong, Reason::NotClaimant);
    }
}

pub(in crate::kit) fn no_call_works_for_another_process(stage: &mut Stage<'_>) {
    for of in CALLS {
        let grant = fresh(stage, of);
        for process in [Some(B), None] {
            let wrong = presented(&grant, COURSE, process, grant.token());
            refuses(stage, of, &wrong, Reason::NotClaimant);
        }
    }
}

pub(in crate::kit) fn no_call_works_on_a_new_message(stage: &mut Stage<'_>) {
    for of in CALLS {
        let grant = fresh(stage, of);
        revoked(stage.mailbox_revoke(grant.message()));
        refuses(stage, of, &grant, Reason::FencingTokenStale);
    }
}

pub(in crate::kit) fn no_call_works_on_a_finished_message(stage: &mut Stage<'_>) {
    for of in CALLS {
        let grant = fresh(stage, of);
        if of == Call::Complete {
            done(stage.mailbox_dead_letter(&grant, ""));
        } else {
            done(stage.mailbox_complete(&grant, ""));
        }
        refuses(stage, of, &grant, Reason::MessageFinished);
    }
}

pub(in crate::kit) fn no_call_works_on_a_message_that_is_not_there(stage: &mut Stage<'_>) {
    for of in CALLS {
        let grant = fresh(stage, of);
        let absent = MessageGrant::presented(name("nothing"), name(COURSE), Some(A), grant.token());
        refuses(stage, of, &absent, Reason::MessageMissing);
    }
}

/// A claim that descends from a lease of five minutes.
fn descending(stage: &mut Stage<'_>, of: Call) -> (ActorGrant, MessageGrant) {
    let lease = stage.lease(A);
    let id = format!("{of:?}").to_lowercase();
    let id = &id[..id.len().min(8)];
    let letter = stage.letter(id);
    stage.send(&letter);
    let ask = Claim {
        message: name(id),
        lease_token: Some(lease.token()),
        ..stage.ask(A)
    };
    let grant = granted(stage.mailbox_claim(&ask)).grant;
    (lease, grant)
}

pub(in crate::kit) fn no_call_works_once_the_lease_it_descends_from_is_gone(stage: &mut Stage<'_>) {
    for of in CALLS {
        let (lease, grant) = descending(stage, of);
        assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
        refuses(stage, of, &grant, Reason::ActorLeaseLost);
        let newer = stage.lease(A);
        refuses(stage, of, &grant, Reason::ActorLeaseLost);
        assert_eq!(granted(stage.actor_release(&newer)), Released::Now);
    }
}

pub(in crate::kit) fn a_lapsed_lease_that_the_row_still_carries_does_not_refuse(stage: &mut Stage<'_>) {
    for (turn, of) in (0..).zip(CALLS) {
        stage.at(10 * turn);
        let (lease, grant) = descending(stage, of);
        stage.at(10 * turn + 9);
        granted(call(stage, of, &grant, "text"));
        assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    }
}

pub(in crate::kit) fn a_lapsed_claim_that_nobody_took_still_completes(stage: &mut Stage<'_>) {
    stage.send_job();
    let grant = stage.claimed(A);
    stage.at(600);
    done(stage.mailbox_complete(&grant, ""));
    let row = stage.seen(Place::Message, JOB);
    assert_eq!((row.state, row.retries), ("DONE", Some(0)));
}

// ---- repetitions

pub(in crate::kit) fn a_repeated_call_is_recognised_and_writes_nothing(stage: &mut Stage<'_>) {
    for of in ENDS {
        let grant = fresh(stage, of);
        granted(call(stage, of, &grant, "text"));
        let before = stage.row(Place::Message, grant.message());
        let (done, state) = granted(stage.unchanged(|stage| call(stage, of, &grant, "text")));
        assert_eq!((done, state), (Some(Done::Already), leaves(of)), "{of:?}");
        assert_eq!(before, stage.row(Place::Message, grant.message()));
    }
}

pub(in crate::kit) fn a_repetition_is_recognised_before_every_other_clause(stage: &mut Stage<'_>) {
    for of in ENDS {
        let (lease, grant) = descending(stage, of);
        granted(call(stage, of, &grant, "text"));
        assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
        let (done, _) = granted(stage.unchanged(|stage| call(stage, of, &grant, "text")));
        assert_eq!(done, Some(Done::Already), "{of:?}");
    }
}

pub(in crate::kit) fn another_outcome_of_an_ended_claim_is_refused(stage: &mut Stage<'_>) {
    for of in ENDS {
        let grant = fresh(stage, of);
        granted(call(stage, of, &grant, "text"));
        let reason = match leaves(of) {
            "NEW" => Reason::FencingTokenStale,
            _ => Reason::MessageFinished,
        };
        for other in CALLS {
            if other != of {
                refuses(stage, other, &grant, reason);
            }
        }
        if of != Call::GiveBack {
            stage.refused_and_recorded(reason, |stage| call(stage, of, &grant, "another text"));
        }
    }
}

pub(in crate::kit) fn only_its_own_grant_is_recognised_again(stage: &mut Stage<'_>) {
    for of in ENDS {
        let grant = fresh(stage, of);
        granted(call(stage, of, &grant, "text"));
        let reason = match leaves(of) {
            "NEW" => Reason::FencingTokenStale,
            _ => Reason::MessageFinished,
        };
        for wrong in [
            presented(&grant, OTHER, Some(A), grant.token()),
            presented(&grant, COURSE, Some(B), grant.token()),
            presented(&grant, COURSE, None, grant.token()),
            presented(&grant, COURSE, Some(A), after(grant.token(), 1)),
        ] {
            refuses(stage, of, &wrong, reason);
        }
    }
}

pub(in crate::kit) fn a_newer_claim_ends_the_recognition(stage: &mut Stage<'_>) {
    for of in [Call::GiveBack, Call::Retry] {
        let grant = fresh(stage, of);
        granted(call(stage, of, &grant, "text"));
        let ask = Claim {
            message: grant.message().clone(),
            ..stage.ask(B)
        };
        let newer = granted(stage.mailbox_claim(&ask)).grant;
        refuses(stage, of, &grant, Reason::FencingTokenStale);
        settled(stage.mailbox_give_back(&newer), "NEW");
        refuses(stage, of, &grant, Reason::FencingTokenStale);
    }
}

pub(in crate::kit) fn an_operators_dead_letter_does_not_end_the_recognition(stage: &mut Stage<'_>) {
    for of in [Call::GiveBack, Call::Retry] {
        let grant = fresh(stage, of);
        granted(call(stage, of, &grant, "text"));
        done(stage.mailbox_dead_letter_new(grant.message()));
        let (done, state) = granted(stage.unchanged(|stage| call(stage, of, &grant, "text")));
        assert_eq!(
            (done, state),
            (Some(Done::Already), "DEAD"),
            "and its state is told as it is"
        );
    }
}

pub(in crate::kit) fn a_retry_can_delay_the_next_delivery(stage: &mut Stage<'_>) {
    stage.send_job();
    let grant = stage.claimed(A);
    let due = stage.moment(7);
    settled(stage.mailbox_retry(&grant, Some(due), "not yet"), "NEW");
    let refusal = stage.unchanged(|stage| refused(stage.claim(A), Reason::MessageNotDue));
    assert_eq!(refusal.due_at, Some(due));
    stage.at(7);
    let grant = stage.claimed(A);
    settled(stage.mailbox_retry(&grant, None, "at once"), "NEW");
    stage.at(0);
    stage.claimed(A);
}
