//! The life of a store without cuts: provisioned, aged, then traced operation by operation.

use std::collections::VecDeque;
use std::sync::Arc;

use super::bench::{Bench, Phase};
use super::life::{Bounds, Key, Verb};
use super::oracle::{Oracle, Violation};
use super::subject::Store;
use crate::flash::{Geometry, Image, Reading, TracedOperation};
use crate::random::{Random, fold};

/// The store gives up ageing after this many commits.
const AGEING_COMMITS_MAX: usize = 50_000;
/// The life begins this many verbs before a page turn that the ageing has seen; a short one begins nearer to it.
const VERBS_BEFORE_TURN: usize = 6;

/// A life whose first page turn comes later than in this commit, or not at all, is lived otherwise, if it can be.
const FIRST_TURN_MAX: usize = 10;
/// So many lives are tried.
const LIVES_MAX: u64 = 20;

/// One place where the life can be cut.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The operation, and what the region held before it.
    pub(super) traced: TracedOperation,
    /// What was acknowledged and in flight.
    pub(super) oracle: Arc<Oracle>,
    /// What the store was doing.
    pub(super) verb: Verb,
}

impl Place {
    pub(super) fn new((traced, phase): (TracedOperation, Phase)) -> Self {
        Self {
            traced,
            oracle: phase.oracle,
            verb: phase.verb,
        }
    }
}

/// A verb of the life, and how things were before it.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) image: Image,
    pub(super) oracle: Oracle,
    pub(super) verb: Verb,
}

/// A whole life.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) store: &'static Store,
    pub(super) bounds: Bounds,
    pub(super) keys: Vec<Key>,
    pub(super) pages: usize,
    pub(super) places: Vec<Place>,
    pub(super) steps: Vec<Step>,
    /// Commits of the ageing that are part of this life's past.
    pub(super) aged_commits: usize,
    /// The commit of the life during which the first page was erased, counted from 1.
    pub(super) first_turn: Option<usize>,
    /// Erases of each page since provisioning, ageing included.
    pub(super) wear: Vec<u64>,
}

/// A moment of the ageing to which the bench can go back.
struct Moment {
    image: Image,
    oracle: Oracle,
    wear: Vec<u64>,
    commits: usize,
}

impl Script {
    /// Provisions `store`, ages it until every page has been erased, goes back to a few verbs before
    /// a page turn, and traces `commits` commits from there.
    pub(super) fn write(
        store: &'static Store,
        geometry: &'static Geometry,
        commits: usize,
        seed: u64,
    ) -> Result<Self, Violation> {
        let pages = (store.pages)(geometry).ok_or_else(|| {
            let detail = format!("{} does not run on {}", store.name, geometry.name);
            Violation::new("not_supported", detail)
        })?;
        let bounds = Bounds::for_page_size(geometry.erase_size_bytes);
        let keys: Vec<Key> = bounds.keys().collect();
        let before_turn = VERBS_BEFORE_TURN.min(commits.div_ceil(2));
        let start = age(store, bounds, &keys, Image::blank(geometry, pages), before_turn, seed)?;
        let mut script = Self {
            store,
            bounds,
            keys,
            pages,
            places: Vec::new(),
            steps: Vec::new(),
            aged_commits: start.commits,
            first_turn: None,
            wear: start.wear.clone(),
        };
        // The life goes on otherwise than the ageing did, and need not turn a page as soon.
        for attempt in 0..LIVES_MAX {
            script.live(&start.image, start.oracle.clone(), commits, fold(seed, attempt))?;
            let is_late = script.first_turn.is_none_or(|commit| commit > FIRST_TURN_MAX);
            if !is_late || attempt + 1 == LIVES_MAX {
                break;
            }
            script.places.clear();
            script.steps.clear();
            script.first_turn = None;
            script.wear.clone_from(&start.wear);
        }
        Ok(script)
    }

    fn live(&mut self, image: &Image, mut oracle: Oracle, commits: usize, seed: u64) -> Result<(), Violation> {
        let mut bench = Bench::new(self.store, &self.keys, image.clone());
        let mut random = Random::new(fold(seed, 3));
        let mut done = 0;
        let mut verb = Verb::Reboot;
        while done <= commits {
            let image = bench.chip.borrow().image().clone();
            self.steps.push(Step {
                image,
                oracle: oracle.clone(),
                verb,
            });
            bench.start_trace();
            bench.perform(verb, &mut oracle)?;
            let trace = bench.take_trace();
            let turns = trace.iter().any(|(traced, _)| is_erase(traced));
            if turns && self.first_turn.is_none() {
                self.first_turn = Some(done);
            }
            self.places.extend(trace.into_iter().map(Place::new));
            verb = oracle.model().next_verb(self.bounds, &mut random);
            done += usize::from(verb != Verb::Reboot);
        }
        bench.check_abuse()?;
        let chip = bench.chip.borrow();
        self.wear
            .iter_mut()
            .zip(&chip.counters().wear)
            .for_each(|(sum, wear)| *sum += wear);
        Ok(())
    }

    /// The places at which the life erases a page.
    pub(super) fn erases(&self) -> Vec<usize> {
        (0..self.places.len())
            .filter(|i| is_erase(&self.places[*i].traced))
            .collect()
    }
}

pub(super) const fn is_erase(traced: &TracedOperation) -> bool {
    matches!(traced.operation, crate::flash::Operation::Erase { .. })
}

fn age(
    store: &'static Store,
    bounds: Bounds,
    keys: &[Key],
    blank: Image,
    before_turn: usize,
    seed: u64,
) -> Result<Moment, Violation> {
    let mut bench = Bench::new(store, keys, blank);
    let mut oracle = Oracle::default();
    bench.provision()?;
    bench.boot(Reading::AsLeft, &mut oracle)?;
    let provisioned = bench.chip.borrow().counters().wear.clone();
    let mut random = Random::new(fold(seed, 2));
    let mut past = VecDeque::new();
    let mut erases = bench.chip.borrow().counters().erases;
    for commits in 0..AGEING_COMMITS_MAX {
        if past.len() == before_turn {
            past.pop_front();
        }
        let chip = bench.chip.borrow();
        let wear: Vec<u64> = chip
            .counters()
            .wear
            .iter()
            .zip(&provisioned)
            .map(|(now, then)| now - then)
            .collect();
        let image = chip.image().clone();
        drop(chip);
        past.push_back(Moment {
            image,
            oracle: oracle.clone(),
            wear,
            commits,
        });
        let verb = oracle.model().next_verb(bounds, &mut random);
        bench.perform(verb, &mut oracle)?;
        let now = bench.chip.borrow().counters().erases;
        let turned = std::mem::replace(&mut erases, now) != now;
        if turned
            && let Some(moment) = past.front()
            && moment.wear.iter().all(|erases| *erases > 0)
        {
            let moment = past.pop_front();
            return moment.ok_or_else(|| Violation::new("not_aged", "no past"));
        }
    }
    let detail = format!("some page was never erased in {AGEING_COMMITS_MAX} commits");
    Err(Violation::new("not_aged", detail))
}
