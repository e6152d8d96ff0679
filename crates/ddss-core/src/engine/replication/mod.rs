//! Replicas: roles, failover, forwarding of puts, and resynchronisation.

pub(crate) mod failover;
pub(crate) mod forward;
pub(crate) mod replica;
pub(crate) mod resync;
pub(crate) mod state;
