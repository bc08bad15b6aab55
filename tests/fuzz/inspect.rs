//! Fuzzes the story of a region.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyfence_tests::powercut::malformed::tell(data));
