//! What follows the history and knows nothing of the machines: the invariants I1 to I8 of [`super`].

use core::fmt;

use keyfence_core::event::{Event, EventKind};
use keyfence_core::{Expiry, Incarnation, Name, ProcessId, TimeMs, Token};

/// An invariant that does not hold, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which: `I1` to `I8`.
    pub invariant: &'static str,
    /// How.
    pub how: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.how)
    }
}

/// Fails unless the condition holds.
macro_rules! hold {
    ($invariant:literal, $condition:expr, $($how:tt)+) => {
        if !$condition {
            return Err(Broken { invariant: $invariant, how: format!($($how)+) });
        }
    };
}

/// Which kind of name a chain of generations belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Actor,
    Assignment,
    Message,
    Host,
    Session,
}

/// The generation that is the current one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Current {
    /// Its token.
    pub(super) token: Token,
    /// The token of the lease it descends from.
    parent: Option<Token>,
    /// Whose it is.
    holder: Name,
    /// Which process works under it.
    process: Option<ProcessId>,
    /// Until when it is live, as the holder was told.
    pub(super) expires_at: TimeMs,
    /// Of a session.
    incarnation: Option<Incarnation>,
}

impl fmt::Display for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} until {}", self.token, self.expires_at.as_ms() / 60_000)
    }
}

/// A generation in words, or that there is none.
fn words(current: Option<&Current>) -> String {
    current.map_or_else(|| "nobody".to_owned(), ToString::to_string)
}

impl Current {
    fn live(&self, now: TimeMs) -> bool {
        self.expires_at > now
    }
}

/// The generations of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Chain {
    of: Of,
    name: Name,
    current: Option<Current>,
    /// The last act that ended a generation, until a newer claim.
    ended: Option<(Token, &'static str)>,
    /// Whether it is over.
    terminal: bool,
    /// The last incarnation of a session.
    incarnation: Option<Incarnation>,
    deliveries: u16,
    /// Deliveries that ended without a failure.
    free: u16,
}

/// Follows the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Monitor {
    last_token: Option<Token>,
    chains: Vec<Chain>,
    retries_max: u16,
}

/// What an event does to the chain it is about.
enum Turn {
    /// A new generation.
    Claim,
    /// The holder ends its generation, and the name is open again.
    Reopen,
    /// The holder's terminal write.
    Finish,
    /// Somebody else ends a generation that is not live: terminally, or not.
    Lost { terminal: bool },
    /// An operator ends the generation.
    Revoke,
    /// An operator ends the name.
    Close,
    /// Nothing: the name begins, or no claim is involved.
    Other,
}

fn turn(event: &Event) -> (Of, Turn) {
    match event.kind {
        EventKind::ActorAcquired => (Of::Actor, Turn::Claim),
        EventKind::ActorReleased => (Of::Actor, Turn::Reopen),
        EventKind::ActorRevoked => (Of::Actor, Turn::Revoke),
        EventKind::AssignmentCreated => (Of::Assignment, Turn::Other),
        EventKind::AttemptAcquired => (Of::Assignment, Turn::Claim),
        EventKind::AttemptReleased => (Of::Assignment, Turn::Reopen),
        EventKind::AttemptRevoked => (Of::Assignment, Turn::Revoke),
        EventKind::AttemptCompleted | EventKind::AttemptBlocked | EventKind::AttemptFailed => {
            (Of::Assignment, Turn::Finish)
        }
        EventKind::AttemptWorkerLost => (Of::Assignment, Turn::Lost { terminal: true }),
        EventKind::MessageSent | EventKind::MessageRedriven => (Of::Message, Turn::Other),
        EventKind::MessageClaimed => (Of::Message, Turn::Claim),
        EventKind::MessageLapsed => (Of::Message, Turn::Lost { terminal: false }),
        EventKind::MessageGivenBack | EventKind::MessageRetried => (Of::Message, Turn::Reopen),
        EventKind::MessageCompleted => (Of::Message, Turn::Finish),
        EventKind::MessageDead if event.token.is_some() => (Of::Message, Turn::Finish),
        EventKind::MessageDead if event.replaced.is_some() => (Of::Message, Turn::Lost { terminal: true }),
        EventKind::MessageDead => (Of::Message, Turn::Close),
        EventKind::MessageRevoked => (Of::Message, Turn::Revoke),
        EventKind::HostRegistered => (Of::Host, Turn::Claim),
        EventKind::HostReleased => (Of::Host, Turn::Reopen),
        EventKind::HostRevoked => (Of::Host, Turn::Revoke),
        EventKind::SessionClaimed => (Of::Session, Turn::Claim),
        EventKind::SessionReleased => (Of::Session, Turn::Reopen),
        EventKind::SessionFinished => (Of::Session, Turn::Finish),
        EventKind::SessionRevoked => (Of::Session, Turn::Revoke),
        EventKind::GateRaised
        | EventKind::GateRebound
        | EventKind::TokenMinted
        | EventKind::LedgerRestored
        | EventKind::LedgerPruned => (Of::Actor, Turn::Other),
    }
}

impl Monitor {
    pub(super) fn new(retries_max: u16) -> Self {
        Self {
            last_token: None,
            chains: Vec::new(),
            retries_max,
        }
    }

    fn chain(&mut self, of: Of, name: &Name) -> &mut Chain {
        let at = match self
            .chains
            .iter()
            .position(|chain| chain.of == of && chain.name == *name)
        {
            Some(at) => at,
            None => {
                self.chains.push(Chain {
                    of,
                    name: name.clone(),
                    current: None,
                    ended: None,
                    terminal: false,
                    incarnation: None,
                    deliveries: 0,
                    free: 0,
                });
                self.chains.len() - 1
            }
        };
        &mut self.chains[at]
    }

    /// The current generation of a name.
    pub(super) fn current(&self, of: Of, name: &Name) -> Option<&Current> {
        self.chains
            .iter()
            .find(|chain| chain.of == of && chain.name == *name)?
            .current
            .as_ref()
    }

    /// The lease that a generation descends from, if that very one is the current one.
    fn parent(&self, of: Of, current: &Current) -> Option<&Current> {
        let leases = match of {
            Of::Session => Of::Host,
            Of::Actor | Of::Assignment | Of::Message | Of::Host => Of::Actor,
        };
        self.current(leases, &current.holder)
            .filter(|lease| Some(lease.token) == current.parent)
    }

    /// Whether a generation is live, as its machine defines it.
    fn is_live(&self, of: Of, current: &Current, now: TimeMs) -> bool {
        current.live(now)
            && match of {
                Of::Actor | Of::Host | Of::Message => true,
                Of::Assignment => self.parent(of, current).is_some(),
                Of::Session => self.parent(of, current).is_some_and(|host| host.live(now)),
            }
    }

    /// Takes an event in.
    pub(super) fn follow(&mut self, event: &Event, now: TimeMs) -> Result<(), Broken> {
        let (of, turn) = turn(event);
        if matches!(turn, Turn::Other) {
            return Ok(());
        }
        let kind = event.kind;
        let before = self.chain(of, &event.subject).clone();
        hold!("I4", !before.terminal, "{kind} after the end of {}", event.subject);
        let current = before.current.as_ref();
        let live = current.is_some_and(|current| self.is_live(of, current, now));
        let replaced = event.replaced.as_ref().map(|replaced| replaced.token);
        let mut after = before.clone();
        after.current = None;
        match turn {
            Turn::Claim => {
                let claimed = claimed(event)?;
                hold!(
                    "I1",
                    self.last_token.is_none_or(|last| claimed.token > last),
                    "{kind} under token {} after token {}",
                    claimed.token,
                    self.last_token.map_or(0, Token::get)
                );
                hold!("I2", !live, "{kind} replaces a live claim: {}", words(current));
                hold!(
                    "I2",
                    replaced == current.map(|current| current.token),
                    "{kind} says that it replaced {replaced:?}, and it replaced {}",
                    words(current)
                );
                if let Some(replaced) = &event.replaced {
                    let expires_at = current.map(|current| Expiry::At(current.expires_at));
                    hold!(
                        "I2",
                        Some(replaced.expiry) == expires_at,
                        "{kind} says that it replaced a claim until {:?}, which was until {expires_at:?}",
                        replaced.expiry
                    );
                }
                if claimed.parent.is_some() {
                    let parent = self.parent(of, &claimed);
                    hold!(
                        "I5",
                        parent.is_some_and(|parent| parent.live(now) && parent.process == claimed.process),
                        "{kind} under a lease that is not live and its own: {}",
                        words(parent)
                    );
                }
                if of == Of::Session {
                    hold!(
                        "I1",
                        claimed.incarnation > before.incarnation,
                        "incarnation {:?} after {:?}",
                        claimed.incarnation,
                        before.incarnation
                    );
                    after.incarnation = claimed.incarnation;
                }
                self.last_token = Some(claimed.token);
                after.ended = None;
                after.deliveries += 1;
                hold!(
                    "I7",
                    of != Of::Message || after.deliveries - after.free <= self.retries_max + 1,
                    "delivered {} times, {} of them free, with {} retries",
                    after.deliveries,
                    after.free,
                    self.retries_max
                );
                after.current = Some(claimed);
            }
            Turn::Reopen | Turn::Finish => {
                let Some(current) = current.filter(|current| Some(current.token) == event.token) else {
                    return Err(Broken {
                        invariant: "I3",
                        how: format!(
                            "{kind} under token {}, while the current one is {}",
                            event.token.map_or(0, Token::get),
                            words(before.current.as_ref())
                        ),
                    });
                };
                let finishes = matches!(turn, Turn::Finish);
                if current.parent.is_some() {
                    let parent = self.parent(of, current);
                    hold!("I5", parent.is_some(), "{kind} under a lease that was superseded");
                }
                if finishes && of == Of::Session {
                    hold!("I5", live, "{kind} of a session that is not live");
                }
                after.free += u16::from(kind == EventKind::MessageGivenBack && live);
                after.terminal = finishes;
            }
            Turn::Lost { terminal } => {
                hold!("I2", !live, "{kind} of a live claim: {}", words(current));
                hold!(
                    "I3",
                    replaced.is_some() && replaced == current.map(|current| current.token),
                    "{kind} says that it ended {replaced:?}, and it ended {}",
                    words(current)
                );
                after.terminal = terminal;
            }
            Turn::Revoke => {
                hold!(
                    "I3",
                    replaced.is_some() && replaced == current.map(|current| current.token),
                    "{kind} says that it ended {replaced:?}, and it ended {}",
                    words(current)
                );
                after.free += u16::from(live);
            }
            Turn::Close => {
                hold!("I2", current.is_none(), "{kind} over a claim: {}", words(current));
                after.terminal = true;
            }
            Turn::Other => {}
        }
        *self.chain(of, &event.subject) = after;
        Ok(())
    }

    /// A renewal was granted.
    pub(super) fn renewed(
        &mut self,
        of: Of,
        name: &Name,
        token: Token,
        expires_at: TimeMs,
        now: TimeMs,
    ) -> Result<(), Broken> {
        let current = self.chain(of, name).current.as_mut();
        let Some(current) = current.filter(|current| current.token == token) else {
            return Err(Broken {
                invariant: "I6",
                how: format!("{token} was renewed, and is not the current one of {name}"),
            });
        };
        hold!("I6", current.live(now), "{token} was renewed after its lapse");
        hold!(
            "I6",
            current.expires_at <= expires_at,
            "{token} was live until {} and was shortened to {expires_at}",
            current.expires_at
        );
        current.expires_at = expires_at;
        Ok(())
    }

    /// A holder's act took effect.
    pub(super) fn acted(&mut self, of: Of, name: &Name, token: Token, act: &'static str) {
        self.chain(of, name).ended = Some((token, act));
    }

    /// A holder's act was said to have taken effect before.
    pub(super) fn repeated(&mut self, of: Of, name: &Name, token: Token, act: &'static str) -> Result<(), Broken> {
        let ended = self.chain(of, name).ended;
        hold!(
            "I8",
            ended == Some((token, act)),
            "`{act}` under {token} was said to be done already, and what was done is {ended:?}"
        );
        Ok(())
    }

    /// A call was refused, or did nothing: what it may leave is overdue bookkeeping.
    pub(super) fn refused(events: &[Event]) -> Result<(), Broken> {
        for event in events {
            let (_, turn) = turn(event);
            hold!(
                "I8",
                matches!(turn, Turn::Lost { .. }) && event.token.is_none(),
                "a refused call left {}",
                event.kind
            );
        }
        Ok(())
    }
}

/// The generation that a claim's event begins.
fn claimed(event: &Event) -> Result<Current, Broken> {
    match (event.token, &event.holder, event.expires_at) {
        (Some(token), Some(holder), Some(expires_at)) => Ok(Current {
            token,
            parent: event.parent_token,
            holder: holder.name.clone(),
            process: holder.process,
            expires_at,
            incarnation: event.incarnation,
        }),
        (None, _, _) | (_, None, _) | (_, _, None) => Err(Broken {
            invariant: "I1",
            how: format!("a claim's event says not who, under what and until when: {event:?}"),
        }),
    }
}
