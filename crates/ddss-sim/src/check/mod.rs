//! What clients saw, and what of it must not be.
//!
//! | file | what it checks |
//! | --- | --- |
//! | `versions.rs` | by version, exact and O(n log n): values, order as each model promises it, updates lost |
//! | `mutual_exclusion.rs` | what happened while somebody held a lock |
//! | `timestamps.rs` | timestamps rise with the versions |
//! | `linearizability.rs` | a general search for a linear order, as second opinion on small windows |

mod linearizability;
pub(crate) mod liveness;
mod mutual_exclusion;
mod timestamps;
mod versions;

pub use linearizability::{Step, explain};
pub use mutual_exclusion::{Section, Sections};
pub use timestamps::Stamps;
pub use versions::{History, Observation, What};
