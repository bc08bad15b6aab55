//! The conformance kit on the store in memory.

use keyfence_tests::kit::{Bench, OnMemory, left_out};

mod exact_candidates {
    use keyfence_tests::kit::OnMemory;
    keyfence_tests::kit_tests!(OnMemory::new());
}

mod too_many_candidates {
    use keyfence_tests::kit::OnMemory;
    keyfence_tests::kit_tests!(OnMemory::generous());
}

#[test]
fn nothing_is_left_out_on_memory() {
    assert_eq!(left_out(&Bench::bounds(&OnMemory::new())), Vec::<&str>::new());
}
