//! Counts what SQLite syncs and writes: exact, and free of noise.
//!
//! A virtual file system that is the platform's own in everything but two methods of the files it opens: `xSync` and
//! `xWrite` count before they hand on. No safe crate offers that, hence the unsafe code.
//!
//! * **C1.** While [`Counting`] lives, connections opened by name of no file system go through it; it must outlive them.
//! * **C2.** A file opened through it is the platform's own file structure; only its first field, the pointer to its
//!   methods, is replaced, by one to a copy with two methods exchanged. The copy is never freed.

use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use rusqlite::ffi;

const NAME: &CStr = c"keyfence-counting";

/// What went to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Syncs of the write-ahead log: one a commit, and one before each checkpoint and after each restart of the log.
    pub log_syncs: u64,
    /// Syncs of the database file: one a checkpoint.
    pub file_syncs: u64,
    /// Bytes written to the write-ahead log.
    pub log_bytes: u64,
    /// Bytes that checkpoints wrote to the database file.
    pub file_bytes: u64,
}

impl Written {
    /// Syncs of either file.
    #[must_use]
    pub const fn syncs(&self) -> u64 {
        self.log_syncs + self.file_syncs
    }
}

#[derive(Debug)]
struct Counters {
    syncs: AtomicU64,
    bytes: AtomicU64,
}

static LOG: Counters = Counters::new();
static FILE: Counters = Counters::new();

impl Counters {
    const fn new() -> Self {
        Self {
            syncs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}

/// A copy of a file's methods with two of them exchanged. `methods` comes first (C2): a file's pointer to its methods is
/// a pointer to all of this.
#[repr(C)]
struct Counted {
    methods: ffi::sqlite3_io_methods,
    base: *const ffi::sqlite3_io_methods,
    counters: &'static Counters,
}

/// The copies made so far, one for each set of methods and counters.
struct Copies(Vec<&'static Counted>);

// SAFETY: what a `Counted` points to is never written after it was made: SQLite's constant tables, and statics.
unsafe impl Send for Copies {}

static COPIES: Mutex<Copies> = Mutex::new(Copies(Vec::new()));

fn counted(base: *const ffi::sqlite3_io_methods, counters: &'static Counters) -> &'static Counted {
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(copy) = copies
        .0
        .iter()
        .find(|copy| ptr::eq(copy.base, base) && ptr::eq(copy.counters, counters))
    {
        return copy;
    }
    let copy: &'static Counted = Box::leak(Box::new(Counted {
        methods: ffi::sqlite3_io_methods {
            xSync: Some(sync),
            xWrite: Some(write),
            // SAFETY: `base` comes from a file that the platform's file system has just opened; its table is constant.
            ..unsafe { *base }
        },
        base,
        counters,
    }));
    copies.0.push(copy);
    copy
}

/// # Safety
/// SQLite calls it with a file that [`open`] opened.
unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: i32) -> i32 {
    // SAFETY: by C2 the methods of a file that `open` opened are those of a `Counted`, which is never freed.
    let counted = unsafe { &*(*file).pMethods.cast::<Counted>() };
    counted.counters.syncs.fetch_add(1, Relaxed);
    // SAFETY: the platform's own method, on the platform's own file.
    match unsafe { (*counted.base).xSync } {
        // SAFETY: as above.
        Some(base) => unsafe { base(file, flags) },
        None => ffi::SQLITE_IOERR_FSYNC,
    }
}

/// # Safety
/// SQLite calls it with a file that [`open`] opened and with `length` readable bytes.
unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const std::ffi::c_void,
    length: i32,
    offset: ffi::sqlite3_int64,
) -> i32 {
    // SAFETY: by C2 the methods of a file that `open` opened are those of a `Counted`, which is never freed.
    let counted = unsafe { &*(*file).pMethods.cast::<Counted>() };
    counted
        .counters
        .bytes
        .fetch_add(u64::try_from(length).unwrap_or(0), Relaxed);
    // SAFETY: the platform's own method, on the platform's own file.
    match unsafe { (*counted.base).xWrite } {
        // SAFETY: as above; the arguments are handed on as they came.
        Some(base) => unsafe { base(file, bytes, length, offset) },
        None => ffi::SQLITE_IOERR_WRITE,
    }
}

/// # Safety
/// SQLite calls it with the file system that [`Counting::install`] registered.
unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: i32,
    out_flags: *mut i32,
) -> i32 {
    // SAFETY: `install` put the platform's file system there, which is static.
    let base = unsafe { (*vfs).pAppData.cast::<ffi::sqlite3_vfs>() };
    // SAFETY: as above.
    let Some(base_open) = (unsafe { (*base).xOpen }) else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: `szOsFile` is the base's, so `file` has room for its structure; the arguments are handed on as they came.
    let result = unsafe { base_open(base, name, file, flags, out_flags) };
    let counters = if flags & ffi::SQLITE_OPEN_WAL != 0 {
        &LOG
    } else if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
        &FILE
    } else {
        return result;
    };
    if result == ffi::SQLITE_OK {
        // SAFETY: the base has opened the file and set its methods.
        unsafe { (*file).pMethods = &raw const counted((*file).pMethods, counters).methods };
    }
    result
}

macro_rules! handed_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $field:ident or $failed:expr;)*) => {$(
        /// # Safety
        /// SQLite calls it with the file system that [`Counting::install`] registered.
        unsafe extern "C" fn $name(vfs: *mut ffi::sqlite3_vfs, $($argument: $type),*) -> $result {
            // SAFETY: `install` put the platform's file system there, which is static.
            let base = unsafe { (*vfs).pAppData.cast::<ffi::sqlite3_vfs>() };
            // SAFETY: as above; the arguments are handed on as they came.
            match unsafe { (*base).$field } {
                // SAFETY: as above.
                Some(handed_on) => unsafe { handed_on(base, $($argument),*) },
                None => $failed,
            }
        }
    )*};
}

// Those that may look into the file system they are called with.
handed_on! {
    delete(name: *const std::ffi::c_char, sync_folder: i32) -> i32, xDelete or ffi::SQLITE_IOERR;
    access(name: *const std::ffi::c_char, flags: i32, out: *mut i32) -> i32, xAccess or ffi::SQLITE_IOERR;
    full_path(name: *const std::ffi::c_char, length: i32, out: *mut std::ffi::c_char) -> i32,
        xFullPathname or ffi::SQLITE_IOERR;
}

/// The counting file system, as the default one for as long as it lives.
#[derive(Debug)]
pub struct Counting {
    base: NonNull<ffi::sqlite3_vfs>,
    counting: NonNull<ffi::sqlite3_vfs>,
}

impl Counting {
    /// Makes it the default file system. Connections that are open already go on uncounted.
    ///
    /// # Errors
    /// When SQLite has no default file system, or does not take another.
    pub fn install() -> Result<Self> {
        // SAFETY: initialises SQLite where needed; a null name asks for the default.
        let base = NonNull::new(unsafe { ffi::sqlite3_vfs_find(ptr::null()) }).context("SQLite has no file system")?;
        // SAFETY: a registered file system lives as long as it is registered; the platform's always is.
        let base_fields = unsafe { *base.as_ptr() };
        // SAFETY: the name of a registered file system is a C string that lives as long.
        let name = unsafe { CStr::from_ptr(base_fields.zName) };
        ensure!(name != NAME, "the counting file system is installed already");
        let counting = NonNull::from(Box::leak(Box::new(ffi::sqlite3_vfs {
            pNext: ptr::null_mut(),
            zName: NAME.as_ptr(),
            pAppData: base.as_ptr().cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_path),
            ..base_fields
        })));
        // SAFETY: `counting` is never freed, and its name is static.
        let result = unsafe { ffi::sqlite3_vfs_register(counting.as_ptr(), 1) };
        ensure!(
            result == ffi::SQLITE_OK,
            "SQLite does not take the counting file system: {result}"
        );
        Ok(Self { base, counting })
    }

    /// What was written through it so far.
    #[must_use]
    pub fn written(&self) -> Written {
        Written {
            log_syncs: LOG.syncs.load(Relaxed),
            file_syncs: FILE.syncs.load(Relaxed),
            log_bytes: LOG.bytes.load(Relaxed),
            file_bytes: FILE.bytes.load(Relaxed),
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // SAFETY: both are registered file systems; connections opened through `counting` are closed (C1), and even
        // then it is not freed.
        unsafe {
            ffi::sqlite3_vfs_register(self.base.as_ptr(), 1);
            ffi::sqlite3_vfs_unregister(self.counting.as_ptr());
        }
    }
}

impl std::ops::Sub for Written {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self {
            log_syncs: self.log_syncs - before.log_syncs,
            file_syncs: self.file_syncs - before.file_syncs,
            log_bytes: self.log_bytes - before.log_bytes,
            file_bytes: self.file_bytes - before.file_bytes,
        }
    }
}
