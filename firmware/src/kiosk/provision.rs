//! How a kiosk is made: what an operator's computer writes into its flash, through a debug probe or into an emulator's file.

use core::fmt;

use embedded_storage::nor_flash::NorFlash;
use keyfence_core::store::Failure;
use keyfence_core::{LedgerId, TimeMs};
use zeroize::Zeroizing;

use super::Layout;
use crate::identity::{self, Identity, IdentityError};
use crate::journal::{Existing, Report};
use crate::store::{Error, Ledger};

/// Why a kiosk was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProvisionError {
    /// Who it is was not written. [`IdentityError::Taken`]: there is a kiosk, which was left as it is.
    Identity(IdentityError),
    /// Its ledger was not made.
    Ledger(Failure<Error>),
}

impl fmt::Display for ProvisionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity(error) => error.fmt(f),
            Self::Ledger(failure) => failure.fmt(f),
        }
    }
}

impl core::error::Error for ProvisionError {}

impl From<IdentityError> for ProvisionError {
    fn from(error: IdentityError) -> Self {
        Self::Identity(error)
    }
}

/// Makes a kiosk: first a new ledger, whose tokens begin above `floor`, then who the kiosk is. `existing` says whether a kiosk
/// or a ledger that is there may be given up.
///
/// When this returns, the kiosk is whole. Interrupted, or after an error other than those of a kiosk that is there, it says
/// `unprovisioned` or `closed`, and never that it is another one.
///
/// # Errors
///
/// [`ProvisionError::Identity`] with [`IdentityError::Taken`], [`IdentityError::NameTooLong`], [`IdentityError::Range`] or
/// [`IdentityError::Unsupported`], and nothing was written. [`ProvisionError::Ledger`] when the region is not blank and
/// not to be replaced, or the flash does not take it; [`IdentityError::Flash`].
pub fn provision<F: NorFlash, const PAGES: usize>(
    flash: &mut F,
    layout: &Layout,
    identity: &Identity,
    ledger: LedgerId,
    floor: u64,
    existing: Existing,
) -> Result<Report, ProvisionError> {
    drop(Zeroizing::new(identity.encode()?));
    match (identity::read(flash, &layout.identity), existing) {
        (Ok(_), Existing::Refuse) => return Err(IdentityError::Taken.into()),
        (Err(error @ (IdentityError::Range | IdentityError::Unsupported(_))), _) => return Err(error.into()),
        (Err(IdentityError::Missing), _) => {}
        (Ok(_) | Err(IdentityError::Damaged), _)
        | (Err(IdentityError::NameTooLong | IdentityError::Taken | IdentityError::Flash), _) => {
            identity::forget(flash, &layout.identity)?;
        }
    }
    let clock = || TimeMs::ZERO;
    // The instance tells this ledger from one that lay in the same region: it is part of every check sum.
    let instance = u32::from_le_bytes(ledger.as_bytes().first_chunk().copied().unwrap_or_default());
    let mut made: Ledger<&mut F, _, 8, 8, 16, 4, 8, 4, PAGES, 184, 416> =
        Ledger::new(&mut *flash, layout.journal.clone(), clock);
    let made = made.provision(ledger, instance, floor, existing);
    let report = made.map_err(ProvisionError::Ledger)?;
    identity::store(flash, &layout.identity, identity)?;
    Ok(report)
}
