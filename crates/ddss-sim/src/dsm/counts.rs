//! Exact counts.
