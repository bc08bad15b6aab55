//! The conformance kit on the SQLite ledger.

use keyfence_tests::kit::{Bench, OnSqlite, left_out};

mod one_handle {
    use keyfence_tests::kit::OnSqlite;
    keyfence_tests::kit_tests!(OnSqlite::new());
}

mod a_handle_for_every_call {
    use keyfence_tests::kit::OnSqlite;
    keyfence_tests::kit_tests!(OnSqlite::reopened());
}

mod the_librarys_calls {
    use keyfence_tests::kit::OnLibrary;
    keyfence_tests::kit_tests!(OnLibrary::new());
}

#[test]
fn only_small_ledgers_and_reboots_are_left_out_on_sqlite() {
    assert_eq!(
        left_out(&Bench::bounds(&OnSqlite::new())),
        [
            "a_lapse_of_an_earlier_boot_costs_nothing",
            "a_claim_of_an_earlier_boot_still_completes",
            "after_a_reboot_every_earlier_lease_has_lapsed",
            "after_a_reboot_an_attempt_is_not_live",
            "a_full_ledger_refuses_new_rows_and_mints_nothing",
        ]
    );
}
