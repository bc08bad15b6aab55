//! The queue of one handle's threads: first come, first served.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

use super::{Deadline, locked};

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    turn: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: bool,
    waiting: VecDeque<u64>,
    next_ticket: u64,
}

impl Queue {
    /// Whether the caller's turn came by the deadline.
    pub(super) fn enter(&self, deadline: Deadline) -> bool {
        let mut state = locked(&self.state);
        if !state.taken && state.waiting.is_empty() {
            state.taken = true;
            return true;
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        loop {
            if !state.taken && state.waiting.front() == Some(&ticket) {
                state.waiting.pop_front();
                state.taken = true;
                return true;
            }
            let left = deadline.remaining();
            if left.is_zero() {
                state.waiting.retain(|other| *other != ticket);
                // The next in line may be the first one now.
                self.turn.notify_all();
                return false;
            }
            state = self
                .turn
                .wait_timeout(state, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }

    pub(super) fn leave(&self) {
        let mut state = locked(&self.state);
        state.taken = false;
        let awaited = !state.waiting.is_empty();
        drop(state);
        if awaited {
            self.turn.notify_all();
        }
    }
}
