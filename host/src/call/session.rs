//! Sessions.

use keyfence_core::lease::{Granted, Released};
use keyfence_core::session::{self, Done, SessionGrant};
use keyfence_core::store::Failure;
use keyfence_core::{Decision, TimeMs};

use super::Call;
use super::describe::Bytes;
use crate::error::{Error, Outcome};
use crate::store::check::digest;
use crate::store::step::{SqliteStep, Texts};

/// Finishes a session and keeps the result in its row.
pub(crate) fn finish(
    step: &mut SqliteStep<'_>,
    grant: &SessionGrant,
    result: &[u8],
    now: TimeMs,
) -> Result<Decision<Done>, Failure<Error>> {
    step.with_texts(Texts::resulting(result), |step| {
        session::finish(step, grant, digest(result), now)
    })
}

impl Call<'_> {
    /// Claims a session, or renews the caller's own live claim.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`session::claim`] does.
    pub fn session_claim(&mut self, ask: &session::ClaimSession) -> Outcome<Granted<SessionGrant>> {
        self.run("session_claim", ask, |step, now| session::claim(step, ask, now))
    }

    /// Gives a session up; the next claim is the next incarnation. A stale grant changes nothing and is told so.
    ///
    /// # Errors
    /// [`Error`]. Never refuses.
    pub fn session_release(&mut self, grant: &SessionGrant) -> Outcome<Released> {
        self.run("session_release", grant, |step, now| session::release(step, grant, now))
    }

    /// Finishes the session: the terminal write. `result` is kept with it.
    ///
    /// # Errors
    /// [`Error`]. Refuses as [`session::finish`] does; then nothing is written.
    pub fn session_finish(&mut self, grant: &SessionGrant, result: &[u8]) -> Outcome<Done> {
        self.run("session_finish", (grant, Bytes(result)), |step, now| {
            finish(step, grant, result, now)
        })
    }
}
