//! Messages; their texts are records of their own.

use keyfence_core::mailbox::{Act, Cause, Claimed, Dead, Last, Message, MessageState, Open, Priority};
use keyfence_core::{Expiry, Name, ProcessId, Token};

use super::{Outcomes, References, Row, read, read_head, read_reference, write_head, write_reference};
use crate::store::codec::{Reader, Writer};
use crate::store::keys::Kind;

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
        token: from.token(),
        act: match from.byte() {
            0 => Act::GivenBack,
            1 => Act::Retried,
            2 => Act::Completed,
            3 => Act::DeadLettered,
            _ => return None,
        },
        digest: from.digest(),
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
        fixed.number();
        let recipient = read!(read_reference(Kind::Actor, &mut fixed, refs)?);
        let content = fixed.digest();
        let priority = read!(Priority::new((fixed.byte() as i8).into()));
        let retries_max = fixed.small();
        let redrive_of = fixed.name_or_none();
        let (tag, process) = read!(read_head(&mut state, refs)?);
        let retries = state.small();
        let deliveries = state.small();
        let not_before = match state.number() {
            0 => None,
            epoch => {
                let due = state.time();
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
                token: state.token(),
                lease_token: state.token_or_none(),
                since: state.time(),
                expiry: Expiry::EarlierBoot,
            }),
            3 => MessageState::Done(read!(read_last(&mut state, process))),
            4 | 5 => MessageState::Dead(Dead {
                cause: match state.byte() {
                    0 => Cause::RetriesExhausted,
                    1 => Cause::WorkerLost,
                    2 => Cause::Holder,
                    3 => Cause::Operator,
                    _ => return Ok(None),
                },
                redriven_as: state.name_or_none(),
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
