//! What may be seen after a cut.
//!
//! - **O1** Each row is the last acknowledged one, or the one that the verb in flight was writing.
//! - **O2** The first token after a mount is greater than every token seen before, and at most one
//!   above the highest limit ever being reserved, to which a mount adds nothing. So no token is seen twice.
//! - **O3** A later mount never says less than an earlier one that answered: what was seen once is
//!   pinned, the verb in flight included.
//! - **O4** A mount does not fail, for nothing was damaged that a cut does not explain.
//! - **O5** The store is writable again.
//! - **O6** The store breaks no rule of the chip.

use super::life::{Change, Key, Model, Row, Rows, Verb};
use super::subject::{Failure, Mounted};
use crate::random;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The kind, for counting.
    pub kind: &'static str,
    /// What was expected and what was seen.
    pub detail: String,
}

const FAILED_CLOSED: &str = "failed_closed";
const NOT_WRITABLE: &str = "not_writable";

impl Violation {
    pub(super) fn new(kind: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }

    /// Whether it is no more than a store's own report that it could not do what it was asked.
    pub(super) fn is_a_report(&self) -> bool {
        matches!(self.kind, FAILED_CLOSED | NOT_WRITABLE)
    }

    /// A mount, or the reading of a row after it, that failed (O4).
    pub(super) fn failed_closed(failure: &Failure) -> Self {
        Self::new(FAILED_CLOSED, failure.to_string())
    }

    /// What a store does before its first verb, and failed with the power on (O5).
    pub(super) fn not_prepared(failure: &Failure) -> Self {
        Self::new(NOT_WRITABLE, format!("before the first verb: {failure}"))
    }

    /// A verb that failed with the power on (O5).
    pub(super) fn not_writable(verb: Verb, failure: &Failure) -> Self {
        Self::new(NOT_WRITABLE, format!("{verb:?}: {failure}"))
    }
}

/// Everything acknowledged so far, and what was in flight when the power went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Oracle {
    model: Model,
    in_flight: Option<Change>,
    /// The greatest token in any answer or row.
    token_seen: u64,
    /// The highest limit that can have been being reserved.
    limit: u64,
    /// The greatest token that the verb in flight may draw.
    ceiling: u64,
}

impl Oracle {
    /// The rows as they are known.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// Notes that `change` is being written, by a store that reserves `reservation` numbers at a
    /// time.
    pub fn begin(&mut self, change: Change, reservation: u64) {
        self.in_flight = Some(change);
        self.ceiling = self.limit + 1;
        if change.mints {
            self.limit += reservation;
        }
    }

    /// Notes the answer to the verb in flight.
    ///
    /// # Errors
    ///
    /// When the token breaks O2.
    pub fn acknowledge(&mut self, token: Option<u64>, reserved: u64) -> Result<(), Violation> {
        let Some(change) = self.in_flight.take() else {
            return Ok(());
        };
        match (change.mints, token) {
            (true, Some(token)) => {
                if token <= self.token_seen {
                    let detail = format!("minted {token} after {}", self.token_seen);
                    return Err(Violation::new("token_repeated", detail));
                }
                if token > self.ceiling {
                    let detail = format!("minted {token}, reserved {}", self.ceiling - 1);
                    return Err(Violation::new("token_beyond_limit", detail));
                }
                if reserved > self.limit {
                    let detail = format!("reserved {reserved}, at most {} were asked for", self.limit);
                    return Err(Violation::new("limit_jumped", detail));
                }
                self.token_seen = token;
                self.limit = reserved.max(token);
            }
            (true, None) => {
                return Err(Violation::new("no_token", "a claim was answered without a token"));
            }
            (false, _) => {}
        }
        if let Some(key) = change.key {
            let fresh = |row: Row| Row {
                token: token.unwrap_or(row.token),
                ..row
            };
            let after = change.after.map(|row| if change.mints { fresh(row) } else { row });
            self.model.set(key, after);
        }
        Ok(())
    }

    /// Judges what a mount says, then pins it (O3).
    ///
    /// # Errors
    ///
    /// When it breaks O1 or O2.
    pub fn judge(&mut self, mounted: Mounted, keys: &[Key], rows: &Rows) -> Result<(), Violation> {
        for key in keys {
            let (known, seen) = (self.model.rows.get(key), rows.get(key));
            if known == seen {
                continue;
            }
            if !self.explains(*key, seen) {
                return Err(self.blame(*key, known, seen));
            }
            self.model.set(*key, seen.copied());
        }
        if mounted.counter < self.token_seen {
            let detail = format!("counter {} after token {}", mounted.counter, self.token_seen);
            return Err(Violation::new("counter_went_back", detail));
        }
        if mounted.counter.max(mounted.reserved) > self.limit {
            let detail = format!("counter {mounted:?}, never reserved above {}", self.limit);
            return Err(Violation::new("limit_jumped", detail));
        }
        let newest = rows.values().map(|row| row.token).max().unwrap_or(0);
        self.token_seen = self.token_seen.max(newest);
        self.limit = mounted.reserved.max(mounted.counter).max(self.token_seen);
        self.model.reboot();
        self.in_flight = None;
        Ok(())
    }

    /// Whether the verb in flight explains that `key` now holds `seen`.
    fn explains(&self, key: Key, seen: Option<&Row>) -> bool {
        let Some(change) = self.in_flight.filter(|change| change.key == Some(key)) else {
            return false;
        };
        match (change.after, seen) {
            (None, None) => true,
            (Some(after), Some(seen)) if change.mints => {
                let fresh = seen.token > self.token_seen && seen.token <= self.ceiling;
                fresh
                    && Row {
                        token: after.token,
                        ..*seen
                    } == after
            }
            (Some(after), Some(seen)) => after == *seen,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn blame(&self, key: Key, known: Option<&Row>, seen: Option<&Row>) -> Violation {
        let kind = match (known, seen) {
            (Some(_), None) => "row_lost",
            (None, Some(_)) => "row_came_back",
            (Some(known), Some(seen)) if seen.incarnation < known.incarnation => "row_went_back",
            (Some(_), Some(_)) | (None, None) => "row_wrong",
        };
        let detail = format!(
            "{key:?}: known {known:?}, seen {seen:?}, in flight {:?}",
            self.in_flight
        );
        Violation::new(kind, detail)
    }

    /// A digest of everything known, so that equal images with equal pasts are tried once.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut sum = random::fold(random::fold(self.model.digest(), self.token_seen), self.limit);
        if let Some(change) = self.in_flight {
            sum = random::fold(sum, change.key.map_or(1, |key| key.number().into()));
            let after = change.after.map_or(2, |row| random::digest(&row.encode()));
            sum = random::fold(sum, after ^ u64::from(change.mints));
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::powercut::life::RowState;

    const KEY: Key = Key::Session(0);

    fn claimed() -> Oracle {
        let mut oracle = Oracle::default();
        let change = oracle.model().change(Verb::TakeOver { session: 0, host: 0 });
        oracle.begin(change, 1);
        oracle.acknowledge(Some(1), 1).unwrap();
        oracle
    }

    fn take_over(oracle: &mut Oracle) {
        let change = oracle.model().change(Verb::TakeOver { session: 0, host: 1 });
        oracle.begin(change, 1);
    }

    fn row(holder: u8, incarnation: u32, token: u64) -> Row {
        Row {
            key: KEY,
            state: RowState::Held,
            holder,
            incarnation,
            token,
        }
    }

    fn see(oracle: &mut Oracle, counter: u64, row: Option<Row>) -> Result<(), &'static str> {
        let rows = row.map(|row| (KEY, row)).into_iter().collect();
        let mounted = Mounted {
            counter,
            reserved: counter,
        };
        oracle.judge(mounted, &[KEY], &rows).map_err(|violation| violation.kind)
    }

    #[test]
    fn o1_old_and_new_are_both_allowed_and_nothing_else() {
        let cases = [
            (Some(row(0, 1, 1)), Ok(())),
            (Some(row(1, 2, 2)), Ok(())),
            (Some(row(1, 2, 1)), Err("row_wrong")),
            (Some(row(0, 2, 2)), Err("row_wrong")),
            (Some(row(1, 2, 3)), Err("row_wrong")),
            (None, Err("row_lost")),
        ];
        for (seen, expected) in cases {
            let mut oracle = claimed();
            take_over(&mut oracle);
            assert_eq!(see(&mut oracle, 2, seen), expected, "{seen:?}");
        }
    }

    #[test]
    fn o1_an_acknowledged_row_may_not_go_back() {
        let mut oracle = claimed();
        take_over(&mut oracle);
        oracle.acknowledge(Some(2), 2).unwrap();
        assert_eq!(see(&mut oracle.clone(), 2, Some(row(0, 1, 1))), Err("row_went_back"));
        assert_eq!(see(&mut oracle, 2, Some(row(1, 2, 2))), Ok(()));
    }

    #[test]
    fn o1_a_pruned_row_may_not_come_back() {
        let mut oracle = claimed();
        let change = oracle.model().change(Verb::Prune { key: KEY });
        oracle.begin(change, 1);
        oracle.acknowledge(None, 1).unwrap();
        assert_eq!(see(&mut oracle, 1, Some(row(0, 1, 1))), Err("row_came_back"));
    }

    #[test]
    fn o2_no_token_is_minted_twice_nor_beyond_the_limit() {
        for (token, expected) in [(1, Err("token_repeated")), (2, Ok(())), (3, Err("token_beyond_limit"))] {
            let mut oracle = claimed();
            take_over(&mut oracle);
            let got = oracle
                .acknowledge(Some(token), token)
                .map_err(|violation| violation.kind);
            assert_eq!(got, expected, "{token}");
        }
    }

    #[test]
    fn o2_the_counter_is_never_below_a_token_that_was_seen() {
        let mut oracle = claimed();
        assert_eq!(see(&mut oracle, 0, Some(row(0, 1, 1))), Err("counter_went_back"));
    }

    #[test]
    fn o2_a_mount_reserves_nothing() {
        assert_eq!(see(&mut claimed(), 2, Some(row(0, 1, 1))), Err("limit_jumped"));
        let mut oracle = claimed();
        take_over(&mut oracle);
        let beyond = oracle.acknowledge(Some(2), 3).map_err(|violation| violation.kind);
        assert_eq!(beyond, Err("limit_jumped"));
    }

    #[test]
    fn o3_what_one_mount_has_shown_the_next_one_shows() {
        for (first, second) in [(row(0, 1, 1), row(1, 2, 2)), (row(1, 2, 2), row(0, 1, 1))] {
            let mut oracle = claimed();
            take_over(&mut oracle);
            assert_eq!(see(&mut oracle, 2, Some(first)), Ok(()));
            assert!(see(&mut oracle.clone(), 2, Some(second)).is_err());
            assert_eq!(see(&mut oracle, 2, Some(first)), Ok(()));
        }
    }
}
