//! One call on a ledger: a verb with a deadline and, where wanted, a request id.
//!
//! The verbs are those of the machines, `machine_verb`, in one file for each machine; those of messages carry their texts.
//! Every verb is one transaction. What holds when it returns:
//!
//! * `Ok(Ok(..))`: granted, and durable.
//! * `Ok(Err(refusal))`: refused; nothing of it was written but the record of the refusal and overdue bookkeeping.
//! * `Err(Error::Unknown(..))`: it may be committed. Ask again with the same request id.
//! * `Err(..)`: nothing was committed. So it is, too, when the process dies inside the call before the commit.

mod actor;
mod answer;
pub(crate) mod attempt;
mod describe;
mod host;
pub(crate) mod mailbox;
mod operate;
pub(crate) mod request;
pub(crate) mod session;
pub(crate) mod settle;

use std::time::Duration;

use keyfence_core::name::NameError;
use keyfence_core::store::Failure;
use keyfence_core::{Decision, Name, TimeMs};

use crate::error::{Error, Outcome};
use crate::ledger::Ledger;
use crate::store::check::Encoder;
use crate::store::step::SqliteStep;
use answer::Answer;
use describe::Describe;

/// Names one call of one caller, so that a lost answer can be asked for again: 1 to 64 bytes of UTF-8 without control
/// characters, fresh for every new call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(Name);

impl RequestId {
    /// Checks and takes an id.
    ///
    /// # Errors
    /// [`NameError`] says which rule the text breaks.
    pub fn new(text: &str) -> Result<Self, NameError> {
        Name::new(text).map(Self)
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// One call.
#[must_use]
pub struct Call<'l> {
    ledger: &'l Ledger,
    timeout: Option<Duration>,
    request: Option<Request>,
    replayed: bool,
}

/// Who asks, and under which id.
#[derive(Clone, Debug)]
struct Request {
    id: RequestId,
    caller: Name,
}

impl<'l> Call<'l> {
    pub(crate) const fn new(ledger: &'l Ledger) -> Self {
        Self {
            ledger,
            timeout: None,
            request: None,
            replayed: false,
        }
    }

    /// Bounds the wait for the ledger's lock.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Names the call. `caller` is the process or the actor that asks: ids of different callers never meet.
    ///
    /// A committed answer is kept for a day at least by the real clock. The same call under the same id then gets the
    /// first answer and writes nothing, or a refusal when what it was granted is no longer current; another call under
    /// the id is [`Error::RequestMisused`]. Answers that committed nothing are not kept: asking again decides again.
    pub fn request(mut self, id: RequestId, caller: Name) -> Self {
        self.request = Some(Request { id, caller });
        self
    }

    /// Whether the last verb's answer was a replay of the first one.
    #[must_use]
    pub const fn replayed(&self) -> bool {
        self.replayed
    }

    pub(crate) const fn ledger(&self) -> &'l Ledger {
        self.ledger
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.timeout.unwrap_or_else(|| self.ledger.timeout())
    }

    /// Makes one step that is never replayed.
    fn step<T>(
        &mut self,
        decide: impl FnOnce(&mut SqliteStep<'_>, TimeMs) -> Result<Decision<T>, Failure<Error>>,
    ) -> Outcome<T> {
        self.replayed = false;
        Ok(self.ledger.write(self.deadline(), decide)?)
    }

    /// Makes one step, or replays its first answer.
    fn run<T: Answer>(
        &mut self,
        verb: &'static str,
        asked: impl Describe,
        decide: impl FnOnce(&mut SqliteStep<'_>, TimeMs) -> Result<Decision<T>, Failure<Error>>,
    ) -> Outcome<T> {
        let Some(request) = &self.request else {
            return self.step(decide);
        };
        let mut call = Encoder::new();
        call.text(verb);
        asked.describe(&mut call);
        let digest = call.digest();
        let mut replayed = false;
        let decision = self.ledger.write(self.deadline(), |step, now| {
            if let Some(first) = request::first_answer(step, request, digest)? {
                replayed = true;
                return Ok(first);
            }
            let decision = decide(step, now)?;
            if let Ok(answer) = &decision
                && step.wrote()
            {
                request::keep(step, request, digest, answer)?;
            }
            Ok(decision)
        });
        self.replayed = replayed;
        Ok(decision?)
    }
}
