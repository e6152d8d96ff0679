//! Transforms of lines, each of a power of two of numbers.

use super::complex::Complex;
use std::f64::consts::TAU;

/// Direction of a transform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// To the spectrum.
    Forward,
    /// From the spectrum, without division by the length.
    Inverse,
}

/// Roots of unity for lines of one length.
pub(super) struct Transform {
    /// Powers of the first root, those of half a turn.
    roots: Vec<Complex>,
}

impl Transform {
    /// # Panics
    /// The length is no power of two, or less than 2.
    pub(super) fn new(length: usize, direction: Direction) -> Self {
        assert!(length.is_power_of_two() && length > 1, "lines of {length} numbers");
        let roots = (0..length / 2).map(|power| Complex::from_angle(-TAU * power as f64 / length as f64));
        let roots = roots.map(|root| if direction == Direction::Forward { root } else { root.conjugate() }).collect();
        Self { roots }
    }

    /// Transforms a line in place: in bit-reversed order, with butterflies of two, four and so on.
    pub(super) fn line(&self, line: &mut [Complex]) {
        let length = 2 * self.roots.len();
        assert_eq!(line.len(), length, "a line has the length of its transform");
        let shift = usize::BITS - length.trailing_zeros();
        for at in 0..length {
            let reversed = at.reverse_bits() >> shift;
            if at < reversed {
                line.swap(at, reversed);
            }
        }
        let mut half = 1;
        while half < length {
            let stride = self.roots.len() / half;
            for block in line.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for ((a, b), root) in low.iter_mut().zip(high).zip(self.roots.iter().step_by(stride)) {
                    let turned = *b * *root;
                    (*a, *b) = (*a + turned, *a - turned);
                }
            }
            half *= 2;
        }
    }

    /// Transforms lines whose numbers are `stride` apart, one for each of the first `stride` numbers.
    pub(super) fn columns(&self, plane: &mut [Complex], stride: usize) {
        let mut column = vec![Complex::default(); 2 * self.roots.len()];
        for first in 0..stride {
            let places = (first..plane.len()).step_by(stride);
            column.iter_mut().zip(places.clone()).for_each(|(number, at)| *number = plane[at]);
            self.line(&mut column);
            column.iter().zip(places).for_each(|(number, at)| plane[at] = *number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the program would compute another sum than the transform's definition.
    #[test]
    fn line_equals_the_sum_of_the_definition() {
        let input: Vec<Complex> = (0..16).map(|at| Complex { re: f64::from(at * at % 7), im: f64::from(at) }).collect();
        for (direction, sign) in [(Direction::Forward, -1.0), (Direction::Inverse, 1.0)] {
            let transform = Transform::new(16, direction);
            let mut line = input.clone();
            transform.line(&mut line);
            let mut columns: Vec<Complex> = input.iter().flat_map(|number| [*number, number.scale(2.0)]).collect();
            transform.columns(&mut columns, 2);
            for (k, found) in line.iter().enumerate() {
                let term = |(at, number): (usize, &Complex)| {
                    *number * Complex::from_angle(sign * TAU * (at * k % 16) as f64 / 16.0)
                };
                let sum = input.iter().enumerate().map(term).fold(Complex::default(), |sum, term| sum + term);
                assert!((sum - *found).abs() < 1e-11, "{k}: {sum:?} and {found:?}");
                assert_eq!((columns[2 * k], columns[2 * k + 1]), (*found, found.scale(2.0)), "{k}");
            }
        }
    }
}
