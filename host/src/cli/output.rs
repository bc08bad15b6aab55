//! What a call prints: one JSON object or array, or text for people.
//!
//! * **O1.** With `--json` standard output carries exactly one object, or one array for a list, whatever happens.
//! * **O2.** An answer is text on standard output; a refusal, an error and progress are text on standard error.
//! * **O3.** Colour only on a terminal, without `NO_COLOR`. On a terminal, control characters in what others wrote are
//!   made visible instead of being obeyed.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use keyfence::core::attempt::Done;
use keyfence::core::{Refusal, TimeMs, Token};
use serde_json::{Map, Value, json};

/// How many rows a table is laid out for at a time, so that a list of any length needs little memory.
const ROWS_AT_A_TIME: usize = 500;

/// Where and how this call prints.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    /// For "in 5m" and "2m ago".
    now: TimeMs,
}

impl Output {
    pub(crate) const fn new(json: bool, now: TimeMs) -> Self {
        Self { json, now }
    }

    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Prints an answer.
    pub(crate) fn answer(&self, answer: &Answer) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, &answer.fields)?;
            writeln!(out)?;
        } else {
            let paint = Paint::of(io::stdout().is_terminal());
            out.write_all(self.lines(answer, paint).as_bytes())?;
            if let Some(body) = &answer.body {
                out.write_all(&shown(body, io::stdout().is_terminal()))?;
                if !body.ends_with(b"\n") {
                    out.write_all(b"\n")?;
                }
            }
        }
        out.flush()
    }

    /// Prints what is no answer: as JSON on standard output all the same, as text on standard error.
    pub(crate) fn no_answer(&self, answer: &Answer) -> io::Result<()> {
        if self.json {
            return self.answer(answer);
        }
        let paint = Paint::of(io::stderr().is_terminal());
        io::stderr().lock().write_all(self.lines(answer, paint).as_bytes())
    }

    /// A note for people, on standard error.
    pub(crate) fn note(&self, text: &str) {
        // Nobody to tell is no reason to fail.
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Prints text that is neither an answer nor a list; not for JSON.
    pub(crate) fn text(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// One line of a stream: an object, or a line of text. A stream has no end, so it is no array.
    pub(crate) fn line(&self, object: &Value, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{object}")?;
        } else {
            writeln!(out, "{text}")?;
        }
        out.flush()
    }

    /// A list with these columns: the heading, and the field it shows.
    pub(crate) fn list(&self, columns: &'static [(&'static str, &'static str)]) -> List<'_> {
        List {
            output: self,
            columns,
            rows: Vec::new(),
            printed: false,
        }
    }

    fn lines(&self, answer: &Answer, paint: Paint) -> String {
        let word = answer.fields.get("outcome").and_then(Value::as_str).unwrap_or("");
        let headline = answer.headline.clone().unwrap_or_default();
        let gap = if word.is_empty() || headline.is_empty() {
            ""
        } else {
            "  "
        };
        let mut text = format!("{}{gap}{}\n", paint.outcome(word), paint.bold(&visible(&headline)));
        let shown: Vec<(&str, String)> = answer
            .fields
            .iter()
            .filter(|(key, _)| !answer.in_headline.contains(&key.as_str()))
            .map(|(key, value)| (label(key), self.value(key, value)))
            .collect();
        let width = shown.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        for (key, value) in shown {
            text.push_str(&format!("  {}  {value}\n", paint.dim(&format!("{key:<width$}"))));
        }
        text
    }

    /// A field for people.
    fn value(&self, key: &str, value: &Value) -> String {
        match value {
            Value::Null => String::new(),
            Value::String(text) => visible(text),
            Value::Number(number) if is_moment(key) => number
                .as_u64()
                .and_then(TimeMs::new)
                .map_or_else(|| number.to_string(), |time| self.moment(time)),
            Value::Number(number) if key.ends_with("_ms") => number
                .as_u64()
                .map_or_else(|| number.to_string(), |ms| span(Duration::from_millis(ms))),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.value(key, item)).collect();
                items.join(", ")
            }
            Value::Number(_) | Value::Object(_) => value.to_string(),
        }
    }

    /// A moment, absolute and from now.
    pub(crate) fn moment(&self, time: TimeMs) -> String {
        format!("{} ({})", utc(time), self.distance(time))
    }

    fn distance(&self, time: TimeMs) -> String {
        let (now, time) = (self.now.as_ms(), time.as_ms());
        if time > now {
            format!("in {}", span(Duration::from_millis(time - now)))
        } else {
            format!("{} ago", span(Duration::from_millis(now - time)))
        }
    }
}

/// An object to print, and its headline for people.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    fields: Map<String, Value>,
    headline: Option<String>,
    in_headline: Vec<&'static str>,
    body: Option<Vec<u8>>,
}

impl Answer {
    /// An object without an outcome: what a `show` prints.
    pub(crate) fn plain() -> Self {
        Self {
            fields: Map::new(),
            headline: None,
            in_headline: vec!["outcome"],
            body: None,
        }
    }

    /// An object that begins with its outcome.
    pub(crate) fn new(outcome: &str) -> Self {
        Self::plain().with("outcome", outcome)
    }

    /// A grant.
    pub(crate) fn granted(token: Token, expires_at: TimeMs) -> Self {
        Self::new("granted")
            .with("token", token.get())
            .with("expires_at_ms", expires_at.as_ms())
            .headline(format!("token {token}"), &["token"])
    }

    /// A call that took effect now or before.
    pub(crate) fn done(done: Done) -> Self {
        Self::new(match done {
            Done::Now => "done",
            Done::Already => "already_done",
        })
    }

    /// A refusal, with the evidence that there is.
    pub(crate) fn refused(refusal: &Refusal, asked: &str, output: &Output) -> Self {
        let holder = refusal.holder.as_ref();
        Self::new("refused")
            .with("refusal", refusal.reason.name())
            .with_some("holder", holder.map(|holder| holder.name.as_str()))
            .with_some(
                "holder_process",
                holder.and_then(|holder| holder.process).map(|id| id.to_string()),
            )
            .with_some("held_token", refusal.held_token.map(Token::get))
            .with_some("since_ms", refusal.since.map(TimeMs::as_ms))
            .with_some("expires_at_ms", refusal.expires_at.map(TimeMs::as_ms))
            .with_some("due_at_ms", refusal.due_at.map(TimeMs::as_ms))
            .with_some("high_water", refusal.high_water.map(Token::get))
            .with_some("never_issued", refusal.never_issued.then_some(true))
            .with("reason", why(refusal, asked, output))
            .with("next", refusal.reason.next())
            .headline(refusal.reason.name().to_owned(), &["refusal"])
    }

    /// An error.
    pub(crate) fn error(name: &str, reason: &str, next: &str) -> Self {
        Self::new("error")
            .with("error", name)
            .with("reason", reason)
            .with("next", next)
            .headline(name.to_owned(), &["error"])
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(key.to_owned(), value.into());
        self
    }

    pub(crate) fn with_some(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Bytes that somebody wrote: as text where they are UTF-8, otherwise in base64 under `KEY_base64`.
    pub(crate) fn with_bytes(self, key: &str, bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.with(key, text),
            Err(_) => self.with(&format!("{key}_base64"), base64(bytes)),
        }
    }

    /// A message's body: a field in JSON, and for people what follows the other fields, byte for byte.
    pub(crate) fn with_body(mut self, body: Vec<u8>) -> Self {
        self = self.with_bytes("body", &body);
        self.in_headline.extend(["body", "body_base64"]);
        self.body = Some(body);
        self
    }

    /// The headline for people, and the fields that it already says.
    pub(crate) fn headline(mut self, headline: String, says: &[&'static str]) -> Self {
        self.headline = Some(headline);
        self.in_headline.extend(says);
        self
    }

    /// The object.
    pub(crate) fn into_value(self) -> Value {
        Value::Object(self.fields)
    }
}

/// A list that is printed while it is being read.
pub(crate) struct List<'o> {
    output: &'o Output,
    columns: &'static [(&'static str, &'static str)],
    rows: Vec<Value>,
    printed: bool,
}

impl List<'_> {
    /// Adds a row.
    pub(crate) fn row(&mut self, row: Answer) -> io::Result<()> {
        let row = row.into_value();
        if self.output.json {
            let mut out = io::stdout().lock();
            write!(out, "{}{row}", if self.printed { ",\n " } else { "[" })?;
            self.printed = true;
            return Ok(());
        }
        self.rows.push(row);
        if self.rows.len() == ROWS_AT_A_TIME {
            self.print_rows()?;
        }
        Ok(())
    }

    /// Prints what is left. A list for people that has no rows says so on standard error.
    pub(crate) fn end(mut self, when_empty: &str) -> io::Result<()> {
        if self.output.json {
            let mut out = io::stdout().lock();
            writeln!(out, "{}", if self.printed { "]" } else { "[]" })?;
            return out.flush();
        }
        if !self.rows.is_empty() {
            self.print_rows()?;
        }
        if !self.printed {
            self.output.note(when_empty);
        }
        io::stdout().flush()
    }

    fn print_rows(&mut self) -> io::Result<()> {
        let terminal = io::stdout().is_terminal();
        let mut table = Table::new();
        if terminal {
            table.load_preset(presets::UTF8_FULL_CONDENSED);
            table.set_content_arrangement(ContentArrangement::Dynamic);
        } else {
            table.load_preset(presets::NOTHING);
        }
        if terminal || !self.printed {
            table.set_header(self.columns.iter().map(|(heading, _)| *heading));
        }
        for row in self.rows.drain(..) {
            table.add_row(self.columns.iter().map(|(_, field)| {
                row.get(field)
                    .map_or_else(String::new, |value| self.output.value(field, value))
            }));
        }
        self.printed = true;
        let mut out = io::stdout().lock();
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A sentence about a refusal.
fn why(refusal: &Refusal, asked: &str, output: &Output) -> String {
    let what = refusal.reason.name().replace('_', " ");
    let mut sentence = format!("{asked}: {what}");
    if let Some(holder) = &refusal.holder {
        let holder = match holder.process {
            Some(process) => format!("{} ({process})", holder.name),
            None => holder.name.to_string(),
        };
        match refusal.expires_at {
            Some(expires_at) => {
                sentence.push_str(&format!("; held by {holder} until {}", output.moment(expires_at)));
            }
            None => sentence.push_str(&format!("; last held by {holder}")),
        }
    }
    if let Some(due_at) = refusal.due_at {
        sentence.push_str(&format!("; due {}", output.moment(due_at)));
    }
    if let Some(high_water) = refusal.high_water {
        sentence.push_str(&format!("; the mark is {high_water}"));
    }
    if refusal.never_issued {
        sentence.push_str("; this ledger never issued that token");
    }
    sentence
}

/// Whether a field is a moment and not a length of time.
fn is_moment(key: &str) -> bool {
    key.ends_with("_at_ms") || matches!(key, "since_ms" | "now_ms" | "not_before_ms")
}

/// A field's name for people.
fn label(key: &str) -> &str {
    match key {
        "expires_at_ms" => "until",
        "since_ms" => "since",
        key => key
            .strip_suffix("_at_ms")
            .or_else(|| key.strip_suffix("_ms"))
            .unwrap_or(key),
    }
}

/// Whether and how to colour.
#[derive(Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    /// For a stream that is a terminal or not.
    pub(crate) fn of(terminal: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self(terminal && !no_color && !dumb)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.0 && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn warn(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    fn outcome(self, outcome: &str) -> String {
        let code = match outcome {
            "granted" | "done" | "already_done" => "1;32",
            "refused" => "1;33",
            _ => "1;31",
        };
        self.paint(code, outcome)
    }
}

/// Makes control characters visible: what others wrote must not drive this terminal.
fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' && c != '\t' {
            visible.extend(c.escape_default());
        } else {
            visible.push(c);
        }
    }
    visible
}

/// A body as it is, or fit for a terminal.
fn shown(body: &[u8], terminal: bool) -> Vec<u8> {
    if terminal {
        visible(&String::from_utf8_lossy(body)).into_bytes()
    } else {
        body.to_owned()
    }
}

/// A length of time in its two greatest units.
pub(crate) fn span(length: Duration) -> String {
    let ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let units = [
        ("y", 365 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let Some(first) = units.iter().position(|(_, unit)| ms >= *unit) else {
        return "0s".to_owned();
    };
    let (name, unit) = units[first];
    let (whole, rest) = (ms / unit, ms % unit);
    match units.get(first + 1) {
        Some((next_name, next_unit)) if *next_unit > 1 && rest >= *next_unit => {
            format!("{whole}{name} {}{next_name}", rest / next_unit)
        }
        Some(_) | None => format!("{whole}{name}"),
    }
}

/// A moment as UTC, by the civil calendar.
pub(crate) fn utc(time: TimeMs) -> String {
    let seconds = time.as_ms() / 1_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years; the year begins in March so that the leap day is its last one.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z",
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// Bytes in the usual base64 alphabet, with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0_u8; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for (index, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            if index <= chunk.len() {
                text.push(char::from(ALPHABET[(bits >> shift & 0x3f) as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// The object of a usage error.
pub(crate) fn usage(reason: &str) -> Answer {
    Answer::error("usage", reason, "see `keyfence help`, or `--help` after the command")
}

/// The object of an outcome that nobody knows.
pub(crate) fn unknown(error: &keyfence::Error) -> Answer {
    let cause = if let keyfence::Error::Unknown(cause) = error {
        cause.name()
    } else {
        error.name()
    };
    Answer::new("unknown")
        .with("error", cause)
        .with("reason", error.to_string())
        .with("next", error.next())
}

/// Pretty JSON, for the demos: people read it.
pub(crate) fn pretty(value: &Value) -> String {
    format!(
        "{}\n",
        serde_json::to_string_pretty(value).unwrap_or_else(|_| json!(value).to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> TimeMs {
        TimeMs::new(ms).unwrap()
    }

    #[test]
    fn a_moment_is_written_by_the_civil_calendar() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (1_709_251_199_999, "2024-02-29 23:59:59Z"),
            (1_798_761_600_000, "2027-01-01 00:00:00Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(utc(at(ms)), text);
        }
    }

    #[test]
    fn a_span_has_at_most_two_units() {
        for (ms, text) in [
            (0, "0s"),
            (1, "1ms"),
            (1_500, "1s"),
            (90_000, "1m 30s"),
            (900_000, "15m"),
            (7_260_000, "2h 1m"),
            (90 * 86_400_000, "90d"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn what_others_wrote_does_not_drive_the_terminal() {
        assert_eq!(visible("a\x1b[2Jb\tc\n"), "a\\u{1b}[2Jb\tc\n");
        assert_eq!(shown(b"\x1b\xff", false), b"\x1b\xff");
    }

    #[test]
    fn a_refusal_never_carries_a_token_as_authority() {
        let refusal = Refusal::new(keyfence::core::Reason::ActorLeaseHeld).under(Token::FIRST);
        let object = Answer::refused(&refusal, "acquire", &Output::new(true, TimeMs::ZERO)).into_value();
        assert_eq!(object.get("token"), None);
        assert_eq!(object["held_token"], 1);
        assert_eq!(object["refusal"], "actor_lease_held");
    }
}
