//! What a board gives the application, and what it says about its outputs.

use keyfence_core::TimeMs;
use keyfence_core::gate::ClaimKind;

use super::outputs::Deadlines;
use super::state::{Note, State};

/// Outputs that a board can have.
pub const OUTPUTS_MAX: usize = 4;

/// A pin's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Level {
    /// At ground.
    Low,
    /// At the supply.
    High,
}

impl Level {
    /// The other level.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Low => Self::High,
            Self::High => Self::Low,
        }
    }
}

/// Whose claim holds an output at its active level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Follows {
    /// The live claim of this kind and name.
    Claim(ClaimKind, &'static str),
    /// The claim that this gate is bound to, once the gate has admitted its token: live, of this very ledger, and under
    /// the token that was admitted last.
    Gate(&'static str),
}

/// Board data: one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct OutputSpec {
    /// Its name, as a person knows it.
    pub name: &'static str,
    /// Whose claim drives it.
    pub follows: Follows,
    /// The level at which it does harm without authority. The other one is its safe level, and the board's wiring holds
    /// the pin there while the chip is in reset.
    pub active: Level,
}

/// What a board gives the application: a handle that costs nothing to copy.
///
/// Nothing in an implementation decides anything. What is relied on:
///
/// * `now` does not go back within a boot and advances while the application runs.
/// * [`apply_outputs`](Self::apply_outputs) is called from the clock's interrupt at least every millisecond, so an output
///   leaves its active level by itself when its moment has come, whatever the main loop does.
pub trait Board: Copy {
    /// The outputs, at most [`OUTPUTS_MAX`].
    const OUTPUTS: &'static [OutputSpec];
    /// Milliseconds that an erase of one page halts everything, at most.
    const ERASE_MS: u64;
    /// Erases that the chip's maker promises for a page.
    const ERASES_RATED: u32;
    /// Milliseconds from the lapse of a lease until its output is at its safe level, at most.
    const LAPSE_MS: u64;

    /// Milliseconds since this boot.
    fn now(self) -> TimeMs;
    /// Fills `bytes` with what nobody can foretell.
    fn random(self, bytes: &mut [u8]);
    /// Until when each output may be active.
    fn deadlines(&self) -> &Deadlines;
    /// Brings the pins to what the deadlines say now.
    fn apply_outputs(self);
    /// Switches the light that shows the state.
    fn light(self, is_lit: bool);
    /// The next byte that was received, if there is one.
    fn receive(self) -> Option<u8>;
    /// Sends bytes; returns when they are on their way or in a buffer.
    fn send(self, bytes: &[u8]);
    /// Whether the supply was found below its warning level since the boot.
    fn is_power_failing(self) -> bool;
    /// Writes a line of the log.
    fn note(self, note: Note);
    /// Tells whoever is there what the state is, beside the light.
    fn state_changed(self, state: State) {
        self.note(Note::State(state));
    }
}
