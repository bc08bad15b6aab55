//! Every order of what two and three contenders can do, in the core; and what happens when one predicate is missing.
//!
//! The bounds are such that all of it takes seconds. `KEYFENCE_INTERLEAVINGS=wide` widens them: run it with `--release`.

use keyfence_tests::model::{Cast, Weakness, explore};

/// More worlds than any cast here has.
const WORLDS_MAX: usize = 5_000_000;

/// Explores a cast completely: no invariant may break, and every kind of act must have had an effect somewhere.
#[track_caller]
fn sound(cast: &Cast) {
    let wide = Cast {
        ticks: cast.ticks + 1,
        jumps: 1,
        ..cast.clone()
    };
    let cast = match std::env::var("KEYFENCE_INTERLEAVINGS").as_deref() {
        Ok("wide") => &wide,
        Ok(other) => panic!("KEYFENCE_INTERLEAVINGS={other}: only `wide` is known"),
        Err(_) => cast,
    };
    let found = explore(cast, None, WORLDS_MAX);
    if let Some((broken, story)) = found.broken {
        panic!("{broken}\n{story}");
    }
    let idle: Vec<_> = found.effects.iter().filter(|(_, effects)| **effects == 0).collect();
    assert_eq!(idle, [], "acts that never had an effect show nothing");
    println!("{} worlds, {} acts: {:?}", found.worlds, found.acts, found.effects);
}

fn actor() -> Cast {
    Cast {
        leases: 4,
        ticks: 4,
        jumps: 1,
        ..Cast::NONE
    }
}

fn attempt() -> Cast {
    Cast {
        leases: 2,
        attempts: 2,
        ticks: 2,
        claim_ticks: 1,
        ..Cast::NONE
    }
}

fn message() -> Cast {
    Cast {
        claims: 3,
        ticks: 2,
        jumps: 1,
        claim_ticks: 1,
        ..Cast::NONE
    }
}

fn message_under_a_lease() -> Cast {
    Cast {
        leases: 2,
        claims: 2,
        under_lease: true,
        ticks: 2,
        claim_ticks: 1,
        ..Cast::NONE
    }
}

/// Hosts that outlive sessions: A(1), B(2), A(3) under two host leases.
fn session() -> Cast {
    Cast {
        hosts: 2,
        sessions: 3,
        ticks: 2,
        lease_ticks: 3,
        claim_ticks: 1,
        ..Cast::NONE
    }
}

/// Hosts that lapse and register anew under sessions that have not lapsed.
fn session_under_new_hosts() -> Cast {
    Cast {
        hosts: 3,
        sessions: 2,
        ticks: 2,
        lease_ticks: 1,
        claim_ticks: 2,
        ..Cast::NONE
    }
}

#[test]
fn two_processes_contend_for_an_actor_in_every_order() {
    sound(&actor());
}

#[test]
fn three_processes_contend_for_an_actor_in_every_order() {
    sound(&Cast {
        contenders: 3,
        leases: 3,
        ..actor()
    });
}

#[test]
fn two_processes_contend_for_a_job_in_every_order() {
    sound(&attempt());
}

#[test]
fn three_processes_contend_for_a_job_in_every_order() {
    sound(&Cast {
        contenders: 3,
        ..attempt()
    });
}

#[test]
fn two_processes_contend_for_a_message_in_every_order() {
    sound(&message());
}

#[test]
fn three_processes_contend_for_a_message_in_every_order() {
    sound(&Cast {
        contenders: 3,
        jumps: 0,
        ..message()
    });
}

#[test]
fn two_processes_contend_for_a_message_under_their_actors_lease_in_every_order() {
    sound(&message_under_a_lease());
}

#[test]
fn three_processes_contend_for_a_message_under_their_actors_lease_in_every_order() {
    sound(&Cast {
        contenders: 3,
        ..message_under_a_lease()
    });
}

#[test]
fn two_hosts_contend_for_a_session_in_every_order() {
    sound(&session());
}

#[test]
fn two_hosts_that_register_anew_contend_for_a_session_in_every_order() {
    sound(&session_under_new_hosts());
}

#[test]
fn two_hosts_and_a_second_process_of_one_contend_for_a_session_in_every_order() {
    sound(&Cast {
        contenders: 3,
        ticks: 1,
        ..session_under_new_hosts()
    });
}

// ---- what the exploration finds when a predicate is missing

/// The exploration must find that this invariant breaks, and tell the shortest way there.
#[track_caller]
fn breaks(cast: &Cast, weakness: Weakness, invariant: &str) {
    let found = explore(cast, Some(weakness), WORLDS_MAX);
    let (broken, story) = found
        .broken
        .unwrap_or_else(|| panic!("{weakness:?} was not noticed in {} worlds", found.worlds));
    println!("{weakness:?}: {broken}\n{story}");
    assert_eq!(broken.invariant, invariant, "{broken}\n{story}");
    assert!(story.contains("BROKEN"), "the story tells it:\n{story}");
}

#[test]
fn without_the_token_a_stale_holder_ends_a_newer_generation() {
    breaks(&message(), Weakness::TokenFromTheRow, "I3");
    breaks(&attempt(), Weakness::TokenFromTheRow, "I3");
    breaks(&session(), Weakness::TokenFromTheRow, "I3");
    breaks(&actor(), Weakness::TokenFromTheRow, "I3");
}

#[test]
fn without_a_mint_two_generations_share_a_token() {
    for cast in [actor(), attempt(), message(), session()] {
        breaks(&cast, Weakness::TakeoverKeepsTheToken, "I1");
    }
}

#[test]
fn without_the_expiry_check_of_a_claim_a_live_holder_is_replaced() {
    for cast in [actor(), attempt(), message(), session()] {
        breaks(&cast, Weakness::LiveIsLapsed, "I2");
    }
}

#[test]
fn without_the_expiry_check_of_a_renewal_a_lapsed_lease_is_renewed() {
    breaks(&actor(), Weakness::LapsedIsLive, "I6");
    breaks(&message(), Weakness::LapsedIsLive, "I6");
}

#[test]
fn without_the_expiry_check_of_its_finish_a_lapsed_session_finishes() {
    let only_finish = Cast {
        ticks: 1,
        hosts: 1,
        sessions: 1,
        ..session()
    };
    breaks(&only_finish, Weakness::LapsedIsLive, "I5");
}

#[test]
fn without_the_descent_a_generation_of_a_superseded_lease_ends_well() {
    breaks(&attempt(), Weakness::AnyLeaseWillDo, "I5");
    breaks(&message_under_a_lease(), Weakness::AnyLeaseWillDo, "I5");
    breaks(&session_under_new_hosts(), Weakness::AnyLeaseWillDo, "I5");
}

#[test]
fn without_the_cost_of_a_lapse_a_message_is_delivered_for_ever() {
    let deadly = Cast {
        claims: 4,
        ticks: 3,
        jumps: 0,
        claim_ticks: 1,
        retries_max: 1,
        ..Cast::NONE
    };
    breaks(&deadly, Weakness::LapseIsFree, "I7");
}

#[test]
fn without_the_state_a_finished_message_is_finished_again() {
    breaks(&message(), Weakness::FinishedIsClaimed, "I4");
}
