//! The conformance kit: the contract of the ledger as scenarios over the verbs.
//!
//! A store shows what it is by running every scenario. What the scenarios drive is a [`Subject`]: the verbs of the core
//! with their asks and answers, a clock that the scenario sets, and the few things a test may do to a ledger from
//! outside, as far as the ledger admits them. Every [`Bench`] is a subject: a store of the core together with those
//! few things. A ledger that is reached some other way (over a link, by a command) implements [`Subject`] itself.
//!
//! Scenarios are plain functions on a [`Stage`], listed once, in [`for_each_scenario!`](crate::for_each_scenario): the
//! table [`SCENARIOS`] and the named tests that [`kit_tests!`](crate::kit_tests) makes for a store are both made from
//! that list.
//!
//! Three kinds of scenario occur:
//! * a *story* runs genuine grants through a sequence of calls;
//! * a *clause test* presents a mixed grant that is right in everything but one clause, so that it fails when that clause
//!   alone is deleted;
//! * a *sweep over verbs* checks one rule on every call that it binds.

mod bench;
mod on_library;
mod on_memory;
mod on_sqlite;
mod scenarios;
mod stage;
mod subject;

pub use bench::{Bench, digest};
pub use on_library::OnLibrary;
pub use on_memory::OnMemory;
pub use on_sqlite::OnSqlite;
pub use stage::Stage;
pub use subject::{Answer, BadExpiry, Bounds, Can, Fault, Letter, Seen, Subject};

/// One scenario: a fact about every ledger.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// The fact, and the name of its test.
    pub name: &'static str,
    /// What the test has to be able to do to the ledger.
    pub needs: &'static [Can],
    /// Shows that it holds, or panics.
    pub run: fn(&mut Stage<'_>),
}

/// The scenarios that a ledger of these bounds cannot run, by name. A store's tests state them, so that none is left out
/// unseen.
#[must_use]
pub fn left_out(bounds: &Bounds) -> Vec<&'static str> {
    let able = |scenario: &&Scenario| scenario.needs.iter().all(|need| bounds.can.contains(need));
    SCENARIOS
        .iter()
        .filter(|scenario| !able(scenario))
        .map(|scenario| scenario.name)
        .collect()
}

/// Runs the scenario of this name on a fresh ledger. One that the ledger cannot run passes: see [`left_out`].
///
/// # Panics
/// When the fact does not hold, or when there is no such scenario.
pub fn run(name: &str, subject: &mut dyn Subject) {
    let scenario = SCENARIOS
        .iter()
        .find(|scenario| scenario.name == name)
        .unwrap_or_else(|| panic!("no scenario is named {name}"));
    let bounds = subject.bounds();
    if scenario.needs.iter().all(|need| bounds.can.contains(need)) {
        (scenario.run)(&mut Stage::new(subject));
    }
}

/// Calls a macro with the list of scenarios: `module::name` or `module::name [needs]`, each a `fn(&mut Stage)`.
#[macro_export]
macro_rules! for_each_scenario {
    ($callback:path $(, $argument:expr)?) => {
        $callback! {
            $($argument;)?
            counter::claims_of_every_kind_draw_from_one_counter;
            counter::the_counter_survives_the_end_of_every_claim [Prune];
            counter::at_the_end_of_its_range_the_counter_refuses_every_claim [Lift];
            counter::the_last_tokens_are_handed_out_before_the_counter_refuses [Lift];
            counter::the_counter_is_lifted_and_never_lowered [Lift];
            counter::a_number_that_was_never_issued_is_refused_and_never_adopted;
            counter::a_refusal_carries_no_number_that_would_work;
            actor::acquiring_a_free_actor_wins;
            actor::a_live_actor_lease_refuses_everyone_its_holder_too;
            actor::a_lapsed_actor_lease_goes_to_whoever_acquires_under_a_greater_token;
            actor::two_actors_do_not_stand_in_each_others_way;
            actor::acquire_or_renew_keeps_the_callers_own_live_lease;
            actor::acquire_or_renew_refuses_on_anothers_live_lease;
            actor::acquire_or_renew_mints_anew_once_the_lease_lapsed;
            actor::renewing_an_actor_lease_keeps_its_token_and_moves_its_expiry;
            actor::a_renewal_never_shortens_an_actor_lease;
            actor::another_process_cannot_renew_an_actor_lease;
            actor::another_token_cannot_renew_an_actor_lease;
            actor::a_lapsed_actor_lease_cannot_be_renewed;
            actor::a_lease_that_nobody_holds_cannot_be_renewed;
            actor::a_released_actor_is_acquired_at_once_under_a_greater_token;
            actor::another_process_cannot_release_an_actor;
            actor::another_token_cannot_release_an_actor;
            actor::releasing_an_actor_nobody_ever_held_changes_nothing;
            actor::a_lapsed_actor_lease_that_nobody_took_is_still_released;
            actor::a_repeated_release_of_an_actor_is_recognised_until_a_newer_claim;
            actor::a_revoked_actor_lease_is_dead;
            attempt::an_assignment_is_created_once;
            attempt::a_retry_names_an_assignment_of_the_same_actor;
            attempt::an_attempt_descends_from_the_actors_live_lease;
            attempt::no_attempt_without_a_lease;
            attempt::no_attempt_under_a_lapsed_lease;
            attempt::no_attempt_under_another_token;
            attempt::no_attempt_by_another_process;
            attempt::no_attempt_at_an_assignment_that_is_not_there;
            attempt::no_attempt_at_an_assignment_of_another_actor;
            attempt::no_attempt_at_a_finished_assignment;
            attempt::a_live_attempt_refuses_everyone_its_holder_too;
            attempt::a_lapsed_attempt_is_replaced_under_a_greater_token;
            attempt::an_unexpired_attempt_under_a_lost_lease_is_not_live;
            attempt::attempt_refusals_come_in_the_order_of_the_contract;
            attempt::renewing_an_attempt_keeps_its_token_and_moves_its_expiry;
            attempt::an_attempt_is_renewed_on_its_exact_id_and_token;
            attempt::a_lapsed_attempt_cannot_be_renewed;
            attempt::an_attempt_under_a_lapsed_lease_cannot_be_renewed;
            attempt::an_attempt_under_a_superseded_lease_cannot_be_renewed;
            attempt::a_released_attempt_gives_the_assignment_back;
            attempt::an_attempt_is_released_on_its_exact_id_and_token;
            attempt::an_attempt_under_a_lost_lease_is_not_released;
            attempt::a_lapsed_attempt_that_nobody_took_is_still_released;
            attempt::a_repeated_release_of_an_attempt_is_recognised_until_a_newer_claim;
            attempt::a_live_attempt_is_never_closed_as_lost;
            attempt::an_expired_attempt_is_closed_as_worker_lost;
            attempt::an_unexpired_attempt_whose_lease_is_gone_is_closed_as_worker_lost;
            attempt::what_is_not_running_is_not_closed;
            attempt::closing_lost_attempts_stops_at_its_limit;
            attempt::a_revoked_attempt_is_dead_and_the_assignment_open;
            attempt::an_attempt_finishes_its_assignment;
            attempt::expiry_alone_does_not_refuse_a_finish;
            attempt::another_attempt_cannot_finish;
            attempt::another_token_cannot_finish;
            attempt::an_assignment_that_is_not_running_cannot_be_finished;
            attempt::an_attempt_cannot_finish_after_its_lease_was_released;
            attempt::an_attempt_cannot_finish_after_its_lease_was_revoked;
            attempt::an_attempt_cannot_finish_after_its_lease_was_taken_over;
            attempt::an_attempt_cannot_finish_after_its_own_process_acquired_the_actor_again;
            attempt::a_repeated_finish_is_recognised_before_every_other_clause;
            attempt::another_outcome_of_a_finished_attempt_is_refused;
            attempt::a_refused_second_process_leaves_its_assignment_created;
            claim::a_new_message_is_claimed_by_its_recipient;
            claim::a_message_that_is_not_there_cannot_be_claimed;
            claim::only_the_recipient_can_claim;
            claim::the_recipient_is_tested_before_any_fencing;
            claim::a_message_is_claimed_from_the_moment_it_is_due;
            claim::a_live_claim_refuses_every_other_process;
            claim::the_same_process_gets_the_same_grant_inside_its_claim;
            claim::callers_without_a_process_are_one_anonymous_process;
            claim::a_lapsed_claim_goes_to_whoever_claims_under_a_greater_token;
            claim::a_finished_message_cannot_be_claimed;
            claim::a_claim_can_descend_from_an_actor_lease;
            claim::a_claim_names_a_lease_that_is_live_and_its_own;
            claim::a_claim_whose_lease_is_gone_is_not_granted_again;
            claim::a_claim_under_one_lease_is_not_the_grant_of_another;
            claim::the_next_messages_come_by_priority_then_age;
            claim::an_empty_mailbox_grants_nothing;
            claim::the_next_message_is_never_a_live_one_nor_ones_own;
            claim::the_next_message_may_be_a_lapsed_one;
            claim::the_next_messages_descend_from_the_lease_they_are_asked_under;
            claim::more_messages_than_one_look_offers_are_claimed_up_to_the_limit;
            claim::an_extension_keeps_the_token_and_moves_the_expiry;
            claim::an_extension_never_shortens_a_claim;
            claim::a_lapsed_claim_cannot_be_extended;
            claim::a_sweep_turns_lapsed_claims_into_new_messages;
            claim::a_sweep_stops_at_its_limit;
            claim::a_claim_needs_no_sweeper;
            settle::every_call_under_the_right_grant_takes_effect;
            settle::no_call_works_under_a_stale_token;
            settle::no_call_works_for_another_owner;
            settle::no_call_works_for_another_process;
            settle::no_call_works_on_a_new_message;
            settle::no_call_works_on_a_finished_message;
            settle::no_call_works_on_a_message_that_is_not_there;
            settle::no_call_works_once_the_lease_it_descends_from_is_gone;
            settle::a_lapsed_lease_that_the_row_still_carries_does_not_refuse;
            settle::a_lapsed_claim_that_nobody_took_still_completes;
            settle::a_repeated_call_is_recognised_and_writes_nothing;
            settle::a_repetition_is_recognised_before_every_other_clause;
            settle::another_outcome_of_an_ended_claim_is_refused;
            settle::only_its_own_grant_is_recognised_again;
            settle::a_newer_claim_ends_the_recognition;
            settle::an_operators_dead_letter_does_not_end_the_recognition;
            settle::a_retry_can_delay_the_next_delivery;
            budget::three_failures_are_retried_and_the_fourth_ends_dead;
            budget::a_lapse_costs_one_retry_whoever_takes_over;
            budget::a_lapse_costs_one_retry_once_when_it_is_swept;
            budget::work_that_kills_its_worker_is_not_delivered_for_ever;
            budget::a_sweep_ends_a_message_without_budget;
            budget::looking_for_the_next_message_ends_one_without_budget;
            budget::a_live_give_back_costs_nothing;
            budget::a_give_back_after_the_lapse_costs_what_a_lapse_costs;
            budget::a_retry_after_the_lapse_costs_one_and_not_two;
            budget::a_revocation_costs_nothing_while_the_claim_is_live;
            budget::a_revocation_after_the_lapse_costs_what_a_lapse_costs;
            budget::a_lapse_of_an_earlier_boot_costs_nothing [Reboot];
            budget::a_claim_of_an_earlier_boot_still_completes [Reboot];
            operator::a_message_is_sent_once;
            operator::an_id_with_other_content_is_refused;
            operator::an_operator_dead_letters_a_new_message;
            operator::an_operator_dead_letters_a_message_whose_claim_has_lapsed;
            operator::an_operators_dead_letter_finds_a_message_out_of_budget_finished;
            operator::an_operator_does_not_dead_letter_over_a_claim;
            operator::what_a_holder_dead_lettered_is_not_an_operators_act;
            operator::a_dead_message_is_redriven_once;
            operator::only_a_dead_message_is_redriven;
            operator::a_redriven_message_needs_an_id_of_its_own;
            operator::a_revoked_claim_is_dead_and_its_message_new;
            host::registering_a_free_host_wins;
            host::registering_again_renews_ones_own_live_lease;
            host::a_live_host_lease_refuses_another_process;
            host::a_lapsed_host_lease_goes_to_whoever_registers_under_a_greater_token;
            host::a_released_host_is_registered_at_once_under_a_greater_token;
            host::a_bridge_shows_the_host_token_it_was_granted;
            host::a_host_lease_is_renewed_on_exact_process_and_token_while_live;
            host::a_host_is_released_on_exact_process_and_token;
            host::a_revoked_host_lease_is_dead;
            session::a_new_session_is_claimed_as_incarnation_1;
            session::the_same_host_lease_keeps_incarnation_and_token;
            session::a_session_is_claimed_under_the_hosts_live_and_current_lease;
            session::a_live_session_refuses_another_host;
            session::a_lapsed_session_is_claimed_as_the_next_incarnation;
            session::a_session_whose_host_lapsed_is_claimed_as_the_next_incarnation;
            session::a_session_whose_host_registered_anew_is_claimed_as_the_next_incarnation;
            session::a_finished_session_cannot_be_claimed;
            session::a_released_session_is_claimed_at_once_as_the_next_incarnation;
            session::a_session_is_released_on_exactly_its_own_generation;
            session::a_session_whose_host_lease_is_gone_is_not_released;
            session::a_repeated_release_of_a_session_is_recognised_until_a_newer_claim;
            session::a_revoked_session_is_dead_and_the_next_claim_is_the_next_incarnation;
            session::the_current_generation_finishes;
            session::the_callback_of_generation_1_is_refused_in_generation_3;
            session::another_host_cannot_finish;
            session::an_old_incarnation_cannot_finish_even_with_the_current_tokens;
            session::an_old_token_cannot_finish_even_as_the_current_incarnation;
            session::an_old_host_token_cannot_finish_even_with_the_rest_right;
            session::a_generation_whose_host_registered_anew_cannot_finish;
            session::a_refusal_says_until_when_the_claim_was_live_under_its_host;
            session::an_expired_session_cannot_finish_without_a_takeover;
            session::a_session_cannot_finish_once_its_hosts_lease_lapsed;
            session::a_session_nobody_holds_cannot_finish;
            session::a_repeated_finish_of_a_session_is_recognised_before_every_other_clause;
            session::a_new_session_starts_above_the_floor [Lift];
            session::an_incarnation_at_the_end_of_its_range_is_not_followed [Lift];
            gate::a_greater_token_raises_the_mark_and_the_same_one_passes;
            gate::a_token_below_the_mark_is_fenced;
            gate::a_token_above_the_ledgers_counter_is_fenced;
            gate::without_its_ledger_a_gate_admits_nothing_new;
            gate::a_gate_stays_bound_to_its_first_claim;
            gate::a_rebound_gate_starts_anew_with_its_new_claim;
            stale_writer::the_stale_writer_of_a_message;
            stale_writer::the_stale_writer_of_a_message_commits_while_nobody_superseded_it;
            stale_writer::the_stale_writer_of_an_actor_lease;
            stale_writer::the_stale_writer_of_an_attempt;
            stale_writer::the_stale_writer_of_an_attempt_whose_actor_was_taken_over;
            stale_writer::the_stale_writer_of_a_session;
            stale_writer::the_stale_writer_of_a_host_lease;
            clock::a_clock_that_jumps_back_delays_a_takeover_and_no_more;
            clock::a_clock_that_jumps_ahead_hastens_a_takeover_and_no_more;
            clock::tokens_and_incarnations_grow_while_the_clock_runs_backwards;
            clock::an_expiry_beyond_the_last_moment_is_the_last_moment;
            clock::after_a_reboot_every_earlier_lease_has_lapsed [Reboot];
            clock::after_a_reboot_an_attempt_is_not_live [Reboot];
            damage::a_malformed_expiry_of_an_actor_lease_is_reported [Damage];
            damage::a_malformed_expiry_of_an_attempt_is_reported [Damage];
            damage::a_malformed_expiry_of_a_message_is_reported [Damage];
            damage::a_malformed_expiry_of_a_host_lease_is_reported [Damage];
            damage::a_malformed_expiry_of_a_session_is_reported [Damage];
            history::an_actor_leaves_an_event_for_every_transition [SeeHistory];
            history::an_attempt_leaves_an_event_for_every_transition [SeeHistory];
            history::an_attempts_end_is_in_the_history_by_its_name [SeeHistory];
            history::a_message_leaves_an_event_for_every_transition [SeeHistory];
            history::a_messages_end_is_in_the_history_by_its_name [SeeHistory];
            history::a_claim_that_finds_no_budget_leaves_the_events_of_the_end_only [SeeHistory];
            history::an_operators_act_on_a_lapsed_claim_leaves_both_events [SeeHistory];
            history::a_host_leaves_an_event_for_every_transition [SeeHistory];
            history::a_session_leaves_an_event_for_every_transition [SeeHistory];
            history::gates_and_tokens_of_ones_own_leave_events [SeeHistory];
            history::tokens_grow_in_the_order_of_events [SeeHistory];
            history::a_refused_token_is_recorded_with_what_was_presented [SeeRefusals];
            history::a_release_under_a_stale_token_changes_nothing_and_is_recorded [SeeRefusals];
            history::a_refusal_without_a_token_leaves_no_record [SeeRefusals];
            bounds::the_longest_name_is_a_name_like_any_other;
            bounds::names_that_differ_only_in_case_or_accents_are_different;
            bounds::a_full_ledger_refuses_new_rows_and_mints_nothing [Fill];
            bounds::a_pruned_message_is_still_finished [Prune];
            bounds::a_pruned_assignment_is_still_finished [Prune];
            bounds::a_pruned_session_never_starts_again_at_1 [Prune];
            seeds::one_of_two_processes_of_a_recipient_wins_a_contested_message;
            seeds::a_never_issued_token_is_refused_and_the_right_one_completes;
            seeds::the_lease_timeline_is_fresh_same_refused_fresh_refused;
            seeds::a_claim_on_ones_own_expired_lease_mints_a_fresh_token;
            seeds::the_same_actor_from_two_processes_is_exclusive;
            seeds::a_stale_copy_cannot_drive_a_retry_or_a_dead_letter;
            seeds::a_dead_message_stays_on_the_ledger;
            seeds::the_actor_lease_is_a_compare_and_set;
            seeds::an_attempt_wants_the_lease_and_is_held_by_one;
            seeds::a_second_process_of_an_actor_is_refused_before_its_work_starts;
            seeds::an_attempt_is_refused_when_its_actor_was_taken_over_before_it_began;
            seeds::a_takeover_increments_the_incarnation_and_fences_the_stale_finish;
            seeds::kiosk_a_cannot_finish_its_first_run_from_its_second;
            seeds::looking_before_writing_makes_two_owners;
        }
    };
}

macro_rules! table {
    ($($module:ident::$name:ident $([$($need:ident),*])?;)*) => {
        /// Every scenario.
        pub const SCENARIOS: &[Scenario] = &[$(Scenario {
            name: stringify!($name),
            needs: &[$($(Can::$need),*)?],
            run: scenarios::$module::$name,
        },)*];
    };
}
for_each_scenario!(table);

/// Makes one named test per scenario, as in `kit_tests!(OnMemory::new())`. The expression makes a fresh
/// [`Subject`](crate::kit::Subject).
#[macro_export]
macro_rules! kit_tests {
    ($subject:expr) => {
        $crate::for_each_scenario!($crate::__kit_test, $subject);
    };
}

/// The callback of [`kit_tests!`](crate::kit_tests).
#[doc(hidden)]
#[macro_export]
macro_rules! __kit_test {
    ($subject:expr; $($module:ident::$name:ident $([$($need:ident),*])?;)*) => {
        $(#[test]
        fn $name() {
            $crate::kit::run(stringify!($name), &mut $subject);
        })*
    };
}
