//! Sending a message.

use std::ffi::OsString;
use std::io::Read as _;

use clap::Args;
use keyfence::NewMessage;
use keyfence::core::mailbox::{Priority, RETRIES_MAX_DEFAULT};
use keyfence::core::{Name, TimeMs};

use crate::cli::exit::{Answered, Status, decided};
use crate::cli::output::Answer;
use crate::cli::{Access, Context, MaybeProcess, args};

#[derive(Debug, Args)]
pub(super) struct Send {
    /// The recipient
    #[arg(long, value_name = "ACTOR", value_parser = args::name)]
    to: Name,
    /// The sender, for the history
    #[arg(long, value_name = "ACTOR", value_parser = args::name)]
    from: Option<Name>,
    /// What it is about
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    subject: String,
    /// The message's id [default: a fresh one]
    #[arg(long, value_parser = args::name)]
    id: Option<Name>,
    /// -100 to 100, the greater the sooner
    #[arg(long, value_name = "N", default_value = "0", value_parser = args::priority)]
    priority: Priority,
    /// Not before this moment, in milliseconds since the Unix epoch
    #[arg(long, value_name = "MS", value_parser = args::moment)]
    not_before: Option<TimeMs>,
    /// How often it is tried again after a failure, 0 to 65535
    #[arg(long, value_name = "N", default_value_t = RETRIES_MAX_DEFAULT, value_parser = args::retries)]
    retries_max: u16,
    #[command(flatten)]
    by: MaybeProcess,
    /// The body; `-` reads it from standard input
    body: OsString,
}

impl Send {
    pub(super) fn run(self, context: &Context) -> Answered {
        let body = if self.body == "-" {
            let mut body = Vec::new();
            std::io::stdin().lock().read_to_end(&mut body)?;
            body
        } else {
            args::bytes(self.body)
        };
        let caller = self.by.caller(self.from.as_ref());
        let message = NewMessage {
            id: self.id.unwrap_or_else(|| context.new_message(&caller)),
            sender: self.from,
            recipient: self.to,
            subject: self.subject,
            body,
            priority: self.priority,
            not_before: self.not_before,
            retries_max: self.retries_max,
        };
        let ledger = context.open(Access::Create)?;
        let mut call = context.call(&ledger, &caller);
        let decision = call.mailbox_send(&message)?;
        let done = decided(decision, || format!("send message `{}`", message.id))?;
        let answer = Answer::done(done)
            .with("message", message.id.as_str())
            .with("recipient", message.recipient.as_str());
        context
            .output()
            .answer(&answer.with_some("replayed", call.replayed().then_some(true)))?;
        Ok(Status::Done)
    }
}
