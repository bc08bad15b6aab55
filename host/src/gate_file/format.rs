//! What a gate's file says: one line of JSON with a check value over all of it.

use keyfence_core::gate::{Binding, ClaimKind, Gate};
use keyfence_core::{Name, Token};
use serde_json::{Value, json};

use crate::store::check::Check;

/// The format of the file.
const FORMAT: u64 = 1;

/// The longest file that is read as a gate, in bytes: a name of 64 bytes, escaped, and the rest.
pub(super) const FILE_BYTES_MAX: u64 = 4_096;

/// What every gate's file begins with, damaged or not: nothing else may be replaced by a gate.
const MARK: &[u8] = b"{\"keyfence_gate\":";

/// What a file is that is no gate as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// What is left of a gate.
    Damaged,
    /// Something else.
    Foreign,
}

/// The check value over everything that the file says.
fn check(gate: &Gate) -> i64 {
    let mut check = Check::new("gate");
    check.bytes(gate.binding.ledger.as_bytes());
    check.text(gate.binding.kind.name());
    check.text(gate.binding.name.as_str());
    check.opt(gate.high_water, |check, token| check.word(token.get()));
    check.finish()
}

pub(super) fn encode(gate: &Gate) -> Vec<u8> {
    let mut text = json!({
        "keyfence_gate": FORMAT,
        "ledger": gate.binding.ledger.to_string(),
        "kind": gate.binding.kind.name(),
        "name": gate.binding.name.as_str(),
        "high_water": gate.high_water.map(Token::get),
        "check": format!("{:016x}", check(gate)),
    })
    .to_string()
    .into_bytes();
    text.push(b'\n');
    text
}

/// Reads a gate as it was written (G3). What is cut off within the mark is what is left of one, an empty file too: nothing is
/// lost by replacing it.
pub(super) fn decode(name: &Name, text: &[u8]) -> Result<Gate, Unread> {
    decoded(name, text).ok_or(if text.starts_with(MARK) || MARK.starts_with(text) {
        Unread::Damaged
    } else {
        Unread::Foreign
    })
}

fn decoded(name: &Name, text: &[u8]) -> Option<Gate> {
    let value: Value = serde_json::from_slice(text).ok()?;
    if value.get("keyfence_gate")?.as_u64()? != FORMAT {
        return None;
    }
    let gate = Gate {
        name: name.clone(),
        binding: Binding {
            ledger: value.get("ledger")?.as_str()?.parse().ok()?,
            kind: ClaimKind::from_name(value.get("kind")?.as_str()?)?,
            name: Name::new(value.get("name")?.as_str()?).ok()?,
        },
        high_water: match value.get("high_water")? {
            mark if mark.is_null() => None,
            mark => Some(Token::presented(mark.as_u64()?)?),
        },
    };
    (value.get("check")?.as_str()? == format!("{:016x}", check(&gate))).then_some(gate)
}
