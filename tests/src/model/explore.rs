//! Runs through every order of acts, breadth first.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use keyfence_core::event::Event;
use keyfence_core::{Expiry, TimeMs};

use super::cast::{Act, Cast};
use super::lens::Weakness;
use super::monitor::Broken;
use super::world::World;

/// What an exploration found.
#[derive(Debug)]
pub struct Explored {
    /// How many different worlds there are within the bounds.
    pub worlds: usize,
    /// How many acts led from one to another.
    pub acts: usize,
    /// The shortest way to a world that breaks an invariant, as a text that tells the story.
    pub broken: Option<(Broken, String)>,
    /// How often each kind of act had an effect.
    pub effects: std::collections::BTreeMap<&'static str, usize>,
}

/// A world's mark among those seen. Of a million worlds any two share one by chance in fewer than one of ten million runs.
fn mark(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Explores every order of acts of this cast, with or without a weakness.
///
/// # Panics
/// When there are more than `worlds_max` worlds: the bounds of the cast are too wide to be explored completely.
#[must_use]
pub fn explore(cast: &Cast, weakness: Option<Weakness>, worlds_max: usize) -> Explored {
    let mut found = Explored {
        worlds: 1,
        acts: 0,
        broken: None,
        effects: std::collections::BTreeMap::new(),
    };
    let first = World::new(cast, weakness);
    let mut seen = HashSet::from([mark(&first)]);
    // How each world was reached: from which one, by which act.
    let mut came: Vec<(usize, Option<Act>)> = vec![(0, None)];
    let mut front = vec![(0, first)];
    while !front.is_empty() {
        let mut next = Vec::new();
        for (at, world) in &front {
            for act in cast.acts(world) {
                found.acts += 1;
                let mut after = world.clone();
                match after.act(&act, &mut |_| {}) {
                    Ok(effect) => *found.effects.entry(act.kind()).or_default() += usize::from(effect),
                    Err(broken) => {
                        let story = story(cast, weakness, &way(&came, *at, act));
                        found.broken = Some((broken, story));
                        return found;
                    }
                }
                if seen.insert(mark(&after)) {
                    found.worlds += 1;
                    assert!(found.worlds <= worlds_max, "more than {worlds_max} worlds");
                    came.push((*at, Some(act)));
                    next.push((came.len() - 1, after));
                }
            }
        }
        front = next;
    }
    found
}

/// The acts that led to a world, and one more.
fn way(came: &[(usize, Option<Act>)], mut at: usize, last: Act) -> Vec<Act> {
    let mut acts = vec![last];
    while let (before, Some(act)) = &came[at] {
        acts.push(act.clone());
        at = *before;
    }
    acts.reverse();
    acts
}

/// Tells what happens when these acts follow each other: each with its answer, and under it the events that it left.
#[must_use]
pub fn story(cast: &Cast, weakness: Option<Weakness>, acts: &[Act]) -> String {
    let mut world = World::new(cast, weakness);
    let mut told = String::new();
    for (number, act) in acts.iter().enumerate() {
        let who = world.who(act).map_or_else(String::new, |who| who + " ");
        let mut answer = String::new();
        let ended = world.act(act, &mut |words| answer = words.to_string());
        told += &format!("{:3}. {who}{}: {answer}\n", number + 1, act.kind());
        for event in &world.left {
            told += &format!("       {}\n", line(event));
        }
        if let Err(broken) = ended {
            told += &format!("     BROKEN {broken}\n");
        }
    }
    told
}

/// An event in one line.
fn line(event: &Event) -> String {
    let minutes = |time: TimeMs| time.as_ms() / 60_000;
    let mut line = event.kind.name().to_owned();
    if let Some(token) = event.token {
        line += &format!(" token {token}");
    }
    if let Some(parent) = event.parent_token {
        line += &format!(" under {parent}");
    }
    if let Some(incarnation) = event.incarnation {
        line += &format!(" incarnation {incarnation}");
    }
    if let Some(expires_at) = event.expires_at {
        line += &format!(" until {}", minutes(expires_at));
    }
    if let Some(retries) = event.retries {
        line += &format!(" retries {retries}");
    }
    if let Some(replaced) = &event.replaced {
        line += &format!(" replaces token {}", replaced.token);
        if let Expiry::At(expires_at) = replaced.expiry {
            line += &format!(" until {}", minutes(expires_at));
        }
    }
    line
}
