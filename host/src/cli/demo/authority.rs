//! Actor and attempt: one actor, two processes that both believe they are it.

use keyfence::core::actor::{Acquire, ActorGrant, Released};
use keyfence::core::attempt::{self, AssignmentState, AttemptGrant, Create};
use keyfence::core::{Name, ProcessId, Token, Ttl};
use keyfence::run::{Plan, Report, Written, work};
use keyfence::{Ledger, fresh};
use serde_json::{Value, json};

use super::{Observed, Stage, Story, granted, name, plain, plain_rows, told};
use crate::cli::exit::Failure;

const ACTOR: &str = "operator-course";

pub(super) fn play(stage: &Stage, story: &mut Story) -> Observed {
    story.title(
        "One closing shift, two people who think it is theirs",
        "Only one may count the till, lock the freezer and set the alarm. A process that\n\
         crashed and was restarted is the same story: for a moment there are two, and\n\
         both say they are operator-course.",
    );
    let wrong = wrong_way(stage, story)?;
    let (ledger_a, ledger_b) = (stage.open()?, stage.open()?);
    let lease = lease(story, &ledger_a, &ledger_b)?;
    let (process_b, lease_b, lease_a) = (lease.process_b, lease.token_b, lease.token_a);
    let (attempts, attempt_id) = attempts(story, &ledger_b, process_b, lease_b, lease_a)?;
    let run = whole_run(story, &ledger_a, &ledger_b)?;
    let third = third_act(stage, story, &ledger_a, &ledger_b)?;
    Ok(json!({
        "actor_lease_cas": lease.observed,
        "execution_attempt_fencing": attempts,
        "second_process_same_actor_different_assignment": {
            "outcome": run.outcome,
            "category": run.category,
        },
        "assignment_never_reached_running": run.second_state,
        "same_actor_next_assignment_after_release": run.next_state,
        "first_process_meanwhile": run.first_state,
        "second_process_did_any_work": run.second_worked,
        "attempt_id": attempt_id,
        "name_alone": wrong,
        "third_act": third,
    }))
}

/// Without a number a name is all that can be checked, and both have it.
fn wrong_way(stage: &Stage, story: &mut Story) -> Observed {
    let [a, b] = plain_rows(
        stage,
        "CREATE TABLE shift (actor TEXT PRIMARY KEY, alarm_set_by TEXT);
         INSERT INTO shift (actor) VALUES ('operator-course');",
    )?;
    let set_alarm = |connection: &rusqlite::Connection, process: &str| {
        let update = "UPDATE shift SET alarm_set_by = ?1 WHERE actor = 'operator-course'";
        connection
            .execute(update, [process])
            .map(|rows| rows == 1)
            .map_err(plain)
    };
    let (by_a, by_b) = (set_alarm(&a, "process-a")?, set_alarm(&b, "process-b")?);
    let said = |accepted: bool| if accepted { "accepted" } else { "refused" };
    story.act("1. The wrong way: check the name");
    story.wrong("process A: \"I am operator-course\"", said(by_a));
    story.wrong("process B: \"I am operator-course\"", said(by_b));
    story.moral("Both are right. A name says who somebody is, not who it is now.");
    Ok(json!({ "process_a": said(by_a), "process_b": said(by_b) }))
}

/// What the second act leaves to the third.
struct LeaseAct {
    observed: Value,
    process_b: ProcessId,
    token_a: Token,
    token_b: Token,
}

/// Asks for the key of operator-course.
fn lease_for(process: ProcessId) -> Result<Acquire, Failure> {
    Ok(Acquire {
        actor: name(ACTOR)?,
        process,
        ttl: Ttl::ACTOR_LEASE,
    })
}

fn create(ledger: &Ledger, assignment: &str) -> Result<(), Failure> {
    let create = Create {
        id: name(assignment)?,
        actor: name(ACTOR)?,
        retry_of: None,
    };
    let _ = granted(ledger.call().assignment_create(&create)?)?;
    Ok(())
}

/// Asks for an attempt under this key.
fn attempt_at(assignment: &str, process: ProcessId, lease_token: Token) -> Result<attempt::Acquire, Failure> {
    Ok(attempt::Acquire {
        assignment: name(assignment)?,
        actor: name(ACTOR)?,
        process,
        lease_token,
        attempt: fresh::attempt(),
        ttl: Ttl::ATTEMPT,
    })
}

/// The lease is a compare-and-set: B is refused while A holds it, and gets a greater number afterwards.
fn lease(story: &mut Story, ledger_a: &Ledger, ledger_b: &Ledger) -> Result<LeaseAct, Failure> {
    let (process_a, process_b) = (fresh::process(), fresh::process());
    let by_a = granted(ledger_a.call().actor_acquire(&lease_for(process_a)?)?)?;
    let by_b = ledger_b.call().actor_acquire(&lease_for(process_b)?)?;
    let released = granted(ledger_a.call().actor_release(&by_a.grant)?)?;
    let now_b = granted(ledger_b.call().actor_acquire(&lease_for(process_b)?)?)?;
    let was_released = matches!(released, Released::Now);

    story.act("2. The right way: one numbered key for operator-course");
    story.line("process A takes the key", &format!("key {}", by_a.grant.token()));
    story.line("process B wants it too", &told(&by_b, "granted"));
    story.line("process A gives it back", if was_released { "done" } else { "refused" });
    story.line(
        "process B takes it",
        &format!("key {}, never 1 again", now_b.grant.token()),
    );
    Ok(LeaseAct {
        observed: json!({
            "process_a_acquired": format!("token={}", by_a.grant.token()),
            "process_b_while_a_holds_it": told(&by_b, "granted"),
            "process_a_released": if was_released { "True" } else { "False" },
            "process_b_now_acquires_cleanly": format!("token={}", now_b.grant.token()),
        }),
        process_b,
        token_a: by_a.grant.token(),
        token_b: now_b.grant.token(),
    })
}

/// An attempt needs the lease that is current now, checked in its own step.
fn attempts(
    story: &mut Story,
    ledger: &Ledger,
    process: ProcessId,
    lease_token: Token,
    stale_token: Token,
) -> Result<(Value, String), Failure> {
    create(ledger, "count-the-till")?;
    create(ledger, "lock-the-freezer")?;
    let ask = |assignment, lease_token| attempt_at(assignment, process, lease_token);
    let first = granted(ledger.call().attempt_acquire(&ask("count-the-till", lease_token)?)?)?;
    let second = ledger.call().attempt_acquire(&ask("count-the-till", lease_token)?)?;
    let stale = ledger.call().attempt_acquire(&ask("lock-the-freezer", stale_token)?)?;
    let attempt_id = first.grant.attempt().to_string();

    story.act("3. Work needs the key that is current now");
    story.line(
        "B starts count-the-till",
        &format!("attempt, key {}", first.grant.token()),
    );
    story.line("B starts count-the-till once more", &told(&second, "granted"));
    story.line(
        &format!("somebody starts work with key {stale_token}"),
        &told(&stale, "granted"),
    );

    // B goes home: what it holds would stand in the way of the next act.
    let _ = granted(ledger.call().attempt_release(&first.grant)?)?;
    let lease = ActorGrant::presented(name(ACTOR)?, process, lease_token);
    let _ = granted(ledger.call().actor_release(&lease)?)?;
    let observed = json!({
        // The id is another one every time; it follows below.
        "acquired": "attempt_id=att_...",
        "second_attempt_same_assignment": told(&second, "granted"),
        "stale_lease_token": told(&stale, "granted"),
    });
    Ok((observed, attempt_id))
}

/// What the whole path from a claim to a result showed.
struct RunAct {
    outcome: &'static str,
    category: &'static str,
    second_worked: bool,
    second_state: &'static str,
    first_state: &'static str,
    next_state: &'static str,
}

/// Two runs of one actor on two assignments, through the path that `keyfence run` takes.
fn whole_run(story: &mut Story, ledger_a: &Ledger, ledger_b: &Ledger) -> Result<RunAct, Failure> {
    let actor = name(ACTOR)?;
    let (first, second, next) = (name("close-monday")?, name("close-tuesday")?, name("close-wednesday")?);
    let mut second_worked = false;
    let mut refused = None;
    // The second process asks while the first one is at work.
    let first_run = work(ledger_a, &Plan::new(actor.clone(), first), |_| {
        refused = Some(work(ledger_b, &Plan::new(actor.clone(), second.clone()), |_| {
            second_worked = true;
            (attempt::Outcome::Completed, Vec::new())
        }));
        (attempt::Outcome::Completed, b"till counted".to_vec())
    })?;
    let first_state = written(granted(first_run)?);
    let (outcome, category) = match refused.transpose()? {
        Some(Err(refusal)) => ("refused", refusal.reason.name()),
        Some(Ok(_)) => ("ran", "none"),
        None => ("never asked", "none"),
    };
    let second_state = state_of(ledger_b, &second)?;
    let next_run = work(ledger_b, &Plan::new(actor, next), |_| {
        (attempt::Outcome::Completed, b"till counted".to_vec())
    })?;
    let next_state = written(granted(next_run)?);

    story.act("4. The whole path: a second process, another assignment");
    story.line("A works on close-monday to its end", first_state);
    story.line("meanwhile B starts close-tuesday", &format!("{outcome}: {category}"));
    story.line(
        "did B do any work?",
        if second_worked {
            "yes"
        } else {
            "no: refused before it began"
        },
    );
    story.line("close-tuesday is", second_state);
    story.line("then B works on close-wednesday", next_state);
    story.moral("The fence is about now. It locks nobody out for good.");
    Ok(RunAct {
        outcome,
        category,
        second_worked,
        second_state,
        first_state,
        next_state,
    })
}

/// A, then B, then A again: the same actor and the same process as in the first run, under another number.
fn third_act(stage: &Stage, story: &mut Story, ledger_a: &Ledger, ledger_b: &Ledger) -> Observed {
    let (process_a, process_b) = (fresh::process(), fresh::process());
    create(ledger_a, "set-the-alarm")?;
    story.act("5. Third act: the key goes from A to B and back to A");
    let mut keys = Vec::new();
    let mut first_work = None;
    // Each lease of five minutes has lapsed when the next one asks.
    for (minute, who, process, ledger) in [
        (10, "process A", process_a, ledger_a),
        (20, "process B", process_b, ledger_b),
        (30, "process A", process_a, ledger_a),
    ] {
        stage.minute(minute);
        let lease = granted(ledger.call().actor_acquire(&lease_for(process)?)?)?.grant;
        story.line(
            &format!("minute {minute}  {who} takes the key"),
            &format!("key {}", lease.token()),
        );
        if first_work.is_none() {
            let ask = attempt_at("set-the-alarm", process, lease.token())?;
            let work = granted(ledger.call().attempt_acquire(&ask)?)?.grant;
            story.line(
                "           and starts set-the-alarm",
                &format!("attempt, key {}", work.token()),
            );
            first_work = Some(work);
        }
        keys.push(lease);
    }
    let ([first, _, last], Some(first_work)) = (keys.as_slice(), first_work) else {
        return Err(Failure::System(anyhow::anyhow!("nothing was granted")));
    };
    let finish = |work: &AttemptGrant| -> Result<_, Failure> {
        Ok(ledger_a
            .call()
            .attempt_finish(work, attempt::Outcome::Completed, b"alarm set")?)
    };
    let renewed = ledger_a.call().actor_renew(first, Ttl::ACTOR_LEASE)?;
    let with_first = finish(&first_work)?;
    let ask = attempt_at("set-the-alarm", process_a, last.token())?;
    let last_work = granted(ledger_a.call().attempt_acquire(&ask)?)?.grant;
    let with_last = finish(&last_work)?;

    story.line(
        &format!("A's first run renews key {}", first.token()),
        &told(&renewed, "granted"),
    );
    story.line("A's first run finishes set-the-alarm", &told(&with_first, "COMPLETED"));
    story.line(
        &format!("A does it anew under key {}", last.token()),
        &told(&with_last, "COMPLETED"),
    );
    story.moral("Same actor, same process, same work. Only the number tells then from now.");
    Ok(json!({
        "processes": ["process-a", "process-b", "process-a"],
        "tokens": keys.iter().map(|lease| lease.token().get()).collect::<Vec<_>>(),
        "first_run_renews_its_token": told(&renewed, "granted"),
        "first_run_finishes": told(&with_first, "COMPLETED"),
        "last_run_finishes": told(&with_last, "COMPLETED"),
    }))
}

fn written(report: Report) -> &'static str {
    match report.written {
        Written::Committed(outcome, _) => outcome.name(),
        Written::Refused(refusal) => refusal.reason.name(),
        Written::Failed(error) => error.name(),
    }
}

fn state_of(ledger: &Ledger, assignment: &Name) -> Result<&'static str, Failure> {
    let view = ledger.assignment(assignment)?;
    Ok(match view.map(|view| view.row.state) {
        Some(AssignmentState::Created { .. }) => "CREATED",
        Some(AssignmentState::Running(_)) => "RUNNING",
        Some(AssignmentState::Finished(finished)) => finished.outcome.name(),
        Some(AssignmentState::Pruned) => "PRUNED",
        None => "MISSING",
    })
}
