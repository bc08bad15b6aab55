//! A scripted life of a ledger: one of everything, and the account of what its caller was told.
//!
//! Each act is asked once, under a request id of its own. Its answer sorts it into one of three kinds, which is all that a
//! caller can rely on:
//!
//! * **L1. Committed.** It is in the history, under the tokens that were told, and so is every committed act before it.
//! * **L2. Not done**: refused, or the store failed. Nothing of it is in the history.
//! * **L3. Unknown.** All of it is in the history, or nothing. Asked again under its request id, it is committed, once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyfence::{Delivery, Error, FixedClock, Ledger, NewMessage, Options, Outcome, RequestId};
use keyfence_core::actor::{self, ActorGrant};
use keyfence_core::attempt::{self, AttemptGrant};
use keyfence_core::event::EventKind;
use keyfence_core::gate::ClaimKind;
use keyfence_core::host::{self, HostGrant};
use keyfence_core::mailbox::{ClaimNext, MessageGrant, Priority};
use keyfence_core::session::{self, SessionGrant};
use keyfence_core::{AttemptId, Name, ProcessId, TimeMs, Token, Ttl};

/// One act of a life. The numbers are those of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Sends a message.
    Send(usize),
    /// Claims the next message.
    Claim(usize),
    /// Completes it.
    Complete(usize),
    /// Completes it and claims the next one in the same transaction.
    CompleteAndNext(usize, usize),
    /// Asks for another try.
    Retry(usize),
    /// Gives it back.
    GiveBack(usize),
    /// Dead-letters it.
    DeadLetter(usize),
    /// Acquires the actor's lease.
    Acquire,
    /// Releases it.
    Release,
    /// Creates the assignment.
    Create,
    /// Acquires an attempt on it.
    Attempt,
    /// Finishes it.
    Finish,
    /// Registers the host.
    Register,
    /// Claims the session.
    Session,
    /// Finishes it.
    FinishSession,
    /// Mints a token.
    Mint,
    /// Revokes the claim on a message.
    Revoke(usize),
    /// Lets every lease lapse.
    Lapse,
    /// Moves the write-ahead log into the database file.
    Checkpoint,
    /// Closes the ledger and opens it again.
    Reopen,
}

/// The life: each kind of claim, terminal write and give-back; takeovers of lapsed claims; checkpoints and reopenings in
/// between and while claims are open.
pub const LIFE: &[Verb] = &[
    Verb::Send(0),
    Verb::Send(1),
    Verb::Claim(0),
    Verb::Complete(0),
    Verb::Send(2),
    Verb::Claim(1),
    Verb::CompleteAndNext(1, 2),
    Verb::Checkpoint,
    Verb::Retry(2),
    Verb::Claim(2),
    Verb::GiveBack(2),
    Verb::Acquire,
    Verb::Create,
    Verb::Attempt,
    Verb::Claim(2),
    Verb::Reopen,
    Verb::DeadLetter(2),
    Verb::Finish,
    Verb::Release,
    Verb::Send(3),
    Verb::Claim(3),
    Verb::Register,
    Verb::Session,
    Verb::Lapse,
    Verb::Claim(3),
    Verb::Register,
    Verb::Checkpoint,
    Verb::Session,
    Verb::FinishSession,
    Verb::Revoke(3),
    Verb::Claim(3),
    Verb::Mint,
    Verb::Complete(3),
    Verb::Reopen,
    Verb::Mint,
];

/// The budget of every message.
pub const RETRIES_MAX: u16 = 9;

/// Something that an act leaves in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// What.
    pub kind: EventKind,
    /// On what.
    pub subject: Name,
    /// Under which token, where the caller was told.
    pub token: Option<Token>,
}

/// What the caller of one act knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It happened (L1).
    Committed(Vec<Effect>),
    /// It did not (L2), and why.
    NotDone(String),
    /// One or the other (L3); what it would have left, and why it is not known.
    Unknown(Vec<Effect>, String),
}

/// A life that was led, or as much of it as the disk allowed.
pub struct Life {
    path: PathBuf,
    clock: Arc<FixedClock>,
    ledger: Option<Ledger>,
    messages: [Option<MessageGrant>; 4],
    actor: Option<ActorGrant>,
    attempt: Option<AttemptGrant>,
    host: Option<HostGrant>,
    session: Option<SessionGrant>,
    /// What SQLite says of the file's journal once the ledger was first opened; `None` when it did not get to say.
    pub journal_mode: Option<String>,
    /// What was told of each act, in order.
    pub told: Vec<(Verb, Told)>,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("the script's own names are short and plain")
}

fn ttl() -> Ttl {
    Ttl::from_ms(60_000).expect("a minute is a lease")
}

const PROCESS: ProcessId = ProcessId::from_bytes([7; 16]);

fn message(number: usize) -> Name {
    name(&format!("message-{number}"))
}

fn effect(kind: EventKind, subject: Name) -> Effect {
    Effect {
        kind,
        subject,
        token: None,
    }
}

fn under(kind: EventKind, subject: &Name, token: Token) -> Effect {
    Effect {
        kind,
        subject: subject.clone(),
        token: Some(token),
    }
}

impl Life {
    /// Begins a life on a ledger that may not be there yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let begin = TimeMs::new(1_000_000).unwrap_or(TimeMs::ZERO);
        Self {
            path: path.to_owned(),
            clock: Arc::new(FixedClock::new(begin)),
            ledger: None,
            messages: [const { None }; 4],
            actor: None,
            attempt: None,
            host: None,
            session: None,
            journal_mode: None,
            told: Vec::new(),
        }
    }

    /// Opens the ledger, creating it if need be.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn open(&mut self) -> Result<(), Error> {
        self.ledger = None;
        let options = Options {
            clock: Arc::clone(&self.clock) as _,
            timeout: Duration::from_millis(200),
            ..Options::default()
        };
        self.ledger = Some(Ledger::open(&self.path, options)?);
        Ok(())
    }

    /// The ledger, where it could be opened.
    #[must_use]
    pub const fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// Closes the ledger.
    pub fn close(&mut self) {
        self.ledger = None;
    }

    /// Leads the whole life; `after` hears how many acts were told, after each. A ledger that does not open ends it.
    pub fn lead(&mut self, mut after: impl FnMut(usize)) {
        if self.open().is_err() {
            return;
        }
        self.journal_mode = journal_mode(&self.path).ok();
        after(0);
        for verb in LIFE {
            match verb {
                Verb::Lapse => self.clock.advance_ms(ttl().as_ms()),
                Verb::Checkpoint => checkpoint(&self.path),
                Verb::Reopen => {
                    // A fault that happens once is over at the second try.
                    if self.open().is_err() && self.open().is_err() {
                        return;
                    }
                }
                Verb::Send(_)
                | Verb::Claim(_)
                | Verb::Complete(_)
                | Verb::CompleteAndNext(..)
                | Verb::Retry(_)
                | Verb::GiveBack(_)
                | Verb::DeadLetter(_)
                | Verb::Acquire
                | Verb::Release
                | Verb::Create
                | Verb::Attempt
                | Verb::Finish
                | Verb::Register
                | Verb::Session
                | Verb::FinishSession
                | Verb::Mint
                | Verb::Revoke(_) => {
                    let number = self.told.len();
                    let told = self.ask(*verb, number);
                    self.told.push((*verb, told));
                    after(self.told.len());
                }
            }
        }
    }

    /// Asks for one act under the request id of its number. Asked again, it is the same call.
    pub fn ask(&mut self, verb: Verb, number: usize) -> Told {
        let Some(ledger) = self.ledger.take() else {
            return Told::NotDone("the ledger is closed".into());
        };
        let told = self.ask_on(&ledger, verb, number);
        self.ledger = Some(ledger);
        told.unwrap_or_else(|| Told::NotDone("what it needs was never granted".into()))
    }

    /// `None` when the act needs a grant that was never told.
    fn ask_on(&mut self, ledger: &Ledger, verb: Verb, number: usize) -> Option<Told> {
        let request = RequestId::new(&format!("request-{number}")).ok()?;
        let mut call = ledger.call().request(request, name("life"));
        let next = ClaimNext {
            owner: name("lucy"),
            process: Some(PROCESS),
            lease_token: None,
            ttl: ttl(),
        };
        let told = match verb {
            Verb::Send(n) => {
                let sent = effect(EventKind::MessageSent, message(n));
                let ask = NewMessage {
                    id: message(n),
                    sender: None,
                    recipient: name("lucy"),
                    subject: "work".into(),
                    // Longer than a page, so that a message takes several writes.
                    body: vec![b'x'; 5_000],
                    priority: Priority::default(),
                    not_before: None,
                    retries_max: RETRIES_MAX,
                };
                told(call.mailbox_send(&ask), vec![sent.clone()], |_| vec![sent])
            }
            Verb::Claim(n) => {
                let claimed = call.mailbox_claim_next(&next, 1);
                let keep = |deliveries: Vec<Delivery>| self.keep(n, &deliveries);
                told(claimed, vec![effect(EventKind::MessageClaimed, message(n))], keep)
            }
            Verb::Complete(n) => {
                let grant = self.messages[n].clone()?;
                let done = under(EventKind::MessageCompleted, &message(n), grant.token());
                told(call.mailbox_complete(&grant, b"result"), vec![done.clone()], |_| {
                    vec![done]
                })
            }
            Verb::CompleteAndNext(n, then) => {
                let grant = self.messages[n].clone()?;
                let done = under(EventKind::MessageCompleted, &message(n), grant.token());
                let both = vec![done.clone(), effect(EventKind::MessageClaimed, message(then))];
                told(
                    call.mailbox_complete_and_next(&grant, b"result", &next, 1),
                    both,
                    |answer| {
                        let claimed = answer.next.map(|next| self.keep(then, &next)).unwrap_or_default();
                        [vec![done], claimed].concat()
                    },
                )
            }
            Verb::Retry(n) => {
                let grant = self.messages[n].clone()?;
                let retried = under(EventKind::MessageRetried, &message(n), grant.token());
                told(call.mailbox_retry(&grant, None, "again"), vec![retried.clone()], |_| {
                    vec![retried]
                })
            }
            Verb::GiveBack(n) => {
                let grant = self.messages[n].clone()?;
                let given = under(EventKind::MessageGivenBack, &message(n), grant.token());
                told(call.mailbox_give_back(&grant), vec![given.clone()], |_| vec![given])
            }
            Verb::DeadLetter(n) => {
                let grant = self.messages[n].clone()?;
                let dead = under(EventKind::MessageDead, &message(n), grant.token());
                told(call.mailbox_dead_letter(&grant, "no use"), vec![dead.clone()], |_| {
                    vec![dead]
                })
            }
            Verb::Revoke(n) => {
                let revoked = effect(EventKind::MessageRevoked, message(n));
                let answer = call.revoke(ClaimKind::Message, &message(n), "for the test");
                told(answer, vec![revoked.clone()], |answer| match answer {
                    actor::Revoked::Claim(..) => vec![revoked],
                    actor::Revoked::Nothing => Vec::new(),
                })
            }
            Verb::Acquire => {
                let ask = actor::Acquire {
                    actor: name("lucy"),
                    process: PROCESS,
                    ttl: ttl(),
                };
                told(
                    call.actor_acquire(&ask),
                    vec![effect(EventKind::ActorAcquired, name("lucy"))],
                    |granted| {
                        let effect = under(EventKind::ActorAcquired, granted.grant.name(), granted.grant.token());
                        self.actor = Some(granted.grant);
                        vec![effect]
                    },
                )
            }
            Verb::Release => {
                let grant = self.actor.clone()?;
                let released = under(EventKind::ActorReleased, grant.name(), grant.token());
                told(call.actor_release(&grant), vec![released.clone()], |_| vec![released])
            }
            Verb::Create => {
                let created = effect(EventKind::AssignmentCreated, name("assignment"));
                let ask = attempt::Create {
                    id: name("assignment"),
                    actor: name("lucy"),
                    retry_of: None,
                };
                told(call.assignment_create(&ask), vec![created.clone()], |_| vec![created])
            }
            Verb::Attempt => {
                let lease = self.actor.clone()?;
                let ask = attempt::Acquire {
                    assignment: name("assignment"),
                    actor: name("lucy"),
                    process: PROCESS,
                    lease_token: lease.token(),
                    attempt: AttemptId::from_bytes([3; 16]),
                    ttl: ttl(),
                };
                let acquired = effect(EventKind::AttemptAcquired, name("assignment"));
                told(call.attempt_acquire(&ask), vec![acquired], |granted| {
                    let effect = under(
                        EventKind::AttemptAcquired,
                        granted.grant.assignment(),
                        granted.grant.token(),
                    );
                    self.attempt = Some(granted.grant);
                    vec![effect]
                })
            }
            Verb::Finish => {
                let grant = self.attempt.clone()?;
                let done = under(EventKind::AttemptCompleted, grant.assignment(), grant.token());
                let finished = call.attempt_finish(&grant, attempt::Outcome::Completed, b"result");
                told(finished, vec![done.clone()], |_| vec![done])
            }
            Verb::Register => {
                let ask = host::Register {
                    host: name("kiosk"),
                    process: PROCESS,
                    proof: host::Proof::Process,
                    ttl: ttl(),
                };
                told(
                    call.host_register(&ask),
                    vec![effect(EventKind::HostRegistered, name("kiosk"))],
                    |granted| {
                        let effect = under(EventKind::HostRegistered, granted.grant.name(), granted.grant.token());
                        self.host = Some(granted.grant);
                        if granted.renewed { Vec::new() } else { vec![effect] }
                    },
                )
            }
            Verb::Session => {
                let ask = session::ClaimSession {
                    session: name("session"),
                    host: self.host.clone()?,
                    ttl: ttl(),
                };
                told(
                    call.session_claim(&ask),
                    vec![effect(EventKind::SessionClaimed, name("session"))],
                    |granted| {
                        let effect = under(
                            EventKind::SessionClaimed,
                            granted.grant.session(),
                            granted.grant.token(),
                        );
                        self.session = Some(granted.grant);
                        if granted.renewed { Vec::new() } else { vec![effect] }
                    },
                )
            }
            Verb::FinishSession => {
                let grant = self.session.clone()?;
                let done = under(EventKind::SessionFinished, grant.session(), grant.token());
                told(call.session_finish(&grant, b"result"), vec![done.clone()], |_| {
                    vec![done]
                })
            }
            Verb::Mint => {
                let purpose = name("purpose");
                told(
                    call.mint(&purpose),
                    vec![effect(EventKind::TokenMinted, purpose.clone())],
                    |token| vec![under(EventKind::TokenMinted, &purpose, token)],
                )
            }
            Verb::Lapse | Verb::Checkpoint | Verb::Reopen => return None,
        };
        Some(told)
    }

    /// Keeps the grants of what was claimed. Where an earlier act failed, another message than the script's comes first.
    fn keep(&mut self, expected: usize, deliveries: &[Delivery]) -> Vec<Effect> {
        let mut effects = Vec::new();
        for delivery in deliveries {
            let grant = &delivery.granted.grant;
            effects.push(under(EventKind::MessageClaimed, grant.message(), grant.token()));
            if *grant.message() == message(expected) {
                self.messages[expected] = Some(grant.clone());
            }
        }
        effects
    }
}

fn told<T>(outcome: Outcome<T>, possible: Vec<Effect>, committed: impl FnOnce(T) -> Vec<Effect>) -> Told {
    match outcome {
        Ok(Ok(value)) => Told::Committed(committed(value)),
        Ok(Err(refusal)) => Told::NotDone(format!("refused: {refusal}")),
        Err(Error::Unknown(error)) => Told::Unknown(possible, error.to_string()),
        Err(error) => Told::NotDone(format!("{}: {error}", error.name())),
    }
}

/// A fresh connection reads it from the file.
fn journal_mode(path: &Path) -> rusqlite::Result<String> {
    let connection = rusqlite::Connection::open(path)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))
}

/// Asks SQLite for a checkpoint; one that fails is done later.
fn checkpoint(path: &Path) {
    if let Ok(connection) = rusqlite::Connection::open(path) {
        // The pragma answers with a row, or fails: either is fine.
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
}
