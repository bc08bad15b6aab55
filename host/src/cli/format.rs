//! How colours, moments, lengths of time and foreign bytes are written.

use std::time::Duration;

use keyfence::core::TimeMs;

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

    pub(crate) fn outcome(self, outcome: &str) -> String {
        let code = match outcome {
            "granted" | "done" | "already_done" => "1;32",
            "refused" => "1;33",
            _ => "1;31",
        };
        self.paint(code, outcome)
    }
}

/// Makes visible what others wrote to drive this terminal or to look like something else: control characters, and those
/// that are invisible or turn the direction of the text. The joiners that scripts and emoji need stay.
pub(crate) fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() && c != '\n' && c != '\t') || is_deceptive(c) {
            visible.extend(c.escape_default());
        } else {
            visible.push(c);
        }
    }
    visible
}

/// Whether a character is not seen but moves or hides what is (Unicode's bidirectional controls and its format
/// characters without a width).
fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

/// A body as it is, or fit for a terminal.
pub(crate) fn shown(body: &[u8], terminal: bool) -> Vec<u8> {
    if terminal {
        visible(&String::from_utf8_lossy(body)).into_bytes()
    } else {
        body.to_owned()
    }
}

/// Breaks a text between its words so that no line is longer than `columns`, where words are not; later lines begin at
/// `indent`. What has line breaks of its own, and what would get too narrow, is left as it is.
pub(crate) fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    const NARROW: usize = 20;
    let width = columns.saturating_sub(indent);
    if width < NARROW || text.chars().count() <= width || text.contains('\n') {
        return text.to_owned();
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines.join(&format!("\n{:indent$}", ""))
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
pub(crate) fn base64(bytes: &[u8]) -> String {
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
    fn a_long_text_is_wrapped_between_its_words() {
        let text = "the claim was taken over by another process";
        assert_eq!(wrapped(text, 28, 4), "the claim was taken over\n    by another process");
        assert_eq!(wrapped(text, 80, 4), text);
        assert_eq!(wrapped(text, 10, 4), text, "too narrow to be of use");
        let long = "a proc_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b";
        assert_eq!(wrapped(long, 24, 4).lines().count(), 3, "a word is never broken");
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
        assert_eq!(visible("crew\u{200b}"), "crew\\u{200b}");
        assert_eq!(visible("\u{202e}werc"), "\\u{202e}werc");
        // A letter with its accent apart, a joined emoji, a script that needs the non-joiner.
        for text in [
            "e\u{301}",
            "\u{1f469}\u{200d}\u{1f373}",
            "\u{645}\u{6cc}\u{200c}\u{62e}",
        ] {
            assert_eq!(visible(text), text);
        }
        assert_eq!(shown(b"\x1b\xff", false), b"\x1b\xff");
    }
}
