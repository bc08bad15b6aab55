//! How a kiosk stands, as its light and its hello tell it.

use keyfence_core::{Reason, TimeMs};

use crate::link::{State as Told, Why};

/// How a kiosk stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum State {
    /// Nobody has given it a name, a key and a ledger.
    Unprovisioned,
    /// The ledger was read and looks well. What has to be written before it may answer waits for the first authenticated
    /// request, so that a supply that comes and goes does not wear the flash out.
    Starting,
    /// It serves.
    Ready,
    /// It serves, and has no room for a new row of any kind.
    Full,
    /// Authority is refused, every output is safe.
    Closed(Closed),
    /// The flash takes no more. What is there can still be read out.
    Worn,
}

/// Why a kiosk is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Closed {
    /// What says who it is cannot be read as it was written.
    Identity,
    /// The program was built for another flash.
    Geometry,
    /// The ledger, or what says who it is, has a format of this other version.
    Unsupported(u8),
    /// The ledger is damaged; it is left as it is.
    Damaged,
    /// What became of the last commit is not known. The ledger is mounted again by itself.
    Unknown,
    /// The supply is failing.
    Power,
}

impl State {
    /// As the link tells it.
    #[must_use]
    pub const fn told(self) -> Told {
        match self {
            Self::Unprovisioned => Told::Unprovisioned,
            Self::Starting => Told::Starting,
            Self::Ready => Told::Ready,
            Self::Full => Told::Full,
            Self::Worn => Told::Worn,
            Self::Closed(why) => Told::Closed(match why {
                Closed::Identity | Closed::Damaged => Why::Damaged,
                Closed::Geometry => Why::Geometry,
                Closed::Unsupported(_) => Why::NewerFormat,
                Closed::Unknown | Closed::Power => Why::Flash,
            }),
        }
    }

    /// Whether the ledger answers.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Ready | Self::Full => true,
            Self::Unprovisioned | Self::Starting | Self::Closed(_) | Self::Worn => false,
        }
    }

    /// Sixteen eighths of a second of light, the lowest bit first.
    const fn pattern(self) -> u16 {
        match self {
            Self::Unprovisioned => 0b1111_1111_0000_0000,
            Self::Starting => 0b1010_1010_1010_1010,
            Self::Ready => 0b1111_1111_1111_1111,
            Self::Full => 0b1111_1111_1111_0101,
            Self::Closed(_) => 0b0000_0000_0000_0001,
            Self::Worn => 0b0000_0000_0001_0101,
        }
    }

    /// Whether the light is on at `now`: steady for ready; half a second slow for unprovisioned; fast for starting; two
    /// short gaps every two seconds for full; one short flash every two seconds for closed, three for worn.
    #[must_use]
    pub const fn is_lit(self, now: TimeMs) -> bool {
        self.pattern() >> (now.as_ms() / 125 % 16) & 1 == 1
    }
}

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Note {
    /// The state is another one.
    State(State),
    /// This boot's number.
    Boot(u32),
    /// An output may be active until this many milliseconds after the boot, or is safe.
    Output(&'static str, Option<u64>),
    /// Calls were refused since the last such line: the last one's reason, and how many.
    Refused(Reason, u32),
    /// The ledger is mounted again, for the so many-th time in a row.
    Remount(u8),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::string::String;

    #[test]
    fn every_state_has_a_light_of_its_own_and_repeats_it_every_two_seconds() {
        let states = [
            State::Unprovisioned,
            State::Starting,
            State::Ready,
            State::Full,
            State::Closed(Closed::Damaged),
            State::Worn,
        ];
        let shown = |state: State, from: u64| -> String {
            let at = |eighth: u64| TimeMs::new(from + 125 * eighth).unwrap();
            (0..16)
                .map(|eighth| if state.is_lit(at(eighth)) { '#' } else { '.' })
                .collect()
        };
        let lights: BTreeSet<_> = states.iter().map(|state| shown(*state, 0)).collect();
        assert_eq!(lights.len(), states.len(), "{lights:?}");
        for state in states {
            assert_eq!(shown(state, 0), shown(state, 2_000));
        }
        assert_eq!(shown(State::Worn, 0), "#.#.#...........");
    }

    #[test]
    fn only_ready_and_full_answer() {
        let open = [State::Ready, State::Full];
        assert!(open.iter().all(|state| state.is_open()));
        assert!(!State::Starting.is_open());
        assert!(!State::Closed(Closed::Unknown).is_open());
    }
}
