//! What the machines never see of a message: subject, body and reason, in tables of their own.

use keyfence_core::Name;
use keyfence_core::lease::Granted;
use keyfence_core::mailbox::{Message, MessageGrant, Priority};
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Digest, TimeMs};
use rusqlite::{OptionalExtension as _, params};

use super::cells::Cells;
use super::rows::{Rows as _, number_of, query_one};
use super::{SqliteStep, bug, failed};
use crate::error::Error;
use crate::message::{Delivery, NewMessage};
use crate::store::check::Encoder;

/// Everything that a sender chose.
pub(crate) struct Content<'m> {
    pub(crate) sender: Option<&'m Name>,
    pub(crate) recipient: &'m Name,
    pub(crate) subject: &'m str,
    pub(crate) body: &'m [u8],
    pub(crate) priority: Priority,
    pub(crate) not_before: Option<TimeMs>,
    pub(crate) retries_max: u16,
}

/// The digest over everything that a sender chose; the body goes last, and is not copied.
pub(crate) fn content(content: &Content<'_>) -> Digest {
    let mut encoder = Encoder::new();
    encoder.opt(content.sender, |encoder, name| encoder.text(name.as_str()));
    encoder.text(content.recipient.as_str());
    encoder.text(content.subject);
    encoder.number(i64::from(content.priority.get()).cast_unsigned());
    encoder.opt(content.not_before, |encoder, time| encoder.number(time.as_ms()));
    encoder.number(u64::from(content.retries_max));
    encoder.digest_with(content.body)
}

impl SqliteStep<'_> {
    /// The number of a message that this step has read or put.
    fn number_of_message(&self, id: &Name) -> Result<i64, Failure<Error>> {
        match self.caches.messages.find(id) {
            Some(stored) => Ok(stored.number),
            None => {
                let number: Option<i64> = self
                    .connection
                    .prepare_cached("SELECT number FROM keyfence_message WHERE id = ?1")
                    .and_then(|mut statement| statement.query_row([id.as_str()], |row| row.get(0)).optional())
                    .map_err(failed)?;
                number.ok_or_else(|| bug(format!("the message `{id}` is not there")))
            }
        }
    }

    /// Keeps what was sent, beside the row that was just put.
    pub(crate) fn put_body(&mut self, message: &NewMessage) -> Result<(), Failure<Error>> {
        let number = self.number_of_message(&message.id)?;
        let mut statement = self
            .connection
            .prepare_cached(
                "INSERT INTO keyfence_body (number, sender, sent_at_ms, sent_not_before_ms, subject, body) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .map_err(failed)?;
        statement
            .execute(params![
                number,
                message.sender.as_ref().map(Name::as_str),
                number_of(self.now.as_ms()),
                message.not_before.map(|time| number_of(time.as_ms())),
                message.subject,
                message.body
            ])
            .map_err(failed)?;
        Ok(())
    }

    /// Gives a redriven message the texts of the DEAD one.
    pub(crate) fn copy_body(&mut self, dead: &Name, id: &Name) -> Result<(), Failure<Error>> {
        let (from, to) = (self.number_of_message(dead)?, self.number_of_message(id)?);
        let mut statement = self
            .connection
            .prepare_cached(
                "INSERT INTO keyfence_body (number, sender, sent_at_ms, sent_not_before_ms, subject, body) \
                 SELECT ?1, sender, ?2, sent_not_before_ms, subject, body FROM keyfence_body WHERE number = ?3",
            )
            .map_err(failed)?;
        let copied = statement
            .execute(params![to, number_of(self.now.as_ms()), from])
            .map_err(failed)?;
        if copied == 1 {
            Ok(())
        } else {
            Err(super::cells::corrupt(
                Place::Message,
                Some(dead.as_str()),
                "its body is missing",
            ))
        }
    }

    /// Keeps the reason of a retry or a dead-lettering in place of an earlier one.
    pub(crate) fn put_reason(&mut self, message: &Name, reason: &str) -> Result<(), Failure<Error>> {
        let number = self.number_of_message(message)?;
        let mut statement = self
            .connection
            .prepare_cached(
                "INSERT INTO keyfence_reason (number, reason) VALUES (?1, ?2) \
                 ON CONFLICT (number) DO UPDATE SET reason = excluded.reason",
            )
            .map_err(failed)?;
        statement
            .execute(params![number, (!reason.is_empty()).then_some(reason)])
            .map_err(failed)?;
        Ok(())
    }

    /// The reason that is kept with a message; empty where none was given.
    pub(crate) fn reason(&self, message: &Name) -> Result<String, Failure<Error>> {
        let number = self.number_of_message(message)?;
        let reason: Option<Option<String>> = self
            .connection
            .prepare_cached("SELECT reason FROM keyfence_reason WHERE number = ?1")
            .and_then(|mut statement| statement.query_row([number], |row| row.get(0)).optional())
            .map_err(failed)?;
        Ok(reason.flatten().unwrap_or_default())
    }

    /// The texts and counts that a claim is delivered with. What is not what was sent is not handed out.
    pub(crate) fn delivery(&mut self, granted: Granted<MessageGrant>) -> Result<Delivery, Failure<Error>> {
        let id = granted.grant.message();
        let stored = match Message::cache(self).find(id) {
            Some(stored) => stored.clone(),
            None => {
                Message::load(self, id)?.ok_or_else(|| bug(format!("the message `{id}` that was claimed is gone")))?
            }
        };
        let texts = query_one(
            self.connection,
            "SELECT sender, subject, body, sent_not_before_ms FROM keyfence_body WHERE number = ?1",
            [stored.number],
            |row| {
                let cells = Cells::new(row, Place::Message, 0);
                Ok((
                    cells.opt_name(0)?,
                    cells.text(1)?.to_owned(),
                    cells.opt_blob(2)?.map(<[u8]>::to_vec),
                    cells.opt_time(3)?,
                ))
            },
        )?;
        let Some((sender, subject, Some(body), not_before)) = texts else {
            return Err(super::cells::corrupt(
                Place::Message,
                Some(id.as_str()),
                "its body is missing",
            ));
        };
        let sent = Content {
            sender: sender.as_ref(),
            recipient: &stored.row.recipient,
            subject: &subject,
            body: &body,
            priority: stored.row.priority,
            not_before,
            retries_max: stored.row.retries_max,
        };
        if content(&sent) != stored.row.content {
            return Err(super::cells::corrupt(
                Place::Message,
                Some(id.as_str()),
                "what was sent is not what its digest says",
            ));
        }
        Ok(Delivery {
            sender,
            subject,
            body,
            priority: stored.row.priority,
            retries: stored.row.retries,
            deliveries: stored.row.deliveries,
            granted,
        })
    }
}
