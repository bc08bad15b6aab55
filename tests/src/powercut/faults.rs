//! Faults with the power on: drivers that lie about an operation, and reads that fail once.
//!
//! The store is mounted as it was before a verb of the life and does the verb, with one fault on the
//! way. It may answer (then its answer holds), or report that it could not; but a mount after that
//! must find the last acknowledged state or the one in flight, and the store must work on.

use std::sync::atomic::Ordering;

use super::bench::Bench;
use super::case::{Case, Fault, FaultKind};
use super::life::Verb;
use super::oracle::{Oracle, Violation};
use super::report::{Failed, Tally};
use super::script::{Script, Step};
use super::search::{Progress, Settings};
use crate::flash::{Erased, Gone, Lie, Operation, Plan, Reading, Reported, Tear, TracedOperation, Work};
use crate::random::{Random, fold};

/// Of the reads of one step at most about this many are made to fail.
const READS_MAX: u64 = 100;

/// Tries every fault in step `index` of the life.
pub(super) fn try_all(settings: &Settings, script: &Script, index: usize, progress: &Progress, tally: &mut Tally) {
    let step = &script.steps[index];
    let Ok((trace, reads)) = dry_run(script, step) else {
        return;
    };
    let stride = reads.div_ceil(READS_MAX).max(1);
    let offset = fold(settings.seed, index as u64) % stride;
    let cases = (0..trace.len() as u64)
        .flat_map(|at| FaultKind::ALL.map(|kind| Fault { verb: index, at, kind }))
        .filter(|fault| fault.kind != FaultKind::Read)
        .chain((offset..reads).step_by(stride as usize).map(|at| Fault {
            verb: index,
            at,
            kind: FaultKind::Read,
        }));
    for fault in cases {
        progress.cases.fetch_add(1, Ordering::Relaxed);
        tally.count(fault.counts_as(), 0);
        if let Err(violation) = try_one(settings, script, &fault, &trace) {
            progress.failures.fetch_add(1, Ordering::Relaxed);
            tally.fail(Failed {
                seed: settings.seed,
                kind: fault.counts_as(),
                case: Case::Fault(fault),
                during: format!("{:?}", step.verb),
                violation,
            });
        }
    }
}

/// Does one fault again.
pub(super) fn replay(
    settings: &Settings,
    script: &Script,
    fault: &Fault,
) -> Result<(Vec<String>, Option<Violation>), Violation> {
    let missing = || Violation::new("no_such_case", Case::Fault(*fault).to_string());
    let step = script.steps.get(fault.verb).ok_or_else(missing)?;
    let (trace, _) = dry_run(script, step)?;
    let mut story = vec![format!("mount, then {:?}; {:?} at {}", step.verb, fault.kind, fault.at)];
    let violation = try_one(settings, script, fault, &trace).err();
    story.push(
        violation
            .as_ref()
            .map_or("the oracle is satisfied".to_owned(), |violation| {
                format!("violation: {}: {}", violation.kind, violation.detail)
            }),
    );
    Ok((story, violation))
}

/// The operations of the step, and the number of its reads.
fn dry_run(script: &Script, step: &Step) -> Result<(Vec<TracedOperation>, u64), Violation> {
    let mut bench = Bench::new(script.store, &script.keys, step.image.clone());
    let mut oracle = step.oracle.clone();
    bench.chip.borrow_mut().start_trace();
    bench.boot(Reading::AsLeft, &mut oracle)?;
    bench.perform(step.verb, &mut oracle)?;
    let mut chip = bench.chip.borrow_mut();
    let reads = chip.counters().reads;
    Ok((chip.take_trace(), reads))
}

fn try_one(settings: &Settings, script: &Script, fault: &Fault, trace: &[TracedOperation]) -> Result<(), Violation> {
    let step = &script.steps[fault.verb];
    let mut bench = Bench::new(script.store, &script.keys, step.image.clone());
    let mut oracle = step.oracle.clone();
    bench.plan = plan(settings, fault, trace);
    forgive(bench.boot(Reading::AsLeft, &mut oracle), &mut bench, &mut oracle)?;
    if step.verb != Verb::Reboot {
        forgive(bench.perform(step.verb, &mut oracle), &mut bench, &mut oracle)?;
    }
    let mut random = Random::new(fold(settings.seed, bench.chip.borrow().image().digest()));
    for _ in 0..settings.follow_up {
        let verb = oracle.model().next_verb(script.bounds, &mut random);
        // A fault of the mount or the verb may show only now, once.
        forgive(bench.perform(verb, &mut oracle), &mut bench, &mut oracle)?;
    }
    bench.boot(Reading::AsLeft, &mut oracle)?;
    bench.perform(Verb::Mint, &mut oracle)?;
    bench.check_abuse()
}

/// A store may report that it could not, because of the fault; then a mount must set it right.
fn forgive(outcome: Result<(), Violation>, bench: &mut Bench<'_>, oracle: &mut Oracle) -> Result<(), Violation> {
    match outcome {
        Err(violation) if violation.is_a_report() => bench.boot(Reading::AsLeft, oracle),
        outcome => outcome,
    }
}

fn plan(settings: &Settings, fault: &Fault, trace: &[TracedOperation]) -> Plan {
    let at = fault.at;
    let seed = fold(fold(settings.seed, fault.verb as u64), at) >> 40;
    let erase = trace
        .get(at as usize)
        .is_some_and(|traced| matches!(traced.operation, Operation::Erase { .. }));
    let torn = Work::Torn(if erase {
        Tear::Erase {
            left: Erased::RandomUnits(seed),
            other: Erased::RandomBits(seed),
        }
    } else {
        Tear::Program {
            left: Gone::Random(seed),
            other: Gone::Random(seed ^ 1),
        }
    });
    let (work, reported) = match fault.kind {
        FaultKind::ErrorThoughDone => (Work::Done, Reported::Failure),
        FaultKind::ErrorNothingDone => (Work::Nothing, Reported::Failure),
        FaultKind::ErrorTorn => (torn, Reported::Failure),
        FaultKind::SuccessNothingDone => (Work::Nothing, Reported::Success),
        FaultKind::SuccessTorn => (torn, Reported::Success),
        FaultKind::Read => return Plan::ReadFault { at },
    };
    Plan::Lie {
        at,
        lie: Lie { work, reported },
    }
}
