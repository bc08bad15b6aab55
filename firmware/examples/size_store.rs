//! The journal and the store with all machines of the core, for a microcontroller, linked so that its code can be weighed and searched for panics. It runs nowhere.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    println!("build this for thumbv6m-none-eabi; see tests/code_size.rs");
}

#[cfg(target_os = "none")]
mod image {
    use embedded_storage::nor_flash::{ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash};
    use keyfence_core::store::Store as _;
    use keyfence_core::{Decision, Digest, LedgerId, Name, ProcessId, TimeMs, Token, Ttl};
    use keyfence_core::{actor, host, mailbox, session};
    use keyfence_firmware::journal::Existing;
    use keyfence_firmware::store::Ledger;

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

    fn name(seed: u64) -> Name {
        let bytes = number(seed).to_le_bytes();
        let text = core::str::from_utf8(&bytes).unwrap_or("x");
        match Name::new(text) {
            Ok(name) => name,
            Err(_) => name(seed),
        }
    }

    fn token(seed: u64) -> Token {
        Token::presented(number(seed)).unwrap_or(Token::FIRST)
    }

    fn process(seed: u64) -> ProcessId {
        let mut bytes = [0; 16];
        bytes.fill(number(seed) as u8);
        ProcessId::from_bytes(bytes)
    }

    fn tell<T, E>(result: Result<Decision<T>, E>) {
        number(match result {
            Ok(Ok(_)) => 0,
            Ok(Err(refusal)) => refusal.reason as u64,
            Err(_) => 100,
        });
    }

    #[unsafe(no_mangle)]
    extern "C" fn image_entry() {
        let clock = || TimeMs::new(number(9)).unwrap_or(TimeMs::ZERO);
        let mut ledger: Ledger<Flash, _> = Ledger::new(Flash, 0..16384, clock);
        let ttl = Ttl::ACTOR_LEASE;
        if ledger.power_up(number(1)).is_err() {
            let id = LedgerId::from_bytes([number(2) as u8; 16]);
            number(ledger.provision(id, 1, number(3), Existing::Refuse).is_ok().into());
        }
        let acquire = actor::Acquire {
            actor: name(1),
            process: process(2),
            ttl,
        };
        tell(ledger.step(|step, now| actor::acquire(step, &acquire, now)));
        let lease = actor::ActorGrant::presented(name(3), process(4), token(5));
        tell(ledger.step(|step, now| actor::renew(step, &lease, ttl, now)));
        tell(ledger.step(|step, now| actor::release(step, &lease, now)));
        let register = host::Register {
            host: name(6),
            process: process(7),
            proof: host::Proof::Process,
            ttl,
        };
        tell(ledger.step(|step, now| host::register(step, &register, now)));
        let grant = host::HostGrant::presented(name(8), process(9), token(10));
        let ask = session::ClaimSession {
            session: name(11),
            host: grant,
            ttl,
        };
        tell(ledger.step(|step, now| {
            let claimed = session::claim(step, &ask, now)?;
            if let Ok(granted) = &claimed {
                let finished = session::finish(step, &granted.grant, Digest::NONE, now)?;
                number(u64::from(finished.is_ok()));
            }
            Ok(claimed)
        }));
        let claim = mailbox::Claim {
            message: name(12),
            owner: name(13),
            process: None,
            lease_token: None,
            ttl,
        };
        tell(ledger.step(|step, now| mailbox::claim(step, &claim, now)));
        let message = mailbox::MessageGrant::presented(name(14), name(15), None, token(16));
        tell(ledger.step(|step, now| mailbox::complete(step, &message, Digest::NONE, now)));
        tell(ledger.step(|step, now| mailbox::retry(step, &message, None, Digest::NONE, now)));
        tell(ledger.step(|step, now| mailbox::give_back(step, &message, now)));
        tell(ledger.step(|step, now| mailbox::sweep(step, None, 4, now)));
        number(ledger.prune().is_ok().into());
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {
            core::hint::spin_loop();
        }
    }
}
