//! What a call does on the ledger: one atomic step, with its answer in it.
//!
//! * **A1.** A call under a request id is done in the step that keeps its answer, so either both are there or neither.
//! * **A2.** The same call again gets the first answer, marked as replayed; if that was a grant that is no longer current, it
//!   gets the refusal that the grant would get. Another call under the id, or an older id, is a fault.
//! * **A3.** Only answers that were committed are kept. A refusal is decided anew.

use embedded_storage::nor_flash::{NorFlash, ReadNorFlash as _};
use keyfence_core::store::{Failure, Place, Store as _};
use keyfence_core::{Reason, Refusal, Token};

use super::board::{Board, OutputSpec};
use super::guard::Guarded;
use super::state::{Note, State};
use super::verbs::{self, Verdict, apart};
use super::{Kiosk, KioskLedger, NotServed};
use crate::journal::{CommitError, Policy, Refused};
use crate::link::{
    Answer, Call, DUMP_BYTES_MAX, Dump, FINGERPRINT_BYTES, Fault, Handler, Info, KEPT_BYTES_MAX, Output, Repetition,
    Reply, Request, RequestId, State as Told, Tally, Wear, Why,
};
use crate::store::{Content, Error, FlashStep, Replay};

/// The step of a kiosk's ledger.
pub(super) type Step<F, B, const PAGES: usize, P> = FlashStep<Guarded<F, B>, 8, 8, 16, 4, 8, 4, PAGES, 184, 416, P>;
/// What a step comes to.
pub(super) type Outcome<T> = Result<T, Failure<Error>>;

impl<F: NorFlash, B: Board, const PAGES: usize, P: Policy> Handler for Kiosk<F, B, PAGES, P> {
    fn state(&self) -> Told {
        Self::state(self).told()
    }

    fn handle(&mut self, call: &Call, tally: &Tally) -> Reply {
        let mut reply = Reply::new(Answer::Nothing);
        self.answer(call, tally, &mut reply);
        reply
    }
}

impl<F: NorFlash, B: Board, const PAGES: usize, P: Policy> Kiosk<F, B, PAGES, P> {
    #[inline(never)]
    fn answer(&mut self, call: &Call, tally: &Tally, reply: &mut Reply) {
        self.open();
        if let Request::Info = call.request {
            reply.answer = Answer::Info(self.info(tally));
        } else if let Request::Dump(offset) = call.request {
            reply.answer = self.dump(offset);
        } else if call.id.is_none() && call.request.repetition() == Repetition::NeedsId {
            reply.answer = Answer::Failed(Fault::Malformed);
        } else if let Err(not_served) = self.call(|ledger| serve(ledger, call, reply)) {
            reply.replayed = false;
            reply.answer = match not_served {
                NotServed::State(state) => Answer::Failed(not_open(state)),
                NotServed::Failed(failure) => failed(&failure),
            };
            self.note_refused();
        } else {
            self.note_refused();
        }
    }

    #[inline(never)]
    fn info(&mut self, tally: &Tally) -> Info {
        let is_open = Self::state(self).is_open();
        let report = self.report();
        let (room_used, room_total) = if is_open { self.ledger.room() } else { (0, 0) };
        let journal = self.ledger.journal();
        let (wear, last_token) = (journal.wear(), journal.last_token());
        let now = self.board.now();
        let output = |(index, output): (usize, &OutputSpec)| Output {
            name: heapless::String::try_from(output.name).unwrap_or_default(),
            is_on: self.board.deadlines().is_active(index, now),
            until: self.board.deadlines().until(index),
        };
        Info {
            state: Self::state(self).told(),
            ledger: is_open.then(|| self.ledger.id()),
            boot: report.map_or(0, |report| report.boot),
            boot_id: self.boot,
            now,
            last_token: Token::presented(last_token),
            limit: report.map_or(0, |report| report.limit),
            sequence: report.map_or(0, |report| report.sequence),
            chain: report.map_or(0, |report| report.chain),
            instance: report.map_or(0, |report| report.instance),
            repaired: report.map_or(0, |report| report.repaired),
            room_used: room_used as u32,
            room_total: room_total as u32,
            wear: Wear {
                pages: wear.pages,
                retired: wear.failed,
                erases_max: wear.erases_max,
                erases_rated: B::ERASES_RATED,
            },
            rejected: tally.rejected,
            outputs: B::OUTPUTS.iter().enumerate().map(output).collect(),
        }
    }

    /// A piece of the journal's region, in whatever state it is.
    #[inline(never)]
    fn dump(&mut self, offset: u32) -> Answer {
        let region = self.layout.journal.clone();
        let total = region.end.saturating_sub(region.start);
        let len = total.saturating_sub(offset).min(DUMP_BYTES_MAX as u32);
        let mut bytes = heapless::Vec::new();
        let read = bytes.resize_default(len as usize).is_ok().then(|| {
            self.ledger
                .journal()
                .flash_mut()
                .read(region.start + offset.min(total), &mut bytes)
        });
        match read {
            Some(Ok(())) => Answer::Dump(Dump { total, bytes }),
            Some(Err(_)) | None => Answer::Failed(Fault::Malformed),
        }
    }

    fn note_refused(&mut self) {
        if let Some((call, count)) = self.ledger.take_refused() {
            self.board.note(Note::Refused(call.reason, count));
        }
    }
}

/// Why the ledger does not answer in this state.
const fn not_open(state: State) -> Fault {
    match state.told() {
        Told::Unprovisioned => Fault::Unprovisioned,
        Told::Worn => Fault::Worn,
        Told::Closed(why) => Fault::Closed(why),
        Told::Starting | Told::Ready | Told::Full => Fault::Unknown,
    }
}

/// What a failure of the ledger is to the caller.
fn failed(failure: &Failure<Error>) -> Answer {
    Answer::Failed(match failure {
        Failure::Unknown(_) => Fault::Unknown,
        Failure::Corrupt(corrupt) => Fault::Damaged(corrupt.place),
        Failure::Store(error) => match error {
            Error::NameTooLong | Error::ContentTooLong | Error::TooMuch => Fault::TooLong,
            Error::Unknown => Fault::Unknown,
            Error::Refused(refused) => match refused {
                Refused::TokenExhausted => return Answer::Refused(Refusal::new(Reason::TokenExhausted)),
                Refused::Full => return Answer::Refused(Refusal::new(Reason::Full)),
                Refused::TooLarge => Fault::TooLong,
                Refused::Worn => Fault::Worn,
                Refused::Damaged(_) => Fault::Closed(Why::Damaged),
                Refused::Closed | Refused::BadKey => Fault::Closed(Why::Flash),
            },
            Error::Mount(error) => not_open(super::after_mount(*error)),
            Error::Settle(error) => not_open(super::after_settle(*error)),
        },
    })
}

/// Serves one call: what is a step of its own, or anything else that the ledger does. The latter in functions of their own,
/// so that what they need does not lie on the stack below a step.
#[inline(never)]
fn serve<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    ledger: &mut KioskLedger<F, B, PAGES, P>,
    call: &Call,
    reply: &mut Reply,
) -> Outcome<()> {
    match &call.request {
        Request::LastNumber(client) => apart(|| {
            reply.answer = Answer::LastNumber(ledger.last_number(*client)?);
            Ok(())
        }),
        Request::Content(place, name, which) => apart(|| {
            let content = ledger.content(*place, name, *which)?;
            reply.answer = Answer::Content(content.and_then(|content| heapless::Vec::from_slice(content.bytes()).ok()));
            Ok(())
        }),
        Request::Checkpoint => apart(|| {
            reply.answer = match ledger.journal().stored_checkpoint() {
                Ok(checkpoint) => Answer::Checkpoint(checkpoint),
                Err(_) => Answer::Failed(Fault::Damaged(Place::History)),
            };
            Ok(())
        }),
        Request::StoreCheckpoint(checkpoint) => apart(|| match ledger.journal().checkpoint(*checkpoint) {
            Ok(_) => {
                reply.answer = Answer::Written;
                Ok(())
            }
            Err(CommitError::Unknown) => Err(Failure::Unknown(Error::Unknown)),
            Err(CommitError::Refused(refused)) => Err(Failure::Store(Error::Refused(refused))),
        }),
        Request::Prune => apart(|| {
            reply.answer = Answer::Count(ledger.prune()? as u32);
            Ok(())
        }),
        Request::Lift(token, incarnation) => apart(|| {
            if let Some(token) = token {
                ledger.lift_counter(*token)?;
            }
            if let Some(incarnation) = incarnation {
                ledger.raise_incarnation_floor(*incarnation)?;
            }
            reply.answer = Answer::Written;
            Ok(())
        }),
        Request::Info
        | Request::Dump(_)
        | Request::Row(..)
        | Request::Mint(_)
        | Request::ActorAcquire(_)
        | Request::ActorAcquireOrRenew(_)
        | Request::ActorRenew(..)
        | Request::ActorRelease(_)
        | Request::AssignmentCreate(_)
        | Request::AttemptAcquire(_)
        | Request::AttemptRenew(..)
        | Request::AttemptRelease(_)
        | Request::AttemptFinish(..)
        | Request::AttemptCloseLost(_)
        | Request::AttemptCloseNextLost
        | Request::MessageSend(_)
        | Request::MessageClaim(_)
        | Request::MessageClaimNext(_)
        | Request::MessageSweep(..)
        | Request::MessageExtend(..)
        | Request::MessageGiveBack(_)
        | Request::MessageRetry(..)
        | Request::MessageComplete(..)
        | Request::MessageDeadLetter(..)
        | Request::MessageDeadLetterNew(_)
        | Request::MessageRedrive(_)
        | Request::HostRegister(_)
        | Request::HostRenew(..)
        | Request::HostRelease(_)
        | Request::SessionClaim(_)
        | Request::SessionRelease(_)
        | Request::SessionFinish(..)
        | Request::GateAdmit(_)
        | Request::GateRebind(..)
        | Request::Revoke(..) => serve_in_step(ledger, call, reply),
    }
}

/// Serves a call that is one step (A1).
#[inline(never)]
fn serve_in_step<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    ledger: &mut KioskLedger<F, B, PAGES, P>,
    call: &Call,
    reply: &mut Reply,
) -> Outcome<()> {
    let own = ledger.id();
    let id = call.id.filter(|_| call.request.repetition() == Repetition::NeedsId);
    // A refusal is in the reply already; the store is told that it is one, so that it mints nothing.
    let _ = ledger.step(|step, now| {
        let verdict = match id {
            Some(id) if recall(step, id, call, reply)? => {
                verbs::check_current(step, &call.request, now, &mut reply.answer)?
            }
            Some(_) | None => {
                let verdict = verbs::decide(step, &call.request, own, now, &mut reply.answer)?;
                if let (Verdict::Granted, Some(id)) = (verdict, id) {
                    keep(step, id, call, &reply.answer)?;
                }
                verdict
            }
        };
        Ok(match verdict {
            Verdict::Granted => Ok(()),
            Verdict::Refused(reason) => Err(Refusal::new(reason)),
        })
    })?;
    Ok(())
}

/// Keeps an answer in the step that it is about (A1): the call's fingerprint, then the answer.
#[inline(never)]
fn keep<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    step: &mut Step<F, B, PAGES, P>,
    id: RequestId,
    call: &Call,
    answer: &Answer,
) -> Outcome<()> {
    let mut kept = [0; FINGERPRINT_BYTES + KEPT_BYTES_MAX];
    let (fingerprint, encoded) = kept.split_at_mut(FINGERPRINT_BYTES);
    fingerprint.copy_from_slice(&call.fingerprint());
    let len = answer.encode(encoded).ok_or(Failure::Store(Error::ContentTooLong))?;
    let kept = kept.get(..FINGERPRINT_BYTES + len).unwrap_or(&[]);
    step.keep_answer(id.client(), id.number(), kept)
}

/// Gives the kept answer again (A2).
#[inline(never)]
fn replay(call: &Call, kept: &Content, reply: &mut Reply) {
    let kept = kept.bytes().split_first_chunk();
    let Some((fingerprint, encoded)) = kept else {
        reply.answer = Answer::Failed(Fault::Damaged(Place::History));
        return;
    };
    if *fingerprint != call.fingerprint() {
        reply.answer = Answer::Failed(Fault::RequestMisused);
        return;
    }
    match Answer::decode(encoded) {
        None => reply.answer = Answer::Failed(Fault::Damaged(Place::History)),
        Some(answer) => {
            reply.replayed = true;
            reply.answer = answer;
        }
    }
}

/// Whether the call's request id was answered before; then the reply has what is to be told.
#[inline(never)]
fn recall<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    step: &mut Step<F, B, PAGES, P>,
    id: RequestId,
    call: &Call,
    reply: &mut Reply,
) -> Outcome<bool> {
    match step.answered(id.client(), id.number())? {
        Replay::New => Ok(false),
        Replay::TooOld => {
            let last = step.last_number(id.client())?.unwrap_or(0);
            reply.answer = Answer::Failed(Fault::RequestTooOld { last });
            Ok(true)
        }
        Replay::Answered(kept) => {
            replay(call, &kept, reply);
            Ok(true)
        }
    }
}
