//! Restoring a backup: into the existing ledger, under its lock, through SQLite's own means.
//!
//! * **R1.** Nothing that was granted before the restore is current after it: every claim is voided, and the counter is
//!   lifted above everything that can have been handed out.
//! * **R2.** The ledger changes in one transaction, from what it was to what it will be. All preparation is done in a file
//!   of its own beside it; interrupted at any point, the ledger is as before or as after.
//! * **R3.** No name starts again at incarnation 1, not even one that the backup does not know.
//! * **R4.** What the replaced ledger had finished stays finished, if it can be read ([`super::salvage`]).

mod replaced;

use std::fs;
use std::path::{Path, PathBuf};

use keyfence_core::attempt::CloseLost;
use keyfence_core::event::{self, Event, EventKind};
use keyfence_core::lease::Revoked;
use keyfence_core::refusal::Holder;
use keyfence_core::session::{Claim, Session, SessionState};
use keyfence_core::store::{Failure, Place, Table as _, Transaction as _};
use keyfence_core::{Incarnation, LedgerId, Name, Reason, Refusal, Token, actor, attempt, host, mailbox};
use rusqlite::Connection;

use super::backup::{Pages, copy_database, of_backup, open_plain};
use super::doctor::soundness;
use super::prune::{granted, subject_of};
use super::salvage::{self, Carried};
use super::{Progress, Stage};
use crate::clock::{Clock as _, SystemClock};
use crate::error::{Error, Outcome};
use crate::ledger::{Options, decided, told};
use crate::store::connection::{Hooks, Identity, Owner, Source, settle};
use crate::store::location::{self, Standing};
use crate::store::lock::{Deadline, WriteLock};
use crate::store::step::cells::corrupt;
use crate::store::step::head::Head;
use crate::store::step::{SqliteStep, Texts, failed};
use replaced::{Replaced, is_unreadable, keep_aside};

/// How far incarnations jump, so that they pass all that were claimed since the backup.
const INCARNATIONS: u64 = 1_000_000;

/// How many claims are looked up at a time.
const AT_ONCE: i64 = 200;

/// What became of the replaced ledger's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The replaced ledger was readable: what it had finished was kept, what it had begun since the backup was not.
    Readable {
        /// How many terminal rows were carried over that the backup did not have.
        kept_rows: u64,
        /// Rows that were damaged and are not carried over, and where the file is kept that they are in.
        damaged: Option<DamagedRows>,
        /// What is gone.
        dropped: Dropped,
    },
    /// The replaced ledger could not be read: what it had done since the backup is lost.
    Unreadable {
        /// Why it could not be read, and where it is kept.
        why: String,
    },
    /// There was no ledger to replace.
    NothingReplaced,
}

/// Rows of a replaced ledger that are not as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRows {
    /// How many messages, assignments and sessions.
    pub rows: u64,
    /// A copy of the replaced file.
    pub kept_as: PathBuf,
}

/// What a replaced ledger had and the restored one has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Messages, assignments and sessions that were new since the backup and not finished.
    pub rows: u64,
    /// Events since the backup.
    pub events: u64,
}

/// What a restore did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The ledger: always that of the backup, wherever it was restored to.
    pub ledger: LedgerId,
    /// Every token from now on lies above this one.
    pub floor: Token,
    /// How many claims were voided.
    pub voided: u64,
    /// What became of the replaced ledger's work.
    pub lost: Lost,
}

/// Restores a backup into the ledger at `ledger`, which need not be there and need not be readable. Every claim is voided:
/// leases and hosts are gone, attempts closed as `worker_lost`, CLAIMED messages NEW again at no cost, open sessions lapsed
/// with their incarnation 1,000,000 higher. The counter is lifted above the greatest of: the backup's, the replaced
/// ledger's where readable, `above`, and the seconds since 1970 times 2^20. Request ids do not survive.
///
/// The ledger keeps its identity, at another path too: it is the same ledger, so that its gates go on. Two of one identity
/// must never both be worked with; whoever restores at a second path gives the first one up.
///
/// Others wait for the ledger's lock meanwhile. Interrupted, it has changed nothing or everything.
///
/// # Errors
/// [`Error::Backup`] with what is wrong with the backup; [`Error::OtherLedger`]; [`Error::Misuse`] when it
/// is the ledger itself; [`Error::NotALedger`] when `ledger` is something else, which is left alone; [`Error::Busy`]; other
/// [`Error`]s. Then the ledger is as it was. Refuses with [`Reason::TokenExhausted`] where no token would be left.
pub fn restore(
    ledger: &Path,
    backup: &Path,
    above: Option<Token>,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Outcome<Restored> {
    look_at_both(ledger, backup, options)?;
    location::create_folder(ledger)?;
    let lock = WriteLock::new(ledger, true);
    let deadline = Deadline::after(options.timeout);
    let _turn = lock.acquire(deadline)?;
    let named = |error| told(&lock, deadline, error);

    let draft = Draft::beside(ledger)?;
    let connection = draft.fill(backup, deadline, progress)?;
    let replaced = Replaced::look(ledger, deadline).map_err(named)?;
    let before = Head::read(&connection)?;
    if let Some(head) = replaced.head()
        && head.ledger != before.ledger
    {
        return Err(Error::OtherLedger {
            path: backup.to_owned(),
            of: before.ledger,
            instead_of: head.ledger,
        });
    }
    let Some(floor) = floor(&before, replaced.head(), above) else {
        return Ok(Err(Refusal::new(Reason::TokenExhausted)));
    };
    let plan = Plan {
        floor,
        incarnations: incarnations(&connection, &before, &replaced)?,
        ledger: before.ledger,
    };
    let (voided, carried) = plan.carry_out(&connection, options, &replaced, progress)?;
    let lost = match &replaced {
        Replaced::Nothing => Lost::NothingReplaced,
        Replaced::Readable(old) => Lost::Readable {
            kept_rows: carried.kept,
            damaged: old.2.clone(),
            dropped: Dropped {
                rows: carried.dropped,
                events: old.1.event_seq.saturating_sub(before.event_seq),
            },
        },
        Replaced::Unreadable(why) => Lost::Unreadable {
            why: format!("{why}; the file is kept as {}", keep_aside(ledger)?.display()),
        },
    };
    install(&connection, ledger, replaced, deadline, progress).map_err(named)?;
    Ok(Ok(Restored {
        ledger: plan.ledger,
        floor: plan.floor,
        voided,
        lost,
    }))
}

/// Refuses what can be refused before anything is made: what is at both paths, and whether it may be replaced.
fn look_at_both(ledger: &Path, backup: &Path, options: &Options) -> Result<(), Error> {
    if location::standing(backup).map_err(|error| of_backup(backup, error))? == Standing::Nothing {
        let path = backup.to_owned();
        return Err(of_backup(backup, Error::LedgerMissing { path }));
    }
    if location::is_same_file(ledger, backup) {
        return Err(Error::Misuse {
            what: format!("{} is the ledger itself, and no backup of it", backup.display()),
        });
    }
    let standing = location::standing(ledger)?;
    if !options.allow_unsafe_location {
        location::check(ledger)?;
    }
    if standing == Standing::File {
        let hooks = Hooks::default();
        hooks.patience.set(Some(Deadline::after(options.timeout)));
        let source = Source::new(ledger, Owner::Keyfence, true);
        let identified = source
            .connect_to_read(&hooks)
            .and_then(|reader| source.identify(&reader.connection));
        match identified {
            Ok(Identity::Empty | Identity::Ledger { .. }) => {}
            Err(error) => is_unreadable(ledger, error).map(drop)?,
        }
    }
    location::bar_to_writing(ledger).map_or(Ok(()), Err)
}

/// The file beside the ledger in which the restore is prepared; gone when it is dropped.
struct Draft(PathBuf);

impl Draft {
    /// An empty one; what an interrupted restore left is removed.
    fn beside(ledger: &Path) -> Result<Self, Error> {
        let mut path = ledger.as_os_str().to_owned();
        path.push("-restoring");
        let draft = Self(path.into());
        draft.remove();
        location::create_file(&draft.0)?;
        Ok(draft)
    }

    fn remove(&self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut path = self.0.as_os_str().to_owned();
            path.push(suffix);
            // What is not there need not go; what cannot go is found by the creation that follows.
            drop(fs::remove_file(path));
        }
    }

    /// Copies the backup into it, brings it to the newest schema and looks for damage.
    fn fill(&self, backup: &Path, deadline: Deadline, progress: &mut dyn FnMut(Progress)) -> Result<Connection, Error> {
        let mut read = || {
            let hooks = Hooks::default();
            hooks.patience.set(Some(deadline));
            let reader = Source::new(backup, Owner::Keyfence, true).connect_to_read(&hooks)?;
            let mut copy = open_plain(&self.0, Pages::Kept)?;
            reader.read(|source| copy_database(source, &mut copy, "reading the backup", deadline, progress))
        };
        read().map_err(|error| of_backup(backup, error))?;
        let source = Source::new(&self.0, Owner::Keyfence, false);
        let mut connection = source.connect(&Hooks::default())?;
        source
            .check_is_ledger(&connection)
            .and_then(|()| source.prepare(&mut connection))
            .and_then(|()| soundness(&connection, progress))
            .map_err(|error| of_backup(backup, error))?;
        Ok(connection)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The token that all later ones lie above; `None` where no later one would be left.
fn floor(backup: &Head, replaced: Option<&Head>, above: Option<Token>) -> Option<Token> {
    let seconds = SystemClock.now().as_ms() / 1_000;
    let by_time = seconds.checked_mul(1 << 20).and_then(Token::presented);
    let floor = [
        backup.last_token,
        replaced.and_then(|head| head.last_token),
        above,
        by_time,
    ]
    .into_iter()
    .flatten()
    .max()
    .map_or(Some(Token::FIRST), Token::successor)?;
    floor.successor().map(|_| floor)
}

/// The greatest incarnation that the ledgers know, and 1,000,000 more: no new session starts below it (R3).
fn incarnations(backup: &Connection, head: &Head, replaced: &Replaced) -> Result<Option<Incarnation>, Error> {
    let greatest = |connection: &Connection| -> Result<Option<Incarnation>, Error> {
        let greatest: Option<i64> =
            connection.query_row("SELECT max(incarnation) FROM keyfence_session", [], |row| row.get(0))?;
        Ok(greatest.map(i64::cast_unsigned).and_then(Incarnation::presented))
    };
    let mut floor = greatest(backup)?.max(head.incarnation_floor);
    if let Replaced::Readable(old) = replaced {
        let (connection, head, _) = &**old;
        floor = floor
            .max(salvage::greatest_incarnation(connection)?)
            .max(head.incarnation_floor);
    }
    Ok(floor.unwrap_or(Incarnation::FIRST).advanced(INCARNATIONS))
}

/// What is to be done to the copy of the backup before it becomes the ledger.
struct Plan {
    ledger: LedgerId,
    floor: Token,
    incarnations: Option<Incarnation>,
}

impl Plan {
    /// Voids, carries over and lifts, in one transaction of the draft's. Returns how many claims were voided, and what was
    /// carried over.
    fn carry_out(
        &self,
        draft: &Connection,
        options: &Options,
        replaced: &Replaced,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(u64, Carried), Error> {
        draft.execute_batch("BEGIN IMMEDIATE")?;
        let subject = subject_of(self.ledger)?;
        let ended = decided(draft, options.clock.now(), |step, now| {
            step.with_texts(Texts::noted("restored"), |step| {
                step.connection()
                    .execute("DELETE FROM keyfence_request", [])
                    .map_err(failed)?;
                let mut stage = Stage::begin(progress, "voiding claims", 0);
                let voided = void_all(step, &mut stage)?;
                stage.end();
                let carried = match replaced {
                    Replaced::Readable(old) => {
                        let mut stage = Stage::begin(progress, "keeping what was finished", 0);
                        let carried = salvage::carry_over(step, &old.0, &mut stage)?;
                        stage.end();
                        carried
                    }
                    Replaced::Nothing | Replaced::Unreadable(_) => Carried::default(),
                };
                step.lift(self.floor, self.incarnations);
                step.append(&Event {
                    token: Some(self.floor),
                    ..Event::new(now, EventKind::LedgerRestored, &subject)
                })?;
                Ok(Ok((voided, carried)))
            })
        });
        granted(ended.answer)
    }
}

/// Voids every claim (R1).
fn void_all(step: &mut SqliteStep<'_>, stage: &mut Stage<'_>) -> Result<u64, Failure<Error>> {
    let now = step.now();
    let mut voided = 0;
    // Leases go first: then no attempt is live.
    voided += each(
        step,
        stage,
        "SELECT number, name FROM keyfence_actor WHERE number > ?1 AND token IS NOT NULL ORDER BY number LIMIT ?2",
        |step, name| Ok(matches!(actor::revoke(step, name, now)?, Ok(Revoked::Claim(..)))),
    )?;
    voided += each(
        step,
        stage,
        "SELECT number, name FROM keyfence_host WHERE number > ?1 AND token IS NOT NULL ORDER BY number LIMIT ?2",
        |step, name| Ok(matches!(host::revoke(step, name, now)?, Ok(Revoked::Claim(..)))),
    )?;
    voided += each(
        step,
        stage,
        "SELECT number, id FROM keyfence_assignment WHERE number > ?1 AND state = 1 ORDER BY number LIMIT ?2",
        |step, id| Ok(attempt::close_lost(step, id, now)? == Ok(CloseLost::Closed)),
    )?;
    voided += each(
        step,
        stage,
        "SELECT number, id FROM keyfence_message WHERE number > ?1 AND state = 1 ORDER BY number LIMIT ?2",
        |step, id| Ok(matches!(mailbox::revoke(step, id, now)?, Ok(Revoked::Claim(..)))),
    )?;
    voided += each(
        step,
        stage,
        "SELECT number, name FROM keyfence_session WHERE number > ?1 AND state IN (0, 1) ORDER BY number LIMIT ?2",
        lapse_session,
    )?;
    Ok(voided)
}

/// Calls `act` for each row that `sql` finds: by number after ?1, ?2 at a time. Counts those that it says were claims.
fn each(
    step: &mut SqliteStep<'_>,
    stage: &mut Stage<'_>,
    sql: &str,
    mut act: impl FnMut(&mut SqliteStep<'_>, &Name) -> Result<bool, Failure<Error>>,
) -> Result<u64, Failure<Error>> {
    let (mut after, mut claims) = (0, 0);
    loop {
        let batch: Vec<(i64, String)> = {
            let mut statement = step.connection().prepare_cached(sql).map_err(failed)?;
            let rows = statement
                .query_map([after, AT_ONCE], |row| Ok((row.get(0)?, row.get(1)?)))
                .map_err(failed)?;
            rows.collect::<Result<_, _>>().map_err(failed)?
        };
        let Some((last, _)) = batch.last() else {
            return Ok(claims);
        };
        after = *last;
        for (_, key) in &batch {
            let name = Name::new(key).map_err(|_| corrupt(Place::History, None, "a name breaks the rules of names"))?;
            claims += u64::from(act(step, &name)?);
            stage.advance(1);
        }
    }
}

/// Lapses an open session, 1,000,000 incarnations on.
fn lapse_session(step: &mut SqliteStep<'_>, name: &Name) -> Result<bool, Failure<Error>> {
    let Some(row): Option<Session> = step.get(name)? else {
        return Ok(false);
    };
    let (incarnation, claim) = match &row.state {
        SessionState::Claimed(claim) => (claim.generation.incarnation, Some(claim)),
        SessionState::Free { incarnation, .. } => (*incarnation, None),
        SessionState::Finished(..) | SessionState::Pruned => return Ok(false),
    };
    let incarnation = incarnation
        .advanced(INCARNATIONS)
        .ok_or_else(|| corrupt(Place::Session, Some(name.as_str()), "its incarnations are used up"))?;
    let free = Session {
        name: name.clone(),
        state: SessionState::Free {
            incarnation,
            released: None,
        },
    };
    step.put(Some(&row), &free)?;
    step.append(&Event {
        incarnation: Some(incarnation),
        replaced: claim.map(replaced_by),
        ..Event::new(step.now(), EventKind::SessionRevoked, name)
    })?;
    Ok(claim.is_some())
}

fn replaced_by(claim: &Claim) -> event::Replaced {
    event::Replaced {
        holder: Holder {
            name: claim.generation.host.clone(),
            process: Some(claim.process),
        },
        token: claim.generation.token,
        expiry: claim.expiry,
    }
}

/// Makes the ledger what the draft is, in one transaction of the ledger's own file (R2).
fn install(
    draft: &Connection,
    ledger: &Path,
    replaced: Replaced,
    deadline: Deadline,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let mut target = match replaced {
        Replaced::Readable(old) => old.0,
        Replaced::Nothing => {
            location::create_file(ledger)?;
            open_plain(ledger, Pages::Kept)?
        }
        Replaced::Unreadable(_) => open_plain(ledger, Pages::Ignored)?,
    };
    copy_database(draft, &mut target, "restoring", deadline, progress)?;
    target.close().map_err(|(_, error)| error)?;
    // Opened as every ledger is: durable, and read again.
    let source = Source::new(ledger, Owner::Keyfence, false);
    let hooks = Hooks::default();
    hooks.patience.set(Some(deadline));
    let mut connection = source.connect(&hooks)?;
    source.check_is_ledger(&connection)?;
    source.prepare(&mut connection)?;
    settle(&connection)?;
    Head::read(&connection)?;
    location::sync_folder_of(ledger)
}
