//! Replication: copies of segments at another node. The state machine is in `state/replication.rs`, and `home/replicas/roles.rs` follows the
//! cluster's decisions. `handler.rs` names what the home's side borrows: `failover.rs` (transitions), `forward.rs` (puts) and
//! `resync.rs` (the first copy) and `large_puts.rs`. The replica's side is `replica/`.

pub(crate) mod failover;
pub(crate) mod forward;
pub(crate) mod handler;
pub(crate) mod large_puts;
pub(crate) mod resync;
