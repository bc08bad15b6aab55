//! The actor lease.

use keyfence_core::Ttl;
use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::lease::{Granted, Released};

use super::Call;
use crate::error::Outcome;

impl Call<'_> {
    /// Acquires an actor's lease, strictly: a live lease refuses, the caller's own too.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Refuses as [`actor::acquire`] does.
    pub fn actor_acquire(&mut self, ask: &actor::Acquire) -> Outcome<Granted<ActorGrant>> {
        self.run("actor_acquire", ask, |step, now| actor::acquire(step, ask, now))
    }

    /// Acquires an actor's lease, or renews the caller's own live one: the idempotent form.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Refuses as [`actor::acquire_or_renew`] does.
    pub fn actor_acquire_or_renew(&mut self, ask: &actor::Acquire) -> Outcome<Granted<ActorGrant>> {
        self.run("actor_acquire_or_renew", ask, |step, now| {
            actor::acquire_or_renew(step, ask, now)
        })
    }

    /// Moves the expiry of a live lease to `max(old, now + ttl)`; leaves no event.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Refuses as [`actor::renew`] does.
    pub fn actor_renew(&mut self, grant: &ActorGrant, ttl: Ttl) -> Outcome<Granted<ActorGrant>> {
        self.run("actor_renew", (grant, ttl), |step, now| {
            actor::renew(step, grant, ttl, now)
        })
    }

    /// Gives an actor's lease up. A stale grant changes nothing and is told so.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Never refuses.
    pub fn actor_release(&mut self, grant: &ActorGrant) -> Outcome<Released> {
        self.run("actor_release", grant, |step, now| actor::release(step, grant, now))
    }
}
