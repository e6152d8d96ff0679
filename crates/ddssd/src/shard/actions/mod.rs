//! Execution of the engine's actions and of the cluster's events. Each file acts on the parts of a shard that it
//! borrows.
//!
//! `copy_actions` moves bytes within this node, `transfers` and `remote_get` between nodes; `inflight_reads` tracks the reads.
//! `segment_work` creates, moves and clears segments, in slices (`background`) if they are large. `control_events`
//! applies decisions of the cluster.

pub(crate) mod background;
pub(crate) mod control_events;
pub(crate) mod copy_actions;
pub(crate) mod inflight_reads;
pub(crate) mod remote_get;
pub(crate) mod segment_work;
pub(crate) mod transfers;
