//! `keyfence doctor`: looks for damage and says what to do.

use clap::Args;
use keyfence::{Severity, doctor};
use serde_json::{Value, json};

use super::exit::{Answered, Status};
use super::output::{Answer, Paint};
use super::progress::Bar;
use super::{Access, Context};

/// Look for damage, and say what to do
#[derive(Debug, Args)]
#[command(after_help = "\
Looks at where the file lies, SQLite's version and settings, the schema, the file's integrity, the counter, and the rows
against the history and its hash chain. Exit status: 0 when sound or with warnings only, 1 on damage.

Examples:
  keyfence doctor
  keyfence doctor --json")]
pub(crate) struct Doctor {}

impl Doctor {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let path = context.ledger_path();
        let bar = Bar::new();
        let report = doctor(&path, &context.options(Access::Read), &mut |progress| {
            bar.show(progress)
        });
        drop(bar);
        let worst = report.worst();
        let status = match worst {
            Severity::Sound | Severity::Warning => Status::Done,
            Severity::Damage => Status::Failed,
        };
        let output = context.output();
        if output.is_json() {
            let findings: Vec<Value> = report
                .findings
                .iter()
                .map(|finding| {
                    json!({
                        "severity": word(finding.severity),
                        "topic": finding.topic,
                        "what": finding.what,
                        "next": finding.next,
                    })
                })
                .collect();
            let answer = match worst {
                Severity::Sound | Severity::Warning => Answer::new("done"),
                Severity::Damage => Answer::error("damaged", &worst_of(&report), &next_of(&report)),
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
        Severity::Damage => "damage",
    }
}

fn damage(report: &keyfence::Report) -> Option<&keyfence::Finding> {
    report
        .findings
        .iter()
        .find(|finding| finding.severity == Severity::Damage)
}

fn worst_of(report: &keyfence::Report) -> String {
    damage(report).map_or_else(String::new, |finding| format!("{}: {}", finding.topic, finding.what))
}

fn next_of(report: &keyfence::Report) -> String {
    damage(report).map_or_else(String::new, |finding| finding.next.clone())
}
