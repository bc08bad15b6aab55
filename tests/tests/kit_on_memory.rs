//! The conformance kit on the store in memory.

use keyfence_tests::kit::{Bench, OnMemory, left_out};

keyfence_tests::kit_tests!(OnMemory::new());

#[test]
fn nothing_is_left_out_on_memory() {
    assert_eq!(left_out(&Bench::bounds(&OnMemory::new())), Vec::<&str>::new());
}
