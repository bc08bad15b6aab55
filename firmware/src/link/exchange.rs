//! One call and its answer, on the host's end.

use keyfence_core::{ProcessId, TimeMs};

use super::answer::Reply;
use super::packet::SessionId;
use super::request::{Call, Repetition};

/// How a call was sent so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// When it was sent first, on the host's clock.
    pub(super) first_at: TimeMs,
    /// In which boot of the kiosk.
    pub(super) first_boot: ProcessId,
    /// The link session that it was sent in last.
    pub(super) session: SessionId,
    /// The counter of the first frame of it in that session.
    pub(super) from: u64,
}

/// One call, however often it has to be sent: it knows when it was sent first, and takes one answer (L4).
#[derive(Debug)]
pub struct Exchange {
    pub(super) call: Call,
    pub(super) sent: Option<Sent>,
    is_fresh: bool,
}

impl Exchange {
    /// Of a call that was never sent before: its request id, if it has one, is above all earlier ones of its client.
    #[must_use]
    pub const fn new(call: Call) -> Self {
        Self {
            call,
            sent: None,
            is_fresh: true,
        }
    }

    /// Of a call that may have been sent before, by somebody who does not remember when. If it was, the answer tells what
    /// it came to, and begins no [`Tenure`](super::Tenure).
    #[must_use]
    pub const fn again(call: Call) -> Self {
        Self {
            call,
            sent: None,
            is_fresh: false,
        }
    }

    /// The call.
    #[must_use]
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// Whether a frame of it was made: then it may have arrived.
    #[must_use]
    pub const fn was_sent(&self) -> bool {
        self.sent.is_some()
    }

    /// Whether it may be sent, or sent again (L8).
    pub(super) const fn may_be_sent(&self) -> bool {
        self.sent.is_none() || self.call.id.is_some() || matches!(self.call.request.repetition(), Repetition::Harmless)
    }

    /// The answer to the frame of this counter, if it was one of this call. There is one.
    pub(super) fn answered(
        &mut self,
        session: SessionId,
        counter: u64,
        boot: ProcessId,
        reply: Reply,
    ) -> Option<Answered> {
        let sent = self
            .sent
            .filter(|sent| sent.session == session && counter >= sent.from)?;
        // A first answer that is given again was decided in the boot of the first sending, or nobody knows when.
        let is_timed = !reply.replayed || (self.is_fresh && sent.first_boot == boot);
        Some(Answered {
            reply,
            sent_at: sent.first_at,
            boot,
            is_timed,
        })
    }
}

/// An answer, and when its call was first sent. Only [`HostEnd`](super::HostEnd) makes one, from an authentic frame.
///
/// ```compile_fail
/// # use keyfence_core::{ProcessId, TimeMs};
/// # use keyfence_firmware::link::{Answered, Reply};
/// fn forge(reply: Reply, sent_at: TimeMs, boot: ProcessId) -> Answered {
///     Answered { reply, sent_at, boot, is_timed: true }
/// }
/// ```
#[derive(Debug)]
pub struct Answered {
    reply: Reply,
    sent_at: TimeMs,
    boot: ProcessId,
    is_timed: bool,
}

impl Answered {
    /// The answer.
    #[must_use]
    pub const fn reply(&self) -> &Reply {
        &self.reply
    }

    /// The answer, taken out.
    #[must_use]
    pub fn into_reply(self) -> Reply {
        self.reply
    }

    /// When its call was first sent, on the host's clock.
    #[must_use]
    pub const fn sent_at(&self) -> TimeMs {
        self.sent_at
    }

    /// In which boot of the kiosk it was given.
    #[must_use]
    pub const fn boot(&self) -> ProcessId {
        self.boot
    }

    /// Whether what was decided was decided after `sent_at`, in this boot.
    pub(super) const fn is_timed(&self) -> bool {
        self.is_timed
    }
}
