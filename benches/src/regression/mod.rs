//! Says when the road got longer, on a machine where no time can be trusted.
//!
//! Two kinds of numbers are kept in `benches/guard/`: instructions of short runs that do the same each time, counted by
//! valgrind, and ratios to the raw limit. The first are the same on a busy machine and a quiet one, and so the tests
//! compare them; the second are for people with a quiet machine.

mod counted;
mod kept;
mod loads;

pub use counted::{CountError, instructions};
pub use kept::{Kept, Verdict, compare};
pub use loads::{LOADS, Load, load, run_load};
