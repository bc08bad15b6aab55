//! Gates on a kiosk's own ledger: an output may follow one.

use clap::{Args, Subcommand};
use keyfence::core::gate::{Admit, Admitted, Binding, ClaimKind, LedgerCounter};
use keyfence::core::store::Place;
use keyfence::core::{LedgerId, Name, Token};
use keyfence::kiosk::{KioskError, Row};

use super::super::exit::{Answered, Failure};
use super::super::gate::bound;
use super::super::output::Answer;
use super::super::{Context, args};
use super::at::{At, Called};
use super::claims::answer;

/// Gates on the kiosk: an output that follows one is on for the token that it admitted last
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keyfence kiosk gate admit freezer --for actor:alarm --token 3 \\
      --emulator kiosk-a.flash")]
pub(crate) struct Gate {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Admit a token of the kiosk's ledger that is not older than the gate's mark
    #[command(after_help = "\
Examples:
  keyfence kiosk gate admit freezer --for actor:alarm --token 3 \\
      --emulator kiosk-a.flash")]
    Admit {
        /// The gate; made at first use
        #[arg(value_parser = args::name)]
        gate: Name,
        /// Which claim the gate belongs to: actor, attempt, message, host or session, and its name
        #[arg(long = "for", id = "claim", value_name = "KIND:NAME", value_parser = args::binding)]
        claim: (ClaimKind, Name),
        /// The token of that claim
        #[arg(long, value_parser = args::token)]
        token: Token,
        #[command(flatten)]
        at: At,
    },
    /// Show what the gate is bound to, and its mark
    #[command(after_help = "\
Examples:
  keyfence kiosk gate show freezer --emulator kiosk-a.flash")]
    Show {
        /// The gate
        #[arg(value_parser = args::name)]
        gate: Name,
        #[command(flatten)]
        at: At,
    },
    /// Bind the gate anew, to another claim: an operator's act, its mark starts anew
    #[command(after_help = "\
Examples:
  keyfence kiosk gate rebind freezer --for session:till \\
      --emulator kiosk-a.flash")]
    Rebind {
        /// The gate
        #[arg(value_parser = args::name)]
        gate: Name,
        /// The claim it shall belong to
        #[arg(long = "for", id = "claim", value_name = "KIND:NAME", value_parser = args::binding)]
        claim: (ClaimKind, Name),
        #[command(flatten)]
        at: At,
    },
}

/// The kiosk's own ledger. One that does not answer says why.
fn ledger(called: &mut Called, gate: &Name) -> Result<LedgerId, KioskError> {
    called.link.row(Place::Gate, gate)?;
    called.link.info()?.ledger.ok_or(KioskError::Unexpected)
}

fn binding(called: &mut Called, gate: &Name, (kind, name): (ClaimKind, Name)) -> Result<Binding, KioskError> {
    let ledger = ledger(called, gate)?;
    Ok(Binding { ledger, kind, name })
}

impl Gate {
    pub(crate) fn run(self, context: &Context) -> Answered {
        match self.verb {
            Verb::Admit { gate, claim, token, at } => {
                let mut called = at.open(context)?;
                let ask = Admit {
                    binding: binding(&mut called, &gate, claim)?,
                    gate,
                    token,
                    // The kiosk reads its own.
                    counter: LedgerCounter::Unreadable,
                };
                let decision = called.link.gate_admit(&ask)?;
                let admitted = called.decided(decision, || format!("pass gate `{}` with token {token}", ask.gate))?;
                let told = Answer::new("done")
                    .with("admitted", true)
                    .with("raised", admitted == Admitted::Raised)
                    .with("gate", ask.gate.as_str())
                    .with("high_water", token.get());
                answer(context, &called, bound(told, &ask.binding))
            }
            Verb::Show { gate, at } => {
                let mut called = at.open(context)?;
                let shown = show(&mut called, &gate)?;
                answer(context, &called, shown)
            }
            Verb::Rebind { gate, claim, at } => {
                let mut called = at.open(context)?;
                let binding = binding(&mut called, &gate, claim)?;
                let decision = called.link.gate_rebind(&gate, &binding)?;
                called.decided(decision, || format!("rebind gate `{gate}`"))?;
                let told = bound(Answer::new("done").with("gate", gate.as_str()), &binding);
                answer(context, &called, told)
            }
        }
    }
}

fn show(called: &mut Called, gate: &Name) -> Result<Answer, Failure> {
    let told = Answer::plain().with("gate", gate.as_str());
    let told = match called.link.row(Place::Gate, gate)? {
        Some(Row::Gate(row)) => {
            bound(told.with("bound", true), &row.binding).with_some("high_water", row.high_water.map(Token::get))
        }
        Some(_) | None => told.with("bound", false),
    };
    Ok(told.headline(format!("gate {gate}"), &["gate"]))
}
