//! `keyfence doctor`: looks for damage and says what to do.

use clap::Args;
use keyfence::{Severity, doctor, doctor_embedded};
use serde_json::Value;

use super::exit::{Answered, Status};
use super::format::Paint;
use super::output::Answer;
use super::progress::Bar;
use super::{Access, Context};

/// Look for damage, and say what to do
#[derive(Debug, Args)]
#[command(after_help = "\
Looks at where the file lies, SQLite's version and settings, the schema, the
file's integrity, the counter, and the rows against the history and its hash
chain. Exit status: 0 when sound or with warnings only, 1 on damage.

Examples:
  keyfence doctor
  keyfence doctor --json
  keyfence --ledger shop.db doctor --embedded")]
pub(crate) struct Doctor {
    /// The ledger is embedded in a file of another program
    #[arg(long)]
    embedded: bool,
}

impl Doctor {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let path = context.ledger_path();
        let mut bar = Bar::new();
        let look = if self.embedded { doctor_embedded } else { doctor };
        let report = look(&path, &context.options(Access::Read), &mut |progress| {
            bar.show(progress)
        });
        drop(bar);
        let worst = report.worst();
        let status = match worst {
            Severity::Sound | Severity::Warning => Status::Done,
            Severity::Error | Severity::Damage => Status::Failed,
        };
        let output = context.output();
        if output.is_json() {
            let findings: Vec<Value> = report
                .findings
                .iter()
                .map(|finding| {
                    Answer::plain()
                        .with("severity", word(finding.severity))
                        .with("topic", finding.topic)
                        .with_some("error", finding.error)
                        .with("what", finding.what.as_str())
                        .with("next", finding.next.as_str())
                        .into_value()
                })
                .collect();
            let answer = match failing(&report) {
                None => Answer::new("done"),
                Some((finding, error)) => Answer::error(error, &finding.what, &finding.next),
            };
            let answer = answer
                .with("worst", word(worst))
                .with("ledger", path.display().to_string())
                .with("findings", findings);
            output.answer(&answer)?;
        } else {
            let paint = Paint::of(std::io::IsTerminal::is_terminal(&std::io::stdout()));
            let mut text = String::new();
            for finding in &report.findings {
                let mark = match finding.severity {
                    Severity::Sound => paint.good("ok     "),
                    Severity::Warning => paint.warn("warning"),
                    Severity::Error => paint.bad("ERROR  "),
                    Severity::Damage => paint.bad("DAMAGE "),
                };
                text.push_str(&format!("{mark}  {}: {}\n", finding.topic, finding.what));
                if !finding.next.is_empty() {
                    text.push_str(&format!("         -> {}\n", finding.next));
                }
            }
            output.text(&text)?;
        }
        Ok(status)
    }
}

const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Sound => "sound",
        Severity::Warning => "warning",
        Severity::Error => "error",
        Severity::Damage => "damage",
    }
}

/// The first of the worst findings that are errors: it is what the others may follow from.
fn failing(report: &keyfence::Report) -> Option<(&keyfence::Finding, &'static str)> {
    let worst = report.worst();
    report
        .findings
        .iter()
        .filter(|finding| finding.severity == worst)
        .find_map(|finding| Some((finding, finding.error?)))
}
