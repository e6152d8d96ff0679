//! Failures of ranks that share pages.

mod two_nodes;
