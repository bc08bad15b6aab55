//! The power of the real image is cut, again and again, and what it says afterwards is held against what it had told.
//!
//! The flash changes at its operations only, so a cut at any instant leaves what one before some operation leaves: the
//! processor is stopped at an operation that the seed chooses. Torn ones are done, and then part of what they changed is put
//! back. The RAM is garbage afterwards. A cut may also fall into a mount's own writing, into work ahead, and after an answer.
//! Times are the emulator's, so a seed makes the same choices again, and not quite the same run.

use std::time::Duration;

use anyhow::{Result, bail};
use keyfence::emulator::{Image, Machine, Stop};
use keyfence_core::attempt::Done;
use keyfence_core::host::{HostGrant, Proof, Register};
use keyfence_core::lease::Released;
use keyfence_core::session::{ClaimSession, Generation, SessionGrant};
use keyfence_core::store::Place;
use keyfence_core::{Name, ProcessId, Ttl};
use keyfence_firmware::link::{Answer, Bytes, Exchange, Grant, Info, Reply, Request, RequestId, Row, State};

use super::caller::Caller;
use super::counter;
use super::told::{Effect, Standing, Told};
use crate::random::Random;

/// The processor runs this long at a time while its flash is watched.
const SLICE: Duration = Duration::from_millis(4);
/// What comes within this was there already.
const AT_HAND: Duration = Duration::from_millis(1);
/// Slices that a kiosk is left alone for; it begins to work ahead after some 20 ms.
const IDLE_SLICES: usize = 24;
/// Flash operations of work ahead, about: it begins with an erase.
const WORK_AHEAD: u64 = 4;
/// So many slices without a flash operation or an answer, and the call is sent again.
const AGAIN_SLICES: usize = 100;
/// Slices that a call takes at most; far more than it takes.
const SLICES_MAX: usize = 2_500;
/// Flash operations of a call, about: a commit of the calls here has 8 to 20, and the writing of a mount up to 40.
const OPERATIONS: u64 = 24;
/// Sessions in play at a time.
const IN_PLAY: u64 = 3;
/// A campaign that broke the rules this often has said enough.
const VIOLATIONS_MAX: usize = 10;

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Power cuts.
    pub cuts: u32,
    /// Seed of everything.
    pub seed: u64,
    /// A control that has to fail: each cut also takes back what the last call had written.
    pub forgets: bool,
}

/// How the power was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Between two operations.
    pub clean: u32,
    /// In the programming of words.
    pub torn_programs: u32,
    /// In an erase.
    pub torn_erases: u32,
    /// Of all those, in what it does while nobody asks.
    pub idle: u32,
    /// Of all those, in what a mount writes.
    pub in_boots: u32,
    /// Of all those, after the answer was sent, whether it arrived or not.
    pub after_answers: u32,
}

impl Tally {
    /// All cuts.
    #[must_use]
    pub const fn all(&self) -> u32 {
        self.clean + self.torn_programs + self.torn_erases
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// The cuts.
    pub tally: Tally,
    /// Calls that were answered.
    pub calls: u64,
    /// Calls that were cut off and had taken effect.
    pub settled: u64,
    /// Frames that were sent again.
    pub sent_again: u64,
    /// The most erases that a page has had.
    pub erases_max: u32,
    /// What broke the rules.
    pub violations: Vec<String>,
}

/// Runs a campaign.
///
/// # Errors
///
/// When the emulator fails, or the kiosk does not answer at all.
pub fn run(image: &Image, settings: Settings, mut progress: impl FnMut(u32)) -> Result<Report> {
    let (machine, caller) = counter::start(image, "kiosk-a", settings.seed)?;
    let mut campaign = Campaign {
        machine,
        caller,
        random: Random::new(settings.seed),
        settings,
        told: Told::default(),
        hosts: [None, None],
        grants: Vec::new(),
        next_session: 0,
        before_last: Vec::new(),
        tally: Tally::default(),
        calls: 0,
        settled: 0,
        sent_again: 0,
        serves: true,
    };
    while campaign.serves && campaign.tally.all() < settings.cuts && campaign.told.violations().len() < VIOLATIONS_MAX {
        campaign.live()?;
        progress(campaign.tally.all());
    }
    let info = campaign.info()?;
    Ok(Report {
        tally: campaign.tally,
        calls: campaign.calls,
        settled: campaign.settled,
        sent_again: campaign.sent_again,
        erases_max: info.wear.erases_max,
        violations: campaign.told.violations().to_vec(),
    })
}

struct Campaign {
    machine: Machine,
    caller: Caller,
    random: Random,
    settings: Settings,
    told: Told,
    hosts: [Option<HostGrant>; 2],
    /// What was granted for the sessions in play, the newest last.
    grants: Vec<SessionGrant>,
    next_session: u64,
    /// The journal before the last call that was answered.
    before_last: Vec<u8>,
    tally: Tally,
    calls: u64,
    settled: u64,
    sent_again: u64,
    serves: bool,
}

/// Where the power is cut.
#[derive(Clone, Copy)]
struct Cut {
    /// At this operation of the call; after its answer where it has fewer.
    operation: u64,
    way: Way,
}

/// When the power is cut at an operation.
#[derive(Clone, Copy)]
enum Way {
    Before,
    Within,
    After,
}

/// A call, and what it does to which session.
struct Asked {
    request: Request,
    effect: Option<(Name, Effect)>,
}

fn name(text: &str) -> Result<Name> {
    Ok(Name::new(text)?)
}

fn ttl(ms: u64) -> Result<Ttl> {
    Ttl::from_ms(ms).ok_or_else(|| anyhow::anyhow!("no duration: {ms}"))
}

impl Campaign {
    /// Some calls, one that is cut, and the look at what that has left.
    fn live(&mut self) -> Result<()> {
        for _ in 0..self.random.below(4) {
            let asked = self.choose()?;
            self.before_last = self.journal()?;
            let call = self.caller.next_call(asked.request.clone());
            let Some(reply) = self.deliver(&mut Exchange::new(call), None)? else {
                bail!("a call without a cut was cut off");
            };
            self.take(&asked, reply)?;
        }
        if self.random.below(3) == 0 && self.idle()? {
            self.power_up()?;
            return self.look(None);
        }
        let asked = self.choose()?;
        let before = self.journal()?;
        let call = self.caller.next_call(asked.request.clone());
        let id = call.id;
        let cut = self.cut();
        let reply = self.deliver(&mut Exchange::new(call), Some(cut))?;
        let was_answered = reply.is_some();
        if let Some(reply) = reply {
            self.before_last = before;
            self.take(&asked, reply)?;
        }
        if self.settings.forgets && !self.before_last.is_empty() {
            self.machine.set_journal(&std::mem::take(&mut self.before_last))?;
        }
        self.power_up()?;
        while self.random.below(3) == 0 && self.tally.all() < self.settings.cuts {
            // The first call makes the mount write: the power goes in there.
            let cut = self.cut();
            let before = self.tally.all();
            let call = self.caller.next_call(Request::Info);
            let _ = self.deliver(&mut Exchange::new(call), Some(cut))?;
            self.tally.in_boots += self.tally.all() - before;
            self.power_up()?;
        }
        let flight = asked.effect.as_ref().filter(|_| !was_answered);
        self.look(flight)?;
        if !was_answered && self.serves {
            self.ask_again(&asked, id)?;
        }
        Ok(())
    }

    fn cut(&mut self) -> Cut {
        Cut {
            operation: self.random.below(OPERATIONS),
            way: match self.random.below(3) {
                0 => Way::Before,
                1 => Way::Within,
                _ => Way::After,
            },
        }
    }

    fn journal(&mut self) -> Result<Vec<u8>> {
        Ok(self.machine.journal()?)
    }

    /// The next call: a host registers, claims, finishes, releases, or tries with an old grant.
    fn choose(&mut self) -> Result<Asked> {
        let index = usize::from(self.random.below(2) == 1);
        let Some(host) = self.hosts.get(index).cloned().flatten() else {
            return self.register(index);
        };
        let plain = |request| Asked { request, effect: None };
        let old = self.random.below(self.grants.len() as u64) as usize;
        Ok(match (self.random.below(12), self.grants.get(old).cloned()) {
            (0, _) => self.register(index)?,
            (1, _) => plain(Request::Mint(name("lottery")?)),
            (2, _) => {
                self.told.prunes();
                plain(Request::Prune)
            }
            (3, Some(grant)) => Asked {
                effect: Some((grant.session().clone(), Effect::Release)),
                request: Request::SessionRelease(grant),
            },
            (4..=6, Some(grant)) => Asked {
                effect: Some((grant.session().clone(), Effect::Finish)),
                request: Request::SessionFinish(grant, Bytes::new()),
            },
            (_, _) => {
                let session = name(&format!("till-{}", self.next_session + self.random.below(IN_PLAY)))?;
                // Short ones lapse before the other host asks.
                let lasts = if self.random.below(2) == 0 { 1 } else { 600_000 };
                Asked {
                    effect: Some((session.clone(), Effect::Claim)),
                    request: Request::SessionClaim(ClaimSession {
                        session,
                        host,
                        ttl: ttl(lasts)?,
                    }),
                }
            }
        })
    }

    fn register(&self, index: usize) -> Result<Asked> {
        Ok(Asked {
            request: Request::HostRegister(Register {
                host: name(["counter-a", "counter-b"].get(index).copied().unwrap_or("counter"))?,
                process: ProcessId::from_bytes([index as u8 + 1; 16]),
                proof: Proof::Process,
                ttl: ttl(600_000)?,
            }),
            effect: None,
        })
    }

    /// Notes an answer, and what it says.
    fn take(&mut self, asked: &Asked, reply: Reply) -> Result<()> {
        self.calls += 1;
        match (&asked.request, reply.answer) {
            (Request::HostRegister(ask), Answer::Granted(grant)) => {
                if !grant.renewed {
                    self.told.minted(grant.token, "a host");
                }
                let index = usize::from(ask.process.as_bytes().first() == Some(&2));
                let grant = HostGrant::presented(ask.host.clone(), ask.process, grant.token);
                if let Some(slot) = self.hosts.get_mut(index) {
                    *slot = Some(grant);
                }
            }
            (Request::SessionClaim(ask), Answer::Granted(grant)) => {
                let generation = generation(&ask.host, &grant)?;
                self.told.claimed(&ask.session, generation.clone(), grant.renewed);
                if !grant.renewed {
                    self.grants
                        .push(SessionGrant::presented(ask.session.clone(), generation));
                }
            }
            (Request::SessionFinish(grant, _), Answer::Done(Done::Now)) => {
                self.told.finished(grant.session(), grant.generation());
                self.next_session += 1;
                let kept = self.grants.len().saturating_sub(8);
                self.grants.drain(..kept);
            }
            (Request::SessionRelease(grant), Answer::Released(Released::Now)) => {
                self.told.released(grant.session(), grant.generation());
            }
            (Request::Mint(_), Answer::Minted(token)) => self.told.minted(token, "a mint"),
            (Request::Prune, Answer::Count(_)) => self.look(None)?,
            (_, Answer::Failed(fault)) => self.told.breach(format!("V6: {fault} to {:?}", asked.request)),
            // Refusals, and what had been done before.
            (_, _) => {}
        }
        Ok(())
    }

    /// Sends a call and waits for its answer, or cuts the power.
    fn deliver(&mut self, exchange: &mut Exchange, cut: Option<Cut>) -> Result<Option<Reply>> {
        self.machine.run()?;
        if !self.caller.is_open() {
            self.caller.open()?;
        }
        self.machine.watch_flash(true)?;
        self.caller.send(exchange)?;
        let (mut operation, mut silent) = (0, 0);
        for _ in 0..SLICES_MAX {
            match self.machine.wait_for_flash(SLICE)? {
                Stop::FlashOperation if cut.is_some_and(|cut| cut.operation == operation) => {
                    self.cut_here(cut.map_or(Way::Before, |cut| cut.way))?;
                    return Ok(None);
                }
                Stop::FlashOperation => {
                    (operation, silent) = (operation + 1, 0);
                    self.machine.pass_flash_operation()?;
                }
                Stop::Timeout => {
                    if let Some(reply) = self.caller.receive(exchange, AT_HAND)? {
                        self.machine.watch_flash(false)?;
                        self.machine.run()?;
                        if cut.is_some() {
                            self.tally.clean += 1;
                            self.tally.after_answers += 1;
                            // The answer was sent; every other one got lost on the line.
                            if self.random.below(2) == 0 {
                                return Ok(None);
                            }
                        }
                        return Ok(Some(reply));
                    }
                    silent += 1;
                    if silent % AGAIN_SLICES == 0 {
                        // As any host does: a frame may have been lost.
                        self.sent_again += 1;
                        self.caller.send(exchange)?;
                    }
                }
            }
        }
        bail!("no answer to {:?}", exchange.call().request)
    }

    /// Leaves the flash as a cut at the operation that is about to begin leaves it.
    fn cut_here(&mut self, way: Way) -> Result<()> {
        match way {
            Way::Before | Way::After => {
                if let Way::After = way {
                    self.machine.pass_flash_operation()?;
                }
                self.machine.watch_flash(false)?;
                self.tally.clean += 1;
                return Ok(());
            }
            Way::Within => {}
        }
        let before = self.journal()?;
        self.machine.pass_flash_operation()?;
        self.machine.watch_flash(false)?;
        let after = self.journal()?;
        let is_erase = before.iter().zip(&after).any(|(before, after)| after & !before != 0);
        // Programming clears bits and erasing sets them: any of those that were going may have gone.
        let mut torn = Vec::with_capacity(before.len());
        for (before, after) in before.iter().zip(&after) {
            let noise = if before == after { 0 } else { self.random.byte() };
            torn.push(if is_erase {
                before | (after & noise)
            } else {
                before & (after | noise)
            });
        }
        self.machine.set_journal(&torn)?;
        if is_erase {
            self.tally.torn_erases += 1;
        } else {
            self.tally.torn_programs += 1;
        }
        Ok(())
    }

    /// Leaves the kiosk alone for a while, so that it works ahead, and cuts the power in that. Whether there was anything.
    fn idle(&mut self) -> Result<bool> {
        let cut = self.cut();
        self.machine.watch_flash(true)?;
        let mut operation = 0;
        for _ in 0..IDLE_SLICES {
            match self.machine.wait_for_flash(SLICE)? {
                Stop::FlashOperation if cut.operation % WORK_AHEAD == operation => {
                    self.cut_here(cut.way)?;
                    self.tally.idle += 1;
                    return Ok(true);
                }
                Stop::FlashOperation => {
                    operation += 1;
                    self.machine.pass_flash_operation()?;
                }
                Stop::Timeout => {}
            }
        }
        self.machine.watch_flash(false)?;
        self.machine.run()?;
        Ok(false)
    }

    fn power_up(&mut self) -> Result<()> {
        let seed = self.random.next();
        self.machine.cut_power(seed)?;
        self.machine.run()?;
        self.caller.forget();
        // Their leases have lapsed; what the kiosk says to their tokens is tried by the old grants of sessions.
        self.hosts = [None, None];
        Ok(())
    }

    fn info(&mut self) -> Result<Info> {
        let Answer::Info(info) = self.caller.call(Request::Info)?.answer else {
            bail!("the kiosk says nothing of itself");
        };
        Ok(info)
    }

    /// Looks at everything that was told.
    fn look(&mut self, flight: Option<&(Name, Effect)>) -> Result<()> {
        let info = self.info()?;
        match info.state {
            State::Ready | State::Full => {}
            State::Unprovisioned | State::Starting | State::Closed(_) | State::Worn => {
                self.told.breach(format!("V6: after a cut it is {:?}", info.state));
                self.serves = false;
                return Ok(());
            }
        }
        let mut sessions = self.told.sessions();
        if let Some((session, _)) = flight
            && !sessions.contains(session)
        {
            sessions.push(session.clone());
        }
        for session in sessions {
            let request = Request::Row(Place::Session, session.clone());
            let Answer::Row(row) = self.caller.call(request)?.answer else {
                bail!("no row of {session}");
            };
            let row = match row {
                Some(Row::Session(row)) => Some(row),
                Some(_) | None => None,
            };
            let found = Standing::of(row.as_ref());
            let effect = flight.filter(|(name, _)| *name == session).map(|(_, effect)| *effect);
            if self.told.read(&session, found, effect) {
                self.settled += 1;
            }
        }
        self.told.counted(info.last_token);
        Ok(())
    }

    /// Asks again for what was cut off, under its id: what took effect is not done a second time (V7).
    fn ask_again(&mut self, asked: &Asked, id: Option<RequestId>) -> Result<()> {
        let call = keyfence_firmware::link::Call::new(id, asked.request.clone());
        let before = self.info()?.last_token;
        let reply = self.caller.exchange(&mut Exchange::again(call))?;
        let after = self.info()?.last_token;
        if reply.replayed {
            if before != after {
                self.told
                    .breach(format!("V7: {:?} was replayed and minted", asked.request));
            }
            if let (Request::Mint(_), Answer::Minted(token)) = (&asked.request, &reply.answer) {
                self.told.minted(*token, "a mint that was cut off");
            }
            return self.look(None);
        }
        self.take(asked, reply)
    }
}

fn generation(host: &HostGrant, grant: &Grant) -> Result<Generation> {
    Ok(Generation {
        host: host.name().clone(),
        incarnation: grant
            .incarnation
            .ok_or_else(|| anyhow::anyhow!("a claim without an incarnation"))?,
        token: grant.token,
        host_token: host.token(),
    })
}
