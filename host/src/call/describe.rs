//! What a call asks for, as bytes: so that another call under the same request id is noticed.

use std::time::Duration;

use keyfence_core::actor;
use keyfence_core::attempt::{self, AttemptGrant};
use keyfence_core::gate::ClaimKind;
use keyfence_core::host::{self, Proof};
use keyfence_core::lease::LeaseGrant;
use keyfence_core::mailbox::{self, MessageGrant};
use keyfence_core::session::{self, Generation, SessionGrant};
use keyfence_core::{AttemptId, Incarnation, Name, ProcessId, TimeMs, Token, Ttl};

use crate::message::{Completion, NewMessage};
use crate::store::check::Encoder;

/// Goes into the digest of a call, field by field.
pub(crate) trait Describe {
    fn describe(&self, call: &mut Encoder);
}

impl<T: Describe + ?Sized> Describe for &T {
    fn describe(&self, call: &mut Encoder) {
        (**self).describe(call);
    }
}

impl<T: Describe> Describe for Option<T> {
    fn describe(&self, call: &mut Encoder) {
        call.opt(self.as_ref(), |call, field| field.describe(call));
    }
}

impl<T: Describe> Describe for [T] {
    fn describe(&self, call: &mut Encoder) {
        call.number(self.len() as u64);
        for item in self {
            item.describe(call);
        }
    }
}

impl Describe for () {
    fn describe(&self, _call: &mut Encoder) {}
}

macro_rules! tuples {
    ($(($($field:ident)+))+) => {$(
        impl<$($field: Describe),+> Describe for ($($field,)+) {
            fn describe(&self, call: &mut Encoder) {
                #[expect(non_snake_case, reason = "one name for each type and its field")]
                let ($($field,)+) = self;
                $($field.describe(call);)+
            }
        }
    )+};
}

tuples! { (A B) (A B C) (A B C D) }

macro_rules! plain {
    ($($type:ty: |$value:ident, $call:ident| $put:expr;)*) => {$(
        impl Describe for $type {
            fn describe(&self, $call: &mut Encoder) {
                let $value = self;
                $put;
            }
        }
    )*};
}

/// Bytes that a caller chose.
pub(crate) struct Bytes<'b>(pub(crate) &'b [u8]);

plain! {
    Bytes<'_>: |bytes, call| call.bytes(bytes.0);
    str: |text, call| call.text(text);
    u64: |number, call| call.number(*number);
    Name: |name, call| call.text(name.as_str());
    Token: |token, call| call.number(token.get());
    Incarnation: |incarnation, call| call.number(incarnation.get());
    TimeMs: |time, call| call.number(time.as_ms());
    Ttl: |ttl, call| call.number(ttl.as_ms());
    Duration: |delay, call| call.number(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
    ProcessId: |process, call| call.bytes(process.as_bytes());
    AttemptId: |attempt, call| call.bytes(attempt.as_bytes());
    ClaimKind: |kind, call| call.text(kind.name());
    attempt::Outcome: |outcome, call| call.text(outcome.name());
    AttemptGrant: |grant, call| (grant.assignment(), grant.attempt(), grant.token()).describe(call);
    MessageGrant: |grant, call| (grant.message(), grant.owner(), grant.process(), grant.token()).describe(call);
    Generation: |generation, call| (
        &generation.host,
        generation.incarnation,
        generation.token,
        generation.host_token,
    ).describe(call);
    SessionGrant: |grant, call| (grant.session(), grant.generation()).describe(call);
    actor::Acquire: |ask, call| (&ask.actor, ask.process, ask.ttl).describe(call);
    attempt::Create: |ask, call| (&ask.id, &ask.actor, &ask.retry_of).describe(call);
    attempt::Acquire: |ask, call| (
        (&ask.assignment, &ask.actor, ask.process),
        (ask.lease_token, ask.attempt, ask.ttl),
    ).describe(call);
    mailbox::Claim: |ask, call| (
        (&ask.message, &ask.owner, ask.process),
        (ask.lease_token, ask.ttl),
    ).describe(call);
    mailbox::ClaimNext: |ask, call| (&ask.owner, ask.process, ask.lease_token, ask.ttl).describe(call);
    host::Register: |ask, call| (&ask.host, ask.process, ask.proof, ask.ttl).describe(call);
    session::ClaimSession: |ask, call| (&ask.session, &ask.host, ask.ttl).describe(call);
    Completion<'_>: |completion, call| (completion.grant, Bytes(completion.result)).describe(call);
}

impl<K> Describe for LeaseGrant<K> {
    fn describe(&self, call: &mut Encoder) {
        (self.name(), self.process(), self.token()).describe(call);
    }
}

impl Describe for Proof {
    fn describe(&self, call: &mut Encoder) {
        match self {
            Self::Process => call.number(0),
            Self::Bridge(token) => {
                call.number(1);
                token.describe(call);
            }
        }
    }
}

impl Describe for NewMessage {
    fn describe(&self, call: &mut Encoder) {
        (&self.id, &self.sender, &self.recipient, &*self.subject).describe(call);
        (
            Bytes(&self.body),
            i64::from(self.priority.get()).cast_unsigned(),
            self.not_before,
            u64::from(self.retries_max),
        )
            .describe(call);
    }
}
