//! The history: one event for every transition, none for renewals, refusals and repetitions; and what is kept of refusals.

use keyfence_core::actor::ActorGrant;
use keyfence_core::attempt::{CloseLost, Outcome};
use keyfence_core::event::EventKind;
use keyfence_core::gate::Binding;
use keyfence_core::lease::Released;
use keyfence_core::mailbox::{MessageGrant, Redrive};
use keyfence_core::refusal::Holder;
use keyfence_core::{Expiry, ProcessId, Reason, Token};

use crate::kit::Letter;
use crate::kit::stage::{
    A, B, COURSE, JOB, KIOSK_A, KIOSK_B, OTHER, Stage, attempt_id, binding, done, granted, minutes, name, never_issued,
    refused,
};

fn holder(of: &str, process: ProcessId) -> Option<Holder> {
    Some(Holder {
        name: name(of),
        process: Some(process),
    })
}

pub(in crate::kit) fn an_actor_leaves_an_event_for_every_transition(stage: &mut Stage<'_>) {
    let (first, event) = stage.leaves(EventKind::ActorAcquired, |stage| stage.lease(A));
    assert_eq!((event.holder, event.token), (holder(COURSE, A), Some(first.token())));
    assert_eq!(event.subject, name(COURSE));
    assert_eq!(event.expires_at, Some(stage.moment(5)));
    assert_eq!(event.replaced, None);
    stage.at(1);
    granted(stage.actor_renew(&first, minutes(5)));
    stage.at(6);
    let (second, event) = stage.leaves(EventKind::ActorAcquired, |stage| stage.lease(B));
    let replaced = event.replaced.expect("a takeover names what it replaced");
    assert_eq!(
        (Some(replaced.holder), replaced.token),
        (holder(COURSE, A), first.token())
    );
    assert_eq!(replaced.expiry, Expiry::At(stage.moment(6)));
    assert_eq!((event.holder, event.token), (holder(COURSE, B), Some(second.token())));
    let (released, event) = stage.leaves(EventKind::ActorReleased, |stage| stage.actor_release(&second));
    assert_eq!(granted(released), Released::Now);
    assert_eq!((event.holder, event.token), (holder(COURSE, B), Some(second.token())));
    assert_eq!(event.expires_at, Some(stage.moment(11)));
    let (third, event) = stage.leaves(EventKind::ActorAcquired, |stage| stage.lease(B));
    assert_eq!(event.replaced, None, "nothing was held");
    let (_, event) = stage.leaves(EventKind::ActorRevoked, |stage| stage.actor_revoke(&name(COURSE)));
    assert_eq!(event.holder, None, "an operator's act");
    let replaced = event.replaced.expect("the claim that was revoked");
    assert_eq!(
        (Some(replaced.holder), replaced.token),
        (holder(COURSE, B), third.token())
    );
}

pub(in crate::kit) fn an_attempt_leaves_an_event_for_every_transition(stage: &mut Stage<'_>) {
    let lease = stage.lease(A);
    let (_, event) = stage.leaves(EventKind::AssignmentCreated, |stage| stage.assign(JOB, COURSE));
    assert_eq!(
        (event.subject, event.holder.map(|holder| holder.name)),
        (name(JOB), Some(name(COURSE)))
    );
    let (first, event) = stage.leaves(EventKind::AttemptAcquired, |stage| stage.attempt(&lease, 1));
    assert_eq!((event.holder, event.token), (holder(COURSE, A), Some(first.token())));
    assert_eq!(
        (event.parent_token, event.attempt),
        (Some(lease.token()), Some(attempt_id(1)))
    );
    assert_eq!((event.expires_at, event.replaced), (Some(stage.moment(15)), None));
    granted(stage.actor_renew(&lease, minutes(600)));
    granted(stage.attempt_renew(&first, minutes(20)));
    stage.at(20);
    let (second, event) = stage.leaves(EventKind::AttemptAcquired, |stage| stage.attempt(&lease, 2));
    let replaced = event.replaced.expect("a takeover names what it replaced");
    assert_eq!(
        (Some(replaced.holder), replaced.token),
        (holder(COURSE, A), first.token())
    );
    assert_eq!(replaced.expiry, Expiry::At(stage.moment(20)));
    let (_, event) = stage.leaves(EventKind::AttemptReleased, |stage| stage.attempt_release(&second));
    assert_eq!((event.holder, event.token), (holder(COURSE, A), Some(second.token())));
    assert_eq!(
        (event.parent_token, event.attempt),
        (Some(lease.token()), Some(attempt_id(2)))
    );
    assert_eq!(event.expires_at, Some(stage.moment(35)));
    let third = stage.attempt(&lease, 3);
    let (_, event) = stage.leaves(EventKind::AttemptRevoked, |stage| stage.attempt_revoke(&name(JOB)));
    assert_eq!((event.holder, event.attempt), (None, Some(attempt_id(3))));
    assert_eq!(event.replaced.map(|replaced| replaced.token), Some(third.token()));
    let fourth = stage.attempt(&lease, 4);
    stage.at(35);
    let (closed, event) = stage.leaves(EventKind::AttemptWorkerLost, |stage| {
        stage.attempt_close_lost(&name(JOB))
    });
    assert_eq!(granted(closed), CloseLost::Closed);
    assert_eq!((event.holder, event.attempt), (None, Some(attempt_id(4))));
    assert_eq!(event.replaced.map(|replaced| replaced.token), Some(fourth.token()));
}

pub(in crate::kit) fn an_attempts_end_is_in_the_history_by_its_name(stage: &mut Stage<'_>) {
    let lease = stage.lease(A);
    for (number, outcome, kind) in [
        (1, Outcome::Completed, EventKind::AttemptCompleted),
        (2, Outcome::Blocked, EventKind::AttemptBlocked),
        (3, Outcome::Failed, EventKind::AttemptFailed),
    ] {
        let id = format!("job-{number}");
        stage.assign(&id, COURSE);
        let ask = keyfence_core::attempt::Acquire {
            assignment: name(&id),
            ..stage.try_job(&lease, number)
        };
        let grant = granted(stage.attempt_acquire(&ask)).grant;
        let (done, event) = stage.leaves(kind, |stage| stage.attempt_finish(&grant, outcome, ""));
        let _ = granted(done);
        assert_eq!((event.holder, event.token), (holder(COURSE, A), Some(grant.token())));
        assert_eq!(event.expires_at, Some(stage.moment(15)));
        let again = stage.unchanged(|stage| stage.attempt_finish(&grant, outcome, ""));
        let _ = granted(again);
    }
    let retry = keyfence_core::attempt::Create {
        id: name("again"),
        actor: name(COURSE),
        retry_of: Some(name("job-3")),
    };
    let (_, event) = stage.leaves(EventKind::AssignmentCreated, |stage| stage.assignment_create(&retry));
    assert_eq!(event.refers_to, Some(name("job-3")));
}

pub(in crate::kit) fn a_message_leaves_an_event_for_every_transition(stage: &mut Stage<'_>) {
    let lease = stage.lease(A);
    let letter = Letter {
        sender: Some(name(OTHER)),
        ..stage.letter(JOB)
    };
    let (_, event) = stage.leaves(EventKind::MessageSent, |stage| stage.send(&letter));
    assert_eq!((event.subject, event.retries), (name(JOB), Some(0)));
    assert_eq!(event.holder.map(|holder| holder.name), Some(name(OTHER)));
    let ask = keyfence_core::mailbox::Claim {
        lease_token: Some(lease.token()),
        ..stage.ask(A)
    };
    let (first, event) = stage.leaves(EventKind::MessageClaimed, |stage| {
        granted(stage.mailbox_claim(&ask)).grant
    });
    assert_eq!((event.holder, event.token), (holder(COURSE, A), Some(first.token())));
    assert_eq!(
        (event.parent_token, event.expires_at),
        (Some(lease.token()), Some(stage.moment(15)))
    );
    assert_eq!((event.retries, event.replaced), (Some(0), None));
    stage.at(15);
    let (second, event) = stage.leaves(EventKind::MessageClaimed, |stage| stage.claimed(B));
    assert_eq!(event.retries, Some(1));
    let replaced = event.replaced.expect("a takeover names what it replaced");
    assert_eq!(
        (Some(replaced.holder), replaced.token),
        (holder(COURSE, A), first.token())
    );
    assert_eq!(replaced.expiry, Expiry::At(stage.moment(15)));
    let (_, event) = stage.leaves(EventKind::MessageGivenBack, |stage| stage.mailbox_give_back(&second));
    assert_eq!((event.holder, event.token), (holder(COURSE, B), Some(second.token())));
    assert_eq!((event.retries, event.expires_at), (Some(1), Some(stage.moment(30))));
    let third = stage.claimed(B);
    let (_, event) = stage.leaves(EventKind::MessageRetried, |stage| stage.mailbox_retry(&third, None, ""));
    assert_eq!((event.token, event.retries), (Some(third.token()), Some(2)));
    let fourth = stage.claimed(B);
    let (_, event) = stage.leaves(EventKind::MessageRevoked, |stage| stage.mailbox_revoke(&name(JOB)));
    assert_eq!((event.holder, event.retries), (None, Some(2)));
    assert_eq!(event.replaced.map(|replaced| replaced.token), Some(fourth.token()));
    let fifth = stage.claimed(B);
    stage.at(30);
    let (_, event) = stage.leaves(EventKind::MessageLapsed, |stage| stage.mailbox_sweep(None, 8));
    assert_eq!((event.holder, event.retries), (None, Some(3)));
    assert_eq!(event.replaced.map(|replaced| replaced.token), Some(fifth.token()));
    let sixth = stage.claimed(B);
    stage.at(45);
    let (_, event) = stage.leaves(EventKind::MessageDead, |stage| stage.mailbox_sweep(None, 8));
    assert_eq!((event.holder, event.retries), (None, Some(3)));
    assert_eq!(event.replaced.map(|replaced| replaced.token), Some(sixth.token()));
    let redrive = Redrive {
        dead: name(JOB),
        id: name("again"),
    };
    let (_, event) = stage.leaves(EventKind::MessageRedriven, |stage| stage.mailbox_redrive(&redrive));
    assert_eq!((event.subject, event.refers_to), (name("again"), Some(name(JOB))));
    assert_eq!(event.retries, Some(0));
    let (_, event) = stage.leaves(EventKind::MessageDead, |stage| {
        stage.mailbox_dead_letter_new(&name("again"))
    });
    assert_eq!(
        (event.subject, event.holder, event.retries),
        (name("again"), None, Some(0))
    );
}

pub(in crate::kit) fn a_messages_end_is_in_the_history_by_its_name(stage: &mut Stage<'_>) {
    stage.send_job();
    let grant = stage.claimed(A);
    let (_, event) = stage.leaves(EventKind::MessageCompleted, |stage| stage.mailbox_complete(&grant, ""));
    assert_eq!((event.holder, event.token), (holder(COURSE, A), Some(grant.token())));
    assert_eq!((event.retries, event.expires_at), (Some(0), Some(stage.moment(15))));
    for (id, retries_max) in [("dead", 3), ("failed", 0)] {
        let letter = Letter {
            retries_max,
            ..stage.letter(id)
        };
        stage.send(&letter);
        let ask = stage.next(A);
        let grant = granted(stage.mailbox_claim_next(&ask, 1)).remove(0).grant;
        let (_, event) = stage.leaves(EventKind::MessageDead, |stage| match retries_max {
            0 => drop(stage.mailbox_retry(&grant, None, "")),
            _ => drop(stage.mailbox_dead_letter(&grant, "")),
        });
        assert_eq!((event.holder, event.token), (holder(COURSE, A), Some(grant.token())));
        assert_eq!(event.retries, Some(0));
    }
}

pub(in crate::kit) fn a_claim_that_finds_no_budget_leaves_the_events_of_the_end_only(stage: &mut Stage<'_>) {
    let letter = Letter {
        retries_max: 0,
        ..stage.letter(JOB)
    };
    stage.send(&letter);
    let grant = stage.claimed(A);
    stage.at(15);
    let (answer, event) = stage.leaves(EventKind::MessageDead, |stage| stage.claim(B));
    refused(answer, Reason::MessageFinished);
    assert_eq!(event.replaced.map(|replaced| replaced.token), Some(grant.token()));
}

pub(in crate::kit) fn an_operators_act_on_a_lapsed_claim_leaves_both_events(stage: &mut Stage<'_>) {
    stage.send_job();
    let grant = stage.claimed(A);
    stage.at(15);
    let before = stage.history().len();
    done(stage.mailbox_dead_letter_new(&name(JOB)));
    let after = stage.history();
    let [lapsed, dead] = &after[before..] else {
        panic!("two events: {:?}", &after[before..]);
    };
    assert_eq!((lapsed.kind, lapsed.retries), (EventKind::MessageLapsed, Some(1)));
    let replaced = lapsed.replaced.as_ref().map(|replaced| replaced.token);
    assert_eq!((lapsed.holder.as_ref(), replaced), (None, Some(grant.token())));
    assert_eq!((dead.kind, dead.retries), (EventKind::MessageDead, Some(1)));
    assert_eq!((dead.holder.as_ref(), dead.replaced.as_ref()), (None, None));
}

pub(in crate::kit) fn a_host_leaves_an_event_for_every_transition(stage: &mut Stage<'_>) {
    let (first, event) = stage.leaves(EventKind::HostRegistered, |stage| stage.register(KIOSK_A, A, 1));
    assert_eq!((event.holder, event.token), (holder(KIOSK_A, A), Some(first.token())));
    assert_eq!((event.expires_at, event.replaced), (Some(stage.moment(1)), None));
    stage.at(1);
    let (second, event) = stage.leaves(EventKind::HostRegistered, |stage| stage.register(KIOSK_A, B, 1));
    let replaced = event.replaced.expect("a takeover names what it replaced");
    assert_eq!(
        (Some(replaced.holder), replaced.token),
        (holder(KIOSK_A, A), first.token())
    );
    let (_, event) = stage.leaves(EventKind::HostReleased, |stage| stage.host_release(&second));
    assert_eq!((event.holder, event.token), (holder(KIOSK_A, B), Some(second.token())));
    stage.register(KIOSK_A, A, 1);
    let (_, event) = stage.leaves(EventKind::HostRevoked, |stage| stage.host_revoke(&name(KIOSK_A)));
    assert_eq!(event.holder, None);
}

pub(in crate::kit) fn a_session_leaves_an_event_for_every_transition(stage: &mut Stage<'_>) {
    let a = stage.register(KIOSK_A, A, 60);
    let b = stage.register(KIOSK_B, B, 60);
    let (first, event) = stage.leaves(EventKind::SessionClaimed, |stage| stage.held(&a, 1, 1));
    assert_eq!((event.holder, event.token), (holder(KIOSK_A, A), Some(first.token())));
    assert_eq!(
        (event.parent_token, event.incarnation),
        (Some(a.token()), Some(first.incarnation()))
    );
    assert_eq!((event.expires_at, event.replaced), (Some(stage.moment(1)), None));
    stage.at(1);
    let (second, event) = stage.leaves(EventKind::SessionClaimed, |stage| stage.held(&b, 1, 2));
    let replaced = event.replaced.expect("a takeover names what it replaced");
    assert_eq!(
        (Some(replaced.holder), replaced.token),
        (holder(KIOSK_A, A), first.token())
    );
    assert_eq!(replaced.expiry, Expiry::At(stage.moment(1)));
    let (_, event) = stage.leaves(EventKind::SessionReleased, |stage| stage.session_release(&second));
    assert_eq!(
        (event.holder, event.incarnation),
        (holder(KIOSK_B, B), Some(second.incarnation()))
    );
    let third = stage.held(&b, 1, 3);
    let (_, event) = stage.leaves(EventKind::SessionRevoked, |stage| stage.session_revoke(&name(JOB)));
    assert_eq!((event.holder, event.incarnation), (None, Some(third.incarnation())));
    assert_eq!(event.replaced.map(|replaced| replaced.token), Some(third.token()));
    let fourth = stage.held(&a, 1, 4);
    let (_, event) = stage.leaves(EventKind::SessionFinished, |stage| stage.session_finish(&fourth, ""));
    assert_eq!((event.holder, event.token), (holder(KIOSK_A, A), Some(fourth.token())));
    assert_eq!(
        (event.parent_token, event.incarnation),
        (Some(a.token()), Some(fourth.incarnation()))
    );
}

pub(in crate::kit) fn gates_and_tokens_of_ones_own_leave_events(stage: &mut Stage<'_>) {
    let (token, event) = stage.leaves(EventKind::TokenMinted, |stage| granted(stage.mint(&name("till"))));
    assert_eq!((event.subject, event.token), (name("till"), Some(token)));
    let ask = stage.pass(token);
    let (_, event) = stage.leaves(EventKind::GateRaised, |stage| stage.gate_admit(&ask));
    assert_eq!((event.subject, event.token), (name(JOB), Some(token)));
    let other = Binding {
        name: name("another"),
        ..binding()
    };
    let (_, event) = stage.leaves(EventKind::GateRebound, |stage| stage.gate_rebind(&name(JOB), &other));
    assert_eq!(event.subject, name(JOB));
}

pub(in crate::kit) fn tokens_grow_in_the_order_of_events(stage: &mut Stage<'_>) {
    stage.send_job();
    for turn in 0..3 {
        stage.at(turn * 15);
        let lease = stage.lease(A);
        stage.claimed(A);
        assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
        let host = stage.register(KIOSK_A, A, 1);
        stage.held(&host, 1, turn + 1);
    }
    let claims = [
        EventKind::ActorAcquired,
        EventKind::MessageClaimed,
        EventKind::HostRegistered,
        EventKind::SessionClaimed,
    ];
    let events = stage.history();
    let tokens: Vec<_> = events
        .iter()
        .filter(|event| claims.contains(&event.kind))
        .map(|event| event.token.expect("a claim has one"))
        .collect();
    assert_eq!(tokens.len(), 12);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

// ---- refused calls

pub(in crate::kit) fn a_refused_token_is_recorded_with_what_was_presented(stage: &mut Stage<'_>) {
    stage.send_job();
    let old = stage.claimed(A);
    stage.at(15);
    stage.claimed(B);
    refused(stage.mailbox_complete(&old, ""), Reason::FencingTokenStale);
    let made_up = MessageGrant::presented(name(JOB), name(COURSE), Some(A), never_issued());
    refused(stage.mailbox_complete(&made_up, ""), Reason::FencingTokenStale);
    let calls = stage.refusals();
    let [first, second] = &calls[..] else {
        panic!("two were refused: {calls:?}");
    };
    assert_eq!((first.at, first.reason), (stage.now(), Reason::FencingTokenStale));
    assert_eq!(
        (&first.subject, first.presented, first.never_issued),
        (&name(JOB), old.token(), false)
    );
    assert_eq!((second.presented, second.never_issued), (never_issued(), true));
}

pub(in crate::kit) fn a_release_under_a_stale_token_changes_nothing_and_is_recorded(stage: &mut Stage<'_>) {
    let (old, attempt) = stage.working(A);
    let host = stage.register(KIOSK_A, A, 5);
    let session = stage.held(&host, 5, 1);
    stage.at(5);
    stage.lease(B);
    stage.register(KIOSK_A, B, 5);
    let made_up = ActorGrant::presented(name(COURSE), A, never_issued());
    let released = [
        stage.unchanged(|stage| stage.actor_release(&old)),
        stage.unchanged(|stage| stage.host_release(&host)),
        stage.unchanged(|stage| stage.attempt_release(&attempt)),
        stage.unchanged(|stage| stage.session_release(&session)),
        stage.unchanged(|stage| stage.actor_release(&made_up)),
    ];
    for answer in released {
        assert_eq!(granted(answer), Released::NotHeld);
    }
    let recorded: Vec<(Reason, Token, bool)> = stage
        .refusals()
        .iter()
        .map(|call| (call.reason, call.presented, call.never_issued))
        .collect();
    assert_eq!(
        recorded,
        [
            (Reason::ActorLeaseLost, old.token(), false),
            (Reason::HostLeaseLost, host.token(), false),
            (Reason::ActorLeaseLost, attempt.token(), false),
            (Reason::SessionClaimStale, session.token(), false),
            (Reason::ActorLeaseLost, never_issued(), true),
        ]
    );
}

pub(in crate::kit) fn a_refusal_without_a_token_leaves_no_record(stage: &mut Stage<'_>) {
    stage.send_job();
    stage.claimed(A);
    refused(stage.claim(B), Reason::MessageHeld);
    stage.lease(A);
    let ask = stage.acquire(B);
    refused(stage.actor_acquire(&ask), Reason::ActorLeaseHeld);
    assert_eq!(stage.refusals(), []);
}
