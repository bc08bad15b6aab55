//! The gate: a resource that only checks. One persistent high-water mark, bound at first use to one ledger, one kind of
//! claim and one name, because claims of all kinds share the counter.
//!
//! The decision is a pure function of the row, so that a lock file on a PC and a row on a kiosk use the same one.
//! What it decides holds for as long as nobody else can decide: the act and the check go together, under one lock.

use crate::counter;
use crate::event::{Event, EventKind};
use crate::name::{LedgerId, Name};
use crate::refusal::{Decision, Reason, Refusal, granted};
use crate::store::{Failure, Place, Record, Table};
use crate::time::TimeMs;
use crate::token::Token;

/// Which kind of claim a gate admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ClaimKind {
    /// An actor lease.
    Actor,
    /// An execution attempt; the name is the assignment's.
    Attempt,
    /// A mailbox claim; the name is the message's.
    Message,
    /// A host lease.
    Host,
    /// A session.
    Session,
}

impl ClaimKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Actor, Self::Attempt, Self::Message, Self::Host, Self::Session];

    /// The word for it, as the command takes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Actor => "actor",
            Self::Attempt => "attempt",
            Self::Message => "message",
            Self::Host => "host",
            Self::Session => "session",
        }
    }

    /// The kind of this word.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What a gate is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Binding {
    /// The ledger whose counter mints the tokens.
    pub ledger: LedgerId,
    /// The kind of claim.
    pub kind: ClaimKind,
    /// The claim's name.
    pub name: Name,
}

/// A gate's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Gate {
    /// The resource.
    pub name: Name,
    /// What it is bound to.
    pub binding: Binding,
    /// The greatest token that was admitted; `None` after a rebinding.
    pub high_water: Option<Token>,
}

impl Record for Gate {
    const PLACE: Place = Place::Gate;
    fn key(&self) -> &Name {
        &self.name
    }
}

/// What is known of the counter of the gate's ledger at the moment of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum LedgerCounter {
    /// The greatest token it minted; `None`: it minted none.
    Read(Option<Token>),
    /// It cannot be read now.
    Unreadable,
}

/// Asks whether a token may pass.
#[derive(Clone, Debug)]
pub struct Admit {
    /// The resource.
    pub gate: Name,
    /// For which claim.
    pub binding: Binding,
    /// The token of that claim.
    pub token: Token,
    /// The counter of the ledger that the binding names.
    pub counter: LedgerCounter,
}

/// The token may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum Admitted {
    /// It is the mark already; nothing has to be written.
    AtMark,
    /// It is the new mark: it has to be persistent before the resource is touched.
    Raised,
}

/// Decides on a gate's row. [`Admitted::Raised`] holds only once the token is persistent as the mark.
#[expect(
    clippy::result_large_err,
    reason = "a refusal carries its evidence by value: nothing here allocates"
)]
pub fn decide(row: Option<&Gate>, ask: &Admit) -> Decision<Admitted> {
    let mark = row.and_then(|gate| gate.high_water);
    let refuse = |reason| Refusal {
        high_water: mark,
        ..Refusal::new(reason)
    };
    if row.is_some_and(|gate| gate.binding != ask.binding) {
        return Err(refuse(Reason::GateMismatch));
    }
    match mark {
        Some(mark) if ask.token == mark => return Ok(Admitted::AtMark),
        Some(mark) if ask.token < mark => return Err(refuse(Reason::Fenced)),
        Some(_) | None => {}
    }
    match ask.counter {
        LedgerCounter::Unreadable => Err(refuse(Reason::LedgerUnreadable)),
        LedgerCounter::Read(last) if last.is_none_or(|last| ask.token > last) => Err(Refusal {
            never_issued: true,
            ..refuse(Reason::Fenced)
        }),
        LedgerCounter::Read(_) => Ok(Admitted::Raised),
    }
}

/// The row after an admission.
#[must_use]
pub fn raised(ask: &Admit) -> Gate {
    Gate {
        name: ask.gate.clone(),
        binding: ask.binding.clone(),
        high_water: Some(ask.token),
    }
}

/// Admits a token to a gate that is a row of the store.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::Fenced`], [`Reason::GateMismatch`], [`Reason::LedgerUnreadable`] or [`Reason::Full`].
pub fn admit<S: Table<Gate>>(step: &mut S, ask: &Admit, now: TimeMs) -> Result<Decision<Admitted>, Failure<S::Error>> {
    let before = step.get(&ask.gate)?;
    match decide(before.as_ref(), ask) {
        Ok(Admitted::AtMark) => Ok(Ok(Admitted::AtMark)),
        Ok(Admitted::Raised) => {
            if before.is_none() {
                granted!(step.room_for(&ask.gate)?);
            }
            step.put(before.as_ref(), &raised(ask))?;
            step.append(&Event {
                token: Some(ask.token),
                ..Event::new(now, EventKind::GateRaised, &ask.gate)
            })?;
            Ok(Ok(Admitted::Raised))
        }
        Err(refusal) => {
            // Whether the token was ever issued was decided by the counter of the gate's own ledger.
            counter::record(step, &refusal, &ask.gate, ask.token, now);
            Ok(Err(refusal))
        }
    }
}

/// Binds a gate to another claim by an operator's act. Its mark starts anew, because tokens of another ledger say
/// nothing about those of the old one.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::Full`].
pub fn rebind<S: Table<Gate>>(
    step: &mut S,
    gate: &Name,
    binding: &Binding,
    now: TimeMs,
) -> Result<Decision<()>, Failure<S::Error>> {
    let before = step.get(gate)?;
    if before.is_none() {
        granted!(step.room_for(gate)?);
    }
    step.put(
        before.as_ref(),
        &Gate {
            name: gate.clone(),
            binding: binding.clone(),
            high_water: None,
        },
    )?;
    step.append(&Event::new(now, EventKind::GateRebound, gate))?;
    Ok(Ok(()))
}
