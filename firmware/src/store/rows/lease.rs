//! Leases of actors and hosts.

use core::marker::PhantomData;

use keyfence_core::actor::ActorLease;
use keyfence_core::host::HostLease;
use keyfence_core::lease::{Held, Lease, LeaseState};
use keyfence_core::store::Record;
use keyfence_core::{Expiry, Name, Token};

use super::{Outcomes, References, Row, read, read_head, write_head};
use crate::store::codec::{Reader, Writer};
use crate::store::keys::Kind;

/// Leases of both kinds have one form.
#[inline(never)]
fn write_lease(state: &LeaseState, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
    match state {
        LeaseState::Free { released: None } => write_head(0, None, refs, out),
        LeaseState::Free {
            released: Some((process, token)),
        } => {
            write_head(1, Some(*process), refs, out)?;
            out.number(token.get());
            Ok(())
        }
        LeaseState::Held(held) => {
            write_head(2, Some(held.process), refs, out)?;
            out.number(held.token.get());
            out.number(held.since.as_ms());
            Ok(())
        }
    }
}

#[inline(never)]
fn read_lease(mut state: Reader<'_>, refs: &mut impl References) -> Outcomes<Option<LeaseState>> {
    let read = match read!(read_head(&mut state, refs)?) {
        (0, None) => LeaseState::Free { released: None },
        (1, Some(process)) => LeaseState::Free {
            released: Some((process, state.token())),
        },
        (2, Some(process)) => LeaseState::Held(Held {
            process,
            token: state.token(),
            since: state.time(),
            expiry: Expiry::EarlierBoot,
        }),
        _ => return Ok(None),
    };
    Ok(state.end(read))
}

impl<K> Row for Lease<K>
where
    Self: Record + LeaseKind,
{
    const KIND: Kind = <Self as LeaseKind>::KIND;

    fn write_fixed(&self, _: &mut impl References, _: &mut Writer) -> Outcomes<()> {
        Ok(())
    }

    fn write_state(&self, refs: &mut impl References, out: &mut Writer) -> Outcomes<()> {
        write_lease(&self.state, refs, out)
    }

    fn read(name: Name, fixed: Reader<'_>, state: Reader<'_>, refs: &mut impl References) -> Outcomes<Option<Self>> {
        let state = read!(read_lease(state, refs)?);
        Ok(fixed.end(Self {
            name,
            state,
            kind: PhantomData,
        }))
    }

    fn claim(&self) -> Option<(Token, Expiry)> {
        match &self.state {
            LeaseState::Held(held) => Some((held.token, held.expiry)),
            LeaseState::Free { .. } => None,
        }
    }

    fn expire(&mut self, expiry: Expiry) {
        if let LeaseState::Held(held) = &mut self.state {
            held.expiry = expiry;
        }
    }
}

/// Tells the two kinds of lease apart.
pub(super) trait LeaseKind {
    /// Which kind.
    const KIND: Kind;
}

impl LeaseKind for ActorLease {
    const KIND: Kind = Kind::Actor;
}

impl LeaseKind for HostLease {
    const KIND: Kind = Kind::Host;
}
