//! Detection of performance regressions, on machines where times are unreliable.
//!
//! This folder records two kinds of numbers: instructions of short deterministic runs, counted by valgrind, and ratios
//! to the raw limit. The counts do not depend on the load of the machine, so the tests compare them. The ratios are for
//! people with a quiet machine; the program `ratios` of `ddss-benches` measures them.
//!
//! ```
//! use ddss_guard::{Recorded, Verdict, compare};
//!
//! let recorded = Recorded::parse(r#"{"compiler": "", "tolerance": 0.05, "numbers": {"codec": 200}}"#)?;
//! let verdicts = compare(&recorded, &[("codec".to_owned(), 220.0)].into());
//! assert!(matches!(verdicts[0].1, Verdict::Worse(_)));
//! # Ok::<(), String>(())
//! ```
#![forbid(unsafe_code)]

mod client_calls;
mod instruction_count;
mod judge;
mod recorded;
mod workloads;

pub use instruction_count::{CountError, instructions};
pub use judge::{Judgement, Wishes, judge};
pub use recorded::{Recorded, Verdict, compare};
pub use workloads::{WORKLOADS, Workload, callgrind_options, run_workload, workload};
