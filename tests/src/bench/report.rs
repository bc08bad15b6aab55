//! What a run prints: tables of what was measured, and each aim beside its figure.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::stats::Spread;

/// One section's results.
#[derive(Clone, Debug, Default)]
pub struct Report {
    tables: Vec<Table>,
    aims: Vec<Aim>,
}

/// Rows of named figures; the first row's names are the columns.
#[derive(Clone, Debug)]
pub struct Table {
    /// What is in it.
    pub title: String,
    rows: Vec<Map<String, Value>>,
}

/// Which way an aim lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At least so much.
    AtLeast(f64),
    /// At most so much.
    AtMost(f64),
    /// Exactly so much.
    Exactly(f64),
}

/// What was aimed for and what was measured.
#[derive(Clone, Debug)]
pub struct Aim {
    /// Of what.
    pub what: String,
    /// How much.
    pub target: Target,
    /// The figure, with its quartiles where it is a median over rounds.
    pub measured: Spread,
}

impl Target {
    fn is_met_by(self, measured: f64) -> bool {
        match self {
            Self::AtLeast(least) => measured >= least,
            Self::AtMost(most) => measured <= most,
            Self::Exactly(exact) => (measured - exact).abs() < 1e-9,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least}"),
            Self::AtMost(most) => format!("<= {most}"),
            Self::Exactly(exact) => format!("= {exact}"),
        }
    }
}

impl Table {
    /// An empty one.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a row: a JSON object.
    pub fn row(&mut self, row: Value) {
        if let Value::Object(row) = row {
            self.rows.push(row);
        }
    }
}

impl Report {
    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Adds an aim and its figure, if there is one.
    pub fn aim(&mut self, what: impl Into<String>, target: Target, measured: Option<Spread>) {
        if let Some(measured) = measured {
            self.aims.push(Aim {
                what: what.into(),
                target,
                measured,
            });
        }
    }

    /// Adds an aim whose figure is exact.
    pub fn aim_exact(&mut self, what: impl Into<String>, target: Target, measured: f64) {
        self.aim(what, target, Spread::of([measured]));
    }

    /// Takes over what another section found.
    pub fn append(&mut self, mut other: Self) {
        self.tables.append(&mut other.tables);
        self.aims.append(&mut other.aims);
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            let _ = writeln!(text, "\n{}", table.title);
            let Some(first) = table.rows.first() else { continue };
            let header: Vec<String> = first.keys().cloned().collect();
            let rows = table
                .rows
                .iter()
                .map(|row| header.iter().map(|name| cell(row.get(name))).collect());
            text += &aligned(std::iter::once(header.clone()).chain(rows).collect());
        }
        if !self.aims.is_empty() {
            let _ = writeln!(text, "\naims (medians over rounds, quartiles in brackets)");
            let header = ["aim", "target", "measured", "", ""].map(String::from).to_vec();
            let rows = self.aims.iter().map(|aim| {
                let quartiles = if aim.measured.low == aim.measured.high {
                    String::new()
                } else {
                    format!("[{} .. {}]", number(aim.measured.low), number(aim.measured.high))
                };
                let met = if aim.target.is_met_by(aim.measured.middle) {
                    "met"
                } else {
                    "MISSED"
                };
                vec![
                    aim.what.clone(),
                    aim.target.text(),
                    number(aim.measured.middle),
                    quartiles,
                    met.into(),
                ]
            });
            text += &aligned(std::iter::once(header).chain(rows).collect());
        }
        text
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let tables: Vec<_> = self
            .tables
            .iter()
            .map(|table| json!({"title": table.title, "rows": table.rows}))
            .collect();
        let aims: Vec<_> = self
            .aims
            .iter()
            .map(|aim| {
                json!({
                    "aim": aim.what,
                    "target": aim.target.text(),
                    "measured": aim.measured.middle,
                    "quartiles": [aim.measured.low, aim.measured.high],
                    "met": aim.target.is_met_by(aim.measured.middle),
                })
            })
            .collect();
        json!({"tables": tables, "aims": aims})
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(figure)) => figure.as_u64().map_or_else(
            || number(figure.as_f64().unwrap_or(f64::NAN)),
            |whole| grouped(&whole.to_string()),
        ),
        Some(other @ (Value::Bool(_) | Value::Array(_) | Value::Object(_))) => other.to_string(),
    }
}

/// Three figures or so: nothing here is known better.
fn number(figure: f64) -> String {
    if figure.abs() >= 1000.0 {
        grouped(&format!("{figure:.0}"))
    } else if figure.abs() >= 100.0 {
        format!("{figure:.0}")
    } else if figure.abs() >= 10.0 {
        format!("{figure:.1}")
    } else {
        format!("{figure:.2}")
    }
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Columns side by side, text to the left and figures to the right.
fn aligned(rows: Vec<Vec<String>>) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let is_figure = |column: usize| {
        rows.iter()
            .skip(1)
            .all(|row| row[column] == "-" || row[column].chars().all(|c| c.is_ascii_digit() || ",.-".contains(c)))
    };
    let figures: Vec<bool> = (0..columns).map(is_figure).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if figures[column] {
                write!(line, " {cell:>width$} ")
            } else {
                write!(line, " {cell:<width$} ")
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_as_columns_and_says_which_aims_are_missed() {
        let mut table = Table::new("rates");
        table.row(json!({"who": "least", "per second": 12345.6}));
        table.row(json!({"who": "keyfence", "per second": 999.4}));
        let mut report = Report::default();
        report.table(table);
        report.aim("ratio", Target::AtLeast(0.9), Spread::of([0.5, 0.95, 1.0]));
        report.aim_exact("syncs", Target::Exactly(2.0), 2.5);
        assert_eq!(
            report.text(),
            "
rates
  who       per second
  least         12,346
  keyfence         999

aims (medians over rounds, quartiles in brackets)
  aim    target  measured
  ratio  >= 0.9      0.95  [0.72 .. 0.97]  met
  syncs  = 2         2.50                  MISSED
"
        );
        assert_eq!(report.json()["aims"][1]["met"], json!(false));
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped("999"), "999");
        assert_eq!(grouped("1000000"), "1,000,000");
        assert_eq!(grouped("-1000"), "-1,000");
        assert_eq!(grouped("-100000"), "-100,000");
    }
}
