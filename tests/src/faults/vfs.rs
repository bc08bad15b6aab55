//! A SQLite VFS that asks the [`Disk`] of a watched folder before each call and tells it afterwards.
//!
//! It lies over the VFS of the operating system and becomes the default of the process, so that a ledger opened in a
//! watched folder goes through it without knowing. Files elsewhere are opened by the VFS below and never seen again.
//!
//! * **V1.** A file of ours is a [`Shim`] followed by the file of the VFS below, in one allocation of `szOsFile` bytes.
//! * **V2.** SQLite calls the methods of a file only between a successful `xOpen` and `xClose`; the shim is initialised
//!   exactly then.
//! * **V3.** The VFS below is never unregistered, so the pointer to it stays valid.
//!
//! It offers version 2 of the file methods: no memory-mapped reads, which would bypass it.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

use super::disk::{Disk, Entry, Kind, Verdict};

static WATCHED: Mutex<Vec<(PathBuf, Arc<Disk>)>> = Mutex::new(Vec::new());
static BELOW: OnceLock<Below> = OnceLock::new();

/// The VFS of the operating system.
struct Below(*mut sqlite3_vfs);
// SAFETY: SQLite's own VFS is shared by all threads of a process by design; it is only read here (V3).
unsafe impl Send for Below {}
// SAFETY: as for `Send`.
unsafe impl Sync for Below {}

/// A folder whose files go through its disk until this is dropped. Files opened before that keep their disk.
#[derive(Debug)]
pub struct Watch {
    folder: PathBuf,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|(folder, _)| *folder != self.folder);
    }
}

/// Puts `disk` under the files that SQLite opens directly in `folder` from now on.
///
/// # Errors
/// When the folder's path cannot be resolved, or SQLite refuses the VFS.
pub fn watch(folder: &Path, disk: Arc<Disk>) -> anyhow::Result<Watch> {
    register()?;
    let folder = folder.canonicalize()?;
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    watched.retain(|(known, _)| *known != folder);
    watched.push((folder.clone(), disk));
    Ok(Watch { folder })
}

fn register() -> anyhow::Result<()> {
    static RESULT: OnceLock<c_int> = OnceLock::new();
    let result = *RESULT.get_or_init(|| {
        // SAFETY: finds the default VFS (initialising SQLite), a static structure that is copied; the copy is leaked, so
        // that SQLite may keep a pointer to it for ever. `pAppData` stays that of the VFS below, whose other methods
        // are inherited and look at nothing else of the structure.
        unsafe {
            let below = ffi::sqlite3_vfs_find(ptr::null());
            if below.is_null() {
                return ffi::SQLITE_NOTFOUND;
            }
            let ours = Box::leak(Box::new(*below));
            ours.zName = c"keyfence-faults".as_ptr();
            ours.pNext = ptr::null_mut();
            ours.szOsFile = (*below).szOsFile + c_int::try_from(size_of::<Shim>()).unwrap_or(c_int::MAX / 2);
            ours.xOpen = Some(open);
            ours.xDelete = Some(delete);
            BELOW.get_or_init(|| Below(below));
            ffi::sqlite3_vfs_register(ours, 1)
        }
    });
    anyhow::ensure!(result == ffi::SQLITE_OK, "SQLite refused the fault VFS: code {result}");
    Ok(())
}

/// What lies before the file of the VFS below. Its alignment is that of a pointer, as is that of every `sqlite3_file`.
#[repr(C)]
struct Shim {
    base: sqlite3_file,
    /// Leaked from an `Arc` at `xOpen`, given back at `xClose`.
    disk: *const Disk,
    /// Leaked from a `Box` at `xOpen`, given back at `xClose`.
    name: *mut String,
    /// Whether the first sync makes the folder durable too, as SQLite does for a journal it created.
    syncs_folder: bool,
}

impl Shim {
    /// # Safety
    /// `file` was opened by [`open`] in a watched folder and is not closed (V2).
    unsafe fn of<'f>(file: *mut sqlite3_file) -> (&'f mut Self, &'f Disk, &'f String) {
        // SAFETY: by V1 and V2 it is an initialised shim; SQLite serialises the calls on one file.
        unsafe {
            let shim = &mut *file.cast::<Self>();
            let (disk, name) = (&*shim.disk, &*shim.name);
            (shim, disk, name)
        }
    }

    /// # Safety
    /// As for [`Self::of`], or during [`open`].
    unsafe fn below(file: *mut sqlite3_file) -> *mut sqlite3_file {
        // SAFETY: `szOsFile` left room for both (V1).
        unsafe { file.cast::<Self>().add(1).cast() }
    }
}

/// The folder's disk and the file's name within it, where the path lies directly in a watched folder.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn watched(path: *const c_char) -> Option<(Arc<Disk>, String)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    let (folder, name) = (path.parent()?, path.file_name()?.to_str()?);
    let watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, disk) = watched.iter().find(|(known, _)| known == folder)?;
    Some((Arc::clone(disk), name.to_owned()))
}

fn vfs_below() -> *mut sqlite3_vfs {
    BELOW.get().map_or(ptr::null_mut(), |below| below.0)
}

unsafe extern "C" fn open(
    _vfs: *mut sqlite3_vfs,
    path: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes a C string or null, and `szOsFile` bytes at `file`. `pMethods` is cleared first: SQLite calls
    // `xClose` after a failed open only when it is set.
    unsafe {
        (*file).pMethods = ptr::null();
        let below = vfs_below();
        let Some(open_below) = (*below).xOpen else {
            return ffi::SQLITE_ERROR;
        };
        let Some((disk, name)) = watched(path) else {
            return open_below(below, path, file, flags, flags_out);
        };
        if let Verdict::Fail(code) = disk.verdict(Kind::Open) {
            return code;
        }
        let result = open_below(below, path, Shim::below(file), flags, flags_out);
        if result != ffi::SQLITE_OK {
            return result;
        }
        disk.opened(&name);
        let journal = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;
        file.cast::<Shim>().write(Shim {
            base: sqlite3_file { pMethods: &METHODS },
            disk: Arc::into_raw(disk),
            name: Box::into_raw(Box::new(name)),
            syncs_folder: flags & journal != 0 && flags & ffi::SQLITE_OPEN_CREATE != 0,
        });
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn delete(_vfs: *mut sqlite3_vfs, path: *const c_char, sync_folder: c_int) -> c_int {
    // SAFETY: SQLite passes a C string; the VFS below is a valid one (V3).
    unsafe {
        let below = vfs_below();
        let Some(delete_below) = (*below).xDelete else {
            return ffi::SQLITE_ERROR;
        };
        let Some((disk, name)) = watched(path) else {
            return delete_below(below, path, sync_folder);
        };
        if let Verdict::Fail(code) = disk.verdict(Kind::Delete) {
            return code;
        }
        let result = delete_below(below, path, sync_folder);
        if result == ffi::SQLITE_OK {
            disk.deleted(name);
            if sync_folder != 0 {
                disk.folder_synced();
            }
        }
        result
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: V2; what `open` leaked is taken back exactly once, because SQLite closes a file once.
    unsafe {
        let (shim, ..) = Shim::of(file);
        drop(Arc::from_raw(shim.disk));
        drop(Box::from_raw(shim.name));
        let below = Shim::below(file);
        (*(*below).pMethods).xClose.map_or(ffi::SQLITE_OK, |close| close(below))
    }
}

unsafe extern "C" fn read(file: *mut sqlite3_file, into: *mut c_void, amount: c_int, offset: sqlite3_int64) -> c_int {
    // SAFETY: V2; the arguments are passed on.
    unsafe {
        let (_, disk, _) = Shim::of(file);
        if let Verdict::Fail(code) = disk.verdict(Kind::Read) {
            return code;
        }
        let below = Shim::below(file);
        (*(*below).pMethods)
            .xRead
            .map_or(ffi::SQLITE_IOERR, |read| read(below, into, amount, offset))
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    amount: c_int,
    offset: sqlite3_int64,
) -> c_int {
    // SAFETY: V2; `from` has `amount` readable bytes.
    unsafe {
        let (_, disk, name) = Shim::of(file);
        let (amount, code) = match disk.verdict(Kind::Write) {
            Verdict::Go => (amount, ffi::SQLITE_OK),
            Verdict::Fail(code) => return code,
            Verdict::Half(code) => (amount / 2, code),
            Verdict::DoAndFail(code) => (amount, code),
        };
        let below = Shim::below(file);
        let result = (*(*below).pMethods)
            .xWrite
            .map_or(ffi::SQLITE_IOERR, |write| write(below, from, amount, offset));
        if result != ffi::SQLITE_OK {
            return result;
        }
        let (Ok(length), Ok(offset)) = (usize::try_from(amount), u64::try_from(offset)) else {
            return ffi::SQLITE_IOERR_WRITE;
        };
        let bytes = std::slice::from_raw_parts(from.cast::<u8>(), length);
        disk.record(|| Entry::Write(name.clone(), offset, bytes.to_vec()));
        code
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    // SAFETY: V2; the arguments are passed on.
    unsafe {
        let (_, disk, name) = Shim::of(file);
        if let Verdict::Fail(code) = disk.verdict(Kind::Truncate) {
            return code;
        }
        let below = Shim::below(file);
        let result = (*(*below).pMethods)
            .xTruncate
            .map_or(ffi::SQLITE_IOERR, |truncate| truncate(below, size));
        if result == ffi::SQLITE_OK {
            disk.record(|| Entry::Truncate(name.clone(), u64::try_from(size).unwrap_or_default()));
        }
        result
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: V2; the arguments are passed on.
    unsafe {
        let (shim, disk, name) = Shim::of(file);
        let code = match disk.verdict(Kind::Sync) {
            Verdict::Go => ffi::SQLITE_OK,
            Verdict::Fail(code) => return code,
            Verdict::Half(code) | Verdict::DoAndFail(code) => code,
        };
        let below = Shim::below(file);
        let result = (*(*below).pMethods)
            .xSync
            .map_or(ffi::SQLITE_IOERR, |sync| sync(below, flags));
        if result != ffi::SQLITE_OK {
            return result;
        }
        disk.record(|| Entry::Sync(name.clone()));
        if std::mem::take(&mut shim.syncs_folder) {
            disk.folder_synced();
        }
        code
    }
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    into: *mut *mut c_void,
) -> c_int {
    // SAFETY: V2; the arguments are passed on; SQLite expects a null pointer beside an error.
    unsafe {
        let (_, disk, _) = Shim::of(file);
        if let Verdict::Fail(code) = disk.verdict(Kind::Map) {
            *into = ptr::null_mut();
            return code;
        }
        let below = Shim::below(file);
        (*(*below).pMethods)
            .xShmMap
            .map_or(ffi::SQLITE_IOERR, |map| map(below, region, size, extend, into))
    }
}

/// Methods that only pass their arguments on.
macro_rules! pass_on {
    ($($name:ident => $method:ident($($argument:ident: $kind:ty),*) -> $result:ty, $missing:expr;)*) => {$(
        unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $argument: $kind)*) -> $result {
            // SAFETY: V2; the arguments are passed on.
            unsafe {
                let below = Shim::below(file);
                match (*(*below).pMethods).$method {
                    Some(method) => method(below $(, $argument)*),
                    None => $missing,
                }
            }
        }
    )*};
}

pass_on! {
    file_size => xFileSize(size: *mut sqlite3_int64) -> c_int, ffi::SQLITE_IOERR;
    lock => xLock(level: c_int) -> c_int, ffi::SQLITE_IOERR;
    unlock => xUnlock(level: c_int) -> c_int, ffi::SQLITE_IOERR;
    check_reserved_lock => xCheckReservedLock(out: *mut c_int) -> c_int, ffi::SQLITE_IOERR;
    file_control => xFileControl(op: c_int, argument: *mut c_void) -> c_int, ffi::SQLITE_NOTFOUND;
    sector_size => xSectorSize() -> c_int, 4096;
    device_characteristics => xDeviceCharacteristics() -> c_int, 0;
    shm_lock => xShmLock(offset: c_int, n: c_int, flags: c_int) -> c_int, ffi::SQLITE_IOERR;
    shm_barrier => xShmBarrier() -> (), ();
    shm_unmap => xShmUnmap(delete: c_int) -> c_int, ffi::SQLITE_IOERR;
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
