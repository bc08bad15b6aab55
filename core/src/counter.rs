//! The one counter that claims of every kind draw their token from.

use crate::event::{Event, EventKind};
use crate::lease::Released;
use crate::name::Name;
use crate::refusal::{Decision, Reason, Refusal, RefusedCall, granted};
use crate::store::{Failure, Transaction};
use crate::time::TimeMs;
use crate::token::Token;

/// Mints the token of a claim, or refuses at the end of the range. A machine calls this last, when nothing else can
/// refuse the claim any more: a refused claim mints nothing.
pub(crate) fn mint<S: Transaction>(step: &mut S) -> Result<Decision<Token>, Failure<S::Error>> {
    Ok(step.mint()?.ok_or(Refusal::new(Reason::TokenExhausted)))
}

/// Mints a token for a resource of the caller's own. `purpose` names it in the history.
///
/// # Errors
/// [`Failure`]. Refuses with [`Reason::TokenExhausted`] at the end of the range.
pub fn mint_for<S: Transaction>(
    step: &mut S,
    purpose: &Name,
    now: TimeMs,
) -> Result<Decision<Token>, Failure<S::Error>> {
    let token = granted!(mint(step)?);
    step.append(&Event {
        token: Some(token),
        ..Event::new(now, EventKind::TokenMinted, purpose)
    })?;
    Ok(Ok(token))
}

/// Whether `presented` lies above everything minted on this ledger. Such a number is never adopted.
pub(crate) fn never_issued<S: Transaction>(step: &mut S, presented: Token) -> Result<bool, Failure<S::Error>> {
    Ok(step.last_minted()?.is_none_or(|last| presented > last))
}

/// Completes and records the refusal of a call that presented a stale or a foreign token. A counter that cannot be read
/// is damage and is reported.
pub(crate) fn refuse<S: Transaction>(
    step: &mut S,
    mut refusal: Refusal,
    subject: &Name,
    presented: Token,
    now: TimeMs,
) -> Result<Refusal, Failure<S::Error>> {
    refusal.never_issued = never_issued(step, presented)?;
    record(step, &refusal, subject, presented, now);
    Ok(refusal)
}

/// The answer to a release under a stale or a foreign token: a no-op, recorded for this reason like any other call that
/// presented one.
pub(crate) fn not_held<S: Transaction>(
    step: &mut S,
    reason: Reason,
    subject: &Name,
    presented: Token,
    now: TimeMs,
) -> Result<Decision<Released>, Failure<S::Error>> {
    let _recorded = refuse(step, Refusal::new(reason), subject, presented, now)?;
    Ok(Ok(Released::NotHeld))
}

/// Records a refusal as it is. It stands whether or not its record could be written.
pub(crate) fn record<S: Transaction>(step: &mut S, refusal: &Refusal, subject: &Name, presented: Token, now: TimeMs) {
    let call = RefusedCall {
        at: now,
        reason: refusal.reason,
        subject: subject.clone(),
        presented,
        never_issued: refusal.never_issued,
    };
    drop(step.record_refusal(&call));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Candidates, Corrupt, Place, Query};
    use crate::token::Incarnation;

    /// A step that cannot record a refusal, and whose counter may be damaged.
    struct Failing {
        counter: Option<Token>,
    }

    impl Transaction for Failing {
        type Error = &'static str;
        fn last_minted(&mut self) -> Result<Option<Token>, Failure<Self::Error>> {
            let damage = Corrupt {
                place: Place::Counter,
                key: None,
                why: "unreadable",
            };
            self.counter.map(Some).ok_or(damage.into())
        }
        fn mint(&mut self) -> Result<Option<Token>, Failure<Self::Error>> {
            Ok(None)
        }
        fn incarnation_floor(&mut self) -> Result<Option<Incarnation>, Failure<Self::Error>> {
            Ok(None)
        }
        fn append(&mut self, _event: &Event) -> Result<(), Failure<Self::Error>> {
            Err(Failure::Store("full"))
        }
        fn record_refusal(&mut self, _call: &RefusedCall) -> Result<(), Failure<Self::Error>> {
            Err(Failure::Store("full"))
        }
        fn candidates(
            &mut self,
            _query: Query<'_>,
            _now: TimeMs,
            _limit: usize,
        ) -> Result<Candidates, Failure<Self::Error>> {
            Ok(Candidates::new())
        }
    }

    fn refused(step: &mut Failing) -> Result<Refusal, Failure<&'static str>> {
        let subject = Name::new("msg-1").unwrap();
        let refusal = Refusal::new(Reason::FencingTokenStale);
        refuse(step, refusal, &subject, Token::FIRST, TimeMs::ZERO)
    }

    #[test]
    fn a_refusal_stands_when_its_record_cannot_be_written() {
        let mut step = Failing {
            counter: Some(Token::FIRST),
        };
        assert_eq!(refused(&mut step), Ok(Refusal::new(Reason::FencingTokenStale)));
    }

    #[test]
    fn a_damaged_counter_is_reported_and_not_guessed_over() {
        let answer = refused(&mut Failing { counter: None });
        assert!(matches!(answer, Err(Failure::Corrupt(corrupt)) if corrupt.place == Place::Counter));
    }
}
