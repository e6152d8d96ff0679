//! Parts of space, one for each rank, with about equal work.

use super::body::Body;
use super::octree::Cube;

/// Halvings of space into cubes: the smallest parts that a rank has.
pub(super) const LEVELS: u32 = 3;
/// Number of the cubes.
pub(super) const CUBES: usize = 1 << (3 * LEVELS);

/// A cube with its bodies, in the order of their numbers.
pub(super) struct Inhabited {
    pub(super) cube: Cube,
    pub(super) bodies: Vec<usize>,
    cost: u64,
}

/// Sorts bodies into the cubes of space. Cubes that are near in this order are near in space.
pub(super) fn sort(bodies: &[Body], whole: Cube) -> Vec<Inhabited> {
    let cube = |number: usize| (0..LEVELS).rev().fold(whole, |cube, level| cube.eighth(number >> (3 * level) & 7));
    let mut cubes: Vec<Inhabited> =
        (0..CUBES).map(|number| Inhabited { cube: cube(number), bodies: Vec::new(), cost: 0 }).collect();
    for (index, body) in bodies.iter().enumerate() {
        let (mut number, mut around) = (0, whole);
        for _ in 0..LEVELS {
            let octant = around.octant(body.position);
            (number, around) = (8 * number + octant, around.eighth(octant));
        }
        cubes[number].bodies.push(index);
        cubes[number].cost += body.cost;
    }
    cubes
}

/// Returns the rank of each cube: neighbours in order, with about equal sums of cost.
pub(super) fn assign(cubes: &[Inhabited], ranks: usize) -> Vec<usize> {
    let all: u64 = cubes.iter().map(|cube| cube.cost).sum();
    let mut before = 0;
    let rank = |cube: &Inhabited| {
        let middle = before + cube.cost / 2;
        before += cube.cost;
        (middle * ranks as u64 / all.max(1)) as usize
    };
    cubes.iter().map(rank).map(|rank| rank.min(ranks - 1)).collect()
}
