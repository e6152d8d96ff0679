//! Detection of performance regressions, on machines where times are unreliable.
//!
//! `benches/guard/` records two kinds of numbers: instructions of short deterministic runs, counted by valgrind, and
//! ratios to the raw limit. The counts do not depend on the load of the machine, so the tests compare them. The ratios
//! are for people with a quiet machine.

mod client_calls;
mod instruction_count;
mod recorded;
mod workloads;

pub use instruction_count::{CountError, instructions};
pub use recorded::{Recorded, Verdict, compare};
pub use workloads::{WORKLOADS, Workload, callgrind_options, run_workload, workload};
