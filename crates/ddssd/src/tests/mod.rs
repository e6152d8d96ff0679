//! Tests of the daemon against hostile peers, and of what it allocates.

#[cfg(test)]
pub(crate) mod byzantine_peer;
#[cfg(test)]
pub(crate) mod no_alloc;
#[cfg(test)]
pub(crate) mod unauthenticated_peer;
