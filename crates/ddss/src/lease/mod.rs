//! Leases of locks as their holders see them, and the thread that renews them.

pub(crate) mod held_lease;
pub(crate) mod keeper;
pub(crate) mod lease_state;
