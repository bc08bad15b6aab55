//! What a call does on the ledger: one atomic step, with its answer in it.
//!
//! * **A1.** A call under a request id is done in the step that keeps its answer, so either both are there or neither.
//! * **A2.** The same call again gets the first answer, marked as replayed; if that was a grant that is no longer current, it
//!   gets the refusal that the grant would get. Another call under the id, or an older id, is a fault.
//! * **A3.** Only answers that were committed are kept. A refusal is decided anew.

use embedded_storage::nor_flash::{NorFlash, ReadNorFlash as _};
use keyfence_core::store::{Failure, Place, Store as _};
use keyfence_core::{Decision, Reason, Refusal, TimeMs, Token};

use super::board::{Board, OutputSpec};
use super::guard::Guarded;
use super::state::{Note, State};
use super::{Kiosk, KioskLedger, NotServed, verbs};
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
        let region = self.journal.clone();
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

/// Serves one call: what is a step of its own, or anything else that the ledger does.
#[inline(never)]
fn serve<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    ledger: &mut KioskLedger<F, B, PAGES, P>,
    call: &Call,
    reply: &mut Reply,
) -> Outcome<()> {
    reply.answer = match &call.request {
        Request::LastNumber(client) => Answer::LastNumber(ledger.last_number(*client)?),
        Request::Content(place, name, which) => {
            let content = ledger.content(*place, name, *which)?;
            Answer::Content(content.and_then(|content| heapless::Vec::from_slice(content.bytes()).ok()))
        }
        Request::Checkpoint => match ledger.journal().stored_checkpoint() {
            Ok(checkpoint) => Answer::Checkpoint(checkpoint),
            Err(_) => Answer::Failed(Fault::Damaged(Place::History)),
        },
        Request::StoreCheckpoint(checkpoint) => match ledger.journal().checkpoint(*checkpoint) {
            Ok(_) => Answer::Written,
            Err(CommitError::Unknown) => return Err(Failure::Unknown(Error::Unknown)),
            Err(CommitError::Refused(refused)) => return Err(Failure::Store(Error::Refused(refused))),
        },
        Request::Prune => Answer::Count(ledger.prune()? as u32),
        Request::Lift(token, incarnation) => {
            if let Some(token) = token {
                ledger.lift_counter(*token)?;
            }
            if let Some(incarnation) = incarnation {
                ledger.raise_incarnation_floor(*incarnation)?;
            }
            Answer::Written
        }
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
        | Request::Revoke(..) => return serve_in_step(ledger, call, reply),
    };
    Ok(())
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
    let decision = ledger.step(|step, now| {
        if let Some(id) = id {
            match step.answered(id.client(), id.number())? {
                Replay::New => {}
                Replay::TooOld => {
                    let last = step.last_number(id.client())?.unwrap_or(0);
                    reply.answer = Answer::Failed(Fault::RequestTooOld { last });
                    return Ok(Ok(()));
                }
                Replay::Answered(kept) => return replay(step, call, &kept, now, reply),
            }
        }
        let decision = verbs::decide(step, &call.request, own, now, &mut reply.answer)?;
        if let (Ok(()), Some(id)) = (&decision, id) {
            keep(step, id, call, &reply.answer)?;
        }
        Ok(decision)
    })?;
    if let Err(refusal) = decision {
        reply.answer = Answer::Refused(refusal);
    }
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
fn replay<F: NorFlash, B: Board, const PAGES: usize, P: Policy>(
    step: &mut Step<F, B, PAGES, P>,
    call: &Call,
    kept: &Content,
    now: TimeMs,
    reply: &mut Reply,
) -> Outcome<Decision<()>> {
    let kept = kept.bytes().split_first_chunk();
    let Some((fingerprint, encoded)) = kept else {
        reply.answer = Answer::Failed(Fault::Damaged(Place::History));
        return Ok(Ok(()));
    };
    if *fingerprint != call.fingerprint() {
        reply.answer = Answer::Failed(Fault::RequestMisused);
        return Ok(Ok(()));
    }
    match Answer::decode(encoded) {
        None => reply.answer = Answer::Failed(Fault::Damaged(Place::History)),
        Some(answer) => {
            reply.replayed = true;
            reply.answer = answer;
        }
    }
    if let Answer::Granted(grant) = &reply.answer {
        return verbs::check_current(step, &call.request, grant, now);
    }
    Ok(Ok(()))
}
