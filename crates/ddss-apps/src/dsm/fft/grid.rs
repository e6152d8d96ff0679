//! A grid of complex numbers in shared pages, and its transposition.

use super::complex::Complex;
use super::input;
use super::transform::{Direction, Transform};
use crate::Error;
use crate::dsm::elements::Elements;
use crate::dsm::part::own_part;
use ddss_dsm::{Homes, Region, Space};

/// A grid whose planes are spread over the ranks.
pub(super) struct Grid {
    /// Numbers along z, y and x. Those along x lie side by side.
    sides: [usize; 3],
    /// The grid on its way between ranks.
    shared: Region<Complex>,
    elements: Elements,
}

impl Grid {
    pub(super) fn create(space: &mut Space, sides: [usize; 3], elements: Elements) -> Result<Self, Error> {
        let [z, y, x] = sides;
        let shared = space.region(&format!("grid of {z} x {y} x {x}"), z * y * x, Homes::FirstTouch)?;
        Ok(Self { sides, shared, elements })
    }

    /// Returns the input of this rank: planes along z.
    pub(super) fn input(&self, space: &Space) -> Vec<Complex> {
        let [z, y, x] = self.sides;
        let own = own_part(space, z);
        let mut planes = vec![Complex::default(); own.len() * y * x];
        input::fill(&mut planes, own.start * y * x);
        planes
    }

    /// Computes the spectrum of the input: planes along y, which hold lines of x along z.
    pub(super) fn spectrum(&self, space: &mut Space) -> Result<Vec<Complex>, Error> {
        let [z, y, x] = self.sides;
        let [along_x, along_y, along_z] = [x, y, z].map(|length| Transform::new(length, Direction::Forward));
        let mut planes = self.input(space);
        for plane in planes.chunks_exact_mut(y * x) {
            plane.chunks_exact_mut(x).for_each(|line| along_x.line(line));
            along_y.columns(plane, x);
        }
        let mut spectrum = self.transpose(space, [z, y], |shared| shared.copy_from_slice(&planes))?;
        spectrum.chunks_exact_mut(z * x).for_each(|plane| along_z.columns(plane, x));
        Ok(spectrum)
    }

    /// Transforms a spectrum back, and divides by the size of the grid: planes along z.
    pub(super) fn inverse(&self, space: &mut Space, spectrum: &[Complex]) -> Result<Vec<Complex>, Error> {
        let [z, y, x] = self.sides;
        let [along_x, along_y, along_z] = [x, y, z].map(|length| Transform::new(length, Direction::Inverse));
        let mut planes = self.transpose(space, [y, z], |shared| {
            shared.copy_from_slice(spectrum);
            shared.chunks_exact_mut(z * x).for_each(|plane| along_z.columns(plane, x));
        })?;
        for plane in planes.chunks_exact_mut(y * x) {
            along_y.columns(plane, x);
            plane.chunks_exact_mut(x).for_each(|line| along_x.line(line));
        }
        let factor = 1.0 / (z * y * x) as f64;
        planes.iter_mut().for_each(|number| *number = number.scale(factor));
        Ok(planes)
    }

    /// Exchanges planes along one side for planes along another one, which hold the same lines of x. `fill` writes the planes of this
    /// rank, in place.
    fn transpose(
        &self,
        space: &mut Space,
        [outer, inner]: [usize; 2],
        fill: impl FnOnce(&mut [Complex]),
    ) -> Result<Vec<Complex>, Error> {
        let x = self.sides[2];
        let (own, wanted) = (own_part(space, outer), own_part(space, inner));
        let filled = own.start * inner * x..own.end * inner * x;
        if self.elements == Elements::Views {
            fill(&mut self.shared.write(space, filled)?);
        } else {
            let mut planes = vec![Complex::default(); filled.len()];
            fill(&mut planes);
            self.elements.store(space, self.shared, filled.start, &planes)?;
        }
        space.barrier()?;
        let mut planes = vec![Complex::default(); wanted.len() * outer * x];
        for plane in 0..outer {
            let begin = plane * inner;
            let range = (begin + wanted.start) * x..(begin + wanted.end) * x;
            let lines = self.elements.load(space, self.shared, range)?;
            for (number, line) in lines.chunks_exact(x).enumerate() {
                let at = (number * outer + plane) * x;
                planes[at..at + x].copy_from_slice(line);
            }
        }
        // The next transposition writes where others read.
        space.barrier()?;
        Ok(planes)
    }
}
