//! Benchmarks of DDSS, each beside the raw limit of the machine.
//!
//! A figure alone depends more on the machine and its neighbours than on DDSS. So each figure has a *limit*: the same
//! bytes over the same path without DDSS. [`harness`] measures the limit right before and after each figure,
//! interleaves the compared operations, and discards a pair when the limit itself moved. [`baseline`] has the limits,
//! [`system`] has DDSS itself. The programs in `benches/` name the comparisons. [`report`] draws figures of their rows,
//! [`scale_projection`] simulates larger clusters than two cores can run, and [`regression`] detects regressions.
//! Without the feature `measurements` there is only [`regression`].
//!
//! ```
//! use std::hint::black_box;
//!
//! use ddss_benches::harness::{Bench, Figure, RoundTrip};
//!
//! struct Sum(u64);
//!
//! impl RoundTrip for Sum {
//!     fn once(&mut self) {
//!         self.0 = (0..black_box(100)).sum();
//!     }
//! }
//!
//! // Without `--bench`, which cargo bench gives, everything runs once, to see that it does.
//! let mut bench = Bench::start("example", std::iter::empty());
//! let limit = Figure::new("raw", "sum", 8, "near/spin/t1", Sum(0));
//! let figure = Figure::new("ddss", "sum", 8, "near/spin/t1", Sum(0));
//! bench.family(limit, vec![figure]);
//! bench.finish();
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "measurements")]
pub mod baseline;
#[cfg(feature = "measurements")]
pub mod harness;
pub mod regression;
#[cfg(feature = "measurements")]
pub mod report;
#[cfg(feature = "measurements")]
pub mod scale_projection;
#[cfg(feature = "measurements")]
pub mod system;
mod tools;

pub use tools::compiler;
