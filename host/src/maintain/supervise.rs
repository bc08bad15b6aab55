//! One look of the supervisor. It only tidies and reports: correctness never needs it.

use keyfence_core::refusal::Holder;
use keyfence_core::store::Failure;
use keyfence_core::{Name, TimeMs, attempt, mailbox};
use rusqlite::{Connection, params};

use crate::call::Call;
use crate::error::{Error, Outcome};
use crate::ledger::Ledger;
use crate::store::lock::Deadline;
use crate::store::step::candidates::next_recipient_with_lapsed;
use crate::store::step::cells::Cells;
use crate::store::step::rows::number_of;
use keyfence_core::store::Place;

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
}

impl Call<'_> {
    /// One look of the supervisor: sweeps lapsed claims on messages, closes assignments whose attempt is not live as FAILED
    /// `worker_lost`, and reports lapsed leases. It creates no work, never guesses success and never retries.
    ///
    /// It works in many small transactions and ends at the call's deadline at the latest; the next look goes on where this
    /// one ended. What it did until an error stays done. Never a replay.
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
        let name = Name::new(&recipient).map_err(|_| Error::Damaged {
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
                break;
            }
        }
        after = recipient;
    }
    Ok(())
}

fn close_lost(ledger: &Ledger, deadline: Deadline, tick: &mut Tick) -> Result<(), Error> {
    while !deadline.has_passed() {
        let mut closed = Vec::new();
        let decision = ledger.write(deadline.remaining(), |step, now| {
            attempt::close_all_lost(step, AT_ONCE, now, |assignment| closed.push(assignment.clone()))
        })?;
        // It never refuses.
        let count = decision.unwrap_or_default();
        tick.closed_count += count as u64;
        let room = LISTED.saturating_sub(tick.closed.len());
        tick.closed.extend(closed.into_iter().take(room));
        if count < AT_ONCE {
            break;
        }
    }
    Ok(())
}

/// The tables of leases: their word, their name's column, their holder's column.
const LEASES: [(&str, &str, &str); 3] = [
    ("actor", "keyfence_actor", "name"),
    ("host", "keyfence_host", "name"),
    ("session", "keyfence_session", "host"),
];

fn lapsed_leases(connection: &Connection, now: TimeMs, tick: &mut Tick) -> Result<(), Error> {
    for (kind, table, holder) in LEASES {
        let count: i64 = connection
            .prepare_cached(&format!("SELECT count(*) FROM {table} WHERE expires_at_ms <= ?1"))?
            .query_row([number_of(now.as_ms())], |row| row.get(0))?;
        tick.lapsed_count += count.cast_unsigned();
        let room = LISTED.saturating_sub(tick.lapsed.len());
        let mut statement = connection.prepare_cached(&format!(
            "SELECT name, {holder}, process, expires_at_ms FROM {table} WHERE expires_at_ms <= ?1 ORDER BY number LIMIT ?2"
        ))?;
        let mut rows = statement.query(params![number_of(now.as_ms()), i64::try_from(room).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            tick.lapsed.push(lapsed(&Cells::new(row, Place::Actor, 0), kind)?);
        }
    }
    Ok(())
}

fn lapsed(cells: &Cells<'_>, kind: &'static str) -> Result<Lapsed, Failure<Error>> {
    Ok(Lapsed {
        kind,
        name: cells.name(0)?,
        holder: Holder {
            name: cells.name(1)?,
            process: cells.opt_process(2)?,
        },
        expired_at: cells.time(3)?,
    })
}
