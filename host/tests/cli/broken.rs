//! Every command on every kind of broken ledger: the same file gets the same answer from all of them, and nothing is
//! written, neither into it nor beside it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{A, Shop, ordinary, permissions_bind};

/// What a command does with a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Makes a missing one.
    Creates,
    /// Writes to one that is there.
    Writes,
    /// Reads.
    Reads,
    /// Reads, and in places that others refuse as well: it tells what is wrong with them.
    Examines,
    /// Lets a token pass: without a readable ledger it refuses a first one.
    Admits,
    /// Replaces one.
    Replaces,
    /// Looks at none.
    Ignores,
}

/// All commands, with arguments that are right.
fn commands() -> Vec<(String, Does)> {
    use Does::{Admits, Creates, Examines, Ignores, Reads, Replaces, Writes};
    let attempt = format!("--attempt att_{} --token 2", "c".repeat(32));
    let session = "session SESSION chat --host kiosk-a --incarnation 1 --token 5 --host-token 4";
    let actor = format!("crew --process {A}");
    [
        ("init".to_owned(), Creates),
        ("demo mailbox".to_owned(), Ignores),
        ("run --actor crew -- true".to_owned(), Creates),
        (format!("actor acquire {actor}"), Creates),
        (format!("actor renew {actor} --token 1"), Writes),
        (format!("actor release {actor} --token 1"), Writes),
        ("actor show".to_owned(), Reads),
        ("assignment create close --actor crew".to_owned(), Creates),
        ("assignment show".to_owned(), Reads),
        (
            format!("attempt acquire close --actor {actor} --lease-token 1"),
            Creates,
        ),
        (format!("attempt renew close {attempt}"), Writes),
        (format!("attempt release close {attempt}"), Writes),
        (format!("attempt finish close {attempt} --state completed"), Writes),
        ("mailbox send --to crew x".to_owned(), Creates),
        ("mailbox claim m1 --as crew".to_owned(), Creates),
        ("mailbox claim-next --as crew".to_owned(), Creates),
        ("mailbox extend m1 --as crew --token 3".to_owned(), Writes),
        ("mailbox give-back m1 --as crew --token 3".to_owned(), Writes),
        ("mailbox complete m1 --as crew --token 3".to_owned(), Writes),
        ("mailbox retry m1 --as crew --token 3 --reason wet".to_owned(), Writes),
        (
            "mailbox dead-letter m1 --as crew --token 3 --reason wet".to_owned(),
            Writes,
        ),
        ("mailbox redrive m1".to_owned(), Writes),
        ("mailbox inbox crew".to_owned(), Writes),
        ("mailbox show m1".to_owned(), Reads),
        (format!("host register kiosk-a --process {A}"), Creates),
        (format!("host renew kiosk-a --process {A} --token 4"), Writes),
        (format!("host release kiosk-a --process {A} --token 4"), Writes),
        ("host show".to_owned(), Reads),
        (
            format!("session claim chat --host kiosk-a --process {A} --host-token 4"),
            Creates,
        ),
        (session.replace("SESSION", "release"), Writes),
        (session.replace("SESSION", "finish"), Writes),
        ("session show".to_owned(), Reads),
        ("gate admit g.gate --for session:chat --token 5".to_owned(), Admits),
        ("gate show g.gate".to_owned(), Ignores),
        ("gate rebind g.gate --for session:chat".to_owned(), Reads),
        ("revoke actor crew --reason gone".to_owned(), Writes),
        ("supervise --once".to_owned(), Writes),
        ("status".to_owned(), Reads),
        ("events".to_owned(), Reads),
        ("doctor".to_owned(), Examines),
        ("backup copy.db".to_owned(), Reads),
        ("restore ../good.db".to_owned(), Replaces),
        ("prune --older-than 90d".to_owned(), Writes),
        ("process new".to_owned(), Ignores),
        ("completions bash".to_owned(), Ignores),
    ]
    .into()
}

#[test]
fn every_command_is_in_the_table() {
    let help = include_str!("help.txt");
    let known: Vec<String> = commands().into_iter().map(|(command, _)| command).collect();
    let mut missing = Vec::new();
    for section in help.split("$ keyfence ").skip(1) {
        let Some((command, text)) = section.split_once(" --help\n") else {
            continue;
        };
        let is_leaf = !text.lines().any(|line| line == "Commands:");
        let listed = known
            .iter()
            .any(|known| known == command || known.starts_with(&format!("{command} ")));
        // A kiosk has a ledger of its own: its commands take none of this machine.
        if is_leaf && !listed && !command.starts_with("kiosk ") {
            missing.push(command);
        }
    }
    assert_eq!(missing, [""; 0]);
}

/// A way to be broken: what is done to a good ledger, and what is answered to those who read, write, create and replace;
/// `None` where the call goes its way.
struct Broken {
    how: &'static str,
    /// Permissions are what is in the way.
    by_permissions: bool,
    /// Makes it in the folder, out of a good ledger that lies there.
    make: fn(&Path),
    reads: Option<&'static str>,
    writes: Option<&'static str>,
    creates: Option<&'static str>,
    replaces: Option<&'static str>,
}

impl Broken {
    /// One that everybody answers the same of.
    const fn the_same_for_all(how: &'static str, make: fn(&Path), error: &'static str) -> Self {
        Self {
            how,
            by_permissions: false,
            make,
            reads: Some(error),
            writes: Some(error),
            creates: Some(error),
            replaces: Some(error),
        }
    }
}

fn pragma(ledger: &Path, sql: &str) {
    rusqlite::Connection::open(ledger).unwrap().execute_batch(sql).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn ways() -> Vec<Broken> {
    let same = Broken::the_same_for_all;
    vec![
        Broken {
            creates: None,
            replaces: None,
            ..same("missing", |ledger| fs::remove_file(ledger).unwrap(), "ledger_missing")
        },
        Broken {
            creates: None,
            replaces: None,
            ..same("an empty file", |ledger| fs::write(ledger, "").unwrap(), "not_a_ledger")
        },
        Broken {
            creates: None,
            replaces: None,
            ..same(
                "an empty database",
                |ledger| {
                    fs::remove_file(ledger).unwrap();
                    pragma(ledger, "VACUUM");
                    chmod(ledger, 0o600);
                },
                "not_a_ledger",
            )
        },
        same(
            "another program's database",
            |ledger| {
                fs::remove_file(ledger).unwrap();
                pragma(
                    ledger,
                    "PRAGMA journal_mode = WAL; CREATE TABLE notes (text); PRAGMA user_version = 3;",
                );
                chmod(ledger, 0o600);
            },
            "not_a_ledger",
        ),
        same(
            "text",
            |ledger| fs::write(ledger, "Restock vanilla\n".repeat(1000)).unwrap(),
            "not_a_ledger",
        ),
        same(
            "a short text",
            |ledger| fs::write(ledger, "Restock vanilla\n").unwrap(),
            "not_a_ledger",
        ),
        Broken {
            // What is left of a ledger is what a restore is for.
            replaces: None,
            ..same(
                "truncated",
                |ledger| {
                    let bytes = fs::read(ledger).unwrap();
                    fs::write(ledger, &bytes[..bytes.len() / 2]).unwrap();
                },
                "damaged",
            )
        },
        same(
            "marked as another application's",
            |ledger| pragma(ledger, "PRAGMA application_id = 7;"),
            "not_a_ledger",
        ),
        same(
            "of a newer schema",
            |ledger| pragma(ledger, "PRAGMA user_version = 77;"),
            "schema_newer",
        ),
        Broken {
            by_permissions: true,
            reads: None,
            ..same("a read-only file", |ledger| chmod(ledger, 0o400), "read_only")
        },
        Broken {
            by_permissions: true,
            reads: None,
            ..same(
                "in a read-only folder",
                |ledger| chmod(ledger.parent().unwrap(), 0o500),
                "read_only",
            )
        },
        Broken {
            by_permissions: true,
            ..same("not readable", |ledger| chmod(ledger, 0o000), "permission_denied")
        },
        Broken {
            by_permissions: true,
            ..same(
                "in a folder that cannot be entered",
                |ledger| chmod(ledger.parent().unwrap(), 0o600),
                "permission_denied",
            )
        },
        same(
            "a folder",
            |ledger| {
                fs::remove_file(ledger).unwrap();
                fs::create_dir(ledger).unwrap();
            },
            "not_a_ledger",
        ),
        same(
            "a link to nothing",
            |ledger| {
                fs::remove_file(ledger).unwrap();
                std::os::unix::fs::symlink("nowhere.db", ledger).unwrap();
            },
            "not_a_ledger",
        ),
        same(
            "a link to a ledger",
            |ledger| {
                let target = ledger.with_file_name("real.db");
                fs::rename(ledger, &target).unwrap();
                std::os::unix::fs::symlink(target, ledger).unwrap();
            },
            "unsafe_location",
        ),
        same("writable for others", |ledger| chmod(ledger, 0o666), "unsafe_location"),
    ]
}

/// Names and contents of all files of a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mode = fs::metadata(folder).unwrap().permissions().mode();
    chmod(folder, 0o700);
    let contents = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(&path).unwrap_or_default())
        })
        .collect();
    chmod(folder, mode & 0o777);
    contents
}

#[test]
fn every_command_says_the_same_of_the_same_broken_ledger_and_writes_nothing() {
    let shop = Shop::new();
    shop.ask(&format!("--now 1000 actor acquire crew --process {A}"))
        .granted();
    shop.ask("--now 1000 mailbox send --to crew --id m1 vanilla").done();
    shop.ask("backup good.db").done();
    let good = fs::read(shop.ledger()).unwrap();
    let binds = permissions_bind("broken ledgers that permissions keep out of reach");
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let ways: Vec<_> = ways()
            .into_iter()
            .filter(|way| binds || !way.by_permissions)
            .map(|way| {
                let (shop, good) = (&shop, &good);
                scope.spawn(move || try_all(shop, good, &way))
            })
            .collect();
        ways.into_iter().flat_map(|way| way.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} cells:\n{}", wrong.len(), wrong.join("\n"));
}

/// Runs every command on a ledger that is broken in this way; returns what was not as it should be.
fn try_all(shop: &Shop, good: &[u8], way: &Broken) -> Vec<String> {
    // The working folder is another one: where the ledger lies may be out of reach.
    let work = tempfile::tempdir().unwrap();
    let folder = work.path().join("broken");
    let ledger = folder.join("keyfence.db");
    let backup = shop.path("good.db");
    let mut wrong = Vec::new();
    for (command, does) in commands() {
        fs::create_dir(&folder).unwrap();
        chmod(&folder, 0o700);
        fs::write(&ledger, good).unwrap();
        chmod(&ledger, 0o600);
        (way.make)(&ledger);
        let before = contents(&folder);

        let mut call = shop.command();
        call.current_dir(work.path())
            .env("KEYFENCE_LEDGER", &ledger)
            .arg("--json")
            .args(command.split_whitespace().map(|word| match word {
                "../good.db" => backup.as_os_str(),
                word => word.as_ref(),
            }));
        let reply = crate::support::reply(&ordinary(call).output().unwrap());

        let expected = match does {
            Does::Reads => way.reads,
            Does::Examines => way.reads.filter(|error| *error != "unsafe_location"),
            Does::Writes => way.writes,
            Does::Creates => way.creates,
            Does::Replaces => way.replaces,
            Does::Admits | Does::Ignores => None,
        };
        let right = match (does, expected) {
            (Does::Admits, _) if way.reads.is_some() => {
                reply.status == 3 && reply.json["refusal"] == "ledger_unreadable"
            }
            // Where the ledger is not at fault, what the fence says is another matter.
            (_, None) => reply.json.get("error").is_none() && [0, 3].contains(&reply.status),
            (_, Some(error)) => {
                (reply.status, &reply.json["outcome"], &reply.json["error"]) == (1, &"error".into(), &error.into())
            }
        };
        let may_write = matches!(does, Does::Creates | Does::Replaces | Does::Writes);
        let untouched = (may_write && expected.is_none()) || contents(&folder) == before;
        if !right || !untouched {
            let files: Vec<String> = contents(&folder).into_keys().collect();
            wrong.push(format!(
                "{}: {command}: wanted {expected:?}, got {} {}; files {files:?}",
                way.how, reply.status, reply.json
            ));
        }
        chmod(&folder, 0o700);
        fs::remove_dir_all(&folder).unwrap();
        for file in ["g.gate", "g.gate-lock", "copy.db"] {
            let _ = fs::remove_file(work.path().join(file));
        }
    }
    wrong
}

/// A backup is looked at like a ledger, and told by its own name.
#[test]
fn a_backup_that_is_broken_is_named_as_the_backup() {
    let shop = Shop::new();
    shop.ask("mailbox send --to crew --id m1 vanilla").done();
    shop.ask("backup good.db").done();
    let good = fs::read(shop.path("good.db")).unwrap();
    let broken = shop.path("broken.db");
    let binds = permissions_bind("broken backups that permissions keep out of reach");
    for way in ways().into_iter().filter(|way| binds || !way.by_permissions) {
        // A backup may lie anywhere.
        let of_the_place = ["writable for others", "a link to a ledger", "an empty database"];
        if of_the_place.contains(&way.how) || way.how.contains("folder") {
            continue;
        }
        fs::write(&broken, &good).unwrap();
        chmod(&broken, 0o600);
        (way.make)(&broken);
        let before = fs::read(shop.ledger()).unwrap();
        let mut call = shop.command();
        call.args(["--json", "restore", "broken.db"]);
        let reply = crate::support::reply(&ordinary(call).output().unwrap());
        let _ = fs::remove_file(&broken);
        let Some(error) = way.reads else {
            reply.done();
            continue;
        };
        let json = reply.error(error);
        let reason = json["reason"].as_str().unwrap();
        assert!(reason.starts_with("the backup broken.db"), "{}: {reason}", way.how);
        assert!(
            fs::read(shop.ledger()).unwrap() == before,
            "{}: nothing was written",
            way.how
        );
    }
}
