//! Tests of the daemon against hostile peers, of its allocations, and of what it leaves behind.

#[cfg(test)]
pub(crate) mod no_alloc;
#[cfg(test)]
pub(crate) mod offline_inspection;
#[cfg(test)]
pub(crate) mod unauthenticated_peer;
