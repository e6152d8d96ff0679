//! Tests of the daemon against hostile peers, and of its allocations.

#[cfg(test)]
pub(crate) mod byzantine_peer;
#[cfg(test)]
pub(crate) mod no_alloc;
#[cfg(test)]
pub(crate) mod unauthenticated_peer;
