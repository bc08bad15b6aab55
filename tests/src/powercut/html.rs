//! The report as one self-contained page: no script, no font and no style from elsewhere.

use std::fmt::Write as _;

use super::cost::Cost;
use super::report::{Report, Verdict};

/// The page for `report`, beside what each store costs on the same geometry.
#[must_use]
pub fn page(report: &Report, costs: &[(&str, Cost)]) -> String {
    let verdict = report.verdict();
    let class = match verdict {
        Verdict::Held => "good",
        Verdict::Failed => "bad",
        Verdict::Incomplete => "doubt",
    };
    let mut body = String::new();
    let title = format!("{} on {}", report.store, report.geometry);
    // Writing to a string does not fail.
    let _ = write!(
        body,
        "<h1>{}</h1><p class=\"{class}\">{}</p>\
         <p>{} pages, {} commits cut at {} flash operations, {} of them erases; depth {}, seed {}. \
         Aged by {} commits beforehand; first page turn in commit {}. {} cases, {} failures.</p>",
        escape(&title),
        verdict.sentence(),
        report.pages,
        report.commits,
        report.operations,
        report.erases,
        report.depth,
        report.seed,
        report.aged_commits,
        report.first_turn.map_or("none".to_owned(), |commit| commit.to_string()),
        report.cases,
        report.failures,
    );
    body.push_str("<h2>Cases by kind of cut</h2>");
    let bars: Vec<Bar> = report
        .by_cut
        .iter()
        .map(|(kind, count)| Bar {
            label: kind.name().to_owned(),
            value: count.cases as f64,
            bad: count.failures as f64,
            text: format!("{} cases, {} failures", count.cases, count.failures),
        })
        .collect();
    body.push_str(&chart(&bars));
    body.push_str("<h2>Erases of each page, ageing included</h2>");
    let bars: Vec<Bar> = report
        .wear
        .iter()
        .enumerate()
        .map(|(page, erases)| Bar::plain(format!("page {page}"), *erases as f64, erases.to_string()))
        .collect();
    body.push_str(&chart(&bars));
    if !costs.is_empty() {
        costs_section(&mut body, costs);
    }
    if !report.by_violation.is_empty() {
        body.push_str("<h2>Failures by kind</h2><table><tr><th>violation</th><th>cases</th></tr>");
        for (kind, count) in &report.by_violation {
            let _ = write!(body, "<tr><td>{}</td><td>{count}</td></tr>", escape(kind));
        }
        body.push_str("</table>");
    }
    if !report.first_failures.is_empty() {
        body.push_str("<h2>First failures</h2>");
        for failure in &report.first_failures {
            let _ = write!(
                body,
                "<p><b>{}</b> during {}: {}: {}</p><pre>{}</pre>",
                failure.cut.name(),
                escape(&failure.during),
                failure.violation,
                escape(&failure.detail),
                escape(&failure.replay),
            );
        }
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title>\
         <style>{STYLE}</style></head><body>{body}</body></html>\n",
        escape(&title)
    )
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
    padding:0 1rem;color:#1b1f24}h1{margin-bottom:0}h2{margin-top:2rem}\
    .good{color:#116329;font-weight:600}.bad{color:#a40e26;font-weight:600}\
    .doubt{color:#8a5a00;font-weight:600}table{border-collapse:collapse}\
    th,td{border-bottom:1px solid #d0d7de;padding:.25rem .75rem;text-align:right}\
    th:first-child,td:first-child{text-align:left}\
    pre{background:#f6f8fa;padding:.5rem;white-space:pre-wrap;overflow-wrap:anywhere}\
    svg{width:100%;height:auto}svg text{font:13px system-ui,sans-serif;fill:#1b1f24}";

fn costs_section(body: &mut String, costs: &[(&str, Cost)]) {
    body.push_str("<h2>Cost of a claim</h2>");
    type Value = fn(&Cost) -> f64;
    let plots: [(&str, Value); 3] = [
        ("Write units programmed for one claim", |cost| cost.words_per_claim),
        ("Erases for a million claims", |cost| cost.erases_per_million),
        ("32-bit words read to mount", |cost| cost.mount_words),
    ];
    for (title, value) in plots {
        let _ = write!(body, "<h3>{title}</h3>");
        let bars: Vec<Bar> = costs
            .iter()
            .map(|(name, cost)| Bar::plain((*name).to_owned(), value(cost), format!("{:.2}", value(cost))))
            .collect();
        body.push_str(&chart(&bars));
    }
    body.push_str(
        "<table><tr><th>store</th><th>years</th><th>bytes a claim</th><th>words a mint</th>\
         <th>worst claim, words</th><th>worst claim, erases</th></tr>",
    );
    for (name, cost) in costs {
        let _ = write!(
            body,
            "<tr><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{:.2}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            cost.years,
            cost.bytes_per_claim,
            cost.words_per_mint,
            cost.worst_claim.words,
            cost.worst_claim.erases,
        );
    }
    body.push_str("</table>");
}

/// One bar; `bad` is the part of it that is drawn as failed.
struct Bar {
    label: String,
    value: f64,
    bad: f64,
    text: String,
}

impl Bar {
    const fn plain(label: String, value: f64, text: String) -> Self {
        Self {
            label,
            value,
            bad: 0.0,
            text,
        }
    }
}

/// Horizontal bars on a common scale. A failure is never too small to be seen.
fn chart(bars: &[Bar]) -> String {
    const ROW: usize = 28;
    const LEFT: f64 = 170.0;
    const WIDTH: f64 = 480.0;
    let longest = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = format!(
        "<svg viewBox=\"0 0 900 {}\" role=\"img\" aria-label=\"bar chart\">",
        bars.len() * ROW + 4
    );
    for (i, bar) in bars.iter().enumerate() {
        let y = i * ROW + 4;
        let scale = |value: f64| WIDTH * value / longest;
        let bad = if bar.bad > 0.0 { scale(bar.bad).max(3.0) } else { 0.0 };
        let _ = write!(
            svg,
            "<text x=\"{:.0}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT:.0}\" y=\"{y}\" width=\"{:.1}\" height=\"20\" fill=\"#54aeff\"/>\
             <rect x=\"{LEFT:.0}\" y=\"{y}\" width=\"{bad:.1}\" height=\"20\" fill=\"#cf222e\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            LEFT - 8.0,
            y + 15,
            escape(&bar.label),
            scale(bar.value),
            LEFT + scale(bar.value).max(bad) + 8.0,
            y + 15,
            escape(&bar.text),
        );
    }
    svg.push_str("</svg>");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Geometry;
    use crate::powercut::cost::{Daily, measure};
    use crate::powercut::search::{Progress, Settings, exhaustive};
    use crate::powercut::stores;

    #[test]
    fn the_page_is_self_contained_and_tells_the_failures() {
        let store = stores::named("in-place").expect("a store of the list");
        let geometry = Geometry::named("tiny-4").expect("a geometry of the list");
        let settings = Settings {
            commits: 3,
            ..Settings::new(store, geometry)
        };
        let report = exhaustive(&settings, &Progress::default()).expect("the life itself holds");
        let cost = measure(store, geometry, &Daily::busy_kiosk(geometry)).unwrap();
        let page = page(&report, &[(store.name, cost)]);
        for outside in ["http", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        for part in [
            "<svg",
            "FAILED",
            "marginal_erase",
            "page 1",
            "Cost of a claim",
            "--replay",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn text_cannot_break_out_of_the_page() {
        assert_eq!(escape("<a b=\"&\">"), "&lt;a b=&quot;&amp;&quot;&gt;");
    }
}
