//! The mailbox: one message, two workers. They are two processes of one recipient, the closing shift.

use keyfence::core::mailbox::{Claim, MessageGrant, MessageState, Priority, RETRIES_MAX_DEFAULT};
use keyfence::core::{Decision, Name, ProcessId, Refusal, Token};
use keyfence::{Delivery, Ledger, NewMessage, fresh};
use serde_json::{Value, json};

use super::{Observed, QUARTER, Stage, Story, granted, name, plain, plain_rows, told};
use crate::cli::exit::Failure;

/// A worker: one process of the recipient.
struct Worker<'l> {
    called: &'static str,
    process: ProcessId,
    recipient: Name,
    ledger: &'l Ledger,
}

impl Worker<'_> {
    fn claim(&self, message: &str) -> Result<Decision<Delivery>, Failure> {
        let ask = Claim {
            message: name(message)?,
            owner: self.recipient.clone(),
            process: Some(self.process),
            lease_token: None,
            ttl: QUARTER,
        };
        Ok(self.ledger.call().mailbox_claim(&ask)?)
    }
}

pub(super) fn play(stage: &Stage, story: &mut Story) -> Observed {
    story.title(
        "One note, two workers",
        "Lucy left a note for the closing shift: \"Restock vanilla\".\n\
         Two of her staff each think it is theirs.",
    );
    let wrong = wrong_way(stage, story)?;

    let recipient = name("closing-shift")?;
    let (ledger_a, ledger_b) = (stage.open()?, stage.open()?);
    let worker = |called, ledger| Worker {
        called,
        process: fresh::process(),
        recipient: recipient.clone(),
        ledger,
    };
    let (a, b) = (worker("worker-a", &ledger_a), worker("worker-b", &ledger_b));
    for (id, body) in [
        ("msg-1", "Restock vanilla"),
        ("msg-2", "Order cones"),
        ("msg-3", "Call the supplier"),
        ("msg-4", "Count the till"),
    ] {
        let message = NewMessage {
            id: name(id)?,
            sender: Some(name("lucy")?),
            recipient: recipient.clone(),
            subject: String::new(),
            body: body.as_bytes().to_owned(),
            priority: Priority::default(),
            not_before: None,
            retries_max: RETRIES_MAX_DEFAULT,
        };
        let _ = granted(ledger_a.call().mailbox_send(&message)?)?;
    }

    let (one_winner, token_not_name) = right_way(story, &a, &b)?;
    let (timeline, late) = lease(stage, story, &a, &b)?;
    let budget = budget(stage, story, &a)?;
    let third = third_act(stage, story, &a, &b)?;
    Ok(json!({
        "read_then_write": wrong,
        "compare_and_set": one_winner,
        "complete_under_the_token": token_not_name,
        "lease_timeline": timeline,
        "late_completion": late,
        "retry_budget": budget,
        "third_act": third,
    }))
}

/// Both read before either writes: what two busy processes do.
fn wrong_way(stage: &Stage, story: &mut Story) -> Observed {
    let [a, b] = plain_rows(
        stage,
        "CREATE TABLE note (id TEXT PRIMARY KEY, state TEXT NOT NULL, owner TEXT);
         INSERT INTO note (id, state) VALUES ('msg-1', 'NEW');",
    )?;
    let read = |connection: &rusqlite::Connection| -> Result<String, Failure> {
        let state = connection.query_row("SELECT state FROM note WHERE id = 'msg-1'", [], |row| row.get(0));
        state.map_err(plain)
    };
    let write = |connection: &rusqlite::Connection, who: &str| -> Result<(), Failure> {
        let update = "UPDATE note SET state = 'CLAIMED', owner = ?1 WHERE id = 'msg-1'";
        connection.execute(update, [who]).map_err(plain)?;
        Ok(())
    };
    let (a_saw, b_saw) = (read(&a)?, read(&b)?);
    let (a_claims, b_claims) = (a_saw == "NEW", b_saw == "NEW");
    if a_claims {
        write(&a, "worker-a")?;
    }
    if b_claims {
        write(&b, "worker-b")?;
    }
    let owner: String = a
        .query_row("SELECT owner FROM note WHERE id = 'msg-1'", [], |row| row.get(0))
        .map_err(plain)?;
    story.act("1. The wrong way: look, decide, then write");
    story.wrong("worker-a looks at the note", &format!("{a_saw}, so it takes it"));
    story.wrong("worker-b looks at the note", &format!("{b_saw}, so it takes it"));
    story.wrong("on the note afterwards", &owner);
    story.moral("Nothing failed, and both are off to restock.");
    story.moral("Looking again just before writing only narrows the gap.");
    Ok(json!({
        "worker_a_saw": a_saw,
        "worker_a_decides_to_claim": a_claims,
        "worker_b_saw": b_saw,
        "worker_b_decides_to_claim": b_claims,
        "owner_on_disk": owner,
    }))
}

/// One winner, and a completion that wants the winner's own token.
fn right_way(story: &mut Story, a: &Worker<'_>, b: &Worker<'_>) -> Result<(Value, Value), Failure> {
    let by_a = granted(a.claim("msg-1")?)?;
    let by_b = b.claim("msg-1")?;
    let own = by_a.granted.grant.clone();
    let never_issued = own.token().advanced(98).unwrap_or(own.token());
    let forged = MessageGrant::presented(own.message().clone(), own.owner().clone(), own.process(), never_issued);
    let with_forged = a.ledger.call().mailbox_complete(&forged, b"")?;
    let never_seen = with_forged.as_ref().err().is_some_and(|refusal| refusal.never_issued);
    let with_own = a.ledger.call().mailbox_complete(&own, b"40 tubs of vanilla")?;

    story.act("2. The right way: decide and write in one step, and number the key");
    story.line("worker-a claims the note", &format!("key {}", own.token()));
    story.line("worker-b claims the note", &told(&by_b, "claimed"));
    story.line(
        &format!("worker-a completes it with key {never_issued}"),
        &told(&with_forged, "DONE"),
    );
    if never_seen {
        story.moral(&format!(
            "Nobody was ever given key {never_issued}, and the ledger knows it."
        ));
    }
    story.line(
        &format!("worker-a completes it with key {}", own.token()),
        &told(&with_own, "DONE"),
    );
    Ok((
        json!({
            "worker_a": format!("claimed: token={}", own.token()),
            "worker_b": told(&by_b, "claimed"),
        }),
        json!({
            "with_a_never_issued_token": told(&with_forged, "completed"),
            "never_issued": never_seen,
            "with_its_own_token": told(&with_own, "completed"),
        }),
    ))
}

/// Minutes 0, 5, 10, 20 and 25 of one message's life, and the late completion.
fn lease(stage: &Stage, story: &mut Story, a: &Worker<'_>, b: &Worker<'_>) -> Result<(Value, Value), Failure> {
    story.act("3. Keys expire: each claim of \"Order cones\" lasts 15 minutes");
    let mut timeline = Vec::new();
    let mut grants = Vec::new();
    for (minute, worker, does) in [
        (0, a, "claims"),
        (5, a, "asks again"),
        (10, b, "claims"),
        (20, b, "takes over"),
        (25, a, "wakes up, claims"),
    ] {
        stage.minute(minute);
        let decision = worker.claim("msg-2")?;
        let (answer, token) = match &decision {
            Ok(delivery) if delivery.granted.renewed => ("same", Some(delivery.granted.grant.token())),
            Ok(delivery) => ("fresh", Some(delivery.granted.grant.token())),
            Err(_) => ("refused", None),
        };
        let told = match &decision {
            Ok(delivery) => format!(
                "{answer} key {}, until minute {}",
                delivery.granted.grant.token(),
                stage.minute_of(delivery.granted.expires_at)
            ),
            Err(refusal) => format!("refused: {}{}", refusal.reason, until(stage, refusal)),
        };
        story.line(&format!("minute {minute:>2}  {} {does}", worker.called), &told);
        timeline.push(json!({
            "minute": minute,
            "worker": worker.called,
            "answer": answer,
            "token": token.map(Token::get),
        }));
        if let Ok(delivery) = decision {
            grants.push(delivery.granted.grant);
        }
    }
    let (Some(lapsed), Some(current)) = (grants.first(), grants.last()) else {
        return Err(Failure::System(anyhow::anyhow!("nothing was granted")));
    };
    let by_a = a.ledger.call().mailbox_complete(lapsed, b"200 cones")?;
    let by_b = b.ledger.call().mailbox_complete(current, b"300 cones")?;
    story.line(
        &format!("worker-a completes it with key {}", lapsed.token()),
        &told(&by_a, "DONE"),
    );
    story.line(
        &format!("worker-b completes it with key {}", current.token()),
        &told(&by_b, "DONE"),
    );
    story.moral("Nobody stopped worker-a from working. Its result just does not count.");
    let late = json!({
        "worker_a_with_its_lapsed_token": told(&by_a, "completed"),
        "worker_b_with_the_current_token": told(&by_b, "completed"),
    });
    Ok((Value::Array(timeline), late))
}

fn until(stage: &Stage, refusal: &Refusal) -> String {
    refusal.expires_at.map_or_else(String::new, |moment| {
        format!(" until minute {}", stage.minute_of(moment))
    })
}

/// Four failures of one message.
fn budget(stage: &Stage, story: &mut Story, a: &Worker<'_>) -> Observed {
    stage.minute(100);
    let mut verdicts = Vec::new();
    for _ in 0..4 {
        let delivery = granted(a.claim("msg-3")?)?;
        let mut call = a.ledger.call();
        let settled = granted(call.mailbox_retry(&delivery.granted.grant, None, "the line is busy")?)?;
        verdicts.push(if settled.dead { "dead-lettered" } else { "retried" });
    }
    let message = a.ledger.message(&name("msg-3")?)?;
    let (state, retries) = message
        .as_ref()
        .map_or(("missing", 0), |view| (view.row.state_name(), view.row.retries));
    let kept = message.as_ref().is_some_and(|view| {
        matches!(view.row.state, MessageState::Dead(_)) && view.body.as_deref() == Some(b"Call the supplier")
    });
    story.act("4. Failing has an end: \"Call the supplier\", and the line is busy");
    story.line("worker-a fails four times", &verdicts.join(", "));
    story.line(
        "the note is",
        &format!("{state} after {retries} retries, kept for Lucy"),
    );
    Ok(json!({ "attempts": verdicts, "final": [state, retries], "body_is_kept": kept }))
}

/// The same worker holds the message twice; its old key does not open it again.
fn third_act(stage: &Stage, story: &mut Story, a: &Worker<'_>, b: &Worker<'_>) -> Observed {
    story.act("5. Third act: the till goes from A to B and back to A");
    let mut grants = Vec::new();
    for (minute, worker) in [(200, a), (220, b), (240, a)] {
        stage.minute(minute);
        let delivery = granted(worker.claim("msg-4")?)?;
        let token = delivery.granted.grant.token();
        story.line(
            &format!("minute {minute}  {} claims", worker.called),
            &format!("key {token}"),
        );
        grants.push(delivery.granted.grant);
    }
    let finished = |grant: &MessageGrant| a.ledger.call().mailbox_complete(grant, b"312.40");
    let [first, .., last] = grants.as_slice() else {
        return Err(Failure::System(anyhow::anyhow!("nothing was granted")));
    };
    let (with_first, with_last) = (finished(first)?, finished(last)?);
    story.line(
        &format!("worker-a completes it with key {}", first.token()),
        &told(&with_first, "DONE"),
    );
    story.line(
        &format!("worker-a completes it with key {}", last.token()),
        &told(&with_last, "DONE"),
    );
    story.moral("Same note, same worker, same process. Only the number tells then from now.");
    Ok(json!({
        "workers": ["worker-a", "worker-b", "worker-a"],
        "tokens": grants.iter().map(|grant| grant.token().get()).collect::<Vec<_>>(),
        "worker_a_with_its_first_token": told(&with_first, "completed"),
        "worker_a_with_its_last_token": told(&with_last, "completed"),
    }))
}
