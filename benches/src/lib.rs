//! What is measured, with the raw limit beside it.
//!
//! A figure alone says more about the machine and its neighbours than about DDSS. So each figure has a *limit*:
//! the same bytes over the same road with nothing in between. [`harness`] measures the limit right before and
//! right after each figure, takes turns between all that is compared, and throws a pair away when the limit
//! itself moved. [`baseline`] has the limits, [`system`] has DDSS itself. The programs in `benches/` say what is compared with what. [`report`] makes
//! figures of their rows, [`scale_projection`] simulates what two cores cannot show, and [`regression`] says when something got worse.
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

pub mod baseline;
pub mod harness;
pub mod regression;
pub mod report;
pub mod scale_projection;
pub mod system;
