//! The mailbox: sending, and what an operator does: dead-letter, redrive, revoke.

use keyfence_core::Reason;
use keyfence_core::attempt::Done;
use keyfence_core::lease::Revoked;
use keyfence_core::mailbox::{Claim, Priority, Redrive};
use keyfence_core::store::Place;

use crate::kit::Letter;
use crate::kit::stage::{
    A, B, JOB, OTHER, Stage, after, done, granted, name, refused, revoked, settled, settled_before,
};

pub(in crate::kit) fn a_message_is_sent_once(stage: &mut Stage<'_>) {
    stage.send_job();
    let row = stage.seen(Place::Message, JOB);
    assert_eq!((row.state, row.retries, row.deliveries), ("NEW", Some(0), Some(0)));
    let letter = stage.letter(JOB);
    let answer = stage.unchanged(|stage| stage.mailbox_send(&letter));
    assert_eq!(granted(answer), Done::Already);
    let grant = stage.claimed(A);
    assert_eq!(granted(stage.mailbox_send(&letter)), Done::Already);
    done(stage.mailbox_complete(&grant, ""));
    let answer = stage.unchanged(|stage| stage.mailbox_send(&letter));
    assert_eq!(
        granted(answer),
        Done::Already,
        "a finished message is still that message"
    );
}

pub(in crate::kit) fn an_id_with_other_content_is_refused(stage: &mut Stage<'_>) {
    stage.send_job();
    let same = stage.letter(JOB);
    let others = [
        Letter {
            recipient: name(OTHER),
            ..same.clone()
        },
        Letter {
            sender: Some(name(OTHER)),
            ..same.clone()
        },
        Letter {
            body: "Order cones".to_owned(),
            ..same.clone()
        },
        Letter {
            priority: Priority::new(1).expect("in range"),
            ..same.clone()
        },
        Letter {
            not_before: Some(stage.moment(1)),
            ..same.clone()
        },
        Letter { retries_max: 7, ..same },
    ];
    for other in others {
        stage.unchanged(|stage| refused(stage.mailbox_send(&other), Reason::MessageExists));
    }
}

pub(in crate::kit) fn an_operator_dead_letters_a_new_message(stage: &mut Stage<'_>) {
    refused(stage.mailbox_dead_letter_new(&name(JOB)), Reason::MessageMissing);
    stage.send_job();
    done(stage.mailbox_dead_letter_new(&name(JOB)));
    assert_eq!(stage.seen(Place::Message, JOB).state, "DEAD");
    let answer = stage.unchanged(|stage| stage.mailbox_dead_letter_new(&name(JOB)));
    assert_eq!(granted(answer), Done::Already);
    refused(stage.claim(A), Reason::MessageFinished);
}

pub(in crate::kit) fn an_operator_does_not_dead_letter_over_a_claim(stage: &mut Stage<'_>) {
    stage.send_job();
    let grant = stage.claimed(A);
    let refusal = stage.unchanged(|stage| refused(stage.mailbox_dead_letter_new(&name(JOB)), Reason::MessageHeld));
    assert_eq!(refusal.holder.and_then(|holder| holder.process), Some(A));
    done(stage.mailbox_complete(&grant, ""));
    stage.unchanged(|stage| refused(stage.mailbox_dead_letter_new(&name(JOB)), Reason::MessageFinished));
}

pub(in crate::kit) fn an_operator_dead_letters_a_message_whose_claim_has_lapsed(stage: &mut Stage<'_>) {
    let letter = Letter {
        retries_max: 1,
        ..stage.letter(JOB)
    };
    stage.send(&letter);
    let grant = stage.claimed(A);
    stage.at_ms(15 * 60_000 - 1);
    stage.unchanged(|stage| refused(stage.mailbox_dead_letter_new(&name(JOB)), Reason::MessageHeld));
    stage.at(15);
    done(stage.mailbox_dead_letter_new(&name(JOB)));
    let row = stage.seen(Place::Message, JOB);
    assert_eq!((row.state, row.retries), ("DEAD", Some(1)), "the lapse was counted");
    let answer = stage.unchanged(|stage| stage.mailbox_dead_letter_new(&name(JOB)));
    assert_eq!(granted(answer), Done::Already);
    refused(stage.mailbox_complete(&grant, ""), Reason::MessageFinished);
}

pub(in crate::kit) fn an_operators_dead_letter_finds_a_message_out_of_budget_finished(stage: &mut Stage<'_>) {
    let letter = Letter {
        retries_max: 0,
        ..stage.letter(JOB)
    };
    stage.send(&letter);
    stage.claimed(A);
    stage.at(15);
    for _ in 0..2 {
        refused(stage.mailbox_dead_letter_new(&name(JOB)), Reason::MessageFinished);
        assert_eq!(stage.seen(Place::Message, JOB).state, "DEAD");
    }
}

pub(in crate::kit) fn what_a_holder_dead_lettered_is_not_an_operators_act(stage: &mut Stage<'_>) {
    stage.send_job();
    let grant = stage.claimed(A);
    done(stage.mailbox_dead_letter(&grant, "broken"));
    stage.unchanged(|stage| refused(stage.mailbox_dead_letter_new(&name(JOB)), Reason::MessageFinished));
}

pub(in crate::kit) fn a_dead_message_is_redriven_once(stage: &mut Stage<'_>) {
    let letter = Letter {
        retries_max: 0,
        not_before: Some(stage.moment(1)),
        ..stage.letter(JOB)
    };
    stage.send(&letter);
    stage.at(1);
    let grant = stage.claimed(A);
    settled(stage.mailbox_retry(&grant, None, "broken"), "DEAD");
    let redrive = |id: &str| Redrive {
        dead: name(JOB),
        id: name(id),
    };
    assert_eq!(
        granted(stage.mailbox_redrive(&redrive("again"))),
        (name("again"), Done::Now)
    );
    for id in ["again", "yet"] {
        let answer = stage.unchanged(|stage| stage.mailbox_redrive(&redrive(id)));
        assert_eq!(granted(answer), (name("again"), Done::Already));
    }
    assert_eq!(stage.row(Place::Message, &name("yet")), Ok(None));
    let new = stage.seen(Place::Message, "again");
    assert_eq!((new.state, new.retries, new.deliveries), ("NEW", Some(0), Some(0)));
    assert_eq!(new.made_from, Some(name(JOB)));
    assert_eq!(
        stage.seen(Place::Message, JOB).state,
        "DEAD",
        "the dead one stays for people to look at"
    );
    settled_before(
        stage.unchanged(|stage| stage.mailbox_retry(&grant, None, "broken")),
        "DEAD",
    );
    stage.at(0);
    let ask = Claim {
        message: name("again"),
        ..stage.ask(B)
    };
    let next = granted(stage.mailbox_claim(&ask)).grant;
    assert_eq!(next.token(), after(grant.token(), 1));
}

pub(in crate::kit) fn only_a_dead_message_is_redriven(stage: &mut Stage<'_>) {
    let ask = Redrive {
        dead: name(JOB),
        id: name("again"),
    };
    refused(stage.mailbox_redrive(&ask), Reason::MessageMissing);
    stage.send_job();
    stage.unchanged(|stage| refused(stage.mailbox_redrive(&ask), Reason::MessageNotDead));
    let grant = stage.claimed(A);
    let refusal = stage.unchanged(|stage| refused(stage.mailbox_redrive(&ask), Reason::MessageNotDead));
    assert_eq!(refusal.holder.and_then(|holder| holder.process), Some(A));
    done(stage.mailbox_complete(&grant, ""));
    stage.unchanged(|stage| refused(stage.mailbox_redrive(&ask), Reason::MessageNotDead));
    assert_eq!(stage.row(Place::Message, &name("again")), Ok(None));
}

pub(in crate::kit) fn a_redriven_message_needs_an_id_of_its_own(stage: &mut Stage<'_>) {
    stage.send_job();
    let letter = stage.letter("taken");
    stage.send(&letter);
    done(stage.mailbox_dead_letter_new(&name(JOB)));
    for id in [JOB, "taken"] {
        let ask = Redrive {
            dead: name(JOB),
            id: name(id),
        };
        stage.unchanged(|stage| refused(stage.mailbox_redrive(&ask), Reason::MessageExists));
    }
}

pub(in crate::kit) fn a_revoked_claim_is_dead_and_its_message_new(stage: &mut Stage<'_>) {
    let absent = stage.unchanged(|stage| stage.mailbox_revoke(&name(JOB)));
    assert_eq!(granted(absent), Revoked::Nothing);
    stage.send_job();
    let answer = stage.unchanged(|stage| stage.mailbox_revoke(&name(JOB)));
    assert_eq!(granted(answer), Revoked::Nothing);
    let grant = stage.claimed(A);
    let (holder, token) = revoked(stage.mailbox_revoke(&name(JOB)));
    assert_eq!((holder.process, token), (Some(A), grant.token()));
    assert_eq!(stage.seen(Place::Message, JOB).state, "NEW");
    refused(stage.mailbox_complete(&grant, ""), Reason::FencingTokenStale);
    let newer = stage.claimed(B);
    assert_eq!(newer.token(), after(grant.token(), 1));
}
