//! The journal under every power cut, on the bench of `powercut`: no violation with every safeguard
//! on, and violations with any one of them off.

use keyfence_firmware::journal::{
    CommitError, Existing, Journal, Law, MountError, Policy, Record, Refused, SettleError,
};
use keyfence_tests::flash::{Geometry, SharedChip, SimFlash};
use keyfence_tests::powercut::life::{Change, Key, Row, RowState, Rows, Verb};
use keyfence_tests::powercut::search::{self, Progress, Settings};
use keyfence_tests::powercut::{Failure, Mounted, Store, Subject};

/// Tokens reserved at a time.
const BLOCK: u32 = 8;
/// Keys of messages begin here, those of sessions at 0.
const MESSAGES: u8 = 16;

type Of<const WRITE: usize, const ERASE: usize, P> = Journal<SimFlash<WRITE, ERASE>, 8, 32, 256, P>;

struct OnJournal<const WRITE: usize, const ERASE: usize, P>(Of<WRITE, ERASE, P>);

const fn key(key: Key) -> u8 {
    match key {
        Key::Session(n) => n,
        Key::Message(n) => MESSAGES + n,
    }
}

fn encode(row: &Row) -> Vec<u8> {
    let state = match row.state {
        RowState::Held => 1,
        RowState::Free => 2,
        RowState::Finished => 3,
    };
    let mut bytes = vec![state, row.holder];
    bytes.extend_from_slice(&row.incarnation.to_le_bytes());
    bytes.extend_from_slice(&row.token.to_le_bytes());
    bytes
}

fn decode(key: Key, bytes: &[u8]) -> Option<Row> {
    let (state, rest) = bytes.split_first()?;
    let (holder, rest) = rest.split_first()?;
    let (incarnation, token) = rest.split_at_checked(4)?;
    Some(Row {
        key,
        state: match state {
            1 => RowState::Held,
            2 => RowState::Free,
            3 => RowState::Finished,
            _ => return None,
        },
        holder: *holder,
        incarnation: u32::from_le_bytes(incarnation.try_into().ok()?),
        token: u64::from_le_bytes(token.try_into().ok()?),
    })
}

fn mount_failure(error: MountError) -> Failure {
    Failure::Corrupt(format!("{error:?}"))
}

fn settle_failure(error: SettleError) -> Failure {
    Failure::Other(format!("{error:?}"))
}

fn commit_failure(error: CommitError) -> Failure {
    match error {
        CommitError::Refused(Refused::Full) => Failure::Full(format!("{error:?}")),
        CommitError::Refused(Refused::Damaged(_)) => Failure::Corrupt(format!("{error:?}")),
        CommitError::Refused(_) | CommitError::Unknown => Failure::Other(format!("{error:?}")),
    }
}

impl<const WRITE: usize, const ERASE: usize, P: Policy + std::fmt::Debug> Subject for OnJournal<WRITE, ERASE, P> {
    fn provision(&mut self) -> Result<(), Failure> {
        self.0
            .provision(7, 0, Existing::Refuse)
            .map_err(settle_failure)
    }

    fn mount(&mut self) -> Result<Mounted, Failure> {
        self.0.mount().map_err(mount_failure)?;
        if std::env::var("P").is_ok() {
            let text = format!("{:?}", self.0);
            let pages = &text[text.find("pages: [Page {").unwrap()..];
            eprintln!("{}", pages.split("], index").next().unwrap().replace("Page {", "\n  {"));
            eprintln!("  Head {}", text[text.find("head: Head").unwrap()..].split("policy").next().unwrap());
        }
        let report = self.0.settle(0).map_err(settle_failure)?;
        Ok(Mounted {
            counter: report.limit,
            reserved: report.limit,
        })
    }

    fn perform(&mut self, _: Verb, change: &Change) -> Result<Option<u64>, Failure> {
        let token = change.mints.then(|| self.0.last_token() + 1);
        let value = change.after.map_or_else(Vec::new, |row| {
            encode(&Row {
                token: token.unwrap_or(row.token),
                ..row
            })
        });
        let record = change.key.map(|name| Record {
            key: key(name),
            value: &value,
        });
        let records = record.as_ref().map_or(&[][..], std::slice::from_ref);
        let committed = self
            .0
            .commit(records, u32::from(change.mints))
            .map_err(commit_failure)?;
        assert!(token.is_none_or(|token| token == committed.first_token));
        Ok(token)
    }

    fn rows(&mut self, keys: &[Key]) -> Result<Rows, Failure> {
        let mut rows = Rows::new();
        for name in keys {
            let bytes = self
                .0
                .get(key(*name))
                .map_err(|error| Failure::Corrupt(format!("{error:?}")))?;
            if let Some(bytes) = bytes {
                let row = decode(*name, bytes)
                    .ok_or_else(|| Failure::Corrupt(format!("the row of {name:?}")))?;
                rows.insert(*name, row);
            }
        }
        Ok(rows)
    }

    fn reserved(&self) -> u64 {
        self.0.report().map_or(0, |report| report.limit)
    }

    fn reservation(&self) -> u64 {
        BLOCK.into()
    }
}

fn build<P: Policy + std::fmt::Debug + 'static>(chip: &SharedChip) -> Box<dyn Subject> {
    fn on<const WRITE: usize, const ERASE: usize, P: Policy + std::fmt::Debug + 'static>(
        chip: &SharedChip,
    ) -> Box<dyn Subject> {
        let size = chip.borrow().image().size_bytes() as u32;
        let flash = SimFlash::<WRITE, ERASE>::on(chip.clone());
        Box::new(OnJournal::<WRITE, ERASE, P>(Journal::new(
            flash,
            0..size,
            BLOCK,
        )))
    }
    let geometry = chip.borrow().geometry();
    match (geometry.write_size_bytes, geometry.erase_size_bytes) {
        (4, 1024) => on::<4, 1024, P>(chip),
        (4, 4096) => on::<4, 4096, P>(chip),
        (1, 4096) => on::<1, 4096, P>(chip),
        (8, 2048) => on::<8, 2048, P>(chip),
        (32, 131_072) => on::<32, 131_072, P>(chip),
        (1, 512) => on::<1, 512, P>(chip),
        (4, 512) => on::<4, 512, P>(chip),
        (8, 512) => on::<8, 512, P>(chip),
        (32, 1024) => on::<32, 1024, P>(chip),
        sizes => panic!("a geometry with other sizes: {sizes:?}"),
    }
}

static JOURNAL: Store = Store {
    name: "journal",
    about: "keyfence's journal alone",
    renews_in_ram: true,
    pages: |_| Some(4),
    build: build::<Law>,
};

fn sweep(store: &'static Store, name: &str, depth: usize, commits: usize) {
    let geometry = Geometry::named(name).expect("a geometry of the list");
    let settings = Settings {
        depth,
        commits,
        ..Settings::new(store, geometry)
    };
    let report = match search::exhaustive(&settings, &Progress::default()) {
        Ok(report) => report,
        Err(violation) => panic!("{name}: the life itself: {violation:?}"),
    };
    assert_eq!(report.failures, 0, "{name}: {}", report.table());
    assert!(report.cases > 100, "{name}");
}

macro_rules! tiny {
    ($($test:ident, $name:literal;)*) => {$(
        #[test]
        fn $test() {
            sweep(&JOURNAL, $name, 1, 24);
        }
    )*};
}

tiny! {
    j3_no_cut_of_a_life_shows_on_tiny_1, "tiny-1";
    j3_no_cut_of_a_life_shows_on_tiny_4, "tiny-4";
    j3_no_cut_of_a_life_shows_on_tiny_8, "tiny-8";
    j3_no_cut_of_a_life_shows_on_tiny_32, "tiny-32";
}

#[test]
#[ignore = "long"]
fn campaign() {
    let var = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    for name in var("G", "tiny-1,tiny-4,tiny-8,tiny-32").split(',') {
        let geometry = Geometry::named(name).expect("a geometry of the list");
        let settings = Settings {
            depth: var("D", "2").parse().unwrap(),
            commits: var("C", "12").parse().unwrap(),
            seed: var("S", "1").parse().unwrap(),
            sample: var("N", "1").parse().unwrap(),
            follow_up: var("F", "6").parse().unwrap(),
            ..Settings::new(&JOURNAL, geometry)
        };
        if let Ok(path) = std::env::var("P") {
            let path = keyfence_tests::powercut::Case::parse(&path).unwrap();
            let (story, violation) = search::replay(&settings, &path).unwrap();
            println!("{}\n{violation:?}", story.join("\n"));
            continue;
        }
        let cases: usize = var("R", "0").parse().unwrap();
        let report = if cases > 0 {
            search::random(&settings, cases, &Progress::default())
        } else {
            search::exhaustive(&settings, &Progress::default())
        };
        match report {
            Ok(report) => println!(
                "{name}: {} of {} in {:.0} s\n{}",
                report.failures,
                report.cases,
                report.seconds,
                if report.failures > 0 {
                    report.table()
                } else {
                    String::new()
                }
            ),
            Err(violation) => println!("{name}: the life itself: {violation:?}"),
        }
    }
}
