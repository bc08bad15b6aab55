//! The kiosk's end of the link with every message, for a microcontroller, linked so that its code can be weighed and
//! searched for panics. It runs nowhere.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    println!("build this for thumbv6m-none-eabi; see tests/code_size.rs");
}

#[cfg(target_os = "none")]
mod image {
    use keyfence_core::ProcessId;
    use keyfence_firmware::link::{Answer, Call, DeviceId, Handler, Identity, KioskEnd, LinkKey, Reply, State, Tally};

    unsafe extern "C" {
        fn outside_byte(number: u32) -> u8;
        fn outside_call(call: *const (), reply: *mut ());
        fn outside_send(bytes: *const u8, len: usize);
    }

    fn byte(number: u32) -> u8 {
        // SAFETY: never run.
        unsafe { outside_byte(number) }
    }

    struct Outside;

    impl Handler for Outside {
        fn state(&self) -> State {
            if byte(1) == 0 { State::Ready } else { State::Full }
        }

        fn handle(&mut self, call: &Call, _: &Tally) -> Reply {
            let mut reply = Reply::new(Answer::Nothing);
            // SAFETY: never run; both references are valid for the call.
            unsafe { outside_call((&raw const *call).cast(), (&raw mut reply).cast()) };
            reply
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn image_entry() {
        let identity = Identity {
            device: DeviceId::from_bytes([byte(2); 16]),
            key: LinkKey::from_bytes([byte(3); 32]),
        };
        let mut link = KioskEnd::new(Some(identity), ProcessId::from_bytes([byte(4); 16]));
        let mut random = |bytes: &mut [u8]| bytes.iter_mut().for_each(|slot| *slot = byte(5));
        loop {
            if let Some(frame) = link.receive(byte(6), &mut random, &mut Outside) {
                // SAFETY: never run; the bytes are valid for the call.
                unsafe { outside_send(frame.as_ptr(), frame.len()) };
            }
        }
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {
            core::hint::spin_loop();
        }
    }
}
