use keyfence::core::mailbox::{ClaimNext, Priority};
use keyfence::*;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let path = std::path::PathBuf::from(&args[1]).join("loop.db");
    let n: usize = args[2].parse().unwrap();
    let ledger = Ledger::open(&path, Options { allow_unsafe_location: true, ..Options::default() }).unwrap();
    let worker = Name::new("worker").unwrap();
    let t = Instant::now();
    let mut left = n;
    let base = ledger.counter().unwrap().map_or(0, Token::get);
    while left > 0 {
        let k = left.min(1000);
        let batch: Vec<NewMessage> = (0..k).map(|i| NewMessage {
            id: Name::new(&format!("m-{}-{}", base, n - left + i)).unwrap(),
            sender: None, recipient: worker.clone(), subject: "s".into(), body: vec![7; 100],
            priority: Priority::default(), not_before: None, retries_max: 3 }).collect();
        for d in ledger.call().mailbox_send_batch(&batch).unwrap().unwrap() { let _ = d.unwrap(); }
        left -= k;
    }
    println!("send {:.2} us", t.elapsed().as_secs_f64() * 1e6 / n as f64);
    let ask = ClaimNext { owner: worker.clone(), process: Some(ProcessId::from_bytes([1; 16])), lease_token: None, ttl: Ttl::MAILBOX_CLAIM };
    let work: usize = args[3].parse().unwrap();
    let t = Instant::now();
    for _ in 0..work {
        let got = ledger.call().mailbox_claim_next(&ask, 1).unwrap().unwrap();
        let _ = ledger.call().mailbox_complete(&got[0].granted.grant, b"").unwrap().unwrap();
    }
    println!("claim+complete {:.2} us", t.elapsed().as_secs_f64() * 1e6 / work as f64);
    let t = Instant::now();
    let mut got = ledger.call().mailbox_claim_next(&ask, 1).unwrap().unwrap();
    for _ in 0..work {
        let r = ledger.call().mailbox_complete_and_next(&got[0].granted.grant, b"", &ask, 1).unwrap().unwrap();
        got = r.next.unwrap();
    }
    println!("fused {:.2} us", t.elapsed().as_secs_f64() * 1e6 / work as f64);
    // bare correct
    let conn = rusqlite::Connection::open(path.with_file_name("bare.db")).unwrap();
    conn.execute_batch("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=2000; PRAGMA mmap_size=0;
        CREATE TABLE IF NOT EXISTS c(one INTEGER PRIMARY KEY, t INTEGER); INSERT OR IGNORE INTO c VALUES(1,0);
        CREATE TABLE IF NOT EXISTS m(seq INTEGER PRIMARY KEY, id TEXT UNIQUE, recipient TEXT, state INTEGER, process BLOB, token INTEGER, expires INTEGER, body BLOB);
        CREATE INDEX IF NOT EXISTS ready ON m(recipient, seq) WHERE state=0;
        CREATE INDEX IF NOT EXISTS lease ON m(recipient, expires) WHERE state=1;
        CREATE TABLE IF NOT EXISTS e(seq INTEGER PRIMARY KEY, at INTEGER, kind TEXT, subject TEXT, process BLOB, token INTEGER, expires INTEGER);").unwrap();
    {
        conn.execute_batch("BEGIN").unwrap();
        let mut s = conn.prepare("INSERT INTO m(id,recipient,state,body) VALUES(?1,'worker',0,?2)").unwrap();
        let b = Instant::now().elapsed().as_nanos();
        let t0 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        for i in 0..n { s.execute(rusqlite::params![format!("m-{}-{}", t0 + b, i), vec![7u8; 100]]).unwrap(); }
        drop(s);
        conn.execute_batch("COMMIT").unwrap();
    }
    let t = Instant::now();
    for i in 0..work {
        conn.prepare_cached("BEGIN IMMEDIATE").unwrap().execute([]).unwrap();
        let token: i64 = conn.prepare_cached("UPDATE c SET t=t+1 WHERE one=1 RETURNING t").unwrap().query_row([], |r| r.get(0)).unwrap();
        let now = 1_700_000_000_000i64 + i as i64;
        let (seq, id, _body): (i64, String, Vec<u8>) = conn.prepare_cached("UPDATE m SET state=1, process=?1, token=?2, expires=?3 WHERE seq=(SELECT seq FROM m WHERE recipient='worker' AND state=0 ORDER BY seq LIMIT 1) AND state=0 RETURNING seq,id,body").unwrap()
            .query_row(rusqlite::params![[1u8; 16], token, now + 900000], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).unwrap();
        conn.prepare_cached("INSERT INTO e(at,kind,subject,process,token,expires) VALUES(?1,'claimed',?2,?3,?4,?5)").unwrap().execute(rusqlite::params![now, id, [1u8; 16], token, now + 900000]).unwrap();
        conn.prepare_cached("COMMIT").unwrap().execute([]).unwrap();
        conn.prepare_cached("BEGIN IMMEDIATE").unwrap().execute([]).unwrap();
        let k = conn.prepare_cached("UPDATE m SET state=2, expires=NULL WHERE seq=?1 AND state=1 AND token=?2").unwrap().execute(rusqlite::params![seq, token]).unwrap();
        assert_eq!(k, 1);
        conn.prepare_cached("INSERT INTO e(at,kind,subject,process,token) VALUES(?1,'completed',?2,?3,?4)").unwrap().execute(rusqlite::params![now, id, [1u8; 16], token]).unwrap();
        conn.prepare_cached("COMMIT").unwrap().execute([]).unwrap();
    }
    println!("bare correct {:.2} us", t.elapsed().as_secs_f64() * 1e6 / work as f64);
}
