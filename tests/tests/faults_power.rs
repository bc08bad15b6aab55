//! Real power cuts under a real process, and the order of its system calls: what was printed was on the disk before.
#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use keyfence_tests::faults::account;
use keyfence_tests::faults::life::Life;
use keyfence_tests::faults::power::Ext4;

const SEED: u64 = 11;
const ROUNDS: u32 = 6;

fn minting(ledger: &Path, times: u32) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storm"));
    command.arg("mint").arg(ledger).arg(times.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_real_power_cut_loses_no_token_that_was_told() {
    let mut disk = match Ext4::new() {
        Ok(disk) => disk,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut told_in_all = 0;
    for round in 0..ROUNDS {
        let folder = disk.path().join(format!("round-{round}"));
        std::fs::create_dir(&folder).unwrap();
        // The folder itself is not keyfence's.
        std::fs::File::open(disk.path()).unwrap().sync_all().unwrap();
        let ledger = folder.join("ledger.db");
        // The first token of a new ledger, and many.
        let wanted = if round % 2 == 0 { 1 } else { random.usize(20..400) };
        let mut child = minting(&ledger, u32::MAX);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told = Vec::new();
        for line in lines.by_ref().take(wanted) {
            told.push(line.unwrap().parse::<u64>().unwrap());
        }
        disk.cut().unwrap();
        // What was printed before it saw the cut counts too.
        told.extend(lines.map_while(Result::ok).filter_map(|line| line.parse::<u64>().ok()));
        assert!(!child.wait().unwrap().success());
        disk.restart().unwrap();

        let mut life = Life::new(&ledger);
        life.open().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let history = account::examine(life.ledger().unwrap(), 0).unwrap();
        account::diagnose(life.ledger().unwrap()).unwrap();
        life.close();
        let kept: Vec<u64> = history
            .iter()
            .filter_map(|record| record.event.token)
            .map(|token| token.get())
            .collect();
        assert!(told.len() >= wanted);
        assert!(
            kept.starts_with(&told),
            "round {round}: told up to {:?}, kept up to {:?}",
            told.last(),
            kept.last()
        );
        told_in_all += told.len();
    }
    println!("{told_in_all} tokens told, {ROUNDS} cuts");
}

/// The system calls of a process that creates a ledger and mints once; `None`, having printed why, without `strace`.
fn traced(ledger: &Path) -> Option<Vec<String>> {
    let trace = ledger.with_file_name("trace");
    let traced = Command::new("strace")
        .args([
            "-f",
            "-y",
            "-s",
            "8",
            "-e",
            "trace=openat,pwrite64,fsync,fdatasync,write,ftruncate,unlink",
            "-o",
        ])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_storm"))
        .arg("mint")
        .arg(ledger)
        .arg("1")
        .output();
    match traced {
        Err(error) => println!("skipped: `strace` cannot be run: {error}"),
        Ok(output) if !trace.exists() || output.stdout != b"1\n" => {
            println!(
                "skipped: `strace` cannot trace: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(_) => {
            let lines = std::fs::read_to_string(&trace).unwrap();
            return Some(lines.lines().map(str::to_owned).collect());
        }
    }
    None
}

#[test]
fn the_first_token_is_told_after_file_folder_and_log_were_synced() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().canonicalize().unwrap().join("ledgers");
    std::fs::create_dir(&folder).unwrap();
    let ledger = folder.join("ledger.db");
    let Some(calls) = traced(&ledger) else { return };
    let told = calls
        .iter()
        .position(|call| call.contains(" write(1<"))
        .expect("the token was printed");
    let before = &calls[..told];
    let last = |what: &str, wanted: &dyn Fn(&str) -> bool| {
        let found = before.iter().rposition(|call| wanted(call));
        found.unwrap_or_else(|| panic!("{what} is not in the trace:\n{}", before.join("\n")))
    };
    let file = ledger.display().to_string();
    let synced = |path: &str| {
        let path = format!("<{path}>");
        last(&format!("a sync of {path}"), &|call| {
            (call.contains(" fsync(") || call.contains(" fdatasync(")) && call.contains(&path)
        })
    };
    for path in [file.clone(), format!("{file}-wal")] {
        let created = last(&format!("the creation of {path}"), &|call| {
            call.contains("O_CREAT") && call.contains(&format!("\"{path}\""))
        });
        let written = last(&format!("a write to {path}"), &|call| {
            call.contains(" pwrite64(") && call.contains(&format!("<{path}>"))
        });
        assert!(synced(&path) > written, "{path}");
        assert!(synced(&folder.display().to_string()) > created, "{path}");
    }
}
