//! The host lease.

use keyfence_core::Ttl;
use keyfence_core::host::{self, HostGrant};
use keyfence_core::lease::{Granted, Released};

use super::Call;
use crate::error::Outcome;

impl Call<'_> {
    /// Registers a host, or renews the caller's own live lease.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Refuses as [`host::register`] does.
    pub fn host_register(&mut self, ask: &host::Register) -> Outcome<Granted<HostGrant>> {
        self.run("host_register", ask, |step, now| host::register(step, ask, now))
    }

    /// Moves the expiry of a live lease to `max(old, now + ttl)`; leaves no event.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Refuses as [`host::renew`] does.
    pub fn host_renew(&mut self, grant: &HostGrant, ttl: Ttl) -> Outcome<Granted<HostGrant>> {
        self.run("host_renew", (grant, ttl), |step, now| {
            host::renew(step, grant, ttl, now)
        })
    }

    /// Gives a host's lease up; sessions that descend from it are no longer live.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Never refuses.
    pub fn host_release(&mut self, grant: &HostGrant) -> Outcome<Released> {
        self.run("host_release", grant, |step, now| host::release(step, grant, now))
    }
}
