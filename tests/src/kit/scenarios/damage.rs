//! A missing or malformed expiry is damage: reported with its place, never taken for an expired one.

use keyfence_core::actor::{Acquire, ActorGrant};
use keyfence_core::attempt;
use keyfence_core::host::Register;
use keyfence_core::mailbox::Claim;
use keyfence_core::session::ClaimSession;
use keyfence_core::store::Place;
use keyfence_core::{Name, Token};

use crate::kit::stage::{A, B, COURSE, KIOSK_A, Stage, granted, minutes, name};
use crate::kit::{Answer, BadExpiry, Fault};

/// The ledger made no decision and said where the damage is.
#[track_caller]
fn damaged<T: core::fmt::Debug>(answer: Answer<T>, place: Place, key: &Name) {
    match answer {
        Err(Fault::Damaged(why)) => {
            assert!(
                why.contains(place.name()) && why.contains(key.as_str()),
                "says where: {why}"
            );
        }
        other => panic!("damage must be reported, never guessed over: {other:?}"),
    }
}

/// For each way in which an expiry can be malformed: makes a row with `set`, damages its expiry, and makes `calls` both
/// while it would be live and when it would have lapsed. None of them may mint.
fn each_bad_expiry<G>(
    stage: &mut Stage<'_>,
    place: Place,
    set: impl Fn(&mut Stage<'_>, &Name) -> G,
    calls: impl Fn(&mut Stage<'_>, &Name, &G),
) {
    for (how, key) in BadExpiry::ALL.into_iter().zip(["bad-1", "bad-2", "bad-3"]) {
        let key = name(key);
        stage.at(0);
        let grant = set(stage, &key);
        let minted: Option<Token> = stage.minted();
        stage.damage(place, &key, how);
        for minute in [0, 600] {
            stage.at(minute);
            calls(stage, &key, &grant);
        }
        assert_eq!(stage.minted(), minted);
    }
}

pub(in crate::kit) fn a_malformed_expiry_of_an_actor_lease_is_reported(stage: &mut Stage<'_>) {
    let ask = |key: &Name, process| Acquire {
        actor: key.clone(),
        process,
        ttl: minutes(5),
    };
    each_bad_expiry(
        stage,
        Place::Actor,
        |stage, key| -> ActorGrant { granted(stage.actor_acquire(&ask(key, A))).grant },
        |stage, key, grant| {
            damaged(stage.actor_acquire(&ask(key, B)), Place::Actor, key);
            damaged(stage.actor_acquire_or_renew(&ask(key, A)), Place::Actor, key);
            damaged(stage.actor_renew(grant, minutes(5)), Place::Actor, key);
        },
    );
}

pub(in crate::kit) fn a_malformed_expiry_of_an_attempt_is_reported(stage: &mut Stage<'_>) {
    let lease = stage.lease(A);
    granted(stage.actor_renew(&lease, minutes(6000)));
    let ask = |stage: &Stage<'_>, key: &Name, number| attempt::Acquire {
        assignment: key.clone(),
        ..stage.try_job(&lease, number)
    };
    each_bad_expiry(
        stage,
        Place::Assignment,
        |stage, key| {
            stage.assign(key.as_str(), COURSE);
            let ask = ask(stage, key, 1);
            granted(stage.attempt_acquire(&ask)).grant
        },
        |stage, key, grant| {
            let ask = ask(stage, key, 2);
            damaged(stage.attempt_acquire(&ask), Place::Assignment, key);
            damaged(stage.attempt_renew(grant, minutes(5)), Place::Assignment, key);
            damaged(stage.attempt_close_lost(key), Place::Assignment, key);
            damaged(stage.finish(grant), Place::Assignment, key);
        },
    );
}

pub(in crate::kit) fn a_malformed_expiry_of_a_message_is_reported(stage: &mut Stage<'_>) {
    let ask = |stage: &Stage<'_>, key: &Name, process| Claim {
        message: key.clone(),
        ..stage.ask(process)
    };
    each_bad_expiry(
        stage,
        Place::Message,
        |stage, key| {
            let letter = stage.letter(key.as_str());
            stage.send(&letter);
            let ask = ask(stage, key, A);
            granted(stage.mailbox_claim(&ask)).grant
        },
        |stage, key, grant| {
            for process in [A, B] {
                let ask = ask(stage, key, process);
                damaged(stage.mailbox_claim(&ask), Place::Message, key);
            }
            damaged(stage.mailbox_extend(grant, minutes(5)), Place::Message, key);
            damaged(stage.mailbox_complete(grant, ""), Place::Message, key);
        },
    );
}

pub(in crate::kit) fn a_malformed_expiry_of_a_host_lease_is_reported(stage: &mut Stage<'_>) {
    let ask = |stage: &Stage<'_>, key: &Name, process| Register {
        host: key.clone(),
        ..stage.registration(KIOSK_A, process)
    };
    each_bad_expiry(
        stage,
        Place::Host,
        |stage, key| {
            let ask = ask(stage, key, A);
            granted(stage.host_register(&ask)).grant
        },
        |stage, key, grant| {
            for process in [A, B] {
                let ask = ask(stage, key, process);
                damaged(stage.host_register(&ask), Place::Host, key);
            }
            damaged(stage.host_renew(grant, minutes(5)), Place::Host, key);
            damaged(stage.hold(grant, 5), Place::Host, key);
        },
    );
}

pub(in crate::kit) fn a_malformed_expiry_of_a_session_is_reported(stage: &mut Stage<'_>) {
    let host = stage.register(KIOSK_A, A, 6000);
    let ask = |key: &Name| ClaimSession {
        session: key.clone(),
        host: host.clone(),
        ttl: minutes(5),
    };
    each_bad_expiry(
        stage,
        Place::Session,
        |stage, key| granted(stage.session_claim(&ask(key))).grant,
        |stage, key, grant| {
            damaged(stage.session_claim(&ask(key)), Place::Session, key);
            damaged(stage.session_finish(grant, ""), Place::Session, key);
        },
    );
}
