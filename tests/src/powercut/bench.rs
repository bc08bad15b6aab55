//! One store on one chip, under the oracle's eyes.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::cost::difference;
use super::life::{Key, Verb};
use super::oracle::{Oracle, Violation};
use super::subject::{Failure, Store, Subject};
use crate::flash::{Chip, Counters, Image, Plan, Reading, SharedChip};

/// A chip and the store on it. A panic of the store is a violation like any other.
pub(super) struct Bench<'a> {
    store: &'static Store,
    keys: &'a [Key],
    pub(super) chip: SharedChip,
    /// Armed at the next power-up.
    pub(super) plan: Plan,
    subject: Box<dyn Subject>,
}

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
            subject,
        }
    }

    pub(super) fn provision(&mut self) -> Result<(), Violation> {
        guarded(|| self.subject.provision())?.map_err(|failure| Violation::new("not_provisioned", failure.to_string()))
    }

    /// Powers up, mounts, reads every row, judges.
    pub(super) fn boot(&mut self, reading: Reading, oracle: &mut Oracle) -> Result<(), Violation> {
        self.chip.borrow_mut().power_up(reading);
        self.chip.borrow_mut().arm(std::mem::take(&mut self.plan));
        let (store, chip, keys) = (self.store, &self.chip, self.keys);
        let (subject, seen) = guarded(|| {
            let mut subject = (store.build)(chip);
            oracle.begin_mount(subject.reservation());
            let seen = subject.mount().and_then(|mounted| Ok((mounted, subject.rows(keys)?)));
            (subject, seen)
        })?;
        self.subject = subject;
        let (mounted, rows) = seen.map_err(|failure| Violation::failed_closed(&failure))?;
        oracle.judge(mounted, keys, &rows)
    }

    /// Powers up and mounts, and gives what the mount alone has cost; then judges.
    pub(super) fn mount_cost(&mut self, oracle: &mut Oracle) -> Result<Counters, Violation> {
        let counters = |chip: &SharedChip| chip.borrow().counters().clone();
        self.chip.borrow_mut().power_up(Reading::AsLeft);
        let before = counters(&self.chip);
        let mut subject = (self.store.build)(&self.chip);
        oracle.begin_mount(subject.reservation());
        let mounted = subject.mount().map_err(|failure| Violation::failed_closed(&failure))?;
        let cost = difference(&counters(&self.chip), &before);
        let rows = subject
            .rows(self.keys)
            .map_err(|failure| Violation::failed_closed(&failure))?;
        self.subject = subject;
        oracle.judge(mounted, self.keys, &rows)?;
        Ok(cost)
    }

    /// Does `verb`, a reboot included, and notes the answer.
    pub(super) fn perform(&mut self, verb: Verb, oracle: &mut Oracle) -> Result<(), Violation> {
        if verb == Verb::Reboot {
            return self.boot(Reading::AsLeft, oracle);
        }
        let change = oracle.model().change(verb);
        oracle.begin(change, self.subject.reservation());
        let answer: Result<Option<u64>, Failure> = guarded(|| self.subject.perform(verb, &change))?;
        let token = answer.map_err(|failure| Violation::not_writable(verb, &failure))?;
        oracle.acknowledge(token, self.subject.reserved())
    }

    /// Notes in `oracle` that `verb` is about to begin, as a cut in it would find things.
    pub(super) fn in_flight(&self, verb: Verb, oracle: &Oracle) -> Oracle {
        let mut oracle = oracle.clone();
        if verb != Verb::Reboot {
            let change = oracle.model().change(verb);
            oracle.begin(change, self.subject.reservation());
        }
        oracle
    }

    pub(super) fn operations(&self) -> u64 {
        self.chip.borrow().counters().operations
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
