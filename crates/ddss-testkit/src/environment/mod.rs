//! Isolated surroundings for tests, made of Linux namespaces.
//!
//! `netns` gives each node a network of its own, `private_mounts` gives a daemon small file systems. Both need
//! privileges; `skipped` reports a test that lacks them.

pub(crate) mod netns;
pub(crate) mod private_mounts;
pub(crate) mod skipped;
