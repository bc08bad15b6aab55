//! Sessions and their generations.

use keyfence_core::session::{Claim, Generation, Session, SessionState};
use keyfence_core::{Expiry, Name, Token};

use super::{Outcomes, References, Row, read, read_head, read_reference, write_head, write_reference};
use crate::store::codec::{Reader, Writer};
use crate::store::keys::Kind;

fn write_generation(generation: &Generation, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
    write_reference(Kind::Host, &generation.host, refs, out)?;
    out.number(generation.incarnation.get());
    out.number(generation.token.get());
    out.number(generation.host_token.get());
    Ok(())
}

fn read_generation(from: &mut Reader<'_>, refs: &mut impl References) -> Outcomes<Option<Generation>> {
    let host = read!(read_reference(Kind::Host, from, refs)?);
    Ok(Some(Generation {
        host,
        incarnation: from.incarnation(),
        token: from.token(),
        host_token: from.token(),
    }))
}

impl Row for Session {
    const KIND: Kind = Kind::Session;

    fn write_fixed(&self, _: &mut impl References, _: &mut Writer) -> Outcomes<()> {
        Ok(())
    }

    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        match &self.state {
            SessionState::Free {
                incarnation,
                released: None,
            } => {
                write_head(0, None, refs, out)?;
                out.number(incarnation.get());
                Ok(())
            }
            SessionState::Free {
                incarnation,
                released: Some(generation),
            } => {
                write_head(1, None, refs, out)?;
                out.number(incarnation.get());
                write_generation(generation, refs, out)
            }
            SessionState::Claimed(claim) => {
                write_head(2, Some(claim.process), refs, out)?;
                write_generation(&claim.generation, refs, out)?;
                out.number(claim.since.as_ms());
                Ok(())
            }
            SessionState::Finished(generation, digest) => {
                write_head(3, None, refs, out)?;
                write_generation(generation, refs, out)?;
                out.bytes(digest.as_bytes());
                Ok(())
            }
            SessionState::Pruned => write_head(4, None, refs, out),
        }
    }

    fn read(
        name: Name,
        fixed: Reader<'_>,
        mut state: Reader<'_>,
        refs: &mut impl References,
    ) -> Outcomes<Option<Self>> {
        let read = match read!(read_head(&mut state, refs)?) {
            (0, None) => SessionState::Free {
                incarnation: state.incarnation(),
                released: None,
            },
            (1, None) => SessionState::Free {
                incarnation: state.incarnation(),
                released: Some(read!(read_generation(&mut state, refs)?)),
            },
            (2, Some(process)) => SessionState::Claimed(Claim {
                generation: read!(read_generation(&mut state, refs)?),
                process,
                since: state.time(),
                expiry: Expiry::EarlierBoot,
            }),
            (3, None) => {
                let generation = read!(read_generation(&mut state, refs)?);
                SessionState::Finished(generation, state.digest())
            }
            (4, None) => SessionState::Pruned,
            _ => return Ok(None),
        };
        let session = Self { name, state: read };
        Ok(fixed.end(()).and(state.end(session)))
    }

    fn claim(&self) -> Option<(Token, Expiry)> {
        match &self.state {
            SessionState::Claimed(claim) => Some((claim.generation.token, claim.expiry)),
            SessionState::Free { .. } | SessionState::Finished(..) | SessionState::Pruned => None,
        }
    }

    fn expire(&mut self, expiry: Expiry) {
        if let SessionState::Claimed(claim) = &mut self.state {
            claim.expiry = expiry;
        }
    }
}
