//! The search: cut the life everywhere, recover, judge, and cut the recovery again.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::bench::Bench;
use super::case::{Case, Cut, CutKind, Path};
use super::faults;
use super::life::Verb;
use super::oracle::{Oracle, Violation};
use super::report::{Failed, Report, Tally};
use super::script::{Place, Script, is_erase};
use super::subject::Store;
use super::variants::{readings, seeded_reading, seeded_tear, tears, turned};
use crate::flash::{Geometry, Image, Reading, TracedOperation};
use crate::random::{Random, fold};

/// What is searched.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The store.
    pub store: &'static Store,
    /// The chip.
    pub geometry: &'static Geometry,
    /// Commits of the life that is cut.
    pub commits: usize,
    /// Cuts in one case: 1 cuts the life only, 2 the recovery from that too, and so on.
    pub depth: usize,
    /// Seed of the life and of every random shape.
    pub seed: u64,
    /// Of the cuts in recoveries one in this many is tried, chosen by the seed; 1 tries all.
    pub sample: u64,
    /// Verbs that are done after each recovery.
    pub follow_up: usize,
    /// Whether drivers that lie and reads that fail are tried too, in an exhaustive search.
    pub faults: bool,
    /// Threads that search.
    pub threads: usize,
}

impl Settings {
    /// An exhaustive search to depth 1.
    #[must_use]
    pub const fn new(store: &'static Store, geometry: &'static Geometry) -> Self {
        Self {
            store,
            geometry,
            commits: 24,
            depth: 1,
            seed: 1,
            sample: 1,
            follow_up: 6,
            faults: true,
            threads: 2,
        }
    }
}

/// How far a search has come; shared with whoever draws it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Places of the life, or random cases, to go through.
    pub total: AtomicUsize,
    /// Those gone through.
    pub done: AtomicUsize,
    /// Cases tried.
    pub cases: AtomicU64,
    /// Cases that failed.
    pub failures: AtomicU64,
    /// Nobody needs the search any more: it ends soon and reports what it has.
    pub stop: AtomicBool,
}

/// Cuts the life of `settings` at every operation with every tear and reading.
///
/// # Errors
///
/// When the store cannot even live without a cut.
pub fn exhaustive(settings: &Settings, progress: &Progress) -> Result<Report, Violation> {
    let script = settings.script(settings.seed)?;
    let mut report = Report::begin(settings, &script);
    let steps = if settings.faults { script.steps.len() } else { 0 };
    let total = script.places.len() + steps;
    progress.total.store(total, Ordering::Relaxed);
    let search = Search {
        settings,
        script: &script,
        progress,
        seen: Seen::default(),
    };
    let next = AtomicUsize::new(0);
    for tally in on_threads(settings.threads, || {
        let mut tally = Tally::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= total || progress.stop.load(Ordering::Relaxed) {
                break tally;
            }
            match script.places.get(index) {
                Some(place) => search.cut_place(index, place, &mut tally),
                None => faults::try_all(settings, &script, index - script.places.len(), progress, &mut tally),
            }
            progress.done.fetch_add(1, Ordering::Relaxed);
        }
    }) {
        report.add(tally);
    }
    Ok(report)
}

/// Lives that share one seed have this many random cases each.
const CASES_PER_LIFE: usize = 5000;

/// Tries `cases` random cases: random lives, cuts, tears, readings and depths, all from the seed.
///
/// # Errors
///
/// When the store cannot even live without a cut.
pub fn random(settings: &Settings, cases: usize, progress: &Progress) -> Result<Report, Violation> {
    let first = settings.script(settings.seed)?;
    let mut report = Report::begin(settings, &first);
    progress.total.store(cases, Ordering::Relaxed);
    let next = AtomicUsize::new(0);
    for tally in on_threads(settings.threads, || {
        let mut tally = Tally::default();
        loop {
            let life = next.fetch_add(1, Ordering::Relaxed);
            let share = cases.saturating_sub(life * CASES_PER_LIFE).min(CASES_PER_LIFE);
            if share == 0 || progress.stop.load(Ordering::Relaxed) {
                break tally;
            }
            let settings = Settings {
                seed: settings.seed + life as u64,
                ..*settings
            };
            match settings.script(settings.seed) {
                Ok(script) => {
                    let search = Search {
                        settings: &settings,
                        script: &script,
                        progress,
                        seen: Seen::default(),
                    };
                    search.random_life(share, &mut tally);
                }
                Err(violation) => tally.life_failed(settings.seed, violation),
            }
        }
    }) {
        report.add(tally);
    }
    Ok(report)
}

/// A case that was done again.
#[derive(Debug)]
pub struct Replayed {
    /// What happened, a line for each step.
    pub story: Vec<String>,
    /// How it ended.
    pub violation: Option<Violation>,
    /// What the last cut has left on the flash; `None` of a fault with the power on.
    pub image: Option<Image>,
}

/// Does one case again.
///
/// # Errors
///
/// When the store cannot even live without a cut, or the case names an operation that is not there.
pub fn replay(settings: &Settings, case: &Case) -> Result<Replayed, Violation> {
    let script = settings.script(settings.seed)?;
    let path = match case {
        Case::Cuts(path) => path,
        Case::Fault(fault) => {
            let (story, violation) = faults::replay(settings, &script, fault)?;
            return Ok(Replayed {
                story,
                violation,
                image: None,
            });
        }
    };
    let progress = Progress::default();
    let search = Search {
        settings,
        script: &script,
        progress: &progress,
        seen: Seen::default(),
    };
    let missing = |cut: usize, places: usize| {
        let detail = format!(
            "cut {} names an operation that is not there: there are {places}",
            cut + 1
        );
        Violation::new("no_such_case", detail)
    };
    let mut replayed = Replayed {
        story: Vec::new(),
        violation: None,
        image: None,
    };
    let mut places = &script.places;
    let mut nested;
    for (i, cut) in path.0.iter().enumerate() {
        let at = places.get(cut.operation).ok_or_else(|| missing(i, places.len()))?;
        replayed.story.push(format!(
            "cut {}: during {:?}, operation {} ({}): {}",
            i + 1,
            at.verb,
            cut.operation,
            describe(&at.traced),
            cut.tear,
        ));
        let image = at.traced.before.torn(&at.traced.operation, &cut.tear);
        let last = i + 1 == path.0.len();
        let recovery = search.recover(&image, &at.oracle, cut.reading, !last, Some(&mut replayed.story));
        replayed.image = Some(image);
        if let Err(violation) = recovery.outcome {
            let line = format!("violation: {}: {}", violation.kind, violation.detail);
            replayed.story.push(line);
            replayed.violation = Some(violation);
            return Ok(replayed);
        }
        nested = recovery.places;
        places = &nested;
    }
    replayed.story.push("the oracle is satisfied".to_owned());
    Ok(replayed)
}

fn describe(traced: &TracedOperation) -> String {
    match &traced.operation {
        crate::flash::Operation::Program { offset, data } => {
            format!("program of {} bytes at {offset:#x}", data.len())
        }
        crate::flash::Operation::Erase { page } => format!("erase of page {page}"),
    }
}

impl Settings {
    fn script(&self, seed: u64) -> Result<Script, Violation> {
        Script::write(self.store, self.geometry, self.commits, seed)
    }
}

/// What a recovery came to.
struct Recovery {
    outcome: Result<(), Violation>,
    /// Whether a read faulted.
    faulted: bool,
    /// Where it can be cut in turn, if it was traced.
    places: Vec<Place>,
}

struct Search<'a> {
    settings: &'a Settings,
    script: &'a Script,
    progress: &'a Progress,
    seen: Seen,
}

impl Search<'_> {
    fn cut_place(&self, index: usize, place: &Place, tally: &mut Tally) {
        self.cut(index, place, &Path::default(), self.settings.depth, tally);
    }

    /// Cuts at `place` in every way, `depth` levels deep.
    fn cut(&self, index: usize, place: &Place, path: &Path, depth: usize, tally: &mut Tally) {
        let before = &place.traced.before;
        let seed = fold(self.settings.seed, before.digest());
        for tear in tears(self.settings.geometry, &place.traced.operation, seed) {
            let image = before.torn(&place.traced.operation, &tear);
            let cut = Cut {
                operation: index,
                tear,
                reading: Reading::AsLeft,
            };
            let kind = path.then(cut).kind();
            // The same image with the same past is tried once for each kind and depth.
            let key = fold(
                fold(image.digest(), place.oracle.digest()),
                kind as u64 + 8 * depth as u64,
            );
            if !self.seen.insert(key) {
                tally.repeated += 1;
                continue;
            }
            for reading in readings(&image, self.settings.seed) {
                let path = path.then(Cut { reading, ..cut });
                let deeper = depth > 1;
                let recovery = self.recover(&image, &place.oracle, reading, deeper, None);
                self.count(&path, place.verb, recovery.faulted, recovery.outcome, tally);
                for (i, nested) in recovery.places.iter().enumerate() {
                    let lot = fold(fold(seed, nested.traced.before.digest()), i as u64);
                    if lot.is_multiple_of(self.settings.sample) {
                        self.cut(i, nested, &path, depth - 1, tally);
                    }
                }
            }
        }
    }

    /// Tries `cases` random chains of cuts on this life.
    fn random_life(&self, cases: usize, tally: &mut Tally) {
        let erases = self.script.erases();
        let mut random = Random::new(fold(self.settings.seed, 4));
        let mut tried = 0;
        while tried < cases && !self.progress.stop.load(Ordering::Relaxed) {
            let (mut path, mut places) = (Path::default(), Vec::new());
            let depth = 1 + random.below(self.settings.depth as u64) as usize;
            for level in 0..depth {
                let places_now = if level == 0 { &self.script.places } else { &places };
                if places_now.is_empty() {
                    break;
                }
                let mut index = random.below(places_now.len() as u64) as usize;
                // Erases are rare, and more goes wrong in them.
                if level == 0 && !erases.is_empty() && random.below(3) == 0 {
                    index = erases[random.below(erases.len() as u64) as usize];
                } else if level > 0
                    && random.below(4) == 0
                    && let Some(erase) = places_now.iter().position(|place| is_erase(&place.traced))
                {
                    index = erase;
                }
                let place = &places_now[index];
                let tear = seeded_tear(self.settings.geometry, &place.traced.operation, &mut random);
                let reading = seeded_reading(&mut random);
                let image = place.traced.before.torn(&place.traced.operation, &tear);
                path = path.then(Cut {
                    operation: index,
                    tear,
                    reading,
                });
                let recovery = self.recover(&image, &place.oracle, reading, level + 1 < depth, None);
                let failed = recovery.outcome.is_err();
                self.count(&path, place.verb, recovery.faulted, recovery.outcome, tally);
                tried += 1;
                self.progress.done.fetch_add(1, Ordering::Relaxed);
                if failed {
                    break;
                }
                places = recovery.places;
            }
        }
    }

    fn count(&self, path: &Path, verb: Verb, faulted: bool, outcome: Result<(), Violation>, tally: &mut Tally) {
        let kind = if faulted { CutKind::EccFault } else { path.kind() };
        self.progress.cases.fetch_add(1, Ordering::Relaxed);
        tally.count(kind, path.0.len());
        if let Err(violation) = outcome {
            self.progress.failures.fetch_add(1, Ordering::Relaxed);
            let seed = self.settings.seed;
            let during = format!("{verb:?}");
            tally.fail(Failed {
                seed,
                kind,
                case: Case::Cuts(path.clone()),
                during,
                violation,
            });
        }
    }

    /// Mounts the image, works on, reboots, and judges every answer. With `traced` the operations up
    /// to the end of the first verb are given back as places for further cuts.
    fn recover(
        &self,
        image: &Image,
        past: &Oracle,
        reading: Reading,
        traced: bool,
        mut story: Option<&mut Vec<String>>,
    ) -> Recovery {
        let mut tell = |line: String| {
            if let Some(story) = &mut story {
                story.push(line);
            }
        };
        let mut bench = Bench::new(self.script.store, &self.script.keys, image.clone());
        let mut oracle = past.clone();
        let mut random = Random::new(fold(self.settings.seed, image.digest()));
        if traced {
            bench.start_trace();
        }
        let mut places = Vec::new();
        let mut run = || -> Result<(), Violation> {
            tell(format!("mount, marginal cells read as `{reading}`"));
            bench.boot(reading, &mut oracle)?;
            let turned = turned(reading);
            tell(format!("mount again, marginal cells read as `{turned}`"));
            bench.boot(turned, &mut oracle)?;
            for i in 0..self.settings.follow_up {
                let verb = if i == 0 {
                    Verb::Mint
                } else {
                    oracle.model().next_verb(self.script.bounds, &mut random)
                };
                tell(format!("{verb:?}"));
                bench.perform(verb, &mut oracle)?;
                if i == 0 {
                    places = bench.take_trace().into_iter().map(Place::new).collect();
                }
            }
            tell(format!("mount, marginal cells read as `{reading}`"));
            bench.boot(reading, &mut oracle)?;
            bench.check_abuse()
        };
        let outcome = run();
        let faulted = bench.chip.borrow().counters().faults > 0;
        Recovery {
            outcome,
            faulted,
            places,
        }
    }
}

/// The images that were tried, in shards so that threads rarely wait for each other.
#[derive(Debug)]
struct Seen(Vec<Mutex<HashSet<u64>>>);

impl Default for Seen {
    fn default() -> Self {
        Self((0..64).map(|_| Mutex::default()).collect())
    }
}

impl Seen {
    /// Whether `key` is new.
    fn insert(&self, key: u64) -> bool {
        let shard = &self.0[(key >> 58) as usize];
        shard
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(key)
    }
}

/// Runs `work` on `threads` threads and gives what each of them returned.
fn on_threads<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(&work)).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, T>| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().map(join).collect()
    })
}
