//! What the main loop and an interrupt both use.

use core::cell::RefCell;

use critical_section::Mutex;

/// A place for one thing that is made after the start.
#[derive(Debug)]
pub struct Shared<T>(Mutex<RefCell<Option<T>>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Shared<T> {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(RefCell::new(None)))
    }

    /// Puts it there.
    pub fn put(&self, thing: T) {
        critical_section::with(|section| self.0.replace(section, Some(thing)));
    }

    /// Does something with it, with interrupts off; `None` before it is there, and where `act` comes back here: a program that
    /// ends in there ends without it.
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        critical_section::with(|section| self.0.borrow(section).try_borrow_mut().ok()?.as_mut().map(act))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_done_before_it_is_there() {
        let shared = Shared::new();
        assert_eq!(shared.with(|n: &mut i32| *n), None);
        shared.put(7);
        assert_eq!(shared.with(|n| core::mem::replace(n, 8)), Some(7));
        assert_eq!(shared.with(|n| *n), Some(8));
        assert_eq!(shared.with(|_| shared.with(|n| *n)), Some(None));
    }
}
