//! `keyfence revoke`: an operator clears a claim.

use clap::Args;
use keyfence::core::Name;
use keyfence::core::gate::ClaimKind;
use keyfence::core::lease::Revoked;

use super::exit::{Answered, Status, decided};
use super::output::Answer;
use super::{Access, Context, OPERATOR, args};

/// Clear a claim by an operator's act: recorded, and its token is dead
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence revoke actor operator-course --reason 'the laptop was stolen'
  keyfence revoke message 01-restock --reason 'the worker hangs'")]
pub(crate) struct Revoke {
    /// What kind of claim: actor, host, attempt, message or session
    #[arg(value_parser = kind, value_name = "KIND")]
    kind: ClaimKind,
    /// Whose: the actor, host, assignment, message or session
    #[arg(value_parser = args::name)]
    name: Name,
    /// Why, kept in the history
    #[arg(long, value_name = "TEXT", value_parser = args::reason)]
    reason: String,
}

fn kind(text: &str) -> Result<ClaimKind, String> {
    ClaimKind::from_name(text).ok_or_else(|| "expected actor, host, attempt, message or session".to_owned())
}

impl Revoke {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let ledger = context.open(Access::Write)?;
        let mut call = context.call(&ledger, &OPERATOR);
        let decision = call.revoke(self.kind, &self.name, &self.reason)?;
        let revoked = decided(decision, || format!("revoke {} `{}`", self.kind.name(), self.name))?;
        let answer = match revoked {
            Revoked::Claim(holder, token) => Answer::new("done")
                .with("revoked", true)
                .with("kind", self.kind.name())
                .with("name", self.name.as_str())
                .with("holder", holder.name.as_str())
                .with_some("holder_process", holder.process.map(|process| process.to_string()))
                .with("revoked_token", token.get()),
            Revoked::Nothing => Answer::new("done")
                .with("revoked", false)
                .with("kind", self.kind.name())
                .with("name", self.name.as_str()),
        };
        let answer = answer
            .with("reason", self.reason)
            .with_some("replayed", call.replayed().then_some(true));
        context.output().answer(&answer)?;
        Ok(Status::Done)
    }
}
