//! The mailbox: what a failure costs and where it ends.

use keyfence_core::Reason;
use keyfence_core::lease::Revoked;
use keyfence_core::mailbox::{Claim, MessageGrant};
use keyfence_core::store::Place;

use crate::kit::Letter;
use crate::kit::stage::{A, B, JOB, Stage, done, granted, minutes, name, refused, revoked, settled, settled_before};

/// State, retries used up, deliveries.
fn state(stage: &mut Stage<'_>) -> (&'static str, u16, u32) {
    let row = stage.seen(Place::Message, JOB);
    (
        row.state,
        row.retries.expect("a message counts them"),
        row.deliveries.expect("a message counts them"),
    )
}

/// Sends the job with this many retries.
fn send_with(stage: &mut Stage<'_>, retries_max: u16) {
    let letter = Letter {
        retries_max,
        ..stage.letter(JOB)
    };
    stage.send(&letter);
}

pub(in crate::kit) fn three_failures_are_retried_and_the_fourth_ends_dead(stage: &mut Stage<'_>) {
    stage.send_job();
    for attempt in 0..4 {
        stage.at(100 + attempt);
        let grant = stage.claimed(A);
        let state = if attempt == 3 { "DEAD" } else { "NEW" };
        settled(stage.mailbox_retry(&grant, None, "it failed"), state);
        settled_before(stage.mailbox_retry(&grant, None, "it failed"), state);
    }
    assert_eq!(state(stage), ("DEAD", 3, 4));
    refused(stage.claim(A), Reason::MessageFinished);
}

pub(in crate::kit) fn a_lapse_costs_one_retry_whoever_takes_over(stage: &mut Stage<'_>) {
    stage.send_job();
    stage.claimed(A);
    stage.at(15);
    stage.claimed(B);
    assert_eq!(state(stage), ("CLAIMED", 1, 2));
    stage.at(30);
    let ask = stage.next(B);
    assert_eq!(granted(stage.mailbox_claim_next(&ask, 1)).len(), 1);
    assert_eq!(state(stage), ("CLAIMED", 2, 3));
}

pub(in crate::kit) fn a_lapse_costs_one_retry_once_when_it_is_swept(stage: &mut Stage<'_>) {
    stage.send_job();
    stage.claimed(A);
    stage.at(15);
    assert_eq!(granted(stage.mailbox_sweep(None, 8)), 1);
    assert_eq!(state(stage), ("NEW", 1, 1));
    assert_eq!(granted(stage.mailbox_sweep(None, 8)), 0);
    stage.claimed(B);
    assert_eq!(state(stage), ("CLAIMED", 1, 2));
}

pub(in crate::kit) fn work_that_kills_its_worker_is_not_delivered_for_ever(stage: &mut Stage<'_>) {
    stage.send_job();
    for crash in 0..4 {
        stage.at(crash * 15);
        stage.claimed(A);
        assert_eq!(
            state(stage),
            (
                "CLAIMED",
                u16::try_from(crash).expect("small"),
                1 + u32::try_from(crash).expect("small")
            )
        );
    }
    stage.at(60);
    let minted = stage.minted();
    let refusal = refused(stage.claim(A), Reason::MessageFinished);
    assert_eq!(refusal.holder, None);
    assert_eq!(stage.minted(), minted, "a refused claim mints nothing");
    assert_eq!(state(stage), ("DEAD", 3, 4));
}

pub(in crate::kit) fn a_sweep_ends_a_message_without_budget(stage: &mut Stage<'_>) {
    send_with(stage, 0);
    let grant = stage.claimed(A);
    stage.at(15);
    assert_eq!(granted(stage.mailbox_sweep(None, 8)), 1);
    assert_eq!(state(stage), ("DEAD", 0, 1));
    refused(stage.mailbox_complete(&grant, ""), Reason::MessageFinished);
}

pub(in crate::kit) fn looking_for_the_next_message_ends_one_without_budget(stage: &mut Stage<'_>) {
    send_with(stage, 0);
    stage.claimed(A);
    let letter = stage.letter("another");
    stage.send(&letter);
    stage.at(15);
    let ask = stage.next(B);
    let next = granted(stage.mailbox_claim_next(&ask, 8));
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].grant.message(), &name("another"));
    assert_eq!(state(stage), ("DEAD", 0, 1));
}

pub(in crate::kit) fn a_live_give_back_costs_nothing(stage: &mut Stage<'_>) {
    send_with(stage, 0);
    for minute in [0, 1, 2] {
        stage.at(minute * 20);
        let grant = stage.claimed(A);
        stage.at_ms(i64::try_from(minute).expect("small") * 20 * 60_000 + 15 * 60_000 - 1);
        settled(stage.mailbox_give_back(&grant), "NEW");
    }
    assert_eq!(state(stage), ("NEW", 0, 3));
}

pub(in crate::kit) fn a_give_back_after_the_lapse_costs_what_a_lapse_costs(stage: &mut Stage<'_>) {
    send_with(stage, 1);
    let grant = stage.claimed(A);
    stage.at(15);
    settled(stage.mailbox_give_back(&grant), "NEW");
    assert_eq!(state(stage), ("NEW", 1, 1));
    let grant = stage.claimed(A);
    stage.at(30);
    settled(stage.mailbox_give_back(&grant), "DEAD");
    assert_eq!(state(stage), ("DEAD", 1, 2));
    settled_before(stage.unchanged(|stage| stage.mailbox_give_back(&grant)), "DEAD");
}

pub(in crate::kit) fn a_retry_after_the_lapse_costs_one_and_not_two(stage: &mut Stage<'_>) {
    stage.send_job();
    let grant = stage.claimed(A);
    stage.at(15);
    settled(stage.mailbox_retry(&grant, None, ""), "NEW");
    assert_eq!(state(stage), ("NEW", 1, 1));
}

pub(in crate::kit) fn a_revocation_costs_nothing_while_the_claim_is_live(stage: &mut Stage<'_>) {
    send_with(stage, 0);
    stage.claimed(A);
    stage.at_ms(15 * 60_000 - 1);
    revoked(stage.mailbox_revoke(&name(JOB)));
    assert_eq!(state(stage), ("NEW", 0, 1));
}

pub(in crate::kit) fn a_revocation_after_the_lapse_costs_what_a_lapse_costs(stage: &mut Stage<'_>) {
    send_with(stage, 1);
    stage.claimed(A);
    stage.at(15);
    revoked(stage.mailbox_revoke(&name(JOB)));
    assert_eq!(state(stage), ("NEW", 1, 1));
    stage.claimed(A);
    stage.at(30);
    revoked(stage.mailbox_revoke(&name(JOB)));
    assert_eq!(state(stage), ("DEAD", 1, 2));
}

pub(in crate::kit) fn a_lapse_of_an_earlier_boot_costs_nothing(stage: &mut Stage<'_>) {
    send_with(stage, 0);
    let ways: [fn(&mut Stage<'_>, &MessageGrant); 4] = [
        |stage, _| {
            stage.claimed(B);
        },
        |stage, _| assert_eq!(granted(stage.mailbox_sweep(None, 8)), 1),
        |stage, grant| settled(stage.mailbox_give_back(grant), "NEW"),
        |stage, _| assert_ne!(granted(stage.mailbox_revoke(&name(JOB))), Revoked::Nothing),
    ];
    for way in ways {
        let ask = stage.next(A);
        let grant = granted(stage.mailbox_claim_next(&ask, 1)).remove(0).grant;
        stage.reboot();
        way(stage, &grant);
        let row = stage.seen(Place::Message, JOB);
        assert_eq!(row.retries, Some(0));
        assert_ne!(row.state, "DEAD");
        if row.state == "CLAIMED" {
            revoked(stage.mailbox_revoke(&name(JOB)));
        }
    }
}

pub(in crate::kit) fn a_claim_of_an_earlier_boot_still_completes(stage: &mut Stage<'_>) {
    stage.send_job();
    let ask = Claim {
        ttl: minutes(60),
        ..stage.ask(A)
    };
    let grant = granted(stage.mailbox_claim(&ask)).grant;
    stage.reboot();
    refused(stage.mailbox_extend(&grant, minutes(15)), Reason::ClaimLapsed);
    done(stage.mailbox_complete(&grant, ""));
}
