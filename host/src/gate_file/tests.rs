//! What a gate lets pass, and what it leaves behind.

use keyfence_core::gate::ClaimKind;
use keyfence_core::{LedgerId, Reason};

use super::*;
use crate::error::Error;

fn token(number: u64) -> Token {
    Token::presented(number).unwrap()
}

fn binding(name: &str) -> Binding {
    Binding {
        ledger: LedgerId::from_bytes([3; 16]),
        kind: ClaimKind::Session,
        name: Name::new(name).unwrap(),
    }
}

fn gate() -> (tempfile::TempDir, FileGate) {
    let folder = tempfile::tempdir().unwrap();
    let gate = FileGate::at(&folder.path().join("freezer.gate")).timeout(Duration::from_millis(20));
    (folder, gate)
}

fn try_admit(gate: &FileGate, number: u64) -> Result<Admitted, Box<Refusal>> {
    let counter = || LedgerCounter::Read(Some(token(50)));
    let decision = gate.admit(&binding("night"), token(number), counter, |_| ()).unwrap();
    decision
        .map(|(admitted, ())| admitted)
        .map_err(|refused| refused.refusal)
}

/// The names of all files in the gate's folder.
fn files(folder: &tempfile::TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn an_older_token_does_not_pass_after_a_newer_one() {
    let (_folder, gate) = gate();
    assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
    assert_eq!(try_admit(&gate, 41), Ok(Admitted::AtMark));
    assert_eq!(try_admit(&gate, 43), Ok(Admitted::Raised));
    let refusal = try_admit(&gate, 41).unwrap_err();
    assert_eq!((refusal.reason, refusal.high_water), (Reason::Fenced, Some(token(43))));
    let refusal = try_admit(&gate, 51).unwrap_err();
    assert!(refusal.never_issued);
    assert_eq!(gate.show().unwrap().unwrap().high_water, Some(token(43)));
}

#[test]
fn a_gate_has_one_name() {
    let (folder, gate) = gate();
    assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
    let link = folder.path().join("link.gate");
    std::os::unix::fs::symlink(gate.path(), &link).unwrap();
    let admit = |gate: &FileGate| {
        gate.admit(
            &binding("night"),
            token(43),
            || LedgerCounter::Read(Some(token(50))),
            |_| (),
        )
    };
    assert!(matches!(
        admit(&FileGate::at(&link)),
        Err(GateError::Place {
            source: Error::UnsafeLocation { .. },
            ..
        })
    ));
    fs::hard_link(gate.path(), folder.path().join("second.gate")).unwrap();
    assert!(matches!(
        admit(&gate),
        Err(GateError::Place {
            source: Error::UnsafeLocation { .. },
            ..
        })
    ));
    assert_eq!(
        gate.clone()
            .allow_unsafe_location(true)
            .show()
            .unwrap()
            .unwrap()
            .high_water,
        Some(token(41))
    );
}

#[test]
fn another_binding_is_refused_until_the_gate_is_rebound() {
    let (_folder, gate) = gate();
    assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
    let other = || {
        gate.admit(
            &binding("day"),
            token(7),
            || LedgerCounter::Read(Some(token(50))),
            |_| (),
        )
    };
    let refused = other().unwrap().unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::GateMismatch);
    assert_eq!(refused.bound, Some(binding("night")), "it says what it is bound to");
    gate.rebind(&binding("day")).unwrap();
    assert!(other().unwrap().is_ok());
}

#[test]
fn without_its_ledger_only_the_mark_itself_passes() {
    let (_folder, gate) = gate();
    let blind = |number| gate.admit(&binding("night"), token(number), || LedgerCounter::Unreadable, |_| ());
    assert_eq!(blind(41).unwrap().unwrap_err().refusal.reason, Reason::LedgerUnreadable);
    assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
    assert!(blind(41).unwrap().is_ok());
    assert_eq!(blind(42).unwrap().unwrap_err().refusal.reason, Reason::LedgerUnreadable);
}

#[test]
fn a_gate_that_was_changed_admits_nobody() {
    let (_folder, gate) = gate();
    assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
    let text = fs::read_to_string(gate.path()).unwrap();
    for broken in [text.replace("41", "40"), text.replace("night", "day"), String::new()] {
        fs::write(gate.path(), broken).unwrap();
        let answer = gate.admit(&binding("night"), token(41), || LedgerCounter::Unreadable, |_| ());
        assert_eq!(answer.unwrap_err().name(), "damaged");
    }
    gate.rebind(&binding("night")).unwrap();
    assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
}

#[test]
fn nobody_passes_while_another_acts() {
    let (_folder, gate) = gate();
    let counter = || LedgerCounter::Read(Some(token(50)));
    let inner = gate.admit(&binding("night"), token(41), counter, |_| {
        gate.admit(&binding("night"), token(42), counter, |_| ())
            .unwrap_err()
            .name()
    });
    assert_eq!(inner.unwrap().unwrap(), (Admitted::Raised, "busy"));
}

#[test]
fn a_call_leaves_nothing_behind_but_the_gate() {
    let (folder, gate) = gate();
    assert_eq!(try_admit(&gate, 51).unwrap_err().reason, Reason::Fenced);
    let blind = || gate.admit(&binding("night"), token(41), || LedgerCounter::Unreadable, |_| ());
    assert_eq!(blind().unwrap().unwrap_err().refusal.reason, Reason::LedgerUnreadable);
    assert_eq!(files(&folder), [""; 0]);
    assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
    assert_eq!(files(&folder), ["freezer.gate"]);
    fs::write(gate.path(), "").unwrap();
    assert_eq!(blind().unwrap_err().name(), "damaged");
    assert_eq!(files(&folder), ["freezer.gate"]);
}

#[test]
fn what_is_no_gate_is_never_replaced_by_one() {
    let (_folder, gate) = gate();
    for other in [
        "Restock vanilla\n",
        "{\"keyfence_report\":\"run\"}\n",
        "SQLite format 3\0",
    ] {
        fs::write(gate.path(), other).unwrap();
        assert_eq!(gate.rebind(&binding("night")).unwrap_err().name(), "not_a_gate");
        assert_eq!(gate.show().unwrap_err().name(), "not_a_gate");
        assert_eq!(fs::read_to_string(gate.path()).unwrap(), other);
    }
    fs::remove_file(gate.path()).unwrap();
    fs::create_dir(gate.path()).unwrap();
    assert_eq!(gate.rebind(&binding("night")).unwrap_err().name(), "not_a_gate");
}

#[test]
fn a_name_that_is_too_long_for_a_gate_is_misuse() {
    let folder = tempfile::tempdir().unwrap();
    let gate = FileGate::at(&folder.path().join("x".repeat(65)));
    assert!(matches!(gate.rebind(&binding("night")), Err(GateError::Name { .. })));
    assert!(matches!(gate.show(), Err(GateError::Name { .. })));
    assert_eq!(files(&folder), [""; 0]);
}

/// Whoever waits on a lock's file that is taken away queues on the next one: no two are ever inside.
#[test]
fn of_many_that_come_and_go_one_is_inside_at_a_time() {
    let (folder, gate) = gate();
    let gate = gate.timeout(Duration::from_secs(20));
    let inside = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let counter = || LedgerCounter::Read(Some(token(50)));
                    let passed = gate.admit(&binding("night"), token(41), counter, |_| {
                        let others = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        others
                    });
                    assert_eq!(passed.unwrap().unwrap().1, 0, "somebody else was inside");
                }
            });
        }
    });
    assert_eq!(files(&folder), ["freezer.gate"]);
}

#[test]
fn what_a_killed_call_left_is_replaced_and_not_followed() {
    let (folder, gate) = gate();
    assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, "mine").unwrap();
    let draft = folder.path().join("freezer.gate-draft");
    std::os::unix::fs::symlink(&elsewhere, &draft).unwrap();
    assert_eq!(try_admit(&gate, 42), Ok(Admitted::Raised));
    fs::write(&draft, "half a ga").unwrap();
    assert_eq!(try_admit(&gate, 43), Ok(Admitted::Raised));
    assert_eq!(files(&folder), ["elsewhere", "freezer.gate"]);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "mine");
    assert_eq!(gate.show().unwrap().unwrap().high_water, Some(token(43)));
}

#[test]
fn a_gate_that_cannot_be_written_keeps_its_mark_and_names_itself() {
    let (folder, gate) = gate();
    assert_eq!(try_admit(&gate, 41), Ok(Admitted::Raised));
    // Where a file would be made is a folder, which is not taken away.
    fs::create_dir(folder.path().join("freezer.gate-draft")).unwrap();
    let counter = || LedgerCounter::Read(Some(token(50)));
    let error = gate.admit(&binding("night"), token(43), counter, |_| ()).unwrap_err();
    assert!(error.to_string().contains("freezer.gate"), "{error}");
    assert_eq!(gate.show().unwrap().unwrap().high_water, Some(token(41)));
}
