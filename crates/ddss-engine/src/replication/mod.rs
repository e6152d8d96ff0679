//! Replication: the role of this node for each replicated segment. `failover.rs` follows the
//! cluster's decisions; the state machine is in `state/replication.rs`. The home side is `forward.rs` (puts) and `resync.rs` (the first copy), the replica
//! side `replica.rs`; `large_puts.rs` has both sides of a large put.

pub(crate) mod failover;
pub(crate) mod forward;
pub(crate) mod large_puts;
pub(crate) mod replica;
pub(crate) mod resync;
