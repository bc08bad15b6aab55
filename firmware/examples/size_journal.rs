//! The journal alone for a microcontroller, linked so that its code can be weighed and searched for panics. It runs nowhere.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    println!("build this for thumbv6m-none-eabi; see tests/code_size.rs");
}

#[cfg(target_os = "none")]
mod image {
    use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash};
    use keyfence_firmware::journal::{Existing, Journal, Record};

    unsafe extern "C" {
        fn flash_read(at: u32, bytes: *mut u8, len: usize) -> bool;
        fn flash_write(at: u32, bytes: *const u8, len: usize) -> bool;
        fn flash_erase(from: u32, to: u32) -> bool;
        fn outside(number: u64) -> u64;
    }

    struct Flash;

    impl ErrorType for Flash {
        type Error = NorFlashErrorKind;
    }

    const fn check(done: bool) -> Result<(), NorFlashErrorKind> {
        if done { Ok(()) } else { Err(NorFlashErrorKind::Other) }
    }

    impl ReadNorFlash for Flash {
        const READ_SIZE: usize = 1;

        fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), Self::Error> {
            // SAFETY: never run; the bytes are valid for the call.
            check(unsafe { flash_read(at, bytes.as_mut_ptr(), bytes.len()) })
        }

        fn capacity(&self) -> usize {
            16384
        }
    }

    impl NorFlash for Flash {
        const WRITE_SIZE: usize = 4;
        const ERASE_SIZE: usize = 1024;

        fn erase(&mut self, from: u32, to: u32) -> Result<(), Self::Error> {
            // SAFETY: never run.
            check(unsafe { flash_erase(from, to) })
        }

        fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Self::Error> {
            // SAFETY: never run; the bytes are valid for the call.
            check(unsafe { flash_write(at, bytes.as_ptr(), bytes.len()) })
        }
    }

    fn number(number: u64) -> u64 {
        // SAFETY: never run.
        unsafe { outside(number) }
    }

    #[unsafe(no_mangle)]
    extern "C" fn image_entry() {
        let mut journal: Journal<Flash, 16, 64, 256> = Journal::new(Flash, 0..16384, 64);
        if journal.mount().is_err() {
            number(
                journal
                    .provision(number(0) as u32, number(1), Existing::Refuse)
                    .is_ok()
                    .into(),
            );
        }
        if let Ok(report) = journal.settle(number(2)) {
            number(report.sequence);
        }
        let bytes = number(3).to_le_bytes();
        let records = [Record::put(number(4) as u8, &bytes), Record::delete(number(5) as u8)];
        number(
            journal
                .commit(&records, number(6) as u32)
                .map_or(0, |committed| committed.first_token),
        );
        number(journal.mint().unwrap_or(0));
        number(journal.lift(number(7)).is_ok().into());
        number(journal.maintain().is_ok().into());
        if let Ok(Some(bytes)) = journal.get(number(8) as u8) {
            number(bytes.len() as u64);
        }
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {
            core::hint::spin_loop();
        }
    }
}
