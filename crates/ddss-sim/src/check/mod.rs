//! Checks of a simulated cluster and of its clients.
//!
//! | file | property |
//! | --- | --- |
//! | `row_watches.rs`, `row_changes.rs` | a watcher of all rows of a table is notified of each change, or that it missed some |
//! | `permissions.rs` | no call without the permission for it, and no refusal with it |
//! | `copies.rs` | an acknowledged put of a segment in sync is on both nodes |
//! | `liveness.rs` | replicas are in sync again after the last fault |

mod copies;
pub(crate) mod liveness;
mod permissions;
mod row_changes;
pub(crate) mod row_watches;
