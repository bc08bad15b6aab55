//! The claims on a kiosk's own ledger: actors, hosts, sessions; and what all claims on a kiosk share.
//!
//! Moments are printed on this machine's clock: a lease counts from before the call that was granted it was sent, so it
//! never seems longer here than it is on the kiosk.

use clap::{Args, Subcommand};
use keyfence::core::actor::{Acquire, ActorGrant};
use keyfence::core::gate::ClaimKind;
use keyfence::core::host::{HostGrant, Proof, Register};
use keyfence::core::lease::{LeaseGrant, Released, Revoked};
use keyfence::core::session::{ClaimSession, SessionGrant, SessionState};
use keyfence::core::store::Place;
use keyfence::core::{Name, Token, Ttl};
use keyfence::kiosk::{KioskError, Leased, Row};

use super::super::exit::{Answered, Failure, Status};
use super::super::output::Answer;
use super::super::{ByProcess, Context, args, session};
use super::at::{At, Called};

/// Actor leases on the kiosk
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk actor acquire alarm --ttl 5m \\
      --emulator kiosk-a.flash")]
pub(crate) struct Actor {
    #[command(subcommand)]
    verb: ActorVerb,
}

#[derive(Debug, Subcommand)]
enum ActorVerb {
    /// Claim the actor for one process
    #[command(after_help = "\
Examples:
  keyfence kiosk actor acquire alarm --ttl 5m \\
      --emulator kiosk-a.flash")]
    Acquire {
        /// The actor
        #[arg(value_parser = args::name)]
        actor: Name,
        #[command(flatten)]
        by: ByProcess,
        /// How long the lease lasts
        #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = args::ttl)]
        ttl: Ttl,
        /// Renew your own live lease instead of being refused
        #[arg(long)]
        or_renew: bool,
        #[command(flatten)]
        at: At,
    },
    /// Move the expiry of your live lease; the token stays
    #[command(after_help = "\
Examples:
  keyfence kiosk actor renew alarm --token 3 \\
      --emulator kiosk-a.flash")]
    Renew {
        #[command(flatten)]
        grant: LeaseArgs,
        /// How long the lease lasts from now on; never shorter than it did
        #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = args::ttl)]
        ttl: Ttl,
        #[command(flatten)]
        at: At,
    },
    /// Give the lease up; a stale token changes nothing and says so
    #[command(after_help = "\
Examples:
  keyfence kiosk actor release alarm --token 3 \\
      --emulator kiosk-a.flash")]
    Release {
        #[command(flatten)]
        grant: LeaseArgs,
        #[command(flatten)]
        at: At,
    },
}

/// Host leases on the kiosk
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk host register till-1 --ttl 60s \\
      --emulator kiosk-a.flash")]
pub(crate) struct Host {
    #[command(subcommand)]
    verb: HostVerb,
}

#[derive(Debug, Subcommand)]
enum HostVerb {
    /// Register a host, or renew its live lease from the same process
    #[command(after_help = "\
Examples:
  keyfence kiosk host register till-1 --ttl 60s \\
      --emulator kiosk-a.flash")]
    Register {
        /// The host
        #[arg(value_parser = args::name)]
        host: Name,
        #[command(flatten)]
        by: ByProcess,
        /// How long the lease lasts
        #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = args::ttl)]
        ttl: Ttl,
        #[command(flatten)]
        at: At,
    },
    /// Move the expiry of your live lease; the token stays
    #[command(after_help = "\
Examples:
  keyfence kiosk host renew till-1 --token 1 \\
      --emulator kiosk-a.flash")]
    Renew {
        #[command(flatten)]
        grant: LeaseArgs,
        /// How long the lease lasts from now on; never shorter than it did
        #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = args::ttl)]
        ttl: Ttl,
        #[command(flatten)]
        at: At,
    },
    /// Give the lease up; a stale token changes nothing and says so
    #[command(after_help = "\
Examples:
  keyfence kiosk host release till-1 --token 1 \\
      --emulator kiosk-a.flash")]
    Release {
        #[command(flatten)]
        grant: LeaseArgs,
        #[command(flatten)]
        at: At,
    },
}

/// Sessions on the kiosk
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk session claim till --host till-1 --host-token 1 \\
      --emulator kiosk-a.flash")]
pub(crate) struct Session {
    #[command(subcommand)]
    verb: SessionVerb,
}

#[derive(Debug, Subcommand)]
enum SessionVerb {
    /// Claim a session for a host: the next incarnation; again under the same host token renews
    #[command(after_help = "\
Examples:
  keyfence kiosk session claim till --host till-1 --host-token 1 \\
      --emulator kiosk-a.flash")]
    Claim {
        /// The session
        #[arg(value_parser = args::name)]
        session: Name,
        /// The host that wants it
        #[arg(long, value_parser = args::name)]
        host: Name,
        #[command(flatten)]
        by: ByProcess,
        /// The token that the host's registration was granted
        #[arg(long, value_name = "TOKEN", value_parser = args::token)]
        host_token: Token,
        /// How long the claim lasts
        #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = args::ttl)]
        ttl: Ttl,
        #[command(flatten)]
        at: At,
    },
    /// Give the session up: the next claim is the next incarnation; a stale grant changes nothing and says so
    #[command(after_help = "\
Examples:
  keyfence kiosk session release till --host till-1 --incarnation 1 \\
      --token 2 --host-token 1 --emulator kiosk-a.flash")]
    Release {
        #[command(flatten)]
        grant: session::GrantArgs,
        #[command(flatten)]
        at: At,
    },
    /// Finish the session: the terminal write, refused for any but the current, live generation
    #[command(after_help = "\
Examples:
  keyfence kiosk session finish till --host till-1 --incarnation 1 \\
      --token 2 --host-token 1 --result sold --emulator kiosk-a.flash")]
    Finish {
        #[command(flatten)]
        grant: session::GrantArgs,
        /// A result, kept with it, at most 64 bytes
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        result: std::ffi::OsString,
        #[command(flatten)]
        at: At,
    },
    /// Show one session as it stands; a token shown here is not authority
    #[command(after_help = "\
Examples:
  keyfence kiosk session show till \\
      --emulator kiosk-a.flash")]
    Show {
        /// The session
        #[arg(value_parser = args::name)]
        session: Name,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Args)]
struct LeaseArgs {
    /// The actor or host
    #[arg(value_parser = args::name)]
    name: Name,
    #[command(flatten)]
    by: ByProcess,
    /// The token that your claim was granted
    #[arg(long, value_parser = args::token)]
    token: Token,
}

impl LeaseArgs {
    fn grant<K: keyfence::core::lease::Kind>(self) -> LeaseGrant<K> {
        LeaseGrant::presented(self.name, self.by.process, self.token)
    }
}

/// Clear a live claim on the kiosk: its token is dead
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk revoke session till --emulator kiosk-a.flash")]
pub(crate) struct Revoke {
    /// What is revoked
    #[arg(value_parser = kind)]
    kind: ClaimKind,
    /// Its name
    #[arg(value_parser = args::name)]
    name: Name,
    #[command(flatten)]
    at: At,
}

fn kind(text: &str) -> Result<ClaimKind, String> {
    ClaimKind::from_name(text).ok_or_else(|| "expected actor, attempt, message, host or session".to_owned())
}

/// A grant, with when it lapses on this machine's clock. A grant of which that is not known was given before, under the
/// same request number; such calls are not made here.
pub(super) fn granted<G>(called: &Called, leased: &Leased<G>, token: Token) -> Result<Answer, KioskError> {
    let lapses = leased.lapses(called.now).ok_or(KioskError::Unexpected)?;
    Ok(Answer::granted(token, lapses).with("renewed", leased.granted.renewed))
}

fn lease<K>(called: &Called, kind: &str, leased: &Leased<LeaseGrant<K>>) -> Result<Answer, KioskError> {
    let grant = &leased.granted.grant;
    Ok(granted(called, leased, grant.token())?
        .with(kind, grant.name().as_str())
        .with("process", grant.process().to_string()))
}

pub(super) fn released(released: Released) -> Answer {
    match released {
        Released::Now => Answer::new("done").with("released", true),
        Released::Already => Answer::new("already_done").with("released", true),
        Released::NotHeld => Answer::new("done").with("released", false),
    }
}

/// Prints an answer, with the kiosk that gave it.
pub(super) fn answer(context: &Context, called: &Called, answer: Answer) -> Answered {
    context.output().answer(&answer.with("kiosk", called.name.as_str()))?;
    Ok(Status::Done)
}

/// Whether the row of an actor carries the token of a lease, live or not.
pub(super) fn carries(called: &mut Called, actor: &Name, lease_token: Token) -> Result<bool, KioskError> {
    Ok(match called.link.row(Place::Actor, actor)? {
        Some(Row::Actor(lease)) => lease.claim().is_some_and(|held| held.token == lease_token),
        Some(_) | None => false,
    })
}

impl Actor {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            ActorVerb::Acquire {
                actor,
                by,
                ttl,
                or_renew,
                at,
            } => {
                let mut called = at.open(context)?;
                let ask = Acquire {
                    actor,
                    process: by.process,
                    ttl,
                };
                let decision = if or_renew {
                    called.link.actor_acquire_or_renew(&ask)?
                } else {
                    called.link.actor_acquire(&ask)?
                };
                let leased = called.decided(decision, || format!("acquire actor `{}`", ask.actor))?;
                answer(context, &called, lease(&called, "actor", &leased)?)
            }
            ActorVerb::Renew { grant, ttl, at } => {
                let mut called = at.open(context)?;
                let grant: ActorGrant = grant.grant();
                let decision = called.link.actor_renew(&grant, ttl)?;
                let leased = called.decided(decision, || format!("renew actor `{}`", grant.name()))?;
                answer(context, &called, lease(&called, "actor", &leased)?)
            }
            ActorVerb::Release { grant, at } => {
                let mut called = at.open(context)?;
                let grant: ActorGrant = grant.grant();
                let decision = called.link.actor_release(&grant)?;
                let outcome = called.decided(decision, || format!("release actor `{}`", grant.name()))?;
                answer(context, &called, released(outcome).with("actor", grant.name().as_str()))
            }
        }
    }
}

impl Host {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            HostVerb::Register { host, by, ttl, at } => {
                let mut called = at.open(context)?;
                let ask = Register {
                    host,
                    process: by.process,
                    proof: Proof::Process,
                    ttl,
                };
                let decision = called.link.host_register(&ask)?;
                let leased = called.decided(decision, || format!("register host `{}`", ask.host))?;
                answer(context, &called, lease(&called, "host", &leased)?)
            }
            HostVerb::Renew { grant, ttl, at } => {
                let mut called = at.open(context)?;
                let grant: HostGrant = grant.grant();
                let decision = called.link.host_renew(&grant, ttl)?;
                let leased = called.decided(decision, || format!("renew host `{}`", grant.name()))?;
                answer(context, &called, lease(&called, "host", &leased)?)
            }
            HostVerb::Release { grant, at } => {
                let mut called = at.open(context)?;
                let grant: HostGrant = grant.grant();
                let decision = called.link.host_release(&grant)?;
                let outcome = called.decided(decision, || format!("release host `{}`", grant.name()))?;
                answer(context, &called, released(outcome).with("host", grant.name().as_str()))
            }
        }
    }
}

fn named(answer: Answer, grant: &SessionGrant) -> Answer {
    answer
        .with("session", grant.session().as_str())
        .with("host", grant.generation().host.as_str())
        .with("incarnation", grant.incarnation().get())
        .with("host_token", grant.generation().host_token.get())
}

impl Session {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            SessionVerb::Claim {
                session,
                host,
                by,
                host_token,
                ttl,
                at,
            } => {
                let mut called = at.open(context)?;
                let ask = ClaimSession {
                    session,
                    host: HostGrant::presented(host, by.process, host_token),
                    ttl,
                };
                let decision = called.link.session_claim(&ask)?;
                let leased = called.decided(decision, || format!("claim session `{}`", ask.session))?;
                let grant = &leased.granted.grant;
                let claimed = named(granted(&called, &leased, grant.token())?, grant);
                answer(context, &called, claimed.with("process", by.process.to_string()))
            }
            SessionVerb::Release { grant, at } => {
                let mut called = at.open(context)?;
                let grant = grant.grant();
                let decision = called.link.session_release(&grant)?;
                let outcome = called.decided(decision, || format!("release session `{}`", grant.session()))?;
                answer(context, &called, named(released(outcome), &grant))
            }
            SessionVerb::Finish { grant, result, at } => {
                let mut called = at.open(context)?;
                let grant = grant.grant();
                let decision = called.link.session_finish(&grant, &args::bytes(result))?;
                let done = called.decided(decision, || format!("finish session `{}`", grant.session()))?;
                answer(
                    context,
                    &called,
                    named(Answer::done(done), &grant).with("state", "FINISHED"),
                )
            }
            SessionVerb::Show { session, at } => {
                let mut called = at.open(context)?;
                let shown = show(&mut called, &session)?;
                answer(context, &called, shown)
            }
        }
    }
}

/// A session as the kiosk has it: CLAIMED, LAPSED, FREE or FINISHED. A claim of an earlier boot has lapsed; that of this one
/// is taken as live here only while its host's lease is too.
fn show(called: &mut Called, session: &Name) -> Result<Answer, Failure> {
    let headline = |answer: Answer| answer.headline(format!("session {session}"), &["session"]);
    let row = called.link.row(Place::Session, session)?;
    let Some(Row::Session(row)) = row else {
        return Ok(Answer::unknown_name("session", session)
            .with("state", "FREE")
            .with("live", false));
    };
    let answer = Answer::plain().with("session", session.as_str());
    Ok(headline(match &row.state {
        SessionState::Claimed(claim) => {
            let generation = &claim.generation;
            let host = called.link.row(Place::Host, &generation.host)?;
            let there = called.link.info()?.now;
            let host = if let Some(Row::Host(host)) = &host {
                host.live(there)
            } else {
                None
            };
            let descends = host.is_some_and(|held| held.token == generation.host_token);
            let live = descends && claim.expiry.is_live(there);
            let answer = answer
                .with("state", if live { "CLAIMED" } else { "LAPSED" })
                .with("live", live)
                .with("incarnation", generation.incarnation.get())
                .with("host", generation.host.as_str())
                .with("process", claim.process.to_string())
                .with("token", generation.token.get())
                .with("host_token", generation.host_token.get());
            called.with_times(answer, claim.since, claim.expiry, there)
        }
        SessionState::Free { incarnation, .. } => answer
            .with("state", "FREE")
            .with("live", false)
            .with("incarnation", incarnation.get()),
        SessionState::Finished(generation, _) => answer
            .with("state", "FINISHED")
            .with("live", false)
            .with("incarnation", generation.incarnation.get())
            .with("host", generation.host.as_str())
            .with("last_token", generation.token.get()),
        SessionState::Pruned => answer.with("state", "PRUNED").with("live", false),
    }))
}

impl Revoke {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let mut called = self.at.open(context)?;
        let decision = called.link.revoke(self.kind, &self.name)?;
        let asked = || format!("revoke {} `{}`", self.kind.name(), self.name);
        let revoked = called.decided(decision, asked)?;
        let told = match revoked {
            Revoked::Claim(holder, token) => Answer::new("done")
                .with("revoked", true)
                .with("holder", holder.name.as_str())
                .with_some("holder_process", holder.process.map(|process| process.to_string()))
                .with("last_token", token.get()),
            Revoked::Nothing => Answer::new("already_done").with("revoked", false),
        };
        answer(context, &called, told.with(self.kind.name(), self.name.as_str()))
    }
}
