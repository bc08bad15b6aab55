//! The kiosk application on a simulated chip, with a clock and outputs that the test sees.

use std::cell::{Cell, RefCell};

use embedded_storage::nor_flash::{ErrorType, NorFlash, ReadNorFlash};
use keyfence_core::gate::{self, Binding, ClaimKind, LedgerCounter};
use keyfence_core::host::{self, HostGrant, Proof};
use keyfence_core::session::{self, ClaimSession, SessionGrant};
use keyfence_core::store::Store;
use keyfence_core::{Decision, LedgerId, Name, ProcessId, TimeMs, Token, Ttl, actor};
use keyfence_firmware::identity::{self, Identity, IdentityError};
use keyfence_firmware::journal::Existing;
use keyfence_firmware::kiosk::{
    Board, Closed, Deadlines, Follows, Kiosk, Layout, Level, NotServed, Note, OutputSpec, ProvisionError, State,
    provision,
};
use keyfence_firmware::link::{DeviceId, LinkKey};
use keyfence_tests::flash::{FlashError, Gone, Lie, Plan, Reading, Reported, SimFlash, Tear, Work};

const PAGES: usize = 24;
const PAGE_BYTES: u32 = 1024;
const ERASE_MS: u64 = 23;
const LAPSE_MS: u64 = 2;
const LEDGER: LedgerId = LedgerId::from_bytes([7; 16]);

const TILL: usize = 0;
const FREEZER: usize = 1;
const ALARM: usize = 2;

/// The board: what the chip's interrupt does, `pass` does.
#[derive(Default)]
struct Desk {
    now: Cell<u64>,
    deadlines: Deadlines,
    active: RefCell<[bool; 3]>,
    is_lit: Cell<bool>,
    is_power_failing: Cell<bool>,
    notes: RefCell<Vec<Note>>,
    /// Erases, and outputs that were active in one with their deadline inside.
    erases: Cell<usize>,
    late_outputs: Cell<usize>,
}

impl Board for &Desk {
    const OUTPUTS: &'static [OutputSpec] = &[
        OutputSpec {
            name: "till",
            follows: Follows::Claim(ClaimKind::Session, "till"),
            active: Level::High,
        },
        OutputSpec {
            name: "freezer",
            follows: Follows::Gate("freezer"),
            active: Level::High,
        },
        OutputSpec {
            name: "alarm",
            follows: Follows::Claim(ClaimKind::Actor, "alarm"),
            active: Level::Low,
        },
    ];
    const ERASE_MS: u64 = ERASE_MS;
    const ERASES_RATED: u32 = 20_000;
    const LAPSE_MS: u64 = LAPSE_MS;

    fn now(self) -> TimeMs {
        TimeMs::new(self.now.get()).unwrap()
    }

    fn random(self, bytes: &mut [u8]) {
        bytes.fill(4);
    }

    fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    fn apply_outputs(self) {
        let is_active = |output| self.deadlines.is_active(output, self.now());
        *self.active.borrow_mut() = std::array::from_fn(is_active);
    }

    fn light(self, is_lit: bool) {
        self.is_lit.set(is_lit);
    }

    fn receive(self) -> Option<u8> {
        None
    }

    fn send(self, _: &[u8]) {}

    fn is_power_failing(self) -> bool {
        self.is_power_failing.get()
    }

    fn note(self, note: Note) {
        self.notes.borrow_mut().push(note);
    }
}

impl Desk {
    /// Lets time pass, with the interrupt at every millisecond.
    fn pass(&self, ms: u64) {
        for _ in 0..ms {
            self.now.set(self.now.get() + 1);
            self.apply_outputs();
        }
    }

    fn is_active(&self, output: usize) -> bool {
        self.active.borrow()[output]
    }

    fn reset(&self) {
        self.now.set(0);
        self.deadlines.give_up_all();
        *self.active.borrow_mut() = [false; 3];
    }
}

/// The chip as the board has it: an erase halts everything, the interrupt too.
#[derive(Clone)]
struct Halting<'a> {
    chip: SimFlash<4, 1024>,
    desk: &'a Desk,
}

impl ErrorType for Halting<'_> {
    type Error = FlashError;
}

impl ReadNorFlash for Halting<'_> {
    const READ_SIZE: usize = 4;

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), FlashError> {
        self.chip.read(at, bytes)
    }

    fn capacity(&self) -> usize {
        self.chip.capacity()
    }
}

impl NorFlash for Halting<'_> {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = 1024;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), FlashError> {
        let end = self.desk.now.get() + ERASE_MS;
        let is_late = |output: &usize| {
            let until = self.desk.deadlines.until(*output).map_or(u64::MAX, TimeMs::as_ms);
            self.desk.is_active(*output) && until <= end
        };
        let late = (0..3).filter(is_late).count();
        self.desk.late_outputs.set(self.desk.late_outputs.get() + late);
        self.desk.erases.set(self.desk.erases.get() + 1);
        self.chip.erase(from, to)?;
        self.desk.now.set(end);
        Ok(())
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.chip.write(at, bytes)
    }
}

type Counter<'a> = Kiosk<Halting<'a>, &'a Desk, PAGES>;

fn layout() -> Layout {
    Layout {
        identity: PAGES as u32 * PAGE_BYTES..(PAGES as u32 + 2) * PAGE_BYTES,
        journal: 0..PAGES as u32 * PAGE_BYTES,
    }
}

fn counter_a() -> Identity {
    Identity {
        host: name("kiosk-a"),
        device: DeviceId::from_bytes([1; 16]),
        key: LinkKey::from_bytes([2; 32]),
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_ms(ms).unwrap()
}

fn blank_chip() -> SimFlash<4, 1024> {
    SimFlash::named("nrf51", PAGES + 2)
}

fn provisioned_chip() -> SimFlash<4, 1024> {
    let mut chip = blank_chip();
    provision::<_, PAGES>(&mut chip, &layout(), &counter_a(), LEDGER, 0, Existing::Refuse).unwrap();
    chip
}

/// A power-up.
fn power_up<'a>(chip: &SimFlash<4, 1024>, desk: &'a Desk) -> Counter<'a> {
    desk.reset();
    let flash = Halting {
        chip: chip.clone(),
        desk,
    };
    let known = identity::read(&mut chip.clone(), &layout().identity).map(drop);
    let boot = ProcessId::from_bytes([0x44; 16]);
    let mut kiosk = Kiosk::new(flash, layout(), desk, boot, known);
    kiosk.start();
    kiosk
}

/// Claims the actor `alarm` for `ms` milliseconds, or says why not.
#[expect(clippy::result_large_err, reason = "a decision as the core gives it")]
fn claim_alarm(kiosk: &mut Counter<'_>, process: u8, ms: u64) -> Decision<Token> {
    let ask = actor::Acquire {
        actor: name("alarm"),
        process: ProcessId::from_bytes([process; 16]),
        ttl: ttl(ms),
    };
    let claimed = kiosk.call(|ledger| ledger.step(|step, now| actor::acquire(step, &ask, now)));
    claimed.unwrap().map(|granted| granted.grant.token())
}

/// Commits something that moves no output, or says why not.
fn commit(kiosk: &mut Counter<'_>, number: u32) -> Result<(), NotServed> {
    let kept = kiosk.call(|ledger| {
        ledger.step(|step, _| {
            step.keep_answer(0, number, &[0x5a; 60])?;
            Ok(Ok(()))
        })
    });
    kept.map(|decision| decision.unwrap())
}

fn register(kiosk: &mut Counter<'_>, ms: u64) -> HostGrant {
    let ask = host::Register {
        host: name("kiosk-a"),
        process: ProcessId::from_bytes([5; 16]),
        proof: Proof::Process,
        ttl: ttl(ms),
    };
    let registered = kiosk.call(|ledger| ledger.step(|step, now| host::register(step, &ask, now)));
    registered.unwrap().unwrap().grant
}

fn claim_till(kiosk: &mut Counter<'_>, host: &HostGrant, ms: u64) -> SessionGrant {
    let ask = ClaimSession {
        session: name("till"),
        host: host.clone(),
        ttl: ttl(ms),
    };
    let claimed = kiosk.call(|ledger| ledger.step(|step, now| session::claim(step, &ask, now)));
    claimed.unwrap().unwrap().grant
}

#[test]
fn an_output_is_active_exactly_while_the_lease_is_live() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    assert!(!desk.is_active(ALARM));
    claim_alarm(&mut kiosk, 1, 500).unwrap();
    assert!(desk.is_active(ALARM));
    assert_eq!([desk.is_active(TILL), desk.is_active(FREEZER)], [false; 2]);
    desk.pass(499);
    assert!(desk.is_active(ALARM));
    // The main loop has not run since: the interrupt alone does it.
    desk.pass(1);
    assert!(!desk.is_active(ALARM));
}

#[test]
fn a_renewal_keeps_an_output_active_without_a_gap_and_a_release_ends_it_at_once() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    let token = claim_alarm(&mut kiosk, 1, 100).unwrap();
    let grant = actor::ActorGrant::presented(name("alarm"), ProcessId::from_bytes([1; 16]), token);
    for _ in 0..5 {
        desk.pass(90);
        assert!(desk.is_active(ALARM));
        let renewed = kiosk.call(|ledger| ledger.step(|step, now| actor::renew(step, &grant, ttl(100), now)));
        assert!(renewed.unwrap().is_ok());
    }
    desk.pass(90);
    assert!(desk.is_active(ALARM));
    let released = kiosk.call(|ledger| ledger.step(|step, now| actor::release(step, &grant, now)));
    assert_eq!(released.unwrap(), Ok(actor::Released::Now));
    assert!(!desk.is_active(ALARM));
}

#[test]
fn outputs_stay_safe_after_a_power_up_until_somebody_claims_anew() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    let first = claim_alarm(&mut kiosk, 1, 60_000).unwrap();
    assert!(desk.is_active(ALARM));
    let mut kiosk = power_up(&chip, &desk);
    kiosk.call(|_| Ok(())).unwrap();
    assert_eq!(kiosk.state(), State::Ready);
    assert!(!desk.is_active(ALARM), "the lease of an earlier boot moves nothing");
    let second = claim_alarm(&mut kiosk, 2, 60_000).unwrap();
    assert!(second > first);
    assert!(desk.is_active(ALARM));
}

#[test]
fn a_session_moves_its_output_only_under_a_live_host() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    let host = register(&mut kiosk, 300);
    claim_till(&mut kiosk, &host, 10_000);
    assert!(desk.is_active(TILL));
    desk.pass(300);
    assert!(
        !desk.is_active(TILL),
        "the session's own lease would last, the host's does not"
    );
    let host = register(&mut kiosk, 10_000);
    assert!(
        !desk.is_active(TILL),
        "the claim descends from the host's earlier token"
    );
    let claimed = claim_till(&mut kiosk, &host, 10_000);
    assert_eq!(claimed.incarnation().get(), 2);
    assert!(desk.is_active(TILL));
    let finished =
        kiosk.call(|ledger| ledger.step(|step, now| session::finish(step, &claimed, keyfence_core::Digest::NONE, now)));
    assert!(finished.unwrap().is_ok());
    assert!(!desk.is_active(TILL), "what is finished moves nothing");
}

#[test]
fn a_gate_moves_its_output_only_for_the_live_claim_whose_token_it_admitted_last() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    let admit = |kiosk: &mut Counter<'_>, ledger, token| {
        let ask = gate::Admit {
            gate: name("freezer"),
            binding: Binding {
                ledger,
                kind: ClaimKind::Actor,
                name: name("alarm"),
            },
            token,
            counter: LedgerCounter::Unreadable,
        };
        let admitted = kiosk.call(|ledger| {
            ledger.step(|step, now| {
                let counter = LedgerCounter::Read(keyfence_core::store::Transaction::last_minted(step)?);
                gate::admit(step, &gate::Admit { counter, ..ask.clone() }, now)
            })
        });
        admitted.unwrap().is_ok()
    };
    let first = claim_alarm(&mut kiosk, 1, 200).unwrap();
    assert!(!desk.is_active(FREEZER), "nothing was shown to the gate");
    assert!(admit(&mut kiosk, LEDGER, first));
    assert!(desk.is_active(FREEZER));
    desk.pass(200);
    assert!(!desk.is_active(FREEZER));
    let second = claim_alarm(&mut kiosk, 2, 10_000).unwrap();
    assert!(!desk.is_active(FREEZER), "the new holder has not shown its token");
    assert!(admit(&mut kiosk, LEDGER, second));
    assert!(desk.is_active(FREEZER));
    assert!(!admit(&mut kiosk, LEDGER, first), "the gate fences the old token");
    assert!(desk.is_active(FREEZER), "and the new holder keeps its output");
    let other = LedgerId::from_bytes([9; 16]);
    assert!(!admit(&mut kiosk, other, second), "the gate is bound to this ledger");
}

#[test]
fn a_power_up_writes_nothing_before_somebody_is_served() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let before = chip.chip().counters().operations;
    for _ in 0..50 {
        let mut kiosk = power_up(&chip, &desk);
        for _ in 0..10 {
            desk.pass(7);
            kiosk.turn();
        }
        assert_eq!(kiosk.state(), State::Starting);
    }
    assert_eq!(chip.chip().counters().operations, before);
    let mut kiosk = power_up(&chip, &desk);
    kiosk.call(|_| Ok(())).unwrap();
    assert_eq!(kiosk.state(), State::Ready);
    assert!(chip.chip().counters().operations > before);
}

#[test]
fn no_erase_begins_while_an_output_would_lapse_in_it() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    // Leases of all lengths around that of an erase, and enough commits that pages turn at every phase of them.
    for round in 0..1_500 {
        claim_alarm(&mut kiosk, 1, 1 + round % 60).unwrap();
        commit(&mut kiosk, round as u32).unwrap();
        desk.pass(61);
    }
    assert!(desk.erases.get() > 20, "{} erases", desk.erases.get());
    assert_eq!(desk.late_outputs.get(), 0);
}

#[test]
fn erases_run_ahead_while_nobody_is_there() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    let mut erases_in_calls = 0;
    for round in 0..1_000 {
        let before = desk.erases.get();
        claim_alarm(&mut kiosk, 1, 5).unwrap();
        commit(&mut kiosk, round).unwrap();
        erases_in_calls += desk.erases.get() - before;
        for _ in 0..10 {
            desk.pass(10);
            kiosk.turn();
        }
    }
    assert!(desk.erases.get() > 10, "{} erases", desk.erases.get());
    assert_eq!(erases_in_calls, 0, "no caller waited for one");
    assert_eq!(desk.late_outputs.get(), 0);
}

#[test]
fn a_blank_chip_is_unprovisioned_and_one_without_a_whole_identity_is_closed() {
    let desk = Desk::default();
    let chip = blank_chip();
    let mut kiosk = power_up(&chip, &desk);
    assert_eq!(kiosk.state(), State::Unprovisioned);
    assert_eq!(kiosk.call(|_| Ok(())), Err(NotServed::State(State::Unprovisioned)));
    let chip = provisioned_chip();
    assert_eq!(power_up(&chip, &desk).state(), State::Starting);
    for page in [layout().identity.start, layout().identity.start + PAGE_BYTES] {
        chip.clone().write(page, &[0; 4]).unwrap();
    }
    let mut kiosk = power_up(&chip, &desk);
    assert_eq!(kiosk.state(), State::Closed(Closed::Identity));
    assert!(kiosk.call(|_| Ok(())).is_err());
}

#[test]
fn a_spoilt_copy_of_the_identity_is_written_anew_once_somebody_was_served() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let range = layout().identity;
    let pages = |chip: &SimFlash<4, 1024>| {
        let mut pages = vec![0; range.len()];
        chip.clone().read(range.start, &mut pages).unwrap();
        pages
    };
    let whole = pages(&chip);
    for page in [range.start, range.start + PAGE_BYTES] {
        chip.clone().write(page, &[0; 4]).unwrap();
        let spoilt = pages(&chip);
        assert_ne!(spoilt, whole);
        let mut kiosk = power_up(&chip, &desk);
        assert_eq!(kiosk.state(), State::Starting);
        assert_eq!(pages(&chip), spoilt, "a power-up writes nothing");
        kiosk.call(|_| Ok(())).unwrap();
        assert_eq!(pages(&chip), whole);
    }
}

#[test]
fn a_kiosk_that_is_there_is_not_provisioned_over_unless_it_is_given_up() {
    let mut chip = provisioned_chip();
    let other = Identity {
        host: name("kiosk-b"),
        device: DeviceId::from_bytes([3; 16]),
        key: LinkKey::from_bytes([4; 32]),
    };
    let host = |chip: &mut SimFlash<4, 1024>| identity::read(chip, &layout().identity).map(|identity| identity.host);
    let before = chip.chip().image().bytes();
    let refused = provision::<_, PAGES>(&mut chip, &layout(), &other, LEDGER, 0, Existing::Refuse);
    assert_eq!(refused, Err(ProvisionError::Identity(IdentityError::Taken)));
    let long = Identity {
        host: name(&"x".repeat(33)),
        ..other.clone()
    };
    let refused = provision::<_, PAGES>(&mut chip, &layout(), &long, LEDGER, 0, Existing::Replace);
    assert_eq!(refused, Err(ProvisionError::Identity(IdentityError::NameTooLong)));
    assert_eq!(chip.chip().image().bytes(), before);
    provision::<_, PAGES>(&mut chip, &layout(), &other, LEDGER, 0, Existing::Replace).unwrap();
    assert_eq!(host(&mut chip), Ok(name("kiosk-b")));
    // A ledger without a kiosk is not given up either.
    identity::forget(&mut chip, &layout().identity).unwrap();
    let refused = provision::<_, PAGES>(&mut chip, &layout(), &other, LEDGER, 0, Existing::Refuse);
    assert!(matches!(refused, Err(ProvisionError::Ledger(_))), "{refused:?}");
    assert_eq!(host(&mut chip), Err(IdentityError::Missing));
}

#[test]
fn a_damaged_ledger_closes_the_kiosk_and_is_left_as_it_is() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    for process in 1..20 {
        claim_alarm(&mut kiosk, process, 1).unwrap();
        desk.pass(2);
    }
    drop(kiosk);
    // The first frames' bodies, with marks that say that they were acknowledged.
    for word in 20..40 {
        chip.clone().write(4 * word, &[0x55, 0, 0x55, 0]).unwrap();
    }
    let before = chip.chip().image().bytes();
    let mut kiosk = power_up(&chip, &desk);
    assert_eq!(kiosk.state(), State::Closed(Closed::Damaged));
    assert!(kiosk.call(|_| Ok(())).is_err());
    desk.pass(5_000);
    kiosk.turn();
    assert_eq!(chip.chip().image().bytes(), before);
    assert_eq!(
        [desk.is_active(TILL), desk.is_active(FREEZER), desk.is_active(ALARM)],
        [false; 3]
    );
}

#[test]
fn after_an_unknown_outcome_outputs_are_safe_and_the_kiosk_comes_back_by_itself() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut seen = 0;
    for operation in 0..40 {
        let mut kiosk = power_up(&chip, &desk);
        claim_alarm(&mut kiosk, 1, 60_000).unwrap();
        assert!(desk.is_active(ALARM));
        let at = chip.chip().counters().operations + operation;
        let lie = Lie {
            work: Work::Nothing,
            reported: Reported::Failure,
        };
        chip.chip_mut().arm(Plan::Lie { at, lie });
        let committed = commit(&mut kiosk, 1);
        chip.chip_mut().arm(Plan::Nothing);
        if committed.is_ok() {
            continue;
        }
        seen += 1;
        assert_eq!(kiosk.state(), State::Closed(Closed::Unknown));
        assert!(!desk.is_active(ALARM));
        kiosk.turn();
        assert_eq!(
            kiosk.state(),
            State::Closed(Closed::Unknown),
            "it waits before it mounts again"
        );
        desk.pass(60);
        kiosk.turn();
        assert_eq!(kiosk.state(), State::Ready);
        assert!(desk.is_active(ALARM), "the lease is of this boot and still live");
    }
    assert!(seen > 0, "one of the operations was a mark");
}

#[test]
fn remounts_are_bounded() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    claim_alarm(&mut kiosk, 1, 60_000).unwrap();
    let at = chip.chip().counters().operations;
    let tear = Tear::Program {
        left: Gone::None,
        other: Gone::None,
    };
    chip.chip_mut().arm(Plan::Cut { at, tear });
    assert!(commit(&mut kiosk, 1).is_err());
    for _ in 0..10_000 {
        desk.pass(10);
        kiosk.turn();
    }
    let remounts = desk
        .notes
        .borrow()
        .iter()
        .filter(|note| matches!(note, Note::Remount(_)))
        .count();
    assert!((1..=10).contains(&remounts), "{remounts} mounts");
    assert!(!kiosk.state().is_open());
    chip.chip_mut().power_up(Reading::AsLeft);
    let mut kiosk = power_up(&chip, &desk);
    kiosk.call(|_| Ok(())).unwrap();
    assert_eq!(kiosk.state(), State::Ready);
}

#[test]
fn a_failing_supply_makes_outputs_safe_and_nothing_is_written() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    claim_alarm(&mut kiosk, 1, 60_000).unwrap();
    let before = chip.chip().counters().operations;
    desk.is_power_failing.set(true);
    kiosk.turn();
    assert!(!desk.is_active(ALARM));
    assert_eq!(
        kiosk.call(|_| Ok(())),
        Err(NotServed::State(State::Closed(Closed::Power)))
    );
    assert_eq!(chip.chip().counters().operations, before);
}

#[test]
fn a_kiosk_without_room_says_so_and_still_serves() {
    let (chip, desk) = (provisioned_chip(), Desk::default());
    let mut kiosk = power_up(&chip, &desk);
    let create = |kiosk: &mut Counter<'_>, index: usize| {
        let claimed = kiosk.call(|ledger| {
            ledger.step(|step, now| {
                let ask = actor::Acquire {
                    actor: name(&format!("actor-{index}")),
                    process: ProcessId::from_bytes([1; 16]),
                    ttl: ttl(1_000),
                };
                actor::acquire(step, &ask, now)
            })
        });
        claimed.unwrap().is_ok()
    };
    assert!((0..8).all(|index| create(&mut kiosk, index)));
    assert!(!create(&mut kiosk, 8), "the actors are full");
    assert_eq!(kiosk.state(), State::Ready, "and there is room for other rows");
}
