//! Replication: the home's side of the copies of its segments. `handler.rs` names the state that it borrows; the state machine is in
//! `state/replication.rs`. `transitions.rs` changes the state of a replica, `failover.rs` does the work that a state asks for,
//! `resync.rs` makes the first copy, `forward.rs` and `large_puts.rs` send puts, and `acknowledgements.rs` handles the answers. The
//! replica's side is `replica/`.

pub(crate) mod acknowledgements;
pub(crate) mod failover;
pub(crate) mod forward;
pub(crate) mod forward_content;
pub(crate) mod handler;
pub(crate) mod large_puts;
pub(crate) mod resync;
pub(crate) mod transitions;
