//! What a host knows of a kiosk: its name, its device id, and the key that they share, in a file for its owner only.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use keyfence_core::Name;
use keyfence_firmware::identity::Identity;
use keyfence_firmware::link::{self, DeviceId, KEY_BYTES, LinkKey};
use serde_json::{Value, json};

/// Why a key file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read or written.
    #[error("the key file {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not one.
    #[error("{} is no key file of a kiosk: {why}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Others may read it.
    #[error("others may read the key file {}", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
}

impl KeyFileError {
    /// The stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::File { .. } => "key_file",
            Self::Malformed { .. } => "not_a_key_file",
            Self::Exposed { .. } => "key_exposed",
        }
    }

    /// What to do now.
    #[must_use]
    pub const fn next(&self) -> &'static str {
        match self {
            Self::File { .. } => "name the key file that provisioning the kiosk has written",
            Self::Malformed { .. } => "name the key file that provisioning the kiosk has written, as it was written",
            Self::Exposed { .. } => "chmod 600 it; if somebody may have read it, provision the kiosk anew",
        }
    }
}

/// A fresh kiosk: a device id and a 256-bit key from the system's generator.
///
/// # Errors
/// When the system gives no random bytes.
pub fn fresh(name: Name) -> std::io::Result<Identity> {
    let mut random = std::fs::File::open("/dev/urandom")?;
    let (mut device, mut key) = ([0; 16], [0; KEY_BYTES]);
    random.read_exact(&mut device)?;
    random.read_exact(&mut key)?;
    Ok(Identity {
        host: name,
        device: DeviceId::from_bytes(device),
        key: LinkKey::from_bytes(key),
    })
}

/// Writes the key file of a kiosk; never over another one.
///
/// # Errors
/// [`KeyFileError::File`], also when there is a file.
pub fn write(path: &Path, identity: &Identity) -> Result<(), KeyFileError> {
    let digits: String = identity.key.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let content = json!({
        "device": identity.device.to_string(),
        "name": identity.host.as_str(),
        "key": digits,
    });
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        writeln!(file, "{content}")?;
        file.sync_all()
    });
    written.map_err(|source| KeyFileError::File {
        path: path.to_owned(),
        source,
    })
}

/// Reads a key file: the kiosk's name, and who it is on the link.
///
/// # Errors
/// [`KeyFileError`].
pub fn read(path: &Path) -> Result<(Name, link::Identity), KeyFileError> {
    let failed = |source| KeyFileError::File {
        path: path.to_owned(),
        source,
    };
    let text = std::fs::read(path).map_err(failed)?;
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Exposed { path: path.to_owned() });
    }
    parse(&text).map_err(|why| KeyFileError::Malformed {
        path: path.to_owned(),
        why,
    })
}

fn parse(text: &[u8]) -> Result<(Name, link::Identity), &'static str> {
    let content: Value = serde_json::from_slice(text).map_err(|_| "it is not JSON")?;
    let field = |name: &str| content.get(name).and_then(Value::as_str);
    let name = field("name")
        .and_then(|name| Name::new(name).ok())
        .ok_or("its name is none")?;
    let device: DeviceId = field("device")
        .and_then(|device| device.parse().ok())
        .ok_or("its device id is none")?;
    let digits = field("key").ok_or("it has no key")?;
    let bytes: Option<Vec<u8>> = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    let key = bytes.and_then(|bytes| bytes.try_into().ok()).ok_or("its key is none")?;
    let key = LinkKey::from_bytes(key);
    Ok((name, link::Identity { device, key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_its_owners_only_and_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kiosk.key");
        let fresh = fresh(Name::new("kiosk-a").unwrap()).unwrap();
        write(&path, &fresh).unwrap();
        let (name, identity) = read(&path).unwrap();
        assert_eq!(name.as_str(), "kiosk-a");
        assert_eq!(identity.device, fresh.device);
        assert_eq!(identity.key.bytes(), fresh.key.bytes());
        assert!(matches!(write(&path, &fresh), Err(KeyFileError::File { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read(&path), Err(KeyFileError::Exposed { .. })));
    }

    #[test]
    fn two_kiosks_never_share_a_key() {
        let fresh = || fresh(Name::new("kiosk-a").unwrap()).unwrap();
        let (one, other) = (fresh(), fresh());
        assert_ne!(one.device, other.device);
        assert_ne!(one.key.bytes(), other.key.bytes());
    }

    #[test]
    fn what_is_no_key_file_is_told_so() {
        let key = "a5".repeat(32);
        let device = format!("dev_{}", "0f".repeat(16));
        let good = json!({ "device": device, "name": "kiosk-a", "key": key });
        assert!(parse(good.to_string().as_bytes()).is_ok());
        for (field, value) in [
            ("device", "dev_1"),
            ("name", ""),
            ("key", "a5"),
            ("key", "é5é5"),
            ("key", ""),
        ] {
            let mut bad = good.clone();
            bad[field] = value.into();
            assert!(parse(bad.to_string().as_bytes()).is_err(), "{field}: {value}");
        }
        assert!(parse(b"").is_err());
    }
}
