//! The gate, clause by clause.

use keyfence_core::gate::{Admit, Admitted, Binding, ClaimKind, LedgerCounter};
use keyfence_core::store::Place;
use keyfence_core::{LedgerId, Reason, Token};

use crate::kit::stage::{A, B, JOB, Stage, after, binding, granted, name, never_issued};

/// Two tokens of the same ledger, the second greater.
fn two_tokens(stage: &mut Stage<'_>) -> (Token, Token) {
    let first = stage.lease(A).token();
    stage.at(5);
    (first, stage.lease(B).token())
}

/// The mark, if the gate is there.
fn mark(stage: &mut Stage<'_>) -> Option<Token> {
    stage
        .row(Place::Gate, &name(JOB))
        .expect("readable")
        .and_then(|row| row.token)
}

pub(in crate::kit) fn a_greater_token_raises_the_mark_and_the_same_one_passes(stage: &mut Stage<'_>) {
    let (first, second) = two_tokens(stage);
    for token in [first, second] {
        let ask = stage.pass(token);
        assert_eq!(granted(stage.gate_admit(&ask)), Admitted::Raised);
        assert_eq!(mark(stage), Some(token));
        let again = stage.unchanged(|stage| stage.gate_admit(&ask));
        assert_eq!(granted(again), Admitted::AtMark);
    }
}

pub(in crate::kit) fn a_token_below_the_mark_is_fenced(stage: &mut Stage<'_>) {
    let (first, second) = two_tokens(stage);
    let ask = stage.pass(second);
    assert_eq!(granted(stage.gate_admit(&ask)), Admitted::Raised);
    let ask = stage.pass(first);
    let refusal = stage.refused_and_recorded(Reason::Fenced, |stage| stage.gate_admit(&ask));
    assert_eq!(refusal.high_water, Some(second));
    assert!(!refusal.never_issued);
    assert_eq!(mark(stage), Some(second));
}

pub(in crate::kit) fn a_token_above_the_ledgers_counter_is_fenced(stage: &mut Stage<'_>) {
    let (_, second) = two_tokens(stage);
    for token in [after(second, 1), never_issued()] {
        let ask = stage.pass(token);
        let refusal = stage.refused_and_recorded(Reason::Fenced, |stage| stage.gate_admit(&ask));
        assert!(refusal.never_issued);
        assert_eq!(mark(stage), None);
    }
    // The counter is the one of the gate's own ledger, not the one of the ledger that keeps the gate.
    let ask = Admit {
        counter: LedgerCounter::Read(None),
        ..stage.pass(second)
    };
    let refusal = stage.refused_and_recorded(Reason::Fenced, |stage| stage.gate_admit(&ask));
    assert!(refusal.never_issued);
    let ask = Admit {
        counter: LedgerCounter::Read(Some(after(second, 1))),
        ..stage.pass(after(second, 1))
    };
    assert_eq!(granted(stage.gate_admit(&ask)), Admitted::Raised);
}

pub(in crate::kit) fn without_its_ledger_a_gate_admits_nothing_new(stage: &mut Stage<'_>) {
    let (first, second) = two_tokens(stage);
    let blind = |stage: &mut Stage<'_>, token| Admit {
        counter: LedgerCounter::Unreadable,
        ..stage.pass(token)
    };
    let ask = blind(stage, first);
    stage.refused_and_recorded(Reason::LedgerUnreadable, |stage| stage.gate_admit(&ask));
    let sighted = stage.pass(first);
    assert_eq!(granted(stage.gate_admit(&sighted)), Admitted::Raised);
    assert_eq!(
        granted(stage.gate_admit(&ask)),
        Admitted::AtMark,
        "the mark itself still passes"
    );
    let ask = blind(stage, second);
    let refusal = stage.refused_and_recorded(Reason::LedgerUnreadable, |stage| stage.gate_admit(&ask));
    assert_eq!(refusal.high_water, Some(first));
}

pub(in crate::kit) fn a_gate_stays_bound_to_its_first_claim(stage: &mut Stage<'_>) {
    let (first, second) = two_tokens(stage);
    let ask = stage.pass(first);
    assert_eq!(granted(stage.gate_admit(&ask)), Admitted::Raised);
    let others = [
        Binding {
            ledger: LedgerId::from_bytes([8; 16]),
            ..binding()
        },
        Binding {
            kind: ClaimKind::Actor,
            ..binding()
        },
        Binding {
            name: name("another"),
            ..binding()
        },
    ];
    for other in others {
        for token in [first, second] {
            let ask = Admit {
                binding: other.clone(),
                ..stage.pass(token)
            };
            let refusal = stage.refused_and_recorded(Reason::GateMismatch, |stage| stage.gate_admit(&ask));
            assert_eq!(refusal.high_water, Some(first));
        }
    }
    assert_eq!(mark(stage), Some(first));
}

pub(in crate::kit) fn a_rebound_gate_starts_anew_with_its_new_claim(stage: &mut Stage<'_>) {
    let (first, second) = two_tokens(stage);
    let ask = stage.pass(second);
    assert_eq!(granted(stage.gate_admit(&ask)), Admitted::Raised);
    let other = Binding {
        name: name("another"),
        ..binding()
    };
    granted(stage.gate_rebind(&name(JOB), &other));
    assert_eq!(mark(stage), None);
    stage.refused_and_recorded(Reason::GateMismatch, |stage| stage.gate_admit(&ask));
    let ask = Admit {
        binding: other,
        ..stage.pass(first)
    };
    assert_eq!(granted(stage.gate_admit(&ask)), Admitted::Raised);
}
