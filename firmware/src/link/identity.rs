//! Who a kiosk is on the link: its id, and the key that it shares with its hosts.

use core::fmt;

use zeroize::Zeroize as _;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// One kiosk's hardware: `dev_` and 32 hexadecimal digits, drawn when it is provisioned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId([u8; 16]);

impl DeviceId {
    /// What a kiosk that was not provisioned says.
    pub const NONE: Self = Self([0; 16]);

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

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dev_")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not `dev_` and 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIdError;

impl fmt::Display for DeviceIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected `dev_` and 32 lower-case hexadecimal digits")
    }
}

impl core::error::Error for DeviceIdError {}

impl core::str::FromStr for DeviceId {
    type Err = DeviceIdError;

    fn from_str(text: &str) -> Result<Self, DeviceIdError> {
        let digits = text.strip_prefix("dev_").ok_or(DeviceIdError)?;
        let is_lower_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 32 || !digits.bytes().all(is_lower_hex) {
            return Err(DeviceIdError);
        }
        let number = u128::from_str_radix(digits, 16).map_err(|_| DeviceIdError)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// The 256-bit key of one kiosk. It gets in when the kiosk is provisioned and never passes the link, a log or a dump: it
/// cannot be printed, and it is wiped from memory when it is dropped.
///
/// ```compile_fail
/// let key = keyfence_firmware::link::LinkKey::from_bytes([7; 32]);
/// println!("{key}");
/// ```
#[derive(Clone)]
pub struct LinkKey([u8; KEY_BYTES]);

impl LinkKey {
    /// Takes the key. The caller wipes its own copy.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The key as it is written down when a kiosk is provisioned, on its identity's pages and in its hosts' key file. Nobody
    /// else needs it.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl Drop for LinkKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKey(hidden)")
    }
}

/// What provisioning gives a kiosk, and what a host has to know of it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its id.
    pub device: DeviceId,
    /// Its key.
    pub key: LinkKey,
}

/// Where unpredictable bytes come from.
pub trait Random {
    /// Fills `bytes`. Two fills never give the same 16 bytes: a hardware generator, or a generator that was seeded from
    /// one at this boot.
    fn fill(&mut self, bytes: &mut [u8]);
}

impl<T: FnMut(&mut [u8])> Random for T {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}
