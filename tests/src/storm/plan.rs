//! What a storm is made of: names, budgets, recipients and clocks, all of them functions of a number, so that every
//! process and the checker agree without talking.

use std::time::Duration;

use keyfence::{Clock, NewMessage, SystemClock};
use keyfence_core::mailbox::{Priority, RETRIES_MAX_DEFAULT};
use keyfence_core::{Name, TimeMs, Ttl};

/// The budget of most messages: the clocks of a storm make lapses frequent, and a storm in which every message dies young
/// would prove little.
const RETRIES_MAX_TOUGH: u16 = 250;

/// How far the clocks of the workers are off, in milliseconds, by slot.
const OFFSETS_MS: [i64; 8] = [0, 0, 120_000, 0, -180_000, 0, 300_000, -60_000];

/// How many actors there are besides the crew.
pub(crate) const CAPTAINS: u64 = 2;
/// How many hosts there are.
pub(crate) const HOSTS: u64 = 6;
/// How many assignments of each captain, and how many sessions, are worked on at a time.
const TARGETS: u64 = 4;
/// After how long all workers turn to new ones.
const GENERATION_MS: u64 = 1_000;

/// A name that is known to be one.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("the storm's own names are short and plain")
}

/// A lease of this many milliseconds.
pub(crate) fn ttl(ms: u64) -> Ttl {
    Ttl::from_ms(ms.clamp(1, Ttl::MAX_MS)).expect("clamped into the range")
}

/// The id of a message.
pub(crate) fn message_id(index: u64) -> Name {
    name(&format!("m-{index}"))
}

/// The number in a message's id.
pub(crate) fn index(id: &Name) -> Option<u64> {
    id.as_str().strip_prefix("m-").and_then(|index| index.parse().ok())
}

/// The budget that a message of this id is sent with: every fourth one has the default.
#[must_use]
pub fn retries_max(id: &Name) -> u16 {
    match index(id) {
        Some(index) if index % 4 != 0 => RETRIES_MAX_TOUGH,
        Some(_) | None => RETRIES_MAX_DEFAULT,
    }
}

/// The recipient that every worker is a process of.
pub(crate) fn crew() -> Name {
    name("crew")
}

/// An actor whose lease one worker holds at a time, and whose messages are claimed under it.
pub(crate) fn captain(number: u64) -> Name {
    name(&format!("captain-{}", number % CAPTAINS))
}

/// Every sixteenth message is addressed to a captain.
pub(crate) fn recipient(index: u64) -> Name {
    if index % 16 == 5 { captain(index / 16) } else { crew() }
}

pub(crate) fn host(number: u64) -> Name {
    name(&format!("kiosk-{}", number % HOSTS))
}

/// What the names of assignments and sessions end with now: all workers meet on the same few.
pub(crate) fn target(choice: u64) -> String {
    format!(
        "{}-{}",
        SystemClock.now().as_ms() / GENERATION_MS % 1_000_000,
        choice % TARGETS
    )
}

/// A message as it is sent.
pub(crate) fn message(index: u64) -> NewMessage {
    let id = message_id(index);
    NewMessage {
        sender: Some(name("driver")),
        recipient: recipient(index),
        subject: format!("work {index}"),
        body: index
            .to_le_bytes()
            .repeat(usize::try_from(index % 7).unwrap_or_default()),
        priority: Priority::new(i64::from(index % 50 == 3)).unwrap_or_default(),
        not_before: None,
        retries_max: retries_max(&id),
        id,
    }
}

/// The system's clock, and this many milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct OffsetClock(pub i64);

impl OffsetClock {
    /// The clock of a worker's slot.
    #[must_use]
    pub fn of_slot(slot: usize) -> Self {
        Self(OFFSETS_MS[slot % OFFSETS_MS.len()])
    }
}

impl Clock for OffsetClock {
    fn now(&self) -> TimeMs {
        let now = SystemClock.now();
        TimeMs::new(now.as_ms().saturating_add_signed(self.0)).unwrap_or(now)
    }
}

/// How a storm is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many worker processes.
    pub workers: usize,
    /// How many messages a round.
    pub messages: u64,
    /// Rounds are begun until this much time has passed; there is at least one.
    pub duration: Duration,
    /// From which every random choice of every process follows.
    pub seed: u64,
    /// How long leases last, in milliseconds.
    pub ttl_ms: u64,
    /// How long a round may go on before its unfinished messages count as violations.
    pub patience: Duration,
    /// In which folder the ledgers are made; in memory by default, where the system offers a disk there: signals lose
    /// nothing that was written, synced or not.
    pub folder: Option<std::path::PathBuf>,
    /// Which predicate every second worker leaves out.
    pub weakness: Option<super::weak::Weakness>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 8,
            messages: 10_000,
            duration: Duration::ZERO,
            seed: 1,
            ttl_ms: 1_000,
            patience: Duration::from_secs(600),
            folder: None,
            weakness: None,
        }
    }
}
