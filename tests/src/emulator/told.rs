//! What a kiosk has told its caller, and what that forbids it to say later.
//!
//! * **V1.** A token is told once, and is greater than every one told before, whatever was cut in between.
//! * **V2.** An incarnation of a session is told once, and is greater than every one told before.
//! * **V3.** Only the newest generation of a session finishes it.
//! * **V4.** A row is as it was told last, or as the call in flight makes it; after that was settled it stays so.
//! * **V5.** The counter never lies below a token that was told, nor below what it was seen at.
//! * **V6.** A kiosk whose power was cut serves again.
//! * **V7.** A call that took effect is not done a second time when it is asked again under its id.

use std::collections::BTreeMap;

use keyfence_core::session::{Generation, Session, SessionState};
use keyfence_core::{Name, Token};

/// A session's row, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Never claimed.
    Absent,
    /// Claimed by this generation, live or not.
    Claimed(Generation),
    /// Given up; this was the last incarnation.
    Free(u64),
    /// Finished by this generation.
    Finished(Generation),
    /// Finished, and pruned.
    Pruned,
}

impl Standing {
    /// What a row says.
    #[must_use]
    pub fn of(row: Option<&Session>) -> Self {
        match row.map(|row| &row.state) {
            None => Self::Absent,
            Some(SessionState::Claimed(claim)) => Self::Claimed(claim.generation.clone()),
            Some(SessionState::Free { incarnation, .. }) => Self::Free(incarnation.get()),
            Some(SessionState::Finished(generation, _)) => Self::Finished(generation.clone()),
            Some(SessionState::Pruned) => Self::Pruned,
        }
    }

    /// The greatest incarnation that it names.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        match self {
            Self::Absent | Self::Pruned => 0,
            Self::Claimed(generation) | Self::Finished(generation) => generation.incarnation.get(),
            Self::Free(incarnation) => *incarnation,
        }
    }
}

/// What a call in flight does to a session, if it takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The next generation, or the same one again.
    Claim,
    /// The session is given up.
    Release,
    /// The session is finished.
    Finish,
}

/// Everything that was told, and what broke the rules.
#[derive(Debug, Default)]
pub struct Told {
    token: u64,
    counter: u64,
    incarnations: BTreeMap<Name, u64>,
    rows: BTreeMap<Name, Standing>,
    /// Finished rows may be gone: somebody asked for it.
    prunes: bool,
    violations: Vec<String>,
}

impl Told {
    /// What broke the rules so far.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Notes a breach.
    pub fn breach(&mut self, what: String) {
        self.violations.push(what);
    }

    /// A token was minted and told (V1).
    pub fn minted(&mut self, token: Token, what: &str) {
        if token.get() <= self.token {
            self.breach(format!("V1: {what} was granted token {token}, after {}", self.token));
        }
        self.token = self.token.max(token.get());
    }

    /// A claim was granted; `renewed` keeps its generation (V1, V2).
    pub fn claimed(&mut self, session: &Name, generation: Generation, renewed: bool) {
        let before = self.standing(session);
        if renewed {
            if before != Standing::Claimed(generation.clone()) {
                self.breach(format!("V4: {session}: renewed {generation:?}, and it was {before:?}"));
            }
        } else {
            self.minted(generation.token, "a session");
            let told = self
                .incarnations
                .get(session)
                .copied()
                .unwrap_or(0)
                .max(before.incarnation());
            if generation.incarnation.get() <= told {
                self.breach(format!(
                    "V2: {session}: incarnation {} after {told}",
                    generation.incarnation
                ));
            }
        }
        self.incarnations.insert(session.clone(), generation.incarnation.get());
        self.rows.insert(session.clone(), Standing::Claimed(generation));
    }

    /// A session was given up under this generation.
    pub fn released(&mut self, session: &Name, generation: &Generation) {
        self.ends(session, generation, "given up");
        self.rows
            .insert(session.clone(), Standing::Free(generation.incarnation.get()));
    }

    /// A session was finished under this generation (V3).
    pub fn finished(&mut self, session: &Name, generation: &Generation) {
        self.ends(session, generation, "finished");
        self.rows
            .insert(session.clone(), Standing::Finished(generation.clone()));
    }

    fn ends(&mut self, session: &Name, generation: &Generation, how: &str) {
        let before = self.standing(session);
        if before != Standing::Claimed(generation.clone()) {
            self.breach(format!(
                "V3: {session} was {how} by {generation:?}, and it was {before:?}"
            ));
        }
    }

    /// Pruning was asked for: finished rows may go, now or when the call is repeated.
    pub const fn prunes(&mut self) {
        self.prunes = true;
    }

    /// How a session stands, as far as it was told.
    #[must_use]
    pub fn standing(&self, session: &Name) -> Standing {
        self.rows.get(session).cloned().unwrap_or(Standing::Absent)
    }

    /// The sessions that were told of.
    #[must_use]
    pub fn sessions(&self) -> Vec<Name> {
        self.rows.keys().cloned().collect()
    }

    /// A row was read after a power-up (V4). `in_flight`: what the call that was cut off does to it. Returns whether that call
    /// took effect.
    pub fn read(&mut self, session: &Name, found: Standing, in_flight: Option<Effect>) -> bool {
        let before = self.standing(session);
        if found == before {
            return false;
        }
        let told = self.incarnations.get(session).copied().unwrap_or(0);
        if self.prunes
            && matches!(
                (&before, &found),
                (Standing::Finished(_), Standing::Absent | Standing::Pruned)
            )
        {
            // Its incarnations are remembered: it never starts again at one of them (V2).
            self.rows.insert(session.clone(), found);
            return false;
        }
        let is_its_effect = match (in_flight, &before, &found) {
            (Some(Effect::Claim), Standing::Finished(_), _) => false,
            (Some(Effect::Claim), _, Standing::Claimed(next)) => {
                next.incarnation.get() > told.max(before.incarnation()) && next.token.get() > self.token
            }
            (Some(Effect::Release), Standing::Claimed(last), Standing::Free(free)) => *free == last.incarnation.get(),
            (Some(Effect::Finish), Standing::Claimed(last), Standing::Finished(by)) => last == by,
            (_, _, _) => false,
        };
        if !is_its_effect {
            self.breach(format!(
                "V4: {session} is {found:?}; told was {before:?}, in flight {in_flight:?}"
            ));
        }
        if let Standing::Claimed(generation) = &found {
            self.token = self.token.max(generation.token.get());
            self.incarnations.insert(session.clone(), generation.incarnation.get());
        }
        self.rows.insert(session.clone(), found);
        is_its_effect
    }

    /// The counter was read (V5).
    pub fn counted(&mut self, last: Option<Token>) {
        let last = last.map_or(0, Token::get);
        let told = self.token.max(self.counter);
        if last < told {
            self.breach(format!("V5: the counter is at {last}, and {told} was told"));
        }
        self.counter = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyfence_core::Incarnation;

    fn till() -> Name {
        Name::new("till").unwrap()
    }

    fn generation(incarnation: u64, token: u64) -> Generation {
        Generation {
            host: Name::new("host").unwrap(),
            incarnation: Incarnation::presented(incarnation).unwrap(),
            token: Token::presented(token).unwrap(),
            host_token: Token::presented(1).unwrap(),
        }
    }

    fn claimed() -> Told {
        let mut told = Told::default();
        told.minted(Token::presented(1).unwrap(), "a host");
        told.claimed(&till(), generation(1, 2), false);
        told.counted(Token::presented(2));
        assert_eq!(told.violations(), [""; 0]);
        told
    }

    #[track_caller]
    fn breaks(rule: &str, told: &Told) {
        let found = told.violations();
        assert!(found.len() == 1 && found[0].starts_with(rule), "{rule}: {found:?}");
    }

    #[test]
    fn what_a_cut_may_leave_is_no_breach() {
        for (flight, found) in [
            (Effect::Claim, Standing::Claimed(generation(2, 3))),
            (Effect::Release, Standing::Free(1)),
            (Effect::Finish, Standing::Finished(generation(1, 2))),
        ] {
            let mut told = claimed();
            assert!(told.read(&till(), found, Some(flight)), "{flight:?}");
            assert!(!claimed().read(&till(), Standing::Claimed(generation(1, 2)), Some(flight)));
            assert_eq!(told.violations(), [""; 0], "{flight:?}");
        }
    }

    #[test]
    fn each_rule_is_noticed_when_it_is_broken() {
        let mut told = claimed();
        told.minted(Token::presented(2).unwrap(), "a host");
        breaks("V1", &told);

        let mut told = claimed();
        told.claimed(&till(), generation(1, 3), false);
        breaks("V2", &told);

        let mut told = claimed();
        told.finished(&till(), &generation(1, 3));
        breaks("V3", &told);

        for found in [
            Standing::Absent,
            Standing::Claimed(generation(1, 3)),
            Standing::Claimed(generation(2, 2)),
            Standing::Free(1),
            Standing::Finished(generation(1, 2)),
        ] {
            let mut told = claimed();
            let in_flight = matches!(found, Standing::Claimed(_)).then_some(Effect::Claim);
            assert!(!told.read(&till(), found, in_flight));
            breaks("V4", &told);
        }

        let mut told = claimed();
        told.counted(Token::presented(1));
        breaks("V5", &told);
    }
}
