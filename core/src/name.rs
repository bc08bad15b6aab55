//! Who and what: bounded names, process identities, attempt ids, ledger ids and digests.

use core::fmt::{self, Write as _};

/// The longest name, in bytes of UTF-8: 64 on a PC; 32 without an operating system, as the flash ledger keeps them. A row
/// has up to four names, and passes through many functions of a chip whose whole stack is a few kilobytes.
pub const NAME_BYTES_MAX: usize = if cfg!(target_os = "none") { 32 } else { 64 };

/// A name of an actor, a host, a session, an assignment, a message or a gate: 1 to [`NAME_BYTES_MAX`] bytes of UTF-8
/// without control characters. A longer one is refused, never cut off.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Name(heapless::String<NAME_BYTES_MAX>);

/// Why a text is not a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum NameError {
    /// It has no characters.
    Empty,
    /// It is longer than [`NAME_BYTES_MAX`] bytes.
    TooLong,
    /// It contains a control character (Unicode category Cc).
    ControlCharacter,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a name must have at least one character"),
            Self::TooLong => write!(f, "a name must have at most {NAME_BYTES_MAX} bytes"),
            Self::ControlCharacter => f.write_str("a name must have no control characters"),
        }
    }
}

impl core::error::Error for NameError {}

impl Name {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// [`NameError`] says which rule the text breaks.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.chars().any(char::is_control) {
            return Err(NameError::ControlCharacter);
        }
        heapless::String::try_from(text)
            .map(Self)
            .map_err(|_| NameError::TooLong)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl core::str::FromStr for Name {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// A text is not the prefix and 32 lower-case hexadecimal digits that the id needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct IdError {
    /// What the text has to start with.
    pub prefix: &'static str,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected `{}` and 32 lower-case hexadecimal digits", self.prefix)
    }
}

impl core::error::Error for IdError {}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8; 16]) -> fmt::Result {
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0x0f] {
            f.write_char(char::from_digit(u32::from(nibble), 16).unwrap_or('0'))?;
        }
    }
    Ok(())
}

fn read_hex(text: &str, prefix: &'static str) -> Result<[u8; 16], IdError> {
    let wrong = IdError { prefix };
    let digits = text.strip_prefix(prefix).ok_or(wrong)?.as_bytes();
    if digits.len() != 32 {
        return Err(wrong);
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return Err(wrong),
            };
            *byte = *byte << 4 | value;
        }
    }
    Ok(bytes)
}

macro_rules! id_of_16_bytes {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub struct $name([u8; 16]);

        impl $name {
            /// Takes the 16 bytes as they are.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The 16 bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                write_hex(f, &self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl core::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                read_hex(text, $prefix).map(Self)
            }
        }
    };
}

id_of_16_bytes! {
    /// One running instance of a program: `proc_` and the 32 hexadecimal digits of a fresh UUIDv4.
    ///
    /// Never a process id of the operating system, a host name or a time stamp: those are used again, and a stale worker
    /// would pass for its successor. A forked child needs a new one.
    ProcessId, "proc_"
}
id_of_16_bytes! {
    /// One execution attempt: `att_` and 32 hexadecimal digits, fresh for every attempt.
    AttemptId, "att_"
}
id_of_16_bytes! {
    /// One ledger: `led_` and 32 hexadecimal digits, drawn when it is created and kept by a restore.
    LedgerId, "led_"
}
id_of_16_bytes! {
    /// What bytes a call carried (a message's content, a result, a reason), as the first 16 bytes of their SHA-256.
    /// The store computes it; the machines only compare. 128 bits are enough against mistakes, which is what a fence
    /// is for.
    Digest, "sha_"
}

impl Digest {
    /// Stands for "this call carried no bytes".
    pub const NONE: Self = Self([0; 16]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn a_name_is_checked_and_never_cut_off() {
        assert_eq!(Name::new(""), Err(NameError::Empty));
        assert_eq!(Name::new(&"x".repeat(65)), Err(NameError::TooLong));
        assert_eq!(Name::new("bell\u{7}"), Err(NameError::ControlCharacter));
        assert_eq!(Name::new("next\u{85}line"), Err(NameError::ControlCharacter));
        let longest = "ö".repeat(32);
        assert_eq!(Name::new(&longest).unwrap().as_str(), longest);
        assert_eq!(Name::new(&std::format!("{longest}x")), Err(NameError::TooLong));
    }

    #[test]
    fn an_id_reads_back_what_it_writes_and_nothing_else() {
        let id = ProcessId::from_bytes([0xa5; 16]);
        let text = id.to_string();
        assert_eq!(text, "proc_a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5");
        assert_eq!(text.parse(), Ok(id));
        let wrong = IdError { prefix: "proc_" };
        for bad in [
            "",
            "proc_",
            &text[5..],
            &text.to_uppercase(),
            &text[..36],
            "proc_a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5",
        ] {
            assert_eq!(bad.parse::<ProcessId>(), Err(wrong), "{bad}");
        }
        assert_eq!("proc_g5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5".parse::<ProcessId>(), Err(wrong));
    }
}
