//! Looking at messages: one by its id, or a recipient's inbox.

use keyfence::core::mailbox::MessageState;
use keyfence::core::{Expiry, Name, TimeMs};
use keyfence::{Ledger, MessageView};

use crate::cli::exit::{Failure, decided};
use crate::cli::output::Answer;
use crate::cli::{Access, Context, FIRST_PAGE, standing};

const COLUMNS: &[(&str, &str)] = &[
    ("MESSAGE", "message"),
    ("STATE", "state"),
    ("PRIORITY", "priority"),
    ("SUBJECT", "subject"),
    ("RETRIES", "retries"),
    ("PROCESS", "process"),
    ("UNTIL", "expires_at_ms"),
];

/// Shows one message with its texts; writes nothing.
pub(super) fn one(context: &Context, id: &Name) -> Result<(), Failure> {
    let ledger = context.open(Access::Read)?;
    let answer = match ledger.message(id)? {
        Some(view) => standing(context, &ledger, view)?,
        None => Answer::unknown_name("message", id),
    };
    Ok(context.output().answer(&answer)?)
}

/// Looks whether the texts of a message are there and as they were given, before its claim is ended: the machines see its
/// row alone.
pub(super) fn check_texts(ledger: &Ledger, id: &Name) -> Result<(), Failure> {
    ledger.message(id)?;
    Ok(())
}

/// Sweeps and lists an inbox, page by page.
pub(super) fn inbox(context: &Context, recipient: &Name) -> Result<(), Failure> {
    let ledger = context.open(Access::Write)?;
    let mut list = context.output().list(COLUMNS);
    let mut page = FIRST_PAGE;
    loop {
        let decision = context.call(&ledger, recipient).mailbox_inbox(recipient, page)?;
        let views = decided(decision, || format!("read the inbox of `{recipient}`"))?;
        let Some(last) = views.last() else {
            return Ok(list.end("the inbox is empty")?);
        };
        page = page.after(last.number);
        for view in views {
            list.row(standing(context, &ledger, view)?)?;
        }
    }
}

/// A message as it stands now. A claim whose actor lease is gone is not live: no call under it is accepted, although
/// nobody else gets the message before it expires.
pub(crate) fn standing(context: &Context, ledger: &Ledger, view: MessageView) -> Result<Answer, Failure> {
    let row = &view.row;
    let answer = Answer::plain()
        .with("message", row.id.as_str())
        .with("state", row.state_name())
        .with("recipient", row.recipient.as_str())
        .with_some("sender", view.sender.as_ref().map(Name::as_str))
        .with("subject", view.subject)
        .with("body_bytes", view.body_bytes)
        .with_some("sent_at_ms", view.sent_at.map(TimeMs::as_ms))
        .with("priority", row.priority.get())
        .with_some("not_before_ms", row.not_before.map(TimeMs::as_ms))
        .with("retries", row.retries)
        .with("retries_max", row.retries_max)
        .with("deliveries", row.deliveries)
        .with_some("redrive_of", row.redrive_of.as_ref().map(Name::as_str));
    let answer = match &row.state {
        MessageState::New(open) => answer.with_some("last_token", open.last.as_ref().map(|last| last.token.get())),
        MessageState::Claimed(claimed) => {
            let standing = standing::of_message(context, ledger, &row.recipient, claimed)?;
            let expired = !claimed.expiry.is_live(context.now());
            // What the next claim, sweep or inbox will make of a lapsed claim.
            let has_budget = row.retries < row.retries_max || claimed.expiry == Expiry::EarlierBoot;
            let lapses_to = if has_budget { "NEW" } else { "DEAD" };
            answer
                .with("owner", row.recipient.as_str())
                .with_some("process", claimed.process.map(|process| process.to_string()))
                .with("token", claimed.token.get())
                .with_some("lease_token", claimed.lease_token.map(keyfence::Token::get))
                .with("since_ms", claimed.since.as_ms())
                .with_some("expires_at_ms", claimed.expiry.time().map(TimeMs::as_ms))
                .with("live", standing.live)
                .with_some("lease_lost", (!standing.descends).then_some(true))
                .with_some("lapses_to", expired.then_some(lapses_to))
        }
        MessageState::Done(last) => answer.with("last_token", last.token.get()),
        MessageState::Dead(dead) => answer
            .with("cause", dead.cause.name())
            .with_some("last_token", dead.last.as_ref().map(|last| last.token.get()))
            .with_some("redriven_as", dead.redriven_as.as_ref().map(Name::as_str)),
        MessageState::Pruned => answer,
    };
    let answer = answer.with_some("reason", view.reason.filter(|reason| !reason.is_empty()));
    let answer = match &view.result {
        Some(result) => answer.with_bytes("result", result),
        None => answer,
    };
    let answer = match view.body {
        Some(body) => answer.with_body(body),
        None => answer,
    };
    Ok(answer.headline(format!("message {}", row.id), &["message"]))
}
