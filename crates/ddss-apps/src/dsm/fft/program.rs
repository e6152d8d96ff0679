//! The steps of the program, and their checksums.

use super::complex::Complex;
use super::grid::Grid;
use super::input::{STEPS, published};
use crate::Error;
use crate::dsm::job::{Job, Size};
use crate::dsm::part::own_part;
use ddss_dsm::{Homes, Region, Space};
use std::f64::consts::PI;

/// Numbers of the grid that are added up after each step.
const TERMS: usize = 1024;
/// Speed at which the spectrum decays.
const ALPHA: f64 = 1e-6;
/// Difference from the published checksums at most, as a part of them.
const CHECKSUM_ERROR_MAX: f64 = 1e-12;
/// Difference between the input, of numbers from 0 to 1, and what its spectrum is transformed back to.
const INVERSE_ERROR_MAX: f64 = 1e-12;

/// Transforms grids: class S of the benchmark, or class W and the paper's, which is no class. Rank 0 returns the last checksum of
/// each.
pub(in crate::dsm) fn run(space: &mut Space, job: Job) -> Result<Option<String>, Error> {
    let grids: &[[usize; 3]] = match job.size {
        Size::Paper => &[[32, 128, 128], [128; 3]],
        Size::Small => &[[64; 3]],
    };
    let terms = space.region::<Complex>("terms", TERMS, Homes::FirstTouch)?;
    let mut results = Vec::new();
    for sides in grids {
        let sums = transform(space, *sides, terms, job)?;
        if let (true, Some(published), Some(sums)) = (job.has_check, published(*sides), &sums) {
            compare(sums, &published)?;
        }
        let [z, y, x] = sides;
        results.extend(sums.map(|sums| {
            let Complex { re, im } = sums[STEPS - 1];
            format!("{x} x {y} x {z} numbers have the checksum {re:.9} + {im:.9} i")
        }));
    }
    Ok((space.rank() == 0).then(|| results.join(", ")))
}

/// Transforms a grid, and transforms it back after each step. Rank 0 returns the checksums.
fn transform(
    space: &mut Space,
    sides: [usize; 3],
    terms: Region<Complex>,
    job: Job,
) -> Result<Option<Vec<Complex>>, Error> {
    let grid = Grid::create(space, sides, job.elements)?;
    let mut spectrum = grid.spectrum(space)?;
    if job.has_check {
        let input = grid.input(space);
        let planes = grid.inverse(space, &spectrum)?;
        if let Some((a, b)) = input.iter().zip(&planes).find(|(a, b)| (**a - **b).abs() > INVERSE_ERROR_MAX) {
            return Err(Error::Wrong(format!("{a:?} of the input comes back as {b:?}")));
        }
    }
    let decay = decay(space, sides);
    let mut sums = Vec::new();
    for _ in 0..STEPS {
        spectrum.iter_mut().zip(&decay).for_each(|(number, factor)| *number = number.scale(*factor));
        let planes = grid.inverse(space, &spectrum)?;
        write_terms(space, sides, &planes, terms)?;
        space.barrier()?;
        if space.rank() == 0 {
            // In their order, so that the sum is the same for each number of ranks.
            sums.push(terms.read(space, ..)?.iter().fold(Complex::default(), |sum, term| sum + *term));
        }
    }
    Ok((space.rank() == 0).then_some(sums))
}

/// Returns the factors of one step for the spectrum of this rank.
fn decay(space: &Space, [z, y, x]: [usize; 3]) -> Vec<f64> {
    let square = |at: usize, side: usize| {
        let centred = at as f64 - if at >= side / 2 { side as f64 } else { 0.0 };
        centred * centred
    };
    let factor = |squares: f64| (-4.0 * ALPHA * PI * PI * squares).exp();
    let own = own_part(space, y);
    own.flat_map(|at_y| (0..z).flat_map(move |at_z| (0..x).map(move |at_x| [at_z, at_y, at_x])))
        .map(|[at_z, at_y, at_x]| factor(square(at_z, z) + square(at_y, y) + square(at_x, x)))
        .collect()
}

/// Writes those terms of the checksum that are in planes of this rank.
fn write_terms(space: &Space, [z, y, x]: [usize; 3], planes: &[Complex], terms: Region<Complex>) -> Result<(), Error> {
    let own = own_part(space, z);
    for term in 1..=TERMS {
        let [at_x, at_y, at_z] = [term % x, 3 * term % y, 5 * term % z];
        if own.contains(&at_z) {
            terms.put(space, term - 1, planes[((at_z - own.start) * y + at_y) * x + at_x])?;
        }
    }
    Ok(())
}

fn compare(found: &[Complex], published: &[Complex]) -> Result<(), Error> {
    for (step, (found, published)) in found.iter().zip(published).enumerate() {
        let error = |found: f64, published: f64| ((found - published) / published).abs();
        if error(found.re, published.re).max(error(found.im, published.im)) > CHECKSUM_ERROR_MAX {
            return Err(Error::Wrong(format!("step {step}: {found:?} instead of the published {published:?}")));
        }
    }
    Ok(())
}
