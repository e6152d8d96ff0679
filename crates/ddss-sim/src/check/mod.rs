//! Checkers of the observations of all clients.
//!
//! | file | property |
//! | --- | --- |
//! | `versions.rs` | values, lost updates, and the order that each model promises; exact and O(n log n) |
//! | `mutual_exclusion.rs` | no excluded call while a lock is held |
//! | `timestamps.rs` | timestamps increase with the versions |
//! | `map_entries.rs` | each change of a map's entry has the result that the changes before it explain |
//! | `row_watches.rs`, `row_changes.rs` | a watcher of all rows of a table is notified of each change, or that it missed some |
//! | `linearizability.rs` | existence of a linear order, by exhaustive search in small windows |
//! | `permissions.rs` | no call without the permission for it, and no refusal with it |
//! | `copies.rs` | an acknowledged put of a segment in sync is on both nodes |
//! | `liveness.rs` | replicas are in sync again after the last fault |

mod copies;
mod linearizability;
pub(crate) mod liveness;
mod map_entries;
mod mutual_exclusion;
mod permissions;
mod row_changes;
pub(crate) mod row_watches;
mod timestamps;
mod versions;

pub use linearizability::{Step, find_linear_order};
pub use map_entries::{BucketView, EntryCall, EntryContent, MapChecker};
pub use mutual_exclusion::{CriticalSection, MutexChecker};
pub use timestamps::TimestampChecker;
pub use versions::{History, Observation, OperationKind};
