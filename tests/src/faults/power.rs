//! Real power cuts for a real file system: ext4 on a loop device, shut down without writing its journal back.
//!
//! Needs root, `mkfs.ext4`, `mount` and `umount`. What was not synced is lost in the way the kernel loses it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `EXT4_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)` in the kernel's `fs/ext4/ext4.h`: read by the kernel in spite of its name.
const SHUTDOWN: Opcode = opcode::read::<u32>(b'X', 125);
/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: neither data nor journal is flushed.
const NO_LOG_FLUSH: u32 = 2;

/// A mounted file system of its own.
#[derive(Debug)]
pub struct Ext4 {
    home: tempfile::TempDir,
    mounted: bool,
}

impl Ext4 {
    /// Makes and mounts one of 64 MiB.
    ///
    /// # Errors
    /// Why that is not possible here, as a text for a person: a test is skipped then.
    pub fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting a file system needs root".into());
        }
        let home = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = home.path().join("image");
        let made = File::create(&image).and_then(|file| file.set_len(64 << 20));
        made.and_then(|()| std::fs::create_dir(home.path().join("mounted")))
            .map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
        let mut made = Self { home, mounted: false };
        made.mount()?;
        Ok(made)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.home.path().join("mounted")
    }

    /// Cuts the power: from now on every call on it fails, and what was not synced is gone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cut(&self) -> std::io::Result<()> {
        let folder = File::open(self.path())?;
        // SAFETY: the kernel reads one `u32` for this number and writes nothing back.
        let shut_down = unsafe { ioctl(&folder, Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH)) };
        Ok(shut_down?)
    }

    /// Turns the power on again: unmounts, and mounts what is on the device. No process may have files open there.
    ///
    /// # Errors
    /// When that fails.
    pub fn restart(&mut self) -> Result<(), String> {
        self.unmount()?;
        self.mount()
    }

    fn mount(&mut self) -> Result<(), String> {
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(self.home.path().join("image"))
            .arg(self.path()))?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), String> {
        run(Command::new("umount").arg(self.path()))?;
        self.mounted = false;
        Ok(())
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        if self.mounted {
            // Nothing is left to do about one that stays mounted.
            let _ = self.unmount();
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command
        .output()
        .map_err(|error| format!("`{name}` cannot be run: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("`{name}`: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
