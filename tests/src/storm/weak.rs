//! The same verbs with one predicate left out each: what the storm must find, or it proves nothing.
//!
//! They write through the ledger's own atomic step, with genuine events, so that nothing but the missing predicate gives
//! them away.

use keyfence_core::attempt::{Assignment, AssignmentState, AttemptGrant, Finished, FinishedBy, Outcome};
use keyfence_core::event::{Event, EventKind, Replaced};
use keyfence_core::host::HostGrant;
use keyfence_core::lease::{Held, LeaseState};
use keyfence_core::mailbox::{Act, Claimed, Last, Message, MessageGrant, MessageState};
use keyfence_core::refusal::Holder;
use keyfence_core::session::{Claim, Generation, Session, SessionGrant, SessionState};
use keyfence_core::store::{CANDIDATES_MAX, Failure, Query, Step, Transaction};
use keyfence_core::{
    AttemptId, Decision, Digest, Expiry, Incarnation, Name, ProcessId, Reason, Refusal, TimeMs, Token, Ttl, actor,
};

use super::history::Rule;

macro_rules! weaknesses {
    ($($(#[$doc:meta])* $variant:ident => $name:literal, $rules:expr;)*) => {
        /// A predicate that is left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Weakness {
            $($(#[$doc])* $variant,)*
        }

        impl Weakness {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The rules of the checker that find it: at least one of them has to.
            #[must_use]
            pub const fn found_by(self) -> &'static [Rule] {
                match self { $(Self::$variant => $rules,)* }
            }
        }
    };
}

weaknesses! {
    /// A completion does not compare the token.
    CompletesUnderAnyToken => "complete-any-token", &[Rule::Superseded];
    /// A completion does not look whether the message is finished.
    CompletesTwice => "complete-twice", &[Rule::AfterTheEnd];
    /// A claim does not look whether the older claim is live.
    ClaimsTheLive => "claim-live", &[Rule::TooEarly];
    /// A claim reads in one transaction and writes in the next.
    ClaimsWithoutCompareAndSet => "claim-without-compare-and-set", &[Rule::Replaced];
    /// A claim hands out the last token again.
    ClaimsWithoutMint => "claim-without-mint", &[Rule::TokenTwice];
    /// A takeover does not count the lapse.
    TakesOverForFree => "takeover-for-free", &[Rule::Budget];
    /// An actor's lease is acquired without looking at its expiry.
    AcquiresTheLive => "acquire-live", &[Rule::TooEarly];
    /// An attempt is finished without looking at the lease it descends from.
    FinishesAnOrphan => "finish-orphan", &[Rule::Parent];
    /// A session's takeover keeps the incarnation.
    KeepsTheIncarnation => "keep-incarnation", &[Rule::Incarnation];
    /// A session is finished without comparing incarnation and token: A(1) in place of A(3).
    FinishesAnotherGeneration => "finish-another-generation", &[Rule::Superseded];
    /// A session is finished without looking at its expiry.
    FinishesTheLapsed => "finish-lapsed", &[Rule::LateFinish];
}

type Answer<S, T> = Result<Decision<T>, Failure<<S as Transaction>::Error>>;

const fn refused<S: Transaction, T>(reason: Reason) -> Answer<S, T> {
    Ok(Err(Refusal::new(reason)))
}

fn holder(name: &Name, process: Option<ProcessId>) -> Holder {
    Holder {
        name: name.clone(),
        process,
    }
}

fn replaced(message: &Message, claimed: &Claimed) -> Replaced {
    Replaced {
        holder: holder(&message.recipient, claimed.process),
        token: claimed.token,
        expiry: claimed.expiry,
    }
}

/// Completes a message that is CLAIMED, by whomever; and, where `finished_too`, one that is finished.
pub(crate) fn complete<S: Step>(
    step: &mut S,
    grant: &MessageGrant,
    result: Digest,
    finished_too: bool,
    now: TimeMs,
) -> Answer<S, ()> {
    let found: Option<Message> = step.get(grant.message())?;
    let Some(before) = found else {
        return refused::<S, _>(Reason::MessageMissing);
    };
    let claimed = match &before.state {
        MessageState::Claimed(claimed) if !finished_too => Some(claimed.clone()),
        MessageState::Done(_) | MessageState::Dead(_) if finished_too => None,
        MessageState::New(_)
        | MessageState::Claimed(_)
        | MessageState::Done(_)
        | MessageState::Dead(_)
        | MessageState::Pruned => return refused::<S, _>(Reason::FencingTokenStale),
    };
    let last = Last {
        process: grant.process(),
        token: grant.token(),
        act: Act::Completed,
        digest: result,
    };
    let after = Message {
        state: MessageState::Done(last),
        ..before.clone()
    };
    step.put(Some(&before), &after)?;
    step.append(&Event {
        holder: Some(holder(grant.owner(), grant.process())),
        token: Some(grant.token()),
        parent_token: claimed.as_ref().and_then(|claimed| claimed.lease_token),
        expires_at: claimed.as_ref().map_or(Some(now), |claimed| claimed.expiry.time()),
        retries: Some(before.retries),
        ..Event::new(now, EventKind::MessageCompleted, grant.message())
    })?;
    Ok(Ok(()))
}

/// Which claim is made without which predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loose {
    /// Of somebody else's live claim.
    Live,
    /// Of a message that was NEW when it was looked at.
    WasNew,
    /// Of a NEW message, under the last token.
    SameToken,
    /// Of a lapsed claim, at no cost.
    ForFree,
}

/// Claims a message.
pub(crate) fn claim<S: Step>(
    step: &mut S,
    id: &Name,
    process: ProcessId,
    ttl: Ttl,
    loose: Loose,
    now: TimeMs,
) -> Answer<S, MessageGrant> {
    let found: Option<Message> = step.get(id)?;
    let Some(before) = found else {
        return refused::<S, _>(Reason::MessageMissing);
    };
    let older = match &before.state {
        MessageState::New(_) => None,
        MessageState::Claimed(older) => Some(older),
        MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => {
            return refused::<S, _>(Reason::MessageFinished);
        }
    };
    let live = older.is_some_and(|older| older.expiry.is_live(now));
    let wanted = match loose {
        Loose::Live => live,
        Loose::WasNew => true,
        Loose::SameToken => older.is_none(),
        Loose::ForFree => older.is_some() && !live,
    };
    if !wanted || (older.is_some() && before.retries >= before.retries_max) {
        return refused::<S, _>(Reason::MessageHeld);
    }
    let minted = match loose {
        Loose::SameToken => step.last_minted()?,
        Loose::Live | Loose::WasNew | Loose::ForFree => step.mint()?,
    };
    let Some(token) = minted else {
        return refused::<S, _>(Reason::TokenExhausted);
    };
    let counted = match loose {
        Loose::Live => older.is_some(),
        Loose::WasNew | Loose::SameToken | Loose::ForFree => false,
    };
    let expires_at = now.after(ttl);
    let after = Message {
        retries: before.retries + u16::from(counted),
        deliveries: before.deliveries + 1,
        state: MessageState::Claimed(Claimed {
            process: Some(process),
            token,
            lease_token: None,
            since: now,
            expiry: Expiry::At(expires_at),
        }),
        ..before.clone()
    };
    let replaced = match loose {
        Loose::WasNew => None,
        Loose::Live | Loose::SameToken | Loose::ForFree => older.map(|older| replaced(&before, older)),
    };
    step.put(Some(&before), &after)?;
    step.append(&Event {
        holder: Some(holder(&before.recipient, Some(process))),
        token: Some(token),
        expires_at: Some(expires_at),
        retries: Some(after.retries),
        replaced,
        ..Event::new(now, EventKind::MessageClaimed, id)
    })?;
    let grant = MessageGrant::presented(id.clone(), before.recipient, Some(process), token);
    Ok(Ok(grant))
}

/// The NEW message that comes next: the first half of a claim in two transactions.
pub(crate) fn next_new<S: Step>(step: &mut S, recipient: &Name, now: TimeMs) -> Answer<S, Option<Name>> {
    for id in step.candidates(Query::Deliverable(recipient), now, CANDIDATES_MAX)? {
        let found: Option<Message> = step.get(&id)?;
        if found.is_some_and(|message| matches!(message.state, MessageState::New(_))) {
            return Ok(Ok(Some(id)));
        }
    }
    Ok(Ok(None))
}

/// A message whose claim has lapsed.
pub(crate) fn next_lapsed<S: Step>(step: &mut S, now: TimeMs) -> Answer<S, Option<Name>> {
    let lapsed = step.candidates(Query::LapsedMessages(None), now, 1)?;
    Ok(Ok(lapsed.first().cloned()))
}

/// Acquires an actor's lease from whoever holds it.
pub(crate) fn acquire<S: Step>(step: &mut S, ask: &actor::Acquire, now: TimeMs) -> Answer<S, ()> {
    let found: Option<actor::ActorLease> = step.get(&ask.actor)?;
    let Some(before) = found else {
        return refused::<S, _>(Reason::ActorLeaseLost);
    };
    let Some(older) = before.claim().copied() else {
        return refused::<S, _>(Reason::ActorLeaseLost);
    };
    let Some(token) = step.mint()? else {
        return refused::<S, _>(Reason::TokenExhausted);
    };
    let expires_at = now.after(ask.ttl);
    let held = Held {
        process: ask.process,
        token,
        since: now,
        expiry: Expiry::At(expires_at),
    };
    let after = actor::ActorLease {
        state: LeaseState::Held(held),
        ..before.clone()
    };
    step.put(Some(&before), &after)?;
    step.append(&Event {
        holder: Some(holder(&ask.actor, Some(ask.process))),
        token: Some(token),
        expires_at: Some(expires_at),
        replaced: Some(Replaced {
            holder: holder(&ask.actor, Some(older.process)),
            token: older.token,
            expiry: older.expiry,
        }),
        ..Event::new(now, EventKind::ActorAcquired, &ask.actor)
    })?;
    Ok(Ok(()))
}

/// Finishes an assignment under an attempt whose lease may be gone.
pub(crate) fn finish_attempt<S: Step>(
    step: &mut S,
    grant: &AttemptGrant,
    result: Digest,
    now: TimeMs,
) -> Answer<S, AttemptId> {
    let found: Option<Assignment> = step.get(grant.assignment())?;
    let running = found.and_then(|row| match row.state {
        AssignmentState::Running(attempt) if attempt.token == grant.token() => Some((row, attempt)),
        AssignmentState::Running(_)
        | AssignmentState::Created { .. }
        | AssignmentState::Finished(_)
        | AssignmentState::Pruned => None,
    });
    let Some((before, attempt)) = running else {
        return refused::<S, _>(Reason::ExecutionAttemptLost);
    };
    let after = Assignment {
        state: AssignmentState::Finished(Finished {
            outcome: Outcome::Completed,
            attempt: attempt.id,
            token: attempt.token,
            by: FinishedBy::Attempt(result),
        }),
        ..before.clone()
    };
    step.put(Some(&before), &after)?;
    step.append(&Event {
        holder: Some(holder(&before.actor, Some(attempt.process))),
        token: Some(attempt.token),
        parent_token: Some(attempt.lease_token),
        expires_at: attempt.expiry.time(),
        attempt: Some(attempt.id),
        ..Event::new(now, EventKind::AttemptCompleted, grant.assignment())
    })?;
    Ok(Ok(attempt.id))
}

/// Takes a lapsed session over under its old incarnation.
pub(crate) fn claim_session<S: Step>(
    step: &mut S,
    session: &Name,
    host: &HostGrant,
    ttl: Ttl,
    now: TimeMs,
) -> Answer<S, Incarnation> {
    let found: Option<Session> = step.get(session)?;
    let lapsed = found.and_then(|row| row.claim().cloned().map(|claim| (row, claim)));
    let Some((before, older)) = lapsed.filter(|(_, claim)| !claim.expiry.is_live(now)) else {
        return refused::<S, _>(Reason::SessionHeld);
    };
    let Some(token) = step.mint()? else {
        return refused::<S, _>(Reason::TokenExhausted);
    };
    let expires_at = now.after(ttl);
    let incarnation = older.generation.incarnation;
    let claim = Claim {
        generation: Generation {
            host: host.name().clone(),
            incarnation,
            token,
            host_token: host.token(),
        },
        process: host.process(),
        since: now,
        expiry: Expiry::At(expires_at),
    };
    let after = Session {
        state: SessionState::Claimed(claim),
        ..before.clone()
    };
    step.put(Some(&before), &after)?;
    step.append(&Event {
        holder: Some(holder(host.name(), Some(host.process()))),
        token: Some(token),
        parent_token: Some(host.token()),
        expires_at: Some(expires_at),
        incarnation: Some(incarnation),
        replaced: Some(Replaced {
            holder: holder(&older.generation.host, Some(older.process)),
            token: older.generation.token,
            expiry: older.expiry,
        }),
        ..Event::new(now, EventKind::SessionClaimed, session)
    })?;
    Ok(Ok(incarnation))
}

/// Finishes a session that is claimed: under any generation where `any`, else after its expiry.
pub(crate) fn finish_session<S: Step>(
    step: &mut S,
    grant: &SessionGrant,
    process: ProcessId,
    result: Digest,
    any: bool,
    now: TimeMs,
) -> Answer<S, Token> {
    let found: Option<Session> = step.get(grant.session())?;
    let claimed = found.and_then(|row| row.claim().cloned().map(|claim| (row, claim)));
    let presented = grant.generation();
    let Some((before, claim)) = claimed.filter(|(_, claim)| any || claim.generation == *presented) else {
        return refused::<S, _>(Reason::SessionClaimStale);
    };
    if !any && claim.expiry.is_live(now) {
        return refused::<S, _>(Reason::SessionHeld);
    }
    let after = Session {
        state: SessionState::Finished(presented.clone(), result),
        ..before.clone()
    };
    step.put(Some(&before), &after)?;
    step.append(&Event {
        holder: Some(holder(&presented.host, Some(process))),
        token: Some(presented.token),
        parent_token: Some(presented.host_token),
        expires_at: claim.expiry.time(),
        incarnation: Some(presented.incarnation),
        ..Event::new(now, EventKind::SessionFinished, grant.session())
    })?;
    Ok(Ok(presented.token))
}
