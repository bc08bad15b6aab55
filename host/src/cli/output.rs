//! What a call prints: one JSON object or array, or text for people.
//!
//! * **O1.** With `--json` standard output carries exactly one object, or one array for a list, whatever happens. What ends a
//!   list before its time is the array's last element.
//! * **O2.** An answer is text on standard output; a refusal, an error and progress are text on standard error.
//! * **O3.** Colour only on a terminal, without `NO_COLOR`. On a terminal, control characters in what others wrote are
//!   made visible instead of being obeyed.

use std::cell::Cell;
use std::cmp::Ordering;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use keyfence::core::attempt::Done;
use keyfence::core::gate::Binding;
use keyfence::core::{Name, Refusal, TimeMs, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Map, Value, json};

use super::exit::Mismatch;
use super::format::{Paint, base64, shown, span, utc, visible, wrapped};

/// How many rows a table is laid out for at a time, so that a list of any length needs little memory.
const ROWS_AT_A_TIME: usize = 500;

/// How many characters of a process identity tell one from another at a glance: `proc_` and eight digits.
const PROCESS_SHORT: usize = 13;

/// Where and how this call prints.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    /// For "in 5m" and "2m ago".
    now: TimeMs,
    /// An array was begun and not ended.
    in_array: Cell<bool>,
}

/// An answer that nobody got, although the call was made.
#[derive(Debug)]
pub(crate) struct Unanswered(pub(crate) io::Error);

impl Output {
    pub(crate) const fn new(json: bool, now: TimeMs) -> Self {
        Self {
            json,
            now,
            in_array: Cell::new(false),
        }
    }

    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Prints an answer.
    pub(crate) fn answer(&self, answer: &Answer) -> Result<(), Unanswered> {
        self.print(answer).map_err(Unanswered)
    }

    /// Prints an answer on a line of its own, whatever a program has printed before it.
    pub(crate) fn answer_after_a_program(&self, answer: &Answer) -> Result<(), Unanswered> {
        // Whether that ended with a line's end is not known; an empty line is harmless.
        io::stdout().lock().write_all(b"\n").map_err(Unanswered)?;
        self.answer(answer)
    }

    fn print(&self, answer: &Answer) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            // What ends a list before its time is its last element (O1).
            let in_array = self.in_array.take();
            if in_array {
                write!(out, ",\n ")?;
            }
            serde_json::to_writer(&mut out, &answer.fields)?;
            writeln!(out, "{}", if in_array { "\n]" } else { "" })?;
        } else {
            let paint = Paint::of(io::stdout().is_terminal());
            out.write_all(self.lines(answer, paint, columns(&io::stdout())).as_bytes())?;
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
    pub(crate) fn no_answer(&self, answer: &Answer) -> Result<(), Unanswered> {
        if self.json {
            return self.answer(answer);
        }
        let paint = Paint::of(io::stderr().is_terminal());
        let text = self.lines(answer, paint, columns(&io::stderr()));
        io::stderr().lock().write_all(text.as_bytes()).map_err(Unanswered)
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

    /// Fails as a write would when nobody reads standard output any more, for who waits with nothing to write.
    pub(crate) fn check_reader(&self) -> io::Result<()> {
        let stdout = io::stdout();
        let mut output = [PollFd::new(&stdout, PollFlags::empty())];
        poll(&mut output, Some(&Timespec::default()))?;
        if output[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
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

    /// An answer for people, wrapped where it goes to a terminal of so many columns.
    fn lines(&self, answer: &Answer, paint: Paint, columns: Option<usize>) -> String {
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
            .filter(|(_, value)| !(answer.counts && is_zero(value)))
            .map(|(key, value)| (label(key), self.value(key, value)))
            .collect();
        let width = shown.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        for (key, value) in shown {
            let value = match columns {
                Some(columns) => wrapped(&value, columns, width + 4),
                None => value,
            };
            text.push_str(&format!("  {}  {value}\n", paint.dim(&format!("{key:<width$}"))));
        }
        text
    }

    /// A field in a cell of a table: on a terminal short, `show` has the whole.
    fn cell(&self, key: &str, value: &Value, terminal: bool) -> String {
        let moment = value.as_u64().and_then(TimeMs::new).filter(|_| is_moment(key));
        match (moment, value.as_str()) {
            (Some(moment), _) if terminal => self.distance(moment),
            (Some(moment), _) => utc(moment),
            (None, Some(id)) if terminal && key == "process" => id.get(..PROCESS_SHORT).unwrap_or(id).to_owned(),
            (None, _) => self.value(key, value),
        }
    }

    /// A field for people.
    fn value(&self, key: &str, value: &Value) -> String {
        match value {
            Value::Null => String::new(),
            Value::String(text) => visible(text),
            Value::Number(number) if key == "now_ms" => number
                .as_u64()
                .and_then(TimeMs::new)
                .map_or_else(|| number.to_string(), utc),
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
        match time.cmp(&now) {
            Ordering::Greater => format!("in {}", span(Duration::from_millis(time - now))),
            Ordering::Equal => "now".to_owned(),
            Ordering::Less => format!("{} ago", span(Duration::from_millis(now - time))),
        }
    }
}

/// How wide the terminal is that a stream goes to, if it does.
fn columns(stream: &(impl io::IsTerminal + AsFd)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Whether a field says nothing to people: a count of nothing.
fn is_zero(value: &Value) -> bool {
    value.as_u64() == Some(0)
}

/// An object to print, and its headline for people.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    fields: Map<String, Value>,
    headline: Option<String>,
    in_headline: Vec<&'static str>,
    /// Whether its numbers are counts, of which people see only those that are not zero.
    counts: bool,
    body: Option<Vec<u8>>,
}

impl Answer {
    /// An object without an outcome: what a `show` prints.
    pub(crate) fn plain() -> Self {
        Self {
            fields: Map::new(),
            headline: None,
            in_headline: vec!["outcome"],
            counts: false,
            body: None,
        }
    }

    /// What a `show` prints of a name that is not on the ledger: that is an answer, and no refusal.
    pub(crate) fn unknown_name(kind: &'static str, name: &Name) -> Self {
        Self::plain()
            .with(kind, name.as_str())
            .with("known", false)
            .headline(format!("{kind} {name}"), &[kind])
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
            .with("next", refusal.next())
            .headline(refusal.reason.name().to_owned(), &["refusal"])
    }

    /// The refusal of a gate that belongs to another claim: both are named.
    pub(crate) fn mismatch(mismatch: &Mismatch, output: &Output) -> Self {
        let words = |binding: &Binding| {
            format!(
                "{} `{}` of ledger {}",
                binding.kind.name(),
                binding.name,
                binding.ledger
            )
        };
        let fields = |binding: &Binding| {
            Self::plain()
                .with("kind", binding.kind.name())
                .with("name", binding.name.as_str())
                .with("ledger", binding.ledger.to_string())
                .into_value()
        };
        let asked = format!(
            "{} for {}, while it is bound to {}",
            mismatch.asked,
            words(&mismatch.presented),
            words(&mismatch.bound)
        );
        let mut answer = Self::refused(&mismatch.refusal, &asked, output)
            .with("bound_to", fields(&mismatch.bound))
            .with("presented", fields(&mismatch.presented));
        // The sentence says both.
        answer.in_headline.extend(["bound_to", "presented"]);
        answer
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

    /// Leaves zeros out for people.
    pub(crate) fn counts(mut self) -> Self {
        self.counts = true;
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
            self.output.in_array.set(true);
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
            self.output.in_array.set(false);
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
                    .map_or_else(String::new, |value| self.output.cell(field, value, terminal))
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
        match refusal
            .expires_at
            .map(|expires_at| (expires_at > output.now, output.moment(expires_at)))
        {
            Some((true, until)) => sentence.push_str(&format!("; held by {holder} until {until}")),
            Some((false, until)) => sentence.push_str(&format!("; last held by {holder}, lapsed {until}")),
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
    key.ends_with("_at_ms") || matches!(key, "at_ms" | "since_ms" | "now_ms" | "not_before_ms")
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

    #[test]
    fn a_refusal_never_carries_a_token_as_authority() {
        let refusal = Refusal::new(keyfence::core::Reason::ActorLeaseHeld).under(Token::FIRST);
        let object = Answer::refused(&refusal, "acquire", &Output::new(true, TimeMs::ZERO)).into_value();
        assert_eq!(object.get("token"), None);
        assert_eq!(object["held_token"], 1);
        assert_eq!(object["refusal"], "actor_lease_held");
    }
}
