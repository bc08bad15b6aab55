//! How arguments are read. Everything is checked here, before the ledger is touched; what is wrong is wrong usage.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use keyfence::core::gate::ClaimKind;
use keyfence::core::mailbox::Priority;
use keyfence::core::{AttemptId, Incarnation, Name, ProcessId, TimeMs, Token, Ttl};

/// The greatest number that JSON holds exactly everywhere: 2^53 - 1.
const NUMBER_MAX: u64 = keyfence::core::token::MAX_NUMBER;

/// A name: 1 to 64 bytes of UTF-8 without control characters.
pub(crate) fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

/// `proc_` and 32 lower-case hexadecimal digits.
pub(crate) fn process(text: &str) -> Result<ProcessId, String> {
    text.parse()
        .map_err(|error| format!("{error}; `keyfence process new` prints a fresh one"))
}

/// `att_` and 32 lower-case hexadecimal digits.
pub(crate) fn attempt(text: &str) -> Result<AttemptId, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// A whole number in the one spelling that it is printed in: digits, with neither a sign nor zeros in front.
fn whole<T: FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    text.parse().ok().filter(|_| digits && !padded)
}

/// A fencing token that an earlier grant was written down as.
pub(crate) fn token(text: &str) -> Result<Token, String> {
    whole(text)
        .and_then(Token::presented)
        .ok_or_else(|| format!("a token is a whole number from 1 to {NUMBER_MAX}, written as it was printed"))
}

/// An incarnation.
pub(crate) fn incarnation(text: &str) -> Result<Incarnation, String> {
    whole(text)
        .and_then(Incarnation::presented)
        .ok_or_else(|| format!("an incarnation is a whole number from 1 to {NUMBER_MAX}, written as it was printed"))
}

/// How many messages are claimed at once.
pub(crate) fn batch(text: &str) -> Result<u16, String> {
    whole(text)
        .filter(|count| (1..=1000).contains(count))
        .ok_or_else(|| "expected a whole number from 1 to 1000".to_owned())
}

/// An exit status that is no success.
pub(crate) fn blocked_exit(text: &str) -> Result<u8, String> {
    whole(text)
        .filter(|status| *status != 0)
        .ok_or_else(|| "expected an exit status from 1 to 255; 0 is COMPLETED".to_owned())
}

/// How often a message is tried again.
pub(crate) fn retries(text: &str) -> Result<u16, String> {
    whole(text).ok_or_else(|| format!("expected a whole number from 0 to {}", u16::MAX))
}

/// A moment in milliseconds since the Unix epoch.
pub(crate) fn moment(text: &str) -> Result<TimeMs, String> {
    whole(text)
        .and_then(TimeMs::new)
        .ok_or_else(|| format!("expected milliseconds since the Unix epoch, 0 to {NUMBER_MAX}"))
}

/// A moment that leases are decided at: the longest of them still has an end after it.
pub(crate) fn now(text: &str) -> Result<TimeMs, String> {
    let last = TimeMs::MAX.as_ms() - Ttl::MAX_MS;
    moment(text).ok().filter(|now| now.as_ms() <= last).ok_or_else(|| {
        format!("expected milliseconds since the Unix epoch, 0 to {last}: a lease of ten years ends later")
    })
}

/// A priority, -100 to 100.
pub(crate) fn priority(text: &str) -> Result<Priority, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) if digits != "0" => (-1, digits),
        Some(_) | None => (1, text),
    };
    whole::<u8>(digits)
        .map(|number| sign * i64::from(number))
        .and_then(Priority::new)
        .ok_or_else(|| "a priority is a whole number from -100 to 100".to_owned())
}

/// A length of time in milliseconds: a whole number and `ms`, `s`, `m`, `h` or `d`.
fn length_ms(text: &str) -> Result<u64, String> {
    const SUCH_AS: &str = "expected a duration such as 500ms, 90s, 15m, 2h or 90d";
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (digits, unit) = text.split_at(digits);
    if digits.is_empty() {
        return Err(if text.starts_with('-') {
            format!("a duration cannot be negative; {SUCH_AS}")
        } else {
            SUCH_AS.to_owned()
        });
    }
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "" => return Err(format!("the unit is missing; {SUCH_AS}")),
        "w" | "y" => return Err(format!("weeks and years are given in days; {SUCH_AS}")),
        _ => return Err(SUCH_AS.to_owned()),
    };
    // Only the digits of a number that is too large cannot be read.
    let count: Option<u64> = digits.parse().ok();
    count
        .and_then(|count| count.checked_mul(unit_ms))
        .filter(|ms| *ms <= Ttl::MAX_MS)
        .ok_or_else(|| "a duration is at most ten years".to_owned())
}

/// The length of a lease: 1 millisecond to ten years.
pub(crate) fn ttl(text: &str) -> Result<Ttl, String> {
    Ttl::from_ms(length_ms(text)?).ok_or_else(|| "a lease lasts at least 1ms".to_owned())
}

/// Any length of time, zero too.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    length_ms(text).map(Duration::from_millis)
}

/// A length of time that is not zero.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be at least 1ms".to_owned()),
        length => Ok(length),
    }
}

/// What a gate is bound to: `KIND:NAME`.
pub(crate) fn binding(text: &str) -> Result<(ClaimKind, Name), String> {
    let wrong = "expected KIND:NAME, where KIND is actor, attempt, message, host or session";
    let (kind, claim) = text.split_once(':').ok_or(wrong)?;
    Ok((ClaimKind::from_name(kind).ok_or(wrong)?, name(claim)?))
}

/// A text that is stored as it is: 1 byte at least, so that nobody revokes "because".
pub(crate) fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("give a reason in words".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// The bytes of an argument, UTF-8 or not.
pub(crate) fn bytes(argument: OsString) -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt as _;
    argument.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        for (text, ms) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("15m", 900_000),
            ("2h", 7_200_000),
            ("90d", 7_776_000_000),
        ] {
            assert_eq!(length_ms(text), Ok(ms), "{text}");
        }
        for wrong in [
            "",
            "5",
            "s",
            "-5s",
            "1.5s",
            "5 s",
            "5S",
            "1h30m",
            "+5s",
            "99999999999999999999s",
            "11000000d",
        ] {
            assert!(length_ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_duration_is_answered_by_what_is_wrong_with_it() {
        for (text, what) in [
            ("-5s", "cannot be negative"),
            ("-5", "cannot be negative"),
            ("5", "the unit is missing"),
            ("5S", "such as"),
            ("soon", "such as"),
            ("10y", "given in days"),
            ("2w", "given in days"),
            ("99999999999999999999s", "at most ten years"),
        ] {
            let message = length_ms(text).unwrap_err();
            assert!(message.contains(what), "{text}: {message}");
        }
    }

    #[test]
    fn a_lease_has_a_length_and_an_end() {
        assert!(ttl("0s").is_err());
        assert!(ttl("3651d").is_err());
        assert_eq!(ttl("3650d").map(Ttl::as_ms), Ok(Ttl::MAX_MS));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert!(interval("0s").is_err());
    }

    #[test]
    fn a_lease_ends_after_the_moment_it_is_decided_at() {
        let last = TimeMs::MAX.as_ms() - Ttl::MAX_MS;
        let longest = Ttl::from_ms(Ttl::MAX_MS).unwrap();
        assert_eq!(now(&last.to_string()).map(|now| now.after(longest)), Ok(TimeMs::MAX));
        for wrong in [last + 1, TimeMs::MAX.as_ms(), TimeMs::MAX.as_ms() + 1] {
            assert!(now(&wrong.to_string()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_never_zero_negative_or_beyond_json() {
        for wrong in ["0", "-1", "9007199254740992", "x", "", "1.0", "18446744073709551616"] {
            assert!(token(wrong).is_err(), "{wrong}");
        }
        assert_eq!(token("9007199254740991").map(Token::get), Ok(NUMBER_MAX));
    }

    #[test]
    fn a_number_has_one_spelling() {
        for wrong in ["01", "+1", " 1", "1_0", "00"] {
            assert!(token(wrong).is_err(), "{wrong}");
            assert!(incarnation(wrong).is_err(), "{wrong}");
            assert!(retries(wrong).is_err(), "{wrong}");
            assert!(moment(wrong).is_err(), "{wrong}");
        }
        assert_eq!(retries("0"), Ok(0));
        assert_eq!(moment("0").map(TimeMs::as_ms), Ok(0));
    }

    #[test]
    fn a_binding_is_a_kind_and_a_name() {
        let (kind, claim) = binding("session:supplier:chat").unwrap();
        assert_eq!((kind, claim.as_str()), (ClaimKind::Session, "supplier:chat"));
        for wrong in ["", "session", "session:", "door:a", ":a"] {
            assert!(binding(wrong).is_err(), "{wrong}");
        }
    }
}
