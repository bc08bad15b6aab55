//! The kiosk: one ledger on flash, one serial link, outputs that follow authority.
//!
//! Read [`Kiosk`] first, then [`Board`]: what a board has to give. The modules: `state` (how it stands), `authority` (until
//! when an output's claim is live), `outputs` (what the interrupt enforces), `guard` (erases), `serve` and `verbs` (what a call
//! does), `station` (the kiosk at its line), `provision` (how one is made).
//!
//! * **K1. Nothing is written before somebody is served.** A power-up reads; what a mount has to write waits for the first
//!   authenticated request. A supply that comes and goes wears nothing out, and nothing is told meanwhile but the state.
//! * **K2. An output is active only under a live claim of this boot**, until the claim's own expiry, which the board's
//!   interrupt enforces. What changed a row is looked at again before its caller is answered.
//! * **K3. An erase waits for no output**: work ahead is done while nobody is there and no output's deadline lies within
//!   an erase; an erase that cannot wait makes such an output safe first.
//! * **K4. Closed is safe.** Whenever the ledger does not answer, every output is at its safe level. After an outcome that
//!   is not known the ledger is mounted again by itself, some times and ever more slowly.

mod authority;
mod board;
mod guard;
mod outputs;
mod provision;
mod serve;
mod state;
mod station;
mod verbs;

use core::ops::Range;

use embedded_storage::nor_flash::NorFlash;
use keyfence_core::actor::ActorLease;
use keyfence_core::attempt::Assignment;
use keyfence_core::gate::Gate;
use keyfence_core::host::HostLease;
use keyfence_core::mailbox::Message;
use keyfence_core::session::Session;
use keyfence_core::store::{Failure, Store, Table};
use keyfence_core::{Name, ProcessId, TimeMs};

use crate::identity::{self, IdentityError};
pub use crate::journal::Existing;
use crate::journal::{CommitError, Law, MountError, Policy, Refused, Report, SettleError};
pub use crate::store::Error as LedgerError;
use crate::store::{Clock, Error, Ledger};
pub use board::{Board, Follows, Level, OUTPUTS_MAX, OutputSpec};
use guard::{Guarded, erased_at};
pub use outputs::Deadlines;
pub use provision::{ProvisionError, provision};
pub use state::{Closed, Note, State};
pub use station::Station;

/// The ledger of a kiosk: the default bounds, on up to `PAGES` pages.
pub type KioskLedger<F, B, const PAGES: usize, P = Law> =
    Ledger<Guarded<F, B>, BoardClock<B>, 8, 8, 16, 4, 8, 4, PAGES, 184, 416, P>;

/// The clock of a board, as the ledger reads it.
#[derive(Clone, Copy, Debug)]
pub struct BoardClock<B>(B);

impl<B: Board> Clock for BoardClock<B> {
    fn now(&mut self) -> TimeMs {
        self.0.now()
    }
}

/// Where things lie on the flash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Who the kiosk is: two pages.
    pub identity: Range<u32>,
    /// The journal: whole pages.
    pub journal: Range<u32>,
}

/// Mounts in a row after an outcome that is not known, before the kiosk stays closed until a reset.
const REMOUNTS_MAX: u8 = 6;
/// Milliseconds before the first of them; each further one waits twice as long.
const REMOUNT_MS: u64 = 50;
/// Nobody is there when nothing was received for this many milliseconds.
const QUIET_MS: u64 = 20;

/// Why a call was not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotServed {
    /// The ledger does not answer in this state.
    State(State),
    /// The ledger failed.
    Failed(Failure<Error>),
}

/// A kiosk.
///
/// - getters: [`state`](Self::state), [`boot`](Self::boot), [`report`](Self::report)
/// - starting: [`new`](Self::new), then [`start`](Self::start) reads the ledger
/// - commands: [`call`](Self::call) serves somebody who has been authenticated
/// - upkeep: [`turn`](Self::turn), from the main loop
///
/// `PAGES` is the most pages that the journal's region may have.
pub struct Kiosk<F, B, const PAGES: usize, P = Law> {
    board: B,
    /// This boot's identity, as a process.
    boot: ProcessId,
    is_named: bool,
    layout: Layout,
    ledger: KioskLedger<F, B, PAGES, P>,
    state: State,
    /// Mounts in a row that did not help, and when the next one is due.
    remounts: u8,
    remount_at: TimeMs,
    /// There may be work ahead.
    has_work: bool,
    /// When something was received last.
    received_at: TimeMs,
}

impl<F: NorFlash, B: Board, const PAGES: usize, P: Policy> Kiosk<F, B, PAGES, P> {
    /// Makes every output safe. `boot` is the fresh process identity of this power-up, `known` what reading who the kiosk is
    /// came to. Call [`start`](Self::start) next.
    pub fn new(flash: F, layout: Layout, board: B, boot: ProcessId, known: Result<(), IdentityError>) -> Self {
        const {
            assert!(
                B::OUTPUTS.len() <= OUTPUTS_MAX,
                "a board with more outputs than a kiosk has"
            )
        };
        board.deadlines().give_up_all();
        board.apply_outputs();
        let state = match known {
            Ok(()) | Err(IdentityError::Missing) => State::Unprovisioned,
            Err(IdentityError::Range) => State::Closed(Closed::Geometry),
            Err(IdentityError::Unsupported(version)) => State::Closed(Closed::Unsupported(version)),
            Err(IdentityError::Damaged | IdentityError::NameTooLong | IdentityError::Taken | IdentityError::Flash) => {
                State::Closed(Closed::Identity)
            }
        };
        Self {
            board,
            boot,
            is_named: known.is_ok(),
            ledger: Ledger::new(Guarded::new(flash, board), layout.journal.clone(), BoardClock(board)),
            layout,
            state,
            remounts: 0,
            remount_at: TimeMs::ZERO,
            has_work: false,
            received_at: TimeMs::ZERO,
        }
    }

    /// Reads the ledger. Nothing is written (K1).
    pub fn start(&mut self) {
        let state = if !self.is_named {
            self.state
        } else {
            match self.ledger.journal().mount() {
                Ok(_) => State::Starting,
                Err(error) => after_mount(error),
            }
        };
        self.state = state;
        self.board.state_changed(state);
    }

    /// How it stands.
    pub const fn state(&self) -> State {
        self.state
    }

    /// This boot as a process: a fresh identity at every power-up.
    pub const fn boot(&self) -> ProcessId {
        self.boot
    }

    /// What the mount found; afterwards, how the ledger stands.
    pub fn report(&self) -> Option<Report> {
        self.ledger.report()
    }

    /// Serves somebody who has been authenticated: opens the ledger if it is not, has `work` done on it, and brings the
    /// outputs to what it says now.
    ///
    /// When this returns, an output whose claim ended in the call is safe, and one whose claim began is active. An output
    /// never outlives a ledger that does not answer (K4).
    ///
    /// # Errors
    ///
    /// [`NotServed`]. A refusal is no error: it is what `work` gives back.
    pub fn call<T>(
        &mut self,
        work: impl FnOnce(&mut KioskLedger<F, B, PAGES, P>) -> Result<T, Failure<Error>>,
    ) -> Result<T, NotServed> {
        self.open();
        if !self.state.is_open() {
            return Err(NotServed::State(self.state));
        }
        self.has_work = true;
        let worked = work(&mut self.ledger);
        match &worked {
            Ok(_) => {}
            Err(failure) => self.failed(failure),
        }
        self.follow();
        worked.map_err(NotServed::Failed)
    }

    /// Opens the ledger for somebody who has been authenticated, if it waits for that (K1).
    pub fn open(&mut self) {
        if self.board.is_power_failing() {
            self.enter(State::Closed(Closed::Power));
        }
        if self.state == State::Starting {
            match self.ledger.power_up(0) {
                Ok(report) => {
                    self.board.note(Note::Boot(report.boot));
                    self.double_identity();
                    self.enter(State::Ready);
                }
                Err(failure) => self.failed(&failure),
            }
        }
    }

    /// Writes a copy of the identity anew that does not read whole. One that does is enough for this boot.
    #[inline(never)]
    fn double_identity(&mut self) {
        // Who asks has shown the key, so it was read; what does not take the copy is tried again at the next boot.
        let _ = identity::load(self.ledger.journal().flash_mut(), &self.layout.identity);
    }

    /// One turn of the main loop, besides serving: the light, a failing supply, a mount that is due, work ahead.
    pub fn turn(&mut self) {
        let now = self.board.now();
        self.board.light(self.state.is_lit(now));
        if self.board.is_power_failing() {
            self.enter(State::Closed(Closed::Power));
        }
        if self.state == State::Closed(Closed::Unknown) && self.remounts < REMOUNTS_MAX && now >= self.remount_at {
            self.remounts += 1;
            self.board.note(Note::Remount(self.remounts));
            match self.ledger.remount() {
                Ok(_) => {
                    self.remounts = 0;
                    self.enter(State::Ready);
                    self.follow();
                }
                Err(failure) => self.failed(&failure),
            }
        }
        self.work_ahead(now);
    }

    /// Tells that something was received, so that no work ahead gets in its way.
    pub fn received(&mut self) {
        self.received_at = self.board.now();
    }

    /// Does one step of the work that a later commit would have to wait for (K3).
    fn work_ahead(&mut self, now: TimeMs) {
        let is_quiet = now.as_ms() >= self.received_at.as_ms().saturating_add(QUIET_MS);
        let lapses = self.board.deadlines().any_lapses(now, erased_at::<B>(now, 1));
        if !self.has_work || !self.state.is_open() || !is_quiet || lapses {
            return;
        }
        match self.ledger.journal().maintain() {
            Ok(did) => self.has_work = did,
            Err(error) => self.enter(match error {
                CommitError::Unknown => State::Closed(Closed::Unknown),
                CommitError::Refused(refused) => after_refusal(refused, self.state),
            }),
        }
    }

    /// Looks at every output's claim again, and whether there is room.
    fn follow(&mut self) {
        if !self.state.is_open() {
            return;
        }
        let mut until = [None; OUTPUTS_MAX];
        let mut is_full = false;
        let ledger = self.ledger.id();
        let looked = self.ledger.step(|step, now| {
            for (slot, output) in until.iter_mut().zip(B::OUTPUTS) {
                *slot = authority::until(step, output.follows, ledger, now)?;
            }
            is_full = !has_room(step)?;
            Ok(Ok(()))
        });
        match looked {
            Ok(_) => {
                self.enter(if is_full { State::Full } else { State::Ready });
                for (output, until) in until.into_iter().enumerate().take(B::OUTPUTS.len()) {
                    self.drive(output, until);
                }
                self.board.apply_outputs();
            }
            Err(failure) => self.failed(&failure),
        }
    }

    fn drive(&self, output: usize, until: Option<TimeMs>) {
        let before = self.board.deadlines().until(output);
        if before != until {
            self.board.deadlines().set(output, until);
            let name = B::OUTPUTS.get(output).map_or("", |output| output.name);
            self.board.note(Note::Output(name, until.map(TimeMs::as_ms)));
        }
    }

    /// What a failure of the ledger means for the state.
    fn failed(&mut self, failure: &Failure<Error>) {
        let state = match failure {
            Failure::Unknown(_) => State::Closed(Closed::Unknown),
            Failure::Corrupt(_) => State::Closed(Closed::Damaged),
            Failure::Store(error) => match error {
                Error::NameTooLong | Error::ContentTooLong | Error::TooMuch => self.state,
                Error::Unknown => State::Closed(Closed::Unknown),
                Error::Refused(refused) => after_refusal(*refused, self.state),
                Error::Mount(error) => after_mount(*error),
                Error::Settle(error) => after_settle(*error),
            },
        };
        self.enter(state);
    }

    /// Enters a state. Outputs are safe before it is told to anybody (K4).
    fn enter(&mut self, state: State) {
        if !state.is_open() {
            self.board.deadlines().give_up_all();
            self.board.apply_outputs();
        }
        if state == State::Closed(Closed::Unknown) {
            let wait = REMOUNT_MS << self.remounts.min(REMOUNTS_MAX);
            let due = self.board.now().as_ms().saturating_add(wait);
            self.remount_at = TimeMs::new(due).unwrap_or(TimeMs::MAX);
        }
        if self.state != state {
            self.state = state;
            self.board.state_changed(state);
        }
    }
}

const fn after_mount(error: MountError) -> State {
    match error {
        MountError::Unprovisioned => State::Unprovisioned,
        MountError::Geometry(_) => State::Closed(Closed::Geometry),
        MountError::Unsupported { version } => State::Closed(Closed::Unsupported(version)),
        MountError::Damaged(_) => State::Closed(Closed::Damaged),
    }
}

const fn after_settle(error: SettleError) -> State {
    match error {
        SettleError::Worn => State::Worn,
        SettleError::Geometry(_) | SettleError::FloorTooHigh => State::Closed(Closed::Geometry),
        SettleError::NotMounted | SettleError::Unknown => State::Closed(Closed::Unknown),
        SettleError::Provisioned => State::Closed(Closed::Damaged),
    }
}

/// A fresh process identity: a version 4 UUID.
fn fresh_process<B: Board>(board: B) -> ProcessId {
    let mut bytes = [0; 16];
    board.random(&mut bytes);
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut bytes;
    *version = *version & 0x0f | 0x40;
    *variant = *variant & 0x3f | 0x80;
    ProcessId::from_bytes(bytes)
}

/// The state after the journal refused a commit in the state `before`. One that the flash refused twice says nothing yet of
/// the rest of it: the region is mounted again, and that tells whether too few pages are left.
const fn after_refusal(refused: Refused, before: State) -> State {
    match refused {
        Refused::Closed | Refused::Worn => State::Closed(Closed::Unknown),
        Refused::Damaged(_) => State::Closed(Closed::Damaged),
        Refused::TooLarge | Refused::BadKey | Refused::TokenExhausted | Refused::Full => before,
    }
}

/// Whether there is room for a new row of any kind.
fn has_room<S>(step: &mut S) -> Result<bool, Failure<S::Error>>
where
    S: Table<ActorLease> + Table<Assignment> + Table<Message> + Table<HostLease> + Table<Session> + Table<Gate>,
{
    // Whether there is room does not depend on the name, as long as it is short.
    let Ok(name) = Name::new("x") else {
        return Ok(false);
    };
    Ok(Table::<Session>::room_for(step, &name)?.is_ok()
        || Table::<Message>::room_for(step, &name)?.is_ok()
        || Table::<Assignment>::room_for(step, &name)?.is_ok()
        || Table::<ActorLease>::room_for(step, &name)?.is_ok()
        || Table::<HostLease>::room_for(step, &name)?.is_ok()
        || Table::<Gate>::room_for(step, &name)?.is_ok())
}
