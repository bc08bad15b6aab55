//! `keyfence session`: long-lived conversations and jobs that move between hosts.

use clap::{Args, Subcommand};
use keyfence::core::host::HostGrant;
use keyfence::core::session::{ClaimSession, Generation, SessionGrant, SessionState};
use keyfence::core::{Incarnation, Name, TimeMs, Token, Ttl};
use keyfence::{Ledger, SessionView};

use super::exit::{Answered, Failure, Status, decided};
use super::output::Answer;
use super::{Access, ByProcess, Context, FIRST_PAGE, actor, args, standing};

/// Sessions: jobs that move between hosts, one incarnation at a time
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence session claim supplier-chat --host kiosk-a --host-token 41
  keyfence session show")]
pub(crate) struct Session {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Claim a session for a host: the next incarnation; again under the same host token renews
    #[command(after_help = "\
Examples:
  keyfence session claim supplier-chat --host kiosk-a --host-token 41 --ttl 60s")]
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
    },
    /// Give the session up: the next claim is the next incarnation; a stale grant changes nothing and says so
    #[command(after_help = "\
Examples:
  keyfence session release supplier-chat --host kiosk-a --incarnation 1 \\
      --token 42 --host-token 41")]
    Release {
        #[command(flatten)]
        grant: GrantArgs,
    },
    /// Finish the session: the terminal write, refused for any but the current, live generation
    #[command(after_help = "\
Examples:
  keyfence session finish supplier-chat --host kiosk-a --incarnation 1 \\
      --token 42 --host-token 41 --result agreed")]
    Finish {
        #[command(flatten)]
        grant: GrantArgs,
        /// A result, kept with it
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        result: std::ffi::OsString,
    },
    /// Show one session or all as they stand now; a token shown here is not authority
    #[command(after_help = "\
Examples:
  keyfence session show
  keyfence session show supplier-chat --json")]
    Show {
        /// The session; all when left out
        #[arg(value_parser = args::name)]
        session: Option<Name>,
    },
}

/// The claim that a call is made under.
#[derive(Debug, Args)]
pub(super) struct GrantArgs {
    /// The session
    #[arg(value_parser = args::name)]
    session: Name,
    /// The host that claimed it
    #[arg(long, value_parser = args::name)]
    host: Name,
    /// The incarnation that your claim was granted
    #[arg(long, value_name = "N", value_parser = args::incarnation)]
    incarnation: Incarnation,
    /// The token that your claim was granted
    #[arg(long, value_parser = args::token)]
    token: Token,
    /// The token of the host lease that your claim descends from
    #[arg(long, value_name = "TOKEN", value_parser = args::token)]
    host_token: Token,
}

impl GrantArgs {
    pub(super) fn grant(self) -> SessionGrant {
        let generation = Generation {
            host: self.host,
            incarnation: self.incarnation,
            token: self.token,
            host_token: self.host_token,
        };
        SessionGrant::presented(self.session, generation)
    }
}

fn named(answer: Answer, grant: &SessionGrant) -> Answer {
    answer
        .with("session", grant.session().as_str())
        .with("host", grant.generation().host.as_str())
        .with("incarnation", grant.incarnation().get())
}

impl Session {
    /// Whether it is one call that can be asked for again under its name.
    pub(crate) const fn takes_request(&self) -> bool {
        !matches!(self.verb, Verb::Show { .. })
    }

    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            Verb::Claim {
                session,
                host,
                by,
                host_token,
                ttl,
            } => {
                let ask = ClaimSession {
                    session,
                    host: HostGrant::presented(host, by.process, host_token),
                    ttl,
                };
                let ledger = context.open(Access::Create)?;
                let mut call = context.call(&ledger, &by.process);
                let decision = call.session_claim(&ask)?;
                let claimed = decided(decision, || format!("claim session `{}`", ask.session))?;
                let answer = named(
                    Answer::granted(claimed.grant.token(), claimed.expires_at),
                    &claimed.grant,
                )
                .with("host_token", host_token.get())
                .with("process", by.process.to_string())
                .with("renewed", claimed.renewed);
                let answer = if call.replayed() {
                    let standing = standing::of_session_grant(context, &ledger, &claimed.grant)?;
                    standing::replayed(context, answer, standing)
                } else {
                    answer
                };
                context.output().answer(&answer)?;
            }
            Verb::Release { grant } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                let mut call = context.call(&ledger, &grant.generation().host);
                let decision = call.session_release(&grant)?;
                let released = decided(decision, || format!("release session `{}`", grant.session()))?;
                let answer = named(actor::released(&ledger, released, grant.token())?, &grant);
                context
                    .output()
                    .answer(&answer.with_some("replayed", call.replayed().then_some(true)))?;
            }
            Verb::Finish { grant, result } => {
                let grant = grant.grant();
                let ledger = context.open(Access::Write)?;
                let mut call = context.call(&ledger, &grant.generation().host);
                let decision = call.session_finish(&grant, &args::bytes(result))?;
                let done = decided(decision, || format!("finish session `{}`", grant.session()))?;
                let answer = named(Answer::done(done), &grant).with("state", "FINISHED");
                context
                    .output()
                    .answer(&answer.with_some("replayed", call.replayed().then_some(true)))?;
            }
            Verb::Show { session } => show(context, session.as_ref())?,
        }
        Ok(Status::Done)
    }
}

const COLUMNS: &[(&str, &str)] = &[
    ("SESSION", "session"),
    ("STATE", "state"),
    ("INCARNATION", "incarnation"),
    ("HOST", "host"),
    ("TOKEN", "token"),
    ("SINCE", "since_ms"),
    ("UNTIL", "expires_at_ms"),
];

fn show(context: &Context, session: Option<&Name>) -> Result<(), Failure> {
    let ledger = context.open(Access::Read)?;
    let output = context.output();
    if let Some(name) = session {
        let answer = match ledger.session(name)? {
            Some(view) => standing(context, &ledger, &view)?,
            None => Answer::unknown_name("session", name)
                .with("state", "FREE")
                .with("live", false),
        };
        return Ok(output.answer(&answer)?);
    }
    let mut list = output.list(COLUMNS);
    let mut page = FIRST_PAGE;
    loop {
        let views = ledger.sessions(page)?;
        let Some(last) = views.last() else {
            return Ok(list.end("no session was ever claimed")?);
        };
        page = page.after(last.number);
        for view in &views {
            list.row(standing(context, &ledger, view)?)?;
        }
    }
}

/// A session as it stands now: CLAIMED, LAPSED, FREE or FINISHED. Its claim is live while its own lease and its host's
/// are, and the host's row carries the host token that the claim descends from.
pub(crate) fn standing(context: &Context, ledger: &Ledger, view: &SessionView) -> Result<Answer, Failure> {
    let row = &view.row;
    let answer = Answer::plain().with("session", row.name.as_str());
    let answer = match &row.state {
        SessionState::Claimed(claim) => {
            let generation = &claim.generation;
            let standing = standing::of_session(context, ledger, claim)?;
            answer
                .with("state", if standing.live { "CLAIMED" } else { "LAPSED" })
                .with("live", standing.live)
                .with_some("host_lost", (!standing.descends).then_some(true))
                .with("incarnation", generation.incarnation.get())
                .with("host", generation.host.as_str())
                .with("process", claim.process.to_string())
                .with("token", generation.token.get())
                .with("host_token", generation.host_token.get())
                .with("since_ms", claim.since.as_ms())
                .with_some("expires_at_ms", claim.expiry.time().map(TimeMs::as_ms))
        }
        SessionState::Free { incarnation, released } => answer
            .with("state", "FREE")
            .with("live", false)
            .with("incarnation", incarnation.get())
            .with_some("last_token", released.as_ref().map(|generation| generation.token.get())),
        SessionState::Finished(generation, _) => {
            let answer = answer
                .with("state", "FINISHED")
                .with("live", false)
                .with("incarnation", generation.incarnation.get())
                .with("host", generation.host.as_str())
                .with("last_token", generation.token.get());
            match &view.result {
                Some(result) => answer.with_bytes("result", result),
                None => answer,
            }
        }
        SessionState::Pruned => answer.with("state", "PRUNED").with("live", false),
    };
    Ok(answer.headline(format!("session {}", row.name), &["session"]))
}
