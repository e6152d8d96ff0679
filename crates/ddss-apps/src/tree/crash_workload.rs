//! Reproducible changes of a tree, for tests with killed writers and concurrent readers.
//!
//! Step `n` of a seed is always the same change, and each step writes its own number into the tree, in the same commit.
//! So the expected content of a tree follows from that number alone.

use std::collections::BTreeMap;
use std::ops::Bound;

use ddss_testkit::Random;

use super::{BTree, RTree, Rect};
use crate::Error;
use crate::storage::PageStore;

/// Number of keys: few, so that each is inserted and removed often.
const KEYS: u64 = 600;
/// The key of the number of steps.
const STEPS_KEY: &[u8] = b"!steps";
/// The place of the number of steps.
const STEPS_PLACE: [f64; 2] = [9999.0, 9999.0];

/// Expected contents of a B-tree after some steps.
pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn change(seed: u64, step: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut random = Random::new(seed.wrapping_add(step.wrapping_mul(7919)));
    let key = format!("key {:04}", random.below(KEYS)).into_bytes();
    // Phases of growth and of shrinking alternate: nodes are split, and joined again.
    let grows = if (step / 400).is_multiple_of(2) { 80 } else { 20 };
    if random.below(100) < grows {
        let length = random.below(400) as usize;
        (key, Some(format!("{step} ").into_bytes().into_iter().cycle().take(length).collect()))
    } else {
        (key, None)
    }
}

/// Returns the expected contents of a B-tree after `steps` steps.
pub fn content(seed: u64, steps: u64) -> Content {
    let mut content = Content::new();
    for step in 0..steps {
        match change(seed, step) {
            (key, Some(value)) => content.insert(key, value),
            (key, None) => content.remove(&key),
        };
    }
    if steps > 0 {
        content.insert(STEPS_KEY.to_vec(), steps.to_le_bytes().to_vec());
    }
    content
}

fn steps_of(value: Option<&[u8]>) -> Result<u64, Error> {
    let Some(value) = value else { return Ok(0) };
    let bytes = value.try_into().map_err(|_| Error::Inconsistent("the number of steps is none".into()))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Does the next step, as one commit; returns the number of steps.
pub fn step<S: PageStore>(tree: &mut BTree<S>, seed: u64) -> Result<u64, Error> {
    tree.write(|tree| {
        let steps = steps_of(tree.get(STEPS_KEY)?.as_deref())?;
        match change(seed, steps) {
            (key, Some(value)) => tree.insert(&key, &value)?,
            (key, None) => tree.remove(&key)?,
        };
        tree.insert(STEPS_KEY, &(steps + 1).to_le_bytes())?;
        Ok(steps + 1)
    })
}

/// Reads a complete tree, and checks that it is the result of a number of steps; returns that number.
pub fn check<S: PageStore>(tree: &mut BTree<S>, seed: u64) -> Result<u64, Error> {
    let all: Content = tree.range(Bound::Unbounded, Bound::Unbounded)?.into_iter().collect();
    let steps = steps_of(all.get(STEPS_KEY).map(Vec::as_slice))?;
    if all == content(seed, steps) {
        return Ok(steps);
    }
    Err(Error::Inconsistent(format!("{} keys are not those after {steps} steps", all.len())))
}

fn place_of(key: &[u8]) -> Rect {
    let mut random = Random::new(key.iter().fold(7, |sum, &byte| sum * 31 + u64::from(byte)));
    Rect::point([random.unit() * 100.0, random.unit() * 100.0])
}

/// Returns the expected values of an R-tree after `steps` steps, with their positions, in order.
fn values(seed: u64, steps: u64) -> Vec<(Rect, u64)> {
    let mut kept = BTreeMap::new();
    for step in 0..steps {
        match change(seed, step) {
            (key, Some(_)) => kept.insert(key, step),
            (key, None) => kept.remove(&key),
        };
    }
    let mut values: Vec<_> = kept.into_iter().map(|(key, step)| (place_of(&key), step)).collect();
    values.sort_by_key(|(_, step)| *step);
    values
}

fn steps_there<S: PageStore>(tree: &mut RTree<S>) -> Result<u64, Error> {
    Ok(tree.search(Rect::point(STEPS_PLACE))?.first().map_or(0, |(_, steps)| *steps))
}

/// Does the next step of an R-tree, as one commit; returns the number of steps.
pub fn step_in_place<S: PageStore>(tree: &mut RTree<S>, seed: u64) -> Result<u64, Error> {
    tree.write(|tree| {
        let steps = steps_there(tree)?;
        let (key, value) = change(seed, steps);
        let place = place_of(&key);
        for (rect, old) in tree.search(place)? {
            tree.remove(rect, old)?;
        }
        if value.is_some() {
            tree.insert(place, steps)?;
        }
        if steps > 0 {
            tree.remove(Rect::point(STEPS_PLACE), steps)?;
        }
        tree.insert(Rect::point(STEPS_PLACE), steps + 1)?;
        Ok(steps + 1)
    })
}

/// Reads a complete R-tree, and checks that it is the result of a number of steps; returns that number.
pub fn check_places<S: PageStore>(tree: &mut RTree<S>, seed: u64) -> Result<u64, Error> {
    let mut all = tree.search(Rect::new([-1.0, -1.0], [1e4, 1e4]))?;
    let at = all.iter().position(|(rect, _)| *rect == Rect::point(STEPS_PLACE));
    let steps = at.map_or(0, |at| all.swap_remove(at).1);
    all.sort_by_key(|(_, step)| *step);
    if all == values(seed, steps) {
        return Ok(steps);
    }
    Err(Error::Inconsistent(format!("{} values are not those after {steps} steps", all.len())))
}
