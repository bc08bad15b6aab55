//! One look of the supervisor. It only tidies and reports: correctness never needs it.

use keyfence_core::actor::{Actor, ActorLease};
use keyfence_core::attempt::CloseLost;
use keyfence_core::host::{Host, HostLease};
use keyfence_core::lease::{Kind, Lease};
use keyfence_core::refusal::Holder;
use keyfence_core::session::{Session, SessionState};
use keyfence_core::store::{Failure, Place};
use keyfence_core::{Expiry, Name, TimeMs, attempt, mailbox};
use rusqlite::{Connection, Row, params};

use crate::call::Call;
use crate::error::{Error, Outcome};
use crate::ledger::Ledger;
use crate::store::lock::Deadline;
use crate::store::step::candidates::next_recipient_with_lapsed;
use crate::store::step::cells::corrupt;
use crate::store::step::lease::{self, Tabled as _};
use crate::store::step::rows::{Stored, number_of, query_one};
use crate::store::step::session;

/// How many rows one transaction of the supervisor changes at most, so that workers need not wait for it.
const AT_ONCE: usize = 64;

/// How many names a tick lists.
const LISTED: usize = 100;

/// A lease that lapsed and that nobody released or took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lapsed {
    /// Of which kind: `actor`, `host` or `session`.
    pub kind: &'static str,
    /// The actor, host or session.
    pub name: Name,
    /// Who held it.
    pub holder: Holder,
    /// When it lapsed.
    pub expired_at: TimeMs,
}

/// What one look of the supervisor did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// How many lapsed claims on messages were swept to NEW or DEAD.
    pub swept: u64,
    /// The assignments that were closed as FAILED `worker_lost`; the first hundred.
    pub closed: Vec<Name>,
    /// How many there were.
    pub closed_count: u64,
    /// Lapsed leases, for reporting; the first hundred.
    pub lapsed: Vec<Lapsed>,
    /// How many there are.
    pub lapsed_count: u64,
    /// What was met that is not as it was written, and was left alone; the first hundred.
    pub damaged: Vec<Damage>,
}

/// A row that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Which one.
    pub place: String,
    /// What is wrong with it.
    pub why: String,
}

impl From<Damage> for Error {
    fn from(Damage { place, why }: Damage) -> Self {
        Self::Damaged { place, why }
    }
}

impl Tick {
    /// Notes damage and goes on; what else went wrong ends the look.
    fn note(&mut self, error: Error) -> Result<(), Error> {
        let Error::Damaged { place, why } = error else {
            return Err(error);
        };
        let damage = Damage { place, why };
        if self.damaged.len() < LISTED && !self.damaged.contains(&damage) {
            self.damaged.push(damage);
        }
        Ok(())
    }
}

impl Call<'_> {
    /// One look of the supervisor: sweeps lapsed claims on messages, closes assignments whose attempt is not live as FAILED
    /// `worker_lost`, and reports lapsed leases. It creates no work, never guesses success and never retries.
    ///
    /// It works in many small transactions and ends at the call's deadline at the latest; the next look goes on where this
    /// one ended. What it did until an error stays done. Damage does not end it: it is left alone, and told. Never a replay.
    ///
    /// # Errors
    /// [`Error`]. Never refuses.
    pub fn supervise_tick(&mut self) -> Outcome<Tick> {
        let deadline = Deadline::after(self.deadline());
        let ledger = self.ledger();
        let mut tick = Tick::default();
        sweep(ledger, deadline, &mut tick)?;
        close_lost(ledger, deadline, &mut tick)?;
        let now = ledger.now();
        ledger.read(|connection| lapsed_leases(connection, now, &mut tick))?;
        Ok(Ok(tick))
    }
}

fn sweep(ledger: &Ledger, deadline: Deadline, tick: &mut Tick) -> Result<(), Error> {
    let mut after = String::new();
    while !deadline.has_passed() {
        let now = ledger.now();
        let Some(recipient) = ledger.read(|connection| next_recipient_with_lapsed(connection, &after, now))? else {
            return Ok(());
        };
        match sweep_of(ledger, &recipient, deadline, tick) {
            Ok(()) => {}
            Err(error) => tick.note(error)?,
        }
        after = recipient;
    }
    Ok(())
}

/// Sweeps what lapsed of one recipient's.
fn sweep_of(ledger: &Ledger, recipient: &str, deadline: Deadline, tick: &mut Tick) -> Result<(), Error> {
    let name = Name::new(recipient).map_err(|_| Error::Damaged {
        place: format!("a message to `{recipient}`"),
        why: "its recipient breaks the rules of names".into(),
    })?;
    loop {
        let swept = ledger.write(deadline.remaining(), |step, now| {
            mailbox::sweep(step, Some(&name), AT_ONCE, now)
        })?;
        // A sweep never refuses.
        let swept = swept.unwrap_or_default();
        tick.swept += swept as u64;
        if swept < AT_ONCE || deadline.has_passed() {
            return Ok(());
        }
    }
}

fn close_lost(ledger: &Ledger, deadline: Deadline, tick: &mut Tick) -> Result<(), Error> {
    let mut after = 0;
    while !deadline.has_passed() {
        let now = ledger.now();
        let lost = ledger.read(|connection| lost_after(connection, after, now))?;
        let Some((last, _)) = lost.last() else {
            return Ok(());
        };
        after = *last;
        let ids: Vec<&str> = lost.iter().map(|(_, id)| id.as_str()).collect();
        match close(ledger, &ids, deadline, tick) {
            Ok(()) => {}
            // Each for itself: a damaged one must not keep the others from being closed.
            Err(Error::Damaged { .. }) => {
                for id in ids {
                    close(ledger, &[id], deadline, tick).or_else(|error| tick.note(error))?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The RUNNING assignments that may have lost their worker, by number; whether one has is decided where it is closed.
fn lost_after(connection: &Connection, after: i64, now: TimeMs) -> Result<Vec<(i64, String)>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT number, id FROM keyfence_assignment WHERE number > ?1 AND state = 1 AND (expires_at_ms <= ?2 \
         OR NOT EXISTS (SELECT 1 FROM keyfence_actor WHERE name = actor AND token = lease_token)) \
         ORDER BY number LIMIT ?3",
    )?;
    let rows = statement.query_map(
        params![after, number_of(now.as_ms()), number_of(AT_ONCE as u64)],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Closes those of them whose worker is lost, in one transaction.
fn close(ledger: &Ledger, ids: &[&str], deadline: Deadline, tick: &mut Tick) -> Result<(), Error> {
    let mut closed = Vec::new();
    let decision = ledger.write(deadline.remaining(), |step, now| {
        for id in ids {
            let name =
                Name::new(id).map_err(|_| corrupt(Place::Assignment, None, "a name breaks the rules of names"))?;
            if attempt::close_lost(step, &name, now)? == Ok(CloseLost::Closed) {
                closed.push(name);
            }
        }
        Ok(Ok(()))
    })?;
    // It never refuses.
    debug_assert!(decision.is_ok());
    tick.closed_count += closed.len() as u64;
    let room = LISTED.saturating_sub(tick.closed.len());
    tick.closed.extend(closed.into_iter().take(room));
    Ok(())
}

fn lapsed_leases(connection: &Connection, now: TimeMs, tick: &mut Tick) -> Result<(), Error> {
    look::<ActorLease>(connection, now, tick)?;
    look::<HostLease>(connection, now, tick)?;
    look::<Session>(connection, now, tick)
}

/// A row with a lease of its own.
trait Leased: Sized {
    const KIND: &'static str;
    const TABLE: &'static str;
    const ONE: &'static str;
    /// Reads a row, which verifies its check value.
    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>>;
    /// Who holds it, and until when.
    fn lease(&self) -> Option<(Holder, Expiry)>;
}

fn look<L: Leased>(connection: &Connection, now: TimeMs, tick: &mut Tick) -> Result<(), Error> {
    let table = L::TABLE;
    let at = number_of(now.as_ms());
    let count: i64 = connection
        .prepare_cached(&format!("SELECT count(*) FROM {table} WHERE expires_at_ms <= ?1"))?
        .query_row([at], |row| row.get(0))?;
    tick.lapsed_count += count.cast_unsigned();
    let room = i64::try_from(LISTED.saturating_sub(tick.lapsed.len())).unwrap_or(i64::MAX);
    let names: Vec<String> = connection
        .prepare_cached(&format!(
            "SELECT name FROM {table} WHERE expires_at_ms <= ?1 ORDER BY number LIMIT ?2"
        ))?
        .query_map(params![at, room], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for name in names {
        let stored = match query_one(connection, L::ONE, [&name], L::decode) {
            Ok(stored) => stored,
            Err(failure) => {
                tick.note(failure.into())?;
                continue;
            }
        };
        let lease = stored.as_ref().and_then(|stored| stored.row.lease());
        if let (Some((holder, expiry)), Ok(name)) = (lease, Name::new(&name))
            && let Some(expired_at) = expiry.time()
        {
            tick.lapsed.push(Lapsed {
                kind: L::KIND,
                name,
                holder,
                expired_at,
            });
        }
    }
    Ok(())
}

impl Leased for ActorLease {
    const KIND: &'static str = "actor";
    const TABLE: &'static str = "keyfence_actor";
    const ONE: &'static str = Actor::SQL.select;

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        lease::decode(row)
    }

    fn lease(&self) -> Option<(Holder, Expiry)> {
        lease_of(self)
    }
}

impl Leased for HostLease {
    const KIND: &'static str = "host";
    const TABLE: &'static str = "keyfence_host";
    const ONE: &'static str = Host::SQL.select;

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        lease::decode(row)
    }

    fn lease(&self) -> Option<(Holder, Expiry)> {
        lease_of(self)
    }
}

fn lease_of<K: Kind>(lease: &Lease<K>) -> Option<(Holder, Expiry)> {
    let held = lease.claim()?;
    let holder = Holder {
        name: lease.name.clone(),
        process: Some(held.process),
    };
    Some((holder, held.expiry))
}

impl Leased for Session {
    const KIND: &'static str = "session";
    const TABLE: &'static str = "keyfence_session";
    const ONE: &'static str = session::SELECT;

    fn decode(row: &Row<'_>) -> Result<Stored<Self>, Failure<Error>> {
        session::decode(row)
    }

    fn lease(&self) -> Option<(Holder, Expiry)> {
        match &self.state {
            SessionState::Claimed(claim) => {
                let holder = Holder {
                    name: claim.generation.host.clone(),
                    process: Some(claim.process),
                };
                Some((holder, claim.expiry))
            }
            SessionState::Free { .. } | SessionState::Finished(..) | SessionState::Pruned => None,
        }
    }
}
