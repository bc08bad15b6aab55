//! `keyfence actor`: which process may act as an actor now.

use clap::{Args, Subcommand};
use keyfence::Ledger;
use keyfence::core::actor::{Acquire, ActorGrant, Released};
use keyfence::core::lease::{Granted, LeaseGrant};
use keyfence::core::{Name, Token, Ttl};

use super::exit::{Answered, Failure, Status, decided};
use super::output::Answer;
use super::{Access, ByProcess, Context, FIRST_PAGE, args, host, standing};

/// Actor leases: which process may act as an actor now
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence actor acquire operator-course --ttl 5m
  keyfence actor show")]
pub(crate) struct Actor {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Acquire the lease: a live one of anybody refuses, your own too
    #[command(after_help = "\
Examples:
  export KEYFENCE_PROCESS=$(keyfence process new)
  keyfence actor acquire operator-course --ttl 5m
  keyfence actor acquire operator-course --or-renew --json")]
    Acquire {
        /// The actor
        #[arg(value_parser = args::name)]
        actor: Name,
        #[command(flatten)]
        by: ByProcess,
        /// How long the lease lasts
        #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = args::ttl)]
        ttl: Ttl,
        /// Renew a live lease that is this process's own; its expiry never moves back
        #[arg(long)]
        or_renew: bool,
    },
    /// Move the expiry of your live lease; the token stays
    #[command(after_help = "\
Examples:
  keyfence actor renew operator-course --token 41 --ttl 5m")]
    Renew {
        #[command(flatten)]
        grant: GrantArgs,
        /// How long the lease lasts from now on; never shorter than it did
        #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = args::ttl)]
        ttl: Ttl,
    },
    /// Give the lease up; a stale token changes nothing and says so
    #[command(after_help = "\
Examples:
  keyfence actor release operator-course --token 41")]
    Release {
        #[command(flatten)]
        grant: GrantArgs,
        /// Accepted so that renew and release take the same options; without effect
        #[arg(long, value_name = "DURATION", value_parser = args::ttl, hide = true)]
        ttl: Option<Ttl>,
    },
    /// Show one actor or all as they stand now; a token shown here is not authority
    #[command(after_help = "\
Examples:
  keyfence actor show
  keyfence actor show operator-course --json")]
    Show {
        /// The actor; all when left out
        #[arg(value_parser = args::name)]
        actor: Option<Name>,
    },
}

#[derive(Debug, Args)]
struct GrantArgs {
    /// The actor
    #[arg(value_parser = args::name)]
    actor: Name,
    #[command(flatten)]
    by: ByProcess,
    /// The token that your acquisition was granted
    #[arg(long, value_parser = args::token)]
    token: Token,
}

impl GrantArgs {
    fn grant(self) -> ActorGrant {
        ActorGrant::presented(self.actor, self.by.process, self.token)
    }
}

/// The fields of a granted lease, an actor's or a host's.
pub(crate) fn granted<K>(granted: &Granted<LeaseGrant<K>>, kind: &str) -> Answer {
    Answer::granted(granted.grant.token(), granted.expires_at)
        .with(kind, granted.grant.name().as_str())
        .with("process", granted.grant.process().to_string())
        .with("renewed", granted.renewed)
}

/// The answer to a claim or a renewal of an actor.
fn leased(context: &Context, ledger: &Ledger, lease: &Granted<ActorGrant>, replayed: bool) -> Result<Answer, Failure> {
    let answer = granted(lease, "actor");
    if !replayed {
        return Ok(answer);
    }
    let view = ledger.actor(lease.grant.name())?;
    let standing = standing::of_lease(context, view.as_ref().map(|view| &view.row), lease.grant.token());
    Ok(standing::replayed(context, answer, standing))
}

/// The outcome of a release under this token: one's own again is `already_done`, a stale one `done` and not released. Of a
/// token above everything minted it is said that it was never issued.
pub(crate) fn released(ledger: &Ledger, released: Released, token: Token) -> Result<Answer, Failure> {
    Ok(match released {
        Released::Now => Answer::new("done").with("released", true),
        Released::Already => Answer::new("already_done").with("released", true),
        Released::NotHeld => {
            let never_issued = ledger.counter()?.is_none_or(|last| token > last);
            Answer::new("done")
                .with("released", false)
                .with_some("never_issued", never_issued.then_some(true))
        }
    })
}

impl Actor {
    /// Whether it is one call that can be asked for again under its name.
    pub(crate) const fn takes_request(&self) -> bool {
        !matches!(self.verb, Verb::Show { .. })
    }

    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            Verb::Acquire {
                actor,
                by,
                ttl,
                or_renew,
            } => {
                let asked = || format!("acquire actor `{actor}`");
                let ask = Acquire {
                    actor: actor.clone(),
                    process: by.process,
                    ttl,
                };
                let ledger = context.open(Access::Create)?;
                let mut call = context.call(&ledger, &by.process);
                let decision = if or_renew {
                    call.actor_acquire_or_renew(&ask)?
                } else {
                    call.actor_acquire(&ask)?
                };
                let answer = leased(context, &ledger, &decided(decision, asked)?, call.replayed())?;
                context.output().answer(&answer)?;
            }
            Verb::Renew { grant, ttl } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                let mut call = context.call(&ledger, &grant.process());
                let decision = call.actor_renew(&grant, ttl)?;
                let renewed = decided(decision, || format!("renew actor `{}`", grant.name()))?;
                let answer = leased(context, &ledger, &renewed, call.replayed())?;
                context.output().answer(&answer)?;
            }
            Verb::Release { grant, ttl: _ } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                let mut call = context.call(&ledger, &grant.process());
                let decision = call.actor_release(&grant)?;
                let outcome = decided(decision, || format!("release actor `{}`", grant.name()))?;
                let answer = released(&ledger, outcome, grant.token())?
                    .with("actor", grant.name().as_str())
                    .with_some("replayed", call.replayed().then_some(true));
                context.output().answer(&answer)?;
            }
            Verb::Show { actor } => show(context, actor.as_ref())?,
        }
        Ok(Status::Done)
    }
}

fn show(context: &Context, actor: Option<&Name>) -> Result<(), Failure> {
    let ledger = context.open(Access::Read)?;
    let output = context.output();
    if let Some(name) = actor {
        let view = ledger.actor(name)?;
        let answer = host::lease(context, "actor", name, view.as_ref().map(|view| &view.row));
        return Ok(output.answer(&answer)?);
    }
    let mut list = output.list(host::lease_columns!("ACTOR", "actor"));
    let mut page = FIRST_PAGE;
    loop {
        let views = ledger.actors(page)?;
        let Some(last) = views.last() else {
            return Ok(list.end("no actor was ever acquired")?);
        };
        page = page.after(last.number);
        for view in &views {
            list.row(host::lease(context, "actor", &view.row.name, Some(&view.row)))?;
        }
    }
}
