//! keyfence on a PC: the SQLite ledger.
