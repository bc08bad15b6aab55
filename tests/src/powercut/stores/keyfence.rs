//! keyfence's own journal, at the level of its records: the same 64-byte rows that the peers keep.
//!
//! The store over it, with the machines of the contract, takes this place when it can be mounted.

use keyfence_firmware::journal::{
    CommitError, Existing, Journal, Law, MountError, Policy, ReadError, Record, Refused, SettleError,
};

use crate::flash::{SharedChip, SimFlash};
use crate::powercut::life::{Change, Key, Row, Rows, Verb};
use crate::powercut::{Failure, Mounted, Store, Subject};

pub(super) const STORE: Store = Store {
    name: "keyfence",
    about: "keyfence's journal: a 64-byte row in each frame, tokens in blocks of 64",
    renews_in_ram: true,
    // The live rows take two pages of the tiny chips, and two more are never part of the room.
    pages: |geometry| {
        Some(if ROWS_TAKE_TWO_PAGES.contains(&geometry.name) {
            5
        } else {
            4
        })
    },
    build: build::<Law>,
};

/// Where the live rows need more than four pages.
const ROWS_TAKE_TWO_PAGES: [&str; 4] = ["tiny-1", "tiny-4", "tiny-8", "tiny-32"];
/// Tokens reserved at a time.
const BLOCK: u32 = 64;
const PAGES: usize = 8;
const KEYS: usize = 32;
/// The keys of messages begin here, those of sessions at 0.
const MESSAGES: u8 = 16;
/// Which ledger this is: any number.
const INSTANCE: u32 = 0x6b66;

struct OnJournal<const WRITE: usize, const ERASE: usize, const FRAME: usize, P> {
    journal: Journal<SimFlash<WRITE, ERASE>, PAGES, KEYS, FRAME, P>,
}

/// Puts the journal, with the safeguards of `P`, on a chip.
pub(crate) fn build<P: Policy + 'static>(chip: &SharedChip) -> Box<dyn Subject> {
    // A page has room for a boot frame and a frame of the largest size: small pages, small frames.
    let geometry = chip.borrow().geometry();
    match (geometry.write_size_bytes, geometry.erase_size_bytes) {
        (4, 1024) => on::<4, 1024, 256, P>(chip),
        (4, 4096) => on::<4, 4096, 256, P>(chip),
        (1, 4096) => on::<1, 4096, 256, P>(chip),
        (8, 2048) => on::<8, 2048, 256, P>(chip),
        (32, 131_072) => on::<32, 131_072, 256, P>(chip),
        (1, 512) => on::<1, 512, 144, P>(chip),
        (4, 512) => on::<4, 512, 144, P>(chip),
        (8, 512) => on::<8, 512, 144, P>(chip),
        (32, 1024) => on::<32, 1024, 160, P>(chip),
        sizes => panic!("a geometry with other sizes: {sizes:?}"),
    }
}

fn on<const WRITE: usize, const ERASE: usize, const FRAME: usize, P: Policy + 'static>(
    chip: &SharedChip,
) -> Box<dyn Subject> {
    let size = chip.borrow().image().size_bytes() as u32;
    let flash = SimFlash::<WRITE, ERASE>::on(chip.clone());
    Box::new(OnJournal::<WRITE, ERASE, FRAME, P> {
        journal: Journal::new(flash, 0..size, BLOCK),
    })
}

impl<const WRITE: usize, const ERASE: usize, const FRAME: usize, P: Policy> Subject
    for OnJournal<WRITE, ERASE, FRAME, P>
{
    fn provision(&mut self) -> Result<(), Failure> {
        self.journal.provision(INSTANCE, 0, Existing::Refuse).map_err(unsettled)
    }

    fn mount(&mut self) -> Result<Mounted, Failure> {
        self.journal.mount().map_err(unmounted)?;
        let report = self.journal.settle(0).map_err(unsettled)?;
        Ok(Mounted {
            counter: report.limit,
            reserved: report.limit,
        })
    }

    fn perform(&mut self, _: Verb, change: &Change) -> Result<Option<u64>, Failure> {
        // The row holds the token that its own commit draws.
        let token = change.mints.then(|| self.journal.last_token() + 1);
        let value = change.after.map(|row| {
            Row {
                token: token.unwrap_or(row.token),
                ..row
            }
            .encode()
        });
        let record = change.key.map(|key| Record {
            key: number(key),
            value: value.as_ref().map_or(&[], |value| &value[..]),
        });
        let committed = self.journal.commit(record.as_slice(), token.is_some().into());
        let committed = committed.map_err(uncommitted)?;
        assert!(
            token.is_none_or(|token| token == committed.first_token),
            "another token was drawn"
        );
        Ok(token)
    }

    fn rows(&mut self, keys: &[Key]) -> Result<Rows, Failure> {
        let mut rows = Rows::new();
        for key in keys {
            if let Some(value) = self.journal.get(number(*key)).map_err(unread)? {
                let row = Row::decode(*key, value).ok_or_else(|| Failure::Corrupt(format!("the row of {key:?}")))?;
                rows.insert(*key, row);
            }
        }
        Ok(rows)
    }

    fn reserved(&self) -> u64 {
        self.journal.report().map_or(0, |report| report.limit)
    }

    fn reservation(&self) -> u64 {
        BLOCK.into()
    }
}

const fn number(key: Key) -> u8 {
    match key {
        Key::Session(n) => n,
        Key::Message(n) => MESSAGES + n,
    }
}

fn unmounted(error: MountError) -> Failure {
    Failure::Corrupt(format!("{error:?}"))
}

fn unsettled(error: SettleError) -> Failure {
    Failure::Other(format!("{error:?}"))
}

fn uncommitted(error: CommitError) -> Failure {
    match error {
        CommitError::Refused(Refused::Full) => Failure::Full(format!("{error:?}")),
        CommitError::Refused(Refused::Damaged(_)) => Failure::Corrupt(format!("{error:?}")),
        CommitError::Refused(_) | CommitError::Unknown => Failure::Other(format!("{error:?}")),
    }
}

fn unread(error: ReadError) -> Failure {
    Failure::Corrupt(format!("{error:?}"))
}
