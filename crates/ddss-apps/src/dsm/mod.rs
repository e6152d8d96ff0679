//! Programs on shared pages, those of the paper about NEWGENDSM: Barnes-Hut, a travelling salesman, a radix sort, a 3D FFT.
//!
//! Each is written from its published description, on views of regions. `job` names the programs and their sizes, `part` divides
//! work, `elements` copies into and out of regions, [`run_rank`] is a rank of a program, `counts` adds up the counters of all ranks, and [`Runner`] starts the ranks of a
//! program under each protocol.

mod barnes_hut;
mod counts;
mod elements;
mod fft;
mod job;
mod part;
mod radix;
mod rank;
mod runner;
mod tsp;

pub use elements::Elements;
pub use job::{Job, Program, Size};
pub use rank::{RankReport, run_rank};
pub use runner::{Outcome, Runner, Settings};
