//! Fresh identities: each is drawn at random (a version 4 UUID), so that no two are ever the same.

use keyfence_core::{AttemptId, Name, ProcessId};
use uuid::Uuid;

use crate::RequestId;

/// The identity of one running instance. Draw one for every process, and a new one after a fork.
#[must_use]
pub fn process() -> ProcessId {
    ProcessId::from_bytes(Uuid::new_v4().into_bytes())
}

/// The id of one execution attempt.
#[must_use]
pub fn attempt() -> AttemptId {
    AttemptId::from_bytes(Uuid::new_v4().into_bytes())
}

/// A message's id: `msg_` and 32 hexadecimal digits.
#[must_use]
pub fn message() -> Name {
    named("msg_")
}

/// An assignment's id: `asg_` and 32 hexadecimal digits.
#[must_use]
pub fn assignment() -> Name {
    named("asg_")
}

/// A request id: `req_` and 32 hexadecimal digits.
#[must_use]
pub fn request() -> RequestId {
    RequestId::new(named("req_").as_str()).expect("36 bytes of ASCII")
}

fn named(prefix: &str) -> Name {
    Name::new(&format!("{prefix}{}", Uuid::new_v4().simple())).expect("36 bytes of ASCII")
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_are_the_same_and_each_reads_back() {
        let process = super::process();
        assert_ne!(process, super::process());
        assert_eq!(process.to_string().parse(), Ok(process));
        assert_ne!(super::message(), super::message());
        assert!(super::assignment().as_str().starts_with("asg_"));
        assert_eq!(super::request().as_str().len(), 36);
    }
}
