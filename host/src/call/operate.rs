//! The operator's acts: they present no token, and are recorded.

use keyfence_core::attempt::{self, Done};
use keyfence_core::gate::ClaimKind;
use keyfence_core::lease::Revoked;
use keyfence_core::mailbox::{self, Redrive};
use keyfence_core::{Name, Reason, Refusal, Token, actor, counter, host, session};

use super::Call;
use crate::error::Outcome;
use crate::store::step::Texts;

impl Call<'_> {
    /// Dead-letters a message that nobody works on. `reason` is kept with the message and in its history; the act is
    /// recognised when it is repeated with the same one, and with another it finds the message finished.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Refuses as [`mailbox::dead_letter_new`] does.
    pub fn mailbox_dead_letter_new(&mut self, message: &Name, reason: &str) -> Outcome<Done> {
        self.run("mailbox_dead_letter_new", (message, reason), |step, now| {
            let decision = step.with_texts(Texts::noted(reason), |step| {
                mailbox::dead_letter_new(step, message, now)
            })?;
            match decision {
                Ok(Done::Now) => step.put_reason(message, reason)?,
                Ok(Done::Already) if step.reason(message)? != reason => {
                    return Ok(Err(Refusal::new(Reason::MessageFinished)));
                }
                Ok(Done::Already) | Err(_) => {}
            }
            Ok(decision)
        })
    }

    /// Sends a DEAD message once more, with its subject and body, under a new id; done before, it answers with the id of
    /// then.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Refuses as [`mailbox::redrive`] does.
    pub fn mailbox_redrive(&mut self, dead: &Name, new_id: Name) -> Outcome<(Name, Done)> {
        let ask = Redrive {
            dead: dead.clone(),
            id: new_id,
        };
        self.run("mailbox_redrive", (dead, &ask.id), |step, now| {
            let decision = mailbox::redrive(step, &ask, now)?;
            if let Ok((id, Done::Now)) = &decision {
                step.copy_body(dead, id)?;
            }
            Ok(decision)
        })
    }

    /// Mints a token for a resource of the caller's own; `purpose` names it in the history.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Refuses as [`counter::mint_for`] does.
    pub fn mint(&mut self, purpose: &Name) -> Outcome<Token> {
        self.run("mint", purpose, |step, now| counter::mint_for(step, purpose, now))
    }

    /// Clears a claim, live or lapsed; its token is dead. For an attempt `name` is the assignment's.
    ///
    /// # Errors
    /// [`Error`](crate::Error). Never refuses: where nothing is claimed, [`Revoked::Nothing`] is the answer.
    pub fn revoke(&mut self, kind: ClaimKind, name: &Name, reason: &str) -> Outcome<Revoked> {
        self.run("revoke", (kind, name, reason), |step, now| {
            step.with_texts(Texts::noted(reason), |step| match kind {
                ClaimKind::Actor => actor::revoke(step, name, now),
                ClaimKind::Attempt => attempt::revoke(step, name, now),
                ClaimKind::Message => mailbox::revoke(step, name, now),
                ClaimKind::Host => host::revoke(step, name, now),
                ClaimKind::Session => session::revoke(step, name, now),
            })
        })
    }
}
