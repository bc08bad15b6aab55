//! Names as long as they may be, ledgers as full as they can be, and what pruning leaves behind.

use keyfence_core::actor::Acquire;
use keyfence_core::attempt::{self, AttemptGrant, Create, Done};
use keyfence_core::mailbox::{Claim, MessageGrant, Redrive};
use keyfence_core::session::ClaimSession;
use keyfence_core::store::Place;
use keyfence_core::{Reason, gate};

use crate::kit::Letter;
use crate::kit::stage::{A, B, COURSE, JOB, KIOSK_A, OTHER, Stage, done, granted, name, refused};

pub(in crate::kit) fn the_longest_name_is_a_name_like_any_other(stage: &mut Stage<'_>) {
    let longest = "n".repeat(stage.bounds().name_bytes_max);
    let ask = Acquire {
        actor: name(&longest),
        ..stage.acquire(A)
    };
    let lease = granted(stage.actor_acquire(&ask)).grant;
    assert_eq!(lease.name(), &name(&longest));
    let shorter = Acquire {
        actor: name(&longest[1..]),
        ..stage.acquire(B)
    };
    granted(stage.actor_acquire(&shorter));
    stage.assign(&longest, &longest);
    let ask = attempt::Acquire {
        assignment: name(&longest),
        ..stage.try_job(&lease, 1)
    };
    let grant = granted(stage.attempt_acquire(&ask)).grant;
    done(stage.finish(&grant));
    let letter = Letter {
        sender: Some(name(&longest)),
        recipient: name(&longest),
        ..stage.letter(&longest)
    };
    stage.send(&letter);
    let ask = Claim {
        message: name(&longest),
        owner: name(&longest),
        lease_token: Some(lease.token()),
        ..stage.ask(A)
    };
    let grant = granted(stage.mailbox_claim(&ask)).grant;
    done(stage.mailbox_complete(&grant, ""));
    let host = stage.register(&longest, A, 10);
    let ask = ClaimSession {
        session: name(&longest),
        host,
        ttl: crate::kit::stage::minutes(1),
    };
    let grant = granted(stage.session_claim(&ask)).grant;
    done(stage.session_finish(&grant, ""));
}

pub(in crate::kit) fn names_that_differ_only_in_case_or_accents_are_different(stage: &mut Stage<'_>) {
    for text in ["caf\u{e9}", "cafe\u{301}", "CAF\u{c9}", "cafe", "Cafe", " cafe"] {
        let ask = Acquire {
            actor: name(text),
            ..stage.acquire(A)
        };
        granted(stage.actor_acquire(&ask));
    }
}

pub(in crate::kit) fn a_full_ledger_refuses_new_rows_and_mints_nothing(stage: &mut Stage<'_>) {
    let rows = stage.bounds().rows_max.expect("a bounded ledger");
    let names: Vec<_> = (0..=rows).map(|number| name(&format!("row-{number}"))).collect();
    let (over, fitting) = names.split_last().expect("at least one");
    let mut leases = Vec::new();
    for row in fitting {
        let ask = Acquire {
            actor: row.clone(),
            ..stage.acquire(A)
        };
        leases.push(granted(stage.actor_acquire(&ask)).grant);
        let ask = Create {
            id: row.clone(),
            actor: row.clone(),
            retry_of: None,
        };
        done(stage.assignment_create(&ask));
        let letter = stage.letter(row.as_str());
        stage.send(&letter);
        let host = stage.register(row.as_str(), A, 10);
        let ask = ClaimSession {
            session: row.clone(),
            host,
            ttl: crate::kit::stage::minutes(10),
        };
        granted(stage.session_claim(&ask));
        let ask = gate::Admit {
            gate: row.clone(),
            ..stage.pass(leases[0].token())
        };
        let _ = granted(stage.gate_admit(&ask));
    }
    let host = stage.register(fitting[0].as_str(), A, 10);
    done(stage.mailbox_dead_letter_new(&fitting[0]));
    let actor = Acquire {
        actor: over.clone(),
        ..stage.acquire(A)
    };
    let create = Create {
        id: over.clone(),
        actor: over.clone(),
        retry_of: None,
    };
    let letter = stage.letter(over.as_str());
    let redrive = Redrive {
        dead: fitting[0].clone(),
        id: over.clone(),
    };
    let register = stage.registration(over.as_str(), A);
    let claim = ClaimSession {
        session: over.clone(),
        host,
        ttl: crate::kit::stage::minutes(1),
    };
    let admit = gate::Admit {
        gate: over.clone(),
        ..stage.pass(leases[0].token())
    };
    stage.unchanged(|stage| {
        refused(stage.actor_acquire(&actor), Reason::Full);
        refused(stage.assignment_create(&create), Reason::Full);
        refused(stage.mailbox_send(&letter), Reason::Full);
        refused(stage.mailbox_redrive(&redrive), Reason::Full);
        refused(stage.host_register(&register), Reason::Full);
        refused(stage.session_claim(&claim), Reason::Full);
        refused(stage.gate_admit(&admit), Reason::Full);
        refused(stage.gate_rebind(over, &crate::kit::stage::binding()), Reason::Full);
    });
    // Rows that are there go on.
    let ask = Claim {
        message: fitting[1].clone(),
        ..stage.ask(A)
    };
    let grant = granted(stage.mailbox_claim(&ask)).grant;
    done(stage.mailbox_complete(&grant, ""));
    assert_eq!(
        granted(stage.actor_release(&leases[0])),
        keyfence_core::lease::Released::Now
    );
    let again = Acquire {
        actor: fitting[0].clone(),
        ..stage.acquire(B)
    };
    granted(stage.actor_acquire(&again));
}

// ---- what pruning leaves behind

pub(in crate::kit) fn a_pruned_message_is_still_finished(stage: &mut Stage<'_>) {
    stage.send_job();
    let grant = stage.claimed(A);
    done(stage.mailbox_complete(&grant, "result"));
    let open = stage.letter("open");
    stage.send(&open);
    stage.prune();
    assert_eq!(
        stage.seen(Place::Message, "open").state,
        "NEW",
        "only finished rows are pruned"
    );
    let letter = stage.letter(JOB);
    let foreign = Claim {
        owner: name(OTHER),
        ..stage.ask(B)
    };
    let redrive = Redrive {
        dead: name(JOB),
        id: name("again"),
    };
    refused(stage.claim(A), Reason::MessageFinished);
    refused(stage.mailbox_claim(&foreign), Reason::MessageFinished);
    refused(stage.mailbox_send(&letter), Reason::MessageFinished);
    refused(stage.mailbox_complete(&grant, "result"), Reason::MessageFinished);
    refused(stage.mailbox_dead_letter_new(&name(JOB)), Reason::MessageFinished);
    refused(stage.mailbox_redrive(&redrive), Reason::MessageFinished);
    let made = MessageGrant::presented(name(JOB), name(OTHER), None, grant.token());
    refused(stage.mailbox_give_back(&made), Reason::MessageFinished);
}

pub(in crate::kit) fn a_pruned_assignment_is_still_finished(stage: &mut Stage<'_>) {
    let (lease, attempt) = stage.working(A);
    done(stage.finish(&attempt));
    stage.prune();
    let ask = stage.try_job(&lease, 2);
    refused(stage.attempt_acquire(&ask), Reason::AssignmentFinished);
    let create = |id: &str, actor: &str, retry_of: Option<&str>| Create {
        id: name(id),
        actor: name(actor),
        retry_of: retry_of.map(name),
    };
    refused(
        stage.assignment_create(&create(JOB, COURSE, None)),
        Reason::AssignmentFinished,
    );
    refused(stage.finish(&attempt), Reason::ExecutionAttemptLost);
    let other = AttemptGrant::presented(name(JOB), attempt.attempt(), lease.token());
    refused(stage.finish(&other), Reason::ExecutionAttemptLost);
    // It can be retried under another id: of a pruned one nothing but its name is left to compare.
    assert_eq!(
        granted(stage.assignment_create(&create("again", COURSE, Some(JOB)))),
        Done::Now
    );
}

pub(in crate::kit) fn a_pruned_session_never_starts_again_at_1(stage: &mut Stage<'_>) {
    let host = stage.register(KIOSK_A, A, 60);
    let first = stage.held(&host, 5, 1);
    assert_eq!(
        granted(stage.session_release(&first)),
        keyfence_core::lease::Released::Now
    );
    let second = stage.held(&host, 5, 2);
    done(stage.session_finish(&second, ""));
    stage.prune();
    match stage.hold(&host, 5) {
        Ok(Err(refusal)) => assert_eq!(refusal.reason, Reason::SessionFinished),
        Ok(Ok(won)) => assert!(won.grant.incarnation() > second.incarnation()),
        Err(fault) => panic!("no decision: {fault:?}"),
    }
    refused(stage.session_finish(&second, ""), Reason::SessionClaimStale);
}
