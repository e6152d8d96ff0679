//! Leases of locks as their holders see them, and the thread that renews them.

mod held_lease;
mod keeper;

pub(crate) use held_lease::HeldLease;
pub(crate) use keeper::LeaseKeeper;
