//! Kiosk takeover: one conversation that moves between two kiosks.

use keyfence::core::host::{HostGrant, Proof, Register};
use keyfence::core::session::{ClaimSession, SessionGrant, SessionState};
use keyfence::core::{Decision, Incarnation, Name, Ttl};
use keyfence::{Ledger, SessionView, fresh};
use serde_json::{Value, json};

use super::{Observed, Stage, Story, granted, name, plain, plain_rows, told};
use crate::cli::exit::Failure;

pub(super) fn play(stage: &Stage, story: &mut Story) -> Observed {
    story.title(
        "One conversation, two kiosks",
        "A kiosk in Lucy's shop chats with the supplier. It loses its network, another\n\
         one takes over, and then the first one's answer arrives after all.",
    );
    let wrong = wrong_way(stage, story)?;
    let ledger = stage.open()?;
    let (a, b) = (name("kiosk-a")?, name("kiosk-b")?);
    let takeover = takeover(stage, story, &ledger, &a, &b)?;
    let third = third_act(stage, story, &ledger, &a, &b)?;
    Ok(json!({
        "incarnations": takeover.incarnations,
        "stale_finish": takeover.stale,
        "current_finish": takeover.current,
        "committed": takeover.committed,
        "refusal": takeover.refusal,
        "third_act": third,
        "host_name_alone": wrong,
    }))
}

/// The host's name is the same in its first run and in its third.
fn wrong_way(stage: &Stage, story: &mut Story) -> Observed {
    let [db, late] = plain_rows(
        stage,
        "CREATE TABLE chat (name TEXT PRIMARY KEY, host TEXT, result TEXT);
         INSERT INTO chat (name, host) VALUES ('supplier-chat', 'kiosk-a');",
    )?;
    for host in ["kiosk-b", "kiosk-a"] {
        db.execute("UPDATE chat SET host = ?1", [host]).map_err(plain)?;
    }
    let finish = "UPDATE chat SET result = ?1 WHERE name = 'supplier-chat' AND host = 'kiosk-a'";
    let accepted = late
        .execute(finish, ["40 tubs, agreed before the outage"])
        .map_err(plain)?
        == 1;
    let said = if accepted { "accepted" } else { "refused" };
    story.act("1. The wrong way: check which kiosk it is");
    story.wrong("the chat runs on", "kiosk-a, kiosk-b, kiosk-a again");
    story.wrong("the answer of kiosk-a's first run", said);
    story.moral("It is kiosk-a's chat, and this is kiosk-a. It is just not this kiosk-a.");
    Ok(json!({ "late_answer_of_the_first_run": said }))
}

/// Registers a host by a fresh process, as after a restart.
fn register(ledger: &Ledger, host: &Name) -> Result<HostGrant, Failure> {
    let ask = Register {
        host: host.clone(),
        process: fresh::process(),
        proof: Proof::Process,
        ttl: Ttl::HOST_LEASE,
    };
    Ok(granted(ledger.call().host_register(&ask)?)?.grant)
}

fn claim(ledger: &Ledger, session: &Name, host: &HostGrant) -> Result<SessionGrant, Failure> {
    let ask = ClaimSession {
        session: session.clone(),
        host: host.clone(),
        ttl: Ttl::SESSION_LEASE,
    };
    Ok(granted(ledger.call().session_claim(&ask)?)?.grant)
}

fn finish(ledger: &Ledger, grant: &SessionGrant, result: &str) -> Result<Decision<()>, Failure> {
    let decision = ledger.call().session_finish(grant, result.as_bytes())?;
    Ok(decision.map(|_| ()))
}

const fn verdict<T>(decision: &Decision<T>) -> &'static str {
    match decision {
        Ok(_) => "COMMITTED",
        Err(_) => "REFUSED",
    }
}

/// What the ledger says of a finished session.
fn committed(view: Option<SessionView>) -> Value {
    match view {
        Some(SessionView { row, result, number: _ }) => match row.state {
            SessionState::Finished(generation, _) => json!({
                "host": generation.host.as_str(),
                "incarnation": generation.incarnation.get(),
                "result": result.map(|result| String::from_utf8_lossy(&result).into_owned()),
            }),
            SessionState::Claimed(_) | SessionState::Free { .. } | SessionState::Pruned => Value::Null,
        },
        None => Value::Null,
    }
}

fn key(grant: &SessionGrant) -> String {
    format!("incarnation {}, key {}", grant.incarnation(), grant.token())
}

/// What the takeover showed.
struct Takeover {
    incarnations: Vec<u64>,
    stale: &'static str,
    current: &'static str,
    committed: Value,
    refusal: String,
}

/// A(1), then B(2): only B's result is committed.
fn takeover(stage: &Stage, story: &mut Story, ledger: &Ledger, a: &Name, b: &Name) -> Result<Takeover, Failure> {
    let session = name("supplier-chat")?;
    let first = claim(ledger, &session, &register(ledger, a)?)?;
    stage.minute(2);
    let second = claim(ledger, &session, &register(ledger, b)?)?;
    let stale = finish(ledger, &first, "40 tubs")?;
    let current = finish(ledger, &second, "60 tubs")?;
    let committed = committed(ledger.session(&session)?);

    story.act("2. The right way: number the run, not the kiosk");
    story.line("kiosk-a claims the chat for a minute", &key(&first));
    story.line("minute 2: kiosk-b takes it over", &key(&second));
    story.line("kiosk-a's answer arrives: 40 tubs", &told(&stale, "committed"));
    story.line("kiosk-b finishes: 60 tubs", &told(&current, "committed"));
    Ok(Takeover {
        incarnations: [&first, &second].map(|grant| grant.incarnation().get()).to_vec(),
        stale: verdict(&stale),
        current: verdict(&current),
        committed,
        refusal: told(&stale, "none"),
    })
}

/// A(1), B(2), A(3): host and session of the first answer match, and it is refused all the same.
fn third_act(stage: &Stage, story: &mut Story, ledger: &Ledger, a: &Name, b: &Name) -> Observed {
    let session = name("cone-order-chat")?;
    story.act("3. Third act, another chat: A, B, and A again");
    let mut grants: Vec<SessionGrant> = Vec::new();
    for (minute, host) in [(10, a), (12, b), (14, a)] {
        stage.minute(minute);
        let grant = claim(ledger, &session, &register(ledger, host)?)?;
        story.line(&format!("minute {minute}  {host} claims the chat"), &key(&grant));
        grants.push(grant);
    }
    let [first, .., last] = grants.as_slice() else {
        return Err(Failure::System(anyhow::anyhow!("nothing was granted")));
    };
    let stale = finish(ledger, first, "100 cones")?;
    let current = finish(ledger, last, "300 cones")?;
    story.line("kiosk-a's answer of run 1: 100 cones", &told(&stale, "committed"));
    story.line("kiosk-a's answer of run 3: 300 cones", &told(&current, "committed"));
    story.moral("Same chat, same kiosk. Only the incarnation tells the two runs apart.");
    let incarnations = grants.iter().map(SessionGrant::incarnation).map(Incarnation::get);
    Ok(json!({
        "hosts": grants.iter().map(|grant| grant.generation().host.as_str()).collect::<Vec<_>>(),
        "incarnations": incarnations.collect::<Vec<_>>(),
        "stale_finish": verdict(&stale),
        "current_finish": verdict(&current),
        "committed": committed(ledger.session(&session)?),
    }))
}
