//! A step as seen through a lens: it collects the events, and can bend what a machine reads or writes.

use keyfence_core::attempt::{Assignment, AssignmentState};
use keyfence_core::event::Event;
use keyfence_core::gate::Gate;
use keyfence_core::lease::{Held, Kind, Lease, LeaseState};
use keyfence_core::mailbox::{Message, MessageState};
use keyfence_core::refusal::RefusedCall;
use keyfence_core::session::{Generation, Session, SessionState};
use keyfence_core::store::{Candidates, Failure, Query, Record, Table, Transaction};
use keyfence_core::{Decision, Expiry, Incarnation, Name, TimeMs, Token};

/// A predicate that is taken out of the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakness {
    /// Where a holder ends its generation, the token in the row is taken for the one that was presented: the comparison always
    /// agrees with itself.
    TokenFromTheRow,
    /// A takeover hands out the newest token again instead of minting.
    TakeoverKeepsTheToken,
    /// A live claim is taken for a lapsed one.
    LiveIsLapsed,
    /// A lapsed claim is taken for a live one.
    LapsedIsLive,
    /// Where a holder ends its generation, the lease that it descends from is taken for the current one.
    AnyLeaseWillDo,
    /// A lapse costs no retry.
    LapseIsFree,
    /// A finished row is taken for one that is still claimed.
    FinishedIsClaimed,
}

impl Weakness {
    /// Whether it is about the calls with which a holder ends its generation, and no others.
    pub(super) const fn of_ends(self) -> bool {
        match self {
            Self::TokenFromTheRow | Self::AnyLeaseWillDo => true,
            Self::TakeoverKeepsTheToken
            | Self::LiveIsLapsed
            | Self::LapsedIsLive
            | Self::LapseIsFree
            | Self::FinishedIsClaimed => false,
        }
    }
}

/// What the caller of a verb presented, which a weakened comparison puts in the place of what the row says.
#[derive(Clone, Debug, Default)]
pub(super) struct Presented {
    /// The token of the claim.
    pub(super) token: Option<Token>,
    /// The token of the lease that the claim descends from.
    pub(super) parent: Option<Token>,
    /// The generation of the session.
    pub(super) generation: Option<Generation>,
    /// The claimed row that the grant is about, as it was when it was claimed.
    pub(super) claimed: Option<MessageState>,
}

/// The lens.
pub(super) struct Lens<'s, S> {
    pub(super) step: &'s mut S,
    pub(super) weakness: Option<Weakness>,
    pub(super) presented: &'s Presented,
    pub(super) events: Vec<Event>,
    pub(super) minted: bool,
}

impl<S: Transaction> Transaction for Lens<'_, S> {
    type Error = S::Error;

    fn last_minted(&mut self) -> Result<Option<Token>, Failure<S::Error>> {
        self.step.last_minted()
    }

    fn mint(&mut self) -> Result<Option<Token>, Failure<S::Error>> {
        match self.step.last_minted()? {
            Some(token) if self.weakness == Some(Weakness::TakeoverKeepsTheToken) => Ok(Some(token)),
            Some(_) | None => {
                let token = self.step.mint()?;
                self.minted |= token.is_some();
                Ok(token)
            }
        }
    }

    fn incarnation_floor(&mut self) -> Result<Option<Incarnation>, Failure<S::Error>> {
        self.step.incarnation_floor()
    }

    fn append(&mut self, event: &Event) -> Result<(), Failure<S::Error>> {
        self.events.push(event.clone());
        self.step.append(event)
    }

    fn record_refusal(&mut self, call: &RefusedCall) -> Result<(), Failure<S::Error>> {
        self.step.record_refusal(call)
    }

    fn candidates(&mut self, query: Query<'_>, now: TimeMs, limit: usize) -> Result<Candidates, Failure<S::Error>> {
        self.step.candidates(query, now, limit)
    }
}

impl<R: Record + Bend, S: Table<R>> Table<R> for Lens<'_, S> {
    fn get(&mut self, key: &Name) -> Result<Option<R>, Failure<S::Error>> {
        let row = self.step.get(key)?;
        Ok(row.map(|row| match self.weakness {
            Some(weakness) => row.bent(weakness, self.presented),
            None => row,
        }))
    }

    fn room_for(&mut self, key: &Name) -> Result<Decision<()>, Failure<S::Error>> {
        self.step.room_for(key)
    }

    fn put(&mut self, before: Option<&R>, after: &R) -> Result<(), Failure<S::Error>> {
        let Some(weakness) = self.weakness else {
            return self.step.put(before, after);
        };
        // What the machine read may have been bent: the row is compared with itself, as a weakened store would.
        let stands = self.step.get(after.key())?;
        let after = after.clone().put_as(weakness, stands.as_ref());
        self.step.put(stands.as_ref(), &after)
    }
}

/// How a row looks through the lens of a weakness.
pub(super) trait Bend: Sized {
    /// As it is read.
    #[must_use]
    fn bent(self, weakness: Weakness, presented: &Presented) -> Self;

    /// As it is written over what stands there.
    #[must_use]
    fn put_as(self, _weakness: Weakness, _stands: Option<&Self>) -> Self {
        self
    }
}

/// An expiry as a weakness of the clock shows it.
fn bent_expiry(expiry: Expiry, weakness: Weakness) -> Expiry {
    match weakness {
        Weakness::LiveIsLapsed => Expiry::At(TimeMs::ZERO),
        Weakness::LapsedIsLive => Expiry::At(TimeMs::MAX),
        Weakness::TokenFromTheRow
        | Weakness::TakeoverKeepsTheToken
        | Weakness::AnyLeaseWillDo
        | Weakness::LapseIsFree
        | Weakness::FinishedIsClaimed => expiry,
    }
}

impl<K: Kind> Bend for Lease<K> {
    fn bent(self, weakness: Weakness, presented: &Presented) -> Self {
        let LeaseState::Held(held) = self.state else {
            return self;
        };
        let token = match weakness {
            Weakness::AnyLeaseWillDo => presented.parent,
            Weakness::TokenFromTheRow if presented.parent.is_none() => presented.token,
            Weakness::TokenFromTheRow
            | Weakness::TakeoverKeepsTheToken
            | Weakness::LiveIsLapsed
            | Weakness::LapsedIsLive
            | Weakness::LapseIsFree
            | Weakness::FinishedIsClaimed => None,
        };
        let held = Held {
            token: token.unwrap_or(held.token),
            // The lease that something descends from stays as it is: only one predicate is missing at a time.
            expiry: match presented.parent {
                None => bent_expiry(held.expiry, weakness),
                Some(_) => held.expiry,
            },
            ..held
        };
        Self {
            state: LeaseState::Held(held),
            ..self
        }
    }
}

impl Bend for Assignment {
    fn bent(self, weakness: Weakness, presented: &Presented) -> Self {
        let AssignmentState::Running(mut attempt) = self.state else {
            return self;
        };
        if let (Weakness::TokenFromTheRow, Some(token)) = (weakness, presented.token) {
            attempt.token = token;
        }
        attempt.expiry = bent_expiry(attempt.expiry, weakness);
        Self {
            state: AssignmentState::Running(attempt),
            ..self
        }
    }
}

impl Bend for Message {
    fn bent(mut self, weakness: Weakness, presented: &Presented) -> Self {
        match (&mut self.state, weakness) {
            (MessageState::Claimed(claimed), _) => {
                if let (Weakness::TokenFromTheRow, Some(token)) = (weakness, presented.token) {
                    claimed.token = token;
                }
                claimed.expiry = bent_expiry(claimed.expiry, weakness);
            }
            (MessageState::Done(_) | MessageState::Dead(_), Weakness::FinishedIsClaimed) => {
                if let Some(claimed) = &presented.claimed {
                    self.state = claimed.clone();
                }
            }
            (MessageState::New(_) | MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned, _) => {}
        }
        self
    }

    fn put_as(self, weakness: Weakness, stands: Option<&Self>) -> Self {
        let claims = matches!(self.state, MessageState::Claimed(_));
        match stands {
            Some(stands) if weakness == Weakness::LapseIsFree && claims => Self {
                retries: stands.retries,
                ..self
            },
            Some(_) | None => self,
        }
    }
}

impl Bend for Session {
    fn bent(self, weakness: Weakness, presented: &Presented) -> Self {
        let SessionState::Claimed(mut claim) = self.state else {
            return self;
        };
        if let (Weakness::TokenFromTheRow, Some(generation)) = (weakness, &presented.generation) {
            // The host and its token are still compared; the session's own generation is not.
            claim.generation.token = generation.token;
            claim.generation.incarnation = generation.incarnation;
        }
        claim.expiry = bent_expiry(claim.expiry, weakness);
        Self {
            state: SessionState::Claimed(claim),
            ..self
        }
    }
}

impl Bend for Gate {
    fn bent(self, _weakness: Weakness, _presented: &Presented) -> Self {
        self
    }
}
