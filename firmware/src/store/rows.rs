//! Each kind of row as two records: the name with what its maker chose, and the state.
//!
//! The second byte of every state says which process it is about, so that processes that no row refers to any more can be
//! found. Expiries are not written (R3): a decoded row is one of an earlier boot until the step says otherwise.

use core::marker::PhantomData;

use keyfence_core::actor::ActorLease;
use keyfence_core::attempt::{Assignment, AssignmentState, Attempt, Finished, FinishedBy, Outcome};
use keyfence_core::gate::{Binding, ClaimKind, Gate};
use keyfence_core::host::HostLease;
use keyfence_core::lease::{Held, Lease, LeaseState};
use keyfence_core::mailbox::{Act, Cause, Claimed, Dead, Last, Message, MessageState, Open, Priority};
use keyfence_core::session::{Claim, Generation, Session, SessionState};
use keyfence_core::store::Record;
use keyfence_core::{Expiry, Name, ProcessId, Token};

use super::Trouble;
use super::codec::{Reader, Writer};
use super::keys::Kind;

/// A process that is written out, after the byte.
pub(super) const PROCESS_INLINE: u8 = 0xfe;
/// No process.
pub(super) const PROCESS_NONE: u8 = 0xff;
/// A name that is that of the row with this number; other names begin with their length.
const NAME_OF_ROW: u8 = 0x80;

type Outcomes<T> = Result<T, Trouble>;

/// What rows refer to by number.
pub(super) trait References {
    /// The number of a process, if it has one; it may be given one now.
    fn process_number(&mut self, process: ProcessId) -> Outcomes<Option<u8>>;
    /// The process of a number.
    fn process(&mut self, number: u8) -> Outcomes<Option<ProcessId>>;
    /// The number of a row, if there is one of this name.
    fn row_number(&mut self, kind: Kind, name: &Name) -> Outcomes<Option<u8>>;
    /// The name of a row.
    fn row_name(&mut self, kind: Kind, number: u8) -> Outcomes<Option<Name>>;
    /// The number that a new row is ordered by.
    fn ordinal(&self) -> u64;
    /// Tells this power-up from others.
    fn epoch(&self) -> u32;
}

/// A row that can be kept.
pub(super) trait Row: Record {
    /// Its kind.
    const KIND: Kind;

    /// Writes what follows the name in the record of the name.
    fn write_fixed(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()>;
    /// Writes the state.
    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()>;
    /// Reads the row; `None` when it is not as it was written.
    fn read(name: Name, fixed: Reader<'_>, state: Reader<'_>, refs: &mut impl References) -> Outcomes<Option<Self>>;
    /// The claim that an expiry belongs to.
    fn claim(&self) -> Option<(Token, Expiry)>;
    /// Sets the expiry of its claim.
    fn expire(&mut self, expiry: Expiry);
}

/// Takes a value out of an `Option`, or returns that the row cannot be read.
macro_rules! read {
    ($option:expr) => {
        match $option {
            Some(value) => value,
            None => return Ok(None),
        }
    };
}

/// A state's tag and process.
fn write_head(tag: u8, process: Option<ProcessId>, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
    out.byte(tag);
    let Some(process) = process else {
        out.byte(PROCESS_NONE);
        return Ok(());
    };
    match refs.process_number(process)? {
        Some(number) => out.byte(number),
        None => {
            out.byte(PROCESS_INLINE);
            out.bytes(process.as_bytes());
        }
    }
    Ok(())
}

/// The tag and, if it can be told, the process.
fn read_head(state: &mut Reader<'_>, refs: &mut impl References) -> Outcomes<Option<(u8, Option<ProcessId>)>> {
    let tag = read!(state.byte());
    let process = match read!(state.byte()) {
        PROCESS_NONE => None,
        PROCESS_INLINE => Some(ProcessId::from_bytes(read!(state.sixteen()))),
        number => Some(read!(refs.process(number)?)),
    };
    Ok(Some((tag, process)))
}

fn write_reference(kind: Kind, name: &Name, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
    match refs.row_number(kind, name)? {
        Some(number) => out.byte(NAME_OF_ROW | number),
        None => out.name(name),
    }
    Ok(())
}

fn read_reference(kind: Kind, from: &mut Reader<'_>, refs: &mut impl References) -> Outcomes<Option<Name>> {
    let first = read!(from.byte());
    if first & NAME_OF_ROW == 0 {
        return Ok(from.name_of(first));
    }
    refs.row_name(kind, first & !NAME_OF_ROW)
}

/// Leases of both kinds have one form.
#[inline(never)]
fn write_lease(state: &LeaseState, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
    match state {
        LeaseState::Free { released: None } => write_head(0, None, refs, out),
        LeaseState::Free {
            released: Some((process, token)),
        } => {
            write_head(1, Some(*process), refs, out)?;
            out.number(token.get());
            Ok(())
        }
        LeaseState::Held(held) => {
            write_head(2, Some(held.process), refs, out)?;
            out.number(held.token.get());
            out.number(held.since.as_ms());
            Ok(())
        }
    }
}

#[inline(never)]
fn read_lease(mut state: Reader<'_>, refs: &mut impl References) -> Outcomes<Option<LeaseState>> {
    let read = match read!(read_head(&mut state, refs)?) {
        (0, None) => LeaseState::Free { released: None },
        (1, Some(process)) => LeaseState::Free {
            released: Some((process, read!(state.token()))),
        },
        (2, Some(process)) => LeaseState::Held(Held {
            process,
            token: read!(state.token()),
            since: read!(state.time()),
            expiry: Expiry::EarlierBoot,
        }),
        _ => return Ok(None),
    };
    Ok(state.end(read))
}

impl<K> Row for Lease<K>
where
    Self: Record + LeaseKind,
{
    const KIND: Kind = <Self as LeaseKind>::KIND;

    fn write_fixed(&self, _: &mut impl References, _: &mut Writer) -> Outcomes<()> {
        Ok(())
    }

    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        write_lease(&self.state, refs, out)
    }

    fn read(name: Name, fixed: Reader<'_>, state: Reader<'_>, refs: &mut impl References) -> Outcomes<Option<Self>> {
        let state = read!(read_lease(state, refs)?);
        Ok(fixed.end(Self {
            name,
            state,
            kind: PhantomData,
        }))
    }

    fn claim(&self) -> Option<(Token, Expiry)> {
        match &self.state {
            LeaseState::Held(held) => Some((held.token, held.expiry)),
            LeaseState::Free { .. } => None,
        }
    }

    fn expire(&mut self, expiry: Expiry) {
        if let LeaseState::Held(held) = &mut self.state {
            held.expiry = expiry;
        }
    }
}

/// Tells the two kinds of lease apart.
pub(super) trait LeaseKind {
    /// Which kind.
    const KIND: Kind;
}

impl LeaseKind for ActorLease {
    const KIND: Kind = Kind::Actor;
}

impl LeaseKind for HostLease {
    const KIND: Kind = Kind::Host;
}

impl Row for Assignment {
    const KIND: Kind = Kind::Assignment;

    fn write_fixed(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        write_reference(Kind::Actor, &self.actor, refs, out)?;
        out.name_or_none(self.retry_of.as_ref());
        Ok(())
    }

    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        match &self.state {
            AssignmentState::Created { released: None } => write_head(0, None, refs, out),
            AssignmentState::Created {
                released: Some((attempt, token)),
            } => {
                write_head(1, None, refs, out)?;
                out.bytes(attempt.as_bytes());
                out.number(token.get());
                Ok(())
            }
            AssignmentState::Running(attempt) => {
                write_head(2, Some(attempt.process), refs, out)?;
                out.bytes(attempt.id.as_bytes());
                out.number(attempt.token.get());
                out.number(attempt.lease_token.get());
                out.number(attempt.since.as_ms());
                Ok(())
            }
            AssignmentState::Finished(finished) => {
                let outcome = match finished.outcome {
                    Outcome::Completed => 3,
                    Outcome::Blocked => 4,
                    Outcome::Failed => 5,
                };
                write_head(outcome, None, refs, out)?;
                out.bytes(finished.attempt.as_bytes());
                out.number(finished.token.get());
                if let FinishedBy::Attempt(digest) = &finished.by {
                    out.bytes(digest.as_bytes());
                }
                Ok(())
            }
            AssignmentState::Pruned => write_head(6, None, refs, out),
        }
    }

    fn read(
        id: Name,
        mut fixed: Reader<'_>,
        mut state: Reader<'_>,
        refs: &mut impl References,
    ) -> Outcomes<Option<Self>> {
        let actor = read!(read_reference(Kind::Actor, &mut fixed, refs)?);
        let retry_of = read!(fixed.name_or_none());
        let (tag, process) = read!(read_head(&mut state, refs)?);
        let read = match (tag, process) {
            (0, None) => AssignmentState::Created { released: None },
            (1, None) => AssignmentState::Created {
                released: Some((read!(state.attempt()), read!(state.token()))),
            },
            (2, Some(process)) => AssignmentState::Running(Attempt {
                id: read!(state.attempt()),
                token: read!(state.token()),
                process,
                lease_token: read!(state.token()),
                since: read!(state.time()),
                expiry: Expiry::EarlierBoot,
            }),
            (3..=5, None) => AssignmentState::Finished(Finished {
                outcome: match tag {
                    3 => Outcome::Completed,
                    4 => Outcome::Blocked,
                    _ => Outcome::Failed,
                },
                attempt: read!(state.attempt()),
                token: read!(state.token()),
                by: if state.0.is_empty() {
                    FinishedBy::WorkerLost
                } else {
                    FinishedBy::Attempt(read!(state.digest()))
                },
            }),
            (6, None) => AssignmentState::Pruned,
            _ => return Ok(None),
        };
        let assignment = Self {
            id,
            actor,
            retry_of,
            state: read,
        };
        Ok(fixed.end(()).and(state.end(assignment)))
    }

    fn claim(&self) -> Option<(Token, Expiry)> {
        match &self.state {
            AssignmentState::Running(attempt) => Some((attempt.token, attempt.expiry)),
            AssignmentState::Created { .. } | AssignmentState::Finished(_) | AssignmentState::Pruned => None,
        }
    }

    fn expire(&mut self, expiry: Expiry) {
        if let AssignmentState::Running(attempt) = &mut self.state {
            attempt.expiry = expiry;
        }
    }
}

fn write_last(last: &Last, out: &mut Writer) {
    out.number(last.token.get());
    out.byte(match last.act {
        Act::GivenBack => 0,
        Act::Retried => 1,
        Act::Completed => 2,
        Act::DeadLettered => 3,
    });
    out.bytes(last.digest.as_bytes());
}

fn read_last(from: &mut Reader<'_>, process: Option<ProcessId>) -> Option<Last> {
    Some(Last {
        process,
        token: from.token()?,
        act: match from.byte()? {
            0 => Act::GivenBack,
            1 => Act::Retried,
            2 => Act::Completed,
            3 => Act::DeadLettered,
            _ => return None,
        },
        digest: from.digest()?,
    })
}

impl Row for Message {
    const KIND: Kind = Kind::Message;

    fn write_fixed(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        out.number(refs.ordinal());
        write_reference(Kind::Actor, &self.recipient, refs, out)?;
        out.bytes(self.content.as_bytes());
        out.byte(self.priority.get() as u8);
        out.number(self.retries_max.into());
        out.name_or_none(self.redrive_of.as_ref());
        Ok(())
    }

    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        let (tag, process) = match &self.state {
            MessageState::New(Open { last: None }) => (0, None),
            MessageState::New(Open { last: Some(last) }) => (1, last.process),
            MessageState::Claimed(claimed) => (2, claimed.process),
            MessageState::Done(last) => (3, last.process),
            MessageState::Dead(Dead { last: None, .. }) => (4, None),
            MessageState::Dead(Dead { last: Some(last), .. }) => (5, last.process),
            MessageState::Pruned => (6, None),
        };
        write_head(tag, process, refs, out)?;
        out.number(self.retries.into());
        out.number(self.deliveries.into());
        match self.not_before {
            Some(due) => {
                out.number(u64::from(refs.epoch()));
                out.number(due.as_ms());
            }
            None => out.number(0),
        }
        match &self.state {
            MessageState::New(Open { last: None }) | MessageState::Pruned => {}
            MessageState::New(Open { last: Some(last) }) | MessageState::Done(last) => write_last(last, out),
            MessageState::Claimed(claimed) => {
                out.number(claimed.token.get());
                out.token_or_none(claimed.lease_token);
                out.number(claimed.since.as_ms());
            }
            MessageState::Dead(dead) => {
                out.byte(match dead.cause {
                    Cause::RetriesExhausted => 0,
                    Cause::WorkerLost => 1,
                    Cause::Holder => 2,
                    Cause::Operator => 3,
                });
                out.name_or_none(dead.redriven_as.as_ref());
                if let Some(last) = &dead.last {
                    write_last(last, out);
                }
            }
        }
        Ok(())
    }

    fn read(
        id: Name,
        mut fixed: Reader<'_>,
        mut state: Reader<'_>,
        refs: &mut impl References,
    ) -> Outcomes<Option<Self>> {
        read!(fixed.number());
        let recipient = read!(read_reference(Kind::Actor, &mut fixed, refs)?);
        let content = read!(fixed.digest());
        let priority = read!(Priority::new((read!(fixed.byte()) as i8).into()));
        let retries_max = read!(read!(fixed.number()).try_into().ok());
        let redrive_of = read!(fixed.name_or_none());
        let (tag, process) = read!(read_head(&mut state, refs)?);
        let retries = read!(read!(state.number()).try_into().ok());
        let deliveries = read!(read!(state.number()).try_into().ok());
        let not_before = match read!(state.number()) {
            0 => None,
            epoch => {
                let due = read!(state.time());
                // A moment of an earlier boot says nothing now: what waited for it is due.
                (epoch == u64::from(refs.epoch())).then_some(due)
            }
        };
        let read = match tag {
            0 => MessageState::New(Open { last: None }),
            1 => MessageState::New(Open {
                last: Some(read!(read_last(&mut state, process))),
            }),
            2 => MessageState::Claimed(Claimed {
                process,
                token: read!(state.token()),
                lease_token: read!(state.token_or_none()),
                since: read!(state.time()),
                expiry: Expiry::EarlierBoot,
            }),
            3 => MessageState::Done(read!(read_last(&mut state, process))),
            4 | 5 => MessageState::Dead(Dead {
                cause: match read!(state.byte()) {
                    0 => Cause::RetriesExhausted,
                    1 => Cause::WorkerLost,
                    2 => Cause::Holder,
                    3 => Cause::Operator,
                    _ => return Ok(None),
                },
                redriven_as: read!(state.name_or_none()),
                last: if tag == 5 {
                    Some(read!(read_last(&mut state, process)))
                } else {
                    None
                },
            }),
            6 => MessageState::Pruned,
            _ => return Ok(None),
        };
        let message = Self {
            id,
            recipient,
            content,
            priority,
            not_before,
            retries,
            retries_max,
            deliveries,
            redrive_of,
            state: read,
        };
        Ok(fixed.end(()).and(state.end(message)))
    }

    fn claim(&self) -> Option<(Token, Expiry)> {
        match &self.state {
            MessageState::Claimed(claimed) => Some((claimed.token, claimed.expiry)),
            MessageState::New(_) | MessageState::Done(_) | MessageState::Dead(_) | MessageState::Pruned => None,
        }
    }

    fn expire(&mut self, expiry: Expiry) {
        if let MessageState::Claimed(claimed) = &mut self.state {
            claimed.expiry = expiry;
        }
    }
}

fn write_generation(generation: &Generation, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
    write_reference(Kind::Host, &generation.host, refs, out)?;
    out.number(generation.incarnation.get());
    out.number(generation.token.get());
    out.number(generation.host_token.get());
    Ok(())
}

fn read_generation(from: &mut Reader<'_>, refs: &mut impl References) -> Outcomes<Option<Generation>> {
    let host = read!(read_reference(Kind::Host, from, refs)?);
    Ok(Some(Generation {
        host,
        incarnation: read!(from.incarnation()),
        token: read!(from.token()),
        host_token: read!(from.token()),
    }))
}

impl Row for Session {
    const KIND: Kind = Kind::Session;

    fn write_fixed(&self, _: &mut impl References, _: &mut Writer) -> Outcomes<()> {
        Ok(())
    }

    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        match &self.state {
            SessionState::Free {
                incarnation,
                released: None,
            } => {
                write_head(0, None, refs, out)?;
                out.number(incarnation.get());
                Ok(())
            }
            SessionState::Free {
                incarnation,
                released: Some(generation),
            } => {
                write_head(1, None, refs, out)?;
                out.number(incarnation.get());
                write_generation(generation, refs, out)
            }
            SessionState::Claimed(claim) => {
                write_head(2, Some(claim.process), refs, out)?;
                write_generation(&claim.generation, refs, out)?;
                out.number(claim.since.as_ms());
                Ok(())
            }
            SessionState::Finished(generation, digest) => {
                write_head(3, None, refs, out)?;
                write_generation(generation, refs, out)?;
                out.bytes(digest.as_bytes());
                Ok(())
            }
            SessionState::Pruned => write_head(4, None, refs, out),
        }
    }

    fn read(
        name: Name,
        fixed: Reader<'_>,
        mut state: Reader<'_>,
        refs: &mut impl References,
    ) -> Outcomes<Option<Self>> {
        let read = match read!(read_head(&mut state, refs)?) {
            (0, None) => SessionState::Free {
                incarnation: read!(state.incarnation()),
                released: None,
            },
            (1, None) => SessionState::Free {
                incarnation: read!(state.incarnation()),
                released: Some(read!(read_generation(&mut state, refs)?)),
            },
            (2, Some(process)) => SessionState::Claimed(Claim {
                generation: read!(read_generation(&mut state, refs)?),
                process,
                since: read!(state.time()),
                expiry: Expiry::EarlierBoot,
            }),
            (3, None) => {
                let generation = read!(read_generation(&mut state, refs)?);
                SessionState::Finished(generation, read!(state.digest()))
            }
            (4, None) => SessionState::Pruned,
            _ => return Ok(None),
        };
        let session = Self { name, state: read };
        Ok(fixed.end(()).and(state.end(session)))
    }

    fn claim(&self) -> Option<(Token, Expiry)> {
        match &self.state {
            SessionState::Claimed(claim) => Some((claim.generation.token, claim.expiry)),
            SessionState::Free { .. } | SessionState::Finished(..) | SessionState::Pruned => None,
        }
    }

    fn expire(&mut self, expiry: Expiry) {
        if let SessionState::Claimed(claim) = &mut self.state {
            claim.expiry = expiry;
        }
    }
}

impl Row for Gate {
    const KIND: Kind = Kind::Gate;

    fn write_fixed(&self, _: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        out.bytes(self.binding.ledger.as_bytes());
        out.byte(match self.binding.kind {
            ClaimKind::Actor => 0,
            ClaimKind::Attempt => 1,
            ClaimKind::Message => 2,
            ClaimKind::Host => 3,
            ClaimKind::Session => 4,
        });
        out.name(&self.binding.name);
        Ok(())
    }

    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        write_head(0, None, refs, out)?;
        out.token_or_none(self.high_water);
        Ok(())
    }

    fn read(
        name: Name,
        mut fixed: Reader<'_>,
        mut state: Reader<'_>,
        refs: &mut impl References,
    ) -> Outcomes<Option<Self>> {
        let ledger = read!(fixed.ledger());
        let kind = match read!(fixed.byte()) {
            0 => ClaimKind::Actor,
            1 => ClaimKind::Attempt,
            2 => ClaimKind::Message,
            3 => ClaimKind::Host,
            4 => ClaimKind::Session,
            _ => return Ok(None),
        };
        let binding = Binding {
            ledger,
            kind,
            name: read!(fixed.name()),
        };
        let (0, None) = read!(read_head(&mut state, refs)?) else {
            return Ok(None);
        };
        let high_water = read!(state.token_or_none());
        Ok(fixed.end(()).and(state.end(Self {
            name,
            binding,
            high_water,
        })))
    }

    fn claim(&self) -> Option<(Token, Expiry)> {
        None
    }

    fn expire(&mut self, _: Expiry) {}
}
