//! keyfence's flash store: the machines of the contract over the journal, as a kiosk runs them.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::rc::Rc;

use keyfence_core::host::{self, HostGrant};
use keyfence_core::mailbox::{self, Message, MessageGrant, MessageState, Priority, RETRIES_MAX_DEFAULT};
use keyfence_core::session::{self, ClaimSession, Generation, Session, SessionGrant, SessionState};
use keyfence_core::store::{Failure as Trouble, Place, Store as _, Table};
use keyfence_core::{Decision, Digest, LedgerId, Name, ProcessId, TimeMs, Token, Ttl, counter};
use keyfence_firmware::journal::{Existing, Law, MountError, Policy, Refused};
use keyfence_firmware::store::{Clock, Error, Ledger};

use super::on_chip;
use crate::flash::{Chip, Geometry, SharedChip, SimFlash};
use crate::powercut::life::{Bounds, Change, Key, Model, Row, RowState, Rows, Verb};
use crate::powercut::{Failure, Mounted, Store, Subject};

pub(super) const STORE: Store = Store {
    name: "keyfence",
    about: "keyfence's flash store: hosts, sessions and messages by their machines, tokens in blocks of 64",
    renews_in_ram: true,
    pages,
    build: build::<Law>,
};

/// The smallest region of at least four pages on which all rows of the life find room.
fn pages(geometry: &Geometry) -> Option<usize> {
    let geometry = Geometry::named(geometry.name)?;
    (4..=PAGES_MAX).find(|pages| all_rows_fit(geometry, *pages).is_ok())
}

fn all_rows_fit(geometry: &'static Geometry, pages: usize) -> Result<(), Failure> {
    let chip = Rc::new(RefCell::new(Chip::new(geometry, pages)));
    let mut subject = build::<Law>(&chip);
    subject.provision()?;
    subject.mount()?;
    while subject.prepare()?.is_some() {}
    let model = Model::default();
    for key in Bounds::for_page_size(geometry.erase_size_bytes).keys() {
        let verb = match key {
            Key::Session(session) => Verb::TakeOver { session, host: 0 },
            Key::Message(message) => Verb::Send { message },
        };
        subject.perform(verb, &model.change(verb))?;
    }
    Ok(())
}

/// No region of the bench has more pages.
const PAGES_MAX: usize = 40;
/// Tokens reserved at a time.
const BLOCK: u64 = 64;
/// Hosts that take sessions over from each other.
const HOSTS: usize = 2;
/// A takeover waits this long, so that the lease before it has lapsed.
const BETWEEN_TAKEOVERS_MS: u64 = 61_000;
/// Which ledger this is: any number.
const INSTANCE: u32 = 0x6b66;

type Of<const WRITE: usize, const ERASE: usize, P> =
    Ledger<SimFlash<WRITE, ERASE>, Time, 1, 1, 4, HOSTS, 8, 1, PAGES_MAX, 80, 416, P>;

/// Milliseconds since the power-up.
#[derive(Debug, Clone)]
struct Time(Rc<Cell<u64>>);

impl Clock for Time {
    fn now(&mut self) -> TimeMs {
        TimeMs::new(self.0.get()).expect("a life is short")
    }
}

struct OnLedger<const WRITE: usize, const ERASE: usize, P: Policy> {
    ledger: Box<Of<WRITE, ERASE, P>>,
    time: Time,
    boot: u32,
    hosts: Vec<HostGrant>,
}

/// Puts the store, with the safeguards of `P`, on a chip.
pub(crate) fn build<P: Policy + 'static>(chip: &SharedChip) -> Box<dyn Subject> {
    on_chip!(chip, boxed, P)
}

fn boxed<const WRITE: usize, const ERASE: usize, P: Policy + 'static>(chip: &SharedChip) -> Box<dyn Subject> {
    let size = chip.borrow().image().size_bytes() as u32;
    let time = Time(Rc::new(Cell::new(1)));
    let flash = SimFlash::<WRITE, ERASE>::on(chip.clone());
    Box::new(OnLedger::<WRITE, ERASE, P> {
        ledger: Box::new(Ledger::new(flash, 0..size, time.clone())),
        time,
        boot: 0,
        hosts: Vec::new(),
    })
}

impl<const WRITE: usize, const ERASE: usize, P: Policy> OnLedger<WRITE, ERASE, P> {
    fn session_row(&mut self, name: &Name) -> Result<Option<Session>, Failure> {
        answered(self.ledger.step(|step, _| Ok(Ok(step.get(name)?))))
    }

    fn message_row(&mut self, name: &Name) -> Result<Option<Message>, Failure> {
        answered(self.ledger.step(|step, _| Ok(Ok(step.get(name)?))))
    }

    fn session(&mut self, number: u8) -> Result<Option<Row>, Failure> {
        let row = self.session_row(&session_name(number))?;
        let of = |state, generation: &Generation| Row {
            key: Key::Session(number),
            state,
            holder: host_number(&generation.host),
            incarnation: generation.incarnation.get() as u32,
            token: generation.token.get(),
        };
        Ok(match row.map(|row| row.state) {
            Some(SessionState::Claimed(claim)) => Some(of(RowState::Held, &claim.generation)),
            Some(SessionState::Free { released, .. }) => {
                let released = released.ok_or_else(|| Failure::Corrupt("nobody gave the session up".into()))?;
                Some(of(RowState::Free, &released))
            }
            Some(SessionState::Finished(generation, _)) => Some(of(RowState::Finished, &generation)),
            Some(SessionState::Pruned) | None => None,
        })
    }

    fn message(&mut self, number: u8, generation: u32) -> Result<Option<Row>, Failure> {
        let row = self.message_row(&message_name(number, generation))?;
        let Some(row) = row else {
            return Ok(None);
        };
        let (state, process, token) = match &row.state {
            MessageState::New(_) => (RowState::Free, None, None),
            MessageState::Claimed(claimed) => (RowState::Held, claimed.process, Some(claimed.token)),
            MessageState::Done(last) => (RowState::Finished, last.process, Some(last.token)),
            MessageState::Dead(_) => return Err(Failure::Corrupt("a message of the life is dead".into())),
            MessageState::Pruned => return Ok(None),
        };
        Ok(Some(Row {
            key: Key::Message(number),
            state,
            holder: process.map_or(0, |process| process.as_bytes()[0] - 1),
            incarnation: generation + row.deliveries,
            token: token.map_or(0, Token::get),
        }))
    }

    /// The grant of the session's claim, as its holder would show it.
    fn session_grant(&mut self, number: u8) -> Result<SessionGrant, Failure> {
        let row = self.session_row(&session_name(number))?;
        let claim = row.as_ref().and_then(Session::claim);
        let claim = claim.ok_or_else(|| Failure::Other("the session has no claim".into()))?;
        Ok(SessionGrant::presented(session_name(number), claim.generation.clone()))
    }

    /// The grant of the message's claim, as its claimant would show it.
    fn message_grant(&mut self, name: &Name) -> Result<MessageGrant, Failure> {
        let row = self.message_row(name)?;
        match row.map(|row| row.state) {
            Some(MessageState::Claimed(claimed)) => {
                let (process, token) = (claimed.process, claimed.token);
                Ok(MessageGrant::presented(name.clone(), recipient(), process, token))
            }
            other => Err(Failure::Other(format!("no claim on the message: {other:?}"))),
        }
    }
}

impl<const WRITE: usize, const ERASE: usize, P: Policy> Subject for OnLedger<WRITE, ERASE, P> {
    fn provision(&mut self) -> Result<(), Failure> {
        let id = LedgerId::from_bytes([INSTANCE as u8; 16]);
        let provisioned = self.ledger.provision(id, INSTANCE, 0, Existing::Refuse);
        provisioned.map(drop).map_err(undecided)
    }

    fn mount(&mut self) -> Result<Mounted, Failure> {
        let report = self.ledger.power_up(0).map_err(undecided)?;
        self.boot = report.boot;
        Ok(Mounted {
            counter: report.limit,
            reserved: report.limit,
        })
    }

    /// Registers the hosts: their leases have lapsed with the power.
    fn prepare(&mut self) -> Result<Option<u64>, Failure> {
        let number = self.hosts.len() as u8;
        if usize::from(number) == HOSTS {
            return Ok(None);
        }
        let mut process = [number; 16];
        process[..4].copy_from_slice(&self.boot.to_le_bytes());
        let ask = host::Register {
            host: host_name(number),
            process: ProcessId::from_bytes(process),
            proof: host::Proof::Process,
            ttl: Ttl::from_ms(Ttl::MAX_MS).expect("the longest"),
        };
        let granted = answered(self.ledger.step(|step, now| host::register(step, &ask, now)))?;
        let token = granted.grant.token().get();
        self.hosts.push(granted.grant);
        Ok(Some(token))
    }

    fn perform(&mut self, verb: Verb, change: &Change) -> Result<Option<u64>, Failure> {
        let after = change.after;
        match verb {
            Verb::TakeOver { session, host } => {
                self.time.0.set(self.time.0.get() + BETWEEN_TAKEOVERS_MS);
                let host = self.hosts.get(usize::from(host)).cloned();
                let ask = ClaimSession {
                    session: session_name(session),
                    host: host.ok_or_else(|| Failure::Other("the host is not registered".into()))?,
                    ttl: Ttl::SESSION_LEASE,
                };
                let granted = answered(self.ledger.step(|step, now| session::claim(step, &ask, now)))?;
                expect("a fresh claim", &granted.renewed, &false)?;
                Ok(Some(granted.grant.token().get()))
            }
            Verb::Release { session } => {
                let grant = self.session_grant(session)?;
                let released = answered(self.ledger.step(|step, now| session::release(step, &grant, now)))?;
                expect("a release", &released, &host::Released::Now)?;
                Ok(None)
            }
            Verb::Finish { session } => {
                let (grant, name) = (self.session_grant(session)?, session_name(session));
                let done = answered(self.ledger.step(|step, now| {
                    let done = session::finish(step, &grant, RESULT_DIGEST, now)?;
                    step.keep_result(Place::Session, &name, RESULT)?;
                    Ok(done)
                }))?;
                expect("a finish", &done, &session::Done::Now)?;
                Ok(None)
            }
            Verb::Send { message } => {
                let name = message_name(message, generation(after, 0));
                let ask = mailbox::Send {
                    id: name.clone(),
                    sender: None,
                    recipient: recipient(),
                    content: RESULT_DIGEST,
                    priority: Priority::default(),
                    not_before: None,
                    retries_max: RETRIES_MAX_DEFAULT,
                };
                let done = answered(self.ledger.step(|step, now| {
                    let done = mailbox::send(step, &ask, now)?;
                    step.keep_letter(&name, b"till", b"cone")?;
                    Ok(done)
                }))?;
                expect("a message", &done, &session::Done::Now)?;
                Ok(None)
            }
            Verb::Claim { message, process } => {
                let ask = mailbox::Claim {
                    message: message_name(message, generation(after, 1)),
                    owner: recipient(),
                    process: Some(ProcessId::from_bytes([process + 1; 16])),
                    lease_token: None,
                    ttl: Ttl::MAILBOX_CLAIM,
                };
                let granted = answered(self.ledger.step(|step, now| mailbox::claim(step, &ask, now)))?;
                Ok(Some(granted.grant.token().get()))
            }
            Verb::Complete { message } => {
                let name = message_name(message, generation(after, 1));
                let grant = self.message_grant(&name)?;
                let done = answered(self.ledger.step(|step, now| {
                    let done = mailbox::complete(step, &grant, RESULT_DIGEST, now)?;
                    step.keep_result(Place::Message, &name, RESULT)?;
                    Ok(done)
                }))?;
                expect("a completion", &done, &session::Done::Now)?;
                Ok(None)
            }
            Verb::Prune { .. } => {
                let pruned = self.ledger.prune().map_err(undecided)?;
                expect("one pruned row", &pruned, &1)?;
                Ok(None)
            }
            Verb::Mint => {
                let purpose = Name::new("till").expect("a name");
                let token = answered(self.ledger.step(|step, now| counter::mint_for(step, &purpose, now)))?;
                Ok(Some(token.get()))
            }
            Verb::Reboot => Err(Failure::Other("a reboot is no verb of a store".into())),
        }
    }

    fn rows(&mut self, keys: &[Key], model: &Model) -> Result<Rows, Failure> {
        let mut rows = Rows::new();
        for key in keys {
            let row = match *key {
                Key::Session(number) => self.session(number)?,
                Key::Message(number) => self.message(number, model.generation(*key))?,
            };
            rows.extend(row.map(|row| (*key, row)));
        }
        Ok(rows)
    }

    fn reserved(&self) -> u64 {
        self.ledger.report().map_or(0, |report| report.limit)
    }

    fn reservation(&self) -> u64 {
        BLOCK
    }
}

const RESULT: &[u8] = b"1425";
const RESULT_DIGEST: Digest = Digest::from_bytes([7; 16]);

fn name(text: &str) -> Name {
    Name::new(text).expect("the life's names are short")
}

fn session_name(number: u8) -> Name {
    name(&format!("sess-{number:03}"))
}

fn message_name(number: u8, generation: u32) -> Name {
    name(&format!("m{number}-{generation:05}"))
}

fn host_name(number: u8) -> Name {
    name(&format!("kiosk-{number:02}"))
}

fn host_number(host: &Name) -> u8 {
    let number = host.as_str().trim_start_matches("kiosk-").parse();
    number.unwrap_or(u8::MAX)
}

fn recipient() -> Name {
    name("supplier")
}

/// How many messages of its number there were before a message that was delivered so often.
fn generation(row: Option<Row>, deliveries: u32) -> u32 {
    row.map_or(0, |row| row.incarnation - deliveries)
}

/// What a step granted. The life asks for nothing that is refused.
fn answered<T>(answer: Result<Decision<T>, Trouble<Error>>) -> Result<T, Failure> {
    answer.map_err(undecided)?.map_err(|refusal| {
        if refusal.reason == keyfence_core::Reason::Full {
            return Failure::Full(refusal.to_string());
        }
        Failure::Other(format!("refused: {refusal}"))
    })
}

fn expect<T: Debug + PartialEq>(what: &str, got: &T, expected: &T) -> Result<(), Failure> {
    if got == expected {
        return Ok(());
    }
    Err(Failure::Other(format!("{what}: {got:?} instead of {expected:?}")))
}

fn undecided(trouble: Trouble<Error>) -> Failure {
    let text = format!("{trouble:?}");
    match trouble {
        Trouble::Corrupt(_)
        | Trouble::Store(Error::Mount(
            MountError::Damaged(_) | MountError::Unprovisioned | MountError::Unsupported { .. },
        )) => Failure::Corrupt(text),
        Trouble::Store(Error::Refused(Refused::Full)) => Failure::Full(text),
        Trouble::Store(_) | Trouble::Unknown(_) => Failure::Other(text),
    }
}
