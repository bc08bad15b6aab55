//! Each kind of row as two records: the name with what its maker chose, and the state.
//!
//! The second byte of every state says which process it is about, so that processes that no row refers to any more can be
//! found. Expiries are not written (R3): a decoded row is one of an earlier boot until the step says otherwise.

mod assignment;
mod gate;
mod lease;
mod message;
mod session;

use keyfence_core::store::Record;
use keyfence_core::{Expiry, Name, ProcessId, Token};

use super::Trouble;
use super::codec::{Reader, Writer};
use super::keys::Kind;

/// A process that is written out, after the byte.
pub(super) const PROCESS_INLINE: u8 = 0xfe;
/// No process.
pub(super) const PROCESS_NONE: u8 = 0xff;
/// A name that is that of the row with this number; other names begin with their length.
const NAME_OF_ROW: u8 = 0x80;

type Outcomes<T> = Result<T, Trouble>;

/// What rows refer to by number.
pub(super) trait References {
    /// The number of a process, if it has one; it may be given one now.
    fn process_number(&mut self, process: ProcessId) -> Outcomes<Option<u8>>;
    /// The process of a number.
    fn process(&mut self, number: u8) -> Outcomes<Option<ProcessId>>;
    /// The number of a row, if there is one of this name.
    fn row_number(&mut self, kind: Kind, name: &Name) -> Outcomes<Option<u8>>;
    /// The name of a row.
    fn row_name(&mut self, kind: Kind, number: u8) -> Outcomes<Option<Name>>;
    /// The number that a new row is ordered by.
    fn ordinal(&self) -> u64;
    /// Tells this power-up from others.
    fn epoch(&self) -> u32;
}

/// A row that can be kept.
pub(super) trait Row: Record {
    /// Its kind.
    const KIND: Kind;

    /// Writes what follows the name in the record of the name.
    fn write_fixed(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()>;
    /// Writes the state.
    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()>;
    /// Reads the row; `None` when it is not as it was written.
    fn read(name: Name, fixed: Reader<'_>, state: Reader<'_>, refs: &mut impl References) -> Outcomes<Option<Self>>;
    /// The claim that an expiry belongs to.
    fn claim(&self) -> Option<(Token, Expiry)>;
    /// Sets the expiry of its claim.
    fn expire(&mut self, expiry: Expiry);
}

/// Takes a value out of an `Option`, or returns that the row cannot be read.
macro_rules! read {
    ($option:expr) => {
        match $option {
            Some(value) => value,
            None => return Ok(None),
        }
    };
}
use read;

/// A state's tag and process.
fn write_head(tag: u8, process: Option<ProcessId>, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
    out.byte(tag);
    let Some(process) = process else {
        out.byte(PROCESS_NONE);
        return Ok(());
    };
    match refs.process_number(process)? {
        Some(number) => out.byte(number),
        None => {
            out.byte(PROCESS_INLINE);
            out.bytes(process.as_bytes());
        }
    }
    Ok(())
}

/// The tag and, if it can be told, the process.
fn read_head(state: &mut Reader<'_>, refs: &mut impl References) -> Outcomes<Option<(u8, Option<ProcessId>)>> {
    let tag = state.byte();
    let process = match state.byte() {
        PROCESS_NONE => None,
        PROCESS_INLINE => Some(ProcessId::from_bytes(state.sixteen())),
        number => Some(read!(refs.process(number)?)),
    };
    Ok(Some((tag, process)))
}

fn write_reference(kind: Kind, name: &Name, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
    match refs.row_number(kind, name)? {
        Some(number) => out.byte(NAME_OF_ROW | number),
        None => out.name(name),
    }
    Ok(())
}

fn read_reference(kind: Kind, from: &mut Reader<'_>, refs: &mut impl References) -> Outcomes<Option<Name>> {
    let first = from.byte();
    if first & NAME_OF_ROW == 0 {
        return Ok(from.name_of(first));
    }
    refs.row_name(kind, first & !NAME_OF_ROW)
}
