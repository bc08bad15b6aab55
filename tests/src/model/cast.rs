//! Who contends, for what, and within which bounds.

use super::world::World;

/// One thing that can happen next. Numbers of processes and of hosts count contenders; numbers of grants count the grants that
/// were ever handed out, so that any of them can be presented again at any later time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// The clock goes on by one tick.
    Tick,
    /// The clock jumps back by two ticks.
    JumpBack,
    /// A process acquires the actor.
    Acquire(usize),
    /// A process acquires or renews the actor.
    AcquireOrRenew(usize),
    /// A holder renews its actor lease.
    RenewLease(usize),
    /// A holder releases its actor lease.
    ReleaseLease(usize),
    /// An operator revokes the actor.
    RevokeLease,
    /// The holder of a lease acquires the job.
    Attempt(usize),
    /// A holder renews its attempt.
    RenewAttempt(usize),
    /// A holder gives the job back.
    ReleaseAttempt(usize),
    /// A holder finishes the job.
    Finish(usize),
    /// The supervisor closes the job if its worker is lost.
    CloseLost,
    /// An operator revokes the attempt.
    RevokeAttempt,
    /// A process claims the message.
    Claim(usize),
    /// The holder of a lease claims the message under it.
    ClaimUnder(usize),
    /// A process claims whatever comes next.
    ClaimNext(usize),
    /// A holder extends its claim.
    Extend(usize),
    /// A holder gives the message back.
    GiveBack(usize),
    /// A holder asks for another try.
    Retry(usize),
    /// A holder completes the message.
    Complete(usize),
    /// A holder dead-letters the message.
    DeadLetter(usize),
    /// Lapsed claims are swept.
    Sweep,
    /// An operator revokes the claim.
    RevokeMessage,
    /// An operator dead-letters the message while it is NEW.
    DeadLetterNew,
    /// A contender registers its host.
    Register(usize),
    /// A holder renews its host lease.
    RenewHost(usize),
    /// A holder releases its host lease.
    ReleaseHost(usize),
    /// The holder of a host lease claims the session.
    Hold(usize),
    /// A holder gives the session up.
    ReleaseSession(usize),
    /// A holder finishes the session.
    FinishSession(usize),
    /// An operator revokes the session's claim.
    RevokeSession,
}

impl Act {
    /// Whether it ends a generation in its holder's name.
    #[must_use]
    pub const fn ends(&self) -> bool {
        match self {
            Self::ReleaseLease(_)
            | Self::ReleaseAttempt(_)
            | Self::Finish(_)
            | Self::GiveBack(_)
            | Self::Retry(_)
            | Self::Complete(_)
            | Self::DeadLetter(_)
            | Self::ReleaseHost(_)
            | Self::ReleaseSession(_)
            | Self::FinishSession(_) => true,
            Self::Tick
            | Self::JumpBack
            | Self::Acquire(_)
            | Self::AcquireOrRenew(_)
            | Self::RenewLease(_)
            | Self::RevokeLease
            | Self::Attempt(_)
            | Self::RenewAttempt(_)
            | Self::CloseLost
            | Self::RevokeAttempt
            | Self::Claim(_)
            | Self::ClaimUnder(_)
            | Self::ClaimNext(_)
            | Self::Extend(_)
            | Self::Sweep
            | Self::RevokeMessage
            | Self::DeadLetterNew
            | Self::Register(_)
            | Self::RenewHost(_)
            | Self::Hold(_)
            | Self::RevokeSession => false,
        }
    }

    /// The word for its kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Tick => "the clock goes on",
            Self::JumpBack => "the clock jumps back",
            Self::Acquire(_) => "acquires the actor",
            Self::AcquireOrRenew(_) => "acquires or renews the actor",
            Self::RenewLease(_) => "renews the actor",
            Self::ReleaseLease(_) => "releases the actor",
            Self::RevokeLease => "an operator revokes the actor",
            Self::Attempt(_) => "acquires the job",
            Self::RenewAttempt(_) => "renews the attempt",
            Self::ReleaseAttempt(_) => "gives the job back",
            Self::Finish(_) => "finishes the job",
            Self::CloseLost => "the supervisor looks for lost workers",
            Self::RevokeAttempt => "an operator revokes the attempt",
            Self::Claim(_) => "claims the message",
            Self::ClaimUnder(_) => "claims the message under its lease",
            Self::ClaimNext(_) => "claims what comes next",
            Self::Extend(_) => "extends the claim",
            Self::GiveBack(_) => "gives the message back",
            Self::Retry(_) => "asks for another try",
            Self::Complete(_) => "completes the message",
            Self::DeadLetter(_) => "dead-letters the message",
            Self::Sweep => "lapsed claims are swept",
            Self::RevokeMessage => "an operator revokes the claim",
            Self::DeadLetterNew => "an operator dead-letters the message",
            Self::Register(_) => "registers the host",
            Self::RenewHost(_) => "renews the host",
            Self::ReleaseHost(_) => "releases the host",
            Self::Hold(_) => "claims the session",
            Self::ReleaseSession(_) => "gives the session up",
            Self::FinishSession(_) => "finishes the session",
            Self::RevokeSession => "an operator revokes the session",
        }
    }
}

/// Who contends, for what, and within which bounds.
#[derive(Clone, Debug)]
pub struct Cast {
    /// How many contenders there are: 2 or 3, all processes of one actor. Of hosts, the third is a second process of the first.
    pub contenders: usize,
    /// How many actor leases may be granted; with 0 there is no actor.
    pub leases: usize,
    /// How many attempts may be granted; with 0 there is no job.
    pub attempts: usize,
    /// How many claims of the message may be granted; with 0 there is no message.
    pub claims: usize,
    /// Whether claims of the message descend from an actor lease.
    pub under_lease: bool,
    /// How many host leases may be granted; with 0 there are no hosts.
    pub hosts: usize,
    /// How many claims of the session may be granted.
    pub sessions: usize,
    /// How many ticks the clock goes on, altogether.
    pub ticks: u8,
    /// How often it jumps back.
    pub jumps: u8,
    /// How many ticks a lease of an actor or a host lasts.
    pub lease_ticks: u8,
    /// How many ticks an attempt, a claim or a session lasts.
    pub claim_ticks: u8,
    /// How many retries the message has.
    pub retries_max: u16,
}

impl Cast {
    /// Nobody and nothing, for two ticks each.
    pub const NONE: Self = Self {
        contenders: 2,
        leases: 0,
        attempts: 0,
        claims: 0,
        under_lease: false,
        hosts: 0,
        sessions: 0,
        ticks: 0,
        jumps: 0,
        lease_ticks: 2,
        claim_ticks: 2,
        retries_max: 1,
    };

    /// Everything that can happen next in this world, whether the ledger will grant it or not.
    #[must_use]
    pub fn acts(&self, world: &World) -> Vec<Act> {
        let mut acts = Vec::new();
        if world.ticks < self.ticks {
            acts.push(Act::Tick);
        }
        if world.jumps < self.jumps && world.ticks >= 2 {
            acts.push(Act::JumpBack);
        }
        let contenders = 0..self.contenders;
        if self.leases > 0 {
            if world.leases.len() < self.leases {
                acts.extend(contenders.clone().map(Act::Acquire));
                acts.extend(contenders.clone().map(Act::AcquireOrRenew));
            }
            for grant in 0..world.leases.len() {
                acts.extend([Act::RenewLease(grant), Act::ReleaseLease(grant)]);
                if world.attempts.len() < self.attempts {
                    acts.push(Act::Attempt(grant));
                }
                if self.under_lease && world.claims.len() < self.claims {
                    acts.push(Act::ClaimUnder(grant));
                }
            }
            acts.push(Act::RevokeLease);
        }
        if self.attempts > 0 {
            for grant in 0..world.attempts.len() {
                acts.extend([Act::RenewAttempt(grant), Act::ReleaseAttempt(grant), Act::Finish(grant)]);
            }
            acts.extend([Act::CloseLost, Act::RevokeAttempt]);
        }
        if self.claims > 0 {
            if world.claims.len() < self.claims && !self.under_lease {
                acts.extend(contenders.clone().map(Act::Claim));
                acts.extend(contenders.clone().map(Act::ClaimNext));
            }
            for grant in 0..world.claims.len() {
                acts.extend([
                    Act::Extend(grant),
                    Act::GiveBack(grant),
                    Act::Retry(grant),
                    Act::Complete(grant),
                    Act::DeadLetter(grant),
                ]);
            }
            acts.extend([Act::Sweep, Act::RevokeMessage, Act::DeadLetterNew]);
        }
        if self.hosts > 0 {
            if world.hosts.len() < self.hosts {
                acts.extend(contenders.map(Act::Register));
            }
            for grant in 0..world.hosts.len() {
                acts.extend([Act::RenewHost(grant), Act::ReleaseHost(grant)]);
                if world.sessions.len() < self.sessions {
                    acts.push(Act::Hold(grant));
                }
            }
        }
        if self.sessions > 0 {
            for grant in 0..world.sessions.len() {
                acts.extend([Act::ReleaseSession(grant), Act::FinishSession(grant)]);
            }
            acts.push(Act::RevokeSession);
        }
        acts
    }
}
