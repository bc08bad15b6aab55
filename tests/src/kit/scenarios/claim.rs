//! The mailbox: claims by id, the next ones, extensions and sweeps.

use keyfence_core::Reason;
use keyfence_core::lease::Released;
use keyfence_core::mailbox::{Claim, ClaimNext, MessageGrant, Priority};
use keyfence_core::store::Place;

use crate::kit::Letter;
use crate::kit::stage::{A, B, C, COURSE, JOB, OTHER, Stage, after, done, granted, minutes, name, refused};

pub(in crate::kit) fn a_new_message_is_claimed_by_its_recipient(stage: &mut Stage<'_>) {
    stage.send_job();
    let won = granted(stage.claim(A));
    assert!(!won.renewed);
    assert_eq!(won.expires_at, stage.moment(15));
    assert_eq!(stage.minted(), Some(won.grant.token()));
    assert_eq!((won.grant.owner(), won.grant.process()), (&name(COURSE), Some(A)));
    let row = stage.seen(Place::Message, JOB);
    assert_eq!(
        (row.state, row.process, row.token),
        ("CLAIMED", Some(A), Some(won.grant.token()))
    );
    assert_eq!((row.retries, row.deliveries), (Some(0), Some(1)));
}

pub(in crate::kit) fn a_message_that_is_not_there_cannot_be_claimed(stage: &mut Stage<'_>) {
    refused(stage.claim(A), Reason::MessageMissing);
    assert_eq!(stage.minted(), None);
}

pub(in crate::kit) fn only_the_recipient_can_claim(stage: &mut Stage<'_>) {
    stage.send_job();
    let ask = Claim {
        owner: name(OTHER),
        ..stage.ask(A)
    };
    stage.unchanged(|stage| refused(stage.mailbox_claim(&ask), Reason::WrongRecipient));
}

pub(in crate::kit) fn the_recipient_is_tested_before_any_fencing(stage: &mut Stage<'_>) {
    let letter = Letter {
        not_before: Some(stage.moment(1)),
        ..stage.letter(JOB)
    };
    stage.send(&letter);
    let lease = stage.lease(B);
    let ask = Claim {
        owner: name(OTHER),
        lease_token: Some(lease.token()),
        ..stage.ask(A)
    };
    refused(stage.mailbox_claim(&ask), Reason::WrongRecipient);
    stage.at(1);
    let held = stage.claimed(A);
    // Not even the process that holds it passes under another name.
    let ask = Claim {
        owner: name(OTHER),
        ..stage.ask(A)
    };
    refused(stage.mailbox_claim(&ask), Reason::WrongRecipient);
    done(stage.mailbox_complete(&held, ""));
    refused(stage.mailbox_claim(&ask), Reason::WrongRecipient);
}

pub(in crate::kit) fn a_message_is_claimed_from_the_moment_it_is_due(stage: &mut Stage<'_>) {
    let letter = Letter {
        not_before: Some(stage.moment(3)),
        ..stage.letter(JOB)
    };
    stage.send(&letter);
    stage.at_ms(3 * 60_000 - 1);
    let refusal = stage.unchanged(|stage| refused(stage.claim(A), Reason::MessageNotDue));
    assert_eq!(refusal.due_at, Some(stage.moment(3)));
    let next = stage.next(A);
    assert_eq!(granted(stage.mailbox_claim_next(&next, 8)), []);
    stage.at(3);
    stage.claimed(A);
}

pub(in crate::kit) fn a_live_claim_refuses_every_other_process(stage: &mut Stage<'_>) {
    stage.send_job();
    stage.claimed(A);
    stage.at_ms(15 * 60_000 - 1);
    let mut anonymous = stage.ask(B);
    anonymous.process = None;
    for ask in [stage.ask(B), anonymous] {
        let refusal = stage.unchanged(|stage| refused(stage.mailbox_claim(&ask), Reason::MessageHeld));
        let holder = refusal.holder.expect("who holds it");
        assert_eq!((holder.name, holder.process), (name(COURSE), Some(A)));
        assert_eq!(refusal.expires_at, Some(stage.moment(15)));
        assert_eq!(refusal.since, Some(stage.moment(0)));
        assert_eq!(refusal.held_token, None, "a refusal never carries a message's token");
    }
}

pub(in crate::kit) fn the_same_process_gets_the_same_grant_inside_its_claim(stage: &mut Stage<'_>) {
    stage.send_job();
    let held = stage.claimed(A);
    stage.at(5);
    let again = stage.unchanged(|stage| granted(stage.claim(A)));
    assert!(again.renewed);
    assert_eq!(again.grant, held);
    assert_eq!(again.expires_at, stage.moment(15), "only an extension moves it");
}

pub(in crate::kit) fn callers_without_a_process_are_one_anonymous_process(stage: &mut Stage<'_>) {
    stage.send_job();
    let ask = Claim {
        process: None,
        ..stage.ask(A)
    };
    let first = granted(stage.mailbox_claim(&ask));
    let again = granted(stage.mailbox_claim(&ask));
    assert!(again.renewed);
    assert_eq!(again.grant, first.grant);
    refused(stage.claim(A), Reason::MessageHeld);
    done(stage.mailbox_complete(&first.grant, ""));
}

pub(in crate::kit) fn a_lapsed_claim_goes_to_whoever_claims_under_a_greater_token(stage: &mut Stage<'_>) {
    stage.send_job();
    let first = stage.claimed(A);
    stage.at(15);
    let second = stage.claimed(B);
    assert_eq!(second.token(), after(first.token(), 1));
    stage.at(30);
    let third = stage.claimed(B);
    assert_eq!(third.token(), after(second.token(), 1), "the old holder mints anew too");
    assert_eq!(stage.seen(Place::Message, JOB).deliveries, Some(3));
}

pub(in crate::kit) fn a_finished_message_cannot_be_claimed(stage: &mut Stage<'_>) {
    for (id, dead) in [("done", false), ("dead", true)] {
        let letter = stage.letter(id);
        stage.send(&letter);
        let ask = Claim {
            message: name(id),
            ..stage.ask(A)
        };
        let grant = granted(stage.mailbox_claim(&ask)).grant;
        if dead {
            done(stage.mailbox_dead_letter(&grant, ""));
        } else {
            done(stage.mailbox_complete(&grant, ""));
        }
        stage.unchanged(|stage| refused(stage.mailbox_claim(&ask), Reason::MessageFinished));
    }
    let next = stage.next(A);
    assert_eq!(granted(stage.mailbox_claim_next(&next, 8)), []);
}

// ---- claims that descend from an actor lease

/// An ask that names the actor lease it descends from.
fn under(stage: &Stage<'_>, process: keyfence_core::ProcessId, lease: keyfence_core::Token) -> Claim {
    Claim {
        lease_token: Some(lease),
        ..stage.ask(process)
    }
}

pub(in crate::kit) fn a_claim_can_descend_from_an_actor_lease(stage: &mut Stage<'_>) {
    stage.send_job();
    let lease = stage.lease(A);
    let ask = under(stage, A, lease.token());
    let first = granted(stage.mailbox_claim(&ask));
    assert!(!first.renewed);
    let again = stage.unchanged(|stage| granted(stage.mailbox_claim(&ask)));
    assert!(again.renewed);
    assert_eq!(again.grant, first.grant);
    let bare = stage.unchanged(|stage| granted(stage.claim(A)));
    assert_eq!(bare.grant, first.grant, "it need not be named again");
    done(stage.mailbox_complete(&first.grant, ""));
}

pub(in crate::kit) fn a_claim_names_a_lease_that_is_live_and_its_own(stage: &mut Stage<'_>) {
    stage.send_job();
    let lapsed = stage.lease(A);
    stage.at(5);
    let by_lapsed = under(stage, A, lapsed.token());
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.mailbox_claim(&by_lapsed));
    let lease = stage.lease(A);
    let by_stale = under(stage, A, lapsed.token());
    let by_another = under(stage, B, lease.token());
    let anonymous = Claim {
        process: None,
        ..by_another.clone()
    };
    for ask in [by_stale, by_another, anonymous] {
        let refusal = stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.mailbox_claim(&ask));
        assert_eq!(refusal.held_token, Some(lease.token()));
        let next = ClaimNext {
            owner: ask.owner,
            process: ask.process,
            lease_token: ask.lease_token,
            ttl: ask.ttl,
        };
        stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.mailbox_claim_next(&next, 8));
    }
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    let by_released = under(stage, A, lease.token());
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.mailbox_claim(&by_released));
    assert_eq!(stage.seen(Place::Message, JOB).state, "NEW");
}

pub(in crate::kit) fn a_claim_whose_lease_is_gone_is_not_granted_again(stage: &mut Stage<'_>) {
    stage.send_job();
    let lease = stage.lease(A);
    let ask = under(stage, A, lease.token());
    granted(stage.mailbox_claim(&ask));
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.mailbox_claim(&ask));
    stage.unchanged(|stage| refused(stage.claim(A), Reason::ActorLeaseLost));
}

pub(in crate::kit) fn a_claim_under_one_lease_is_not_the_grant_of_another(stage: &mut Stage<'_>) {
    stage.send_job();
    let first = stage.lease(A);
    let ask = under(stage, A, first.token());
    granted(stage.mailbox_claim(&ask));
    stage.at(5);
    let second = stage.lease(A);
    let ask = under(stage, A, second.token());
    let refusal = stage.unchanged(|stage| refused(stage.mailbox_claim(&ask), Reason::MessageHeld));
    assert_eq!(refusal.expires_at, Some(stage.moment(15)));
    // Nor does a number that nobody was granted pass beside a claim that names none.
    stage.at(15);
    stage.claimed(A);
    let made_up = under(stage, A, crate::kit::stage::never_issued());
    let refusal = stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.mailbox_claim(&made_up));
    assert!(refusal.never_issued);
}

// ---- the next ones

pub(in crate::kit) fn the_next_messages_come_by_priority_then_age(stage: &mut Stage<'_>) {
    for (id, priority) in [("low", -1), ("old", 0), ("urgent", 5), ("young", 0)] {
        let letter = Letter {
            priority: Priority::new(priority).expect("in range"),
            ..stage.letter(id)
        };
        stage.send(&letter);
    }
    let ask = stage.next(A);
    let first = granted(stage.mailbox_claim_next(&ask, 3));
    let ids: Vec<_> = first.iter().map(|granted| granted.grant.message().as_str()).collect();
    assert_eq!(ids, ["urgent", "old", "young"]);
    let tokens: Vec<_> = first.iter().map(|granted| granted.grant.token()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "one token each: {tokens:?}");
    let rest = granted(stage.mailbox_claim_next(&ask, 3));
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].grant.message(), &name("low"));
    assert!(!rest[0].renewed);
    assert_eq!(rest[0].expires_at, stage.moment(15));
    for granted_one in first.iter().chain(&rest) {
        done(stage.mailbox_complete(&granted_one.grant, ""));
    }
}

pub(in crate::kit) fn an_empty_mailbox_grants_nothing(stage: &mut Stage<'_>) {
    stage.send_job();
    let ask = ClaimNext {
        owner: name(OTHER),
        ..stage.next(A)
    };
    let answer = stage.unchanged(|stage| stage.mailbox_claim_next(&ask, 8));
    assert_eq!(granted(answer), []);
    let ask = stage.next(A);
    let answer = stage.unchanged(|stage| stage.mailbox_claim_next(&ask, 0));
    assert_eq!(granted(answer), []);
}

pub(in crate::kit) fn the_next_message_is_never_a_live_one_nor_ones_own(stage: &mut Stage<'_>) {
    stage.send_job();
    stage.claimed(A);
    stage.at_ms(15 * 60_000 - 1);
    for process in [A, B] {
        let ask = stage.next(process);
        let answer = stage.unchanged(|stage| stage.mailbox_claim_next(&ask, 8));
        assert_eq!(granted(answer), []);
    }
}

pub(in crate::kit) fn the_next_message_may_be_a_lapsed_one(stage: &mut Stage<'_>) {
    stage.send_job();
    let first = stage.claimed(A);
    stage.at(15);
    let ask = stage.next(B);
    let next = granted(stage.mailbox_claim_next(&ask, 8));
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].grant.token(), after(first.token(), 1));
    let row = stage.seen(Place::Message, JOB);
    assert_eq!((row.process, row.retries), (Some(B), Some(1)));
}

pub(in crate::kit) fn the_next_messages_descend_from_the_lease_they_are_asked_under(stage: &mut Stage<'_>) {
    stage.send_job();
    let lease = stage.lease(A);
    let ask = ClaimNext {
        lease_token: Some(lease.token()),
        ..stage.next(A)
    };
    let next = granted(stage.mailbox_claim_next(&ask, 1)).remove(0);
    assert_eq!(granted(stage.actor_release(&lease)), Released::Now);
    stage.refused_and_recorded(Reason::ActorLeaseLost, |stage| stage.mailbox_complete(&next.grant, ""));
}

pub(in crate::kit) fn more_messages_than_one_look_offers_are_all_claimed(stage: &mut Stage<'_>) {
    let count = keyfence_core::store::CANDIDATES_MAX.min(stage.bounds().rows_max.unwrap_or(usize::MAX)) + 1;
    let count = count.min(stage.bounds().rows_max.unwrap_or(usize::MAX));
    for number in 0..count {
        let letter = stage.letter(&format!("job-{number}"));
        stage.send(&letter);
    }
    let ask = stage.next(A);
    let all = granted(stage.mailbox_claim_next(&ask, count + 1));
    let ids: Vec<_> = all.iter().map(|granted| granted.grant.message().to_string()).collect();
    let sent: Vec<_> = (0..count).map(|number| format!("job-{number}")).collect();
    assert_eq!(ids, sent);
    stage.at(15);
    assert_eq!(granted(stage.mailbox_sweep(None, count + 1)), count);
}

// ---- extensions

pub(in crate::kit) fn an_extension_keeps_the_token_and_moves_the_expiry(stage: &mut Stage<'_>) {
    stage.send_job();
    let held = stage.claimed(A);
    stage.at(10);
    let extended = granted(stage.mailbox_extend(&held, minutes(15)));
    assert!(extended.renewed);
    assert_eq!(extended.grant, held);
    assert_eq!(extended.expires_at, stage.moment(25));
    assert_eq!(stage.minted(), Some(held.token()));
    stage.at(20);
    refused(stage.claim(B), Reason::MessageHeld);
    let again = granted(stage.claim(A));
    assert_eq!(again.expires_at, stage.moment(25));
}

pub(in crate::kit) fn an_extension_never_shortens_a_claim(stage: &mut Stage<'_>) {
    stage.send_job();
    let held = stage.claimed(A);
    let extended = granted(stage.mailbox_extend(&held, minutes(1)));
    assert_eq!(extended.expires_at, stage.moment(15));
    assert_eq!(stage.seen(Place::Message, JOB).expires_at, Some(stage.moment(15)));
}

pub(in crate::kit) fn a_lapsed_claim_cannot_be_extended(stage: &mut Stage<'_>) {
    stage.send_job();
    let held = stage.claimed(A);
    stage.at_ms(15 * 60_000 - 1);
    granted(stage.mailbox_extend(&held, minutes(1)));
    stage.at(17);
    stage.unchanged(|stage| refused(stage.mailbox_extend(&held, minutes(15)), Reason::ClaimLapsed));
}

// ---- sweeps

pub(in crate::kit) fn a_sweep_turns_lapsed_claims_into_new_messages(stage: &mut Stage<'_>) {
    stage.send_job();
    let held = stage.claimed(A);
    stage.at_ms(15 * 60_000 - 1);
    let answer = stage.unchanged(|stage| stage.mailbox_sweep(Some(&name(COURSE)), 8));
    assert_eq!(granted(answer), 0, "a live claim is not swept");
    stage.at(15);
    assert_eq!(
        granted(stage.mailbox_sweep(Some(&name(OTHER)), 8)),
        0,
        "only this recipient's"
    );
    assert_eq!(granted(stage.mailbox_sweep(Some(&name(COURSE)), 0)), 0);
    assert_eq!(granted(stage.mailbox_sweep(Some(&name(COURSE)), 8)), 1);
    let row = stage.seen(Place::Message, JOB);
    assert_eq!((row.state, row.process, row.token), ("NEW", None, None));
    stage.refused_and_recorded(Reason::FencingTokenStale, |stage| stage.mailbox_complete(&held, ""));
    assert_eq!(granted(stage.mailbox_sweep(None, 8)), 0);
}

pub(in crate::kit) fn a_sweep_stops_at_its_limit(stage: &mut Stage<'_>) {
    for id in ["one", "two", "three"] {
        let letter = stage.letter(id);
        stage.send(&letter);
    }
    let ask = stage.next(A);
    assert_eq!(granted(stage.mailbox_claim_next(&ask, 3)).len(), 3);
    stage.at(15);
    assert_eq!(granted(stage.mailbox_sweep(None, 2)), 2);
    assert_eq!(granted(stage.mailbox_sweep(None, 2)), 1);
}

pub(in crate::kit) fn a_claim_needs_no_sweeper(stage: &mut Stage<'_>) {
    stage.send_job();
    let old: MessageGrant = stage.claimed(A);
    stage.at(15);
    let new = stage.claimed(C);
    stage.refused_and_recorded(Reason::FencingTokenStale, |stage| stage.mailbox_complete(&old, ""));
    done(stage.mailbox_complete(&new, ""));
}
