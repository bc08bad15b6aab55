//! `keyfence host`: which process speaks for a runtime that can hold sessions.

use clap::{Args, Subcommand};
use keyfence::Ledger;
use keyfence::core::host::{HostGrant, Proof, Register};
use keyfence::core::lease::{Granted, Kind, Lease, LeaseState};
use keyfence::core::{Name, Token, Ttl};

use super::exit::{Answered, Failure, Status, decided};
use super::output::Answer;
use super::{Access, ByProcess, Context, FIRST_PAGE, actor, args, standing};

/// Host leases: which process speaks for a runtime that can hold sessions
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence host register kiosk-a --ttl 60s
  keyfence host show")]
pub(crate) struct Host {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Register a host, or renew its live lease from the same process
    #[command(after_help = "\
Examples:
  export KEYFENCE_PROCESS=$(keyfence process new)
  keyfence host register kiosk-a --ttl 60s")]
    Register {
        /// The host
        #[arg(value_parser = args::name)]
        host: Name,
        #[command(flatten)]
        by: ByProcess,
        /// How long the lease lasts
        #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = args::ttl)]
        ttl: Ttl,
    },
    /// Move the expiry of your live lease; the token stays
    #[command(after_help = "\
Examples:
  keyfence host renew kiosk-a --token 41")]
    Renew {
        #[command(flatten)]
        grant: GrantArgs,
        /// How long the lease lasts from now on; never shorter than it did
        #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = args::ttl)]
        ttl: Ttl,
    },
    /// Give the lease up: its sessions are no longer live; a stale token changes nothing and says so
    #[command(after_help = "\
Examples:
  keyfence host release kiosk-a --token 41")]
    Release {
        #[command(flatten)]
        grant: GrantArgs,
    },
    /// Show one host or all as they stand now; a token shown here is not authority
    #[command(after_help = "\
Examples:
  keyfence host show
  keyfence host show kiosk-a --json")]
    Show {
        /// The host; all when left out
        #[arg(value_parser = args::name)]
        host: Option<Name>,
    },
}

#[derive(Debug, Args)]
struct GrantArgs {
    /// The host
    #[arg(value_parser = args::name)]
    host: Name,
    #[command(flatten)]
    by: ByProcess,
    /// The token that your registration was granted
    #[arg(long, value_parser = args::token)]
    token: Token,
}

impl GrantArgs {
    fn grant(self) -> HostGrant {
        HostGrant::presented(self.host, self.by.process, self.token)
    }
}

impl Host {
    /// Whether it is one call that can be asked for again under its name.
    pub(crate) const fn takes_request(&self) -> bool {
        !matches!(self.verb, Verb::Show { .. })
    }

    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            Verb::Register { host, by, ttl } => {
                let ask = Register {
                    host,
                    process: by.process,
                    proof: Proof::Process,
                    ttl,
                };
                let ledger = context.open(Access::Create)?;
                let mut call = context.call(&ledger, &by.process);
                let decision = call.host_register(&ask)?;
                let registered = decided(decision, || format!("register host `{}`", ask.host))?;
                let answer = leased(context, &ledger, &registered, call.replayed())?;
                context.output().answer(&answer)?;
            }
            Verb::Renew { grant, ttl } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                let mut call = context.call(&ledger, &grant.process());
                let decision = call.host_renew(&grant, ttl)?;
                let renewed = decided(decision, || format!("renew host `{}`", grant.name()))?;
                let answer = leased(context, &ledger, &renewed, call.replayed())?;
                context.output().answer(&answer)?;
            }
            Verb::Release { grant } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                let mut call = context.call(&ledger, &grant.process());
                let decision = call.host_release(&grant)?;
                let outcome = decided(decision, || format!("release host `{}`", grant.name()))?;
                let answer = actor::released(&ledger, outcome, grant.token())?
                    .with("host", grant.name().as_str())
                    .with_some("replayed", call.replayed().then_some(true));
                context.output().answer(&answer)?;
            }
            Verb::Show { host } => show(context, host.as_ref())?,
        }
        Ok(Status::Done)
    }
}

/// The answer to a registration or a renewal of a host.
fn leased(context: &Context, ledger: &Ledger, lease: &Granted<HostGrant>, replayed: bool) -> Result<Answer, Failure> {
    let answer = actor::granted(lease, "host");
    if !replayed {
        return Ok(answer);
    }
    let view = ledger.host(lease.grant.name())?;
    let standing = standing::of_lease(context, view.as_ref().map(|view| &view.row), lease.grant.token());
    Ok(standing::replayed(context, answer, standing))
}

/// The columns of a list of leases, after the name's.
macro_rules! lease_columns {
    ($heading:literal, $field:literal) => {
        &[
            ($heading, $field),
            ("STATE", "state"),
            ("PROCESS", "process"),
            ("TOKEN", "token"),
            ("SINCE", "since_ms"),
            ("UNTIL", "expires_at_ms"),
        ]
    };
}
pub(crate) use lease_columns;

fn show(context: &Context, host: Option<&Name>) -> Result<(), Failure> {
    let ledger = context.open(Access::Read)?;
    let output = context.output();
    if let Some(name) = host {
        let view = ledger.host(name)?;
        let answer = lease(context, "host", name, view.as_ref().map(|view| &view.row));
        return Ok(output.answer(&answer)?);
    }
    let mut list = output.list(lease_columns!("HOST", "host"));
    let mut page = FIRST_PAGE;
    loop {
        let views = ledger.hosts(page)?;
        let Some(last) = views.last() else {
            return Ok(list.end("no host was ever registered")?);
        };
        page = page.after(last.number);
        for view in &views {
            list.row(lease(context, "host", &view.row.name, Some(&view.row)))?;
        }
    }
}

/// A lease as it stands now: HELD, LAPSED or FREE.
pub(crate) fn lease<K: Kind>(context: &Context, kind: &'static str, name: &Name, row: Option<&Lease<K>>) -> Answer {
    let answer = Answer::plain().with(kind, name.as_str());
    let claim = row.and_then(Lease::claim);
    let live = claim.is_some_and(|held| held.expiry.is_live(context.now()));
    let state = match (claim, live) {
        (Some(_), true) => "HELD",
        (Some(_), false) => "LAPSED",
        (None, _) => "FREE",
    };
    let answer = answer.with("state", state).with("live", live);
    let answer = match row.map(|row| &row.state) {
        Some(LeaseState::Held(held)) => answer
            .with("process", held.process.to_string())
            .with("token", held.token.get())
            .with("since_ms", held.since.as_ms())
            .with_some("expires_at_ms", held.expiry.time().map(keyfence::TimeMs::as_ms)),
        Some(LeaseState::Free { released }) => answer.with_some("last_token", released.map(|(_, token)| token.get())),
        None => answer.with("known", false),
    };
    answer.headline(format!("{kind} {name}"), &[kind])
}
