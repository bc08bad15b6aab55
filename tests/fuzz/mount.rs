//! Fuzzes the mount of the journal and of the ledger.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyfence_tests::powercut::malformed::mount(data));
