//! A file system that fails: SQLite's own one, with faults at chosen calls on the log of a ledger.
//!
//! It becomes the default of the process that registers it, so that a ledger is opened on it as on any other.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::ffi;

/// Counts down calls until one fails; negative: none does.
pub(crate) struct Fault {
    left: AtomicI64,
    code: c_int,
}

impl Fault {
    const fn new(code: c_int) -> Self {
        Self {
            left: AtomicI64::new(-1),
            code,
        }
    }

    /// Lets `calls` calls pass and fails the next one.
    pub(crate) fn after(&self, calls: i64) {
        self.left.store(calls, Ordering::SeqCst);
    }

    /// Whether the fault has happened since it was set.
    pub(crate) fn has_happened(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    pub(crate) fn never(&self) {
        self.left.store(-1, Ordering::SeqCst);
    }

    fn strikes(&self) -> bool {
        let count = |left: i64| (left >= 0).then(|| left - 1);
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) == Ok(0)
    }
}

/// The log's `fsync` fails.
pub(crate) static SYNC: Fault = Fault::new(ffi::SQLITE_IOERR_FSYNC);
/// A write to the log finds the disk full.
pub(crate) static FULL: Fault = Fault::new(ffi::SQLITE_FULL);
/// A write to the log fails.
pub(crate) static WRITE: Fault = Fault::new(ffi::SQLITE_IOERR_WRITE);

/// A file of ours, with the real one behind it in the same allocation.
#[repr(C)]
struct FaultyFile {
    base: ffi::sqlite3_file,
    is_log: bool,
}

const OWN_BYTES: usize = size_of::<FaultyFile>().next_multiple_of(16);

unsafe fn real(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: SQLite allocates `szOsFile` bytes, which is ours and then the real one's.
    unsafe { file.byte_add(OWN_BYTES) }
}

fn real_vfs() -> *mut ffi::sqlite3_vfs {
    // SAFETY: the name is a C string; "unix" is always registered.
    unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) }
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: the arguments are SQLite's own, handed on to the file system it would have called itself.
    unsafe {
        let vfs = real_vfs();
        let code = (*vfs).xOpen.unwrap()(vfs, name, real(file), flags, out_flags);
        let ours = file.cast::<FaultyFile>();
        (*ours).is_log = !name.is_null() && CStr::from_ptr(name).to_bytes().ends_with(b"-wal");
        // SQLite closes a file if and only if it has methods.
        (*ours).base.pMethods = if (*real(file)).pMethods.is_null() {
            std::ptr::null()
        } else {
            &raw const METHODS
        };
        code
    }
}

macro_rules! forward {
    ($($name:ident => $method:ident ($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {$(
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $arg: $type)*) -> $ret {
            // SAFETY: the real file was opened by `open` and has its methods.
            unsafe { (*(*real(file)).pMethods).$method.unwrap()(real(file) $(, $arg)*) }
        }
    )*};
}

forward! {
    close => xClose() -> c_int;
    read => xRead(to: *mut c_void, amount: c_int, offset: i64) -> c_int;
    truncate => xTruncate(size: i64) -> c_int;
    file_size => xFileSize(size: *mut i64) -> c_int;
    lock => xLock(level: c_int) -> c_int;
    unlock => xUnlock(level: c_int) -> c_int;
    check_reserved => xCheckReservedLock(held: *mut c_int) -> c_int;
    file_control => xFileControl(op: c_int, arg: *mut c_void) -> c_int;
    sector_size => xSectorSize() -> c_int;
    characteristics => xDeviceCharacteristics() -> c_int;
    shm_map => xShmMap(page: c_int, size: c_int, extend: c_int, at: *mut *mut c_void) -> c_int;
    shm_lock => xShmLock(offset: c_int, count: c_int, flags: c_int) -> c_int;
    shm_unmap => xShmUnmap(delete: c_int) -> c_int;
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: as in `forward`.
    unsafe { (*(*real(file)).pMethods).xShmBarrier.unwrap()(real(file)) }
}

unsafe fn is_log(file: *mut ffi::sqlite3_file) -> bool {
    // SAFETY: every file with our methods was opened by `open`.
    unsafe { (*file.cast::<FaultyFile>()).is_log }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, amount: c_int, offset: i64) -> c_int {
    // SAFETY: as in `forward`.
    unsafe {
        if is_log(file) {
            for fault in [&FULL, &WRITE] {
                if fault.strikes() {
                    return fault.code;
                }
            }
        }
        (*(*real(file)).pMethods).xWrite.unwrap()(real(file), from, amount, offset)
    }
}

/// What was written is on the disk all the same: the case that makes an outcome unknown.
unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: as in `forward`.
    unsafe {
        let code = (*(*real(file)).pMethods).xSync.unwrap()(real(file), flags);
        if is_log(file) && SYNC.strikes() {
            SYNC.code
        } else {
            code
        }
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Makes the failing file system the default of this process.
pub(crate) fn register() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: a copy of the real file system, with its own `xOpen` and room for our part of a file; it is never
        // dropped, as SQLite demands. All its other functions take no file.
        let code = unsafe {
            let mut vfs = *real_vfs();
            vfs.szOsFile += c_int::try_from(OWN_BYTES).unwrap();
            vfs.zName = c"faulty".as_ptr();
            vfs.pNext = std::ptr::null_mut();
            vfs.xOpen = Some(open);
            ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1)
        };
        assert_eq!(code, ffi::SQLITE_OK);
    });
}
