//! Messages with their texts, which the machines never see.

use keyfence_core::attempt::Done;
use keyfence_core::lease::Granted;
use keyfence_core::mailbox::{MessageGrant, Priority};
use keyfence_core::{Decision, Name, TimeMs};

use crate::error::Error;

/// The longest subject and body of a message together, in bytes. SQLite takes rows of 1,000,000,000 bytes
/// (<https://sqlite.org/limits.html>, 1); what else is in the row takes less than the difference.
pub const TEXT_BYTES_MAX: usize = 999_000_000;

/// A message to be sent.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// Its id: the same id with the same content is one message.
    pub id: Name,
    /// Who sends it.
    pub sender: Option<Name>,
    /// Who may claim it.
    pub recipient: Name,
    /// What it is about.
    pub subject: String,
    /// Its content, up to [`TEXT_BYTES_MAX`] with the subject.
    pub body: Vec<u8>,
    /// How urgent it is.
    pub priority: Priority,
    /// Before which moment it is not delivered.
    pub not_before: Option<TimeMs>,
    /// How many retries it has: [`RETRIES_MAX_DEFAULT`](keyfence_core::mailbox::RETRIES_MAX_DEFAULT) unless there is a
    /// reason.
    pub retries_max: u16,
}

impl NewMessage {
    /// Refuses what does not fit into a row.
    pub(crate) fn check_size(&self) -> Result<(), Error> {
        let bytes = self.subject.len().saturating_add(self.body.len());
        if bytes <= TEXT_BYTES_MAX {
            return Ok(());
        }
        Err(Error::Misuse {
            what: format!("subject and body have {bytes} bytes, and a message holds at most {TEXT_BYTES_MAX}"),
        })
    }
}

/// A claimed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The claim: what to present at every later call.
    pub granted: Granted<MessageGrant>,
    /// Who sent it.
    pub sender: Option<Name>,
    /// What it is about.
    pub subject: String,
    /// Its content.
    pub body: Vec<u8>,
    /// How urgent it is.
    pub priority: Priority,
    /// How many retries were used up before this delivery.
    pub retries: u16,
    /// How many claims were granted, this one included.
    pub deliveries: u32,
}

/// One message of a batch to complete.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    /// The claim.
    pub grant: &'a MessageGrant,
    /// What came of the work.
    pub result: &'a [u8],
}

/// A completed message, and what its worker claimed next in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedAndNext {
    /// Whether the completion took effect now or had done so before.
    pub done: Done,
    /// The next messages; empty when there are none. A refusal leaves the completion standing.
    pub next: Decision<Vec<Delivery>>,
}

/// Completed messages, and what their worker claimed next in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchAndNext {
    /// The decision on each completion, in their order.
    pub done: Vec<Decision<Done>>,
    /// The next messages; empty when there are none. A refusal leaves the completions standing.
    pub next: Decision<Vec<Delivery>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_into_no_row_is_misuse() {
        let of = |bytes: usize| NewMessage {
            id: Name::new("m-1").unwrap(),
            sender: None,
            recipient: Name::new("crew").unwrap(),
            subject: "four".into(),
            body: vec![0; bytes],
            priority: Priority::default(),
            not_before: None,
            retries_max: 3,
        };
        assert!(of(TEXT_BYTES_MAX - 4).check_size().is_ok());
        assert!(matches!(of(TEXT_BYTES_MAX - 3).check_size(), Err(Error::Misuse { .. })));
    }
}
