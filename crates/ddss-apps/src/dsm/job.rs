//! Programs, and their sizes.

use super::elements::Elements;
use crate::names::names;

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Moves bodies under their gravity.
    BarnesHut,
    /// Finds the shortest tour through cities.
    Tsp,
    /// Sorts integers by their digits.
    Radix,
    /// Transforms a grid of complex numbers.
    Fft,
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 4] = [Self::BarnesHut, Self::Tsp, Self::Radix, Self::Fft];
}

names!(Program, "program", BarnesHut = "barnes-hut", Tsp = "tsp", Radix = "radix", Fft = "3d-fft");

/// Size of a problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// The paper's.
    Paper,
    /// A small one, for tests.
    Small,
}

/// Settings of a run, which all ranks share.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Program.
    pub program: Program,
    /// Size of the problem.
    pub size: Size,
    /// True if the ranks check the result by other means.
    pub has_check: bool,
    /// Way in which the program uses its regions.
    pub elements: Elements,
}
