//! The steps of the program.

use super::body::Body;
use super::octree::{Builder, Cell, Cube, Node, Octree, direct};
use super::vector::{add, square};
use super::zones::{self, Inhabited};
use super::{plummer, zones::CUBES};
use crate::Error;
use crate::dsm::elements::Elements;
use crate::dsm::job::{Job, Size};
use crate::dsm::part::own_part;
use ddss_dsm::{Homes, Region, Space};
use std::ops::Range;
use zerocopy::IntoBytes;

/// Time of a step.
const STEP: f64 = 0.025;
/// Change of the energy at most, as a part of it.
const ENERGY_CHANGE_MAX: f64 = 0.005;
/// Difference between forces of the tree and those of all pairs at most, as a part of them.
const FORCE_ERROR_MAX: f64 = 0.03;
/// One of so many bodies has its force compared.
const COMPARED_EACH: usize = 64;

/// Moves bodies. Rank 0 returns a checksum of them.
pub(in crate::dsm) fn run(space: &mut Space, job: Job) -> Result<Option<String>, Error> {
    let (count, steps) = match job.size {
        Size::Paper => (32_768, 3),
        Size::Small => (1024, 8),
    };
    let cluster = Cluster::open(space, count, job.elements)?;
    let own = own_part(space, count);
    let made: Vec<Body> = own.clone().map(|number| plummer::body(number, count)).collect();
    job.elements.store(space, cluster.bodies, own.start, &made)?;
    space.barrier()?;
    let energy = job.has_check.then(|| cluster.energy(space)).transpose()?;
    // Velocities are half a step behind the positions, except before and after all steps.
    for step in 0..=steps {
        let before = if step == 0 { 0.0 } else { STEP / 2.0 };
        let (after, time) = if step == steps { (0.0, 0.0) } else { (STEP / 2.0, STEP) };
        cluster.step(space, Advance { before, after, time }, job.has_check)?;
    }
    if let Some(before) = energy {
        let after = cluster.energy(space)?;
        let change = ((after - before) / before).abs();
        if change > ENERGY_CHANGE_MAX {
            return Err(Error::Wrong(format!("the energy was {before} and is {after}")));
        }
    }
    if space.rank() > 0 {
        return Ok(None);
    }
    let checksum = crc32c::crc32c(job.elements.load(space, cluster.bodies, ..)?.as_bytes());
    Ok(Some(format!("{count} bodies have the checksum {checksum:08x} after {steps} steps")))
}

/// How bodies move under their acceleration: times of the velocity before and after the moment of the step, and of the position.
#[derive(Clone, Copy)]
struct Advance {
    before: f64,
    after: f64,
    time: f64,
}

/// Bodies and their tree, in shared pages.
struct Cluster {
    bodies: Region<Body>,
    /// A list of cells of each rank.
    cells: Region<Cell>,
    /// Cells of each rank at most.
    cells_each: usize,
    /// Lengths of the lists.
    lengths: Region<u64>,
    /// Nodes of the cubes.
    roots: Region<u32>,
    energies: Region<f64>,
    elements: Elements,
}

impl Cluster {
    fn open(space: &mut Space, count: usize, elements: Elements) -> Result<Self, Error> {
        let ranks = usize::from(space.ranks());
        Ok(Self {
            bodies: space.region("bodies", count, Homes::FirstTouch)?,
            // A cell has two bodies at least. A chain of cells around two near ones is short, and rare.
            cells: space.region("cells", ranks * count, Homes::FirstTouch)?,
            cells_each: count,
            lengths: space.region("numbers of cells", ranks, Homes::FirstTouch)?,
            roots: space.region("nodes of cubes", CUBES, Homes::FirstTouch)?,
            energies: space.region("energies", ranks, Homes::FirstTouch)?,
            elements,
        })
    }

    fn step(&self, space: &mut Space, advance: Advance, has_check: bool) -> Result<(), Error> {
        let bodies = self.elements.load(space, self.bodies, ..)?;
        let whole = Cube::around(&bodies);
        let cubes = zones::sort(&bodies, whole);
        let ranks = zones::assign(&cubes, space.ranks().into());
        let rank = usize::from(space.rank());
        let own = ranks.partition_point(|other| *other < rank)..ranks.partition_point(|other| *other <= rank);
        self.build(space, &bodies, &cubes, own.clone())?;
        drop(bodies);
        space.barrier()?;
        let moved = self.forces(space, whole, &cubes[own], advance, has_check)?;
        // No rank moves a body while another one computes a force of it.
        space.barrier()?;
        for (index, body) in moved {
            self.elements.store(space, self.bodies, index, &[body])?;
        }
        Ok(space.barrier()?)
    }

    /// Builds the cells in the cubes of this rank.
    fn build(&self, space: &Space, bodies: &[Body], cubes: &[Inhabited], own: Range<usize>) -> Result<(), Error> {
        let rank = usize::from(space.rank());
        let mut builder = Builder { bodies, lists: &[], list: rank, cells: Vec::new() };
        let mut roots = Vec::new();
        for cube in &cubes[own.clone()] {
            roots.push(builder.build(cube.cube, &cube.bodies, zones::LEVELS)?.encode());
        }
        let cells = builder.cells;
        if cells.len() > self.cells_each {
            let (found, max) = (cells.len(), self.cells_each);
            return Err(Error::Wrong(format!("{found} cells of rank {rank} are more than {max}")));
        }
        if !roots.is_empty() {
            self.elements.store(space, self.roots, own.start, &roots)?;
        }
        if !cells.is_empty() {
            self.elements.store(space, self.cells, rank * self.cells_each, &cells)?;
        }
        self.elements.store(space, self.lengths, rank, &[cells.len() as u64])
    }

    /// Computes the forces on the bodies in the cubes of this rank. Returns the bodies as they are after the step.
    fn forces(
        &self,
        space: &Space,
        whole: Cube,
        cubes: &[Inhabited],
        advance: Advance,
        has_check: bool,
    ) -> Result<Vec<(usize, Body)>, Error> {
        let bodies = self.elements.load(space, self.bodies, ..)?;
        let mut views = Vec::new();
        for (rank, length) in self.elements.load(space, self.lengths, ..)?.iter().enumerate() {
            let (begin, length) = (rank * self.cells_each, *length as usize);
            views.push(if length > 0 {
                Some(self.elements.load(space, self.cells, begin..begin + length)?)
            } else {
                None
            });
        }
        let mut lists: Vec<&[Cell]> = views.iter().map(|view| view.as_deref().unwrap_or_default()).collect();
        let mut top = Builder { bodies: &bodies, lists: &lists, list: lists.len(), cells: Vec::new() };
        let mut nodes: Vec<Node> =
            self.elements.load(space, self.roots, ..)?.iter().map(|root| Node::decode(*root)).collect();
        for _ in 0..zones::LEVELS {
            let (eighths, _) = nodes.as_chunks::<8>();
            nodes = eighths.iter().map(|children| top.join(*children)).collect();
        }
        let top = top.cells;
        lists.push(&top);
        let tree = Octree { bodies: &bodies, lists: &lists, root: nodes[0], side: 2.0 * whole.half };
        let mut moved = Vec::new();
        let (mut errors, mut squares) = (0.0, 0.0);
        for index in cubes.iter().flat_map(|cube| cube.bodies.iter().copied()) {
            let (acceleration, cost) = tree.acceleration(index);
            if has_check && index % COMPARED_EACH == 0 {
                let expected = direct(&bodies, index);
                errors += square(add(acceleration, -1.0, expected));
                squares += square(expected);
            }
            let velocity = add(bodies[index].velocity, advance.before + advance.after, acceleration);
            let position = add(bodies[index].position, advance.time, velocity);
            moved.push((index, Body { position, velocity, cost, ..bodies[index] }));
        }
        let error = (errors / squares).sqrt();
        if error > FORCE_ERROR_MAX {
            return Err(Error::Wrong(format!("forces of the tree differ by {error} from those of all pairs")));
        }
        moved.sort_unstable_by_key(|(index, _)| *index);
        Ok(moved)
    }

    /// Computes the energy, with the potential of all pairs. It is a barrier.
    fn energy(&self, space: &mut Space) -> Result<f64, Error> {
        let (rank, ranks) = (usize::from(space.rank()), usize::from(space.ranks()));
        let bodies = self.elements.load(space, self.bodies, ..)?;
        let of = |(index, body): (usize, &Body)| {
            body.kinetic() + bodies[index + 1..].iter().map(|other| body.potential(other)).sum::<f64>()
        };
        let own = bodies.iter().enumerate().skip(rank).step_by(ranks).map(of).sum();
        drop(bodies);
        self.elements.store(space, self.energies, rank, &[own])?;
        space.barrier()?;
        Ok(self.elements.load(space, self.energies, ..)?.iter().sum())
    }
}
