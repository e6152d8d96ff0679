//! Namespaces, mounts, terminals, and tests that lack what they need.

pub(crate) mod netns;
pub(crate) mod private_mounts;
pub(crate) mod skipped;
