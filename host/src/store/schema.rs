//! The tables, and how a file comes to have them.
//!
//! States are small integers; [`super::step`] has their names. Numbers and moments are at most 2^53 - 1. All rows carry a
//! check value over their fields ([`super::check`]); events are chained instead.
//!
//! A schema only moves forward: each migration is one transaction, and a file of a newer schema is refused.

/// Marks a file as a ledger: "keyf".
pub(crate) const APPLICATION_ID: i32 = 0x6b65_7966;

/// All migrations, the first one from nothing. The schema's number is how many were applied.
pub(crate) const MIGRATIONS: &[&str] = &[V1];

/// The newest schema.
pub(crate) const SCHEMA: i64 = MIGRATIONS.len() as i64;

const V1: &str = "
-- Counter, event sequence and chain head, all in one row.
CREATE TABLE keyfence_ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    schema INTEGER NOT NULL,
    ledger_id BLOB NOT NULL CHECK (length(ledger_id) = 16),
    last_token INTEGER CHECK (last_token BETWEEN 1 AND 9007199254740991),
    incarnation_floor INTEGER CHECK (incarnation_floor BETWEEN 1 AND 9007199254740991),
    event_seq INTEGER NOT NULL CHECK (event_seq >= 0),
    chain_head BLOB NOT NULL CHECK (length(chain_head) = 32),
    -- The last event that was pruned, and the chain's head after it.
    anchor_seq INTEGER NOT NULL CHECK (anchor_seq BETWEEN 0 AND event_seq),
    anchor_head BLOB NOT NULL CHECK (length(anchor_head) = 32),
    -- The longest lease that was ever asked for.
    longest_ttl_ms INTEGER NOT NULL CHECK (longest_ttl_ms >= 0),
    row_check INTEGER NOT NULL
) STRICT;

CREATE TABLE keyfence_actor (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 64),
    -- The claim: all of it or none.
    process BLOB CHECK (length(process) = 16),
    token INTEGER CHECK (token BETWEEN 1 AND 9007199254740991),
    since_ms INTEGER CHECK (since_ms BETWEEN 0 AND 9007199254740991),
    expires_at_ms INTEGER CHECK (expires_at_ms BETWEEN 0 AND 9007199254740991),
    -- Who released it.
    last_process BLOB CHECK (length(last_process) = 16),
    last_token INTEGER CHECK (last_token BETWEEN 1 AND 9007199254740991),
    row_check INTEGER NOT NULL,
    CHECK ((token IS NULL) = (process IS NULL) AND (token IS NULL) = (since_ms IS NULL)
        AND (token IS NULL) = (expires_at_ms IS NULL) AND (last_token IS NULL) = (last_process IS NULL)
        AND (token IS NULL OR last_token IS NULL))
) STRICT;

CREATE TABLE keyfence_host (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 64),
    process BLOB CHECK (length(process) = 16),
    token INTEGER CHECK (token BETWEEN 1 AND 9007199254740991),
    since_ms INTEGER CHECK (since_ms BETWEEN 0 AND 9007199254740991),
    expires_at_ms INTEGER CHECK (expires_at_ms BETWEEN 0 AND 9007199254740991),
    last_process BLOB CHECK (length(last_process) = 16),
    last_token INTEGER CHECK (last_token BETWEEN 1 AND 9007199254740991),
    row_check INTEGER NOT NULL,
    CHECK ((token IS NULL) = (process IS NULL) AND (token IS NULL) = (since_ms IS NULL)
        AND (token IS NULL) = (expires_at_ms IS NULL) AND (last_token IS NULL) = (last_process IS NULL)
        AND (token IS NULL OR last_token IS NULL))
) STRICT;

CREATE TABLE keyfence_assignment (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE CHECK (octet_length(id) BETWEEN 1 AND 64),
    actor TEXT NOT NULL,
    retry_of TEXT,
    -- 0 CREATED, 1 RUNNING, 2 COMPLETED, 3 BLOCKED, 4 FAILED, 5 pruned
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5),
    attempt BLOB CHECK (length(attempt) = 16),
    process BLOB CHECK (length(process) = 16),
    token INTEGER CHECK (token BETWEEN 1 AND 9007199254740991),
    lease_token INTEGER CHECK (lease_token BETWEEN 1 AND 9007199254740991),
    since_ms INTEGER CHECK (since_ms BETWEEN 0 AND 9007199254740991),
    expires_at_ms INTEGER CHECK (expires_at_ms BETWEEN 0 AND 9007199254740991),
    -- The attempt that gave it back or ended it; no digest: FAILED `worker_lost`.
    last_attempt BLOB CHECK (length(last_attempt) = 16),
    last_token INTEGER CHECK (last_token BETWEEN 1 AND 9007199254740991),
    last_digest BLOB CHECK (length(last_digest) = 16),
    ended_at_ms INTEGER CHECK (ended_at_ms BETWEEN 0 AND 9007199254740991),
    row_check INTEGER NOT NULL,
    result BLOB,
    CHECK (CASE state
        WHEN 1 THEN attempt IS NOT NULL AND process IS NOT NULL AND token IS NOT NULL AND lease_token IS NOT NULL
            AND since_ms IS NOT NULL AND expires_at_ms IS NOT NULL
        ELSE attempt IS NULL AND process IS NULL AND token IS NULL AND lease_token IS NULL
            AND since_ms IS NULL AND expires_at_ms IS NULL
        END),
    CHECK ((state >= 2) = (ended_at_ms IS NOT NULL))
) STRICT;
CREATE INDEX keyfence_assignment_running ON keyfence_assignment (state) WHERE state = 1;

-- What a claim and a completion touch. Texts are kept apart.
CREATE TABLE keyfence_message (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE CHECK (octet_length(id) BETWEEN 1 AND 64),
    recipient TEXT NOT NULL,
    content BLOB NOT NULL CHECK (length(content) = 16),
    priority INTEGER NOT NULL CHECK (priority BETWEEN -100 AND 100),
    not_before_ms INTEGER CHECK (not_before_ms BETWEEN 0 AND 9007199254740991),
    retries INTEGER NOT NULL CHECK (retries BETWEEN 0 AND 65535),
    retries_max INTEGER NOT NULL CHECK (retries_max BETWEEN 0 AND 65535),
    deliveries INTEGER NOT NULL CHECK (deliveries BETWEEN 0 AND 4294967295),
    redrive_of TEXT,
    -- 0 NEW, 1 CLAIMED, 2 DONE, 3 DEAD, 4 pruned
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4),
    process BLOB CHECK (length(process) = 16),
    token INTEGER CHECK (token BETWEEN 1 AND 9007199254740991),
    lease_token INTEGER CHECK (lease_token BETWEEN 1 AND 9007199254740991),
    since_ms INTEGER CHECK (since_ms BETWEEN 0 AND 9007199254740991),
    expires_at_ms INTEGER CHECK (expires_at_ms BETWEEN 0 AND 9007199254740991),
    -- The last act: 0 given back, 1 retried, 2 completed, 3 dead-lettered.
    last_process BLOB CHECK (length(last_process) = 16),
    last_token INTEGER CHECK (last_token BETWEEN 1 AND 9007199254740991),
    last_act INTEGER CHECK (last_act BETWEEN 0 AND 3),
    last_digest BLOB CHECK (length(last_digest) = 16),
    -- Why it is DEAD: 0 retries exhausted, 1 worker lost, 2 its holder, 3 an operator.
    cause INTEGER CHECK (cause BETWEEN 0 AND 3),
    redriven_as TEXT,
    ended_at_ms INTEGER CHECK (ended_at_ms BETWEEN 0 AND 9007199254740991),
    row_check INTEGER NOT NULL,
    CHECK (CASE state
        WHEN 1 THEN token IS NOT NULL AND since_ms IS NOT NULL AND expires_at_ms IS NOT NULL AND last_token IS NULL
        ELSE token IS NULL AND since_ms IS NULL AND expires_at_ms IS NULL AND process IS NULL AND lease_token IS NULL
        END),
    CHECK ((state >= 2) = (ended_at_ms IS NOT NULL))
) STRICT;
-- Every predicate of a claim, and nothing that is finished.
CREATE INDEX keyfence_message_open
    ON keyfence_message (recipient, priority DESC, state, expires_at_ms, not_before_ms) WHERE ended_at_ms IS NULL;

-- What was sent. Its digest is the message's `content`.
CREATE TABLE keyfence_body (
    number INTEGER PRIMARY KEY REFERENCES keyfence_message (number),
    sender TEXT,
    sent_at_ms INTEGER NOT NULL,
    -- As it was sent: a retry moves the message's.
    sent_not_before_ms INTEGER,
    subject TEXT NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- What came of it. The digest of a result, or of the last reason, is the message's `last_digest`.
CREATE TABLE keyfence_result (
    number INTEGER PRIMARY KEY REFERENCES keyfence_message (number),
    result BLOB,
    reason TEXT
) STRICT;

CREATE TABLE keyfence_session (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 64),
    -- 0 free, 1 claimed, 2 finished, 3 pruned
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3),
    incarnation INTEGER CHECK (incarnation BETWEEN 1 AND 9007199254740991),
    host TEXT,
    host_token INTEGER CHECK (host_token BETWEEN 1 AND 9007199254740991),
    process BLOB CHECK (length(process) = 16),
    token INTEGER CHECK (token BETWEEN 1 AND 9007199254740991),
    since_ms INTEGER CHECK (since_ms BETWEEN 0 AND 9007199254740991),
    expires_at_ms INTEGER CHECK (expires_at_ms BETWEEN 0 AND 9007199254740991),
    -- The generation that released or finished it.
    last_host TEXT,
    last_incarnation INTEGER CHECK (last_incarnation BETWEEN 1 AND 9007199254740991),
    last_token INTEGER CHECK (last_token BETWEEN 1 AND 9007199254740991),
    last_host_token INTEGER CHECK (last_host_token BETWEEN 1 AND 9007199254740991),
    last_digest BLOB CHECK (length(last_digest) = 16),
    ended_at_ms INTEGER CHECK (ended_at_ms BETWEEN 0 AND 9007199254740991),
    row_check INTEGER NOT NULL,
    result BLOB,
    CHECK (CASE state
        WHEN 1 THEN incarnation IS NOT NULL AND host IS NOT NULL AND host_token IS NOT NULL AND process IS NOT NULL
            AND token IS NOT NULL AND since_ms IS NOT NULL AND expires_at_ms IS NOT NULL
        ELSE host IS NULL AND host_token IS NULL AND process IS NULL AND token IS NULL AND since_ms IS NULL
            AND expires_at_ms IS NULL
        END),
    CHECK ((state >= 2) = (ended_at_ms IS NOT NULL))
) STRICT;

CREATE TABLE keyfence_gate (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 64),
    ledger BLOB NOT NULL CHECK (length(ledger) = 16),
    kind TEXT NOT NULL,
    claim TEXT NOT NULL,
    high_water INTEGER CHECK (high_water BETWEEN 1 AND 9007199254740991),
    row_check INTEGER NOT NULL
) STRICT;

-- The history: append-only, chained by `link` (the first 8 bytes of the chain's head after the event).
CREATE TABLE keyfence_event (
    seq INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    holder TEXT,
    process BLOB,
    token INTEGER,
    parent_token INTEGER,
    expires_at_ms INTEGER,
    attempt BLOB,
    incarnation INTEGER,
    retries INTEGER,
    replaced_holder TEXT,
    replaced_process BLOB,
    replaced_token INTEGER,
    replaced_expires_at_ms INTEGER,
    refers_to TEXT,
    note TEXT,
    link INTEGER NOT NULL
) STRICT;
CREATE TRIGGER keyfence_event_stays BEFORE UPDATE ON keyfence_event
BEGIN SELECT RAISE(ABORT, 'the history is append-only'); END;
-- A prune moves the anchor first; only what lies behind it can go.
CREATE TRIGGER keyfence_event_is_kept BEFORE DELETE ON keyfence_event
WHEN OLD.seq > (SELECT anchor_seq FROM keyfence_ledger)
BEGIN SELECT RAISE(ABORT, 'the history is append-only'); END;

-- The last refusals of stale and foreign tokens.
CREATE TABLE keyfence_refusal (
    number INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    reason TEXT NOT NULL,
    subject TEXT NOT NULL,
    presented INTEGER NOT NULL,
    never_issued INTEGER NOT NULL
) STRICT;

-- The first answers to calls that carried a request id.
CREATE TABLE keyfence_request (
    caller TEXT NOT NULL,
    id TEXT NOT NULL,
    call BLOB NOT NULL CHECK (length(call) = 16),
    -- On the real clock, whatever clock the ledger decides by.
    answered_at_ms INTEGER NOT NULL,
    answer BLOB NOT NULL,
    PRIMARY KEY (caller, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX keyfence_request_age ON keyfence_request (answered_at_ms);
";
