//! Checkers of the observations of all clients. They know nothing of the simulated cluster.
//!
//! | file | property |
//! | --- | --- |
//! | `versions.rs` | values, lost updates, and the order that each model promises; exact and O(n log n) |
//! | `mutual_exclusion.rs` | no excluded call while a lock is held |
//! | `timestamps.rs` | timestamps increase with the versions |
//! | `map_entries.rs` | each change of a map's entry has the result that the changes before it explain |
//! | `linearizability.rs` | existence of a linear order, by exhaustive search in small windows |
//! | `permission_oracle.rs` | which calls are permitted |

mod linearizability;
mod map_entries;
mod mutual_exclusion;
pub(crate) mod permission_oracle;
mod timestamps;
mod versions;

pub use linearizability::{Step, find_linear_order};
pub use map_entries::{BucketView, EntryCall, EntryContent, MapChecker};
pub use mutual_exclusion::{CriticalSection, MutexChecker};
pub use timestamps::TimestampChecker;
pub use versions::{History, Observation, OperationKind};
