//! One store on one chip, under the oracle's eyes.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use super::cost::difference;
use super::life::{Change, Key, Verb};
use super::oracle::{Oracle, Violation};
use super::subject::{Failure, Store, Subject};
use crate::flash::{Chip, Counters, Image, Plan, Reading, SharedChip, TracedOperation};

/// What a cut finds: everything from one operation on is done for `verb`, and `oracle` knows what is in flight.
#[derive(Debug, Clone)]
pub(super) struct Phase {
    from: u64,
    pub(super) verb: Verb,
    pub(super) oracle: Arc<Oracle>,
}

/// A chip and the store on it. A panic of the store is a violation like any other.
pub(super) struct Bench<'a> {
    store: &'static Store,
    keys: &'a [Key],
    pub(super) chip: SharedChip,
    /// Armed at the next power-up.
    pub(super) plan: Plan,
    /// The phases since the trace began, when there is one.
    phases: Option<Vec<Phase>>,
    subject: Box<dyn Subject>,
}

/// What a claim means for the rows when it concerns none of the life's own, such as the registration of a host.
const FOREIGN_CLAIM: Change = Change {
    mints: true,
    key: None,
    after: None,
};

impl<'a> Bench<'a> {
    /// Puts `store` on a chip that holds `image`; nothing is mounted yet.
    pub(super) fn new(store: &'static Store, keys: &'a [Key], image: Image) -> Self {
        let chip = Rc::new(RefCell::new(Chip::with_image(image)));
        let subject = (store.build)(&chip);
        Self {
            store,
            keys,
            chip,
            plan: Plan::Nothing,
            phases: None,
            subject,
        }
    }

    /// Begins to record what can be cut.
    pub(super) fn start_trace(&mut self) {
        self.chip.borrow_mut().start_trace();
        self.phases = Some(Vec::new());
    }

    /// Ends the recording: each operation, and the phase that it belongs to.
    pub(super) fn take_trace(&mut self) -> Vec<(TracedOperation, Phase)> {
        let trace = self.chip.borrow_mut().take_trace();
        let phases = self.phases.take().unwrap_or_default();
        let of = |traced: &TracedOperation| phases.iter().rfind(|phase| phase.from <= traced.number).cloned();
        let with_phase = trace
            .into_iter()
            .filter_map(|traced| of(&traced).map(|phase| (traced, phase)));
        with_phase.collect()
    }

    fn phase(&mut self, verb: Verb, oracle: &Oracle) {
        let from = self.chip.borrow().counters().operations;
        if let Some(phases) = &mut self.phases {
            let oracle = Arc::new(oracle.clone());
            phases.push(Phase { from, verb, oracle });
        }
    }

    pub(super) fn provision(&mut self) -> Result<(), Violation> {
        guarded(|| self.subject.provision())?.map_err(|failure| Violation::new("not_provisioned", failure.to_string()))
    }

    /// Powers up, mounts, reads every row, judges, and lets the store prepare itself for verbs.
    pub(super) fn boot(&mut self, reading: Reading, oracle: &mut Oracle) -> Result<(), Violation> {
        self.chip.borrow_mut().power_up(reading);
        self.chip.borrow_mut().arm(std::mem::take(&mut self.plan));
        self.mount_cost(oracle)?;
        self.prepare(oracle)
    }

    /// Mounts a store whose power is on, judges what it says, and gives what the mount alone has cost.
    pub(super) fn mount_cost(&mut self, oracle: &mut Oracle) -> Result<Counters, Violation> {
        self.phase(Verb::Reboot, oracle);
        let (store, chip, keys) = (self.store, &self.chip, self.keys);
        let before = chip.borrow().counters().clone();
        let model = oracle.model();
        let (subject, seen) = guarded(|| {
            let mut subject = (store.build)(chip);
            let seen = subject.mount().and_then(|mounted| {
                let cost = difference(chip.borrow().counters(), &before);
                Ok((mounted, cost, subject.rows(keys, model)?))
            });
            (subject, seen)
        })?;
        self.subject = subject;
        let (mounted, cost, rows) = seen.map_err(|failure| Violation::failed_closed(&failure))?;
        oracle.judge(mounted, self.keys, &rows)?;
        Ok(cost)
    }

    pub(super) fn prepare(&mut self, oracle: &mut Oracle) -> Result<(), Violation> {
        loop {
            let before = oracle.clone();
            oracle.begin(FOREIGN_CLAIM, self.subject.reservation());
            self.phase(Verb::Reboot, oracle);
            let answer = guarded(|| self.subject.prepare())?;
            let Some(token) = answer.map_err(|failure| Violation::not_prepared(&failure))? else {
                *oracle = before;
                return Ok(());
            };
            oracle.acknowledge(Some(token), self.subject.reserved())?;
        }
    }

    /// Does `verb`, a reboot included, and notes the answer.
    pub(super) fn perform(&mut self, verb: Verb, oracle: &mut Oracle) -> Result<(), Violation> {
        if verb == Verb::Reboot {
            return self.boot(Reading::AsLeft, oracle);
        }
        let change = oracle.model().change(verb);
        oracle.begin(change, self.subject.reservation());
        self.phase(verb, oracle);
        let answer: Result<Option<u64>, Failure> = guarded(|| self.subject.perform(verb, &change))?;
        let token = answer.map_err(|failure| Violation::not_writable(verb, &failure))?;
        oracle.acknowledge(token, self.subject.reserved())
    }

    /// Whether the store has broken a rule of the chip (O6).
    pub(super) fn check_abuse(&self) -> Result<(), Violation> {
        self.chip.borrow().abuse().map_or(Ok(()), |abuse| {
            Err(Violation::new(
                "chip_abused",
                format!("{} at {:#x}", abuse.rule, abuse.offset),
            ))
        })
    }
}

/// Calls into the store; its panic becomes a violation.
fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Violation::new("panicked", text)
    })
}
