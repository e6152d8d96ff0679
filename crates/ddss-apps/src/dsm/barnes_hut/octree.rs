//! The tree of cells.
//!
//! It depends on the positions only: each number of ranks builds the same cells, with the same bits.

use super::body::{Body, attraction};
use super::vector::{Vector, add, square};
use crate::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Halvings of space at most. Bodies that are nearer to each other are at one place.
const DEPTH_MAX: u32 = 64;
/// A cell stands for its bodies if its side is shorter than this part of the distance. Splash-2 takes 1, and quadrupoles, which these
/// cells lack.
const SIDE_MAX: f64 = 0.7;
/// Bit of a node that is a body.
const BODY: u32 = 1 << 31;
/// Bits of the index of a cell.
const INDEX_BITS: u32 = 24;

/// Contents of an eighth of a cell, as a cell names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Empty,
    Body(usize),
    /// A cell in one of several lists.
    Cell {
        list: usize,
        index: usize,
    },
}

impl Node {
    pub(super) fn encode(self) -> u32 {
        match self {
            Self::Empty => 0,
            Self::Body(body) => BODY | body as u32,
            Self::Cell { list, index } => (list as u32 + 1) << INDEX_BITS | index as u32,
        }
    }

    pub(super) fn decode(bits: u32) -> Self {
        match bits {
            0 => Self::Empty,
            _ if bits & BODY != 0 => Self::Body((bits & !BODY) as usize),
            _ => {
                let index = bits & ((1 << INDEX_BITS) - 1);
                Self::Cell { list: (bits >> INDEX_BITS) as usize - 1, index: index as usize }
            }
        }
    }
}

/// A cube that is not empty: its mass, and its eighths. 64 of them fill a page.
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Cell {
    centre_of_mass: Vector,
    mass: f64,
    children: [u32; 8],
}

/// A part of space.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cube {
    pub(super) centre: Vector,
    pub(super) half: f64,
}

impl Cube {
    /// Returns the cube around bodies.
    pub(super) fn around(bodies: &[Body]) -> Self {
        let (mut low, mut high) = ([f64::MAX; 3], [f64::MIN; 3]);
        for body in bodies {
            for (axis, at) in body.position.iter().enumerate() {
                (low[axis], high[axis]) = (at.min(low[axis]), at.max(high[axis]));
            }
        }
        let centre = [0, 1, 2].map(|axis| (low[axis] + high[axis]) / 2.0);
        let half = [0, 1, 2].map(|axis| high[axis] - low[axis]).into_iter().fold(0.0, f64::max) / 2.0;
        Self { centre, half }
    }

    /// Returns the number of the eighth in which a position is.
    pub(super) fn octant(&self, position: Vector) -> usize {
        (0..3).map(|axis| usize::from(position[axis] >= self.centre[axis]) << axis).sum()
    }

    pub(super) fn eighth(&self, octant: usize) -> Self {
        let half = self.half / 2.0;
        let centre = [0, 1, 2].map(|axis| self.centre[axis] + if octant >> axis & 1 == 1 { half } else { -half });
        Self { centre, half }
    }
}

/// Cells that are built, and the lists with those that were built before.
pub(super) struct Builder<'a> {
    pub(super) bodies: &'a [Body],
    pub(super) lists: &'a [&'a [Cell]],
    /// Number of the list that is built.
    pub(super) list: usize,
    pub(super) cells: Vec<Cell>,
}

impl Builder<'_> {
    /// Builds the cells of a cube with these bodies, which are in the order of their numbers.
    pub(super) fn build(&mut self, cube: Cube, inside: &[usize], depth: u32) -> Result<Node, Error> {
        match inside {
            [] => return Ok(Node::Empty),
            [body] => return Ok(Node::Body(*body)),
            [a, b, ..] if depth == DEPTH_MAX => {
                return Err(Error::Wrong(format!("bodies {a} and {b} are at one place")));
            }
            _ => {}
        }
        let mut eighths: [Vec<usize>; 8] = [const { Vec::new() }; 8];
        for body in inside {
            eighths[cube.octant(self.bodies[*body].position)].push(*body);
        }
        let mut children = [Node::Empty; 8];
        for (octant, (child, inside)) in children.iter_mut().zip(&eighths).enumerate() {
            *child = self.build(cube.eighth(octant), inside, depth + 1)?;
        }
        Ok(self.join(children))
    }

    /// Joins eighths to a cell. One body alone needs none.
    pub(super) fn join(&mut self, children: [Node; 8]) -> Node {
        let mut used = children.iter().filter(|child| **child != Node::Empty);
        match (used.next(), used.next()) {
            (None, _) => return Node::Empty,
            (Some(body @ Node::Body(_)), None) => return *body,
            _ => {}
        }
        let (mut weighted, mut mass) = ([0.0; 3], 0.0);
        for (part, at) in children.iter().filter_map(|child| self.mass(*child)) {
            (weighted, mass) = (add(weighted, part, at), mass + part);
        }
        let centre_of_mass = weighted.map(|sum| sum / mass);
        self.cells.push(Cell { centre_of_mass, mass, children: children.map(Node::encode) });
        Node::Cell { list: self.list, index: self.cells.len() - 1 }
    }

    fn mass(&self, node: Node) -> Option<(f64, Vector)> {
        match node {
            Node::Empty => None,
            Node::Body(body) => Some((self.bodies[body].mass, self.bodies[body].position)),
            Node::Cell { list, index } => {
                let cell = if list == self.list { &self.cells[index] } else { &self.lists[list][index] };
                Some((cell.mass, cell.centre_of_mass))
            }
        }
    }
}

/// The whole tree.
pub(super) struct Octree<'a> {
    pub(super) bodies: &'a [Body],
    pub(super) lists: &'a [&'a [Cell]],
    pub(super) root: Node,
    pub(super) side: f64,
}

impl Octree<'_> {
    /// Returns the acceleration of a body by all others, and the number of masses that it is computed from.
    pub(super) fn acceleration(&self, body: usize) -> (Vector, u64) {
        let mut sum = ([0.0; 3], 0);
        self.attract(body, self.root, self.side, &mut sum);
        sum
    }

    fn attract(&self, body: usize, node: Node, side: f64, sum: &mut (Vector, u64)) {
        let (at, mass) = match node {
            Node::Empty => return,
            Node::Body(other) if other == body => return,
            Node::Body(other) => (self.bodies[other].position, self.bodies[other].mass),
            Node::Cell { list, index } => {
                let cell = &self.lists[list][index];
                let towards = add(cell.centre_of_mass, -1.0, self.bodies[body].position);
                if side * side >= SIDE_MAX * SIDE_MAX * square(towards) {
                    for child in cell.children {
                        self.attract(body, Node::decode(child), side / 2.0, sum);
                    }
                    return;
                }
                (cell.centre_of_mass, cell.mass)
            }
        };
        let towards = add(at, -1.0, self.bodies[body].position);
        *sum = (add(sum.0, 1.0, attraction(towards, mass)), sum.1 + 1);
    }
}

/// Returns the acceleration of a body by all others, one by one.
pub(super) fn direct(bodies: &[Body], body: usize) -> Vector {
    let others = bodies.iter().enumerate().filter(|(other, _)| *other != body);
    others.fold([0.0; 3], |sum, (_, other)| {
        add(sum, 1.0, attraction(add(other.position, -1.0, bodies[body].position), other.mass))
    })
}

#[cfg(test)]
mod tests {
    use super::super::plummer;
    use super::*;

    fn build(bodies: &[Body], cube: Cube) -> Result<(Node, Vec<Cell>), Error> {
        let mut builder = Builder { bodies, lists: &[], list: 0, cells: Vec::new() };
        let root = builder.build(cube, &(0..bodies.len()).collect::<Vec<_>>(), 0)?;
        Ok((root, builder.cells))
    }

    // If this failed, bodies would move in a field that is not theirs.
    #[test]
    fn forces_of_the_tree_are_near_those_of_all_pairs() {
        let bodies: Vec<Body> = (0..500).map(|number| plummer::body(number, 500)).collect();
        let cube = Cube::around(&bodies);
        let (root, cells) = build(&bodies, cube).unwrap();
        let masses: f64 = bodies.iter().map(|body| body.mass).sum();
        let Node::Cell { list: 0, index } = root else { panic!("{root:?}") };
        assert!((cells[index].mass - masses).abs() < 1e-12);
        let lists = [&cells[..]];
        // Cells without a side are opened never, and cells with an endless one always.
        for (side, error_max) in [(2.0 * cube.half, 0.03), (f64::INFINITY, 1e-12)] {
            let tree = Octree { bodies: &bodies, lists: &lists, root, side };
            let (mut errors, mut squares) = (0.0, 0.0);
            for body in 0..bodies.len() {
                let (found, expected) = (tree.acceleration(body).0, direct(&bodies, body));
                errors += square(add(found, -1.0, expected));
                squares += square(expected);
            }
            assert!((errors / squares).sqrt() < error_max, "{}", (errors / squares).sqrt());
        }
        assert_eq!(Octree { bodies: &bodies, lists: &lists, root, side: f64::INFINITY }.acceleration(7).1, 499);
    }

    // If this failed, two bodies at one place would end the stack of a rank.
    #[test]
    fn bodies_at_one_place_are_an_error() {
        let body = plummer::body(1, 2);
        let said = build(&[body, body, plummer::body(2, 2)], Cube { centre: [0.0; 3], half: 10.0 }).unwrap_err();
        assert_eq!(said.to_string(), "bodies 0 and 1 are at one place");
    }

    // If this failed, a rank would follow a cell into another list.
    #[test]
    fn nodes_survive_their_encoding() {
        for node in [
            Node::Empty,
            Node::Body(0),
            Node::Body(70_000),
            Node::Cell { list: 0, index: 0 },
            Node::Cell { list: 16, index: 65_535 },
        ] {
            assert_eq!(Node::decode(node.encode()), node);
        }
    }
}
