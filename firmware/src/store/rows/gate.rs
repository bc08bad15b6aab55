//! Gates, of which only the mark moves.

use keyfence_core::gate::{Binding, ClaimKind, Gate};
use keyfence_core::{Expiry, Name, Token};

use super::{Outcomes, References, Row, read, read_head, write_head};
use crate::store::codec::{Reader, Writer};
use crate::store::keys::Kind;

impl Row for Gate {
    const KIND: Kind = Kind::Gate;

    fn write_fixed(&self, _: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        out.bytes(self.binding.ledger.as_bytes());
        out.byte(match self.binding.kind {
            ClaimKind::Actor => 0,
            ClaimKind::Attempt => 1,
            ClaimKind::Message => 2,
            ClaimKind::Host => 3,
            ClaimKind::Session => 4,
        });
        out.name(&self.binding.name);
        Ok(())
    }

    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        write_head(0, None, refs, out)?;
        out.token_or_none(self.high_water);
        Ok(())
    }

    fn read(
        name: Name,
        mut fixed: Reader<'_>,
        mut state: Reader<'_>,
        refs: &mut impl References,
    ) -> Outcomes<Option<Self>> {
        let ledger = fixed.ledger();
        let kind = match fixed.byte() {
            0 => ClaimKind::Actor,
            1 => ClaimKind::Attempt,
            2 => ClaimKind::Message,
            3 => ClaimKind::Host,
            4 => ClaimKind::Session,
            _ => return Ok(None),
        };
        let binding = Binding {
            ledger,
            kind,
            name: read!(fixed.name()),
        };
        let (0, None) = read!(read_head(&mut state, refs)?) else {
            return Ok(None);
        };
        let high_water = state.token_or_none();
        Ok(fixed.end(()).and(state.end(Self {
            name,
            binding,
            high_water,
        })))
    }

    fn claim(&self) -> Option<(Token, Expiry)> {
        None
    }

    fn expire(&mut self, _: Expiry) {}
}
