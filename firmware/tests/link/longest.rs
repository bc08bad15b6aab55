//! Every message as long as it can be.

use keyfence_core::actor::{Acquire, ActorGrant};
use keyfence_core::attempt::{
    self, Assignment, AssignmentState, Attempt, AttemptGrant, CloseLost, Done, Finished, FinishedBy, Outcome,
};
use keyfence_core::gate::{Admit, Admitted, Binding, ClaimKind, Gate, LedgerCounter};
use keyfence_core::host::{HostGrant, Proof, Register};
use keyfence_core::lease::{Held, Lease, LeaseState, Released, Revoked};
use keyfence_core::mailbox::{
    Act, Cause, Claim, ClaimNext, Claimed, Dead, Last, Message, MessageGrant, MessageState, Open, Priority, Redrive,
    Settled,
};
use keyfence_core::refusal::Holder;
use keyfence_core::session::{self, ClaimSession, Generation, Session, SessionGrant, SessionState};
use keyfence_core::store::Place;
use keyfence_core::token::MAX_NUMBER;
use keyfence_core::{
    AttemptId, Digest, Expiry, Incarnation, LedgerId, Name, ProcessId, Reason, Refusal, TimeMs, Token, Ttl,
};
use keyfence_firmware::link::{
    Answer, BODY_BYTES_MAX, Bytes, Checkpoint, ContentKind, DUMP_BYTES_MAX, Dump, Fault, Grant, Info, Letter,
    OUTPUTS_MAX, Output, Request, Row, SUBJECT_BYTES_MAX, State, Wear, Why,
};

/// Everything as long as it can be, with names of this many bytes.
pub(crate) struct Longest(pub(crate) usize);

impl Longest {
    fn name(&self) -> Name {
        Name::new(&"n".repeat(self.0)).expect("a name")
    }
    fn process(&self) -> ProcessId {
        ProcessId::from_bytes([0xa5; 16])
    }
    fn token(&self) -> Token {
        Token::presented(MAX_NUMBER).expect("the last one")
    }
    fn incarnation(&self) -> Incarnation {
        Incarnation::presented(MAX_NUMBER).expect("the last one")
    }
    fn ttl(&self) -> Ttl {
        Ttl::from_ms(Ttl::MAX_MS).expect("the longest")
    }
    fn bytes(&self) -> Bytes {
        Bytes::from_slice(&[0xff; BODY_BYTES_MAX]).expect("it fits")
    }
    fn digest(&self) -> Digest {
        Digest::from_bytes([0x5a; 16])
    }
    fn ledger(&self) -> LedgerId {
        LedgerId::from_bytes([0x33; 16])
    }
    fn attempt(&self) -> AttemptId {
        AttemptId::from_bytes([0x77; 16])
    }
    fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            number: u64::MAX,
            nonce: [0xff; 16],
        }
    }
    fn generation(&self) -> Generation {
        Generation {
            host: self.name(),
            incarnation: self.incarnation(),
            token: self.token(),
            host_token: self.token(),
        }
    }
    fn binding(&self) -> Binding {
        Binding {
            ledger: self.ledger(),
            kind: ClaimKind::Session,
            name: self.name(),
        }
    }
    fn actor_grant(&self) -> ActorGrant {
        ActorGrant::presented(self.name(), self.process(), self.token())
    }
    fn host_grant(&self) -> HostGrant {
        HostGrant::presented(self.name(), self.process(), self.token())
    }
    fn attempt_grant(&self) -> AttemptGrant {
        AttemptGrant::presented(self.name(), self.attempt(), self.token())
    }
    fn message_grant(&self) -> MessageGrant {
        MessageGrant::presented(self.name(), self.name(), Some(self.process()), self.token())
    }
    fn session_grant(&self) -> SessionGrant {
        SessionGrant::presented(self.name(), self.generation())
    }
    fn acquire(&self) -> Acquire {
        Acquire {
            actor: self.name(),
            process: self.process(),
            ttl: self.ttl(),
        }
    }
    fn holder(&self) -> Holder {
        Holder {
            name: self.name(),
            process: Some(self.process()),
        }
    }
    fn last(&self) -> Last {
        Last {
            process: Some(self.process()),
            token: self.token(),
            act: Act::DeadLettered,
            digest: self.digest(),
        }
    }

    /// Each request, some in more than one form.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let register = |proof| {
            Request::HostRegister(Register {
                host: self.name(),
                process: self.process(),
                proof,
                ttl: self.ttl(),
            })
        };
        let admit = |counter| {
            Request::GateAdmit(Admit {
                gate: self.name(),
                binding: self.binding(),
                token: self.token(),
                counter,
            })
        };
        let claim_session = ClaimSession {
            session: self.name(),
            host: self.host_grant(),
            ttl: self.ttl(),
        };
        let mut requests = vec![
            Request::Info,
            Request::LastNumber(7),
            Request::Checkpoint,
            Request::Dump(u32::MAX),
            Request::StoreCheckpoint(self.checkpoint()),
            Request::Mint(self.name()),
            Request::ActorAcquire(self.acquire()),
            Request::ActorAcquireOrRenew(self.acquire()),
            Request::ActorRenew(self.actor_grant(), self.ttl()),
            Request::ActorRelease(self.actor_grant()),
            Request::AssignmentCreate(attempt::Create {
                id: self.name(),
                actor: self.name(),
                retry_of: Some(self.name()),
            }),
            Request::AttemptAcquire(attempt::Acquire {
                assignment: self.name(),
                actor: self.name(),
                process: self.process(),
                lease_token: self.token(),
                attempt: self.attempt(),
                ttl: self.ttl(),
            }),
            Request::AttemptRenew(self.attempt_grant(), self.ttl()),
            Request::AttemptRelease(self.attempt_grant()),
            Request::AttemptCloseLost(self.name()),
            Request::AttemptCloseNextLost,
            Request::MessageSend(self.letter()),
            Request::MessageClaim(Claim {
                message: self.name(),
                owner: self.name(),
                process: Some(self.process()),
                lease_token: Some(self.token()),
                ttl: self.ttl(),
            }),
            Request::MessageClaimNext(ClaimNext {
                owner: self.name(),
                process: None,
                lease_token: None,
                ttl: self.ttl(),
            }),
            Request::MessageSweep(Some(self.name()), u16::MAX),
            Request::MessageSweep(None, 0),
            Request::MessageExtend(self.message_grant(), self.ttl()),
            Request::MessageGiveBack(self.message_grant()),
            Request::MessageRetry(self.message_grant(), Some(TimeMs::MAX), self.bytes()),
            Request::MessageRetry(self.message_grant(), None, Bytes::new()),
            Request::MessageComplete(self.message_grant(), self.bytes()),
            Request::MessageDeadLetter(self.message_grant(), self.bytes()),
            Request::MessageDeadLetterNew(self.name()),
            Request::MessageRedrive(Redrive {
                dead: self.name(),
                id: self.name(),
            }),
            register(Proof::Process),
            register(Proof::Bridge(None)),
            register(Proof::Bridge(Some(self.token()))),
            Request::HostRenew(self.host_grant(), self.ttl()),
            Request::HostRelease(self.host_grant()),
            Request::SessionClaim(claim_session),
            Request::SessionRelease(self.session_grant()),
            Request::SessionFinish(self.session_grant(), self.bytes()),
            admit(LedgerCounter::Unreadable),
            admit(LedgerCounter::Read(None)),
            admit(LedgerCounter::Read(Some(self.token()))),
            Request::GateRebind(self.name(), self.binding()),
            Request::Prune,
            Request::Lift(Some(self.token()), Some(self.incarnation())),
            Request::Lift(None, None),
        ];
        for outcome in [Outcome::Completed, Outcome::Blocked, Outcome::Failed] {
            requests.push(Request::AttemptFinish(self.attempt_grant(), outcome, self.bytes()));
        }
        for kind in ClaimKind::ALL {
            requests.push(Request::Revoke(kind, self.name()));
        }
        for place in PLACES {
            requests.push(Request::Row(place, self.name()));
            requests.push(Request::Content(place, self.name(), ContentKind::Letter));
            requests.push(Request::Content(place, self.name(), ContentKind::Result));
        }
        requests
    }

    pub(crate) fn letter(&self) -> Letter {
        Letter {
            id: self.name(),
            sender: Some(self.name()),
            recipient: self.name(),
            subject: "s".repeat(SUBJECT_BYTES_MAX).as_str().try_into().expect("it fits"),
            body: self.bytes(),
            priority: Priority::new(-100).expect("the least urgent"),
            not_before: Some(TimeMs::MAX),
            retries_max: u16::MAX,
        }
    }

    /// Each answer that is kept for a request id.
    pub(crate) fn kept_answers(&self) -> Vec<Answer> {
        let grant = Grant {
            token: self.token(),
            incarnation: None,
            message: None,
            expires_at: TimeMs::MAX,
            lasts_ms: u64::MAX,
            renewed: false,
        };
        let settled = |dead| {
            Answer::Settled(Settled {
                done: Done::Already,
                dead,
            })
        };
        vec![
            Answer::Granted(grant.clone()),
            Answer::Granted(Grant {
                incarnation: Some(self.incarnation()),
                ..grant.clone()
            }),
            Answer::Granted(Grant {
                message: Some(self.name()),
                ..grant
            }),
            Answer::Nothing,
            Answer::Minted(self.token()),
            Answer::Done(Done::Now),
            Answer::Done(Done::Already),
            settled(true),
            settled(false),
            Answer::Released(Released::Now),
            Answer::Released(Released::Already),
            Answer::Released(Released::NotHeld),
            Answer::Revoked(Revoked::Nothing),
            Answer::Revoked(Revoked::Claim(self.holder(), self.token())),
            Answer::Closed(CloseLost::Closed),
            Answer::Closed(CloseLost::Live),
            Answer::Closed(CloseLost::NotRunning),
            Answer::ClosedNext(self.name()),
            Answer::Admitted(Admitted::AtMark),
            Answer::Admitted(Admitted::Raised),
            Answer::Count(u32::MAX),
            Answer::Redriven(self.name(), Done::Now),
            Answer::Written,
        ]
    }

    pub(crate) fn other_answers(&self) -> Vec<Answer> {
        let mut answers = vec![
            Answer::Info(self.info()),
            Answer::LastNumber(None),
            Answer::LastNumber(Some(u32::MAX)),
            Answer::Row(None),
            Answer::Content(None),
            Answer::Content(heapless::Vec::from_slice(&[0xff; 1 + SUBJECT_BYTES_MAX + BODY_BYTES_MAX]).ok()),
            Answer::Checkpoint(None),
            Answer::Checkpoint(Some(self.checkpoint())),
            Answer::Dump(Dump {
                total: u32::MAX,
                bytes: heapless::Vec::from_slice(&[0xff; DUMP_BYTES_MAX]).expect("it fits"),
            }),
        ];
        let refusal = |reason| Refusal {
            held_token: Some(self.token()),
            expires_at: Some(TimeMs::MAX),
            due_at: Some(TimeMs::MAX),
            high_water: Some(self.token()),
            never_issued: true,
            ..Refusal::new(reason).held_by(&self.name(), Some(self.process()), TimeMs::MAX, Expiry::At(TimeMs::MAX))
        };
        answers.extend(Reason::ALL.iter().map(|reason| Answer::Refused(refusal(*reason))));
        answers.push(Answer::Refused(Refusal::new(Reason::Full)));
        answers.extend(faults().into_iter().map(Answer::Failed));
        answers.extend(self.rows().into_iter().map(|row| Answer::Row(Some(row))));
        answers
    }

    fn info(&self) -> Info {
        let output = Output {
            name: "o".repeat(16).as_str().try_into().expect("it fits"),
            is_on: true,
            until: Some(TimeMs::MAX),
        };
        Info {
            state: State::Closed(Why::Flash),
            ledger: Some(self.ledger()),
            boot: u32::MAX,
            boot_id: self.process(),
            now: TimeMs::MAX,
            last_token: Some(self.token()),
            limit: u64::MAX,
            sequence: u64::MAX,
            chain: u32::MAX,
            instance: u32::MAX,
            repaired: u16::MAX,
            room_used: u32::MAX,
            room_total: u32::MAX,
            wear: Wear {
                pages: u8::MAX,
                retired: u8::MAX,
                erases_max: u32::MAX,
                erases_rated: u32::MAX,
            },
            rejected: u32::MAX,
            outputs: (0..OUTPUTS_MAX).map(|_| output.clone()).collect(),
        }
    }

    fn rows(&self) -> Vec<Row> {
        let held = Held {
            process: self.process(),
            token: self.token(),
            since: TimeMs::MAX,
            expiry: Expiry::At(TimeMs::MAX),
        };
        let mut rows = Vec::new();
        for state in [
            LeaseState::Held(held),
            LeaseState::Held(Held {
                expiry: Expiry::EarlierBoot,
                ..held
            }),
            LeaseState::Free { released: None },
            LeaseState::Free {
                released: Some((self.process(), self.token())),
            },
        ] {
            rows.push(Row::Actor(Lease {
                name: self.name(),
                state: state.clone(),
                kind: core::marker::PhantomData,
            }));
            rows.push(Row::Host(Lease {
                name: self.name(),
                state,
                kind: core::marker::PhantomData,
            }));
        }
        rows.extend(self.assignments().map(|state| {
            Row::Assignment(Assignment {
                id: self.name(),
                actor: self.name(),
                retry_of: Some(self.name()),
                state,
            })
        }));
        rows.extend(self.messages().into_iter().map(|state| {
            Row::Message(Message {
                id: self.name(),
                recipient: self.name(),
                content: self.digest(),
                priority: Priority::new(100).expect("the most urgent"),
                not_before: Some(TimeMs::MAX),
                retries: u16::MAX,
                retries_max: u16::MAX,
                deliveries: u32::MAX,
                redrive_of: Some(self.name()),
                state,
            })
        }));
        rows.extend(self.sessions().map(|state| {
            Row::Session(Session {
                name: self.name(),
                state,
            })
        }));
        rows.push(Row::Gate(Gate {
            name: self.name(),
            binding: self.binding(),
            high_water: Some(self.token()),
        }));
        rows
    }

    fn assignments(&self) -> [AssignmentState; 6] {
        let finished = |by| {
            AssignmentState::Finished(Finished {
                outcome: Outcome::Blocked,
                attempt: self.attempt(),
                token: self.token(),
                by,
            })
        };
        [
            AssignmentState::Created { released: None },
            AssignmentState::Created {
                released: Some((self.attempt(), self.token())),
            },
            AssignmentState::Running(Attempt {
                id: self.attempt(),
                token: self.token(),
                process: self.process(),
                lease_token: self.token(),
                since: TimeMs::MAX,
                expiry: Expiry::At(TimeMs::MAX),
            }),
            finished(FinishedBy::Attempt(self.digest())),
            finished(FinishedBy::WorkerLost),
            AssignmentState::Pruned,
        ]
    }

    fn messages(&self) -> Vec<MessageState> {
        let dead = |cause| {
            MessageState::Dead(Dead {
                cause,
                last: Some(self.last()),
                redriven_as: Some(self.name()),
            })
        };
        let done = |act| MessageState::Done(Last { act, ..self.last() });
        vec![
            MessageState::New(Open { last: None }),
            MessageState::New(Open {
                last: Some(self.last()),
            }),
            MessageState::Claimed(Claimed {
                process: Some(self.process()),
                token: self.token(),
                lease_token: Some(self.token()),
                since: TimeMs::MAX,
                expiry: Expiry::At(TimeMs::MAX),
            }),
            done(Act::GivenBack),
            done(Act::Retried),
            done(Act::Completed),
            done(Act::DeadLettered),
            dead(Cause::RetriesExhausted),
            dead(Cause::WorkerLost),
            dead(Cause::Holder),
            dead(Cause::Operator),
            MessageState::Pruned,
        ]
    }

    fn sessions(&self) -> [SessionState; 5] {
        [
            SessionState::Free {
                incarnation: self.incarnation(),
                released: None,
            },
            SessionState::Free {
                incarnation: self.incarnation(),
                released: Some(self.generation()),
            },
            SessionState::Claimed(session::Claim {
                generation: self.generation(),
                process: self.process(),
                since: TimeMs::MAX,
                expiry: Expiry::At(TimeMs::MAX),
            }),
            SessionState::Finished(self.generation(), self.digest()),
            SessionState::Pruned,
        ]
    }
}

pub(crate) const PLACES: [Place; 8] = [
    Place::Counter,
    Place::Actor,
    Place::Assignment,
    Place::Message,
    Place::Host,
    Place::Session,
    Place::Gate,
    Place::History,
];
pub(crate) const WHYS: [Why; 4] = [Why::Damaged, Why::NewerFormat, Why::Flash, Why::Geometry];

pub(crate) fn faults() -> Vec<Fault> {
    let mut faults = vec![
        Fault::Malformed,
        Fault::Unprovisioned,
        Fault::TooLong,
        Fault::RequestTooOld { last: u32::MAX },
        Fault::RequestMisused,
        Fault::Unknown,
        Fault::Worn,
        Fault::Unsupported,
    ];
    faults.extend(WHYS.map(Fault::Closed));
    faults.extend(PLACES.map(Fault::Damaged));
    faults
}
