//! Who a kiosk is: one page of flash, written when it is provisioned, through a debug probe or into an emulator's file.
//! The program never writes it, and no answer, log line or dump of the journal has the key in it.
//!
//! | at | bytes | what |
//! | --- | --- | --- |
//! | 0 | 4 | `KFID` |
//! | 4 | 1 | version: 1 |
//! | 5 | 1 | bytes of the name |
//! | 6 | 2 | zeros |
//! | 8 | 32 | the name, then zeros |
//! | 40 | 16 | the device's number |
//! | 56 | 32 | the key |
//! | 88 | 88 | all of this once more, every bit inverted |
//!
//! A write of it that was cut off never reads as whole: a bit that is missing in one copy disagrees with the other.

use embedded_storage::nor_flash::ReadNorFlash;
use keyfence_core::Name;

use crate::link::{DeviceId, Identity, LinkKey};
use crate::store::NAME_BYTES_MAX;

const MAGIC: [u8; 4] = *b"KFID";
const VERSION: u8 = 1;
const COPY_BYTES: usize = 88;
/// Bytes of the page that are used.
pub const NAMEPLATE_BYTES: usize = 2 * COPY_BYTES;

/// Who a kiosk is.
#[derive(Clone, PartialEq, Eq)]
pub struct Nameplate {
    /// The name that it goes by as a host, at most [`NAME_BYTES_MAX`] bytes.
    pub name: Name,
    /// The device's number: fresh when it is provisioned, so that it names this key too.
    pub device: [u8; 16],
    /// The key that it shares with its operator.
    pub key: [u8; 32],
}

/// Never shows the key.
impl core::fmt::Debug for Nameplate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { name, device, key: _ } = self;
        f.debug_struct("Nameplate")
            .field("name", name)
            .field("device", device)
            .finish_non_exhaustive()
    }
}

/// Why there is no nameplate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNameplate {
    /// Nothing was ever written.
    Blank,
    /// What is there is not what was written, or of another version.
    Malformed,
}

impl Nameplate {
    /// As the page has it.
    ///
    /// # Errors
    ///
    /// [`NoNameplate::Malformed`] when the name is longer than a kiosk keeps.
    pub fn encode(&self) -> Result<[u8; NAMEPLATE_BYTES], NoNameplate> {
        let name = self.name.as_str().as_bytes();
        if name.len() > NAME_BYTES_MAX {
            return Err(NoNameplate::Malformed);
        }
        let mut page = [0; NAMEPLATE_BYTES];
        let head = [VERSION, name.len() as u8, 0, 0];
        let padding = core::iter::repeat_n(&0, NAME_BYTES_MAX - name.len());
        let written = MAGIC.iter().chain(&head).chain(name).chain(padding);
        let written = written.chain(&self.device).chain(&self.key);
        let (first, second) = page.split_at_mut(COPY_BYTES);
        for ((first, second), byte) in first.iter_mut().zip(second).zip(written) {
            (*first, *second) = (*byte, !byte);
        }
        Ok(page)
    }

    /// Reads the nameplate at `at`. One that cannot be read is malformed.
    ///
    /// # Errors
    ///
    /// [`NoNameplate`].
    pub fn load<F: ReadNorFlash>(flash: &mut F, at: u32) -> Result<Self, NoNameplate> {
        let mut page = [0xff; NAMEPLATE_BYTES];
        flash.read(at, &mut page).map_err(|_| NoNameplate::Malformed)?;
        Self::decode(&page)
    }

    /// Who the kiosk is on the link.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        Identity {
            device: DeviceId::from_bytes(self.device),
            key: LinkKey::from_bytes(self.key),
        }
    }

    /// Reads a page.
    ///
    /// # Errors
    ///
    /// [`NoNameplate`].
    pub fn decode(page: &[u8; NAMEPLATE_BYTES]) -> Result<Self, NoNameplate> {
        if page.iter().all(|byte| *byte == 0xff) {
            return Err(NoNameplate::Blank);
        }
        let (first, second) = page.split_at(COPY_BYTES);
        let is_whole = first.iter().zip(second).all(|(first, second)| *first == !second);
        if !is_whole {
            return Err(NoNameplate::Malformed);
        }
        Self::read(first).ok_or(NoNameplate::Malformed)
    }

    fn read(copy: &[u8]) -> Option<Self> {
        let (head, rest) = copy.split_first_chunk::<8>()?;
        let (name, rest) = rest.split_at_checked(NAME_BYTES_MAX)?;
        let (device, rest) = rest.split_first_chunk::<16>()?;
        let (key, _) = rest.split_first_chunk::<32>()?;
        let (magic, head) = head.split_first_chunk::<4>()?;
        let [VERSION, len, 0, 0] = *head else {
            return None;
        };
        let (name, padding) = name.split_at_checked(len.into())?;
        if *magic != MAGIC || padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        Some(Self {
            name: Name::new(core::str::from_utf8(name).ok()?).ok()?,
            device: *device,
            key: *key,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    fn nameplate() -> Nameplate {
        Nameplate {
            name: Name::new("kiosk-a").unwrap(),
            device: [0x0f; 16],
            key: [0xa5; 32],
        }
    }

    #[test]
    fn a_nameplate_is_read_as_it_was_written() {
        let page = nameplate().encode().unwrap();
        assert_eq!(Nameplate::decode(&page), Ok(nameplate()));
        assert_eq!(Nameplate::decode(&[0xff; NAMEPLATE_BYTES]), Err(NoNameplate::Blank));
    }

    #[test]
    fn one_that_was_cut_off_or_has_a_flipped_bit_is_never_read() {
        let page = nameplate().encode().unwrap();
        for written in 1..NAMEPLATE_BYTES {
            let mut cut = [0xff; NAMEPLATE_BYTES];
            cut[..written].copy_from_slice(&page[..written]);
            assert_eq!(
                Nameplate::decode(&cut),
                Err(NoNameplate::Malformed),
                "after {written} bytes"
            );
        }
        for bit in 0..8 * NAMEPLATE_BYTES {
            let mut flipped = page;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Nameplate::decode(&flipped), Err(NoNameplate::Malformed), "bit {bit}");
        }
    }

    #[test]
    fn a_name_that_the_ledger_does_not_keep_is_refused() {
        let long = Nameplate {
            name: Name::new(&"x".repeat(NAME_BYTES_MAX + 1)).unwrap(),
            ..nameplate()
        };
        assert_eq!(long.encode(), Err(NoNameplate::Malformed));
    }

    #[test]
    fn the_key_is_not_shown() {
        let shown = format!("{:?}", nameplate());
        assert!(shown.contains("kiosk-a"));
        assert!(!shown.contains("165") && !shown.contains("key"), "{shown}");
    }
}
