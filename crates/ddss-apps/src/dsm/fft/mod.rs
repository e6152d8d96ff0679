//! A three-dimensional FFT, the kernel FT of the NAS Parallel Benchmarks as its report describes it: a spectrum is computed once,
//! and transformed back after each step of time.
//!
//! Each rank has planes of the grid. Lines inside a plane are its own; for the lines across planes all ranks exchange a
//! transposed grid through shared pages.

mod complex;
mod grid;
mod input;
mod program;
mod transform;

pub(super) use program::run;
