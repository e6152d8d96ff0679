//! A heat stencil: what each rank computes, and what one process does.

use std::ops::Range;

/// Rows and columns of the plate, with its edges. Bands of ranks meet within a page.
pub(crate) const SIZE: usize = 96;
pub(crate) const RANKS: usize = 4;

/// Rows that a rank computes. The edges stay as they are.
pub(crate) fn band(rank: usize) -> Range<usize> {
    let inner = SIZE - 2;
    1 + rank * inner / RANKS..1 + (rank + 1) * inner / RANKS
}

/// Computes rows from those of the step before, with one row above and one below.
pub(crate) fn step(before: &[f64], after: &mut [f64]) {
    for (row, line) in after.chunks_exact_mut(SIZE).enumerate() {
        let at = |row: usize, column: usize| before[row * SIZE + column];
        for (column, point) in line.iter_mut().enumerate().take(SIZE - 1).skip(1) {
            let around = at(row, column) + at(row + 2, column) + at(row + 1, column - 1) + at(row + 1, column + 1);
            *point = around / 4.0;
        }
    }
}

/// A plate that is cold but for its first row.
pub(crate) fn cold() -> Vec<f64> {
    let mut plate = vec![0.0; SIZE * SIZE];
    plate[..SIZE].fill(100.0);
    plate
}

/// Returns the sum by which a result is compared, bit by bit.
pub(crate) fn sum(plate: &[f64]) -> u32 {
    plate.iter().fold(0, |sum, point| crc32c::crc32c_append(sum, &point.to_le_bytes()))
}

/// Returns the sum after so many steps of one process.
pub(crate) fn expected(steps: u64) -> u32 {
    let (mut before, mut after) = (cold(), cold());
    for _ in 0..steps {
        step(&before, &mut after[SIZE..(SIZE - 1) * SIZE]);
        std::mem::swap(&mut before, &mut after);
    }
    sum(&before)
}
